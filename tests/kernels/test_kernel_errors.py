"""Errors of kernels name the user's line, and say what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
import dlc.kernels as k
from dlc.backends.reference import EvaluationError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
IDS = np.array([2, 0, 1], np.int32)


def same(x: Any, ids: Any) -> k.Result:
    return k.Result(x.shape, x.dtype, fill=0)


def run(body: Callable[[Any, Any, Any], None], results: Any = same) -> Any:
    """Run a kernel of x, ids → y."""

    def kernel(x: Any, ids: Any, y: Any) -> None:
        body(x, ids, y)

    return dlc.jit(target="reference")(dlc.kernel(results=results)(kernel))(X, IDS)


def expect(error: type[Exception], message: str, body: Callable[[Any, Any, Any], None], results: Any = same) -> None:
    with pytest.raises(error, match=message) as caught:
        run(body, results)
    assert "test_kernel_errors.py:" in str(caught.value)


def test_index_out_of_bounds() -> None:
    def above(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x[i + 1, 0]

    def below(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i - 1, 0] = 0

    def vector(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y.store(i, 0, value=x.load(i, 2, width=3))

    def data(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x[ids[i], 0]

    def fixed(x: Any, ids: Any, y: Any) -> None:
        for _ in k.grid(3):
            y[3, 0] = 0

    expect(dlc.ShapeError, r"index 1..3 of x is not within 0..2: axis 0 of shape \(3, 4\); .*k.clip\(index, 3\)", above)
    expect(dlc.ShapeError, r"index -1..1 of y is not within 0..2: axis 0", below)
    expect(dlc.ShapeError, r"index 2 of x with 3 elements from there is not within 0..1: axis 1", vector)
    expect(dlc.ShapeError, r"index -2147483648..2147483647 of x is not within 0..2", data)
    expect(dlc.ShapeError, r"index 3 of y is not within 0..2", fixed)


def test_conditions_limit_indices() -> None:
    def by_condition(x: Any, ids: Any, y: Any) -> None:
        for i, j in k.grid(3, 4):
            with k.when((i + 1 < 3) & (j >= 1)):
                y[i, j] = x[i + 1, j - 1]

    def by_data(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            source = k.index(ids[i])
            with k.when((source >= 0) & (source < 3)):
                y[i, 0] = x[source, 0]

    def triangle(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            for j in k.range(i + 1):
                y[i, j] = x[i - j, j]

    def blocks(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(12):
            y[i // 4, i % 4] = x[k.minimum(i // 4, 2), -1]

    shifted = np.zeros_like(X)
    shifted[:-1, 1:] = X[1:, :-1]
    np.testing.assert_array_equal(run(by_condition), shifted)
    np.testing.assert_array_equal(run(by_data)[:, 0], X[IDS, 0])
    np.testing.assert_array_equal(run(triangle), [[X[i - j, j] if j <= i else 0 for j in range(4)] for i in range(3)])
    np.testing.assert_array_equal(run(blocks), np.repeat(X[:, 3:], 4, 1))


def test_condition_of_another_scope() -> None:
    def outside(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            with k.when(i < 2):
                y[i, 0] = x[i + 1, 0]
            y[i, 1] = x[i + 1, 0]

    def negated(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            with k.when((i < 2) | (i > 5)):
                y[i, 0] = x[i + 1, 0]

    expect(dlc.ShapeError, "index 1..3 of x", outside)
    expect(dlc.ShapeError, "index 1..3 of x", negated)


def test_overflow_of_indices() -> None:
    def overflow(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            large = k.index(ids[i].astype(np.int64))
            with k.when((large + 1 < 3) & (large + 1 >= 0)):
                y[i, 0] = 1

    def step(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            for _ in k.range(0, k.index(ids[i].astype(np.int64)), 2):
                y[i, 0] = 1

    for body in (overflow, step):
        expect(dlc.DlcError, r"an index of .* may overflow; limit it by k.clip", body)


def test_dtypes() -> None:
    def mixed(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x[i, 0] + ids[i]

    def index(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x[i, 0] * i

    def stored(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = ids[i]

    def narrowed(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = (ids[i] + 0.5).astype(np.float32)

    def large(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = (ids[i] + (1 << 40)).astype(np.float32)

    def scalar(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x[i, 0] + np.float64(1)

    def divided(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = ids[i] / 2

    def root(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = k.sqrt(ids[i])

    def untyped(x: Any, ids: Any, y: Any) -> None:
        for _ in k.grid(3):
            k.variable(0.0)

    def captured(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x[i, 0] * X

    def vectors(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            x.load(i, 0, width=2) + x.load(i, 0, width=4)

    expect(dlc.DTypeError, "dtypes float32 and int32; convert one of them with .astype", mixed)
    expect(dlc.DTypeError, "dtypes float32 and index", index)
    expect(dlc.DTypeError, r"dtype int32 is stored to y of dtype float32; convert it with .astype\(y.dtype\)", stored)
    expect(dlc.DTypeError, "0.5 is not a value of dtype int32", narrowed)
    expect(dlc.DTypeError, "1099511627776 is not a value of dtype int32", large)
    expect(dlc.DTypeError, "dtypes float32 and float64", scalar)
    expect(dlc.DTypeError, "/ of int32 values; use //", divided)
    expect(dlc.DTypeError, "k.sqrt: a value of dtype int32", root)
    expect(dlc.DTypeError, r"k.variable\(0.0\) needs a dtype", untyped)
    expect(dlc.DTypeError, "pass it as an operand", captured)
    expect(dlc.ShapeError, r"vectors of shapes \(2,\) and \(4,\)", vectors)


def test_python_control_flow() -> None:
    def condition(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            if x[i, 0] > 0:
                y[i, 0] = 1

    def python_range(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            for _ in range(ids[i]):
                y[i, 0] = 1

    def left(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            for j in k.range(4):
                y[i, j] = 1
                break

    def returned(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = 1
            return

    def static(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            with k.when(x.shape[0] > 2):
                y[i, 0] = 1

    expect(dlc.DlcError, r"a Python condition .* on a bool value.*use k.when", condition)
    expect(dlc.DlcError, "a int32 value as a Python integer.*use k.range", python_range)
    expect(dlc.DlcError, "the loop over k.range was left by break, return", left)
    expect(dlc.DlcError, "the loop over k.grid was left by break, return", returned)
    expect(dlc.DlcError, "k.when: True is known while tracing; use a Python if", static)


def test_scopes() -> None:
    def value(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            for j in k.range(4):
                last = x[i, j]
            y[i, 0] = last

    def index(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            for j in k.range(4):
                y[i, j] = 1
            y[i, j] = 0

    def variable(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            with k.when(x[i, 0] > 0):
                total = k.variable(0, x.dtype)
            total.value = 1

    def grids(x: Any, ids: Any, y: Any) -> None:
        for _ in k.grid(3):
            for _ in k.grid(3):
                pass

    expect(dlc.DlcError, r"a value of the k.range at test_kernel_errors.py:\d+ is used outside of it", value)
    expect(dlc.DlcError, r"a value of the k.range at .* is used outside of it", index)
    expect(dlc.DlcError, r"a variable of the k.when at .* is used outside of it", variable)
    expect(dlc.DlcError, "k.grid inside of a k.grid", grids)
    expect(dlc.DlcError, "y is accessed outside of a grid", lambda x, ids, y: y.__setitem__((0, 0), 1))
    expect(dlc.DlcError, "k.range outside of a grid", lambda x, ids, y: list(k.range(3)))
    with pytest.raises(dlc.DlcError, match=r"k.grid: called outside of a kernel"):
        k.grid(3)


def test_results_must_be_written() -> None:
    def unfilled(x: Any, ids: Any) -> k.Result:
        return k.Result(x.shape, x.dtype)

    def partly(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            for j in k.range(3):
                y[i, j] = x[i, j]

    def sometimes(x: Any, ids: Any, y: Any) -> None:
        for i, j in k.grid(3, 4):
            with k.when(x[i, j] > 0):
                y[i, j] = x[i, j]

    def diagonal(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, i] = 1

    def read(x: Any, ids: Any, y: Any) -> None:
        for i, j in k.grid(3, 4):
            y[i, j] = y[i, j] + 1

    def backwards(x: Any, ids: Any, y: Any) -> None:
        for i, j in k.grid(3, 4):
            y[2 - i, 3 - j] = x[2 - i, 3 - j]

    def blocked(x: Any, ids: Any, y: Any) -> None:
        for i, block in k.grid(3, 2):
            for lane in k.range(2):
                y[i, 2 * block + lane] = x[i, 2 * block + lane]

    for body in (partly, sometimes, diagonal):
        expect(dlc.DlcError, r"the result y of shape \(3, 4\) may have elements that are not written.*fill=0", body, unfilled)
    expect(dlc.DlcError, "the result y is read, but it has no initial value", read, unfilled)
    for body in (blocked, backwards):
        np.testing.assert_array_equal(run(body, unfilled), X)
    np.testing.assert_array_equal(run(read), np.ones_like(X))


def test_results_written_by_several_stores() -> None:
    def unfilled(x: Any, ids: Any) -> k.Result:
        return k.Result(x.shape, x.dtype)

    def by_condition(x: Any, ids: Any, y: Any) -> None:
        for i, j in k.grid(3, 4):
            is_inside = (i > 0) & (j != 2)
            with k.when(is_inside):
                y[i, j] = x[i, j]
            with k.when(~is_inside):
                y[i, j] = 0

    def by_column(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y.store(i, 0, value=x.load(i, 0, width=3))
            y[i, 3] = x[i, 3]

    def missing(x: Any, ids: Any, y: Any) -> None:
        for i, j in k.grid(3, 4):
            with k.when((i > 0) | (j > 0)):
                y[i, j] = x[i, j]

    def masked(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y.store(i, 0, value=x.load(i, 0, width=8, fill=0), masked=True)

    expected = X.copy()
    expected[0], expected[:, 2] = 0, 0
    np.testing.assert_array_equal(run(by_condition, unfilled), expected)
    for body in (by_column, masked):
        np.testing.assert_array_equal(run(body, unfilled), X)
    expect(dlc.DlcError, "may have elements that are not written", missing, unfilled)


def test_operands_are_read_only() -> None:
    def write(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            x[i, 0] = 1

    def rank(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i] = 1

    def sliced(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x[i, :]

    expect(dlc.DlcError, "x is an operand, which a kernel only reads", write)
    expect(dlc.ShapeError, r"1 indices of y, which has shape \(3, 4\)", rank)
    expect(dlc.DTypeError, r"a slice of elements is x.load\(i, width=8\)", sliced)


def test_points_of_a_grid_are_independent() -> None:
    def conflict(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[k.clip(k.index(ids[i]), 1), 0] = x[i, 0]

    def neighbors(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            for j in k.range(3):
                y[i, j] = y[k.clip(i + 1, 3), j]

    with pytest.raises(EvaluationError, match=r"kernel kernel: two points of a grid write element \(0, 0\) of y"):
        run(conflict)
    with pytest.raises(EvaluationError, match=r"two points of a grid read and write element .* of y"):
        run(neighbors)


def test_races_are_found_while_tracing() -> None:
    def one_element(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[0, 0] = x[i, 0]

    def row_sums(x: Any, ids: Any, y: Any) -> None:
        for i, j in k.grid(3, 4):
            y[i, 0] += x[i, j]

    def diagonals(x: Any, ids: Any, y: Any) -> None:
        for i, j in k.grid(2, 2):
            y[0, i + j] = x[i, j]

    def windows(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(2):
            for j in k.range(3):
                y[0, i + j] = x[i, j]

    def recurrence(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(2):
            y[i + 1, 0] = y[i, 0] + 1

    def neighbors(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(2):
            y[i, 0] = x[i, 0]
            y[i + 1, 0] = x[i, 1]

    def vectors(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y.store(0, i, value=x.load(i, 0, width=2))

    for kernel in (one_element, diagonals, windows, neighbors, vectors):
        expect(dlc.DlcError, r"two points write the same element of y in the k.grid at .*; .* by k.range", kernel)
    for kernel in (row_sums, recurrence):
        expect(dlc.DlcError, "one point reads, and another one writes, the same element of y", kernel)


def test_dependent_accesses_without_races() -> None:
    def one_point(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            with k.when(i == 1):
                y[0, 0] = x[i, 0]
        for i, j in k.grid(1, 4):
            y[i + 1, j] += y[i, 0]

    def blocks(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(2):
            for j in k.range(2 * i, 2 * i + 2):
                y[0, j] = x[i, j]
            for j in k.range(2):
                y[1, 2 * i + j] += x[i, j]

    np.testing.assert_array_equal(run(one_point), [[4, 0, 0, 0], [4, 4, 4, 4], [0, 0, 0, 0]])
    np.testing.assert_array_equal(run(blocks), [[0, 1, 6, 7], [0, 1, 4, 5], [0, 0, 0, 0]])


def test_signatures() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def double(x: Any, y: Any, *, factor: int = 2) -> None:
        for i in k.grid(x.shape[0]):
            y[i] = x[i] * factor

    np.testing.assert_array_equal(double(np.arange(3), factor=5), [0, 5, 10])
    with pytest.raises(dlc.DTypeError, match=r"kernel double: too many positional arguments; it is double\(x.*factor"):
        double(X, X)
    with pytest.raises(dlc.DTypeError, match=r"they must be hashable"):
        double(np.arange(3), factor=[1])

    @dlc.kernel(results=lambda x: x.shape)
    def without_result(x: Any, y: Any) -> None:
        pass

    with pytest.raises(dlc.DTypeError, match=r"results = .*; expected a k.Result"):
        without_result(X)

    @dlc.kernel(results=lambda x: (k.Result(x.shape, x.dtype), k.Result(x.shape, x.dtype)))
    def missing_parameter(x: Any, y: Any) -> None:
        pass

    with pytest.raises(dlc.DTypeError, match="it has 2 parameters, but 1 operands and 2 results"):
        missing_parameter(X)


def test_functions_and_operators_of_other_libraries() -> None:
    def numpy_function(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = np.sin(x[i, 0])

    def power(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x[i, 0] ** 0.5

    def variable(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            total = k.variable(0, x.dtype)
            total += x[i, 0]
            y[i, 0] = total.value

    def row(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x[i]

    expect(dlc.DTypeError, r"np.sin of a float32 value; use an operator, or a function of dlc.kernels", numpy_function)
    expect(dlc.DTypeError, r"\*\* 0.5; expected a Python integer of 1 to 64; use k.power", power)
    expect(dlc.DTypeError, r"an operator with a k.variable; read and assign its .value", variable)

    def equality(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = 1.0 if k.variable(0, x.dtype) == 0 else 2.0

    def arrays(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = 1.0 if x == ids else 2.0

    def reduction(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = np.add.reduce(x[i, 0])

    def base(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = 2.0 ** x[i, 0]

    expect(dlc.DTypeError, r"an operator with a k.variable", equality)
    expect(dlc.DTypeError, r"an operator with the operand x of shape", arrays)
    expect(dlc.DTypeError, r"np.add of a float32 value", reduction)
    expect(dlc.DTypeError, r"2.0 \*\* a float32 value; use k.power", base)
    expect(dlc.DTypeError, r"the operand x of shape \(4,\); expected a number or a value", row)


def test_storage_only_dtypes() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def copy(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            y[i] = x[i]

    with pytest.raises(
        dlc.DTypeError, match=r"the operand x of shape \(3,\) has the dtype int4, which is storage-only; convert"
    ):
        copy(np.zeros(3, ml_dtypes.int4))


def test_functions_of_python_and_absent_methods_name_those_of_kernels() -> None:
    cases: list[tuple[str, Callable[[Any], Any]]] = [
        (r"a float32 value as a Python number.*k\.round", round),
        (r"a float32 value as a Python float.*\.astype.*k\.exp", math.exp),
        (r"a float32 value as a Python integer.*\.astype", int),
        (r"a float32 value as a Python integer.*k\.floor", math.floor),
        (r"a float32 value as a Python integer.*k\.ceil", math.ceil),
        (r"a float32 value as a Python integer.*k\.trunc", math.trunc),
        (r"a float32 value as a Python complex number", complex),
        (r"a float32 value as text", "{:.1f}".format),
        (r"a Python condition .*k\.maximum", lambda v: max(v, 0)),
        (r"len\(\) of a float32 scalar", len),
        (r"@ of values.*k\.dot", lambda v: v @ v),
        (r"a float32 value has no attribute 'clip'", lambda v: v.clip(0, 1)),
    ]
    for message, function in cases:

        def body(x: Any, ids: Any, y: Any, function: Callable[[Any], Any] = function) -> None:
            for i in k.grid(3):
                y[i, 0] = function(x[i, 0])

        expect(dlc.DlcError, message, body)

    def method(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            y[i, 0] = x.sum()

    expect(dlc.DlcError, r"the operand x of shape \(3, 4\) has no attribute 'sum'", method)


def test_sizes_and_divmod() -> None:
    def body(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(3):
            quotient, remainder = divmod(ids[i] - 1, 2)
            for j, value in enumerate((quotient, remainder)):
                y[i, j] = value.astype(np.float32)
            y[i, 2], y[i, 3] = float(x.size), float(len(x.load(i, 0, width=4)))

    quotients, remainders = np.divmod(IDS - 1, 2)
    np.testing.assert_array_equal(run(body), np.stack([quotients, remainders, np.full(3, 12), np.full(3, 4)], 1))


def test_complex_operands_are_passed_as_parts() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def copy(x: Any, y: Any) -> None:
        for i, j in k.grid(*x.shape):
            y[i, j] = x[i, j]

    for function in (copy, dlc.jit(lambda x: copy(x * 1j))):
        with pytest.raises(dlc.DTypeError, match=r"kernel copy: it has a complex operand; pass x\.real and x\.imag"):
            function(X.astype(np.complex64))


def test_division_by_a_size_of_an_empty_array() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def rotate(x: Any, y: Any) -> None:
        n = x.shape[0]
        for i in k.grid(n):
            y[i] = x[(i + 1) % n] + x[(i + n) // n - 1]

    for x in (np.zeros(0, np.float32), np.arange(3, dtype=np.float32)):
        np.testing.assert_array_equal(np.asarray(rotate(x)), np.roll(x, -1) + x[: x.size and 1])

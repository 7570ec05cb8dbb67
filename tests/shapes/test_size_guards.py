"""Comparisons and arithmetic of symbolic sizes in traced functions, which must be right for every size."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import OutOfBoundsError, ShapeError
from dlc.shapes.dims import Dim, UndecidableError, is_nonnegative
from dlc.shapes.parsing import parse_size

# Python control flow that depends on a size: each outcome may be another program.
BRANCHES: dict[str, Callable[[Any], Any]] = {
    "equal": lambda x: x * 2 if x.shape[0] == 1 else x,
    "other": lambda x: x * 2 if x.shape[0] != 1 else x,
    "shape": lambda x: x * 2 if x.shape == (3,) else x,
    "among": lambda x: x * 2 if x.shape[0] in (1, 2) else x,
    "none": lambda x: x * 2 if x.shape[0] else x.sum(),
    "float": lambda x: x * 2 if x.shape[0] == 2.0 else x,
    "less": lambda x: x * 2 if x.shape[0] < 2.5 else x,
    "numpy_integer": lambda x: x * 2 if np.int64(2) > x.shape[0] or x.shape[0] > np.inf else x,
    "even": lambda x: x * 2 if x.shape[0] % 2 == 0 else x,
    "table": lambda x: x * {1: 5, 2: 6}.get(x.shape[0], 7),
}
# Values that one program computes for all sizes.
VALUES: dict[str, Callable[[Any], Any]] = {
    "reciprocal": lambda x: 1 / (x.shape[0] + 1) * x,
    "half": lambda x: x * (x.shape[0] / 2) + 0.5 * x.shape[0],
    "root": lambda x: x * x.shape[0] ** 0.5 + np.sqrt(x.shape[0]),
    "square": lambda x: x + dnp.zeros(x.shape[0] ** 2).sum() + x.shape[0] ** 2,
    "numpy_scalar": lambda x: np.float32(0.5) * x.shape[0] * x + dnp.zeros(np.int64(1) * x.shape[0]),
    "numpy_array": lambda x: np.arange(3) * x.shape[0] + dnp.where(np.arange(3) < x.shape[0], 1, 0),
    "equal_traced": lambda x: dnp.where(x.shape[0] == x, 1, 0) + dnp.where(x.shape[0] < x, 1, 0),
    "floor": lambda x: x * (x.shape[0] // 2.5) + x.shape[0] % 2.5,
    "of_sizes": lambda x: x * (7 // (x.shape[0] + 1)) + sum(divmod(x.shape[0], 2)) + abs(x.shape[0] - 2) + round(x.shape[0]),
    "bits": lambda x: x * (x.shape[0] & 1) + (2 << x.shape[0]),
    "arange": lambda x: dnp.arange(1, x.shape[0] + 1) * x + dnp.arange(x.shape[0] - 1, -1, -1) + dnp.arange(x.shape[0], 0, -1),
    "arange_by_two": lambda x: dnp.arange(0, x.shape[0], 2) - dnp.arange(1, x.shape[0] + 1, 2),
    "arange_from": lambda x: dnp.arange(x.shape[0], 2 * x.shape[0], dtype=np.float32) + x,
    "arange_of_fewer": lambda x: dnp.arange(2, x.shape[0]),
    "linspace": lambda x: dnp.linspace(0, 1, x.shape[0]) + dnp.linspace(x.sum(), 5, x.shape[0], endpoint=False),
    "eye": lambda x: dnp.eye(x.shape[0], x.shape[0] + 1, 1) @ dnp.tri(x.shape[0] + 1, 4, -1) + dnp.identity(x.shape[0]).sum(axis=1, keepdims=True),
    "diag": lambda x: dnp.diag(x) + dnp.diag(x[: x.shape[0]], 0) * dnp.trace(dnp.outer(x, x)),
    "diag_above": lambda x: dnp.diag(x, 2) - dnp.diag(x, -2),
    "vander": lambda x: dnp.vander(x) + dnp.vander(x, increasing=True),
}  # fmt: skip
# Slices whose bounds are sizes.
SLICES: dict[str, Callable[[Any], Any]] = {
    "stencil": lambda x: (lambda p, n: p[:n] - 2 * p[1 : 1 + n] + p[2:])(dnp.pad(x, 1), x.shape[0]),
    "halves": lambda x: x[: x.shape[0] // 2] * x[x.shape[0] // 2 : 2 * (x.shape[0] // 2)],
    "steps": lambda x: dnp.concatenate([x, x])[::2] + x,
}
SIZES = (0, 1, 2, 3, 7, 8)


def rows(n: int) -> Any:
    return np.arange(1, n + 1, dtype=np.float32)


# A lookup by a size needs its value.
LOOKUPS = {"table"}


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", sorted(BRANCHES.keys() - LOOKUPS))
def test_python_branches_on_sizes(name: str, target: str) -> None:
    """Each outcome is traced once, for the first size that has it."""
    branching_function, traced = BRANCHES[name], list[object]()

    def recorded(x: Any) -> Any:
        traced.append(x)
        return branching_function(x)

    compiled = dlc.jit(target=target, dynamic={"x": {0: "N"}}, cache=False)(recorded)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (1, 0, 2, 3, 4, 7, 8, 100):
            assert np.array_equal(compiled(rows(n)), branching_function(rows(n)))
    # Two traces each: one that fails on symbolic sizes, and one for the sizes of a call.
    assert len(traced) <= 2 * (4 if name == "among" else 2)


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups_by_a_size_are_specialized(name: str) -> None:
    compiled = dlc.jit(target="reference", dynamic={"x": {0: "N"}})(BRANCHES[name])
    with pytest.warns(UserWarning, match="is specialized per shape"):
        for n in (1, 0, 2, 3):
            assert np.array_equal(compiled(rows(n)), BRANCHES[name](rows(n)))


def test_ranges_decide_comparisons() -> None:
    def branching_function(x: Any) -> Any:
        n = x.shape[0]
        return x if n == 0 or n > 40 or n // 2 > 16 or n * n < 1 or 2 * n == 65 or not n else x * 2

    traced = list[object]()
    compiled = dlc.jit(target="reference", dynamic={"x": {0: "N:1..32"}})(
        lambda x: (traced.append(x), branching_function(x))[1]
    )
    for n in (1, 2, 31, 32):
        assert np.array_equal(compiled(rows(n)), rows(n) * 2)
    assert len(traced) == 1


def test_many_branches_compile_one_program_each() -> None:
    def branching_function(x: Any) -> Any:
        return sum((x * k for k in range(4) if x.shape[0] == k), x)

    traced = list[object]()
    compiled = dlc.jit(dynamic={"x": {0: "N"}}, cache=False)(lambda x: (traced.append(x), branching_function(x))[1])
    for n in range(40):
        assert np.array_equal(compiled(rows(n)), branching_function(rows(n)))
    # One for each of 0, 1, 2 and 3, one for all others.
    assert len(traced) == 5


def test_an_error_for_one_size_does_not_affect_others() -> None:
    compiled = dlc.jit(target="reference", dynamic={"x": {0: "N"}})(lambda x: dnp.gradient(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (0, 1):
            with pytest.raises(ShapeError, match=f"gradient: size {n} of axis 0"):
                compiled(rows(n))
        assert np.array_equal(compiled(rows(5)), np.ones(5))


@pytest.mark.parametrize("name", BRANCHES)
def test_branching_on_a_data_dependent_size_is_an_error(name: str) -> None:
    with pytest.raises(UndecidableError, match=r"test_size_guards\.py:\d+: .*count0"):
        dlc.jit(target="reference")(lambda x: BRANCHES[name](x[x > 0]))(rows(3))


def test_two_symbols_may_be_equal() -> None:
    def branching_function(x: Any, y: Any) -> Any:
        return x.sum() + y.sum() if x.shape == y.shape else x.sum()

    compiled = dlc.jit(target="reference", dynamic={"x": {0: "N"}, "y": {0: "M"}})(branching_function)
    for _ in range(2):
        assert (compiled(rows(2), rows(2)), compiled(rows(2), rows(1)), compiled(rows(5), rows(5))) == (6, 3, 30)


def test_decidable_comparisons() -> None:
    def branching_function(x: Any) -> Any:
        n = x.shape[0]
        return x * 2 if n + 1 != 0 and n + 1 and n == n and x.shape == (n,) and (n + 1) != -3 and n >= 0 else x

    compiled = dlc.jit(target="reference", dynamic={"x": {0: "N"}})(branching_function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(compiled(rows(3)), rows(3) * 2)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("functions", [VALUES, SLICES], ids=["numbers", "slices"])
def test_one_program_computes_with_sizes(functions: dict[str, Callable[[Any], Any]], target: str) -> None:
    def all_of(x: Any) -> Any:
        return {name: f(x) for name, f in functions.items()}

    compiled = dlc.jit(target=target, dynamic={"x": {0: "N"}})(all_of)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in SIZES:
            found, expected = compiled(rows(n)), all_of(rows(n))
            for name in functions:
                assert found[name].shape == np.shape(expected[name]), (name, n)
                assert np.allclose(found[name], expected[name], rtol=1e-5, atol=1e-4), (name, n)


@pytest.mark.parametrize(
    "text",
    [
        "n - n // 2", "2 * n + 1 - n // 3", "n * m - m * (n // 2)", "n - 2 * (n // 2)", "n - (n // 2) // 2",
        "8 * (n // 8) - n + 7", "8 * ((n + 7) // 8) - n", "n + 7 + 8 * ((-n) // 8)", "m * n - 8 * m * (n // 8) + n // 3", "n // 2 - n // 3",
        "n - (n + 1) // 2", "n - (n + 1) // 2 - n // 2", "n - (n + 1) // 3 - (n + 2) // 3 - n // 3",
        "n - n // 5 - (n + 1) // 5 - (n + 2) // 5 - (n + 3) // 5 - (n + 4) // 5", "n * n - n - 2 * (n * (n - 1) // 2)",
    ],
)  # fmt: skip
def test_nonnegative_sizes(text: str) -> None:
    assert is_nonnegative(parse_size(text))


@pytest.mark.parametrize(
    "text",
    [
        "n - m // 2",
        "n // 3 - n // 2",
        "n - 3 * (n // 2)",
        "n - 1",
        "8 * (n // 8) - n + 6",
        "(-n) // 8",
        "n - (n + 3) // 3 - (n + 2) // 3",
    ],
)
def test_possibly_negative_expressions(text: str) -> None:
    assert not is_nonnegative(parse_size(text))


def test_equality_outside_of_tracing_is_structural() -> None:
    n = Dim.symbol("n")
    assert n != 3 and n and n == parse_size("n") and {n: 1}[n] == 1


def test_guards_name_the_line() -> None:
    compiled = dlc.jit(dynamic={"x": {0: "N"}}, cache=False)(lambda x: x[:2] if x.shape[0] > 4 else x)
    compiled(rows(7))
    (entry,) = compiled._specializations.entries
    assert re.fullmatch(
        r"test_size_guards.py:\d+: a comparison requires N >= 5", str(compiled._specializations.violation(entry.key, {"N": 3}))
    )


def test_an_index_is_a_guard() -> None:
    compiled = dlc.jit(dynamic={"x": {0: "N"}}, cache=False, target="reference")(lambda x: (x[1], x[-3])[1:])
    compiled(rows(7))
    assert [str(entry.domain) for entry in compiled._specializations.entries] == ["N in 3.."]
    with pytest.raises(OutOfBoundsError, match="index -3 is out of bounds"):
        compiled(rows(2))

"""`loops-to-kernels`: which loops become kernels, and their results on every target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError
from dlc.ir import Context, ModuleOp
from dlc.passes.loop_kernels.loops_to_kernels import SEPARATE_KERNELS
from dlc.pipelines import stages_of
from dlc.target import resolve
from tests.targets import TARGETS


def program(function: Callable[..., Any], *arguments: Any) -> ModuleOp:
    """Return a function's program after `loops-to-kernels`."""
    module = dlc.jit(function, cache=False).lower(*arguments).program.module.clone()
    for p in stages_of(resolve("cpu"))[0].passes:
        p.apply(Context(), module)
        if p.name == "loops-to-kernels":
            break
    return module


def loop_ops(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if op.name in ("dl.scan", "dl.while", "dl.loops")]


def gather_walk(table: Any) -> Any:
    return lax.while_loop(
        lambda s: s[0] < 40, lambda s: (s[0] + 1, (s[1] + table[s[1] % 16]) % 1003), (np.int32(0), np.int32(1))
    )


def gather_walk_loops(table: Any) -> Any:
    position = 1
    for _ in range(40):
        position = (position + table[position % 16]) % 1003
    return np.int32(40), np.int32(position)


def fill(x: Any) -> Any:
    return lax.fori_loop(0, 99, lambda t, x: x.at[t + 1].set(x[t] * 0.5 + 1), x)


def fill_loops(x: Any) -> Any:
    x = x.copy()
    for t in range(99):
        x[t + 1] = x[t] * np.float32(0.5) + 1
    return (x,)


def nested(x: Any) -> Any:
    """A while loop of data-dependent length, and a branch that updates an array, in a scan."""

    def step(state: Any, i: Any) -> Any:
        total, y = state
        total = lax.while_loop(lambda t: t < i, lambda t: t * 2 + 1, total)
        y = lax.cond(total > 6, lambda y: y.at[i.astype(np.int32)].add(total), lambda y: y, y)
        return (total % 5, y), total

    return lax.scan(step, (np.float32(0), x), np.arange(12, dtype=np.float32), reverse=True)


def nested_loops(x: Any) -> Any:
    total, y, totals = np.float32(0), x.copy(), np.zeros(12, np.float32)
    for i in reversed(range(12)):
        while total < i:
            total = total * 2 + 1
        if total > 6:
            y[i] += total
        totals[i] = total
        total %= 5
    return total, y, totals


def matrices(m: Any, rates: Any) -> Any:
    return lax.scan(lambda m, r: (m + m @ r * 0.1, m[0].sum()), m, rates)


def matrices_loops(m: Any, rates: Any) -> Any:
    sums: list[Any] = []
    for r in rates:
        sums.append(m[0].sum())
        m = m + m @ r * np.float32(0.1)
    return m, np.array(sums)


def narrow_integers(k: Any, p: Any) -> Any:
    def step(state: Any, _: Any) -> Any:
        k, p = state
        k = k * np.uint8(7) + np.uint8(1)
        return (k, p ^ (k > 100)), (k, p)

    return lax.scan(step, (k, p), None, length=20)


def narrow_integers_loops(k: Any, p: Any) -> Any:
    ks, ps = np.zeros(20, np.uint8), np.zeros(20, bool)
    for i in range(20):
        k = np.uint8((int(k) * 7 + 1) % 256)
        ks[i], ps[i] = k, p
        p = p ^ (k > 100)
    return k, p, ks, ps


RNG = np.random.default_rng(0)
CASES: Sequence[tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = [
    (gather_walk, gather_walk_loops, (RNG.integers(0, 1000, 16).astype(np.int32),)),
    (fill, fill_loops, (np.zeros(100, np.float32),)),
    (nested, nested_loops, (np.zeros(100, np.float32),)),
    (matrices, matrices_loops, (np.eye(3, dtype=np.float32), RNG.normal(size=(11, 3, 3)).astype(np.float32))),
    (narrow_integers, narrow_integers_loops, (np.uint8(3), np.bool_(True))),
]
NAMES = [case[0].__name__ for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_loop_becomes_one_kernel(case: Any) -> None:
    function, _, arguments = case
    assert loop_ops(program(function, *arguments)) == ["dl.loops"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_results_equal_python_loops(case: Any, target: str) -> None:
    function, loops, arguments = case
    results = dlc.tree.leaves(dlc.jit(function, target=target, cache=False)(*arguments))
    for got, want in zip(results, loops(*arguments), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5)


def read_at(table: Any, first: Any) -> Any:
    return lax.while_loop(lambda i: i >= 0, lambda i: table[i], first)


@pytest.mark.parametrize("target", TARGETS)
def test_index_out_of_bounds_ends_the_loop_with_an_error(target: str) -> None:
    """The loop would not end otherwise: the clamped index would be read again and again."""
    run = dlc.jit(read_at, target=target, cache=False)
    table = np.array([3, 5, 1, 2, -1, 9, 4, 7, 6, 7], np.int32)
    assert loop_ops(program(read_at, table, np.int32(0))) == ["dl.loops"]
    table[2] = 4
    assert run(table, np.int32(0)) == -1
    table[4] = 30
    with pytest.raises(DlcError, match="index 30 is outside axis 0 of size 10"):
        run(table, np.int32(0))


def count_to_each(steps: Any, table: Any) -> Any:
    """The inner loop ends for valid indices of the table only, and has no check of its own."""

    def step(total: Any, index: Any) -> Any:
        value = table[index]
        count = lax.while_loop(lambda i: i != index, lambda i: dnp.minimum(i + 1, 2), 0)
        return total + count * value, None

    return lax.scan(step, np.float64(0), steps)[0]


@pytest.mark.parametrize("target", TARGETS)
def test_no_loop_begins_after_a_failed_check(target: str) -> None:
    run, table = dlc.jit(count_to_each, target=target, cache=False), np.array([3.0, 5.0, -1.0])
    assert loop_ops(program(count_to_each, np.arange(20) % 3, table)) == ["dl.loops"]
    assert run(np.arange(20) % 3, table) == 7 * 5 - 2 * 6
    with pytest.raises(DlcError, match="index 7 is outside axis 0 of size 3"):
        run(np.full(20, 7), table)


def updated_copy(a: Any, x: Any) -> Any:
    """Each step updates a copy of the array, which itself stays as it is."""

    def step(state: Any, i: Any) -> Any:
        a, x = state
        return (dnp.sin(x.at[i].set(a)[i] + x[i]), x), None

    return lax.scan(step, (a, x), np.arange(9))[0]


def test_the_next_state_is_not_overwritten() -> None:
    x = np.linspace(0, 1, 70)
    a, result = dlc.jit(updated_copy, cache=False)(0.3, x)
    expected = 0.3
    for i in range(9):
        expected = np.sin(expected + x[i])
    np.testing.assert_allclose(a, expected)
    np.testing.assert_array_equal(result, x)


def replaced(x: Any) -> Any:
    """Each step reads the array after its update, and needs a copy."""
    return lax.fori_loop(0, 20, lambda i, x: x.at[i].set(x[i] + 1) * 0.5 + x, x)


def sorted_rows(x: Any) -> Any:
    return lax.scan(lambda s, row: (s + dnp.sort(row)[0], ()), np.float32(0), x)[0]


@pytest.mark.parametrize(
    ("function", "argument", "reason"),
    [
        (replaced, np.ones(500, np.float32), "scalar ops"),
        (sorted_rows, np.ones((20, 3), np.float32), "cannot run inside a kernel"),
    ],
)
def test_other_loops_stay_with_a_reason(function: Callable[..., Any], argument: Any, reason: str) -> None:
    module = program(function, argument)
    (loop,) = [op for op in module.walk() if op.name == "dl.scan"]
    assert reason in str(loop.attributes[SEPARATE_KERNELS])


def test_update_after_the_last_read_is_in_place() -> None:
    """A read that follows the update in the program moves before it."""

    def step(i: Any, state: Any) -> Any:
        x, total = state
        new = x.at[i].set(0.0)
        return new, total + x[i]

    def run(x: Any) -> Any:
        return lax.fori_loop(0, 100, step, (x, 0.0))

    x = RNG.normal(size=100).astype(np.float32)
    assert loop_ops(program(run, x)) == ["dl.loops"]
    zeros, total = dlc.jit(run, cache=False)(x)
    assert not np.asarray(zeros).any()
    np.testing.assert_allclose(total, x.sum(), rtol=1e-5)


def scattered(x: Any, indices: Any) -> Any:
    """Each step adds to elements at runtime indices, some of them equal or negative."""

    def step(state: Any, _: Any) -> Any:
        x, indices = state
        return (x.at[indices].add(0.5), indices + 3), None

    return lax.scan(step, (x, indices), None, length=9)[0][0]


@pytest.mark.parametrize("target", TARGETS)
def test_code_of_scatters_is_linear_in_their_indices(target: str) -> None:
    """One select per index and element would take LLVM a time at least quadratic in their number."""
    sizes = {}
    for count in (8, 16):
        x, indices = np.linspace(0, 1, 64), np.arange(count) * 5 % 20 - 3
        module = program(scattered, x, indices)
        assert loop_ops(module) == ["dl.loops"]
        (loops,) = [op for op in module.walk() if op.name == "dl.loops"]
        sizes[count] = str(loops).count("arith.select")
        expected = x.copy()
        for step in range(9):
            np.add.at(expected, indices + 3 * step, 0.5)
        np.testing.assert_allclose(dlc.jit(scattered, target=target, cache=False)(x, indices), expected)
    assert sizes[16] <= 2 * sizes[8] < 64


def test_compile_time_does_not_depend_on_the_steps() -> None:
    """The kernels of loops with different numbers of steps have equally many ops."""

    def size(steps: int) -> int:
        module = program(lambda x: lax.scan(lambda s, _: (s * 0.5 + 1, s), x, None, length=steps), np.float32(0))
        (loop,) = [op for op in module.walk() if op.name == "dl.loops"]
        return len(str(loop).splitlines())

    assert size(20) == size(20_000)


# Arrays that still have readers: states of more elements than registers hold, nested loops of more steps than are unrolled.

LARGE = np.arange(100, dtype=np.float32) * np.float32(0.001)
TABLE = np.arange(4000, dtype=np.float32).reshape(40, 100) * np.float32(0.001)
STEPS = np.arange(40, dtype=np.int32)
INNER_STEPS = np.arange(50, dtype=np.int32)


def updates_a_captured_array(a: Any, k: Any) -> Any:
    def inner(c: Any, i: Any) -> Any:
        t = dnp.at(a)[i].set(c * 0.01 + 1)
        return c * 0.5 + t[i] + t[i + 1], None

    c, _ = lax.scan(inner, np.float32(0), INNER_STEPS)
    return dnp.at(a)[k].add(c), c


def has_one_array_as_two_states(a: Any, k: Any) -> Any:
    def inner(state: Any, i: Any) -> Any:
        p, q = state
        p = dnp.at(p)[i].add(q[i + 1] * 0.1)
        return (p, dnp.at(q)[i + 1].add(p[i] * 0.1)), None

    (p, q), _ = lax.scan(inner, (a, a), INNER_STEPS)
    return dnp.at(p)[k].add(1.0) * 0.5, q[3]


def carries_and_captures(a: Any, k: Any) -> Any:
    p, _ = lax.scan(lambda p, i: (dnp.at(p)[i + 1].set(a[i] + 1), None), a, INNER_STEPS)
    return p, p[k]


def carries_and_captures_in_a_while_loop(a: Any, k: Any) -> Any:
    def body(state: Any) -> Any:
        p, i = state
        return dnp.at(p)[i + 1].set(a[i] + 1), i + 1

    p, _ = lax.while_loop(lambda s: s[1] < 50, body, (a, np.int32(0)))
    return p, p[k]


def carries_and_scans(a: Any, k: Any) -> Any:
    def inner(p: Any, element: Any) -> Any:
        i, x = element
        return dnp.at(p)[dnp.minimum(i + 1, 99)].set(x + 1), None

    p, _ = lax.scan(inner, a, (np.arange(100, dtype=np.int32), a))
    return p, p[k]


def updates_the_result_of_a_branch(a: Any, k: Any) -> Any:
    p = a
    for limit in (10, 20):
        p = lax.cond(k > limit, lambda p: p, lambda p: p, p)
        p = dnp.at(p)[k].set(a[k] * 0.5 + p[0] + 1)
    return p, p[k]


def updates_a_row_of_a_sequence(table: Any, k: Any) -> Any:
    def inner(c: Any, row: Any) -> Any:
        r = dnp.at(row)[k].set(5.0)
        return c + r[0] + r[k], None

    c, _ = lax.scan(inner, np.float32(0), table)
    return dnp.at(table)[k].set(table[0] * 0.5 + 1), c


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("step", "array"),
    [
        (updates_a_captured_array, LARGE),
        (has_one_array_as_two_states, LARGE),
        (carries_and_captures, LARGE),
        (carries_and_captures_in_a_while_loop, LARGE),
        (carries_and_scans, LARGE),
        (updates_the_result_of_a_branch, LARGE),
        (updates_a_row_of_a_sequence, TABLE),
    ],
)
def test_arrays_are_overwritten_after_their_last_reader_only(step: Any, array: np.ndarray, target: str) -> None:
    def run(a: Any) -> Any:
        return lax.scan(step, a, STEPS)

    # On plain arrays, the loops run as Python loops.
    expected = run(array)
    got = dlc.jit(run, target=target, cache=False)(array)
    for value, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=1e-5)

"""Lanes of `loops-to-kernels`: batches of loops, with vectors of lanes on CPUs, against a Python loop over the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.ir import VectorType
from dlc.target import resolve
from tests.passes.loop_kernels.test_loops_to_kernels import loop_ops, program
from tests.targets import TARGETS


def oscillator(x: Any, rates: Any) -> Any:
    """A scan with a vector state, a sequence per lane, and stacked results."""

    def step(x: Any, rate: Any) -> Any:
        x = x + 0.1 * rate * dnp.stack([x[1], -x[0]])
        return x, x.sum()

    return lax.scan(step, x, rates)


def newton(a: Any, first: Any) -> Any:
    """A while loop whose number of steps differs between lanes."""
    return lax.while_loop(
        lambda s: (abs(s[0] * s[0] - a) > 1e-4) & (s[1] < 40), lambda s: ((s[0] + a / s[0]) / 2, s[1] + 1), (first, np.int32(0))
    )


def nested(a: Any, first: Any) -> Any:
    """A diverging while loop in a scan."""

    def step(x: Any, k: Any) -> Any:
        x, n = newton(a + k, x)
        return x * dnp.where(n > 2, np.float32(1.5), np.float32(0.5)), n

    return lax.scan(step, first, np.arange(9, dtype=np.float32))


def products(m: Any, w: Any) -> Any:
    """A product of a matrix per lane with a shared one."""
    return lax.scan(lambda m, _: (dnp.tanh(m @ w), m.max()), m, None, length=10)


RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.uniform(0.5, 2.0, shape).astype(np.float32)


# Each function with its arguments for a number of lanes; None as an axis is an argument that all lanes share.
CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]], tuple[int | None, ...]]] = {
    "oscillator": (oscillator, lambda n: (floats(n, 2), floats(n, 12)), (0, 0)),
    "newton": (newton, lambda n: (floats(n), floats(n) * 30), (0, 0)),
    "newton_f64": (newton, lambda n: (floats(n).astype(np.float64), floats(n).astype(np.float64)), (0, 0)),
    "nested": (nested, lambda n: (floats(n), floats(n)), (0, 0)),
    "products": (products, lambda n: (floats(n, 2, 2), floats(2, 2)), (0, None)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [16, 37, 100])
@pytest.mark.parametrize("name", CASES)
def test_batches_equal_python_loops(name: str, lanes: int, target: str) -> None:
    function, arguments_of, axes = CASES[name]
    arguments = arguments_of(lanes)
    batched = dlc.vmap(function, in_axes=axes)
    assert loop_ops(program(batched, *arguments)) == ["dl.loops"]
    results = dlc.tree.leaves(dlc.jit(batched, target=target, cache=False)(*arguments))
    single = dlc.jit(function, target="reference", cache=False)
    rows = [
        dlc.tree.leaves(single(*(a if axis is None else a[k] for a, axis in zip(arguments, axes, strict=True))))
        for k in range(min(lanes, 20))
    ]
    for got, want in zip(results, zip(*rows, strict=True), strict=True):
        np.testing.assert_allclose(np.asarray(got)[: len(rows)], np.stack(want), rtol=1e-3, atol=1e-4)


def test_lanes_are_elements_of_vectors() -> None:
    module = program(dlc.vmap(newton), floats(100), floats(100))
    (op,) = [op for op in module.walk() if op.name == "dl.loops"]
    body = op.body.function  # pyright: ignore[reportAttributeAccessIssue]
    assert any(isinstance(r.type, VectorType) for inner in body.walk() for r in inner.results)


def test_a_shared_counter_does_not_narrow_vectors() -> None:
    """A vector has as many lanes as a register has elements of the states of lanes, whatever the type of other states."""

    def run(x: Any, steps: Any) -> Any:
        return lax.while_loop(lambda s: s[1] < steps, lambda s: (s[0] * 0.5 + 1, s[1] + 1), (x, np.int64(0)))[0]

    module = program(run, floats(64, 16), np.int64(9))
    (op,) = [op for op in module.walk() if op.name == "dl.loops"]
    body = op.body.function  # pyright: ignore[reportAttributeAccessIssue]
    types = {r.type for inner in body.walk() for r in inner.results if isinstance(r.type, VectorType)}
    assert {t.get_shape() for t in types} == {(resolve("cpu").lanes(4),)}


@pytest.mark.parametrize(
    ("step", "expected"), [(lambda x: x * 0.5 + 1, "dl.loops"), (dnp.tanh, "dl.while")], ids=["add", "tanh"]
)
def test_lanes_with_much_work_are_separate_kernels(step: Callable[[Any], Any], expected: str) -> None:
    """A function counts as the instructions that compute it: a kernel of many of them takes seconds to compile."""

    def run(x: Any, steps: Any) -> Any:
        return lax.while_loop(lambda s: s[1] < steps, lambda s: (step(s[0]), s[1] + 1), (x, np.int64(0)))[0]

    assert loop_ops(program(run, floats(64, 64), np.int64(9))) == [expected]


def test_loops_that_combine_lanes_have_none() -> None:
    """A mean over the states couples all elements."""

    def step(x: Any, _: Any) -> Any:
        return x - 0.1 * x.mean(), ()

    x = floats(40)
    module = program(lambda x: lax.scan(step, x, None, length=20)[0], x)
    bodies = [op.body.function for op in module.walk() if op.name == "dl.loops"]  # pyright: ignore[reportAttributeAccessIssue]
    assert not any(isinstance(r.type, VectorType) for body in bodies for op in body.walk() for r in op.results)
    want = x
    for _ in range(20):
        want = want - np.float32(0.1) * want.mean()
    np.testing.assert_allclose(dlc.jit(lambda x: lax.scan(step, x, None, length=20)[0], cache=False)(x), want, rtol=1e-4)


def test_unmasked_while_loop_has_no_lanes() -> None:
    """A loop that updates all elements until the last condition is false is no batch of loops."""

    def run(x: Any) -> Any:
        return lax.while_loop(lambda x: (x < 10).any(), lambda x: x * 1.5, x)

    x = np.linspace(1, 9, 40).astype(np.float32)
    want = x
    while (want < 10).any():
        want = want * np.float32(1.5)
    np.testing.assert_allclose(dlc.jit(run, cache=False)(x), want, rtol=1e-5)


def test_slices_of_shared_values_are_no_lanes() -> None:
    """An initial state that is part of an array, equal for all lanes, has as many elements as there are lanes."""

    def step(x: Any, row: Any) -> Any:
        return lax.scan(lambda y, _: (dnp.sin(y) + x, ()), row[:16] * 2.0, None, length=20)[0], ()

    def run(x: Any, rows: Any) -> Any:
        return lax.scan(step, x, rows)[0]

    x, rows = RNG.standard_normal(16), RNG.standard_normal((20, 32))
    want = dlc.jit(run, target="reference", cache=False)(x, rows)
    np.testing.assert_allclose(dlc.jit(run, cache=False)(x, rows), want, rtol=1e-9)

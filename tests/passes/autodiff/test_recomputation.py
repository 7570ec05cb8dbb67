"""Saved and recomputed values of the steps of a loop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.dialects.dl.programs.control import ScanOp
from dlc.ir import Context
from dlc.passes.autodiff.minimum_cut import MinimumCut
from dlc.passes.transformations.expand_transformations import ExpandTransformationsPass


def cost(source_side: set[Any], edges: list[tuple[Any, Any, float]]) -> float:
    return sum(capacity for start, end, capacity in edges if start in source_side and end not in source_side)


def test_minimum_cut_is_the_cheapest_of_all_cuts() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        nodes: list[Any] = [MinimumCut.SOURCE, 0, 1, 2, 3, MinimumCut.SINK]
        edges = [(a, b, float(rng.integers(0, 9))) for a in nodes[:-1] for b in nodes[1:] if a != b and rng.random() < 0.6]
        cut = MinimumCut()
        for edge in edges:
            cut.add_edge(*edge)

        subsets = itertools.chain.from_iterable(itertools.combinations(range(4), n) for n in range(5))
        least = min(cost({MinimumCut.SOURCE, *subset}, edges) for subset in subsets)
        assert cost(cut.source_side(), edges) == least


def test_a_cut_of_infinite_cost() -> None:
    cut = MinimumCut()
    cut.add_edge(cut.SOURCE, "a")
    cut.add_edge("a", cut.SINK, math.inf)
    with pytest.raises(ValueError, match="infinite"):
        cut.source_side()


def chain(x: Any) -> Any:
    """Sums and products of three states: the reverse reads 7 values."""

    def step(state: Any, _: Any) -> Any:
        a, b, c = state
        p, q = a * b + c, b * c - a
        return (a + 0.1 * (p * q), b + 0.1 * (q - p * c), c + 0.1 * (p + q * b)), ()

    return sum(y.sum() for y in lax.scan(step, (x, x * 0.5, x * 0.25), None, length=100)[0])


def functions(x: Any) -> Any:
    """The reverse reads the state and an exponential, which costs more to recompute than to save."""

    def step(x: Any, _: Any) -> Any:
        return x + 0.1 * dnp.exp(dnp.sin(x)), ()

    return lax.scan(step, x, None, length=100)[0].sum()


@pytest.mark.parametrize(("function", "num_saved"), [(chain, 3), (functions, 2)])
def test_saved_values(function: Callable[..., Any], num_saved: int) -> None:
    x = np.linspace(-0.2, 0.2, 1024)
    gradient = dlc.jit(dlc.grad(function), cache=False)
    module = gradient.lower(x).program.module.clone()
    ExpandTransformationsPass().apply(Context(), module)
    forward, _ = (op for op in module.walk() if isinstance(op, ScanOp))
    assert len(forward.results) - forward.state_count == num_saved
    expected = dlc.jvp(function, (x,), (np.ones_like(x),))[1]
    np.testing.assert_allclose(np.sum(gradient(x)), expected, rtol=1e-12)

"""`merge-pads`: paddings of one tensor become slices of one padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.ir import Context
from dlc.pipelines import stages_of
from dlc.target import resolve
from tests.targets import TARGETS


def smoothness(x: Any) -> Any:
    return sum((dnp.diff(x, axis=axis) ** 2).sum() for axis in range(2))


def gradient(x: np.ndarray) -> np.ndarray:
    expected = np.zeros_like(x)
    for axis in range(2):
        d = 2 * np.diff(x, axis=axis)
        sides = [(0, 0), (0, 0)]
        sides[axis] = (1, 0)
        expected += np.pad(d, sides)
        sides[axis] = (0, 1)
        expected -= np.pad(d, sides)
    return expected


X = np.random.default_rng(0).normal(size=(9, 17)).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_gradient_of_differences(target: str) -> None:
    np.testing.assert_allclose(dlc.jit(dlc.grad(smoothness), target=target, cache=False)(X), gradient(X), atol=1e-5)


def test_each_cotangent_is_padded_once() -> None:
    module = dlc.jit(dlc.grad(smoothness), cache=False).lower(X).program.module.clone()
    counts: dict[str, int] = {}
    for p in stages_of(resolve("cpu"))[0].passes:
        p.apply(Context(), module)
        counts[p.name] = sum(op.name == "dl.pad" for op in module.walk())
        if p.name == "merge-pads":
            break
    assert counts["loops-to-kernels"] == 4
    assert counts["merge-pads"] == 2


def test_other_values_and_large_paddings_stay() -> None:
    def function(x: Any) -> Any:
        ones = dnp.pad(x, ((1, 0), (0, 0)), constant_values=1) + dnp.pad(x, ((0, 1), (0, 0)), constant_values=1)
        return ones, dnp.pad(x, ((40, 0), (0, 0))) + dnp.pad(x, ((0, 40), (0, 0)))

    module = dlc.jit(function, cache=False).lower(X).program.module.clone()
    for p in stages_of(resolve("cpu"))[0].passes:
        p.apply(Context(), module)
        if p.name == "merge-pads":
            break
    assert sum(op.name == "dl.pad" for op in module.walk()) == 4

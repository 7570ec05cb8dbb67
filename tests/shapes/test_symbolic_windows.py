"""Gradients of pooling and convolution over images of symbolic size: one program for all images, without a warning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
from dlc import nn
from tests.shapes.test_specializations import count_compilations

pytestmark = pytest.mark.filterwarnings("error")

WEIGHTS = np.random.default_rng(0).standard_normal((3, 2, 2, 2)).astype(np.float32)
WINDOWS: dict[str, Callable[[Any], Any]] = {
    "max_pool": lambda x: nn.max_pool(x, 2),
    "max_pool of overlapping windows": lambda x: nn.max_pool(x, 3, strides=2),
    "max_pool with gaps": lambda x: nn.max_pool(x, 2, strides=3),
    "max_pool of padded images": lambda x: nn.max_pool(x, 3, strides=1, padding="same"),
    "avg_pool": lambda x: nn.avg_pool(x, 2, strides=(1, 2)),
    "conv": lambda x: nn.conv(x, WEIGHTS, strides=2),
    "dilated conv": lambda x: nn.conv(x, WEIGHTS, dilations=(1, 2)),
    "conv_transpose": lambda x: nn.conv_transpose(x, WEIGHTS, strides=2),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_gradients_of_windows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = dlc.grad(lambda x: (WINDOWS[name](x) ** 2).sum())
    compiled = count_compilations(monkeypatch)
    symbolic = dlc.jit(gradient, dynamic={"x": {0: "B", 1: "H", 2: "W"}}, cache=False, num_threads=1)
    # Repeated values: the first maximum of a window gets the gradient.
    images = [np.arange(np.prod(s)).reshape(s).astype(np.float32) % 7 for s in ((2, 9, 11, 2), (1, 3, 4, 2), (3, 12, 8, 2))]
    results = [symbolic(x) for x in images]
    assert len(compiled) == 1
    static = dlc.jit(gradient, target="reference", cache=False)
    for x, result in zip(images, results, strict=True):
        np.testing.assert_allclose(result, static(x), 1e-4, 1e-4, err_msg=str(x.shape))

"""Pooling and convolution over images of symbolic size, and gradients: one program for all images, without a warning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
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


@pytest.mark.parametrize(
    "settings",
    [
        "kernel_shape=[3,2], pads=[1,0,2,1], strides=[2,1]",
        "kernel_shape=[2,3], pads=[1,1,1,1], dilations=[2,1]",
        "kernel_shape=[3,3], pads=[2,2,2,2], strides=[3,3]",
    ],
)
def test_averages_of_unpadded_elements(settings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def model(shape: str) -> Any:
        text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[{shape}] x) => (float[b,c,h,w] y)'
        return onnx.parser.parse_model(f"{text} {{ y = AveragePool<{settings}>(x) }}")

    images = [np.arange(np.prod(s)).reshape(s).astype(np.float32) for s in ((1, 2, 3, 4), (2, 2, 9, 6), (1, 2, 12, 7))]
    static = [dlc.compile_model(model(str([*x.shape])[1:-1]), target="reference")(x=x)["y"] for x in images]
    compiled = count_compilations(monkeypatch)
    symbolic = dlc.compile_model(model("B,2,H,W"), cache=False, num_threads=1)
    for x, expected in zip(images, static, strict=True):
        np.testing.assert_allclose(symbolic(x=x)["y"], expected, 1e-5)
    assert not compiled

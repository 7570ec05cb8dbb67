"""dlc.numpy.nn against independent formulas, on plain arrays and traced."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import dlc
from dlc.numpy import nn

draw = np.random.default_rng(1)
X = draw.standard_normal((3, 7)).astype(np.float32)
IMAGES = draw.standard_normal((2, 6, 5, 4)).astype(np.float32)
SIGNAL = draw.standard_normal((2, 9, 3)).astype(np.float32)
SCALE, BIAS = (draw.standard_normal(7).astype(np.float32) for _ in range(2))


def weights(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * scale + bias


def windows(
    x: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[tuple[int, int], ...], fill: float = 0
) -> np.ndarray:
    """[N, *S', C, *K] for x [N, *S, C]."""
    axes = tuple(range(1, x.ndim - 1))
    padded = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill)
    view = sliding_window_view(padded, kernel, axes)
    return view[(slice(None), *(slice(None, None, s) for s in strides))]


def convolved(x: np.ndarray, w: np.ndarray, strides: tuple[int, ...], pads: tuple[tuple[int, int], ...]) -> np.ndarray:
    rank = x.ndim - 2
    found = windows(x, w.shape[:rank], strides, pads)
    spatial = list(range(rank + 2, 2 * rank + 2))
    return np.tensordot(found, w, ([*spatial, rank + 1], [*range(rank), rank]))


W2, W1, GROUPED, DEPTHWISE = weights(3, 2, 4, 5), weights(3, 3, 6), weights(3, 3, 2, 6), weights(3, 3, 1, 4)
NONE = ((0, 0), (0, 0))

CASES: dict[str, list[tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]] = {
    "relu": [(nn.relu, lambda x: np.maximum(x, 0), (X,)), (nn.relu, lambda x: np.maximum(x, 0), (np.array([-3, 4]),))],
    "sigmoid": [(nn.sigmoid, sigmoid, (20 * X,))],
    "silu": [(nn.silu, lambda x: x * sigmoid(x), (X,))],
    "gelu": [
        (nn.gelu, lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))), (2 * X,)),
        (
            lambda x: nn.gelu(x, approximate=True),
            lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
            (X,),
        ),
    ],
    "softmax": [(nn.softmax, softmax, (50 * X,)), (lambda x: nn.softmax(x, axis=0), lambda x: softmax(x, 0), (X,))],
    "log_softmax": [(nn.log_softmax, lambda x: np.log(softmax(x)), (X,))],
    "layer_norm": [(nn.layer_norm, layer_norm, (X, SCALE, BIAS))],
    "conv": [
        (nn.conv, lambda x, w: convolved(x, w, (1, 1), NONE), (IMAGES, W2)),
        (
            lambda x, w: nn.conv(x, w, strides=(2, 1), padding=[(1, 2), (0, 1)]),
            lambda x, w: convolved(x, w, (2, 1), ((1, 2), (0, 1))),
            (IMAGES, W2),
        ),
        # Six rows by strides of 2: three results, one row of padding, after; five columns: two before and after in all.
        (
            lambda x, w: nn.conv(x, w, strides=(2, 2), padding="same"),
            lambda x, w: convolved(x, w, (2, 2), ((0, 1), (0, 1))),
            (IMAGES, W2),
        ),
        (
            lambda x, w: nn.conv(x, w, padding="same"),
            lambda x, w: convolved(x, w, (1,), ((1, 1),)),
            (SIGNAL, W1),
        ),
        (
            lambda x, w: nn.conv(x, w, groups=2),
            lambda x, w: np.concatenate(
                [convolved(x[..., 2 * g : 2 * g + 2], w[..., 3 * g : 3 * g + 3], (1, 1), NONE) for g in range(2)], -1
            ),
            (IMAGES, GROUPED),
        ),
        (
            lambda x, w: nn.conv(x, w, groups=4),
            lambda x, w: np.einsum("nhwckl,klc->nhwc", windows(x, (3, 3), (1, 1), NONE), w[:, :, 0]),
            (IMAGES, DEPTHWISE),
        ),
        (
            lambda x, w: nn.conv(x, w, dilations=(2,)),
            lambda x, w: sum(x[:, 2 * k : x.shape[1] - 4 + 2 * k] @ w[k] for k in range(3)),
            (SIGNAL, W1),
        ),
    ],
    "max_pool": [
        (lambda x: nn.max_pool(x, (2, 2)), lambda x: windows(x, (2, 2), (2, 2), NONE).max((-2, -1)), (IMAGES,)),
        (
            lambda x: nn.max_pool(x, (3, 3), (2, 2), "same"),
            lambda x: windows(x, (3, 3), (2, 2), ((0, 1), (1, 1)), -np.inf).max((-2, -1)),
            (IMAGES,),
        ),
    ],
    "avg_pool": [
        (lambda x: nn.avg_pool(x, (2, 2)), lambda x: windows(x, (2, 2), (2, 2), NONE).mean((-2, -1)), (IMAGES,)),
        (
            lambda x: nn.avg_pool(x, (3, 3), (1, 1), [(1, 1), (1, 1)]),
            lambda x: windows(x, (3, 3), (1, 1), ((1, 1), (1, 1))).mean((-2, -1)),
            (IMAGES,),
        ),
    ],
}


def listed() -> list[Any]:
    return [pytest.param(*case, id=f"{name}{k}") for name, cases in CASES.items() for k, case in enumerate(cases)]


def test_every_layer_has_a_case() -> None:
    public = {n for n, f in vars(nn).items() if inspect.isfunction(f) and f.__module__ == nn.__name__ and n[0] != "_"}
    assert public == set(CASES)


@pytest.mark.parametrize("target", [None, "reference", "cpu"])
@pytest.mark.parametrize(("function", "expected", "arguments"), listed())
def test_layer(function: Any, expected: Any, arguments: Any, target: str | None) -> None:
    compiled = function if target is None else dlc.jit(target=target, num_threads=1)(function)
    got, want = np.asarray(compiled(*arguments)), expected(*arguments)
    assert (got.dtype, got.shape) == (arguments[0].dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

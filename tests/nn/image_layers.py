"""Image layers, and independent formulas of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dlc import nn

draw = np.random.default_rng(1)
IMAGES = draw.standard_normal((2, 6, 5, 4)).astype(np.float32)
SIGNAL = draw.standard_normal((2, 9, 3)).astype(np.float32)


def weights(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def windows(
    x: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[tuple[int, int], ...], fill: float = 0
) -> np.ndarray:
    """Return the windows [N, *S', C, *K] of x [N, *S, C]."""
    axes = tuple(range(1, x.ndim - 1))
    padded = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill)
    view = sliding_window_view(padded, kernel, axes)
    return view[(slice(None), *(slice(None, None, s) for s in strides))]


def convolved(x: np.ndarray, w: np.ndarray, strides: tuple[int, ...], pads: tuple[tuple[int, int], ...]) -> np.ndarray:
    rank = x.ndim - 2
    found = windows(x, w.shape[:rank], strides, pads)
    spatial = list(range(rank + 2, 2 * rank + 2))
    return np.tensordot(found, w, ([*spatial, rank + 1], [*range(rank), rank]))


def spread(x: np.ndarray, w: np.ndarray, strides: tuple[int, int]) -> np.ndarray:
    """Transposed convolution: add each element of x times the kernel at its window."""
    n, height, width, _ = x.shape
    size = [(s - 1) * a + k for s, a, k in zip((height, width), strides, w.shape[:2], strict=True)]
    y = np.zeros((n, *size, w.shape[-1]))
    for i, j in np.ndindex(height, width):
        top, left = i * strides[0], j * strides[1]
        y[:, top : top + w.shape[0], left : left + w.shape[1]] += np.einsum("nc,klco->nklo", x[:, i, j], w)
    return y


TRANSPOSED = weights(3, 2, 4, 5)
W2, W1, GROUPED, DEPTHWISE = weights(3, 2, 4, 5), weights(3, 3, 6), weights(3, 3, 2, 6), weights(3, 3, 1, 4)
NONE = ((0, 0), (0, 0))

CASES: dict[str, list[tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]] = {
    "conv": [
        (nn.conv, lambda x, w: convolved(x, w, (1, 1), NONE), (IMAGES, W2)),
        (nn.conv, lambda x, w, b: convolved(x, w, (1, 1), NONE) + b, (IMAGES, W2, weights(5))),
        (
            lambda x, w: nn.conv(x, w, strides=(2, 1), padding=[(1, 2), (0, 1)]),
            lambda x, w: convolved(x, w, (2, 1), ((1, 2), (0, 1))),
            (IMAGES, W2),
        ),
        # Six rows with stride 2: three results and one row of padding at the end; five columns: two columns of padding in all.
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
    "conv_transpose": [
        (nn.conv_transpose, lambda x, w: spread(x, w, (1, 1)), (IMAGES, TRANSPOSED)),
        (lambda x, w: nn.conv_transpose(x, w, strides=(2, 3)), lambda x, w: spread(x, w, (2, 3)), (IMAGES, TRANSPOSED)),
        (
            lambda x, w, b: nn.conv_transpose(x, w, b, strides=2),
            lambda x, w, b: spread(x, w, (2, 2)) + b,
            (IMAGES, TRANSPOSED, weights(5)),
        ),
    ],
}

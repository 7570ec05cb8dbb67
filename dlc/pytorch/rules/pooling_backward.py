"""Gradients of pooling, padding and image resizing, as VJPs of the forward rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.pytorch.rules.backward_ops import apply_vjp
from dlc.pytorch.rules.indexing import scatter_add
from dlc.pytorch.rules.interpolation import table as interpolation
from dlc.pytorch.rules.pooling import table as pooling
from dlc.pytorch.rules.rule_table import RuleTable

table = RuleTable()


def _resize_backward(forward: Callable[..., Any]) -> Any:
    def backward(g: Any, output_size: Sequence[int], input_size: Sequence[int], *settings: Any) -> Any:
        def resized(x: Any) -> Any:
            return forward(x, output_size, *settings)

        return apply_vjp(resized, g, np.zeros(tuple(input_size), g.dtype))[0]

    return backward


for _name in (
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa", *(f"upsample_nearest{rank}d" for rank in (1, 2, 3)),
):  # fmt: skip
    table(f"{_name}_backward")(_resize_backward(interpolation.rules[_name]))
for _rank in (1, 2, 3):
    # The name of this backward operator is irregular.
    table(f"_upsample_nearest_exact{_rank}d_backward")(
        _resize_backward(interpolation.rules[f"_upsample_nearest_exact{_rank}d"])
    )


def _pad_backward(forward: Callable[..., Any]) -> Any:
    def backward(g: Any, x: Any, padding: Sequence[int]) -> Any:
        def padded(x: Any) -> Any:
            return forward(x, padding)

        return apply_vjp(padded, g, x)[0]

    return backward


for _name in (f"{mode}_pad{rank}d" for mode in ("reflection", "replication") for rank in (1, 2, 3)):
    table(f"{_name}_backward")(_pad_backward(pooling.rules[_name]))


@table("avg_pool2d_backward avg_pool3d_backward")
def avg_pool_backward(g: Any, x: Any, kernel_size: Sequence[int], *settings: Any) -> Any:
    def forward(x: Any) -> Any:
        return pooling.rules[f"avg_pool{len(kernel_size)}d"](x, kernel_size, *settings)

    return apply_vjp(forward, g, x)[0]


def _adaptive_avg_pool_backward(rank: int) -> Any:
    def backward(g: Any, x: Any) -> Any:
        def pool(x: Any) -> Any:
            return pooling.rules[f"_adaptive_avg_pool{rank}d"](x, g.shape[-rank:])

        return apply_vjp(pool, g, x)[0]

    return backward


def _max_pool_backward(rank: int) -> Any:
    """Return the backward rule of max pooling, which adds cotangents at `indices`, those of the maxima."""

    def backward(g: Any, x: Any, *settings_and_indices: Any) -> Any:
        axis, indices = x.ndim - rank, settings_and_indices[-1]
        target, flat, cotangents = (
            dnp.reshape(v, (*v.shape[:axis], math.prod(v.shape[axis:]))) for v in (dnp.zeros_like(x), indices, g)
        )
        return dnp.reshape(scatter_add(target, axis, flat, cotangents), x.shape)

    return backward


for _rank in (2, 3):
    table(f"_adaptive_avg_pool{_rank}d_backward")(_adaptive_avg_pool_backward(_rank))
    table(f"adaptive_max_pool{_rank}d_backward max_pool{_rank}d_with_indices_backward")(_max_pool_backward(_rank))

"""The registry of ops that are implemented in Python, and the data-dependent ones among them, implemented with NumPy.

String ops are in `string_ops.py`, image decoding in `images.py`, functions of the user in `foreign_functions.py`,
collectives in `runtime/collectives/operations.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.collectives import operations
from dlc.runtime.python_ops import string_ops
from dlc.runtime.python_ops.foreign_functions import foreign_call
from dlc.runtime.python_ops.images import decode_image

Array: TypeAlias = "NDArray[Any]"
OpSetting: TypeAlias = "int | bool | str | None"


def nonzero(x: Array) -> tuple[Array, ...]:
    """`dl.nonzero`."""
    return (np.argwhere(x).T.astype(np.int64),)


def dynamic_iota(size: Array) -> tuple[Array, ...]:
    """`dl.dynamic_iota`."""
    return (np.arange(int(size), dtype=np.int64),)


def unique(x: Array, *, axis: int | None = None, keep_order: bool = False, nan_differs: bool = False) -> tuple[Array, ...]:
    """`dl.unique`."""
    # NumPy compares bf16 by its bits: convert to f32, which is exact.
    is_half_precision = x.dtype.itemsize == 2 and x.dtype.kind in "fV"
    comparable = x.astype(np.float32) if is_half_precision else x
    # Ranks of elements: equal for equal elements, in the same order, NaN last.
    ranks = np.unique(comparable, return_inverse=True)[1].reshape(x.shape)
    if nan_differs:
        # Make slices with a NaN distinct by appending their position.
        flat, rows = (np.moveaxis(a, axis, 0) if axis is not None else a.reshape(-1) for a in (comparable, ranks))
        positions = [np.where(np.isnan(row).any(), k, -1) for k, row in enumerate(flat)]
        ranks, unique_axis = np.column_stack([rows.reshape(len(rows), -1), np.array(positions, np.int64)]), 0
    else:
        unique_axis = axis
    _, first, inverse, counts = np.unique(ranks, True, True, True, unique_axis)
    inverse = inverse.reshape(-1)
    if keep_order:
        order = np.argsort(first, kind="stable")
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    y = np.take(x, first, axis)
    return y, *(a.astype(np.int64) for a in (first, inverse, counts))


def non_max_suppression(
    boxes: Array, scores: Array, max_boxes: Array, iou: Array, threshold: Array, *, center_point: bool = False
) -> tuple[Array, ...]:
    """`dl.non_max_suppression`."""
    rows = [
        (batch, class_index, box)
        for batch, class_index in np.ndindex(*scores.shape[:2])
        for box in select_boxes(
            _corners(boxes[batch], center_point), _candidates(scores[batch, class_index], threshold), int(max_boxes), iou
        )
    ]
    return (np.array(rows, np.int64).reshape(-1, 3),)


# Implementations by op name without `dl.`; settings are keyword arguments.
PYTHON_OPS: Mapping[str, Callable[..., tuple[Array, ...]]] = {
    f.__name__: f
    for f in (
        nonzero,
        dynamic_iota,
        unique,
        non_max_suppression,
        string_ops.string_concat,
        string_ops.string_split,
        string_ops.string_normalize,
        string_ops.regex_full_match,
        string_ops.string_unique,
        string_ops.number_to_string,
        string_ops.string_to_number,
        decode_image,
        foreign_call,
        operations.all_reduce,
        operations.reduce_scatter,
        operations.all_gather,
        operations.all_to_all,
        operations.permute,
        operations.wait,
        operations.progress,
        operations.axis_index,
        operations.to_shards,
        operations.from_shards,
    )
}


def run_python_op(name: str, operands: Sequence[Array], settings: Mapping[str, OpSetting]) -> tuple[Array, ...]:
    """Return the results of the op called `name`."""
    return PYTHON_OPS[name](*operands, **settings)


def _corners(boxes: Array, center_point: bool) -> tuple[Array, Array]:
    """Return the lower and upper corners of boxes."""
    a, b = boxes[:, :2], boxes[:, 2:]
    a, b = (a - b / 2, a + b / 2) if center_point else (a, b)
    return np.minimum(a, b), np.maximum(a, b)


def _candidates(scores: Array, threshold: Array) -> Array:
    """Return the boxes with scores above the threshold, best first."""
    order = np.argsort(-scores, kind="stable")
    return order[scores[order] > threshold]


def select_boxes(corners: tuple[Array, Array], remaining: Array, limit: int, iou: Array) -> Iterator[int]:
    """Yield up to `limit` boxes of `remaining`, best first, except those that overlap a better one (non-max suppression)."""
    low, high = corners
    area = np.prod(high - low, axis=1)
    for _ in range(limit):
        if not remaining.size:
            return
        best, remaining = remaining[0], remaining[1:]
        yield int(best)
        intersection = np.maximum(np.minimum(high[best], high[remaining]) - np.maximum(low[best], low[remaining]), 0).prod(
            axis=1
        )
        union = area[best] + area[remaining] - intersection
        # Multiply instead of dividing: the ratio is undefined for empty boxes.
        remaining = remaining[~((intersection > iou * union) & (union > 0))]

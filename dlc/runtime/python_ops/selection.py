"""What Python computes of a program: the ops of `dl` that are called so, by NumPy.

Some have as many results as the data decides; others are on text (`text_functions.py`), or read pictures (`pictures.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.python_ops import text_functions
from dlc.runtime.python_ops.pictures import decode_picture

Array: TypeAlias = "NDArray[Any]"
Setting: TypeAlias = "int | bool | str | None"


def nonzero(x: Array) -> tuple[Array, ...]:
    """`dl.nonzero`."""
    return (np.argwhere(x).T.astype(np.int64),)


def numbers(number: Array) -> tuple[Array, ...]:
    """`dl.numbers`."""
    return (np.arange(int(number), dtype=np.int64),)


def unique(x: Array, *, axis: int | None = None, keep_order: bool = False, nan_differs: bool = False) -> tuple[Array, ...]:
    """`dl.unique`."""
    # NumPy compares 16-bit floats of other packages by their bits: f32 holds them all.
    narrow = x.dtype.itemsize == 2 and x.dtype.kind in "fV"
    wide = x.astype(np.float32) if narrow else x
    # Their places among the distinct elements are in the order of elements, NaN last, and equal where these are.
    places = np.unique(wide, return_inverse=True)[1].reshape(x.shape)
    if nan_differs:
        # Slices with a NaN have their own places behind their elements.
        flat, rows = (np.moveaxis(a, axis, 0) if axis is not None else a.reshape(-1) for a in (wide, places))
        own = [np.where(np.isnan(row).any(), k, -1) for k, row in enumerate(flat)]
        places, along = np.column_stack([rows.reshape(len(rows), -1), np.array(own, np.int64)]), 0
    else:
        along = axis
    _, first, inverse, counts = np.unique(places, True, True, True, along)
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
        (batch, kind, box)
        for batch, kind in np.ndindex(*scores.shape[:2])
        for box in kept_of(
            _corners(boxes[batch], center_point), _candidates(scores[batch, kind], threshold), int(max_boxes), iou
        )
    ]
    return (np.array(rows, np.int64).reshape(-1, 3),)


# By the names of the ops without `dl.`; settings are keywords.
SELECTIONS: Mapping[str, Callable[..., tuple[Array, ...]]] = {
    f.__name__: f
    for f in (
        nonzero,
        numbers,
        unique,
        non_max_suppression,
        text_functions.text_concat,
        text_functions.text_split,
        text_functions.text_normalize,
        text_functions.text_match,
        text_functions.text_unique,
        text_functions.number_to_text,
        text_functions.text_to_number,
        decode_picture,
    )
}


def select(name: str, operands: Sequence[Array], settings: Mapping[str, Setting]) -> tuple[Array, ...]:
    """The results of the op called `name`."""
    return SELECTIONS[name](*operands, **settings)


def _corners(boxes: Array, center_point: bool) -> tuple[Array, Array]:
    """The lower and the upper corner of each box."""
    a, b = boxes[:, :2], boxes[:, 2:]
    a, b = (a - b / 2, a + b / 2) if center_point else (a, b)
    return np.minimum(a, b), np.maximum(a, b)


def _candidates(scores: Array, threshold: Array) -> Array:
    """The boxes whose scores count, best first."""
    order = np.argsort(-scores, kind="stable")
    return order[scores[order] > threshold]


def kept_of(corners: tuple[Array, Array], left: Array, most: int, iou: Array) -> Iterator[int]:
    """The boxes that are kept of those that are `left`, best first."""
    low, high = corners
    area = np.prod(high - low, axis=1)
    for _ in range(most):
        if not left.size:
            return
        best, left = left[0], left[1:]
        yield int(best)
        common = np.maximum(np.minimum(high[best], high[left]) - np.maximum(low[best], low[left]), 0).prod(axis=1)
        union = area[best] + area[left] - common
        # Multiplied, not divided: boxes without area have no ratio.
        left = left[~((common > iou * union) & (union > 0))]

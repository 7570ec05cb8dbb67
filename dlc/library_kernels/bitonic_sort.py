"""Sort short rows with a bitonic network across the lanes of vectors (Knuth, 5.3.4)."""

from __future__ import annotations

import numpy as np

import dlc.kernels as k
from dlc.dialects import dl
from dlc.dialects.dl.base import flag
from dlc.kernels.functions import shuffle
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.library_kernels.sorting import SortKeys, sorting_network
from dlc.library_kernels.vectors import lanes_of, points_per_task

# Rows of vectors between which the last exchanges of a merge are in registers.
_BLOCK_ROWS = 8


def bitonic_sort(op: dl.BitonicSortOp, x: ArrayReference, y: ArrayReference) -> None:
    """Sort each row as columns of a local buffer, one per lane; then merge adjacent columns until there is one.

    Element r of lane l has the position l · height + r in the sorted row.
    """
    (rows, _), n = x.shape, int(x.shape[1])
    keys, lanes = SortKeys(x.dtype, flag(op.descending)), lanes_of(x.dtype)
    height = max(_BLOCK_ROWS, 1 << (-(-n // lanes) - 1).bit_length())
    for row in k.grid(rows, parallel=points_per_task(n * height.bit_length() ** 2)):
        columns = k.buffer((height, lanes), keys.dtype, fill=None)
        _load(x[row], columns, keys)
        sorting_network(columns, height)
        width = 2
        while width <= lanes:
            _merge(columns, width)
            width *= 2
        _store(columns, y[row], keys)


def _load(x: ArrayReference, columns: ArrayReference, keys: SortKeys) -> None:
    """Load the keys of the elements in any order; the largest key fills the rest of the columns."""
    (height, lanes), n = map(int, columns.shape), int(x.shape[0])
    for r in k.range(n // lanes):
        columns.store(r, 0, value=keys.from_element(x.load(r * lanes, width=lanes)))
    largest, first = k.full(lanes, np.iinfo(keys.dtype).max, keys.dtype), n // lanes
    if count := n % lanes:
        last = keys.from_element(x.load(first * lanes, width=lanes, fill=0))
        columns.store(first, 0, value=k.select(k.iota(lanes, np.int32) < count, last, largest))
    for r in k.range(-(-n // lanes), height):
        columns.store(r, 0, value=largest)


def _merge(columns: ArrayReference, width: int) -> None:
    """Merge the halves of each group of `width` lanes, whose columns are sorted one after the other.

    Exchange the elements at positions i and -1 - i of a group, then those at a distance of a quarter of the group, an eighth, …
    """
    height, lanes = map(int, columns.shape)
    mirrored, is_low = _exchange(lanes, width - 1, width // 2, columns.dtype)
    for r in k.range(height // 2):
        a, b = columns.load(r, 0, width=lanes), columns.load(height - 1 - r, 0, width=lanes)
        columns.store(r, 0, value=_ordered(a, shuffle(b, mirrored), is_low))
        columns.store(height - 1 - r, 0, value=_ordered(b, shuffle(a, mirrored), is_low))
    distances = [1 << d for d in reversed(range((width // 4).bit_length()))]
    half_rows = height // 2
    for r in k.range(height if distances else 0):
        a = columns.load(r, 0, width=lanes)
        for distance in distances:
            partners, is_low = _exchange(lanes, distance, distance, columns.dtype)
            a = _ordered(a, shuffle(a, partners), is_low)
        columns.store(r, 0, value=a)
    while half_rows >= _BLOCK_ROWS:
        for block in k.range(0, height, 2 * half_rows):
            for r in k.range(half_rows):
                i, j = (k.assume_index(block + r + offset, height) for offset in (0, half_rows))
                a, b = columns.load(i, 0, width=lanes), columns.load(j, 0, width=lanes)
                columns.store(i, 0, value=k.minimum(a, b))
                columns.store(j, 0, value=k.maximum(a, b))
        half_rows //= 2
    for block in k.range(0, height, _BLOCK_ROWS):
        values = [columns.load(block + r, 0, width=lanes) for r in range(_BLOCK_ROWS)]
        distance = half_rows
        while distance:
            for i in [i for i in range(_BLOCK_ROWS) if not i & distance]:
                a, b = values[i], values[i + distance]
                values[i], values[i + distance] = k.minimum(a, b), k.maximum(a, b)
            distance //= 2
        for r, value in enumerate(values):
            columns.store(block + r, 0, value=value)


def _exchange(lanes: int, flipped_bits: int, high_bit: int, dtype: np.dtype) -> tuple[list[int], Value]:
    """Return the partner of each lane, and whether a lane receives the smaller element."""
    return [lane ^ flipped_bits for lane in range(lanes)], (k.iota(lanes, dtype) & high_bit) == 0


def _ordered(a: Value, partners: Value, is_low: Value) -> Value:
    return k.select(is_low, k.minimum(a, partners), k.maximum(a, partners))


def _store(columns: ArrayReference, y: ArrayReference, keys: SortKeys) -> None:
    """Store the columns one after the other."""
    (height, lanes), n = map(int, columns.shape), int(y.shape[0])
    for r in k.range(0, height, _BLOCK_ROWS):
        block = columns.load(r, 0, width=(lanes, _BLOCK_ROWS), axis=(1, 0))
        for lane in range(min(lanes, -(-n // height))):
            y.store(lane * height + r, value=keys.to_element(block[lane]), masked=(lane + 1) * height > n)

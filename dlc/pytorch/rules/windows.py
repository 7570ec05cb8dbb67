"""Sliding windows: pooling and padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.errors import UnsupportedError
from dlc.numpy.apply import apply, convert, is_floating, refuse
from dlc.pytorch.rules.contractions import channels_first, channels_last, spread
from dlc.pytorch.rules.table import Table

table = Table()

Sizes = int | Sequence[int]


class Windows:
    """Windows of one size over the last axes of an operand, and how much of the padding behind ceil_mode adds."""

    def __init__(self, x: Any, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool, rank: int):
        self.rank = rank
        self.kernel, self.low, self.dilations = (spread(v, rank) for v in (kernel, padding, dilation))
        self.strides = spread(stride, rank) if stride not in ((), []) else self.kernel
        self.spatial = x.shape[x.ndim - rank :]
        self.high = self.low
        if ceil_mode:
            self.high = tuple(map(self._reached, range(rank)))

    def _reached(self, axis: int) -> int:
        """The padding behind that the last window needs, which begins inside the operand or the padding in front."""
        size, low, stride = int(self.spatial[axis]), self.low[axis], self.strides[axis]
        extent = (self.kernel[axis] - 1) * self.dilations[axis] + 1
        last = min(-(-(size + 2 * low - extent) // stride) * stride, (size + low - 1) // stride * stride)
        return max(low, last + extent - size - low)

    def padded(self, x: Any, fill: float | int) -> Any:
        """A channels-last operand with its padding."""
        if not any(self.low) and not any(self.high):
            return x
        return dnp.pad(x, [(0, 0), *zip(self.low, self.high, strict=True), (0, 0)], constant_values=fill)

    def counts(self, low: Sequence[int], high: Sequence[int]) -> Array:
        """How many elements each window has where so much of the padding counts."""
        counts = np.ones(())
        for axis, size in enumerate(map(int, self.spatial)):
            padded = size + self.low[axis] + self.high[axis]
            starts = np.arange(0, padded - self.kernel[axis] + 1, self.strides[axis]) - self.low[axis]
            places = starts[:, np.newaxis] + np.arange(self.kernel[axis])
            counts = np.multiply.outer(counts, ((places >= -low[axis]) & (places < size + high[axis])).sum(1))
        return np.maximum(counts, 1)


def _batched(x: Any, rank: int) -> Any:
    return x if x.ndim == rank + 2 else dnp.expand_dims(x, 0)


def _max_pooled(x: Any, w: Windows) -> tuple[Any, Any]:
    """The padded channels-last operand and the largest of each window."""
    lowest = -np.inf if is_floating(x.dtype) else int(np.iinfo(x.dtype).min)
    padded = w.padded(channels_last(x), lowest)
    return padded, apply(dl.MaxPoolOp, padded, kernel=w.kernel, strides=w.strides, dilations=w.dilations)


def _max_pool(rank: int) -> Any:
    def pool(
        x: Any, kernel_size: Sizes, stride: Sizes = (), padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
    ) -> Any:
        batch = _batched(x, rank)
        w = Windows(batch, kernel_size, stride, padding, dilation, ceil_mode, rank)
        y = channels_first(_max_pooled(batch, w)[1])
        return y if batch is x else dnp.squeeze(y, 0)

    return pool


def _max_pool_with_places(rank: int) -> Any:
    def pool(
        x: Any, kernel_size: Sizes, stride: Sizes = (), padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
    ) -> Any:
        batch = _batched(x, rank)
        w = Windows(batch, kernel_size, stride, padding, dilation, ceil_mode, rank)
        padded, y = _max_pooled(batch, w)
        found = channels_first(y), channels_first(_places(padded, w))
        return found if batch is x else tuple(dnp.squeeze(v, 0) for v in found)

    return pool


def _places(padded: Any, w: Windows) -> Any:
    """Where the first largest element of each window stands in its image, which has no padding."""
    along: list[tuple[Array, Array]] = []
    for axis in range(w.rank):
        size = w.spatial[axis] + w.low[axis] + w.high[axis]
        extent = (w.kernel[axis] - 1) * w.dilations[axis] + 1
        starts: Array = np.arange(0, int(size) - extent + 1, w.strides[axis])
        places: Array = starts[:, np.newaxis] + np.arange(w.kernel[axis]) * w.dilations[axis]
        # A window of padding alone has no place; the nearest is inside.
        along.append((places, np.clip(places - w.low[axis], 0, w.spatial[axis] - 1)))
    return _first_largest(padded, along, w.spatial)


def _first_largest(x: Any, along: Sequence[tuple[Array, Array]], spatial: Sequence[Any]) -> Any:
    """Of the windows of a channels-last operand, which has each axis' places [windows, places] and what they are called in an
    image of the size `spatial`: the name of the first largest element."""
    windows: Any = x
    names: Array = np.zeros((), np.int64)
    for axis, (places, called) in enumerate(along):
        # [N, …, o·k, …, C]
        windows = dnp.take(windows, places, axis=1 + 2 * axis)
        names = names[..., np.newaxis, np.newaxis] * spatial[axis] + called
    rank = len(along)
    order = [0, *range(1, 2 * rank + 1, 2), 2 * rank + 1, *range(2, 2 * rank + 1, 2)]
    counts, kernel = ([places.shape[k] for places, _ in along] for k in range(2))
    windows = dnp.permute_dims(windows, order)
    windows = dnp.reshape(windows, (*windows.shape[: rank + 2], math.prod(kernel)))
    first = dnp.argmax(windows, -1)
    named: Array = names.transpose([a - 1 for a in order if 0 < a < 2 * rank + 1]).reshape(-1)
    offsets = (np.arange(math.prod(counts)) * math.prod(kernel)).reshape(*counts, 1)
    return dnp.take(named, dnp.add(first, offsets), axis=0)


for _rank in (1, 2, 3):
    table(f"max_pool{_rank}d")(_max_pool(_rank))
    table(f"max_pool{_rank}d_with_indices")(_max_pool_with_places(_rank))


@table("max_pool2d_with_indices_backward max_pool3d_with_indices_backward")
def max_pool_backward(
    g: Any, x: Any, kernel_size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool, indices: Any
) -> Any:
    w = Windows(x, kernel_size, stride, padding, dilation, ceil_mode, x.ndim - 2)
    padded, y = _max_pooled(x, w)
    settings = {"kernel": w.kernel, "strides": w.strides, "dilations": w.dilations}
    found = apply(dl.MaxPoolGradientOp, padded, y, channels_last(g), **settings)
    starts, limits = (0, *w.low, 0), [found.shape[0], *(p + s for p, s in zip(w.low, w.spatial, strict=True)), found.shape[-1]]
    return channels_first(apply(dl.SliceOp, found, starts=starts, limits=limits, strides=(1,) * x.ndim))


def _avg_pool(rank: int) -> Any:
    def pool(
        x: Any,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        # A sum of 16 bits may be beyond its dtype, and one of integers is divided.
        batch = _batched(convert(x, np.promote_types(x.dtype, np.float32)), rank)
        w = Windows(batch, kernel_size, stride, padding, 1, ceil_mode, rank)
        total = apply(
            dl.SumPoolOp, w.padded(channels_last(batch), 0), kernel=w.kernel, strides=w.strides, dilations=(1,) * rank
        )
        counted = w.low if count_include_pad else (0,) * rank
        if divisor_override is not None:
            number = np.asarray(divisor_override)
        elif counted == w.low == w.high:
            number = np.asarray(math.prod(w.kernel))
        else:
            number = w.counts(counted, counted)[..., np.newaxis]
        if is_floating(x.dtype):
            y = dnp.multiply(total, (1 / number).astype(batch.dtype))
        else:
            y = dnp.trunc(dnp.divide(total, number.astype(batch.dtype)))
        y = convert(channels_first(y), x.dtype)
        return y if x.ndim == batch.ndim else dnp.squeeze(y, 0)

    return pool


for _rank in (1, 2, 3):
    table(f"avg_pool{_rank}d")(_avg_pool(_rank))


def _adaptive(rank: int, average: bool) -> Any:
    """Window k of an axis of n elements that becomes m reaches from ⌊k·n/m⌋ to ⌈(k + 1)·n/m⌉."""

    def pool(x: Any, output_size: Sequence[int | None]) -> Any:
        for axis, given in enumerate(output_size, start=x.ndim - rank):
            size = x.shape[axis]
            count = size if given is None else given
            if count == 1:
                x = (dnp.mean if average else dnp.max)(x, axis, keepdims=True)
            elif count != size:
                x = _averaged(x, axis, int(size), int(count)) if average else _largest(x, axis, int(size), int(count))
        return x

    return pool


def _ends(size: int, count: int) -> list[tuple[int, int]]:
    return [(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]


def _averaged(x: Any, axis: int, size: int, count: int) -> Any:
    weights = np.zeros((size, count), x.dtype)
    for k, (low, high) in enumerate(_ends(size, count)):
        weights[low:high, k] = 1 / (high - low)
    return dnp.moveaxis(dnp.matmul(dnp.moveaxis(x, axis, -1), weights), -1, axis)


def _largest(x: Any, axis: int, size: int, count: int) -> Any:
    return dnp.concat(
        [dnp.max(dnp.take(x, np.arange(low, high), axis=axis), axis, keepdims=True) for low, high in _ends(size, count)],
        axis=axis,
    )


for _rank in (1, 2, 3):
    table(f"adaptive_avg_pool{_rank}d _adaptive_avg_pool{_rank}d")(_adaptive(_rank, average=True))


def _adaptive_with_places(rank: int) -> Any:
    def pool(x: Any, output_size: Sequence[int]) -> Any:
        batch = _batched(x, rank)
        sizes = [int(s) for s in batch.shape[2:]]
        along: list[tuple[Array, Array]] = []
        for size, count in zip(sizes, output_size, strict=True):
            low, high = (np.array(ends, np.int64) for ends in zip(*_ends(size, count), strict=True))
            # Windows of one size; the last element of a smaller one more than once.
            places: Array = np.minimum(low[:, np.newaxis] + np.arange(int((high - low).max())), high[:, np.newaxis] - 1)
            along.append((places, places))
        found = (
            _adaptive(rank, average=False)(batch, output_size),
            channels_first(_first_largest(channels_last(batch), along, sizes)),
        )
        return found if batch is x else tuple(dnp.squeeze(v, 0) for v in found)

    return pool


for _rank in (2, 3):
    table(f"adaptive_max_pool{_rank}d")(_adaptive_with_places(_rank))


def _edge(mode: str, rank: int) -> Any:
    def pad(x: Any, padding: Sequence[int]) -> Any:
        if min(padding) < 0:
            refuse(UnsupportedError(f"a {mode} padding of {list(padding)}, which cuts"))
        widths = [(padding[2 * k], padding[2 * k + 1]) for k in reversed(range(rank))]
        return dnp.pad(x, [(0, 0)] * (x.ndim - rank) + widths, mode=mode)

    return pad


for _rank in (1, 2, 3):
    table(f"reflection_pad{_rank}d")(_edge("reflect", _rank))
    table(f"replication_pad{_rank}d")(_edge("edge", _rank))


@table("im2col")
def im2col(x: Any, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Any:
    w = Windows(x, kernel_size, stride, padding, dilation, False, 2)
    y = dnp.pad(x, [(0, 0), (0, 0), *zip(w.low, w.high, strict=True)])
    for axis in range(2):
        extent = (w.kernel[axis] - 1) * w.dilations[axis] + 1
        starts = np.arange(0, int(y.shape[2 + 2 * axis]) - extent + 1, w.strides[axis])
        y = dnp.take(y, np.arange(w.kernel[axis])[:, np.newaxis] * w.dilations[axis] + starts, axis=2 + 2 * axis)
    # [N, C, kh, h, kw, w] → [N, C·kh·kw, h·w]
    n, c, kh, h, kw, width = y.shape
    return dnp.reshape(dnp.permute_dims(y, (0, 1, 2, 4, 3, 5)), (n, c * kh * kw, h * width))


@table("col2im")
def col2im(x: Any, output_size: Sequence[int], kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Any:
    """[N, C·kh·kw, h·w] → [N, C, *output_size], where windows overlap added up: along an axis, a product with the matrix that
    is 1 where place k of window o lies."""
    kernel, distances, low, steps = (spread(v, 2) for v in (kernel_size, dilation, padding, stride))
    counts = [
        (size + 2 * p - (k - 1) * d - 1) // s + 1
        for size, p, k, d, s in zip(output_size, low, kernel, distances, steps, strict=True)
    ]
    y = dnp.reshape(x, (x.shape[0], -1, *kernel, *counts))
    for axis, size in enumerate(output_size):
        places = np.arange(kernel[axis])[:, np.newaxis] * distances[axis] + np.arange(counts[axis]) * steps[axis] - low[axis]
        matrix = (places.reshape(-1, 1) == np.arange(size)).astype(x.dtype)
        # [N, C, k, …, o, …] with this axis' k and o moved to the end.
        y = dnp.moveaxis(y, (2, 4 - axis), (-2, -1))
        y = dnp.matmul(dnp.reshape(y, (*y.shape[:-2], matrix.shape[0])), matrix)
    return y


@table("max_unpool2d")
def max_unpool(x: Any, indices: Any, output_size: Sequence[int]) -> Any:
    flat = dnp.reshape(indices, (*x.shape[:-2], -1))
    zeros = np.zeros((*x.shape[:-2], math.prod(output_size)), x.dtype)
    y = apply(dl.ScatterElementsOp, zeros, flat, dnp.reshape(x, flat.shape), axis=x.ndim - 2, mode="none", checked=True)
    return convert(dnp.reshape(y, (*x.shape[:-2], *output_size)), x.dtype)

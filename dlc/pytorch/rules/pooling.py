"""Pooling, padding and im2col."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import sub
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.frontend.sliding_windows import SlidingWindows, ceil_mode_padding
from dlc.numpy.apply import apply, convert, is_floating
from dlc.pytorch.rules.contractions import channels_first, channels_last, per_spatial_axis
from dlc.pytorch.rules.rule_table import RuleTable
from dlc.shapes.traced_dims import untraced

table = RuleTable()

Sizes = int | Sequence[int]


def _windows(x: Any, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool) -> SlidingWindows:
    """Return windows over the spatial axes of [N, C, *S], with the end padding that ceil_mode adds."""
    rank = x.ndim - 2
    kernel, low, dilations = (per_spatial_axis(v, rank) for v in (kernel, padding, dilation))
    strides = per_spatial_axis(stride, rank) if stride not in ((), []) else kernel
    windows = SlidingWindows(kernel, strides, dilations, low, low)
    if not ceil_mode:
        return windows
    axes = zip(map(untraced, x.shape[2:]), windows.extents, strides, low, low, strict=True)
    return replace(windows, high=tuple(ceil_mode_padding(*axis) for axis in axes))


def _pad(x: Any, windows: SlidingWindows, fill: float = 0) -> Any:
    """Apply the padding of windows to a channels-last operand."""
    if not any(windows.low) and not any(windows.high):
        return x
    return dnp.pad(x, [(0, 0), *zip(windows.low, windows.high, strict=True), (0, 0)], constant_values=fill)


def _sum_pool(x: Any, windows: SlidingWindows) -> Any:
    return apply(dl.SumPoolOp, _pad(x, windows), **windows.properties)


def _add_batch_axis(x: Any, rank: int) -> Any:
    return x if x.ndim == rank + 2 else dnp.expand_dims(x, 0)


def _max_pooled(x: Any, windows: SlidingWindows) -> tuple[Any, Any]:
    """Return the padded channels-last operand and the maximum of each window."""
    lowest = -np.inf if is_floating(x.dtype) else int(np.iinfo(x.dtype).min)
    padded = _pad(channels_last(x), windows, lowest)
    return padded, apply(dl.MaxPoolOp, padded, **windows.properties)


def _max_pool(rank: int) -> Any:
    def pool(
        x: Any, kernel_size: Sizes, stride: Sizes = (), padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
    ) -> Any:
        batch = _add_batch_axis(x, rank)
        w = _windows(batch, kernel_size, stride, padding, dilation, ceil_mode)
        y = channels_first(_max_pooled(batch, w)[1])
        return y if batch is x else dnp.squeeze(y, 0)

    return pool


def _max_pool_with_indices(rank: int) -> Any:
    def pool(
        x: Any, kernel_size: Sizes, stride: Sizes = (), padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
    ) -> Any:
        batch = _add_batch_axis(x, rank)
        w = _windows(batch, kernel_size, stride, padding, dilation, ceil_mode)
        padded, y = _max_pooled(batch, w)
        pooled = channels_first(y), channels_first(_max_indices(padded, w, batch.shape[2:]))
        return pooled if batch is x else tuple(dnp.squeeze(v, 0) for v in pooled)

    return pool


def _max_indices(padded: Any, windows: SlidingWindows, spatial: Sequence[Any]) -> Any:
    """Return the flat index of the first maximum of each window in its image, of sizes `spatial`, without padding."""
    window_axes: list[tuple[Array, Array]] = []
    for axis, size in enumerate(map(int, spatial)):
        indices = windows.indices(axis, size)
        # A window inside the padding has no element in the image: use the nearest one.
        window_axes.append((indices + windows.low[axis], np.clip(indices, 0, size - 1)))
    return _first_max_indices(padded, window_axes, spatial)


def _first_max_indices(x: Any, window_axes: Sequence[tuple[Array, Array]], spatial: Sequence[Any]) -> Any:
    """Return the flat image index of the first maximum of each window of a channels-last operand.

    `window_axes` has for each spatial axis the positions [windows, kernel] in the operand, and the corresponding indices in an
    image of the sizes `spatial`.
    """
    windows: Any = x
    flat_indices: Array = np.zeros((), np.int64)
    for axis, (positions, image_indices) in enumerate(window_axes):
        # [N, …, o·k, …, C]
        windows = dnp.take(windows, positions, axis=1 + 2 * axis)
        flat_indices = flat_indices[..., np.newaxis, np.newaxis] * spatial[axis] + image_indices
    rank = len(window_axes)
    order = [0, *range(1, 2 * rank + 1, 2), 2 * rank + 1, *range(2, 2 * rank + 1, 2)]
    counts, kernel = ([positions.shape[k] for positions, _ in window_axes] for k in range(2))
    windows = dnp.permute_dims(windows, order)
    windows = dnp.reshape(windows, (*windows.shape[: rank + 2], math.prod(kernel)))
    first = dnp.argmax(windows, -1)
    flat_indices = flat_indices.transpose([a - 1 for a in order if 0 < a < 2 * rank + 1]).reshape(-1)
    offsets = (np.arange(math.prod(counts)) * math.prod(kernel)).reshape(*counts, 1)
    return dnp.take(flat_indices, dnp.add(first, offsets), axis=0)


for _rank in (1, 2, 3):
    table(f"max_pool{_rank}d")(_max_pool(_rank))
    table(f"max_pool{_rank}d_with_indices")(_max_pool_with_indices(_rank))


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
        # Sum in float32: half precision may overflow, and the mean of integers needs a division.
        batch = _add_batch_axis(convert(x, np.promote_types(x.dtype, np.float32)), rank)
        w = _windows(batch, kernel_size, stride, padding, 1, ceil_mode)
        counted = w.low if count_include_pad else (0,) * rank
        if divisor_override is not None:
            divisor = np.asarray(divisor_override)
        elif counted == w.low == w.high:
            divisor = np.asarray(math.prod(w.kernel))
        else:
            ones = dnp.ones((1, *(s + 2 * p for s, p in zip(batch.shape[2:], counted, strict=True)), 1), batch.dtype)
            low, high = (tuple(map(sub, pads, counted)) for pads in (w.low, w.high))
            # A window that contains only padding has an average of 0.
            divisor = dnp.maximum(_sum_pool(ones, replace(w, low=low, high=high)), 1)
        total, divisor = _sum_pool(channels_last(batch), w), convert(divisor, batch.dtype)
        is_float = is_floating(x.dtype)
        y = dnp.multiply(total, dnp.divide(1, divisor)) if is_float else dnp.trunc(dnp.divide(total, divisor))
        y = convert(channels_first(y), x.dtype)
        return y if x.ndim == batch.ndim else dnp.squeeze(y, 0)

    return pool


for _rank in (1, 2, 3):
    table(f"avg_pool{_rank}d")(_avg_pool(_rank))


def _adaptive(rank: int, average: bool) -> Any:
    """Define adaptive pooling: window k of an axis of n elements, reduced to m, spans ⌊k·n/m⌋ to ⌈(k + 1)·n/m⌉."""

    def pool(x: Any, output_size: Sequence[int | None]) -> Any:
        for axis, requested_size in enumerate(output_size, start=x.ndim - rank):
            size = x.shape[axis]
            count = size if requested_size is None else requested_size
            if untraced(count) == 1:
                x = (dnp.mean if average else dnp.max)(x, axis, keepdims=True)
            elif untraced(count) != untraced(size):
                x = (_average_windows if average else _max_windows)(x, axis, int(size), int(count))
        return x

    return pool


def _window_bounds(size: int, num_windows: int) -> list[tuple[int, int]]:
    return [(k * size // num_windows, -(-(k + 1) * size // num_windows)) for k in range(num_windows)]


def _average_windows(x: Any, axis: int, size: int, num_windows: int) -> Any:
    weights = np.zeros((size, num_windows), x.dtype)
    for k, (low, high) in enumerate(_window_bounds(size, num_windows)):
        weights[low:high, k] = 1 / (high - low)
    return dnp.moveaxis(dnp.matmul(dnp.moveaxis(x, axis, -1), weights), -1, axis)


def _max_windows(x: Any, axis: int, size: int, num_windows: int) -> Any:
    windows = (dnp.take(x, np.arange(low, high), axis=axis) for low, high in _window_bounds(size, num_windows))
    return dnp.concat([dnp.max(window, axis, keepdims=True) for window in windows], axis=axis)


for _rank in (1, 2, 3):
    table(f"adaptive_avg_pool{_rank}d _adaptive_avg_pool{_rank}d")(_adaptive(_rank, average=True))


def _adaptive_with_indices(rank: int) -> Any:
    def pool(x: Any, output_size: Sequence[int]) -> Any:
        batch = _add_batch_axis(x, rank)
        sizes = [int(s) for s in batch.shape[2:]]
        window_axes: list[tuple[Array, Array]] = []
        for size, count in zip(sizes, output_size, strict=True):
            low, high = (np.array(bounds, np.int64) for bounds in zip(*_window_bounds(size, count), strict=True))
            # Windows of equal size: a smaller one repeats its last element.
            indices: Array = np.minimum(low[:, np.newaxis] + np.arange(int((high - low).max())), high[:, np.newaxis] - 1)
            window_axes.append((indices, indices))
        pooled = (
            _adaptive(rank, average=False)(batch, output_size),
            channels_first(_first_max_indices(channels_last(batch), window_axes, sizes)),
        )
        return pooled if batch is x else tuple(dnp.squeeze(v, 0) for v in pooled)

    return pool


for _rank in (2, 3):
    table(f"adaptive_max_pool{_rank}d")(_adaptive_with_indices(_rank))


def _edge_padding_rule(mode: str, rank: int) -> Any:
    def pad(x: Any, padding: Sequence[int]) -> Any:
        widths = [(0, 0)] * (x.ndim - rank) + [(padding[2 * k], padding[2 * k + 1]) for k in reversed(range(rank))]
        y = dnp.pad(x, [(max(low, 0), max(high, 0)) for low, high in widths], mode=mode)
        # Negative padding trims the padded array.
        return y[tuple(np.s_[max(-low, 0) : n - max(-high, 0)] for n, (low, high) in zip(y.shape, widths, strict=True))]

    return pad


for _rank in (1, 2, 3):
    table(f"reflection_pad{_rank}d")(_edge_padding_rule("reflect", _rank))
    table(f"replication_pad{_rank}d")(_edge_padding_rule("edge", _rank))


@table("im2col")
def im2col(x: Any, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Any:
    w = _windows(x, kernel_size, stride, padding, dilation, False)
    y = dnp.pad(x, [(0, 0), (0, 0), *zip(w.low, w.high, strict=True)])
    for axis, size in enumerate(map(int, x.shape[2:])):
        y = dnp.take(y, w.indices(axis, size).T + w.low[axis], axis=2 + 2 * axis)
    # [N, C, kh, h, kw, w] → [N, C·kh·kw, h·w]
    n, c, kh, h, kw, width = y.shape
    return dnp.reshape(dnp.permute_dims(y, (0, 1, 2, 4, 3, 5)), (n, c * kh * kw, h * width))


@table("col2im")
def col2im(x: Any, output_size: Sequence[int], kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Any:
    """Sum overlapping windows, the adjoint of im2col: [N, C·kh·kw, h·w] → [N, C, *output_size].

    Each axis is a product with the 0/1 matrix that maps position k of window o to a pixel.
    """
    kernel, strides, dilations, low = (per_spatial_axis(v, 2) for v in (kernel_size, stride, dilation, padding))
    windows = SlidingWindows(kernel, strides, dilations, low, low)
    indices = [windows.indices(axis, size) for axis, size in enumerate(output_size)]
    y = dnp.reshape(x, (x.shape[0], x.shape[1] // math.prod(kernel), *kernel, *map(len, indices)))
    for axis, size in enumerate(output_size):
        matrix = (indices[axis].T.reshape(-1, 1) == np.arange(size)).astype(x.dtype)
        # [N, C, k, …, o, …] with this axis' k and o moved to the end.
        y = dnp.moveaxis(y, (2, 4 - axis), (-2, -1))
        y = dnp.matmul(dnp.reshape(y, (*y.shape[:-2], matrix.shape[0])), matrix)
    return y


@table("max_unpool2d")
def max_unpool(x: Any, indices: Any, output_size: Sequence[int]) -> Any:
    flat = dnp.reshape(indices, (*x.shape[:-2], math.prod(x.shape[-2:])))
    zeros = np.zeros((*x.shape[:-2], math.prod(output_size)), x.dtype)
    y = apply(dl.ScatterElementsOp, zeros, flat, dnp.reshape(x, flat.shape), axis=x.ndim - 2, mode="none", checked=True)
    return convert(dnp.reshape(y, (*x.shape[:-2], *output_size)), x.dtype)

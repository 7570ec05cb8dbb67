"""Shape manipulation: views, slices, joins and their scatter counterparts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import UnsupportedError
from dlc.numpy.apply import apply, convert, refuse
from dlc.pytorch.rules.rule_table import Dtype, RuleTable, at_least_1d, is_tensor, joined_dtype
from dlc.shapes.dims import UndecidableError, row_major
from dlc.shapes.slices import clamp_where_decidable, slice_range
from dlc.shapes.traced_dims import TracedSize, untraced

table = RuleTable()


@table("view reshape _unsafe_view view_copy _reshape_copy")
def view(x: Any, size: Sequence[Any]) -> Any:
    return dnp.reshape(x, tuple(size))


@table("flatten.using_ints prims::collapse prims::collapse_view")
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    start, end = start_dim % max(x.ndim, 1), end_dim % max(x.ndim, 1)
    # Not -1, which is ambiguous for arrays without elements.
    return dnp.reshape(x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


@table("permute permute_copy")
def permute(x: Any, dims: Sequence[int]) -> Any:
    return dnp.permute_dims(x, tuple(dims))


@table("transpose.int transpose_copy.int")
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    return dnp.swapaxes(x, dim0, dim1) if x.ndim else x


@table("t t_copy numpy_T")
def t(x: Any) -> Any:
    return dnp.transpose(x)


@table("unsqueeze unsqueeze_copy")
def unsqueeze(x: Any, dim: int) -> Any:
    return dnp.expand_dims(x, dim)


@table("squeeze.dim squeeze.dims squeeze squeeze_copy.dim squeeze_copy.dims")
def squeeze(x: Any, dim: int | Sequence[int] | None = None) -> Any:
    """Remove the named axes of size 1; other sizes are ignored."""
    requested_dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = tuple(a for a in {d % max(x.ndim, 1) for d in requested_dims} if x.ndim and untraced(x.shape[a]) == 1)
    return dnp.squeeze(x, axes) if axes else x


@table("expand expand_copy")
def expand(x: Any, size: Sequence[Any], implicit: bool = False) -> Any:
    """Broadcast; -1 keeps the size of an axis."""
    padded_shape = (*[1] * (len(size) - x.ndim), *x.shape)
    return dnp.broadcast_to(
        x, tuple(o if isinstance(s, int) and s == -1 else s for s, o in zip(size, padded_shape, strict=True))
    )


@table("repeat")
def repeat(x: Any, repeats: Sequence[int]) -> Any:
    return dnp.tile(x, tuple(repeats))


@table("repeat_interleave.self_int")
def repeat_interleave(x: Any, repeats: int, dim: int | None = None, output_size: int | None = None) -> Any:
    return dnp.repeat(x, repeats, axis=dim)


@table("flip")
def flip(x: Any, dims: Sequence[int]) -> Any:
    return dnp.flip(x, tuple(dims)) if dims and x.ndim else x


@table("roll")
def roll(x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    return dnp.roll(x, tuple(shifts), tuple(dims)) if dims else dnp.roll(x, shifts[0])


@table("cat concat")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    # PyTorch ignores empty vectors, whatever the rank of the other tensors.
    nonempty = [x for x in tensors if untraced(x.shape) != (0,)] or list(tensors[:1])
    return dnp.concat([convert(x, joined_dtype([x.dtype for x in tensors])) for x in nonempty], axis=dim)


@table("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return dnp.stack([convert(x, joined_dtype([x.dtype for x in tensors])) for x in tensors], axis=dim)


def slice_axis(x: Any, axis: int, start: TracedSize, end: TracedSize, step: int = 1) -> Any:
    """Slice one axis from `start` to before `end`, which must be within it."""
    starts, limits, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], limits[axis], steps[axis] = start, end, step
    return apply(dl.SliceOp, x, starts=starts, limits=limits, strides=steps)


def slice_bounds(size: TracedSize, start: TracedSize | None, end: TracedSize | None) -> tuple[TracedSize, TracedSize]:
    """Return the non-negative bounds of a slice, clamped to the axis."""
    end = None if end is not None and untraced(end) == _UNBOUNDED_END else end
    low, high = slice_range(size, start, end, 1, clamp_where_decidable)
    with suppress(UndecidableError):
        high = max(low, high)
    return low, high


# The end of a slice without an end, in PyTorch.
_UNBOUNDED_END = 2**63 - 1


@table("slice.Tensor slice_copy.Tensor")
def slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Slice an axis; the bounds may be integers, symbolic sizes or traced values."""
    axis = dim % x.ndim
    if is_tensor(start) or is_tensor(end):
        return x[(*[np.s_[:]] * axis, np.s_[start:end:step])]
    low, high = slice_bounds(x.shape[axis], start, end)
    return x if untraced((low, high, step)) == (0, untraced(x.shape[axis]), 1) else slice_axis(x, axis, low, high, step)


@table("narrow narrow_copy")
def narrow(x: Any, dim: int, start: TracedSize, length: TracedSize) -> Any:
    return slice(x, dim, start, start + length)


@table("select.int select_copy.int")
def select(x: Any, dim: int, index: Any) -> Any:
    axis = dim % x.ndim
    if is_tensor(index):
        return dnp.take(x, index, axis=axis)
    position = x.shape[axis] + index if isinstance(index, int) and index < 0 else index
    return dnp.squeeze(slice_axis(x, axis, position, position + 1), axis)


@table("split_with_sizes split_with_sizes_copy")
def split_with_sizes(x: Any, split_sizes: Sequence[TracedSize], dim: int = 0) -> Any:
    axis, start = dim % x.ndim, 0
    segments: list[Any] = []
    for size in split_sizes:
        segments.append(slice_axis(x, axis, start, start + size))
        start = start + size
    return segments


@table("split.Tensor split_copy.Tensor")
def split(x: Any, split_size: int, dim: int = 0) -> Any:
    total = int(x.shape[dim])
    return split_with_sizes(x, [min(split_size, total - k) for k in range(0, total, split_size)], dim)


@table("chunk")
def chunk(x: Any, chunks: int, dim: int = 0) -> Any:
    return split(x, -(-int(x.shape[dim]) // chunks), dim)


@table("unbind.int unbind_copy.int")
def unbind(x: Any, dim: int = 0) -> Any:
    return [select(x, dim, k) for k in range(int(x.shape[dim]))]


@table("unfold")
def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    if x.ndim == 0:
        return unfold(at_least_1d(x), 0, size, step)[0]
    axis = dimension % x.ndim
    starts: Any = dnp.arange((x.shape[axis] - size) // step + 1)
    indices = dnp.add(dnp.multiply(dnp.expand_dims(starts, axis=1), step), np.arange(size))
    return dnp.moveaxis(dnp.take(x, indices, axis=axis), axis + 1, -1)


@table("diagonal diagonal_copy")
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return dnp.diagonal(x, offset, dim1, dim2)


@table("tril")
def tril(x: Any, diagonal: int = 0) -> Any:
    return dnp.tril(x, k=diagonal)


@table("triu")
def triu(x: Any, diagonal: int = 0) -> Any:
    return dnp.triu(x, k=diagonal)


@table("constant_pad_nd")
def constant_pad(x: Any, pad: Sequence[int], value: float = 0) -> Any:
    """Pad; pads are (before, after) pairs, the last axis first; negative pads trim."""
    for k in range(len(pad) // 2):
        axis, (low, high) = x.ndim - 1 - k, (pad[2 * k], pad[2 * k + 1])
        size = x.shape[axis]
        x = slice(x, axis, max(-low, 0), size - max(-high, 0)) if low < 0 or high < 0 else x
    widths = [(0, 0)] * (x.ndim - len(pad) // 2)
    widths += [(max(pad[2 * k], 0), max(pad[2 * k + 1], 0)) for k in reversed(range(len(pad) // 2))]
    return dnp.pad(x, widths, constant_values=value)


# Operators whose result depends on the memory layout of their first operand.
STRIDED_READS, STRIDED_UPDATES = ("as_strided", "as_strided_copy"), ("as_strided_scatter",)


def _addresses(shape: Sequence[TracedSize], strides: Sequence[TracedSize], offset: TracedSize) -> Array:
    """Return the storage offset of each element of a tensor."""
    # A symbolic size raises UndecidableError, and the graph is compiled for static sizes.
    addresses = np.asarray(int(offset))
    for size, stride in zip(shape, strides, strict=True):
        addresses = addresses[..., np.newaxis] + np.arange(int(size)) * int(stride)
    return addresses


def _stored_elements(x: Any, layout: tuple[Sequence[TracedSize], TracedSize] | None) -> tuple[Array, Array, Array]:
    """Map the storage of `x` to its elements.

    `layout` is the strides and the storage offset, row-major by default. Returns three arrays: the storage offsets that
    elements of `x` have, in ascending order; the flat index of an element at each of these offsets; for each element, the index
    of its offset.
    """
    strides, offset = layout or (cast("tuple[TracedSize, ...]", row_major(x.shape)), 0)
    return np.unique(_addresses(x.shape, strides, offset), return_index=True, return_inverse=True)


@table(" ".join(STRIDED_READS))
def as_strided(
    x: Any,
    size: Sequence[TracedSize],
    stride: Sequence[TracedSize],
    storage_offset: TracedSize | None = None,
    *,
    layout: tuple[Sequence[TracedSize], TracedSize] | None = None,
    default_offset: TracedSize = 0,
) -> Any:
    """View the storage of `x`, which has this `layout`: strides and storage offset."""
    addresses, elements, _ = _stored_elements(x, layout)
    viewed = _addresses(size, stride, default_offset if storage_offset is None else storage_offset)
    if not np.isin(viewed, addresses).all():
        refuse(UnsupportedError("as_strided reads storage that its input has no element at; expected elements of the input"))
    return dnp.take(dnp.ravel(x), elements[np.searchsorted(addresses, viewed)], axis=0)


def _scatter_slice(x: Any, axis: int, low: TracedSize, source: Any, step: int) -> Any:
    if step != 1:
        indices = np.arange(int(low), int(low) + int(source.shape[axis]) * step, step)
        key = (*[np.s_[:]] * axis, indices)
        return dnp.at(x)[key].set(source)
    high = low + source.shape[axis]
    sections = [slice_axis(x, axis, 0, low), source, slice_axis(x, axis, high, x.shape[axis])]
    return dnp.concat([section for section in sections if untraced(section.shape[axis]) != 0], axis=axis)


@table("slice_scatter")
def slice_scatter(
    x: Any, source: Any, dim: int = 0, start: TracedSize | None = None, end: TracedSize | None = None, step: int = 1
) -> Any:
    axis = dim % x.ndim
    low, _ = slice_bounds(x.shape[axis], start, end)
    return _scatter_slice(x, axis, low, convert(source, x.dtype), step) if 0 not in untraced(source.shape) else x


@table("select_scatter")
def select_scatter(x: Any, source: Any, dim: int, index: int) -> Any:
    axis = dim % x.ndim
    position = x.shape[axis] + index if index < 0 else index
    return _scatter_slice(x, axis, position, convert(dnp.expand_dims(source, axis), x.dtype), 1)


@table("diagonal_scatter")
def diagonal_scatter(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    matrices = dnp.moveaxis(x, (dim1, dim2), (-2, -1))
    rows = np.arange(int(source.shape[-1]))
    updated = dnp.at(matrices)[..., rows + max(-offset, 0), rows + max(offset, 0)].set(convert(source, x.dtype))
    return dnp.moveaxis(updated, (-2, -1), (dim1, dim2))


@table(" ".join(STRIDED_UPDATES))
def as_strided_scatter(
    x: Any,
    source: Any,
    size: Sequence[TracedSize],
    stride: Sequence[TracedSize],
    storage_offset: TracedSize | None = None,
    *,
    layout: tuple[Sequence[TracedSize], TracedSize] | None = None,
    default_offset: TracedSize = 0,
) -> Any:
    """Update elements of the storage of `x`, which has this `layout`: strides and storage offset."""
    addresses, elements, positions = _stored_elements(x, layout)
    updated = _addresses(size, stride, default_offset if storage_offset is None else storage_offset).reshape(-1)
    # No element of the result is at the other storage offsets.
    (visible,) = np.nonzero(np.isin(updated, addresses))
    values = dnp.take(dnp.ravel(convert(source, x.dtype)), visible, axis=0)
    stored = dnp.at(dnp.take(dnp.ravel(x), elements, axis=0))[np.searchsorted(addresses, updated[visible])].set(values)
    return dnp.take(stored, positions.reshape(x.shape), axis=0)


@table("view.dtype view_copy.dtype")
def view_as(x: Any, dtype: Any) -> Any:
    """Reinterpret the bytes; between widths, one element of the last axis is several ones, the lowest bytes first."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return convert(view_as(x, np.uint8), np.bool_)
    x = convert(x, np.uint8) if x.dtype == np.bool_ else x
    wide, narrow = (np.dtype(f"uint{8 * size(x.dtype.itemsize, dtype.itemsize)}") for size in (max, min))
    shifts = np.arange(wide.itemsize // narrow.itemsize) * 8 * narrow.itemsize
    bits = _bitcast(x, np.dtype(f"uint{8 * x.dtype.itemsize}"))
    if x.dtype.itemsize > dtype.itemsize:
        segments = dnp.bitwise_right_shift(dnp.expand_dims(bits, -1), shifts.astype(wide))
        bits = dnp.reshape(convert(segments, narrow), (*x.shape[:-1], x.shape[-1] * len(shifts)))
    elif x.dtype.itemsize < dtype.itemsize:
        segments = convert(dnp.reshape(bits, (*x.shape[:-1], x.shape[-1] // len(shifts), len(shifts))), wide)
        bits = dnp.sum(dnp.bitwise_left_shift(segments, shifts.astype(wide)), -1, dtype=wide)
    return _bitcast(bits, dtype)


def _bitcast(x: Any, dtype: Dtype) -> Any:
    return x if x.dtype == dtype else apply(dl.BitcastOp, x, to=element_type(dtype))


@table("pixel_shuffle")
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    *batch, channels, height, width = x.shape
    r, n = upscale_factor, len(batch)
    blocks = dnp.reshape(x, (*batch, channels // (r * r), r, r, height, width))
    interleaved = dnp.permute_dims(blocks, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return dnp.reshape(interleaved, (*batch, channels // (r * r), height * r, width * r))

"""Operators that concatenate, split, slice and pad."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import trunc

from dlc.dialects import dl
from dlc.dialects.dl.base import normalized_axes
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.shape_tensors import ComputedElement
from dlc.shapes.dims import Size, UndecidableError, decided_negative, is_nonnegative, is_static
from dlc.shapes.slices import (
    ONNX_MIN_START_INDEX,
    clamp_where_decidable,
    forward_slice,
    max_count,
    slice_range,
    unclamped_span,
)

table = ConverterTable()

# Exporters write "to the end" as a value beyond any size: the maximum of an integer type, or 10^9.
_UNBOUNDED_END = 10**9
_MAX_STEP = 2**63 - 1
PAD_MODES = ("constant", "reflect", "edge", "wrap")


@table("Concat")
def concat(node: OnnxNode) -> ImportedValue:
    values = [node[k] for k in range(len(node.inputs))]
    axis = node.axis(node.integer("axis"), node[0].rank)
    return node[0] if len(values) == 1 else node.emit(dl.ConcatOp, *values, axis=axis)


def _split(node: OnnxNode, sizes: tuple[Size, ...], axis: int) -> list[ImportedValue]:
    x, start, chunks = node[0], 0, list[ImportedValue]()
    for size in sizes:
        chunks.append(node.emit.slice(x, axis, start, start + size))
        start = start + size
    if node.emit.are_different(start, x.shape[axis], node.description):
        raise ModelError(f"{node.description}: the sizes {list(sizes)} do not sum to the size {x.shape[axis]} of axis {axis}")
    return chunks


def _equal_sizes(node: OnnxNode, count: int, axis: int) -> tuple[Size, ...]:
    # Outputs of equal size; the last one is smaller if they do not divide the axis.
    size = node[0].shape[axis]
    chunk_size = -(-size // count)
    return (*(chunk_size for _ in range(count - 1)), size - chunk_size * (count - 1))


@table("Split", until=12)
def split_11(node: OnnxNode) -> list[ImportedValue]:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    sizes = node.integers("split", ()) or _equal_sizes(node, len(node.proto.output), axis)
    return _split(node, sizes, axis)


@table("Split", since=13)
def split(node: OnnxNode) -> list[ImportedValue]:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    if node.get(1) is not None:
        return _split(node, node.sizes(1, "split"), axis)
    return _split(node, _equal_sizes(node, node.integer("num_outputs", len(node.proto.output)), axis), axis)


@table("Slice", until=9)
def slice_9(node: OnnxNode) -> ImportedValue:
    starts = node.integers("starts")
    axes = node.integers("axes", tuple(range(len(starts))))
    return _slice(node, starts, node.integers("ends"), axes, (1,) * len(starts))


@table("Slice", since=10)
def slice_(node: OnnxNode) -> ImportedValue:
    begins, ends = node.elements(1, "starts"), node.elements(2, "ends")
    axes = node.constant_integers(3, "axes") if node.get(3) is not None else tuple(range(len(begins)))
    steps = node.constant_integers(4, "steps") if node.get(4) is not None else (1,) * len(begins)
    return _slice(node, begins, ends, axes, steps)


def _slice(
    node: OnnxNode,
    begins: Sequence[Size | ComputedElement],
    ends: Sequence[Size | ComputedElement],
    axes: Sequence[int],
    steps: Sequence[int],
) -> ImportedValue:
    emit, x = node.emit, node[0]
    if not len(begins) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError(f"{node.description}: starts, ends, axes and steps must have equal lengths and steps must not be 0")
    axes = normalized_axes(None, axes, x.rank)
    # The minimum int64 has no absolute value; any step of this magnitude selects one element.
    steps = [max(step, -_MAX_STEP) for step in steps]
    reversed_axes: list[int] = []
    starts: list[Size] = [0] * x.rank
    limits, strides = list(x.shape), [1] * x.rank
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        size = x.shape[axis]
        if any(isinstance(bound, ComputedElement) or _has_computed_sign(node, bound) for bound in (begin, end)):
            x = _runtime_slice(node, x, axis, begin, end, step)
            limits[axis] = x.shape[axis]
            continue
        first, last = forward_slice(size, begin, end, step, partial(_clamp, node), min_backward_start=ONNX_MIN_START_INDEX)
        # A backward slice starts at an element, even if its start is before the axis.
        max_first = size - 1 if step < 0 and first != 0 else size
        if not is_static((first, last, size)) and not _is_always_in_bounds(first, max_first, last, size):
            if any(map(emit.is_data_dependent, (first, last, size))):
                x = _runtime_slice(node, x, axis, begin, end, step)
                limits[axis] = x.shape[axis]
                continue
            for smaller, larger in ((0, first), (first, max_first), (last, size)):
                emit.is_less(larger, smaller, node.description)
        if step < 0:
            reversed_axes.append(axis)
        is_empty = emit.is_less(last, first, node.description)
        starts[axis], limits[axis], strides[axis] = first, first if is_empty else last, abs(step)
    if reversed_axes:
        x = emit(dl.ReverseOp, x, axes=tuple(sorted(reversed_axes)))
    if starts == [0] * x.rank and limits == list(x.shape) and strides == [1] * x.rank:
        return x
    return emit(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def _is_always_in_bounds(first: Size, max_first: Size, last: Size, size: Size) -> bool:
    """Return whether a slice is inside an axis for every value of the symbols."""
    try:
        return 0 <= first <= max_first and first <= last <= size
    except UndecidableError:
        return False


def _runtime_slice(
    node: OnnxNode, x: ImportedValue, axis: int, begin: Size | ComputedElement, end: Size | ComputedElement, step: int
) -> ImportedValue:
    """Slice from `begin` to `end`, one of which is computed at run time: clamp both to the axis, then count the elements."""
    emit, size = node.emit, x.shape[axis]

    def clamp(bound: Size | ComputedElement, size: Size, low: Size, high: Size) -> ImportedValue:
        position = emit.size_scalar(bound)
        negative = emit(dl.LessOp, position, emit.scalar(0, position))
        position = emit(dl.SelectOp, negative, emit(dl.AddOp, position, emit.sizes(size)), position)
        return emit(dl.MinimumOp, emit(dl.MaximumOp, position, emit.sizes(low)), emit.sizes(high))

    first, last = slice_range(size, begin, end, step, clamp, min_backward_start=ONNX_MIN_START_INDEX)
    is_unbounded = isinstance(end, int) and end >= _UNBOUNDED_END
    constant_span = unclamped_span(size, begin, None if is_unbounded else end, step)
    if constant_span is not None:
        span = emit.sizes(constant_span)
    else:
        span = emit(dl.SubOp, last, first) if step > 0 else emit(dl.SubOp, first, last)
    if step == 1:
        start = emit.scalar_as_size(first, size)
        return emit.slice(x, axis, start, start + emit.scalar_as_size(span, size - start))
    # ⌈span / step⌉ = ⌊(span - 1) / step⌋ + 1, which cannot overflow.
    one = emit.scalar(1, span)
    steps = emit(dl.FloordivOp, emit(dl.SubOp, span, one), emit.scalar(abs(step), span))
    count = emit.scalar_as_size(emit(dl.AddOp, steps, one), max_count(size, step))
    indices = emit(dl.AddOp, first, emit.iota(count, step=step))
    return emit(dl.GatherOp, x, indices, axis=axis)


def _clamp(node: OnnxNode, bound: Size, size: Size, low: Size, high: Size) -> Size:
    """Return a slice bound counted from the front and clamped to [low, high], if symbolic sizes decide that."""
    if not is_static((bound, size)) and isinstance(bound, int) and abs(bound) >= _UNBOUNDED_END:
        return high if bound > 0 else low
    # Minus a symbolic size counts from the end, but minus 0 from the front.
    is_negative = decided_negative(bound)
    if is_negative is None:
        is_negative = is_nonnegative(-bound) and not node.emit.is_less(-bound, 1, node.description)
    return clamp_where_decidable(bound, size, low, high, is_negative=is_negative)


def _has_computed_sign(node: OnnxNode, bound: Size) -> bool:
    """Return whether it is known at run time only if a bound counts from the front or from the end."""
    return node.emit.is_data_dependent(bound) and decided_negative(bound) is None


@table("Pad", until=10)
def pad_10(node: OnnxNode) -> ImportedValue:
    x, amounts = node[0], node.integers("pads")
    mode, fill = node.choice("mode", "constant", PAD_MODES[:3]), node.emit.scalar(node.real("value", 0.0), x)
    if len(amounts) != 2 * x.rank:
        raise ModelError(f"{node.description}: {len(amounts)} pads for {x.rank} axes; expected two each")
    return node.emit.pad(x, amounts[: x.rank], amounts[x.rank :], fill, mode)


@table("Pad", since=11)
def pad(node: OnnxNode) -> ImportedValue:
    x, amounts = node[0], node.runtime_sizes(1, "pads")
    mode = node.choice("mode", "constant", PAD_MODES)
    fill = node.get(2)
    axes = normalized_axes(None, node.constant_integers(3, "axes"), x.rank) if node.get(3) is not None else range(x.rank)
    if len(amounts) != 2 * len(axes):
        raise ModelError(f"{node.description}: {len(amounts)} pads for {len(axes)} axes; expected two each")
    low, high = [0] * x.rank, [0] * x.rank
    value = node.emit.reshape(fill, ()) if fill is not None else None
    for k, axis in enumerate(axes):
        low_amount, high_amount = amounts[k], amounts[k + len(axes)]
        if isinstance(low_amount, int) and isinstance(high_amount, int):
            low[axis], high[axis] = low_amount, high_amount
        else:
            x = _pad_axis(node, x, axis, low_amount, high_amount, value, mode)
    return node.emit.pad(x, low, high, value, mode)


def _pad_axis(
    node: OnnxNode, x: ImportedValue, axis: int, low: Size, high: Size, fill: ImportedValue | None, mode: str
) -> ImportedValue:
    """Pad one axis of `x` by symbolic amounts."""
    emit, size = node.emit, x.shape[axis]
    if mode == "constant":
        padding_value = fill if fill is not None else emit.scalar(0, x)
        padding = [emit.broadcast(padding_value, [n if a == axis else s for a, s in enumerate(x.shape)]) for n in (low, high)]
        return emit(dl.ConcatOp, padding[0], x, padding[1], axis=axis)
    indices, last = emit(dl.SubOp, emit.iota(low + size + high), emit.sizes(low)), emit.sizes(size - 1)

    def modulo(period: ImportedValue) -> ImportedValue:
        return emit(dl.SubOp, indices, emit(dl.MulOp, emit(dl.FloordivOp, indices, period), period))

    if mode == "edge":
        indices = emit(dl.MinimumOp, emit(dl.MaximumOp, indices, emit.scalar(0, indices)), last)
    elif mode == "wrap":
        indices = modulo(emit.sizes(size))
    else:
        period = emit(dl.MaximumOp, emit.sizes(2 * size - 2), emit.scalar(1, indices))
        mirrored = modulo(period)
        indices = emit(dl.MinimumOp, mirrored, emit(dl.SubOp, period, mirrored))
    return emit(dl.GatherOp, x, indices, axis=axis)


@table("CenterCropPad", since=18)
def center_crop_pad(node: OnnxNode) -> ImportedValue:
    x, target_sizes = node[0], node.constant_integers(1, "shape")
    axes = normalized_axes(None, node.integers("axes", range(x.rank)), x.rank)
    if len(target_sizes) != len(axes):
        raise ModelError(f"{node.description}: {len(target_sizes)} sizes for {len(axes)} axes")
    low, high = [0] * x.rank, [0] * x.rank
    for axis, size in zip(axes, target_sizes, strict=True):
        extra = size - int(x.shape[axis])  # a symbolic size raises UndecidableError, which names it
        low[axis] = trunc(extra / 2)
        high[axis] = extra - low[axis]
    return node.emit.pad(x, low, high)


@table("Trilu")
def trilu(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    if x.rank < 2:
        raise ModelError(f"{node.description}: expected a matrix or a stack of them, got rank {x.rank}")
    offset = node.get(1)
    diagonal = emit.reshape(offset, ()) if offset is not None else emit.constant(0, "int64")
    comparison = dl.GreaterEqualOp if node.flag("upper", True) else dl.LessEqualOp
    # The upper triangle: column - row >= k.
    rows, columns = x.shape[-2:]
    from_diagonal = emit(dl.SubOp, emit.iota(columns), emit.reshape(emit.iota(rows), (rows, 1)))
    mask = emit(comparison, from_diagonal, diagonal)
    return emit(dl.SelectOp, mask, x, emit.scalar(0, x))

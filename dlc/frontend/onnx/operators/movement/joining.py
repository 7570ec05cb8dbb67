"""Operators that cut, join and pad."""

from __future__ import annotations

from collections.abc import Sequence
from math import trunc

from dlc.dialects import dl
from dlc.dialects.dl.base import normalized_axes
from dlc.dialects.dl.dtypes import is_bool
from dlc.dims import Size, UndecidableError, is_static
from dlc.errors import ModelError
from dlc.frontend.decided import Element
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table

table = Table()

# Exporters write "to the end" as a number beyond any size: the largest of some width, or a billion.
_FAR = 10**9
_MOST_STEPS = 2**63 - 1
PAD_MODES = ("constant", "reflect", "edge", "wrap")


@table("Concat")
def concat(node: Node) -> Value:
    values = [node[k] for k in range(len(node.inputs))]
    axis = node.axis(node.integer("axis"), node[0].rank)
    return node[0] if len(values) == 1 else node.emit(dl.ConcatOp, *values, axis=axis)


def _pieces(node: Node, sizes: tuple[Size, ...], axis: int) -> list[Value]:
    x, start, pieces = node[0], 0, list[Value]()
    for size in sizes:
        pieces.append(node.emit.slice(x, axis, start, start + size))
        start = start + size
    if start != x.shape[axis] and isinstance(start - x.shape[axis], int):
        raise ModelError(f"{node.place}: the parts {list(sizes)} do not add up to the size {x.shape[axis]} of axis {axis}")
    return pieces


def _equal_parts(node: Node, count: int, axis: int) -> tuple[Size, ...]:
    # All parts alike; the last is smaller where the size is no multiple.
    size = node[0].shape[axis]
    part = -(-size // count)
    return (*(part for _ in range(count - 1)), size - part * (count - 1))


@table("Split", until=12)
def split_11(node: Node) -> list[Value]:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    sizes = node.integers("split", ()) or _equal_parts(node, len(node.proto.output), axis)
    return _pieces(node, sizes, axis)


@table("Split", since=13)
def split(node: Node) -> list[Value]:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    if node.get(1) is not None:
        return _pieces(node, node.sizes(1, "split"), axis)
    return _pieces(node, _equal_parts(node, node.integer("num_outputs", len(node.proto.output)), axis), axis)


@table("Slice", until=9)
def slice_9(node: Node) -> Value:
    starts = node.integers("starts")
    axes = node.integers("axes", tuple(range(len(starts))))
    return _sliced(node, starts, node.integers("ends"), axes, (1,) * len(starts))


@table("Slice", since=10)
def slice_(node: Node) -> Value:
    begins, ends = node.elements(1, "starts"), node.elements(2, "ends")
    axes = node.integers_of(3, "axes") if node.get(3) is not None else tuple(range(len(begins)))
    steps = node.integers_of(4, "steps") if node.get(4) is not None else (1,) * len(begins)
    return _sliced(node, begins, ends, axes, steps)


def _sliced(
    node: Node,
    begins: Sequence[Size | Element],
    ends: Sequence[Size | Element],
    axes: Sequence[int],
    steps: Sequence[int],
) -> Value:
    emit, x = node.emit, node[0]
    if not len(begins) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError(f"{node.place}: starts, ends, axes and steps must have equal lengths and steps must not be 0")
    axes = normalized_axes(None, axes, x.rank)
    # The least of them has no magnitude; any so large goes to one element.
    steps = [max(step, -_MOST_STEPS) for step in steps]
    backward: list[int] = []
    starts: list[Size] = [0] * x.rank
    limits, strides = list(x.shape), [1] * x.rank
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        size = x.shape[axis]
        if isinstance(begin, Element) or isinstance(end, Element):
            x = _cut(node, x, axis, begin, end, step)
            limits[axis] = x.shape[axis]
            continue
        first, last = _inside(begin, end, step, size)
        if not is_static((first, last, size)) and not _holds(first, last, size):
            if any(map(emit.is_by_data, (first, last, size))):
                x = _cut(node, x, axis, begin, end, step)
                limits[axis] = x.shape[axis]
                continue
            emit.taken.append(f"0 <= {first} <= {last} <= {size}")
        if step < 0:
            backward.append(axis)
        count = last - first
        starts[axis], limits[axis], strides[axis] = first, first if isinstance(count, int) and count < 0 else last, abs(step)
    if backward:
        x = emit(dl.ReverseOp, x, axes=tuple(sorted(backward)))
    if starts == [0] * x.rank and limits == list(x.shape) and strides == [1] * x.rank:
        return x
    return emit(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def _inside(begin: Size, end: Size, step: int, size: Size) -> tuple[Size, Size]:
    """Where a slice begins and ends, counted from the end that it comes from."""
    if step > 0:
        return _from_front(begin, size, 0, size), _from_front(end, size, 0, size)
    # Counted from the back, a backward slice is a forward one; an end below the front counts as the front.
    return size - 1 - _from_front(begin, size, 0, size - 1), size - 1 - _from_front(end, size, -1, size - 1)


def _holds(first: Size, last: Size, size: Size) -> bool:
    """Whether a slice is inside an axis whatever its size."""
    try:
        return 0 <= first <= last <= size
    except UndecidableError:
        return False


def _cut(node: Node, x: Value, axis: int, begin: Size | Element, end: Size | Element, step: int) -> Value:
    """The elements from `begin` to `end` of an axis, of which data says one: each clamped to the axis, then counted."""
    emit, size = node.emit, x.shape[axis]

    def clamped(bound: Size | Element, low: Size, high: Size) -> Value:
        number = emit.number(bound)
        negative = emit(dl.LessOp, number, emit.scalar(0, number))
        number = emit(dl.SelectOp, negative, emit(dl.AddOp, number, emit.sizes(size)), number)
        return emit(dl.MinimumOp, emit(dl.MaximumOp, number, emit.sizes(low)), emit.sizes(high))

    if step > 0:
        first, last = clamped(begin, 0, size), clamped(end, 0, size)
        span = emit(dl.SubOp, last, first)
        if isinstance(begin, int) and begin >= 0 and isinstance(end, int) and (end < 0 or end >= _FAR):
            # As many for each way of saying it: x[1:] and x[:-1].
            span = emit.sizes(_inside(begin, end, step, size)[1] - begin)
    else:
        first, last = clamped(begin, 0, size - 1), clamped(end, -1, size - 1)
        span = emit(dl.SubOp, first, last)
    if step == 1:
        start = emit.counted(first, size)
        return emit.slice(x, axis, start, start + emit.counted(span, size - start))
    # ⌈span / step⌉ = ⌊(span - 1) / step⌋ + 1, where nothing goes beyond the largest number.
    one = emit.scalar(1, span)
    steps = emit(dl.FloordivOp, emit(dl.SubOp, span, one), emit.scalar(abs(step), span))
    count = emit.counted(emit(dl.AddOp, steps, one), -(-size // abs(step)))
    places = emit(dl.AddOp, first, emit.iota(count, step=step))
    return emit(dl.GatherOp, x, places, axis=axis)


def _from_front(bound: Size, size: Size, low: Size, high: Size) -> Size:
    """A slice bound counted from the front and clamped to [low, high].

    A bound is taken to lie inside where one of the two is symbolic: binding the sizes checks it.
    """
    if isinstance(bound, int):
        if bound >= _FAR:
            return high
        if bound <= -_FAR:
            return low
        if bound < 0:
            bound = bound + size
    if all(isinstance(s, int) for s in (bound, low, high)):
        return min(max(bound, low), high)
    return bound


@table("Pad", until=10)
def pad_10(node: Node) -> Value:
    x, amounts = node[0], node.integers("pads")
    mode, fill = node.choice("mode", "constant", PAD_MODES[:3]), node.emit.scalar(node.real("value", 0.0), x)
    if len(amounts) != 2 * x.rank:
        raise ModelError(f"{node.place}: {len(amounts)} pads for {x.rank} axes; expected two each")
    return padded(node, x, list(amounts[: x.rank]), list(amounts[x.rank :]), fill, mode)


@table("Pad", since=11)
def pad(node: Node) -> Value:
    x, amounts = node[0], node.decided(1, "pads")
    mode = node.choice("mode", "constant", PAD_MODES)
    fill = node.get(2)
    axes = normalized_axes(None, node.integers_of(3, "axes"), x.rank) if node.get(3) is not None else range(x.rank)
    if len(amounts) != 2 * len(axes):
        raise ModelError(f"{node.place}: {len(amounts)} pads for {len(axes)} axes; expected two each")
    low, high = [0] * x.rank, [0] * x.rank
    value = node.emit.reshape(fill, ()) if fill is not None else None
    for k, axis in enumerate(axes):
        before, behind = amounts[k], amounts[k + len(axes)]
        if isinstance(before, int) and isinstance(behind, int):
            low[axis], high[axis] = before, behind
        else:
            x = _padded_axis(node, x, axis, before, behind, value, mode)
    return padded(node, x, low, high, value, mode)


def _padded_axis(node: Node, x: Value, axis: int, low: Size, high: Size, fill: Value | None, mode: str) -> Value:
    """`x` with as much around it along one axis as open sizes say."""
    emit, size = node.emit, x.shape[axis]
    if mode == "constant":
        outside = fill if fill is not None else emit.scalar(False if is_bool(x.element_type) else 0, x)
        around = [emit.broadcast(outside, [n if a == axis else s for a, s in enumerate(x.shape)]) for n in (low, high)]
        return emit(dl.ConcatOp, around[0], x, around[1], axis=axis)
    places, last = emit(dl.SubOp, emit.iota(low + size + high), emit.sizes(low)), emit.sizes(size - 1)

    def repeated(period: Value) -> Value:
        return emit(dl.SubOp, places, emit(dl.MulOp, emit(dl.FloordivOp, places, period), period))

    if mode == "edge":
        places = emit(dl.MinimumOp, emit(dl.MaximumOp, places, emit.scalar(0, places)), last)
    elif mode == "wrap":
        places = repeated(emit.sizes(size))
    else:
        period = emit(dl.MaximumOp, emit.sizes(2 * size - 2), emit.scalar(1, places))
        mirrored = repeated(period)
        places = emit(dl.MinimumOp, mirrored, emit(dl.SubOp, period, mirrored))
    return emit(dl.GatherOp, x, places, axis=axis)


@table("CenterCropPad", since=18)
def center_crop_pad(node: Node) -> Value:
    x, wanted = node[0], node.integers_of(1, "shape")
    axes = normalized_axes(None, node.integers("axes", range(x.rank)), x.rank)
    if len(wanted) != len(axes):
        raise ModelError(f"{node.place}: {len(wanted)} sizes for {len(axes)} axes")
    low, high = [0] * x.rank, [0] * x.rank
    for axis, size in zip(axes, wanted, strict=True):
        more = size - int(x.shape[axis])  # a symbolic size raises UndecidableError, which names it
        low[axis] = trunc(more / 2)
        high[axis] = more - low[axis]
    return padded(node, x, low, high)


def padded(node: Node, x: Value, low: list[int], high: list[int], fill: Value | None = None, mode: str = "constant") -> Value:
    """`x` with `fill` (zero) around it; a negative amount cuts instead."""
    emit = node.emit
    if min(*low, *high, 0) < 0:
        starts = [max(-p, 0) for p in low]
        limits: list[Size] = [s - max(-p, 0) for s, p in zip(x.shape, high, strict=True)]
        x = emit(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=(1,) * x.rank)
        low, high = [max(p, 0) for p in low], [max(p, 0) for p in high]
    if not any(low) and not any(high):
        return x
    if fill is None:
        fill = emit.scalar(False if is_bool(x.element_type) else 0, x)
    return emit(dl.PadOp, x, fill, low=tuple(low), high=tuple(high), pad_mode=mode)


@table("Trilu")
def trilu(node: Node) -> Value:
    emit, x = node.emit, node[0]
    if x.rank < 2:
        raise ModelError(f"{node.place}: expected a matrix or a stack of them, got rank {x.rank}")
    offset = node.get(1)
    diagonal = emit.reshape(offset, ()) if offset is not None else emit.constant(0, "int64")
    kept = dl.GreaterEqualOp if node.flag("upper", True) else dl.LessEqualOp
    # The upper part: column - row >= k.
    rows, columns = x.shape[-2:]
    from_diagonal = emit(dl.SubOp, emit.iota(columns), emit.reshape(emit.iota(rows), (rows, 1)))
    mask = emit(kept, from_diagonal, diagonal)
    return emit(dl.SelectOp, mask, x, emit.scalar(False if is_bool(x.element_type) else 0, x))

"""Movement rules of `simplify`: its equation above each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from dlc.dialects.dl.base import DlOp, broadcast_shapes, element_type_of, ints, rank_of, shape_of, sizes
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.creation import ConstantOp, IotaOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.indexing import GatherOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
from dlc.dialects.dl.reductions.reduction import (
    AxisReduction,
    ReduceAllOp,
    ReduceAnyOp,
    ReduceMaxOp,
    ReduceMinOp,
    ReduceNanmaxOp,
    ReduceNanminOp,
    ReduceProdOp,
    ReduceSumOp,
)
from dlc.dims import is_static, product
from dlc.ir import SSAValue, i64
from dlc.passes.dl.rewriting import defining, is_identity, splat

Values: TypeAlias = "Sequence[SSAValue] | None"
# A kernel with more loops takes long to compile.
_MOST_PARTS = 64
# What may make a tensor that repeats less.
_REPEATED = {BroadcastToOp, ConstantOp}


# f(broadcast(x), y) = f(x, y), and f(constant tensor, y) = f(scalar, y), where y alone gives the result its shape
def without_broadcast(op: Elementwise) -> Values:
    """The elementwise op on operands that are not repeated beforehand, or None if all are needed as they are."""
    if _REPEATED.isdisjoint([v.owner.__class__ for v in op.operands]):
        return None
    operands = list(op.operands)
    shape = shape_of(op.results[0])
    for k, value in enumerate(operands):
        narrow = _unrepeated(op, value)
        if narrow is None:
            continue
        others = [shape_of(v) for i, v in enumerate(operands) if i != k]
        if broadcast_shapes(op.name, *others, shape_of(narrow)) == shape:
            operands[k] = narrow
    if all(new is old for new, old in zip(operands, op.operands, strict=True)):
        return None
    return [Build(op)(type(op), *operands, **op.properties)]


def _unrepeated(op: Elementwise, value: SSAValue) -> SSAValue | None:
    broadcast = defining(value, BroadcastToOp)
    if broadcast is not None:
        return broadcast.x
    number = splat(value) if rank_of(value) else None
    return Build(op).scalar(number, like=value) if number is not None else None


# transpose(x, identity) = x;  transpose(transpose(x, p), q) = transpose(x, p∘q)
def _transpose(op: TransposeOp) -> Values:
    if is_identity(op.axes):
        return [op.x]
    inner = defining(op.x, TransposeOp)
    if inner is None:
        return None
    return [Build(op)(TransposeOp, inner.x, permutation=tuple(inner.axes[a] for a in op.axes))]


# reshape(x, its own shape) = x;  reshape(reshape(x)) = reshape(x)
def _reshape(op: ReshapeOp) -> Values:
    if op.x.type == op.result.type:
        return [op.x]
    inner = defining(op.x, ReshapeOp)
    return [Build(op)(ReshapeOp, inner.x, shape=sizes(op.shape))] if inner is not None else None


# broadcast(x, its own shape) = x;  broadcast(broadcast(x)) = broadcast(x)
def _broadcast(op: BroadcastToOp) -> Values:
    if op.x.type == op.result.type:
        return [op.x]
    inner = defining(op.x, BroadcastToOp)
    return [Build(op)(BroadcastToOp, inner.x, shape=sizes(op.shape))] if inner is not None else None


# x[:] = x;  x[a:b:s][c:d:t] = x[a + c·s : a + (d-1)·s + 1 : s·t]
def _slice(op: SliceOp) -> Values:
    starts, limits, strides = sizes(op.starts), sizes(op.limits), ints(op.strides)
    if op.x.type == op.result.type and all(s == 0 for s in starts) and all(s == 1 for s in strides):
        return [op.x]
    inner = defining(op.x, SliceOp)
    if inner is None or not is_static((*shape_of(inner.x), *shape_of(op.result))) or 0 in shape_of(op.result):
        return None
    first, step = sizes(inner.starts), ints(inner.strides)
    return [
        Build(op)(
            SliceOp,
            inner.x,
            starts=tuple(a + c * s for a, c, s in zip(first, starts, step, strict=True)),
            limits=tuple(a + (d - 1) * s + 1 for a, d, s in zip(first, limits, step, strict=True)),
            strides=tuple(s * t for s, t in zip(step, strides, strict=True)),
        )
    ]


# concat(x, y)[the part of y] = y[…]
def _slice_of_concat(op: SliceOp) -> Values:
    concat = defining(op.x, ConcatOp)
    if concat is None or not is_static((*shape_of(op.x), *shape_of(op.result))):
        return None
    axis, begin = concat.joined_axis, 0
    starts, limits = (cast("tuple[int, ...]", sizes(p)) for p in (op.starts, op.limits))
    for part in concat.values:
        end = begin + cast(int, shape_of(part)[axis])
        if begin <= starts[axis] and limits[axis] <= end:
            return [
                Build(op)(
                    SliceOp,
                    part,
                    starts=tuple(s - begin * (a == axis) for a, s in enumerate(starts)),
                    limits=tuple(s - begin * (a == axis) for a, s in enumerate(limits)),
                    strides=ints(op.strides),
                )
            ]
        begin = end
    return None


# reverse(x)[one element] = x[the element that it is]
def _slice_of_reverse(op: SliceOp) -> Values:
    reverse = defining(op.x, ReverseOp)
    if reverse is None or not is_static(shape_of(op.x)) or any(shape_of(op.result)[a] != 1 for a in reverse.reversed_axes):
        return None
    starts, limits = list(sizes(op.starts)), list(sizes(op.limits))
    for axis in reverse.reversed_axes:
        starts[axis] = shape_of(op.x)[axis] - 1 - starts[axis]
        limits[axis] = starts[axis] + 1
    return [Build(op)(SliceOp, reverse.x, starts=starts, limits=limits, strides=ints(op.strides))]


# pad(x, l, h)[a:b] = pad(x[a - l : b - l], what is left of both), so that nothing is padded that is cut off again
def _slice_of_pad(op: SliceOp) -> Values:
    pad = defining(op.x, PadOp)
    if pad is None or not op.x.has_one_use() or pad.mode != "constant" or min(*ints(pad.low), *ints(pad.high), 0) < 0:
        return None
    if any(s != 1 for s in ints(op.strides)) or not is_static((*shape_of(op.x), *shape_of(op.result))):
        return None
    shape = cast("tuple[int, ...]", shape_of(pad.x))
    places = list(zip(ints(pad.low), shape, sizes(op.starts), sizes(op.limits), strict=True))
    starts, limits = [max(a - low, 0) for low, _, a, _ in places], [min(b - low, n) for low, n, _, b in places]
    if any(a >= b for a, b in zip(starts, limits, strict=True)):
        return None
    b = Build(op)
    kept = b(SliceOp, pad.x, starts=starts, limits=limits, strides=ints(op.strides))
    low = [max(low - a, 0) for low, _, a, _ in places]
    return [b(PadOp, kept, pad.value, low=low, high=[max(b - low - n, 0) for low, n, _, b in places])]


# conv(x, w)[images, places] = conv(x[images, what these places see], w)
def _slice_of_conv(op: SliceOp) -> Values:
    conv = defining(op.x, ConvOp)
    if conv is None or not op.x.has_one_use() or not is_static((*shape_of(conv.x), *shape_of(conv.w))):
        return None
    if shape_of(op.result)[-1] != shape_of(op.x)[-1] or 0 in shape_of(op.result) or any(s != 1 for s in ints(op.strides)):
        return None
    kernel, dilations = shape_of(conv.w)[:-2], ints(conv.dilations)
    reach = [1, *((int(k) - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))]
    places = list(zip(sizes(op.starts)[:-1], sizes(op.limits)[:-1], (1, *ints(conv.strides)), reach, strict=True))
    starts, limits = [a * s for a, _, s, _ in places], [(b - 1) * s + r for _, b, s, r in places]
    b = Build(op)
    seen = b(SliceOp, conv.x, starts=(*starts, 0), limits=(*limits, shape_of(conv.x)[-1]), strides=ints(op.strides))
    return [b(ConvOp, seen, conv.w, **conv.properties)]


# pad(x, 0, 0) = x;  pad(pad(x, a, b), c, d) = pad(x, a + c, b + d) for one value and nothing taken away
def _pad(op: PadOp) -> Values:
    low, high = ints(op.low), ints(op.high)
    if not any(low) and not any(high):
        return [op.x]
    inner = defining(op.x, PadOp)
    if inner is None or op.mode != "constant" or inner.mode != "constant":
        return None
    if min(*low, *high, *ints(inner.low), *ints(inner.high)) < 0:
        return None
    # Compared by bits: -0.0 pads otherwise than 0.0.
    if inner.value is not op.value and (splat(op.value) is None or str(splat(op.value)) != str(splat(inner.value))):
        return None
    return [
        Build(op)(
            PadOp,
            inner.x,
            op.value,
            low=tuple(a + b for a, b in zip(ints(inner.low), low, strict=True)),
            high=tuple(a + b for a, b in zip(ints(inner.high), high, strict=True)),
        )
    ]


# gather(x, one known place) = x[place]; of an axis of an open size the first, which it has
def _gather_one(op: GatherOp) -> Values:
    place, axis, shape = splat(op.indices), op.indexed_axis, shape_of(op.x)
    size = shape[axis]
    if place is None or product(shape_of(op.indices)) != 1 or not (isinstance(size, int) or place == 0):
        return None
    start = min(max(int(place) + size * (place < 0), 0), size - 1) if isinstance(size, int) else 0
    b = Build(op)
    starts = tuple(start if a == axis else 0 for a in range(len(shape)))
    limits = tuple(start + 1 if a == axis else s for a, s in enumerate(shape))
    one = b(SliceOp, op.x, starts=starts, limits=limits, strides=(1,) * len(shape))
    return [b(ReshapeOp, one, shape=shape_of(op.result))]


# pad with nothing but negative numbers takes a slice
def _crop(op: PadOp) -> Values:
    low, high, shape = ints(op.low), ints(op.high), shape_of(op.x)
    if max(*low, *high, 0) > 0:
        return None
    limits = tuple(s + h for s, h in zip(shape, high, strict=True))
    return [Build(op)(SliceOp, op.x, starts=tuple(-n for n in low), limits=limits, strides=(1,) * len(low))]


# reversing axes of size 1 changes nothing
def _reverse(op: ReverseOp) -> Values:
    return [op.x] if all(shape_of(op.x)[a] == 1 for a in op.reversed_axes) else None


# reverse(x, a) = gather(x, (-1, -2, …), a) where the size of axis a comes with a call: places that are counted from its end
def _open_reverse(op: ReverseOp) -> Values:
    given = {a: size for a in op.reversed_axes if not isinstance(size := shape_of(op.x)[a], int)}
    if not given:
        return None
    b, known = Build(op), [a for a in op.reversed_axes if a not in given]
    x = b(ReverseOp, op.x, axes=known) if known else op.x
    for axis, size in given.items():
        x = b(GatherOp, x, b(IotaOp, size=(size,), to=i64, start=-1, step=-1), axis=axis)
    return [x]


# concat(x) = x;  concat(x, empty) = x;  concat(concat(x, y), z) = concat(x, y, z), which is a kernel with a loop for each of
# them; of very many, concat(concat(x, …), concat(y, …), …), whose kernels are a few, and often equal
def _concat(op: ConcatOp) -> Values:
    axis = op.joined_axis
    parts: list[SSAValue] = []
    for value in op.values:
        inner = defining(value, ConcatOp)
        if inner is not None and inner.joined_axis == axis and value.has_one_use():
            parts += inner.values if len(inner.values) + len(op.values) <= _MOST_PARTS else [value]
        else:
            parts.append(value)
    parts = [v for v in parts if shape_of(v)[axis] != 0] or parts[:1]
    if len(parts) == 1 and parts[0].type == op.result.type:
        return parts
    b = Build(op)
    if len(parts) > _MOST_PARTS:
        parts = [b(ConcatOp, *parts[k : k + _MOST_PARTS], axis=axis) for k in range(0, len(parts), _MOST_PARTS)]
    return [b(ConcatOp, *parts, axis=axis)] if parts != list(op.values) else None


# A reduction keeps its axes; one over no axes, or over axes of size 1, moves nothing:  reduce(x) = reshape(reduce(x, kept))
def _reduce(op: AxisReduction) -> Values:
    b, shape = Build(op), shape_of(op.result)
    if all(shape_of(op.x)[a] == 1 for a in op.reduction_axes) and element_type_of(op.x) == element_type_of(op.result):
        return [b(ReshapeOp, op.x, shape=shape) if shape_of(op.x) != shape else op.x]
    if op.keeps_axes:
        return None
    return [b(ReshapeOp, b(type(op), op.x, axes=op.reduction_axes, keepdims=True), shape=shape)]


_REDUCTIONS = (ReduceSumOp, ReduceProdOp, ReduceMaxOp, ReduceMinOp, ReduceNanmaxOp, ReduceNanminOp, ReduceAnyOp, ReduceAllOp)

MOVEMENT: dict[type[DlOp], Sequence[Callable[..., Values]]] = {
    TransposeOp: (_transpose,),
    ReshapeOp: (_reshape,),
    BroadcastToOp: (_broadcast,),
    SliceOp: (_slice, _slice_of_concat, _slice_of_reverse, _slice_of_pad, _slice_of_conv),
    PadOp: (_pad, _crop),
    ReverseOp: (_reverse, _open_reverse),
    ConcatOp: (_concat,),
    GatherOp: (_gather_one,),
    **{reduction: (_reduce,) for reduction in _REDUCTIONS},
}

"""Simplification rules for data-movement ops; each has its equation above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from dlc.dialects.dl.base import DlOp, broadcast_shapes, element_type_of, ints, rank_of, shape_of, sizes
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.creation import ConstantOp, IotaOp, WeightOp
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
from dlc.ir import Block, SSAValue
from dlc.passes.dl.rewriting import defining_op, is_identity, splat
from dlc.shapes.dims import Size, is_static, product

Values: TypeAlias = "Sequence[SSAValue] | None"
# Maximum operands of one concatenation: its kernel has one loop per operand, and long kernels compile slowly.
_MAX_CONCAT_OPERANDS = 64
# Maximum depth of elementwise ops that a slice is moved through.
_MAX_SLICED_OPS = 8
# Ops whose result may repeat elements of a smaller value.
_BROADCASTING_PRODUCERS = {BroadcastToOp, ConstantOp}


# f(broadcast(x), y) = f(x, y), and f(constant tensor, y) = f(scalar, y), where y alone gives the result its shape
def without_broadcast(op: Elementwise) -> Values:
    """Return the elementwise op without explicit broadcasts of its operands, or None if no operand is broadcast."""
    if _BROADCASTING_PRODUCERS.isdisjoint([v.owner.__class__ for v in op.operands]):
        return None
    operands = list(op.operands)
    shape = shape_of(op.results[0])
    for k, value in enumerate(operands):
        source = _broadcast_source(op, value)
        if source is None:
            continue
        other_shapes = [shape_of(v) for i, v in enumerate(operands) if i != k]
        if broadcast_shapes(op.name, *other_shapes, shape_of(source)) == shape:
            operands[k] = source
    if all(new is old for new, old in zip(operands, op.operands, strict=True)):
        return None
    return [DlBuilder(op)(type(op), *operands, **op.properties)]


def _broadcast_source(op: Elementwise, value: SSAValue) -> SSAValue | None:
    broadcast = defining_op(value, BroadcastToOp)
    if broadcast is not None:
        return broadcast.x
    splat_value = splat(value) if rank_of(value) else None
    return DlBuilder(op).scalar(splat_value, like=value) if splat_value is not None else None


# transpose(x, identity) = x;  transpose(transpose(x, p), q) = transpose(x, p∘q)
def _fold_transpose(op: TransposeOp) -> Values:
    if is_identity(op.axes):
        return [op.x]
    inner = defining_op(op.x, TransposeOp)
    if inner is None:
        return None
    return [DlBuilder(op)(TransposeOp, inner.x, permutation=tuple(inner.axes[a] for a in op.axes))]


# reshape(x, its own shape) = x;  reshape(reshape(x)) = reshape(x)
def _fold_reshape(op: ReshapeOp) -> Values:
    if op.x.type == op.result.type:
        return [op.x]
    inner = defining_op(op.x, ReshapeOp)
    return [DlBuilder(op)(ReshapeOp, inner.x, shape=sizes(op.shape))] if inner is not None else None


# broadcast(x, its own shape) = x;  broadcast(broadcast(x)) = broadcast(x)
def _fold_broadcast(op: BroadcastToOp) -> Values:
    if op.x.type == op.result.type:
        return [op.x]
    inner = defining_op(op.x, BroadcastToOp)
    return [DlBuilder(op)(BroadcastToOp, inner.x, shape=sizes(op.shape))] if inner is not None else None


# x[:] = x;  x[a:b:s][c:d:t] = x[a + c·s : a + (d-1)·s + 1 : s·t]
def _fold_slice(op: SliceOp) -> Values:
    starts, limits, strides = sizes(op.starts), sizes(op.limits), ints(op.strides)
    if op.x.type == op.result.type and all(s == 0 for s in starts) and all(s == 1 for s in strides):
        return [op.x]
    inner = defining_op(op.x, SliceOp)
    if inner is None or not is_static((*shape_of(inner.x), *shape_of(op.result))) or 0 in shape_of(op.result):
        return None
    inner_starts, inner_strides = sizes(inner.starts), ints(inner.strides)
    return [
        DlBuilder(op)(
            SliceOp,
            inner.x,
            starts=tuple(a + c * s for a, c, s in zip(inner_starts, starts, inner_strides, strict=True)),
            limits=tuple(a + (d - 1) * s + 1 for a, d, s in zip(inner_starts, limits, inner_strides, strict=True)),
            strides=tuple(s * t for s, t in zip(inner_strides, strides, strict=True)),
        )
    ]


# concat(x, y)[a slice within y] = y[…]
def _slice_of_concat(op: SliceOp) -> Values:
    concat = defining_op(op.x, ConcatOp)
    if concat is None or not is_static((*shape_of(op.x), *shape_of(op.result))):
        return None
    axis, begin = concat.concat_axis, 0
    starts, limits = (cast("tuple[int, ...]", sizes(p)) for p in (op.starts, op.limits))
    for operand in concat.values:
        end = begin + cast(int, shape_of(operand)[axis])
        if begin <= starts[axis] and limits[axis] <= end:
            return [
                DlBuilder(op)(
                    SliceOp,
                    operand,
                    starts=tuple(s - begin * (a == axis) for a, s in enumerate(starts)),
                    limits=tuple(s - begin * (a == axis) for a, s in enumerate(limits)),
                    strides=ints(op.strides),
                )
            ]
        begin = end
    return None


# reverse(x)[i] = x[n - 1 - i], for one element along the reversed axes
def _slice_of_reverse(op: SliceOp) -> Values:
    reverse = defining_op(op.x, ReverseOp)
    if reverse is None or not is_static(shape_of(op.x)) or any(shape_of(op.result)[a] != 1 for a in reverse.reversed_axes):
        return None
    starts, limits = list(sizes(op.starts)), list(sizes(op.limits))
    for axis in reverse.reversed_axes:
        starts[axis] = shape_of(op.x)[axis] - 1 - starts[axis]
        limits[axis] = starts[axis] + 1
    return [DlBuilder(op)(SliceOp, reverse.x, starts=starts, limits=limits, strides=ints(op.strides))]


# pad(x, l, h)[a:b] = pad(x[a - l : b - l], remaining l, remaining h): padding outside of the slice is not computed
def _slice_of_pad(op: SliceOp) -> Values:
    pad = defining_op(op.x, PadOp)
    if pad is None or not op.x.has_one_use() or pad.mode != "constant" or min(*ints(pad.low), *ints(pad.high), 0) < 0:
        return None
    if any(s != 1 for s in ints(op.strides)) or not is_static((*shape_of(op.x), *shape_of(op.result))):
        return None
    shape = cast("tuple[int, ...]", shape_of(pad.x))
    axis_ranges = list(zip(ints(pad.low), shape, sizes(op.starts), sizes(op.limits), strict=True))
    starts, limits = [max(a - low, 0) for low, _, a, _ in axis_ranges], [min(b - low, n) for low, n, _, b in axis_ranges]
    if any(a >= b for a, b in zip(starts, limits, strict=True)):
        return None
    build = DlBuilder(op)
    sliced = build(SliceOp, pad.x, starts=starts, limits=limits, strides=ints(op.strides))
    low = [max(low - a, 0) for low, _, a, _ in axis_ranges]
    return [build(PadOp, sliced, pad.value, low=low, high=[max(b - low - n, 0) for low, n, _, b in axis_ranges])]


# f(x, y)[a:b:s] = f(x[a:b:s], y[a:b:s]), where f is computed from arguments and constants only: an elementwise op of another
# result, such as the bias of a matrix product, stays in the kernel of that product
def _slice_of_elementwise(op: SliceOp) -> Values:
    source = op.x.owner
    if not isinstance(source, Elementwise) or not _is_elementwise_of_arguments(op.x, _MAX_SLICED_OPS):
        return None
    operands: list[SSAValue] = []
    for value in source.operands:
        rank = rank_of(value)
        starts, limits, strides = list[Size](), list[Size](), list[int]()
        axes = zip(shape_of(value), shape_of(op.x)[-rank:] if rank else (), strict=True)
        for k, (size, full_size) in enumerate(axes, rank_of(op.x) - rank):
            if size != full_size and size != 1:
                return None
            is_sliced = size == full_size
            starts.append(sizes(op.starts)[k] if is_sliced else 0)
            limits.append(sizes(op.limits)[k] if is_sliced else 1)
            strides.append(ints(op.strides)[k] if is_sliced else 1)
        operands.append(DlBuilder(op)(SliceOp, value, starts=starts, limits=limits, strides=strides) if rank else value)
    return [DlBuilder(op)(type(source), *operands, **source.properties)]


def _is_elementwise_of_arguments(value: SSAValue, max_ops: int) -> bool:
    """Return whether a value is computed by up to `max_ops` elementwise ops, with one use each, of arguments and constants."""
    op = value.owner
    if isinstance(op, Block | ConstantOp | WeightOp | IotaOp):
        return True
    # Operands along one axis, such as scales, are sliced differently.
    if not isinstance(op, Elementwise) or type(op).broadcast is not Elementwise.broadcast or len(op.results) != 1:
        return False
    return max_ops > 0 and value.has_one_use() and all(_is_elementwise_of_arguments(v, max_ops - 1) for v in op.operands)


# conv(x, w)[images, positions] = conv(x[images, receptive field of the positions], w)
def _slice_of_conv(op: SliceOp) -> Values:
    conv = defining_op(op.x, ConvOp)
    if conv is None or not op.x.has_one_use() or not is_static((*shape_of(conv.x), *shape_of(conv.w))):
        return None
    if shape_of(op.result)[-1] != shape_of(op.x)[-1] or 0 in shape_of(op.result) or any(s != 1 for s in ints(op.strides)):
        return None
    kernel, dilations = shape_of(conv.w)[:-2], ints(conv.dilations)
    window_extents = [1, *((int(k) - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))]
    axis_ranges = list(zip(sizes(op.starts)[:-1], sizes(op.limits)[:-1], (1, *ints(conv.strides)), window_extents, strict=True))
    starts, limits = [a * s for a, _, s, _ in axis_ranges], [(b - 1) * s + r for _, b, s, r in axis_ranges]
    build = DlBuilder(op)
    input_slice = build(SliceOp, conv.x, starts=(*starts, 0), limits=(*limits, shape_of(conv.x)[-1]), strides=ints(op.strides))
    return [build(ConvOp, input_slice, conv.w, **conv.properties)]


# pad(x, 0, 0) = x;  pad(pad(x, a, b), c, d) = pad(x, a + c, b + d) for equal values and non-negative padding
def _fold_pad(op: PadOp) -> Values:
    low, high = ints(op.low), ints(op.high)
    if not any(low) and not any(high):
        return [op.x]
    inner = defining_op(op.x, PadOp)
    if inner is None or op.mode != "constant" or inner.mode != "constant":
        return None
    if min(*low, *high, *ints(inner.low), *ints(inner.high)) < 0:
        return None
    # Compared as text: -0.0 and 0.0 are different padding values.
    if inner.value is not op.value and (splat(op.value) is None or str(splat(op.value)) != str(splat(inner.value))):
        return None
    return [
        DlBuilder(op)(
            PadOp,
            inner.x,
            op.value,
            low=tuple(a + b for a, b in zip(ints(inner.low), low, strict=True)),
            high=tuple(a + b for a, b in zip(ints(inner.high), high, strict=True)),
        )
    ]


# gather(x, one constant index) = x[index]; along a symbolic dimension only for index 0, which always exists
def _gather_constant_index(op: GatherOp) -> Values:
    index, axis, shape = splat(op.indices), op.indexed_axis, shape_of(op.x)
    size = shape[axis]
    if index is None or product(shape_of(op.indices)) != 1 or not (isinstance(size, int) or index == 0):
        return None
    start = min(max(int(index) + size * (index < 0), 0), size - 1) if isinstance(size, int) else 0
    build = DlBuilder(op)
    starts = tuple(start if a == axis else 0 for a in range(len(shape)))
    limits = tuple(start + 1 if a == axis else s for a, s in enumerate(shape))
    element = build(SliceOp, op.x, starts=starts, limits=limits, strides=(1,) * len(shape))
    return [build(ReshapeOp, element, shape=shape_of(op.result))]


# pad(x, -l, -h) = x[l : n - h]
def _negative_pad(op: PadOp) -> Values:
    low, high, shape = ints(op.low), ints(op.high), shape_of(op.x)
    if max(*low, *high, 0) > 0:
        return None
    limits = tuple(s + h for s, h in zip(shape, high, strict=True))
    return [DlBuilder(op)(SliceOp, op.x, starts=tuple(-n for n in low), limits=limits, strides=(1,) * len(low))]


# reversing axes of size 1 changes nothing
def _fold_reverse(op: ReverseOp) -> Values:
    return [op.x] if all(shape_of(op.x)[a] == 1 for a in op.reversed_axes) else None


# concat(x) = x;  concat(x, empty) = x;  concat(concat(x, y), z) = concat(x, y, z), one kernel with a loop per operand; very
# many operands become concat(concat(x, …), concat(y, …), …), whose few kernels are often identical
def _flatten_concat(op: ConcatOp) -> Values:
    axis = op.concat_axis
    operands: list[SSAValue] = []
    for value in op.values:
        inner = defining_op(value, ConcatOp)
        if inner is not None and inner.concat_axis == axis and value.has_one_use():
            operands += inner.values if len(inner.values) + len(op.values) <= _MAX_CONCAT_OPERANDS else [value]
        else:
            operands.append(value)
    operands = [v for v in operands if shape_of(v)[axis] != 0] or operands[:1]
    if len(operands) == 1 and operands[0].type == op.result.type:
        return operands
    build = DlBuilder(op)
    if len(operands) > _MAX_CONCAT_OPERANDS:
        operands = [
            build(ConcatOp, *operands[k : k + _MAX_CONCAT_OPERANDS], axis=axis)
            for k in range(0, len(operands), _MAX_CONCAT_OPERANDS)
        ]
    return [build(ConcatOp, *operands, axis=axis)] if operands != list(op.values) else None


# reduce(x) = reshape(reduce(x, keepdims)); a reduction over no axes, or over unit axes only, is a reshape
def _normalize_reduction(op: AxisReduction) -> Values:
    build, shape = DlBuilder(op), shape_of(op.result)
    if all(shape_of(op.x)[a] == 1 for a in op.reduction_axes) and element_type_of(op.x) == element_type_of(op.result):
        return [build(ReshapeOp, op.x, shape=shape) if shape_of(op.x) != shape else op.x]
    if op.keeps_reduced_axes:
        return None
    return [build(ReshapeOp, build(type(op), op.x, axes=op.reduction_axes, keepdims=True), shape=shape)]


_REDUCTIONS = (ReduceSumOp, ReduceProdOp, ReduceMaxOp, ReduceMinOp, ReduceNanmaxOp, ReduceNanminOp, ReduceAnyOp, ReduceAllOp)

MOVEMENT_RULES: dict[type[DlOp], Sequence[Callable[..., Values]]] = {
    TransposeOp: (_fold_transpose,),
    ReshapeOp: (_fold_reshape,),
    BroadcastToOp: (_fold_broadcast,),
    SliceOp: (_fold_slice, _slice_of_concat, _slice_of_reverse, _slice_of_pad, _slice_of_elementwise, _slice_of_conv),
    PadOp: (_fold_pad, _negative_pad),
    ReverseOp: (_fold_reverse,),
    ConcatOp: (_flatten_concat,),
    GatherOp: (_gather_constant_index,),
    **{reduction: (_normalize_reduction,) for reduction in _REDUCTIONS},
}

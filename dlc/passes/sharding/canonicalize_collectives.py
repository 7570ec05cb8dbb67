"""Rewrite collectives to those that MPI computes: parts along axis 0, of element types that it reduces."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc.dialects import dl
from dlc.dialects.dl.base import PropertyValue, element_type_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.dialects.dl.scalar import wide_float
from dlc.ir import ModuleOp, SSAValue, i32
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.shapes.dims import Size

# Maximum bytes of all operands that each rank gathers and reduces itself: one message instead of two.
_MAX_GATHERED_BYTES = 1 << 20


def canonicalize_collectives(module: ModuleOp) -> None:
    """Express axes, conversions and maxima of collectives by other ops.

        %y = dl.all_gather %x {axis = 1}    →    %g = dl.all_gather %x {axis = 0};  %y = a transpose of %g
        %y = dl.all_reduce %h : f16         →    the sum of %h in f32, rounded once; small integers are added in i32
        %y = dl.all_reduce %x {max} : f32   →    %g = dl.all_gather %x;  %y = dl.reduce_max %g, since MPI's maximum drops NaN

    Native code calls MPI for the collectives that remain, and kernels compute the rest. A group of one rank exchanges nothing:
    its collectives are removed. Large maxima of floats and permutations that give zeros to some ranks stay; Python runs them.
    """
    for block in program_blocks(module):
        rewrite_forward(block, _canonicalize, Collective)


def _canonicalize(op: Collective) -> Sequence[SSAValue] | None:
    build = DlBuilder(op)
    if op.ranks == 1:
        return [_single_rank_result(build, op)]
    match op:
        case dl.AllReduceOp() | dl.ReduceScatterOp():
            return _canonicalize_reduction(build, op)
        case dl.AllGatherOp() if op.axis_of(op.axis):
            return [from_rows(build, op, build(dl.AllGatherOp, as_rows(build, op), **_group(op), axis=0))]
        case dl.AllToAllOp() if op.axis_of(op.split_axis) or op.axis_of(op.concat_axis):
            split, concat = op.axis_of(op.split_axis), op.axis_of(op.concat_axis)
            parts = split_rows(build, op.x, split, op.ranks)
            received = build(dl.AllToAllOp, parts, **_group(op), split_axis=0, concat_axis=0)
            shape = [size // op.ranks if axis == split else size for axis, size in enumerate(shape_of(op.x))]
            return [_join_rows(build, received, shape, concat, op.ranks)]
        case _:
            return None


def _single_rank_result(build: DlBuilder, op: Collective) -> SSAValue:
    """Return the result of a collective in a group of one rank."""
    match op:
        case dl.AxisIndexOp():
            return build.scalar(0, like=op.result)
        case dl.PermuteOp() if not op.routes:
            return build(dl.BroadcastToOp, build.scalar(0, like=op.x), shape=shape_of(op.x))
        case _:
            return op.operands[0]


def _canonicalize_reduction(build: DlBuilder, op: dl.AllReduceOp | dl.ReduceScatterOp) -> Sequence[SSAValue] | None:
    element = element_type_of(op.x)
    axis, combine = 0 if isinstance(op, dl.AllReduceOp) else op.axis_of(op.axis), op.combine.data
    # Open MPI's sums of integers with 8 and 16 bits saturate; sums modulo 2³² give the same low bits.
    is_small_integer = not is_float(element) and numpy_dtype(element).itemsize < 4
    wide = i32 if combine == "sum" and is_small_integer else wide_float(element)
    if wide != element:
        changed = type(op).make(build(dl.CastOp, op.x, to=wide), **op.properties)
        build.insert(changed)
        return [build(dl.CastOp, changed.result, to=element)]
    reduce = dl.ReduceMaxOp if combine == "max" else dl.ReduceMinOp
    combines_parts = is_float(element) and combine != "sum"
    if combines_parts and op.operand_bytes * op.ranks <= _MAX_GATHERED_BYTES:
        rows = build(dl.ReshapeOp, op.x, shape=(1, *shape_of(op.x))) if isinstance(op, dl.AllReduceOp) else as_rows(build, op)
        if isinstance(op, dl.AllReduceOp):
            parts = build(dl.AllGatherOp, rows, **_group(op), axis=0)
        else:
            parts = build(dl.AllToAllOp, rows, **_group(op), split_axis=0, concat_axis=0)
        combined = build(reduce, parts, axes=(0,), keepdims=False)
        return [build(dl.ReshapeOp, combined, shape=shape_of(op.result))]
    if axis:
        scattered = build(dl.ReduceScatterOp, as_rows(build, op), **_group(op), axis=0, combine=combine)
        return [build(dl.ReshapeOp, scattered, shape=shape_of(op.result))]
    return None


def _group(op: Collective) -> dict[str, PropertyValue]:
    return {"axes": op.axes, "group_size": op.ranks}


def as_rows(build: DlBuilder, op: dl.AllReduceOp | dl.ReduceScatterOp | dl.AllGatherOp) -> SSAValue:
    """Return the operand as a matrix; for a reduce_scatter, row p contains the elements for the rank at position p."""
    if isinstance(op, dl.ReduceScatterOp):
        return split_rows(build, op.x, op.axis_of(op.axis), op.ranks)
    return build(dl.ReshapeOp, op.x, shape=(1, _product(shape_of(op.x))))


def from_rows(build: DlBuilder, op: dl.AllReduceOp | dl.ReduceScatterOp | dl.AllGatherOp, rows: SSAValue) -> SSAValue:
    """Return the result from a matrix; for an all_gather, row p contains the operand of the rank at position p."""
    if isinstance(op, dl.AllGatherOp):
        return _join_rows(build, rows, shape_of(op.x), op.axis_of(op.axis), op.ranks)
    return build(dl.ReshapeOp, rows, shape=shape_of(op.result))


def split_rows(build: DlBuilder, x: SSAValue, axis: int, ranks: int) -> SSAValue:
    """Return the parts of a tensor along an axis as rows of a matrix."""
    shape = shape_of(x)
    split = build(dl.ReshapeOp, x, shape=(*shape[:axis], ranks, shape[axis] // ranks, *shape[axis + 1 :]))
    order = (axis, *(a for a in range(len(shape) + 1) if a != axis))
    return build(dl.ReshapeOp, build(dl.TransposeOp, split, permutation=order), shape=(ranks, _product(shape) // ranks))


def _join_rows(build: DlBuilder, rows: SSAValue, part_shape: Sequence[Size], axis: int, ranks: int) -> SSAValue:
    """Return the concatenation along an axis of parts of this shape, which are the rows of a matrix."""
    parts = build(dl.ReshapeOp, rows, shape=(ranks, *part_shape))
    order = (*range(1, axis + 1), 0, *range(axis + 1, len(part_shape) + 1))
    joined = (*part_shape[:axis], part_shape[axis] * ranks, *part_shape[axis + 1 :])
    return build(dl.ReshapeOp, build(dl.TransposeOp, parts, permutation=order), shape=joined)


def _product(shape: Sequence[Size]) -> int:
    return prod(int(size) for size in shape if isinstance(size, int))

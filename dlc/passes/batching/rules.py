"""Batching rules of elementwise ops, of ops along axes or rows, and of data-movement ops.

A rule returns the results with the batch along axis 0, or None to batch the op's decomposition instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dlc.dialects.dl.arithmetic.activation import Activation, PreluOp
from dlc.dialects.dl.arithmetic.elementwise import SelectOp
from dlc.dialects.dl.arithmetic.random import RandomBitsOp
from dlc.dialects.dl.base import DlOp, element_type_of, ints, normalized_axes, number, rank_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.data_dependent.foreign import ForeignCallOp
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.distributed.shard_map import ShardMapBoundary
from dlc.dialects.dl.distributed.sharding import ShardOp, spec_attribute, spec_of
from dlc.dialects.dl.interfaces import Elementwise, LibraryKernel, Reduction, RowwiseKernel
from dlc.dialects.dl.library_kernels.common_divisor import GcdOp
from dlc.dialects.dl.library_kernels.cumulative import CumulativeOp
from dlc.dialects.dl.library_kernels.decision_trees import TreeEnsembleOp
from dlc.dialects.dl.library_kernels.loops import LoopsOp
from dlc.dialects.dl.library_kernels.searchsorted import SortedSearch
from dlc.dialects.dl.library_kernels.sorting import ArgsortOp, SortOp
from dlc.dialects.dl.low_precision.packed_dot import ViewAsOp
from dlc.dialects.dl.low_precision.quantization import QuantizationOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import (
    BroadcastToOp,
    ConcatOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    SlidingWindowsOp,
    TransposeOp,
)
from dlc.dialects.dl.programs.identities import AddDependencyOp
from dlc.dialects.dl.reductions.arg_extrema import ArgReduction
from dlc.dialects.dl.reductions.composite import CompositeReduction
from dlc.dialects.dl.reductions.normalization import BatchNormOp, LrnOp, SoftmaxLike, TrailingNorm
from dlc.ir import ArrayAttr, SSAValue, i1
from dlc.passes.batching.batching_context import BatchingContext
from dlc.passes.batching.loop_bodies import batched_loop_body
from dlc.shapes.dims import UndecidableError

Rule: TypeAlias = Callable[[BatchingContext, Any], "Sequence[SSAValue] | None"]


def elementwise(context: BatchingContext, op: Elementwise | GcdOp) -> Sequence[SSAValue]:
    """Add a leading batch axis, and align the ranks of the operands."""
    rank = rank_of(op.results[0])
    return context.clone_op(op, *(context.align_rank(v, rank) for v in op.operands))


def shift_axes(context: BatchingContext, op: DlOp) -> Sequence[SSAValue]:
    """Add a batch axis to all operands, and shift the axes in the properties.

    For ops that are independent along all other axes.
    """
    return context.clone_op(op, *map(context.with_batch_axis, op.operands), **shifted_axes(op))


def shift_axes_of_first_operand(context: BatchingContext, op: DlOp) -> Sequence[SSAValue] | None:
    """Add a batch axis to the first operand only; the parameters in the other operands must not be batched."""
    first, *parameters = op.operands
    if any(map(context.is_batched, parameters)):
        return None
    return context.clone_op(op, context.with_batch_axis(first), *map(context.lookup, parameters), **shifted_axes(op))


def quantized(context: BatchingContext, op: QuantizationOp) -> Sequence[SSAValue] | None:
    """Decompose block-quantized ops, whose parameters have all axes of the first operand; else batch the first operand."""
    return None if op.block_count is not None else shift_axes_of_first_operand(context, op)


def shifted_axes(op: DlOp) -> Mapping[str, Any]:
    """Return the properties `axis` and `axes` of an op, shifted by a leading batch axis of the first operand."""
    rank, properties = rank_of(op.operands[0]), dict[str, Any]()
    if "axis" in op.properties:
        # An op with a per-tensor scale has the property `axis` even for rank 0.
        properties["axis"] = normalized_axes(op.name, [number(op.properties["axis"])], rank)[0] + 1 if rank else 0
    if "axes" in op.properties:
        properties["axes"] = tuple(a + 1 for a in normalized_axes(op.name, ints(op.properties["axes"]), rank))
    return properties


def rows(context: BatchingContext, op: DlOp) -> Sequence[SSAValue]:
    """Add a batch axis to all operands of an op with common leading axes."""
    return context.clone_op(op, *map(context.with_batch_axis, op.operands))


def merge_rows(context: BatchingContext, op: RowwiseKernel) -> Sequence[SSAValue]:
    """Merge the batch into the first axis of an op on any number of rows."""
    build, (rows, *others) = context.build, shape_of(op.operands[0])
    results = context.clone_op(
        op, build(ReshapeOp, context.with_batch_axis(op.operands[0]), shape=(context.size * rows, *others))
    )
    return [build(ReshapeOp, y, shape=(context.size, *shape_of(r))) for y, r in zip(results, op.results, strict=True)]


def tree_ensemble(context: BatchingContext, op: TreeEnsembleOp) -> Sequence[SSAValue]:
    """Merge the batch into the rows if the trees are not batched; else compute one batch element at a time."""
    build, tables = context.build, op.operands[1:]
    if not any(map(context.is_batched, tables)):
        rows, columns = shape_of(op.x)
        (y,) = context.clone_op(
            op,
            build(ReshapeOp, context.with_batch_axis(op.x), shape=(context.size * rows, columns)),
            *map(context.lookup, tables),
        )
        return [build(ReshapeOp, y, shape=(context.size, *shape_of(op.result)))]

    def batch_element(value: SSAValue, k: int) -> SSAValue:
        shape = shape_of(value)
        starts, limits = (k, *(0 for _ in shape)), (k + 1, *shape)
        return build(
            ReshapeOp,
            build(SliceOp, context.with_batch_axis(value), starts=starts, limits=limits, strides=(1,) * len(limits)),
            shape=shape,
        )

    if not isinstance(context.size, int):
        raise UndecidableError(
            f"vmap repeats {op.name} for each batch element, and the batch size {context.size} is symbolic; make it static"
        )
    results = [context.clone_op(op, *(batch_element(v, k) for v in op.operands))[0] for k in range(context.size)]
    return [build(ConcatOp, *(build(ReshapeOp, y, shape=(1, *shape_of(y))) for y in results), axis=0)]


def loops(context: BatchingContext, op: LoopsOp) -> Sequence[SSAValue]:
    """Add a leading dimension to the grids of the body; it is an index of the results and of the batched operands."""
    is_batched = [*map(context.is_batched, op.operands), *(True for _ in op.results)]
    body, argument_sizes = batched_loop_body(op.body, is_batched, context.size, sizes(op.sizes))
    changed = {"sizes": tuple(argument_sizes)} if argument_sizes else {}
    return context.clone_op(op, *map(context.lookup, op.operands), body=body, **changed)


def foreign_call(context: BatchingContext, op: ForeignCallOp) -> Sequence[SSAValue]:
    """Add a batch axis to operands and results; the function runs once per batch entry, or in its batched form."""
    types = ArrayAttr([tensor_type((context.size, *shape_of(r)), element_type_of(r)) for r in op.results])
    return context.clone_op(op, *map(context.with_batch_axis, op.operands), types=types, batch_axes=op.batch_rank + 1)


def shard(context: BatchingContext, op: ShardOp) -> Sequence[SSAValue]:
    """Leave the batch axis unconstrained."""
    return context.clone_op(op, context.with_batch_axis(op.x), spec=spec_attribute((None, *spec_of(op.spec))))


def shard_map_boundary(context: BatchingContext, op: ShardMapBoundary) -> Sequence[SSAValue]:
    """Replicate the batch axis."""
    return context.clone_op(op, context.with_batch_axis(op.x), spec=spec_attribute(((), *op.mesh_axes)))


def collective(context: BatchingContext, op: Collective) -> Sequence[SSAValue]:
    """Exchange the whole batch; the property `axes` names mesh axes."""
    (x,) = op.operands
    axes = {name: normalized_axes(op.name, [number(op.properties[name])], rank_of(x))[0] + 1 for name in op.axis_properties}
    return context.clone_op(op, context.with_batch_axis(x), **axes)


def transpose(context: BatchingContext, op: TransposeOp) -> Sequence[SSAValue]:
    return context.clone_op(op, context.with_batch_axis(op.x), permutation=(0, *(a + 1 for a in op.axes)))


def broadcast_to(context: BatchingContext, op: BroadcastToOp) -> Sequence[SSAValue]:
    shape = sizes(op.shape)
    return context.clone_op(op, context.align_rank(op.x, len(shape)), shape=(context.size, *shape))


def reshape(context: BatchingContext, op: ReshapeOp) -> Sequence[SSAValue]:
    return context.clone_op(op, context.with_batch_axis(op.x), shape=(context.size, *sizes(op.shape)))


def slice_(context: BatchingContext, op: SliceOp) -> Sequence[SSAValue]:
    return context.clone_op(
        op,
        context.with_batch_axis(op.x),
        starts=(0, *sizes(op.starts)),
        limits=(context.size, *sizes(op.limits)),
        strides=(1, *ints(op.strides)),
    )


def windows(context: BatchingContext, op: SlidingWindowsOp) -> Sequence[SSAValue]:
    (y,) = context.clone_op(op, context.with_batch_axis(op.x), **shifted_axes(op))
    return [context.move_axis(y, len(op.windows_by_axis), 0)]


def pad(context: BatchingContext, op: PadOp) -> Sequence[SSAValue]:
    """Pad with a batched value: pad with 0, then select the value outside of the interior."""
    padding = {"low": (0, *ints(op.low)), "high": (0, *ints(op.high))}
    if not context.is_batched(op.value):
        return context.clone_op(op, context.with_batch_axis(op.x), context.lookup(op.value), **padding)
    build = context.build
    (y,) = context.clone_op(op, context.with_batch_axis(op.x), build.scalar(0, like=op.value), **padding)
    if op.mode != "constant":
        return [y]
    true, false = (build.scalar(k, like=tensor_type((), i1)) for k in (1, 0))
    is_interior = build(PadOp, build(BroadcastToOp, true, shape=shape_of(op.x)), false, low=op.low, high=op.high)
    return [build(SelectOp, is_interior, y, context.align_rank(op.value, rank_of(op.x)))]


def add_dependency(context: BatchingContext, op: AddDependencyOp) -> Sequence[SSAValue]:
    return context.clone_op(op, context.lookup(op.x), context.lookup(op.y))


RULES: dict[type, Rule] = {
    ShardOp: shard,
    ShardMapBoundary: shard_map_boundary,
    Collective: collective,
    **dict.fromkeys((Elementwise, GcdOp), elementwise),
    **dict.fromkeys(
        (
            Reduction,
            CompositeReduction,
            ArgReduction,
            SoftmaxLike,
            LrnOp,
            Activation,
            CumulativeOp,
            ArgsortOp,
            SortOp,
            ReverseOp,
            ConcatOp,
        ),
        shift_axes,
    ),
    **dict.fromkeys((TrailingNorm, BatchNormOp, PreluOp), shift_axes_of_first_operand),
    QuantizationOp: quantized,
    **dict.fromkeys((SortedSearch, RandomBitsOp, ViewAsOp, LibraryKernel), rows),
    RowwiseKernel: merge_rows,
    LoopsOp: loops,
    ForeignCallOp: foreign_call,
    TreeEnsembleOp: tree_ensemble,
    TransposeOp: transpose,
    BroadcastToOp: broadcast_to,
    ReshapeOp: reshape,
    SliceOp: slice_,
    SlidingWindowsOp: windows,
    PadOp: pad,
    AddDependencyOp: add_dependency,
}

"""Split long reductions into reductions of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp
from dlc.dialects.dl.base import element_type_of, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import DataMovement, Elementwise
from dlc.dialects.dl.movement.shaping import ReshapeOp, SliceOp, SlidingWindowsOp, TransposeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import AxisReduction, ReduceProdOp, ReduceSumOp
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue, bf16, f16, f32
from dlc.passes.dl.contractions.matrix_products import Pair, blocked_product, build_dot_general, paired_axes, split_axis
from dlc.passes.dl.rewriting import defining_op, erase_unused, program_blocks, rewrite_forward, users
from dlc.shapes.dims import is_static

# Terms per block, and the maximum length of a sum that is not split. Along the innermost axis, a vector of accumulators divides
# the terms; along outer axes, each accumulator adds all of them.
_INNER_AXIS_TERMS, _OUTER_AXIS_TERMS = (1024, 4096), (512, 16384)
# The same for the sums of blocks along outer axes. They are few, so that another pass over them costs nothing.
_BLOCK_SUM_TERMS = (64, 64)
# Shorter blocks do not pay for another pass over memory.
_MIN_BLOCK_TERMS = 16
# Minimum elements of a reduction that is bound by memory bandwidth, and minimum parallel tasks to saturate the bandwidth.
_MIN_MEMORY_BOUND_ELEMENTS, _MIN_TASKS = 1 << 20, 4
# Maximum rows of a skinny (GEMV-like) product, and the terms per block of its contracted dimension.
_MAX_SKINNY_ROWS, _SKINNY_BLOCK_TERMS = 4, 512
# Terms per block of a matrix product, and the maximum length of a contraction that is not split. No model layer exceeds it.
# Results rounded to 16 bits show f32 accumulation errors only at greater lengths.
_MATMUL_BLOCK_TERMS, _MAX_MATMUL_TERMS, _MAX_HALF_PRECISION_MATMUL_TERMS = 4096, 32768, 1 << 18


@dataclass(frozen=True)
class BlockReductionsPass(ModulePass):
    """`block-reductions`: splits a long reduction into reductions of blocks, recursively.

        %s = dl.reduce_sum %x : [1000000]
    →   %b = dl.reshape %x : [250, 4000];  %p = dl.reduce_sum %b along 1;  %s = dl.reduce_sum %p

    With one accumulator the rounding error grows linearly with the length, and a sum stops growing after 2^24 equal terms in
    f32. With blocks the error grows with the logarithm of the length, and the blocks become parallel tasks. Sums of f16 and
    bf16 accumulate in f32 and are rounded once, at the end. Reductions over symbolic dimensions stay as they are.

    Elementwise producers that only the reduction reads are recomputed on reshaped operands, since a reshape would separate them
    from its kernel.

    Any reduction (a maximum, for example) over very many elements is blocked if it would otherwise have too few parallel
    tasks. Its blocks are contiguous in memory and consist of whole rows.

    Matrix products with a very long contracted dimension are blocked too: [m, k] · [k, n] becomes a sum of products over
    blocks of k. Those of f16 and bf16 become products of f32 first. A product of a few rows with a large computed matrix,
    which is read only once, is split along k for parallelism.
    """

    name = "block-reductions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        weights = WeightExpressions()

        def rule(op: MatmulOp | DotGeneralOp | AxisReduction) -> Sequence[SSAValue] | None:
            return _block_reduction(op) if isinstance(op, AxisReduction) else _block_matmul(op, weights)

        for block in program_blocks(op):
            rewrite_forward(block, rule, MatmulOp, DotGeneralOp, AxisReduction)


def _block_matmul(op: MatmulOp | DotGeneralOp, weights: WeightExpressions) -> Sequence[SSAValue] | None:
    pairs, element = paired_axes(op), element_type_of(op.result)
    if not is_float(element) or pairs is None:
        return None
    batch, contracted = pairs
    shape = shape_of(op.lhs)
    if not is_static((*shape, *shape_of(op.rhs))):
        return None
    terms = prod(int(shape[i]) for i, _ in contracted)
    is_half_precision = element in (f16, bf16)
    is_skinny = not is_half_precision and _is_skinny_matmul(op, batch, contracted) and op.rhs not in weights
    max_terms = _MAX_HALF_PRECISION_MATMUL_TERMS if is_half_precision else _MAX_MATMUL_TERMS
    if terms <= (_MIN_TASKS * _MIN_BLOCK_TERMS if is_skinny else max_terms):
        return None
    build = DlBuilder(op)
    if is_half_precision:
        f32_result = build(type(op), *(build(CastOp, v, to=f32) for v in op.operands), **op.properties)
        return [build(CastOp, f32_result, to=element)]
    i, j = max(contracted, key=lambda pair: shape[pair[0]])
    size = int(shape[i])
    # Only one contracted axis is split; a block contains the others completely.
    other_terms = terms // size
    max_block = min(_SKINNY_BLOCK_TERMS, size // _MIN_TASKS) if is_skinny else max(_MATMUL_BLOCK_TERMS // other_terms, 1)
    block_size = next((p for p in range(max_block, 0, -1) if size % p == 0 and p * other_terms >= _MIN_BLOCK_TERMS), None)
    if block_size is None and terms <= max_terms and not is_skinny:
        return None
    if block_size is None:
        # No suitable block size divides the axis: the last, shorter block is a separate product.
        blocked_size = size - size % max_block
        lhs_blocks = _slice_axis(build, op.lhs, i, 0, blocked_size)
        remainder_operands = (
            _slice_axis(build, op.lhs, i, blocked_size, size),
            _slice_axis(build, op.rhs, j, blocked_size, size),
        )
        remainder = build_dot_general(build, *remainder_operands, batch, contracted, element)
        if not is_skinny:
            return [
                build(
                    AddOp,
                    build_dot_general(
                        build, lhs_blocks, _slice_axis(build, op.rhs, j, 0, blocked_size), batch, contracted, element
                    ),
                    remainder,
                )
            ]
        # Windows view the matrix in place, without a copy.
        blocks = build(SlidingWindowsOp, op.rhs, axes=(0,), sizes=(max_block,), strides=(max_block,))
        sums = build_dot_general(build, split_axis(build, lhs_blocks, i, max_block), blocks, [(i, 1)], [(i + 1, 0)], element)
        return [build(AddOp, build(ReduceSumOp, sums, axes=(0,), keepdims=False), remainder)]
    sums = blocked_product(build, op, batch, contracted, (i, j), block_size, element)
    return [build(ReduceSumOp, sums, axes=(0,), keepdims=False)]


def _is_skinny_matmul(op: MatmulOp | DotGeneralOp, batch: Sequence[Pair], contracted: Sequence[Pair]) -> bool:
    """Return whether the op multiplies a few rows with a large row-major matrix."""
    rows = shape_of(op.lhs)[:-1]
    is_single_matmul = not batch and list(contracted) == [(len(rows), 0)] and rank_of(op.rhs) == 2
    return (
        is_single_matmul
        and prod(map(int, shape_of(op.rhs))) >= _MIN_MEMORY_BOUND_ELEMENTS
        and prod(rows) <= _MAX_SKINNY_ROWS
        and defining_op(op.rhs, TransposeOp) is None
    )


def _block_reduction(op: AxisReduction, outer_axis_terms: tuple[int, int] = _OUTER_AXIS_TERMS) -> Sequence[SSAValue] | None:
    x, shape, axes, op_class = op.x, shape_of(op.x), op.reduction_axes, type(op)
    if not axes or not is_static(shape):
        return None
    is_inner = rank_of(x) - 1 in axes
    block, limit = _INNER_AXIS_TERMS if is_inner else outer_axis_terms
    is_memory_bound = prod(map(int, shape)) >= _MIN_MEMORY_BOUND_ELEMENTS and prod(map(int, shape[: axes[0]])) < _MIN_TASKS
    terms = prod(int(shape[a]) for a in axes)
    needs_accuracy = op_class is ReduceSumOp and is_float(op.element) and terms > limit
    if not needs_accuracy and not (is_memory_bound and terms > block):
        return None
    build, element = DlBuilder(op), op.element
    if element in (f16, bf16) and op_class in (ReduceSumOp, ReduceProdOp):
        f32_result = build(op_class, build(CastOp, x, to=f32), axes=axes, keepdims=op.keeps_reduced_axes)
        return [build(CastOp, f32_result, to=element)]
    # A block contains the last axes completely; the first axis that does not fit is split.
    split, max_block = len(axes) - 1, block
    while int(shape[axes[split]]) <= max_block:
        max_block //= int(shape[axes[split]])
        split -= 1
    axis, inner = axes[split], axes[split + 1 :]
    size = int(shape[axis])
    block_size = next(p for p in range(max_block, 0, -1) if size % p == 0)
    if block_size < _MIN_BLOCK_TERMS and inner:
        sums = build(op_class, x, axes=inner, keepdims=True)
        total = build(op_class, sums, axes=axes[: split + 1], keepdims=True)
        return [build(ReshapeOp, total, shape=shape_of(op.result))]
    if block_size >= _MIN_BLOCK_TERMS:
        blocks = _blocked_operand(op, axis, block_size)
        sums = build(op_class, blocks, axes=[axis + 1, *(a + 1 for a in inner)], keepdims=True)
        sums = build(
            ReshapeOp, sums, shape=[size // block_size if a == axis else 1 if a in inner else n for a, n in enumerate(shape)]
        )
        total = op_class.make(sums, axes=axes[: split + 1], keepdims=True)
        build.insert(total)
        nested = _block_reduction(total, _BLOCK_SUM_TERMS) if needs_accuracy and not is_inner else None
        result = build(ReshapeOp, nested[0] if nested is not None else total.result, shape=shape_of(op.result))
        erase_unused([total])
        return [result]
    if not needs_accuracy:
        return None
    # No suitable block size divides the axis: the last, shorter block is a separate sum.
    segments = (
        _slice_axis(build, x, axis, low, high) for low, high in ((0, size - size % max_block), (size - size % max_block, size))
    )
    return [build(AddOp, *(build(op_class, v, axes=axes, keepdims=op.keeps_reduced_axes) for v in segments))]


def _blocked_operand(op: AxisReduction, axis: int, block_size: int) -> SSAValue:
    """Return the reduction's operand with `axis` split into blocks of `block_size` elements.

    Elementwise producers that only the reduction reads are recomputed on reshaped operands; otherwise their result would be
    written to memory first.
    """
    build, shape, split_values = DlBuilder(op), shape_of(op.x), dict[SSAValue, SSAValue]()
    trailing = len(shape) - axis

    def split_blocks(value: SSAValue) -> SSAValue:
        sizes = shape_of(value)
        if value not in split_values and len(sizes) >= trailing:
            blocked_axis = len(sizes) - trailing
            block_sizes = (1, 1) if sizes[blocked_axis] == 1 else (int(sizes[blocked_axis]) // block_size, block_size)
            split_values[value] = build(
                ReshapeOp, value, shape=(*sizes[:blocked_axis], *block_sizes, *sizes[blocked_axis + 1 :])
            )
        return split_values.get(value, value)

    for producer in _fusible_producers(op):
        clone = type(producer).make(*map(split_blocks, producer.operands), **producer.properties)
        split_values[producer.results[0]] = build.insert(clone).results[0]
    return split_blocks(op.x)


def _fusible_producers(op: AxisReduction) -> list[Elementwise]:
    """Return the same-shape elementwise producers that only this reduction reads, in program order."""
    producers: dict[Operation, Elementwise] = {}
    pending, candidate = {op.x.owner}, op.prev_op
    while pending and candidate is not None:
        if candidate in pending:
            pending.remove(candidate)
            # A data-movement op folds into the indexing map of its user only if no reshape is between them.
            reads_movement = any(isinstance(v.owner, DataMovement) for v in candidate.operands)
            if isinstance(candidate, Elementwise) and not reads_movement and _is_private_producer(candidate, op, producers):
                producers[candidate] = candidate
                pending |= {v.owner for v in candidate.operands}
        candidate = candidate.prev_op
    return list(reversed(producers.values()))


def _is_private_producer(producer: Elementwise, op: AxisReduction, others: Mapping[Operation, Elementwise]) -> bool:
    """Return whether an op has the shape of the operand, and only the reduction and its fused producers use its result."""
    return shape_of(producer.results[0]) == shape_of(op.x) and users(producer.results[0]) <= {op, *others}


def _slice_axis(build: DlBuilder, x: SSAValue, axis: int, low: int, high: int) -> SSAValue:
    shape = shape_of(x)
    starts = [low if a == axis else 0 for a in range(len(shape))]
    limits = [high if a == axis else size for a, size in enumerate(shape)]
    return build(SliceOp, x, starts=starts, limits=limits, strides=[1] * len(shape))

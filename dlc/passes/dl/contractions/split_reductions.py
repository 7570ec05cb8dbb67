"""Split contractions with few results and long sums (split-K), so that a GPU has enough work-groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import element_type_of, number, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import DataMovement
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.ir import Context, ModuleOp, SSAValue, bf16, f16, f32
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.matrix_products import blocked_product, paired_axes
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.shapes.dims import is_static
from dlc.target import Target

# Minimum terms per slice of a sum, and maximum number of slices.
_MIN_SLICE_TERMS, _MAX_SLICES = 128, 32
# Slices consist of whole cache lines, which work-items load to local memory.
_SLICE_ALIGNMENT_TERMS = 8
# Rows and columns of the result tile of a work-group.
_TILE_ROWS, _TILE_COLUMNS = (4, 8, 16, 32, 64, 128), (16, 32, 64, 128)


@dataclass(frozen=True)
class SplitReductionsPass(TargetPass):
    """`split-reductions{target="opencl:gpu"}`: split-K for contractions with few results: splits the sum into slices.

        %y = dl.matmul %x, %w : [64, 4608] · [4608, 512]
    →   %p = dl.dot_general (dl.reshape %x : [64, 16, 288]), (dl.reshape %w : [16, 288, 512]) : [16, 64, 512]
        %y = dl.reduce_sum %p along 0

        %y = dl.conv %x, %w : [1, 16, 16, 256] * [3, 3, 256, 256]
    →   %p = dl.conv %x, %w' {groups = 4} : [1, 14, 14, 4 · 256], %w' = [3, 3, 64, 4 · 256];  %y = dl.reduce_sum %p over groups

    A work-group computes some results over all of their terms, so a product with few results occupies few work-groups for a
    long time. Each slice of the sum gets separate work-groups. The epilogue (a bias, an activation) runs where the slices
    are added. The cost model (`SplitReductionCosts`) chooses the number of slices from the k iterations, the partial sums and
    the second kernel. Operands are read in place; convolution weights are rearranged, as a weight expression. Sums of f16 and
    bf16 are rounded once, at the end.

    Applies to targets with work-groups only. Contractions with symbolic dimensions and grouped convolutions stay. Requires
    `block-reductions` for overlong sums; run it after all other rewrites of contractions.
    """

    name = "split-reductions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.target.groups is None:
            return
        rewriter = _ReductionSplitter(self.target, WeightExpressions())
        for block in program_blocks(op):
            rewrite_forward(block, rewriter.product, MatmulOp, DotGeneralOp)
            rewrite_forward(block, rewriter.convolution, ConvOp)


@dataclass(frozen=True)
class _ReductionSplitter:
    target: Target
    weights: WeightExpressions

    def product(self, op: MatmulOp | DotGeneralOp) -> Sequence[SSAValue] | None:
        pairs = paired_axes(op)
        if pairs is None or not _is_static_float(op):
            return None
        batch, contracted = pairs
        lhs, rhs = (list(map(int, shape_of(v))) for v in op.operands)
        if not contracted or any(map(self.is_read_through_data_movement, op.operands)):
            return None
        pair = max(contracted, key=lambda pair: lhs[pair[0]])
        batch_count, terms = prod(lhs[i] for i, _ in batch), prod(lhs[i] for i, _ in contracted)
        rows, columns = (prod(shape) // max(1, batch_count * terms) for shape in (lhs, rhs))
        num_slices = choose_split_count(rows, columns, batch_count, terms, lhs[pair[0]], self.target)
        if num_slices == 1:
            return None
        build, element = DlBuilder(op), element_type_of(op.result)
        sum_type = f32 if element in (f16, bf16) else element
        sums = blocked_product(build, op, batch, contracted, pair, lhs[pair[0]] // num_slices, sum_type)
        return [_sum_slices(build, sums, 0, op)]

    def is_read_through_data_movement(self, value: SSAValue) -> bool:
        """Return whether a product's kernel reads a value through a data-movement op, which a reshape between would prevent."""
        source = value.owner.x if isinstance(value.owner, TransposeOp) else value
        return isinstance(source.owner, DataMovement) and not isinstance(source.owner, ReshapeOp) and value not in self.weights

    def convolution(self, op: ConvOp) -> Sequence[SSAValue] | None:
        if number(op.groups) != 1 or op.w not in self.weights or not _is_static_float(op):
            return None
        *taps, channels, outputs = map(int, shape_of(op.w))
        y = list(map(int, shape_of(op.result)))
        num_slices = choose_split_count(prod(y[:-1]), outputs, 1, prod(taps) * channels, channels, self.target)
        if num_slices == 1:
            return None
        build, element, rank = DlBuilder(op), element_type_of(op.result), len(taps)
        sum_type = f32 if element in (f16, bf16) else element
        w = build(ReshapeOp, op.w, shape=(*taps, num_slices, channels // num_slices, outputs))
        w = build(TransposeOp, w, permutation=(*range(rank), rank + 1, rank, rank + 2))
        w = build(ReshapeOp, w, shape=(*taps, channels // num_slices, num_slices * outputs))
        result_property = {} if element_type_of(op.x) == element_type_of(w) == sum_type else {"result": sum_type}
        partial_sums = build(ConvOp, op.x, w, **{**op.properties, "groups": num_slices, **result_property})
        return [_sum_slices(build, build(ReshapeOp, partial_sums, shape=(*y[:-1], num_slices, outputs)), len(y) - 1, op)]


def _sum_slices(build: DlBuilder, sums: SSAValue, axis: int, op: MatmulOp | DotGeneralOp | ConvOp) -> SSAValue:
    """Sum the slices along an axis, and convert and reshape the total like the result of `op`."""
    element = element_type_of(op.result)
    total = build(ReduceSumOp, sums, axes=(axis,), keepdims=True)
    if element_type_of(total) != element:
        total = build(CastOp, total, to=element)
    return build(ReshapeOp, total, shape=shape_of(op.result))


def _is_static_float(op: MatmulOp | DotGeneralOp | ConvOp) -> bool:
    """Return whether an op is a floating-point contraction of static shapes."""
    return op.dot is None and is_float(element_type_of(op.result)) and all(is_static(shape_of(v)) for v in op.operands)


def choose_split_count(rows: int, columns: int, batch_count: int, terms: int, size: int, target: Target) -> int:
    """Choose the number of slices for `batch_count` products [rows, terms] · [terms, columns], split along `size` terms."""
    if not rows * columns * batch_count:
        return 1
    split_costs = target.costs.groups.split_reductions
    candidate_counts = [
        n
        for n in range(2, _MAX_SLICES + 1)
        if size % n == 0 and size // n % _SLICE_ALIGNMENT_TERMS == 0 and terms // n >= _MIN_SLICE_TERMS
    ]
    costs = {n: _cost(rows, columns, batch_count, terms, n, target) for n in (1, *candidate_counts)}
    min_cost = min(costs.values())
    if min_cost >= split_costs.max_time_ratio * costs[1]:
        return 1
    return next(n for n in costs if costs[n] <= split_costs.count_tolerance * min_cost)


def _cost(rows: int, columns: int, batch_count: int, terms: int, num_slices: int, target: Target) -> float:
    """Estimate the time, in units of one k iteration.

    Each work-group computes the terms of a slice, then the slices are added up. A k iteration has a fixed cost, one product
    per result of the tile, and operand elements to load. Work-groups that run on the device at the same time share its
    compute rate.
    """
    assert target.groups is not None
    units, costs, split_costs = target.groups.units, target.costs.groups, target.costs.groups.split_reductions
    partial_sums = (
        split_costs.kernel_steps + num_slices * batch_count * rows * columns / split_costs.partial_sums_per_step
        if num_slices > 1
        else 0
    )
    if rows <= costs.few_rows:
        waves = max(1.0, -(-columns // split_costs.cooperative_columns) * batch_count * num_slices / units)
        return terms / num_slices * split_costs.cooperative_step * waves + partial_sums

    def time_per_term(height: int, width: int) -> float:
        count = -(-rows // height) * -(-columns // width) * batch_count * num_slices
        step_cost = height * width * (1 + split_costs.operand_load * (1 / height + 1 / width)) / split_costs.results_per_step
        return split_costs.min_step + step_cost * max(1.0, count / units)

    tiles = [(min(height, rows), min(width, columns)) for height in _TILE_ROWS for width in _TILE_COLUMNS]
    return terms / num_slices * min(time_per_term(*tile) for tile in tiles) + partial_sums

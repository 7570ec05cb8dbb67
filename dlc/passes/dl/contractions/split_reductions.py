"""Contractions of few results and long reductions, as sums of contractions of parts: there are groups for a whole device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import element_type_of, number, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Movement
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.dims import is_static
from dlc.ir import Context, ModuleOp, SSAValue, bf16, f16, f32
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.products import pairs_of, product_in_blocks
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.target import Target

# The least terms of a part, and the most parts.
_LEAST, _MOST = 128, 32
# Parts are of whole lines that items bring to local memory.
_WHOLE = 8
# Rows and columns of a group's results.
_ROWS, _COLUMNS = (4, 8, 16, 32, 64, 128), (16, 32, 64, 128)


@dataclass(frozen=True)
class SplitReductionsPass(TargetPass):
    """`split-reductions{target="opencl:gpu"}`: a contraction of few results as the sum of those of parts of what it reduces.

        %y = dl.matmul %x, %w : [64, 4608] · [4608, 512]
    →   %p = dl.dot_general (dl.reshape %x : [64, 16, 288]), (dl.reshape %w : [16, 288, 512]) : [16, 64, 512]
        %y = dl.reduce_sum %p along 0

        %y = dl.conv %x, %w : [1, 16, 16, 256] * [3, 3, 256, 256]
    →   %p = dl.conv %x, %w' {groups = 4} : [1, 14, 14, 4 · 256], %w' = [3, 3, 64, 4 · 256];  %y = dl.reduce_sum %p over groups

    Each group of items has some results and goes through all of their terms, so a product with few results keeps a few groups
    busy for long. Parts are groups of their own; what becomes of the sum, a bias or an activation, is computed where the parts
    are added up. How many parts there are follows from what steps, partial sums and the second kernel cost (`PartsOfSums`).
    Operands are read where they lie; weights of a convolution are rearranged, as an expression of weights. Sums of f16 and bf16
    are rounded once, at the end.

    Only for targets with groups. Contractions with open sizes stay, and convolutions in groups. Requires sums in blocks where
    they are too long, and products as they are to be computed.
    """

    name = "split-reductions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.target.groups is None:
            return
        rewriter = _Rewriter(self.target, WeightExpressions())
        for block in program_blocks(op):
            rewrite_forward(block, rewriter.product, MatmulOp, DotGeneralOp)
            rewrite_forward(block, rewriter.convolution, ConvOp)


@dataclass(frozen=True)
class _Rewriter:
    target: Target
    weights: WeightExpressions

    def product(self, op: MatmulOp | DotGeneralOp) -> Sequence[SSAValue] | None:
        pairs = pairs_of(op)
        if pairs is None or not _is_plain(op):
            return None
        batch, contracted = pairs
        lhs, rhs = (list(map(int, shape_of(v))) for v in op.operands)
        if not contracted or any(map(self.is_moved, op.operands)):
            return None
        pair = max(contracted, key=lambda pair: lhs[pair[0]])
        times, terms = prod(lhs[i] for i, _ in batch), prod(lhs[i] for i, _ in contracted)
        rows, columns = (prod(shape) // max(1, times * terms) for shape in (lhs, rhs))
        parts = parts_of(rows, columns, times, terms, lhs[pair[0]], self.target)
        if parts == 1:
            return None
        b, element = Build(op), element_type_of(op.result)
        wide = f32 if element in (f16, bf16) else element
        sums = product_in_blocks(b, op, batch, contracted, pair, lhs[pair[0]] // parts, wide)
        return [_total(b, sums, 0, op)]

    def is_moved(self, value: SSAValue) -> bool:
        """Whether the kernel of a product reads a value through what moves it, which a reshape between them would end."""
        moved = value.owner.x if isinstance(value.owner, TransposeOp) else value
        return isinstance(moved.owner, Movement) and not isinstance(moved.owner, ReshapeOp) and value not in self.weights

    def convolution(self, op: ConvOp) -> Sequence[SSAValue] | None:
        if number(op.groups) != 1 or op.w not in self.weights or not _is_plain(op):
            return None
        *taps, channels, outputs = map(int, shape_of(op.w))
        y = list(map(int, shape_of(op.result)))
        parts = parts_of(prod(y[:-1]), outputs, 1, prod(taps) * channels, channels, self.target)
        if parts == 1:
            return None
        b, element, rank = Build(op), element_type_of(op.result), len(taps)
        wide = f32 if element in (f16, bf16) else element
        w = b(ReshapeOp, op.w, shape=(*taps, parts, channels // parts, outputs))
        w = b(TransposeOp, w, permutation=(*range(rank), rank + 1, rank, rank + 2))
        w = b(ReshapeOp, w, shape=(*taps, channels // parts, parts * outputs))
        sums = {} if element_type_of(op.x) == element_type_of(w) == wide else {"result": wide}
        apart = b(ConvOp, op.x, w, **{**op.properties, "groups": parts, **sums})
        return [_total(b, b(ReshapeOp, apart, shape=(*y[:-1], parts, outputs)), len(y) - 1, op)]


def _total(b: Build, sums: SSAValue, axis: int, op: MatmulOp | DotGeneralOp | ConvOp) -> SSAValue:
    """The sum of parts that lie along an axis, as the result of `op`."""
    element = element_type_of(op.result)
    total = b(ReduceSumOp, sums, axes=(axis,), keepdims=True)
    if element_type_of(total) != element:
        total = b(CastOp, total, to=element)
    return b(ReshapeOp, total, shape=shape_of(op.result))


def _is_plain(op: MatmulOp | DotGeneralOp | ConvOp) -> bool:
    """Whether it adds up products of floats, all of known sizes."""
    return op.dot is None and is_float(element_type_of(op.result)) and all(is_static(shape_of(v)) for v in op.operands)


def parts_of(rows: int, columns: int, times: int, terms: int, size: int, target: Target) -> int:
    """How many parts what is reduced goes in: of `times` products of [rows, terms] · [terms, columns], whose terms are cut
    along an axis of `size`, on a target with groups."""
    if not rows * columns * times:
        return 1
    of = target.machine.groups.parts
    counts = [n for n in range(2, _MOST + 1) if size % n == 0 and size // n % _WHOLE == 0 and terms // n >= _LEAST]
    costs = {n: _cost(rows, columns, times, terms, n, target) for n in (1, *counts)}
    least = min(costs.values())
    if least >= of.worth * costs[1]:
        return 1
    return next(n for n in costs if costs[n] <= of.fewer * least)


def _cost(rows: int, columns: int, times: int, terms: int, parts: int, target: Target) -> float:
    """The time in steps: each group goes through the terms of a part, then the parts are added up.

    A group's step starts, and has as many products as it has results, and elements of both operands to bring. Groups that the
    device has at once share what it computes.
    """
    assert target.groups is not None
    units, costs, of = target.groups.units, target.machine.groups, target.machine.groups.parts
    apart = of.kernel + parts * times * rows * columns / of.partial if parts > 1 else 0
    if rows <= costs.few_rows:
        share = max(1.0, -(-columns // of.team_columns) * times * parts / units)
        return terms / parts * of.team_step * share + apart

    def step(height: int, width: int) -> float:
        count = -(-rows // height) * -(-columns // width) * times * parts
        each = height * width * (1 + of.operand * (1 / height + 1 / width)) / of.rate
        return of.start + each * max(1.0, count / units)

    tiles = [(min(height, rows), min(width, columns)) for height in _ROWS for width in _COLUMNS]
    return terms / parts * min(step(*tile) for tile in tiles) + apart

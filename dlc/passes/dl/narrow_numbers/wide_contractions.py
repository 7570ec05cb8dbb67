"""Contractions of 16-bit floats, in f32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.programs.ranges import ranges_of, representative
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dims import Range
from dlc.ir import Context, ModuleOp, Operation, SSAValue, bf16, f16, f32
from dlc.passes.base import TargetPass
from dlc.passes.dl.narrow_numbers.early_conversions import EarlyConversions, following
from dlc.passes.dl.narrow_numbers.pack_words import dot_of
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.target import Target


@dataclass(frozen=True)
class WideContractionsPass(TargetPass):
    """`wide-contractions{target="cpu"}`: contract(x, w) of f16 or bf16 = cast(contract(cast x, cast w)), with casts to f32.

        %r = dl.relu %a;  %p = dl.pad %r;  %y = dl.conv %p, %w
    →   %r = dl.relu %a;  %x = dl.cast %r;  %p = dl.pad %x;  %c = dl.conv %p, (dl.cast %w);  %y = dl.cast %c

    What a contraction computes stays the same, sums of 16-bit floats being those of f32, rounded once. But each number is
    converted once, by the kernel that makes it, not each time that a register tile reads it; whoever else reads it reads it
    from there. Weights of f32 are an expression of weights, and Winograd's algorithm sees them.

    Where weights are read once, by few rows, memory decides: they stay as they are. So do contractions of two that are
    data, and those for which the target multiplies words, whose sums are cast: `pack-words` is for them. Requires channels
    last, and scales folded.
    """

    name = "wide-contractions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ranges = ranges_of(op)
        constant = WeightExpressions()
        for block in program_blocks(op):
            rewrite_forward(block, _Rewriter(constant, self.target, ranges).rewritten, ConvOp, MatmulOp)


class _Rewriter:
    def __init__(self, constant: WeightExpressions, target: Target, ranges: Mapping[str, Range]) -> None:
        self.constant, self.target, self.ranges = constant, target, ranges
        self.wide = _Widened(f32)

    def rewritten(self, op: ConvOp | MatmulOp) -> Sequence[SSAValue] | None:
        if element_type_of(op.operands[0]) not in (f16, bf16):
            return None
        (x, w), element = op.operands, element_type_of(op.results[0])
        if x in self.constant or w not in self.constant:
            return None
        b = Build(op)
        if dot_of(op, self.constant, self.target.dots) is not None:
            return None if element == f32 else [b(CastOp, b(type(op), x, w, **{**op.properties, "result": f32}), to=element)]
        # Groups bring numbers to their own memory, which has room for more of 16 bits.
        if self.target.groups is not None or (isinstance(op, MatmulOp) and self.is_bound_by_memory(op)):
            return None
        y = b(type(op), self.wide.converted(x), b(CastOp, w, to=f32), **op.properties)
        return [b(CastOp, y, to=element)]

    def is_bound_by_memory(self, op: MatmulOp) -> bool:
        """Whether weights serve too few rows to be converted ahead; batches of matrices count as such."""
        rows = prod(representative(s, self.ranges) for s in shape_of(op.lhs)[:-1])
        return rank_of(op.rhs) != 2 or rows <= self.target.machine.few_rows


class _Widened(EarlyConversions):
    """Values of 16 bits as f32; whoever else reads one reads it from there, so that it is stored once."""

    def behind(self, x: SSAValue) -> SSAValue:
        readers = [use for use in x.uses if isinstance(use.operation, DlOp)]
        wide = super().behind(x)
        if isinstance(x.owner, Operation) and len(readers) > 1:
            back = following(wide)(CastOp, wide, to=element_type_of(x))
            self.found[back] = wide
            for use in readers:
                use.operation.operands[use.index] = back
        return wide

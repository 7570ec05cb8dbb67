"""Compute f16 and bf16 contractions in f32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.programs.size_ranges import representative, size_ranges
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import Context, ModuleOp, Operation, SSAValue, bf16, f16, f32
from dlc.passes.base import TargetPass
from dlc.passes.dl.low_precision.hoisted_conversions import HoistedConversions, builder_after
from dlc.passes.dl.low_precision.pack_dot_operands import find_weight_dot
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.shapes.ranges import SizeRange
from dlc.target import Target


@dataclass(frozen=True)
class UpcastContractionsPass(TargetPass):
    """`upcast-contractions{target="cpu"}`: contract(x, w) of f16 or bf16 = cast(contract(cast x, cast w)), with casts to f32.

        %r = dl.relu %a;  %p = dl.pad %r;  %y = dl.conv %p, %w
    →   %r = dl.relu %a;  %x = dl.cast %r;  %p = dl.pad %x;  %c = dl.conv %p, (dl.cast %w);  %y = dl.cast %c

    The result stays the same, since half-precision contractions accumulate in f32 and are rounded once. But each element is
    converted once, by the kernel that computes it, not each time a register tile loads it. Other users read the converted
    value too. f32 weights are a weight expression, and Winograd's algorithm applies to them.

    Products that read weights once, with few rows, are bound by memory and are not rewritten. Contractions of two data
    operands are not rewritten either, nor are those with a dot-product instruction on the target, whose f32 sums are cast:
    `pack-dot-operands` handles them. Requires channels-last layout and folded scales.
    """

    name = "upcast-contractions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ranges = size_ranges(op)
        constant = WeightExpressions()
        for block in program_blocks(op):
            rewrite_forward(block, _UpcastRewriter(constant, self.target, ranges).rewrite, ConvOp, MatmulOp)


class _UpcastRewriter:
    def __init__(self, constant: WeightExpressions, target: Target, ranges: Mapping[str, SizeRange]) -> None:
        self.constant, self.target, self.ranges = constant, target, ranges
        self.upcast_values = _UpcastValues(f32)

    def rewrite(self, op: ConvOp | MatmulOp) -> Sequence[SSAValue] | None:
        if element_type_of(op.operands[0]) not in (f16, bf16):
            return None
        (x, w), element = op.operands, element_type_of(op.results[0])
        if x in self.constant or w not in self.constant:
            return None
        build = DlBuilder(op)
        if find_weight_dot(op, self.constant, self.target.dot_products) is not None:
            return (
                None
                if element == f32
                else [build(CastOp, build(type(op), x, w, **{**op.properties, "result": f32}), to=element)]
            )
        # GPUs load operands to local memory, which holds more elements in half precision.
        if self.target.groups is not None or (isinstance(op, MatmulOp) and self.is_memory_bound(op)):
            return None
        y = build(type(op), self.upcast_values.convert(x), build(CastOp, w, to=f32), **op.properties)
        return [build(CastOp, y, to=element)]

    def is_memory_bound(self, op: MatmulOp) -> bool:
        """Return whether too few rows use each weight to pay for upcasting; batched matrices count as memory-bound."""
        rows = prod(representative(s, self.ranges) for s in shape_of(op.lhs)[:-1])
        return rank_of(op.rhs) != 2 or rows <= self.target.costs.few_rows


class _UpcastValues(HoistedConversions):
    """Converts half-precision values to f32. Other users read the f32 value too, so that only one of them is stored."""

    def cast_after(self, x: SSAValue) -> SSAValue:
        """Return `x` cast right after its producer, and replace all other uses by the cast value."""
        uses = [use for use in x.uses if isinstance(use.operation, DlOp)]
        upcast_value = super().cast_after(x)
        if isinstance(x.owner, Operation) and len(uses) > 1:
            half_precision_value = builder_after(upcast_value)(CastOp, upcast_value, to=element_type_of(x))
            self.converted_values[half_precision_value] = upcast_value
            for use in uses:
                use.operation.operands[use.index] = half_precision_value
        return upcast_value

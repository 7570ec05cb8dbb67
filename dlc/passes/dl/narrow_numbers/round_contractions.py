"""Contractions of f32 with weights, of numbers rounded to 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import ProductSum
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.movement.indexing import GatherOp
from dlc.dialects.dl.movement.shaping import ConcatOp, SliceOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.window import MaxPoolOp
from dlc.dims import is_static
from dlc.ir import Attribute, Context, ModuleOp, ModulePass, Operation, SSAValue, f32
from dlc.passes.dl.narrow_numbers.early_conversions import EarlyConversions, moves
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward, users

# The element types by the names of precisions.
_TYPES = {"bf16": ELEMENT_TYPES["bfloat16"], "f16": ELEMENT_TYPES["float16"]}


@dataclass(frozen=True)
class RoundContractionsPass(ModulePass):
    """`round-contractions{precision="bf16"}`: contract(x, w)  ≈  contract(cast x, cast w), casts to 16 bits and sums in f32.

        %r = dl.relu %a;  %p = dl.pad %r;  %y = dl.conv %p, %w
    →   %r = dl.relu %a;  %x = dl.cast %r;  %p = dl.pad %x;  %y = dl.conv %p, (dl.cast %w) {result = f32}

    Of contractions of f32 of which one operand is data and the other an expression of weights; those of two that are data, and
    of other types, stay. What is moved, joined or the largest of a window on its way there is moved as numbers of 16 bits: to
    round keeps their order. Requires scales folded and sums in blocks, since weights are rounded once, as they are read.
    """

    name = "round-contractions"
    precision: str = "bf16"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rounded = _Rounded(_TYPES[self.precision])
        for block in program_blocks(op):
            rewrite_forward(block, rounded.rewritten, ProductSum)


class _Rounded(EarlyConversions):
    """Numbers that contractions multiply, of 16 bits."""

    def __init__(self, to: Attribute) -> None:
        super().__init__(to)
        self.constant = WeightExpressions()
        # What nothing but contractions that are rounded reads.
        self.serving: set[SSAValue] = set()

    def rewritten(self, op: ProductSum) -> Sequence[SSAValue] | None:
        if not self.rounds(op):
            return None
        return [Build(op)(type(op), *map(self.converted, op.operands), **{**op.properties, "result": f32})]

    def rounds(self, op: Operation) -> bool:
        """Whether an op is a contraction of f32 of data with weights."""
        return (
            isinstance(op, ProductSum)
            and op.dot is None
            and all(element_type_of(v) == f32 for v in op.operands)
            and sum(v in self.constant for v in op.operands) == 1
        )

    def passes(self, op: DlOp) -> bool:
        """Also what keeps the order of numbers, if nobody else reads what it makes; no part of what is not rounded already."""
        if op.results[0] in self.constant:
            return False
        if isinstance(op, SliceOp):
            return op.x in self.found
        return moves(op) or (_keeps_order(op) and self.serves(op.results[0]))

    def serves(self, value: SSAValue) -> bool:
        """Whether nothing but contractions that are rounded reads a value, wherever it is moved first."""
        seen, pending = set[SSAValue](), [value]
        while pending:
            if (read := pending.pop()) in self.serving:
                continue
            seen.add(read)
            for reader in users(read):
                if self.rounds(reader):
                    continue
                if not moves(reader) and not _keeps_order(reader):
                    return False
                pending.append(reader.results[0])
        self.serving |= seen
        return True


def _keeps_order(op: Operation) -> bool:
    """Whether an op gives numbers of its operands, the largest ones or at other places, and no fewer than are in a table."""
    if isinstance(op, GatherOp):
        taken, made = map(shape_of, (op.x, op.result))
        return is_static((*taken, *made)) and prod(taken) <= prod(made)
    return isinstance(op, MaxPoolOp | ConcatOp)

"""Common subexpression elimination for `dl` ops."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.ir import Attribute, Block, Context, ModuleOp, ModulePass, SSAValue
from dlc.passes.dl.rewriting import program_blocks, replace

# Concatenations by number of operands, then by axis and operands.
_ConcatTable = dict[int, dict[tuple[int, tuple[SSAValue, ...]], ConcatOp]]


@dataclass(frozen=True)
class CsePass(ModulePass):
    """`cse`: replaces `dl` ops by earlier ones of the block with the same operands and properties.

        %a = dl.exp %x;  %b = dl.exp %x;  %c = dl.add %a, %b   →   %a = dl.exp %x;  %c = dl.add %a, %a
        %c = dl.concat %x, %y;  %d = dl.concat %x, %y, %z      →   %c = dl.concat %x, %y;  %d = dl.concat %c, %z

    One forward walk with a hash table. The first op keeps its location. A concatenation that starts like an earlier one
    extends it: its kernel has one loop per operand, which would grow with each layer of a DenseNet.
    """

    name = "cse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            merge_equal_ops(block)


def merge_equal_ops(block: Block) -> None:
    """Merge equal ops of a block."""
    first_ops: dict[tuple[type[DlOp], tuple[SSAValue, ...], frozenset[tuple[str, Attribute]]], DlOp] = {}
    concats: _ConcatTable = {}
    for inner in list(block.ops):
        if not isinstance(inner, DlOp):
            continue
        key = type(inner), tuple(inner.operands), frozenset(inner.properties.items())
        first = first_ops.setdefault(key, inner)
        if first is not inner:
            replace(inner, first.results)
        elif isinstance(inner, ConcatOp):
            _extend_earlier_concat(inner, concats)


def _extend_earlier_concat(op: ConcatOp, concats: _ConcatTable) -> None:
    """Rewrite a concatenation to extend the longest earlier one with the same first operands."""
    axis, values = op.concat_axis, tuple(op.values)
    # Only look up prefixes as long as some other concatenation: there may be thousands of operands.
    for count in sorted((count for count in concats if 1 < count < len(values)), reverse=True):
        if (prefix := concats[count].get((axis, values[:count]))) is not None:
            op.operands = [prefix.result, *values[count:]]
            break
    concats.setdefault(len(values), {})[axis, values] = op

"""Computes equal expressions once."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.ir import Attribute, Block, Context, ModuleOp, ModulePass, SSAValue
from dlc.passes.dl.rewriting import program_blocks, replace

# Concatenations by how many operands they have, and then by their axis and these.
_Joined = dict[int, dict[tuple[int, tuple[SSAValue, ...]], ConcatOp]]


@dataclass(frozen=True)
class CsePass(ModulePass):
    """`cse`: `dl` ops with the same operands and properties become the first of them.

        %a = dl.exp %x;  %b = dl.exp %x;  %c = dl.add %a, %b   →   %a = dl.exp %x;  %c = dl.add %a, %a
        %c = dl.concat %x, %y;  %d = dl.concat %x, %y, %z      →   %c = dl.concat %x, %y;  %d = dl.concat %c, %z

    One walk with one table. It keeps the first op's origin. A concatenation that begins as an earlier one does goes on from
    it: each has a loop for each operand, of which the layers of a dense net would have more and more.
    """

    name = "cse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            share(block)


def share(block: Block) -> None:
    """Makes equal ops of a block one."""
    seen: dict[tuple[type[DlOp], tuple[SSAValue, ...], frozenset[tuple[str, Attribute]]], DlOp] = {}
    joined: _Joined = {}
    for inner in list(block.ops):
        if not isinstance(inner, DlOp):
            continue
        key = type(inner), tuple(inner.operands), frozenset(inner.properties.items())
        first = seen.setdefault(key, inner)
        if first is not inner:
            replace(inner, first.results)
        elif isinstance(inner, ConcatOp):
            _go_on(inner, joined)


def _go_on(op: ConcatOp, joined: _Joined) -> None:
    """Makes a concatenation go on from the longest earlier one that it begins with."""
    axis, values = op.joined_axis, tuple(op.values)
    # Of thousands of operands few beginnings are looked for: those as long as another concatenation.
    for count in sorted((count for count in joined if 1 < count < len(values)), reverse=True):
        if (begun := joined[count].get((axis, values[:count]))) is not None:
            op.operands = [begun.result, *values[count:]]
            break
    joined.setdefault(len(values), {})[axis, values] = op

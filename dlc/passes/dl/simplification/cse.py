"""Computes equal expressions once."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp
from dlc.ir import Attribute, Block, Context, ModuleOp, ModulePass, SSAValue
from dlc.passes.dl.rewriting import program_blocks, replace


@dataclass(frozen=True)
class CsePass(ModulePass):
    """`cse`: `dl` ops with the same operands and properties become the first of them.

        %a = dl.exp %x;  %b = dl.exp %x;  %c = dl.add %a, %b   →   %a = dl.exp %x;  %c = dl.add %a, %a

    One walk with one table. It keeps the first op's origin.
    """

    name = "cse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            share(block)


def share(block: Block) -> None:
    """Makes equal ops of a block one."""
    seen: dict[tuple[str, tuple[SSAValue, ...], tuple[tuple[str, Attribute], ...]], DlOp] = {}
    for inner in list(block.ops):
        if not isinstance(inner, DlOp):
            continue
        key = (inner.name, tuple(inner.operands), tuple(sorted(inner.properties.items(), key=lambda item: item[0])))
        first = seen.setdefault(key, inner)
        if first is not inner:
            replace(inner, first.results)

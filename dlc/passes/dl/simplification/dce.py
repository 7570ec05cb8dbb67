"""Dead code elimination for `dl` ops."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.ir import Context, ModuleOp, ModulePass
from dlc.passes.dl.rewriting import erase_dead_ops, program_blocks


@dataclass(frozen=True)
class DcePass(ModulePass):
    """`dce`: erases `dl` ops whose results are unused, and their producers, except those that define data-dependent sizes.

    %a = dl.exp %x;  %b = dl.neg %a;  func.return %x   →   func.return %x
    """

    name = "dce"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            erase_dead_ops(block)

"""How much a kernel computes, and how often it does."""

from __future__ import annotations

from collections import Counter

from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dims import Size, product
from dlc.ir import ModuleOp, Operation, all_of


def runs(module: ModuleOp) -> Counter[str]:
    """How often the program runs each kernel, as far as sizes tell: a body that data repeats counts once."""
    counts = Counter[str]()
    for op in all_of(module, DispatchOp):
        counts[op.symbol] += _times(op)
    return counts


def _times(op: Operation) -> int:
    times, outer = 1, op.parent_op()
    while outer is not None:
        if isinstance(outer, ScanOp) and isinstance(outer.steps, int):
            times *= outer.steps
        outer = outer.parent_op()
    return times


def flops(module: ModuleOp) -> dict[str, Size]:
    """The operations of the contractions of each kernel of a module, in its sizes: a multiply-add is two, of words as well."""
    return {op.symbol: _flops(op) for op in module.ops if isinstance(op, KernelOp)}


def _flops(kernel: KernelOp) -> Size:
    total: Size = 0
    for op in kernel.body.block.ops:
        if isinstance(op, Contraction):
            total = total + 2 * product(op.structure().extents)
    return total

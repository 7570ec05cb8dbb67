"""Count the operations of a kernel, and its runs."""

from __future__ import annotations

from collections import Counter

from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.ir import ModuleOp, Operation, walk_ops
from dlc.shapes.dims import Size, product


def count_kernel_runs(module: ModuleOp) -> Counter[str]:
    """Count the runs of each kernel; a body with a dynamic or data-dependent trip count is counted once."""
    counts = Counter[str]()
    for op in walk_ops(module, DispatchOp):
        counts[op.symbol] += execution_count(op)
    return counts


def execution_count(op: Operation) -> int:
    """Return how often a loop nest runs an op; a dynamic or data-dependent trip count counts once."""
    times, parent = 1, op.parent_op()
    while parent is not None:
        if isinstance(parent, ScanOp) and isinstance(parent.steps, int):
            times *= parent.steps
        parent = parent.parent_op()
    return times


def count_kernel_flops(module: ModuleOp) -> dict[str, Size]:
    """Return the FLOPs of each kernel's contractions, in terms of its sizes; a multiply-add counts as two."""
    return {op.symbol: _flops(op) for op in module.ops if isinstance(op, KernelOp)}


def _flops(kernel: KernelOp) -> Size:
    total: Size = 0
    for op in kernel.body.block.ops:
        if isinstance(op, Contraction):
            total = total + 2 * product(op.structure().extents)
    return total

"""How much a kernel computes."""

from __future__ import annotations

from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.program import KernelOp
from dlc.dims import Size, product
from dlc.ir import ModuleOp


def flops(module: ModuleOp) -> dict[str, Size]:
    """The floating-point operations of the contractions of each kernel of a module, in its sizes; a multiply-add is two."""
    return {op.symbol: _flops(op) for op in module.ops if isinstance(op, KernelOp)}


def _flops(kernel: KernelOp) -> Size:
    total: Size = 0
    for op in kernel.body.block.ops:
        if isinstance(op, Contraction):
            total = total + 2 * product(op.structure().extents)
    return total

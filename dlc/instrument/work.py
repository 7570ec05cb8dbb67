"""How much a kernel computes."""

from __future__ import annotations

from math import prod

from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.program import KernelOp
from dlc.ir import ModuleOp


def flops(module: ModuleOp) -> dict[str, int]:
    """The floating-point operations of the contractions of each kernel of a module; a multiply-add is two."""
    kernels = [op for op in module.ops if isinstance(op, KernelOp)]
    return {
        kernel.symbol: sum(2 * prod(op.structure().extents) for op in kernel.body.block.ops if isinstance(op, Contraction))
        for kernel in kernels
    }

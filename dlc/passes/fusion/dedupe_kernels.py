"""Equal kernels are one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from dlc.dialects.dl.program import DispatchOp, KernelOp
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, SymbolRefAttr


@dataclass(frozen=True)
class DedupeKernelsPass(ModulePass):
    """`dedupe-kernels`: dispatches of kernels that differ in nothing but names run the first of them.

        dl.dispatch @conv_relu(…);  dl.dispatch @conv_relu_1(…)   →   dl.dispatch @conv_relu(…);  dl.dispatch @conv_relu(…)

    Origins are compared as places in the dispatch's list, so that each dispatch keeps its own.
    """

    name = "dedupe-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        first: dict[Hashable, str] = {}
        renamed: dict[str, str] = {}
        for kernel in [k for k in op.ops if isinstance(k, KernelOp)]:
            renamed[kernel.symbol] = first.setdefault(_structure(kernel), kernel.symbol)
            if renamed[kernel.symbol] != kernel.symbol:
                kernel.detach()
                kernel.erase()
        for dispatch in op.walk():
            if isinstance(dispatch, DispatchOp) and renamed.get(dispatch.symbol, dispatch.symbol) != dispatch.symbol:
                dispatch.callee = SymbolRefAttr(renamed[dispatch.symbol])


def _structure(kernel: KernelOp) -> Hashable:
    """What two kernels share if and only if they are equal but for the names of values and themselves."""
    numbers: dict[SSAValue, int] = {}
    for argument in kernel.body.block.args:
        numbers[argument] = len(numbers)
    ops: list[Hashable] = []
    for op in kernel.body.block.ops:
        ops.append(
            (
                op.name,
                tuple(numbers[v] for v in op.operands),
                tuple(sorted(op.properties.items(), key=lambda item: item[0])),
                tuple(op.result_types),
                op.location,
            )
        )
        for result in op.results:
            numbers[result] = len(numbers)
    return (kernel.function_type, tuple(ops))

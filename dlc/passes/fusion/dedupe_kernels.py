"""Merge equal kernels."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, output_aliases
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue, StringAttr, SymbolRefAttr, walk_ops


@dataclass(frozen=True)
class DedupeKernelsPass(ModulePass):
    """`dedupe-kernels`: merge kernels that are equal except for names, and renumber the remaining ones.

        dl.dispatch @conv_relu(…);  dl.dispatch @conv_relu_1(…)   →   dl.dispatch @conv_relu(…);  dl.dispatch @conv_relu(…)

    Origins are compared as indices into the dispatch's list, so that each dispatch keeps its own.
    """

    name = "dedupe-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        first: dict[Hashable, KernelOp] = {}
        shared: dict[str, KernelOp] = {}
        for kernel in [k for k in op.ops if isinstance(k, KernelOp)]:
            shared[kernel.symbol] = first.setdefault(structure_of(kernel), kernel)
            if shared[kernel.symbol] is not kernel:
                kernel.detach()
                kernel.erase()
        _number(first.values())
        for dispatch in walk_ops(op, DispatchOp):
            if dispatch.symbol in shared:
                dispatch.callee = SymbolRefAttr(shared[dispatch.symbol].symbol)


def stem_of(name: str) -> str:
    """Return the name of a kernel without its number."""
    return re.sub(r"_\d+$", "", name)


def _number(kernels: Iterable[KernelOp]) -> None:
    """Number the remaining kernels of one name: `conv_add`, `conv_add_1`, …"""
    counts: dict[str, int] = {}
    for kernel in kernels:
        stem = stem_of(kernel.symbol)
        count = counts[stem] = counts.get(stem, -1) + 1
        kernel.sym_name = StringAttr(f"{stem}_{count}" if count else stem)


def structure_of(kernel: KernelOp, ignored: Collection[Operation] = ()) -> Hashable:
    """Return a key that is equal if and only if kernels are, except for names and the properties of `ignored` ops."""
    numbers: dict[SSAValue, int] = {}
    for argument in kernel.body.block.args:
        numbers[argument] = len(numbers)
    ops: list[Hashable] = []
    for op in kernel.body.block.ops:
        ops.append(
            (
                op.name,
                tuple(numbers[v] for v in op.operands),
                () if op in ignored else tuple(sorted(op.properties.items(), key=lambda item: item[0])),
                tuple(op.result_types),
                op.location,
            )
        )
        for result in op.results:
            numbers[result] = len(numbers)
    return (kernel.function_type, kernel.representative, kernel.zeros, tuple(output_aliases(kernel).items()), tuple(ops))

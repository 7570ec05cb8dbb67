"""Merge equal kernels."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, output_aliases
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue, StringAttr, SymbolRefAttr, erase_op, walk_ops


@dataclass(frozen=True)
class DedupeKernelsPass(ModulePass):
    """`dedupe-kernels`: merge kernels that are equal except for names, and renumber the remaining ones.

        dl.dispatch @conv_relu(…);  dl.dispatch @conv_relu_1(…)   →   dl.dispatch @conv_relu(…);  dl.dispatch @conv_relu(…)

    Locations are compared as indices into a dispatch's fused location, so that each dispatch has its own locations.
    """

    name = "dedupe-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernel_by_structure: dict[Hashable, KernelOp] = {}
        merged_kernels: dict[str, KernelOp] = {}
        for kernel in [k for k in op.ops if isinstance(k, KernelOp)]:
            merged_kernels[kernel.symbol] = kernel_by_structure.setdefault(structural_key(kernel), kernel)
            if merged_kernels[kernel.symbol] is not kernel:
                erase_op(kernel)
        _renumber(kernel_by_structure.values())
        for dispatch in walk_ops(op, DispatchOp):
            if dispatch.symbol in merged_kernels:
                dispatch.callee = SymbolRefAttr(merged_kernels[dispatch.symbol].symbol)


def strip_numeric_suffix(name: str) -> str:
    """Return the name of a kernel without its numeric suffixes: `conv` for `conv_1_2`."""
    return re.sub(r"(_\d+)+$", "", name)


def _renumber(kernels: Iterable[KernelOp]) -> None:
    """Number the kernels of each name: `conv_add`, `conv_add_1`, …"""
    counts: dict[str, int] = {}
    for kernel in kernels:
        stem = strip_numeric_suffix(kernel.symbol)
        count = counts[stem] = counts.get(stem, -1) + 1
        kernel.sym_name = StringAttr(f"{stem}_{count}" if count else stem)


def structural_key(kernel: KernelOp, ignored: Collection[Operation] = ()) -> Hashable:
    """Return a key that only equal kernels share, ignoring names and the properties of `ignored` ops."""
    value_numbers: dict[SSAValue, int] = {}
    for argument in kernel.body.block.args:
        value_numbers[argument] = len(value_numbers)
    ops: list[Hashable] = []
    for op in kernel.body.block.ops:
        ops.append(
            (
                op.name,
                tuple(value_numbers[v] for v in op.operands),
                () if op in ignored else tuple(sorted(op.properties.items(), key=lambda item: item[0])),
                tuple(op.result_types),
                op.location,
            )
        )
        for result in op.results:
            value_numbers[result] = len(value_numbers)
    return (kernel.function_type, kernel.representative, kernel.zeros, tuple(output_aliases(kernel).items()), tuple(ops))

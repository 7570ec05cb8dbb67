"""Kernels that differ in numbers alone are given them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import shape_of, tensor_of
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.entry import entry_of
from dlc.ir import Attribute, Context, DenseIntOrFPElementsAttr, FunctionType, ModuleOp, ModulePass, SSAValue, all_of
from dlc.passes.fusion.dedupe_kernels import structure_of

# As many kernels are made one. Fewer are soon compiled, and a literal in a kernel is never read from memory.
_FEWEST = 8


@dataclass(frozen=True)
class ShareLiteralsPass(ModulePass):
    """`share-literals`: of eight or more kernels that are equal but for numbers, each takes those that differ as arguments.

        dl.dispatch @mul_sin(%x);  dl.dispatch @mul_sin_1(%x); …     each with a `dl.constant` of its own
      →
        dl.dispatch @mul_sin(%x, %2);  dl.dispatch @mul_sin_1(%x, %3); …     equal kernels, which dedupe-kernels makes one

    Of numbers, only scalars of floats that elementwise ops read: no plan hangs on those. They become weights of one element.
    """

    name = "share-literals"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        alike: dict[Hashable, list[tuple[KernelOp, list[ConstantOp]]]] = {}
        for kernel in (k for k in op.ops if isinstance(k, KernelOp)):
            if literals := list(_literals(kernel)):
                alike.setdefault(structure_of(kernel, literals), []).append((kernel, literals))
        taken: dict[str, list[DenseIntOrFPElementsAttr]] = {}
        for group in alike.values():
            values = [[literal.value for literal in literals] for _, literals in group]
            if len(set(map(tuple, values))) < _FEWEST:
                continue
            differing = [k for k, column in enumerate(zip(*values, strict=True)) if len(set(column)) > 1]
            for kernel, literals in group:
                taken[kernel.symbol] = [literals[k].value for k in differing]
                _take(kernel, [literals[k] for k in differing])
        if taken:
            _give(op, taken)


def _literals(kernel: KernelOp) -> Iterator[ConstantOp]:
    """The numbers that a kernel could as well be given."""
    for op in kernel.body.block.ops:
        if not isinstance(op, ConstantOp) or shape_of(op.result) or not is_float(tensor_of(op.result).element_type):
            continue
        if all(isinstance(use.operation, Elementwise) for use in op.result.uses):
            yield op


def _take(kernel: KernelOp, literals: Sequence[ConstantOp]) -> None:
    """Makes numbers of a kernel its last arguments."""
    block, known = kernel.body.block, kernel.function_type
    for literal in literals:
        argument = block.insert_arg(literal.result.type, len(block.args))
        argument.name_hint = "literal"
        literal.result.replace_all_uses_with(argument)
        literal.detach()
        literal.erase()
    kernel.function_type = FunctionType.from_lists([a.type for a in block.args], known.outputs.data)


def _give(module: ModuleOp, taken: dict[str, list[DenseIntOrFPElementsAttr]]) -> None:
    """Gives the kernels their numbers wherever they run; each number is one value, at the entry's start."""
    block, values = entry_of(module).body.block, dict[Attribute, SSAValue]()
    first = block.first_op
    assert first is not None
    for op in all_of(module, DispatchOp) if taken else ():
        if op.symbol in taken:
            for number in taken[op.symbol]:
                if number not in values:
                    constant = ConstantOp.create(properties={"value": number}, result_types=[number.type])
                    block.insert_op_before(constant, first)
                    values[number] = constant.result
            op.operands = [*op.operands, *(values[number] for number in taken[op.symbol])]

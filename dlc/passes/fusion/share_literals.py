"""Pass literals as arguments, so that kernels that differ only in literals can be merged."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import shape_of, tensor_of
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.entry import entry_of
from dlc.ir import (
    Attribute,
    Context,
    DenseIntOrFPElementsAttr,
    FunctionType,
    ModuleOp,
    ModulePass,
    SSAValue,
    erase_op,
    walk_ops,
)
from dlc.passes.fusion.dedupe_kernels import structural_key

# Minimum number of kernels to merge. Fewer kernels compile quickly anyway, and literals need no memory reads.
_MIN_EQUAL_KERNELS = 8


@dataclass(frozen=True)
class ShareLiteralsPass(ModulePass):
    """`share-literals`: pass literals as arguments if eight or more kernels differ only in them.

        dl.dispatch @mul_sin(%x);  dl.dispatch @mul_sin_1(%x); …     each with a `dl.constant` of its own
      →
        dl.dispatch @mul_sin(%x, %2);  dl.dispatch @mul_sin_1(%x, %3); …     equal kernels, which dedupe-kernels makes one

    Applies only to float scalars of elementwise ops, on which no tile plan depends. They become weights of one element.
    """

    name = "share-literals"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        equal_kernels: dict[Hashable, list[tuple[KernelOp, list[ConstantOp]]]] = {}
        for kernel in (k for k in op.ops if isinstance(k, KernelOp)):
            if literals := list(_possible_arguments(kernel)):
                equal_kernels.setdefault(structural_key(kernel, literals), []).append((kernel, literals))
        literal_arguments: dict[str, list[DenseIntOrFPElementsAttr]] = {}
        for group in equal_kernels.values():
            values = [[literal.value for literal in literals] for _, literals in group]
            if len(set(map(tuple, values))) < _MIN_EQUAL_KERNELS:
                continue
            differing = [k for k, column in enumerate(zip(*values, strict=True)) if len(set(column)) > 1]
            for kernel, literals in group:
                literal_arguments[kernel.symbol] = [literals[k].value for k in differing]
                _literals_to_arguments(kernel, [literals[k] for k in differing])
        if literal_arguments:
            _pass_literals(op, literal_arguments)


def _possible_arguments(kernel: KernelOp) -> Iterator[ConstantOp]:
    """Yield the constants of a kernel that could be arguments."""
    for op in kernel.body.block.ops:
        if not isinstance(op, ConstantOp) or shape_of(op.result) or not is_float(tensor_of(op.result).element_type):
            continue
        if all(isinstance(use.operation, Elementwise) for use in op.result.uses):
            yield op


def _literals_to_arguments(kernel: KernelOp, literals: Sequence[ConstantOp]) -> None:
    """Turn constants of a kernel into its last arguments."""
    block, function_type = kernel.body.block, kernel.function_type
    for literal in literals:
        argument = block.insert_arg(literal.result.type, len(block.args))
        argument.name_hint = "literal"
        literal.result.replace_all_uses_with(argument)
        erase_op(literal)
    kernel.function_type = FunctionType.from_lists([a.type for a in block.args], function_type.outputs.data)


def _pass_literals(module: ModuleOp, literal_arguments: dict[str, list[DenseIntOrFPElementsAttr]]) -> None:
    """Pass the literals at all dispatches; equal literals are one constant at the start of the entry function."""
    block, values = entry_of(module).body.block, dict[Attribute, SSAValue]()
    first = block.first_op
    assert first is not None
    for op in walk_ops(module, DispatchOp) if literal_arguments else ():
        if op.symbol in literal_arguments:
            for number in literal_arguments[op.symbol]:
                if number not in values:
                    constant = ConstantOp.create(properties={"value": number}, result_types=[number.type])
                    block.insert_op_before(constant, first)
                    values[number] = constant.result
            op.operands = [*op.operands, *(values[number] for number in literal_arguments[op.symbol])]

"""Derive smaller programs from a program: some of its ops, with their operands as inputs, or all ops with smaller sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from dlc.compiler import Program
from dlc.dialects.dl.base import Array, DlOp, Tensor, attribute, element_type_of, ints, shape_of, tensor_of, tensor_type
from dlc.dialects.dl.creation import ConstantOp, WeightOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.entry import entry_of
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.entry import entry_function
from dlc.ir import (
    Attribute,
    Block,
    DenseArrayBase,
    ModuleOp,
    Operation,
    SSAValue,
    SymbolRefAttr,
    func,
)
from dlc.passes.base import kernels_of
from dlc.weights import WeightStore

# Properties of ops that contain sizes.
_SIZE_ATTRIBUTES = ("shape", "limits", "size", "sizes")


@dataclass(frozen=True)
class ProgramCase:
    """A program with its inputs."""

    program: Program
    arrays: tuple[Array, ...]


def ops_of(program: Program) -> list[Operation]:
    """Return the ops of the entry except weights and constants."""
    block = entry_of(program.module).body.block
    return [op for op in block.ops if op is not block.last_op and not isinstance(op, WeightOp | ConstantOp)]


def extract_subprogram(case: ProgramCase, selected: Sequence[Operation], values: Mapping[SSAValue, Array]) -> ProgramCase:
    """Return the program of the ops in `selected`.

    Operands from other ops become inputs; results that are used only by other ops become outputs.
    """
    selected_set, used_values = set(selected), list(dict.fromkeys(v for op in selected for v in op.operands))
    constants = [v for v in used_values if isinstance(v.owner, WeightOp | ConstantOp)]
    inputs = [v for v in used_values if v not in constants and v.owner not in selected_set]
    outputs = [r for op in selected for r in op.results if selected_set.isdisjoint(use.operation for use in r.uses)]
    block = Block(arg_types=[v.type for v in inputs])
    env: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for value in constants:
        block.add_op(cast(Operation, value.owner).clone(env))
    for op in selected:
        block.add_op(op.clone(env))
    kernel_names = {op.symbol for op in selected if isinstance(op, DispatchOp)}
    module = case.program.module
    kernels = [k.clone() for k in module.ops if isinstance(k, KernelOp) and k.symbol in kernel_names]
    kernels += [k.clone() for k in kernels_of(module) if k.sym_name.data in kernel_names]
    program = replace(case.program, module=ModuleOp([_main(block, [env[v] for v in outputs]), *kernels]))
    values_by_input = dict(zip(entry_of(module).args, case.arrays, strict=True)) | dict(values)
    return ProgramCase(_drop_unused_weights(program), tuple(values_by_input[v] for v in inputs))


def resize_program(case: ProgramCase, old_size: int, new_size: int) -> ProgramCase | None:
    """Return the program with axes of `new_size` instead of `old_size`.

    Return None if an op rejects it, or the program has kernels.
    """
    main = entry_of(case.program.module)
    block = Block(arg_types=[_resized_type(a.type, old_size, new_size) for a in main.args])
    env: dict[SSAValue, SSAValue] = dict(zip(main.args, block.args, strict=True))
    weights = WeightStore()
    return_values: list[SSAValue] = []
    for op in main.body.block.ops:
        if isinstance(op, func.ReturnOp):
            return_values = [env[v] for v in op.operands]
        elif not isinstance(op, DlOp):
            return None
        else:
            properties = dict(op.properties)
            if isinstance(op, WeightOp):
                array = case.program.weights[op.symbol.string_value()]
                weight_name = weights.add(_resized_array(array, old_size, new_size), hint=op.symbol.string_value())
                properties |= {"symbol": SymbolRefAttr(weight_name), "type": _resized_type(op.type, old_size, new_size)}
            properties |= {k: _resized_list(v, old_size, new_size) for k, v in properties.items() if k in _SIZE_ATTRIBUTES}
            resized_op = type(op).create(operands=[env[v] for v in op.operands], properties=properties)
            resized_op.location = op.location
            try:
                resized_op.set_result_types(resized_op.infer())
            except (ShapeError, DTypeError):
                return None
            block.add_op(resized_op)
            env.update(zip(op.results, resized_op.results, strict=True))
    program = replace(case.program, module=ModuleOp([_main(block, return_values)]), weights=weights)
    return ProgramCase(program, tuple(_resized_array(a, old_size, new_size) for a in case.arrays))


def sizes_of(case: ProgramCase) -> list[int]:
    """Return the sizes above 1 of the program's inputs and weights, in descending order."""
    main = entry_of(case.program.module)
    values = [*main.args, *(op.result for op in main.body.block.ops if isinstance(op, WeightOp))]
    return sorted({int(n) for v in values for n in shape_of(v) if isinstance(n, int) and n > 1}, reverse=True)


def _main(block: Block, results: Sequence[SSAValue]) -> func.FuncOp:
    return entry_function(block, [f"x{k}" for k in range(len(block.args))], results, [f"y{k}" for k in range(len(results))])


def _drop_unused_weights(program: Program) -> Program:
    names = {op.symbol.string_value() for op in program.module.walk() if isinstance(op, WeightOp)}
    return replace(program, weights=program.weights.subset(names))


def _resized_type(type_: Attribute, old_size: int, new_size: int) -> Tensor:
    tensor = tensor_of(type_)
    return tensor_type((new_size if n == old_size else n for n in shape_of(tensor)), element_type_of(tensor))


def _resized_array(array: Array, old_size: int, new_size: int) -> Array:
    return array[tuple(slice(new_size if n == old_size else n) for n in array.shape)]


def _resized_list(value: Attribute, old_size: int, new_size: int) -> Attribute:
    if not isinstance(value, DenseArrayBase):
        return value
    return attribute(tuple(new_size if n == old_size else n for n in ints(cast(Attribute, value))))

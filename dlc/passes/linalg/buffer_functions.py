"""The signature and attributes of kernel functions, and functions on buffers for library kernels."""

from __future__ import annotations

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.interfaces import storage_type
from dlc.dialects.dl.programs.program import OUTPUT_ALIASES, REPRESENTATIVE, ZEROS, KernelOp
from dlc.dialects.sizes import argument_size_attributes, size_arguments, symbol
from dlc.ir import ArrayAttr, Block, FunctionType, Region, SSAValue, UnitAttr, func, index
from dlc.passes.types import memref_type


def function_on_buffers(kernel: KernelOp) -> tuple[func.FuncOp, dict[SSAValue, SSAValue]]:
    """Create an empty function of a kernel's operands, results and runtime sizes; map the kernel's values to buffers."""
    values = [*kernel.body.block.args, *kernel.yielded]
    types = [memref_type(storage_type(element_type_of(v)), shape_of(v)) for v in values]
    body = Block(arg_types=[*types, *(index for _ in kernel.representative)])
    function = func.FuncOp(kernel.symbol, FunctionType.from_lists(body.arg_types, []), Region(body))
    copy_kernel_attributes(function, kernel)
    size_attributes = [
        argument_size_attributes(shape) for shape in (*map(shape_of, values), *(() for _ in kernel.representative))
    ]
    if any(attributes.data for attributes in size_attributes):
        function.properties["arg_attrs"] = ArrayAttr(size_attributes)
    for value, argument in zip(values, body.args, strict=False):
        argument.name_hint = value.name_hint
    for k, argument in enumerate(results := body.args[len(kernel.body.block.args) : len(values)]):
        argument.name_hint = result_name(k, len(results))
    return function, dict(zip(values, body.args, strict=False))


def copy_kernel_attributes(function: func.FuncOp, kernel: KernelOp) -> None:
    """Copy a kernel's attributes and location to its function, and name the size arguments."""
    function.attributes["kernel"] = UnitAttr()
    size_attributes = (REPRESENTATIVE, OUTPUT_ALIASES, ZEROS)
    function.attributes |= {name: kernel.attributes[name] for name in size_attributes if name in kernel.attributes}
    function.location = kernel.location
    for k, argument in enumerate(size_arguments(function.body.block)):
        argument.name_hint = symbol(k)


def result_name(k: int, count: int) -> str:
    """Return the buffer name of the `k`th of `count` results."""
    return f"out{k}" if count > 1 else "out"

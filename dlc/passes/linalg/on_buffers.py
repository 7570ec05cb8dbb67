"""What the function of a kernel is beside its body; and one on buffers, for a kernel that is loops from the start."""

from __future__ import annotations

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.interfaces import storage_type
from dlc.dialects.dl.programs.program import OVER, REPRESENTATIVE, ZEROS, KernelOp
from dlc.dialects.sizes import say_sizes, size_arguments, symbol
from dlc.ir import ArrayAttr, Block, FunctionType, Region, SSAValue, UnitAttr, func, index
from dlc.passes.types import memref_type


def function_on_buffers(kernel: KernelOp) -> tuple[func.FuncOp, dict[SSAValue, SSAValue]]:
    """An empty function of the kernel's operands, its results and its sizes; and the buffers of values of the kernel."""
    values = [*kernel.body.block.args, *kernel.yielded]
    types = [memref_type(storage_type(element_type_of(v)), shape_of(v)) for v in values]
    body = Block(arg_types=[*types, *(index for _ in kernel.representative)])
    function = func.FuncOp(kernel.symbol, FunctionType.from_lists(body.arg_types, []), Region(body))
    describe(function, kernel)
    said = [say_sizes(shape) for shape in (*map(shape_of, values), *(() for _ in kernel.representative))]
    if any(attributes.data for attributes in said):
        function.properties["arg_attrs"] = ArrayAttr(said)
    for value, argument in zip(values, body.args, strict=False):
        argument.name_hint = value.name_hint
    for k, argument in enumerate(results := body.args[len(kernel.body.block.args) : len(values)]):
        argument.name_hint = result_name(k, len(results))
    return function, dict(zip(values, body.args, strict=False))


def describe(function: func.FuncOp, kernel: KernelOp) -> None:
    """Gives a kernel's function all that it has beside its body."""
    function.attributes["kernel"] = UnitAttr()
    said = (REPRESENTATIVE, OVER, ZEROS)
    function.attributes |= {name: kernel.attributes[name] for name in said if name in kernel.attributes}
    function.location = kernel.location
    for number, argument in enumerate(size_arguments(function.body.block)):
        argument.name_hint = symbol(number)


def result_name(k: int, count: int) -> str:
    """What the buffer of a result is called, the `k`th of so many."""
    return f"out{k}" if count > 1 else "out"

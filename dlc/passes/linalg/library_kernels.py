"""Lower kernels of one library op to loops on buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.interfaces import LibraryKernel, is_unsigned
from dlc.dialects.dl.programs.program import KernelOp
from dlc.errors import UnsupportedError
from dlc.ir import func
from dlc.passes.kernel_builder import Buffer, KernelBuilder
from dlc.passes.linalg.buffer_functions import function_on_buffers
from dlc.passes.linalg.loop_bodies import inline_body
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.shapes.dims import Size

# A function that returns the loops of an op, as the body of a `dl.loops`: a function on buffers, one per operand and result, of
# the same elements in row-major order, and on sizes, with the values of these sizes.
BodyTracer: TypeAlias = Callable[[Any], tuple[func.FuncOp, Sequence[Size]]]
# Tables of the tracers of ops; `dlc/pipelines.py` adds that of dlc/library_kernels.
tracer_tables: list[Mapping[type[LibraryKernel], BodyTracer]] = [
    {dl.LoopsOp: lambda op: (op.body.function, op.size_arguments)},
]


def match_library_kernel(kernel: KernelOp) -> LibraryKernel | None:
    """Return the op of a library kernel; None for other kernels."""
    return next((op for op in kernel.body.block.ops if isinstance(op, LibraryKernel)), None)


def lower_library_kernel(kernel: KernelOp, op: LibraryKernel) -> func.FuncOp:
    """Return the function of a library kernel; its arguments are the operands, the results, and the kernel's sizes.

    Raises UndecidableError where the loops depend on a comparison of symbolic sizes that is not proved.
    """
    function, arguments = function_on_buffers(kernel)
    builder = KernelBuilder(OpBuilder(ConstantPool(function), function.body.block, op.location))
    if any(0 not in shape_of(r) for r in op.results):
        tracer = next((table[type(op)] for table in tracer_tables if type(op) in table), None)
        if tracer is None:
            raise UnsupportedError(
                f"{op.name} has no loops; add them to dlc/library_kernels/registry.py, or to the library_kernels of its plug-in"
            )
        values = (*op.operands, *op.results)
        buffers = [Buffer(builder, arguments[v], not is_unsigned(element_type_of(v))) for v in values]
        inline_body(builder, *tracer(op), buffers)
    builder.op_builder.insert(func.ReturnOp())
    return function

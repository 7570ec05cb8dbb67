"""The host program after planning: launches of kernels on buffers at fixed places.

    %w = host.weight @w7 : memref<64x64xf32>
    %b = host.arena 4096 : memref<1x56x56x64xf32>
    host.launch @conv_relu(%x, %w, %b) : memref<…>, memref<…>, memref<…>

Entry arguments are the program's inputs, then its outputs, as memrefs; the latter carry the attribute `host.output`. Views
of a buffer are `memref.reinterpret_cast`; `memref.copy` fills an output that no kernel writes. Element types are those of
the `dl` dialect, `ui8` among them: a kernel that takes `i8` there sees the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import UnsupportedError
from dlc.ir import (
    Attribute,
    BlockArgument,
    Dialect,
    IntegerAttr,
    IRDLOperation,
    MemRefType,
    ModuleOp,
    Pure,
    SSAValue,
    SymbolRefAttr,
    func,
    i64,
    irdl_op_definition,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)


@irdl_op_definition
class WeightOp(IRDLOperation):
    """An array of the weights store, as a read-only buffer."""

    name = "host.weight"
    symbol = prop_def(SymbolRefAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$symbol attr-dict `:` type($result)"

    def __init__(self, symbol: str, type: Attribute) -> None:
        super().__init__(properties={"symbol": SymbolRefAttr(symbol)}, result_types=[type])


@irdl_op_definition
class ArenaOp(IRDLOperation):
    """A buffer in the arena, `offset` bytes from its start (a multiple of the alignment that was planned for)."""

    name = "host.arena"
    offset = prop_def(IntegerAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$offset attr-dict `:` type($result)"

    def __init__(self, offset: int, type: Attribute) -> None:
        super().__init__(properties={"offset": IntegerAttr(offset, i64)}, result_types=[type])


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """Runs a kernel on buffers: its inputs, then its outputs."""

    name = "host.launch"
    callee = prop_def(SymbolRefAttr)
    arguments = var_operand_def()
    assembly_format = "$callee `(` $arguments `)` attr-dict `:` type($arguments)"

    def __init__(self, callee: str, arguments: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(arguments)], properties={"callee": SymbolRefAttr(callee)})

    @property
    def symbol(self) -> str:
        return self.callee.string_value()


Host = Dialect("host", [WeightOp, ArenaOp, LaunchOp], [])

OUTPUT = "host.output"


def entry_of(module: ModuleOp) -> func.FuncOp:
    """The function `@main`, where a program starts; raises UnsupportedError when the module has none."""
    for op in module.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == "main":
            return op
    raise UnsupportedError("the module has no function @main; a program starts there")


def outputs_of(main: func.FuncOp) -> Sequence[BlockArgument]:
    """The entry's output buffers: its last arguments."""
    if main.arg_attrs is None:
        return []
    return [a for a, named in zip(main.args, main.arg_attrs.data, strict=True) if OUTPUT in named.data]


def inputs_of(main: func.FuncOp) -> Sequence[BlockArgument]:
    """The entry's input buffers: its first arguments."""
    return main.args[: len(main.args) - len(outputs_of(main))]


def buffer_bytes(buffer: MemRefType[Attribute]) -> int:
    """The size of a dense buffer in bytes; bool takes one byte an element."""
    return math.prod(buffer.get_shape()) * numpy_dtype(buffer.element_type).itemsize

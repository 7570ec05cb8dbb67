"""The host program after planning: launches of kernels on buffers at fixed places.

    %w = host.weight @w7 : memref<64x64xf32>
    %b = host.arena 4096 : memref<1x56x56x64xf32>
    host.launch @conv_relu(%x, %w, %b) : memref<…>, memref<…>, memref<…>

Entry arguments are the program's inputs, then its outputs, as memrefs. Views of a buffer are `memref.reinterpret_cast`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.ir import (
    Attribute,
    Dialect,
    IntegerAttr,
    IRDLOperation,
    MemRefType,
    Pure,
    SSAValue,
    SymbolRefAttr,
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
    """A buffer in the arena, `offset` bytes from its start (a multiple of 64)."""

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

"""The host program after planning: launches of kernels on buffers at fixed places.

    %w = host.weight @w7 : memref<64x64xf32>
    %b = host.arena 4096 : memref<1x56x56x64xf32>
    host.launch @conv_relu(%x, %w, %b) : memref<…>, memref<…>, memref<…>

Where sizes are known only when the program is called, buffers say theirs, and a launch gives those that its kernel takes:

    %b = host.buffer {sizes = #dl.dims<"N", 64>, slot = 2} : memref<?x64xf32>
    host.launch @conv_relu sizes <"N">(%x, %w, %b) : memref<…>, memref<…>, memref<…>

Entry arguments are the program's inputs, then its outputs, as memrefs; the latter carry the attribute `host.output`. Views
of a buffer are `memref.reinterpret_cast`; `memref.copy` fills an output that no kernel writes. Element types are those of
the `dl` dialect, `ui8` among them: a kernel that takes `i8` there sees the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dlc.dialects.dl.base import DimsAttr
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.sizes import SIZES
from dlc.dims import Size, product
from dlc.errors import UnsupportedError
from dlc.ir import (
    DYNAMIC_INDEX,
    Attribute,
    BlockArgument,
    Dialect,
    IntegerAttr,
    IRDLOperation,
    MemRefType,
    ModuleOp,
    ParsePropInAttrDict,
    Pure,
    SSAValue,
    SymbolRefAttr,
    func,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
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
class BufferOp(IRDLOperation):
    """A buffer in the arena whose place follows from the sizes of a call.

    Buffers of one `slot` are never alive at the same time: the slot is as large as the largest of them. -1 is not planned yet.
    """

    name = "host.buffer"
    sizes = prop_def(DimsAttr)
    slot = prop_def(IntegerAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, sizes: Sequence[Size], type: Attribute, slot: int = -1) -> None:
        properties = {"sizes": DimsAttr.of(sizes), "slot": IntegerAttr(slot, i64)}
        super().__init__(properties=properties, result_types=[type])


@irdl_op_definition
class ViewOp(IRDLOperation):
    """What of a buffer begins at an element, in another shape, which follows from the sizes of a call."""

    name = "host.view"
    source = operand_def(MemRefType)
    offset = prop_def(IntegerAttr)
    sizes = prop_def(DimsAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, offset: int, sizes: Sequence[Size], type: Attribute) -> None:
        properties = {"offset": IntegerAttr(offset, i64), "sizes": DimsAttr.of(sizes)}
        super().__init__(operands=[source], properties=properties, result_types=[type])


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """Runs a kernel on buffers: its inputs, then its outputs; `sizes` are those that it takes besides."""

    name = "host.launch"
    callee = prop_def(SymbolRefAttr)
    sizes = opt_prop_def(DimsAttr)
    arguments = var_operand_def()
    assembly_format = "$callee (`sizes` $sizes^)? `(` $arguments `)` attr-dict `:` type($arguments)"

    def __init__(self, callee: str, arguments: Sequence[SSAValue], sizes: DimsAttr | None = None) -> None:
        properties: dict[str, Attribute] = {"callee": SymbolRefAttr(callee)}
        if sizes is not None:
            properties["sizes"] = sizes
        super().__init__(operands=[list(arguments)], properties=properties)

    @property
    def numbers(self) -> tuple[Size, ...]:
        """The sizes that the kernel takes."""
        return self.sizes.sizes if self.sizes is not None else ()

    @property
    def symbol(self) -> str:
        return self.callee.string_value()


Host = Dialect("host", [WeightOp, ArenaOp, BufferOp, ViewOp, LaunchOp], [])

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


def sizes_of(buffer: SSAValue) -> tuple[Size, ...]:
    """The sizes of a buffer of the entry."""
    shape = cast("MemRefType[Attribute]", buffer.type).get_shape()
    if DYNAMIC_INDEX not in shape:
        return shape
    if isinstance(buffer.owner, BufferOp | ViewOp):
        return buffer.owner.sizes.sizes
    main = cast("BlockArgument", buffer).block.parent_op()
    assert isinstance(main, func.FuncOp) and main.arg_attrs is not None
    said = main.arg_attrs.data[cast("BlockArgument", buffer).index].data[SIZES]
    return cast(DimsAttr, said).sizes


def buffer_bytes(buffer: SSAValue) -> Size:
    """The size of a dense buffer of the entry in bytes; bool takes one byte an element."""
    return product(sizes_of(buffer)) * numpy_dtype(cast("MemRefType[Attribute]", buffer.type).element_type).itemsize

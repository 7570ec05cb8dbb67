"""The entry function of a host program: its inputs and outputs, and the sizes of its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.host import BufferOp, LoopOp, ViewOp, WhileOp
from dlc.dialects.sizes import SIZES
from dlc.errors import UnsupportedError
from dlc.ir import (
    DYNAMIC_INDEX,
    Attribute,
    Block,
    BlockArgument,
    MemRefType,
    ModuleOp,
    OpResult,
    SSAValue,
    func,
)
from dlc.shapes.dims import Size, UndecidableError, product

# The attribute of the entry's arguments that are outputs.
OUTPUT = "host.output"


def entry_of(module: ModuleOp) -> func.FuncOp:
    """Return the entry function `@main` of a module. Raises UnsupportedError if the module has none."""
    for op in module.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == "main":
            return op
    raise UnsupportedError("the module has no function @main, the entry of a program")


def outputs_of(main: func.FuncOp) -> Sequence[BlockArgument]:
    """Return the entry's output buffers, which are its last arguments."""
    if main.arg_attrs is None:
        return []
    return [a for a, attrs in zip(main.args, main.arg_attrs.data, strict=True) if OUTPUT in attrs.data]


def inputs_of(main: func.FuncOp) -> Sequence[BlockArgument]:
    """Return the entry's input buffers, which are its first arguments."""
    return main.args[: len(main.args) - len(outputs_of(main))]


def sizes_of(buffer: SSAValue) -> tuple[Size, ...]:
    """Return the sizes of a buffer of the entry."""
    shape = cast("MemRefType[Attribute]", buffer.type).get_shape()
    if DYNAMIC_INDEX not in shape:
        return shape
    match buffer.owner:
        case BufferOp() | ViewOp() as op:
            return op.sizes.sizes
        case LoopOp() | WhileOp() as op:
            return sizes_of(op.arguments[cast("OpResult", buffer).index])
        case Block() as block:
            return _argument_sizes(block, cast("BlockArgument", buffer).index)
        case op:
            raise UndecidableError(f"{op.name}: the sizes of its result are unknown")


def _argument_sizes(block: Block, index: int) -> tuple[Size, ...]:
    match block.parent_op():
        case LoopOp() as op:
            sizes = sizes_of(op.arguments[index])
            return sizes if index < op.carried.value.data else sizes[1:]
        case WhileOp() as op:
            return sizes_of(op.arguments[index])
        case main:
            assert isinstance(main, func.FuncOp) and main.arg_attrs is not None
            return cast(DimsAttr, main.arg_attrs.data[index].data[SIZES]).sizes


def buffer_bytes(buffer: SSAValue) -> Size:
    """Return the size in bytes of a dense buffer of the entry; a bool takes one byte."""
    return product(sizes_of(buffer)) * numpy_dtype(cast("MemRefType[Attribute]", buffer.type).element_type).itemsize

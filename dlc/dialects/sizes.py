"""Sizes, strides and offsets of buffers inside kernels, which may be symbolic.

A dynamic-shape kernel takes sizes as its last arguments, `s0`, `s1`, … of type `index`. A symbolic size is `?` in the type of a
buffer. Its value is a polynomial in the size arguments and follows from the definition of the buffer. An argument declares it
in the attribute `dl.sizes`; an op that creates a buffer or a view has it as an operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from dlc.dialects.dims_attribute import DimsAttr
from dlc.ir import (
    DYNAMIC_INDEX,
    Attribute,
    Block,
    BlockArgument,
    DenseArrayBase,
    DictionaryAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    SSAValue,
    arith,
    func,
    memref,
)
from dlc.shapes.dims import Dim, Size, UndecidableError, is_static, row_major

# Attribute of a kernel's argument: its sizes.
SIZES = "dl.sizes"


def symbol(index: int) -> str:
    """Return the name of a kernel's size argument."""
    return f"s{index}"


def size_arguments(block: Block) -> list[BlockArgument]:
    """Return the size arguments of a kernel."""
    return [a for a in block.args if isinstance(a.type, IndexType)]


def size_of(value: SSAValue) -> Size:
    """Return an index as a polynomial in the kernel's size arguments, with floor divisions.

    Raises UndecidableError for an index that is computed from anything else.
    """
    owner = value.owner
    if isinstance(owner, Block):
        arguments = size_arguments(owner)
        if value in arguments and isinstance(owner.parent_op(), func.FuncOp):
            return Dim.symbol(symbol(arguments.index(cast(BlockArgument, value))))
    elif isinstance(owner, arith.ConstantOp):
        return cast("IntegerAttr", owner.value).value.data
    elif isinstance(owner, arith.AddiOp | arith.MuliOp | arith.DivUIOp):
        a, b = map(size_of, owner.operands)
        return a // b if isinstance(owner, arith.DivUIOp) else a + b if isinstance(owner, arith.AddiOp) else a * b
    raise UndecidableError(f"{value.name_hint or 'an index'} is not computed from the kernel's size arguments")


def _type(value: SSAValue) -> MemRefType[Attribute]:
    assert isinstance(value.type, MemRefType)
    return cast("MemRefType[Attribute]", value.type)


def sizes_of(value: SSAValue) -> tuple[Size, ...]:
    """Return the sizes of a buffer."""
    shape = _type(value).get_shape()
    if DYNAMIC_INDEX not in shape:
        return shape
    match value.owner:
        case memref.AllocaOp(dynamic_sizes=operands):
            dynamic_sizes = iter(operands)
            return tuple(size_of(next(dynamic_sizes)) if s == DYNAMIC_INDEX else s for s in shape)
        case memref.ReinterpretCastOp() as op:
            return mixed_sizes(op.static_sizes, op.sizes)
        case memref.SubviewOp() as op:
            kept_axes = _kept_axis_mask(op)
            return tuple(s for s, keep in zip(mixed_sizes(op.static_sizes, op.sizes), kept_axes, strict=True) if keep)
        case Block() as block:
            return _argument_sizes(block, cast(BlockArgument, value))
        case op:
            raise UndecidableError(f"{op.name}: the sizes of its result are unknown")


def strides_of(value: SSAValue) -> tuple[Size, ...]:
    """Return the strides of a buffer, in elements."""
    t = _type(value)
    if isinstance(t.layout, NoneAttr):
        return row_major(sizes_of(value))
    strides = t.get_strides()
    assert strides is not None
    if None not in strides:
        return tuple(cast("Sequence[int]", strides))
    match value.owner:
        case memref.ReinterpretCastOp() as op:
            return mixed_sizes(op.static_strides, op.strides)
        case memref.SubviewOp() as op:
            axes = zip(strides_of(op.source), _kept_axis_mask(op), strict=True)
            return tuple(s for s, keep in axes if keep)
        case _:
            raise UndecidableError(f"a buffer of type {t}: its strides are unknown")


def offset_of(value: SSAValue) -> Size | None:
    """Return the offset of a view in its buffer, in elements; None if it depends on loop iterators."""
    static_offset = _type(value).get_offset()
    if static_offset is not None:
        return static_offset
    match value.owner:
        case memref.ReinterpretCastOp() as op:
            return mixed_sizes(op.static_offsets, op.offsets)[0]
        case memref.SubviewOp() as op:
            base = offset_of(op.source)
            try:
                starts = mixed_sizes(op.static_offsets, op.offsets)
            except UndecidableError:
                return None
            return None if base is None else base + sum((o * s for o, s in zip(starts, strides_of(op.source), strict=True)), 0)
        case _:
            return None


def mixed_sizes(static: DenseArrayBase[Any], operands: Sequence[SSAValue]) -> tuple[Size, ...]:
    """Return an op's list of offsets, sizes or strides from its static values and dynamic operands."""
    dynamic_values = iter(operands)
    return tuple(size_of(next(dynamic_values)) if s == DYNAMIC_INDEX else int(s) for s in static.get_values())


def _kept_axis_mask(op: memref.SubviewOp) -> Iterator[bool]:
    """Return a mask of a subview's axes that its result keeps; of several unit axes the first are dropped."""
    sizes = [int(s) for s in op.static_sizes.get_values()]
    surplus = len(sizes) - len(_type(op.result).get_shape())
    shape = list(_type(op.result).get_shape())
    is_kept: list[bool] = []
    for size in sizes:
        is_dropped = surplus > 0 and size == 1 and not (shape and shape[0] == 1)
        is_kept.append(not is_dropped)
        surplus -= is_dropped
        if not is_dropped:
            shape.pop(0)
    return iter(is_kept)


def _argument_sizes(block: Block, value: BlockArgument) -> tuple[Size, ...]:
    function = block.parent_op()
    if isinstance(function, func.FuncOp) and function.arg_attrs is not None:
        sizes_attr = function.arg_attrs.data[value.index].data.get(SIZES)
        if isinstance(sizes_attr, DimsAttr):
            return sizes_attr.sizes
    raise UndecidableError(f"argument {value.index} of type {value.type} has no attribute {SIZES} with its sizes")


def argument_size_attributes(sizes: Sequence[Size]) -> DictionaryAttr:
    """Return the attributes of a kernel's argument with these sizes; empty if they are static."""
    return DictionaryAttr({} if is_static(sizes) else {SIZES: DimsAttr.of(sizes)})

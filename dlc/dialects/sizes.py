"""Sizes of buffers inside kernels, which need not be numbers.

A kernel that serves several sizes takes them as its last arguments, `s0`, `s1`, … of type `index`. In the types of its
buffers such a size is `?`; what it is, a polynomial in these, follows from where the value comes from: an argument says it
in its attribute `dl.sizes`, an op that makes a buffer or a view in its operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from dlc.dialects.dl.base import DimsAttr
from dlc.dims import Dim, Size, UndecidableError, is_static, row_major
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

# The attribute of a kernel's argument that says its sizes.
SIZES = "dl.sizes"


def symbol(number: int) -> str:
    """The name of a kernel's size."""
    return f"s{number}"


def size_arguments(block: Block) -> list[BlockArgument]:
    """The arguments of a kernel that are sizes."""
    return [a for a in block.args if isinstance(a.type, IndexType)]


def size_of(value: SSAValue) -> Size:
    """What an index made of sizes is, as a polynomial in them and in quotients of such.

    Raises UndecidableError for an index that is something else.
    """
    owner = value.owner
    if isinstance(owner, Block):
        numbers = size_arguments(owner)
        if value in numbers and isinstance(owner.parent_op(), func.FuncOp):
            return Dim.symbol(symbol(numbers.index(cast(BlockArgument, value))))
    elif isinstance(owner, arith.ConstantOp):
        return cast("IntegerAttr", owner.value).value.data
    elif isinstance(owner, arith.AddiOp | arith.MuliOp | arith.DivUIOp):
        a, b = map(size_of, owner.operands)
        return a // b if isinstance(owner, arith.DivUIOp) else a + b if isinstance(owner, arith.AddiOp) else a * b
    raise UndecidableError(f"{value.name_hint or 'an index'} is no size of the kernel")


def _type(value: SSAValue) -> MemRefType[Attribute]:
    assert isinstance(value.type, MemRefType)
    return cast("MemRefType[Attribute]", value.type)


def sizes_of(value: SSAValue) -> tuple[Size, ...]:
    """The sizes of a buffer."""
    shape = _type(value).get_shape()
    if DYNAMIC_INDEX not in shape:
        return shape
    match value.owner:
        case memref.AllocaOp(dynamic_sizes=operands):
            given = iter(operands)
            return tuple(size_of(next(given)) if s == DYNAMIC_INDEX else s for s in shape)
        case memref.ReinterpretCastOp() as op:
            return mixed_sizes(op.static_sizes, op.sizes)
        case memref.SubviewOp() as op:
            kept = _kept(op)
            return tuple(s for s, keep in zip(mixed_sizes(op.static_sizes, op.sizes), kept, strict=True) if keep)
        case Block() as block:
            return _argument_sizes(block, cast(BlockArgument, value))
        case op:
            raise UndecidableError(f"{op.name}: what it makes has sizes that are not known")


def strides_of(value: SSAValue) -> tuple[Size, ...]:
    """The distances between neighbours along each axis of a buffer, in elements."""
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
            kept = zip(strides_of(op.source), _kept(op), strict=True)
            return tuple(s for s, keep in kept if keep)
        case _:
            raise UndecidableError(f"a buffer of type {t}: its strides are not known")


def offset_of(value: SSAValue) -> Size | None:
    """Where a view begins in its buffer, in elements; None where that is known only inside of loops."""
    known = _type(value).get_offset()
    if known is not None:
        return known
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
    """The numbers and operands of an op's list of offsets, sizes or strides."""
    given = iter(operands)
    return tuple(size_of(next(given)) if s == DYNAMIC_INDEX else int(s) for s in static.get_values())


def _kept(op: memref.SubviewOp) -> Iterator[bool]:
    """Which axes stay; of size 1 are those that go, the first of several in a row (as `Place.subview` makes them)."""
    sizes = [int(s) for s in op.static_sizes.get_values()]
    surplus = len(sizes) - len(_type(op.result).get_shape())
    shape = list(_type(op.result).get_shape())
    kept: list[bool] = []
    for size in sizes:
        gone = surplus > 0 and size == 1 and not (shape and shape[0] == 1)
        kept.append(not gone)
        surplus -= gone
        if not gone:
            shape.pop(0)
    return iter(kept)


def _argument_sizes(block: Block, value: BlockArgument) -> tuple[Size, ...]:
    function = block.parent_op()
    if isinstance(function, func.FuncOp) and function.arg_attrs is not None:
        said = function.arg_attrs.data[value.index].data.get(SIZES)
        if isinstance(said, DimsAttr):
            return said.sizes
    raise UndecidableError(f"argument {value.index} of type {value.type} does not say its sizes ({SIZES})")


def say_sizes(sizes: Sequence[Size]) -> DictionaryAttr:
    """The attributes of a kernel's argument with these sizes."""
    return DictionaryAttr({} if is_static(sizes) else {SIZES: DimsAttr.of(sizes)})

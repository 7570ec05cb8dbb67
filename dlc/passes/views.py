"""Values of the host program that are parts of others: reshapes, words, what is itself but later, slices that are one piece,
and what is joined piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile
from typing import cast

from dlc.dialects.dl.base import element_type_of, ints, shape_of, sizes
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Movement
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, SliceOp
from dlc.dialects.dl.narrow_numbers.words import WordsOp
from dlc.dialects.dl.programs.control import Loop, ScanOp
from dlc.dialects.dl.programs.identities import AfterOp
from dlc.dialects.dl.programs.program import PART
from dlc.dims import is_multiple, is_static, product, row_major
from dlc.ir import Operation, SSAValue, func

# Ops whose result is all of their operand's buffer.
RENAMED = (ReshapeOp, WordsOp, AfterOp)


def is_view(op: Operation | None, alignment: int) -> bool:
    """Whether an op's result is a part of its operand's buffer, at a multiple of `alignment` bytes, and no kernel makes it.

    A slice is, of static sizes, if it takes the whole of all axes behind the first that it takes more than one element of,
    and if the operand is a buffer: neither the caller's, which may lie anywhere, nor moved around by whoever reads it, nor the
    last state of a loop that may be an element of a sequence, where elements lie side by side. What the program returns is
    copied, from wherever it is.
    """
    if isinstance(op, RENAMED):
        return True
    if not isinstance(op, SliceOp) or not _is_one_piece(op):
        return False
    if is_returned(op.result):
        return True
    source, (root, _) = op.x.owner, source_of(op.x)
    if not isinstance(root.owner, Operation) or (isinstance(source, Movement) and not is_view(source, alignment)):
        return False
    if is_last_state(root) and not is_multiple(product(shape_of(root)) * _bytes(root), alignment):
        return False
    return not offset_of(op) * _bytes(op.x) % alignment


def is_last_state(value: SSAValue) -> bool:
    """Whether a value is what a loop's state is in the end, which is found wherever the last step left it."""
    loop = value.owner
    return isinstance(loop, Loop) and (not isinstance(loop, ScanOp) or value in loop.results[: loop.state_count])


def _is_one_piece(op: SliceOp) -> bool:
    if any(s != 1 for s in ints(op.strides)) or not is_static(shape_of(op.x)):
        return False
    pairs = zip(shape_of(op.x), shape_of(op.result), strict=True)
    rest = list(dropwhile(lambda pair: pair[1] == 1, pairs))
    return all(size == part for size, part in rest[1:])


def joins_pieces(op: ConcatOp, alignment: int) -> bool:
    """Whether each operand would be one piece of the result, at a multiple of `alignment` bytes."""
    shape = shape_of(op.result)
    if not is_static(shape) or any(size != 1 for size in shape[: op.joined_axis]):
        return False
    return not any(offset * _bytes(op.result) % alignment for _, offset in pieces_of(op))


def pieces_of(op: ConcatOp) -> Iterator[tuple[SSAValue, int]]:
    """What is joined, and where it begins in the result, in elements."""
    offset = 0
    for value in op.values:
        yield value, offset
        offset += int(product(shape_of(value)))


def is_returned(value: SSAValue) -> bool:
    """Whether nothing reads a value, perhaps in another shape, but the end of the program; that of a part is no end."""
    readers = [use.operation for use in value.uses]
    return bool(readers) and all(
        (isinstance(r, func.ReturnOp) and not _is_of_part(r)) or (isinstance(r, ReshapeOp) and is_returned(r.result))
        for r in readers
    )


def _is_of_part(end: func.ReturnOp) -> bool:
    main = end.parent_op()
    return main is not None and PART in main.attributes


def offset_of(op: SliceOp) -> int:
    """Where the first element of a slice is in its operand, in elements."""
    strides = cast("tuple[int, ...]", row_major(shape_of(op.x)))
    return sum(int(start) * stride for start, stride in zip(sizes(op.starts), strides, strict=True))


def source_of(value: SSAValue) -> tuple[SSAValue, int]:
    """The value that `value` is a part of through such ops, and where it begins there, in elements of that value."""
    offset = 0
    while isinstance(value.owner, (*RENAMED, SliceOp)):
        match value.owner:
            case SliceOp() as op:
                offset += offset_of(op)
            case WordsOp() as op:
                offset *= op.count
            case _:
                pass
        value = value.owner.x
    return value, offset


def _bytes(value: SSAValue) -> int:
    return numpy_dtype(element_type_of(value)).itemsize

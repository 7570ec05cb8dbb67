"""Views in the host program: reshapes, contiguous slices, and operands of concatenations that alias another value."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile
from typing import cast

from dlc.dialects.dl.base import element_type_of, ints, shape_of, sizes
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataMovement
from dlc.dialects.dl.low_precision.packed_dot import ViewAsOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, SliceOp
from dlc.dialects.dl.programs.control import LoopLikeOp, ScanOp, WhileOp
from dlc.dialects.dl.programs.identities import AddDependencyOp
from dlc.dialects.dl.programs.program import SEGMENT, DispatchOp, output_aliases
from dlc.ir import Operation, OpResult, SSAValue, func
from dlc.shapes.dims import is_static, product, row_major
from dlc.shapes.polynomials import is_multiple

# Ops whose result is exactly their operand's buffer.
ALIASING_OPS = (ReshapeOp, ViewAsOp, AddDependencyOp)


def is_view(op: Operation | None, alignment: int) -> bool:
    """Return whether an op's result is a view into its operand's buffer, aligned to `alignment` bytes.

    A static slice is a view if it is contiguous: full along all axes after the first one along which it has more than one
    element. Its operand must be an aligned buffer of the program. Arguments may have any address, data-movement ops
    that are fused into their user have no buffer, and the final state of a loop may be an element of a sequence, at any
    offset. A slice that the program returns need not be aligned, since it is copied anyway.
    """
    if isinstance(op, ALIASING_OPS):
        return True
    if not isinstance(op, SliceOp) or not _is_contiguous(op):
        return False
    source, (root, _) = op.x.owner, source_of(op.x)
    if is_returned(op.result):
        # Offsets are in elements of the buffer, which may be wider.
        return not offset_of(op) * _element_bytes(op.x) % _element_bytes(root)
    if not isinstance(root.owner, Operation) or (isinstance(source, DataMovement) and not is_view(source, alignment)):
        return False
    if is_last_state(root) and not is_multiple(product(shape_of(root)) * _element_bytes(root), alignment):
        return False
    return not offset_of(op) * _element_bytes(op.x) % alignment


def is_last_state(value: SSAValue) -> bool:
    """Return whether a value is the final state of a loop, which is in the buffer that the last iteration wrote."""
    loop = value.owner
    return isinstance(loop, LoopLikeOp) and (not isinstance(loop, ScanOp) or value in loop.results[: loop.state_count])


def _is_contiguous(op: SliceOp) -> bool:
    """Return whether a slice with unit strides of a static shape is one contiguous range of its operand."""
    if any(s != 1 for s in ints(op.strides)) or not is_static(shape_of(op.x)):
        return False
    pairs = zip(shape_of(op.x), shape_of(op.result), strict=True)
    remaining = list(dropwhile(lambda pair: pair[1] == 1, pairs))
    return all(size == slice_size for size, slice_size in remaining[1:])


def is_contiguous_concat(op: ConcatOp, alignment: int) -> bool:
    """Return whether each operand is a contiguous range of the result, aligned to `alignment` bytes."""
    shape = shape_of(op.result)
    if not is_static(shape) or any(size != 1 for size in shape[: op.concat_axis]):
        return False
    return not any(offset * _element_bytes(op.result) % alignment for _, offset in concat_operand_offsets(op))


def concat_operand_offsets(op: ConcatOp) -> Iterator[tuple[SSAValue, int]]:
    """Yield each operand of a concatenation with its offset in the result, in elements."""
    offset = 0
    for value in op.values:
        yield value, offset
        offset += int(product(shape_of(value)))


def is_returned(value: SSAValue) -> bool:
    """Return whether only the program's return reads a value, directly or through reshapes.

    The return of a program segment does not count.
    """
    readers = [use.operation for use in value.uses]
    return bool(readers) and all(
        (isinstance(r, func.ReturnOp) and not _is_in_segment(r)) or (isinstance(r, ReshapeOp) and is_returned(r.result))
        for r in readers
    )


def _is_in_segment(end: func.ReturnOp) -> bool:
    main = end.parent_op()
    return main is not None and SEGMENT in main.attributes


def offset_of(op: SliceOp) -> int:
    """Return the offset of a slice's first element in its operand, in elements."""
    strides = cast("tuple[int, ...]", row_major(shape_of(op.x)))
    return sum(int(start) * stride for start, stride in zip(sizes(op.starts), strides, strict=True))


def source_of(value: SSAValue) -> tuple[SSAValue, int]:
    """Return the root value that `value` is a view of, and its offset there, in elements of the root."""
    offset = 0
    while isinstance(value.owner, (*ALIASING_OPS, SliceOp)):
        match value.owner:
            case SliceOp() as op:
                offset += offset_of(op)
            case ViewAsOp() as op:
                source_bytes, result_bytes = op.element_bytes
                offset = offset * result_bytes // source_bytes
            case _:
                pass
        value = value.owner.x
    return value, offset


def result_index(value: SSAValue) -> int:
    """Return the index of a value among the results of its op."""
    assert isinstance(value, OpResult)
    return value.index


def in_place_updates(state: SSAValue, next_state: SSAValue) -> list[SSAValue]:
    """Return the values that ops compute one after the other in place of a state, from the next state back.

    The list is empty if the next state is computed in another way.
    """
    values: list[SSAValue] = []
    value = next_state
    while value is not state:
        op = value.owner
        if not isinstance(op, DispatchOp | ScanOp | WhileOp):
            return []
        argument = output_aliases(op).get(result_index(value))
        if argument is None:
            return []
        values.append(value)
        value, _ = source_of(op.arguments[argument])
    return values


def _element_bytes(value: SSAValue) -> int:
    return numpy_dtype(element_type_of(value)).itemsize

"""Prefetch the panel of packed weights that a contraction reads after the current one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.prefetch import L2_READ_HINTS
from dlc.dialects.sizes import strides_of
from dlc.ir import DYNAMIC_INDEX, BlockArgument, Operation, SSAValue, memref, scf, vector
from dlc.passes.loops.static_loops import constant_range, num_accumulator_rows, split_loop
from dlc.passes.structured import ConstantPool, Index, OpBuilder
from dlc.passes.types import memref_of
from dlc.shapes.dims import row_major

# A loop whose prefetches take at least this fraction of its iterations is not split.
_MIN_SPLIT_FRACTION = 0.8


@dataclass(frozen=True)
class Position:
    """The position of the current step among the `count` steps of a loop: (index - first) / step."""

    index: SSAValue
    first: int
    step: int
    count: int


@dataclass(frozen=True)
class NextPanel:
    """The panel of packed weights that is used after `panel`, `distance` rows from it.

    `positions` are those of the register tiles that use the current panel, and of the loops around the k loop that read other
    parts of the same panel, outermost first.
    """

    panel: memref.SubviewOp
    distance: int
    positions: Sequence[Position]

    def prefetch_in(self, loop: scf.ForOp, steps: range, line_bytes: int, constants: ConstantPool) -> None:
        """Emit the prefetches of one register tile in its k loop over `steps`: tile t of n prefetches part t of n of the panel.

        The first iterations prefetch one or more cache lines each. The loop is split after them, so that the other iterations
        have no prefetches.
        """
        assert loop.parent is not None
        t = memref_of(self.panel.result)
        shape, line = t.get_shape(), line_bytes // numpy_dtype(t.element_type).itemsize
        lines = -(-prod(shape) // (line * prod(p.count for p in self.positions)))
        lines_per_iteration = -(-lines // len(steps))
        head_iterations = -(-lines // lines_per_iteration)

        before = OpBuilder(constants, loop.parent, loop.location, anchor=loop)
        part: Index = 0
        for p in self.positions:
            position = before.floordiv(before.subtract(p.index, p.first), p.step)
            part = before.add(before.multiply(part, p.count), position)
        start = before.multiply(part, lines * line)

        head = loop
        if head_iterations < _MIN_SPLIT_FRACTION * len(steps):
            head = split_loop(loop, steps[head_iterations], constants)
        block = head.body.block
        builder = OpBuilder(constants, block, loop.location, anchor=block.first_op)
        iteration = builder.floordiv(builder.subtract(block.args[0], steps.start), steps.step)
        first_element = builder.add(start, builder.multiply(iteration, lines_per_iteration * line))
        for n in range(lines_per_iteration):
            element = builder.add(first_element, n * line)
            builder.prefetch(self.panel.result, [*(0 for _ in shape[2:]), self.distance, element], L2_READ_HINTS)


def find_next_panel(loop: scf.ForOp, read: vector.TransferReadOp, row_axis: int, max_rows: int) -> NextPanel | None:
    """Return the next panel for a k loop that reads rows of a panel.

    None if several register tiles do not use the panel one after the other, as where the loop over panels is the innermost,
    or if these tiles have more than `max_rows` rows.
    """
    panel = read.source.owner
    if not isinstance(panel, memref.SubviewOp):
        return None
    shape = memref_of(panel.result).get_shape()
    if DYNAMIC_INDEX in shape or row_axis != len(shape) - 2 or strides_of(panel.result) != row_major(shape):
        return None
    panel_axes = list(_moving_axes(panel))
    panel_iterators = {i for axis in panel_axes for i in axis.iterators}
    tiles = [axis for axis in _axes_of_other_operand(loop, panel) if panel_iterators.isdisjoint(axis.iterators)]
    enclosing = [i for op in _ancestors(panel) for i in _iterators_of(op)]
    innermost = next((i for i in enclosing if i in panel_iterators or any(i in t.iterators for t in tiles)), None)
    advancing = next((i for i in enclosing if i in panel_iterators), None)
    distances = [axis.stride * axis.size for axis in panel_axes if advancing in axis.iterators]
    outer_loops = [op for op in _ancestors(loop, panel.parent_op()) if isinstance(op, scf.ForOp)][::-1]
    ranges = [constant_range(op) for op in outer_loops]
    if advancing is None or innermost is advancing or len(distances) != 1 or distances[0] % shape[-1] or None in ranges:
        return None
    # A partial last tile is separate code, which does not prefetch a part.
    inner = enclosing[: enclosing.index(advancing)]
    tile_positions = [p for t in tiles for p in _tile_positions(t, inner)]
    loop_positions = [
        Position(op.body.block.args[0], r.start, r.step, len(r))
        for op, r in zip(outer_loops, ranges, strict=True)
        if r is not None
    ]
    num_tiles, num_rows = prod(p.count for p in tile_positions), num_accumulator_rows(loop)
    uses_panel = 1 < num_tiles <= max_rows / num_rows
    return NextPanel(panel, distances[0] // shape[-1], [*tile_positions, *loop_positions]) if uses_panel else None


class _MovingAxis(NamedTuple):
    """An axis along which a view moves: its offset and size, and the extent and stride of the viewed buffer."""

    offset: SSAValue
    size: int
    extent: int
    stride: int

    @property
    def iterators(self) -> set[BlockArgument]:
        """The loop iterators that the offset is computed from."""
        return set(_iterators_in(self.offset))


def _moving_axes(view: memref.SubviewOp) -> Iterator[_MovingAxis]:
    """Yield the axes with dynamic offsets of a view, if sizes and strides are static."""
    offsets = iter(view.offsets)
    sizes, shape = view.static_sizes.iter_values(), memref_of(view.source).get_shape()
    axes = zip(view.static_offsets.iter_values(), sizes, shape, strides_of(view.source), strict=True)
    for offset, size, extent, stride in axes:
        if offset == DYNAMIC_INDEX:
            index = next(offsets)
            if DYNAMIC_INDEX not in (size, extent) and isinstance(stride, int):
                yield _MovingAxis(index, size, extent, stride)


def _tile_positions(axis: _MovingAxis, iterators: Sequence[BlockArgument]) -> Iterator[Position]:
    """Yield the positions of register tiles along an axis, for the loops with these iterators."""
    if axis.iterators.issubset(iterators):
        yield Position(axis.offset, 0, axis.size, axis.extent // axis.size)
        return
    for iterator in reversed(iterators):
        loop = iterator.owner.parent_op()
        if iterator in axis.iterators and isinstance(loop, scf.ForOp) and (steps := constant_range(loop)) is not None:
            yield Position(iterator, steps.start, steps.step, len(steps))


def _axes_of_other_operand(loop: scf.ForOp, panel: memref.SubviewOp) -> Iterator[_MovingAxis]:
    """Yield the axes along which the contraction's other operand moves."""
    reads = (op.source.owner for op in loop.body.block.ops if isinstance(op, vector.TransferReadOp))
    operand = next((source for source in reads if isinstance(source, memref.SubviewOp) and source is not panel), None)
    return iter(()) if operand is None else _moving_axes(operand)


def _iterators_in(value: SSAValue) -> Iterator[BlockArgument]:
    """Yield the loop iterators that an index is computed from."""
    if isinstance(value, BlockArgument):
        yield value
    elif isinstance(value.owner, Operation):
        for operand in value.owner.operands:
            yield from _iterators_in(operand)


def _ancestors(op: Operation, end: Operation | None = None) -> Iterator[Operation]:
    """Yield the ops around an op, innermost first, up to but not including `end`."""
    while (parent := op.parent_op()) is not end and parent is not None:
        yield parent
        op = parent


def _iterators_of(op: Operation) -> Sequence[BlockArgument]:
    """Return the iterators of a loop, the innermost first; none for other ops."""
    match op:
        case scf.ForOp():
            return op.body.block.args[:1]
        case scf.ParallelOp():
            return op.body.block.args[::-1]
        case _:
            return ()

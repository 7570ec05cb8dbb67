"""Find the panel of packed weights that a contraction reads after the current one, and the tiles that share the current one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.scalar import constant_integer
from dlc.dialects.prefetch import L2_READ_HINTS, PrefetchOp
from dlc.dialects.sizes import strides_of
from dlc.ir import DYNAMIC_INDEX, BlockArgument, Operation, SSAValue, arith, memref, scf, vector
from dlc.passes.loops.static_loops import constant_bounds
from dlc.passes.structured import ConstantPool, Index, OpBuilder
from dlc.passes.types import memref_of
from dlc.shapes.dims import row_major

# A loop whose prefetches take at least this fraction of its iterations is not split.
_MIN_SPLIT_FRACTION = 0.8


@dataclass(frozen=True)
class RowTiles:
    """The register tiles along a dimension of the unpacked operand: `offset` is that of the current tile."""

    offset: SSAValue
    size: int
    extent: int

    @property
    def count(self) -> int:
        return -(-self.extent // self.size)


@dataclass(frozen=True)
class NextPanel:
    """A panel of packed weights that is used after the current one.

    Attributes:
        panel: The current panel.
        row_axis: The axis of its rows, one per k iteration.
        distance: The distance of the next panel, in rows.
        elements: The elements of a panel, which are contiguous.
        tiles: The register tiles that use the current panel.
        runs: The loops around the k loop that read other parts of the same panel, outermost first.
    """

    panel: memref.SubviewOp
    row_axis: int
    distance: int
    elements: int
    tiles: Sequence[RowTiles]
    runs: Sequence[scf.ForOp]

    def prefetch_in(self, loop: scf.ForOp, line_bytes: int, constants: ConstantPool) -> None:
        """Emit the prefetches of one register tile in its k loop: tile t of n prefetches the t-th of n parts of the panel.

        The first iterations prefetch one or more cache lines each. The loop is split after them, so that the other iterations
        have no prefetches.
        """
        bounds = constant_bounds(loop)
        assert bounds is not None and loop.parent is not None
        low, high, step = bounds
        line = line_bytes // numpy_dtype(memref_of(self.panel.result).element_type).itemsize
        num_runs = prod(_trip_count(run) for run in self.runs)
        lines = -(-self.elements // (line * prod(t.count for t in self.tiles) * num_runs))
        iterations = -(-(high - low) // step)
        lines_per_iteration = -(-lines // iterations)
        head_iterations = -(-lines // lines_per_iteration)

        before = OpBuilder(constants, loop.parent, loop.location, anchor=loop)
        part: Index = 0
        for t in self.tiles:
            part = before.add(before.multiply(part, t.count), before.floordiv(t.offset, t.size))
        for run in self.runs:
            run_low, _, run_step = constant_bounds(run) or (0, 0, 1)
            position = before.floordiv(before.subtract(run.body.block.args[0], run_low), run_step)
            part = before.add(before.multiply(part, _trip_count(run)), position)
        start = before.multiply(part, lines * line)

        head = loop
        if head_iterations < _MIN_SPLIT_FRACTION * iterations:
            head = _split(loop, low + head_iterations * step, constants)
        block = head.body.block
        builder = OpBuilder(constants, block, loop.location, anchor=block.first_op)
        iteration = builder.floordiv(builder.subtract(block.args[0], low), step)
        first_element = builder.add(start, builder.multiply(iteration, lines_per_iteration * line))
        indices = [constants.index(0)] * len(memref_of(self.panel.result).get_shape())
        indices[self.row_axis] = constants.index(self.distance)
        for n in range(lines_per_iteration):
            indices[-1] = builder.value(builder.add(first_element, n * line))
            builder.insert(PrefetchOp.create(operands=[self.panel.result, *indices], properties=L2_READ_HINTS))


def find_next_panel(loop: scf.ForOp, read: vector.TransferReadOp, row_axis: int) -> NextPanel | None:
    """Return the next panel for a k loop that reads rows of a panel.

    None if several register tiles do not use the panel one after the other, as where the loop over panels is the innermost.
    """
    panel = read.source.owner
    if not isinstance(panel, memref.SubviewOp) or constant_bounds(loop) is None:
        return None
    shape, strides = memref_of(panel.result).get_shape(), strides_of(panel.result)
    panel_iterators = {i for offset in panel.offsets for i in _iterators_in(offset)}
    tiles = list(_row_tiles(loop, panel, panel_iterators))
    row_iterators = {i for t in tiles for i in _iterators_in(t.offset)}
    enclosing = list(_enclosing_iterators(panel))
    innermost = next((i for i, _ in enclosing if i in panel_iterators or i in row_iterators), None)
    runs = list(_loops_between(loop, panel))
    if (
        DYNAMIC_INDEX in shape
        or row_axis != len(shape) - 2
        or strides != row_major(shape)
        or innermost is None
        or innermost in panel_iterators
        or prod(t.count for t in tiles) < 2
        or any(constant_bounds(run) is None for run in runs)
    ):
        return None
    iterator, step = next(((i, step) for i, step in enclosing if i in panel_iterators), (None, None))
    if iterator is None or step is None:
        return None
    distance = _distance(panel, {iterator: step})
    if distance is None or distance % shape[-1]:
        return None
    return NextPanel(panel, row_axis, distance // shape[-1], prod(shape), tiles, runs)


def _row_tiles(loop: scf.ForOp, panel: memref.SubviewOp, panel_iterators: set[BlockArgument]) -> Iterator[RowTiles]:
    """Yield the tiles of the other operand of the contraction that share a panel."""
    reads = (op.source.owner for op in loop.body.block.ops if isinstance(op, vector.TransferReadOp))
    operand = next((source for source in reads if isinstance(source, memref.SubviewOp) and source is not panel), None)
    if operand is None:
        return
    dynamic_offsets = iter(operand.offsets)
    shape = memref_of(operand.source).get_shape()
    for offset, size, extent in zip(
        operand.static_offsets.iter_values(), operand.static_sizes.iter_values(), shape, strict=True
    ):
        if offset != DYNAMIC_INDEX:
            continue
        value = next(dynamic_offsets)
        if DYNAMIC_INDEX not in (size, extent) and not panel_iterators.intersection(_iterators_in(value)):
            yield RowTiles(value, size, extent)


def _iterators_in(value: SSAValue) -> Iterator[BlockArgument]:
    """Yield the loop iterators that an index is computed from."""
    if isinstance(value, BlockArgument):
        yield value
    elif isinstance(value.owner, Operation):
        for operand in value.owner.operands:
            yield from _iterators_in(operand)


def _enclosing_iterators(op: Operation) -> Iterator[tuple[BlockArgument, int | None]]:
    """Yield the iterators of the loops around an op, innermost first, and their steps if constant."""
    outer = op.parent_op()
    while outer is not None:
        match outer:
            case scf.ForOp():
                yield outer.body.block.args[0], constant_integer(outer.step)
            case scf.ParallelOp():
                yield from reversed([*zip(outer.body.block.args, map(constant_integer, outer.step), strict=True)])
            case _:
                pass
        outer = outer.parent_op()


def _loops_between(loop: scf.ForOp, panel: memref.SubviewOp) -> Sequence[scf.ForOp]:
    """Return the loops that contain the k loop but not the panel, outermost first."""
    loops: list[scf.ForOp] = []
    outer = loop.parent_op()
    while outer is not None and outer is not panel.parent_op():
        if isinstance(outer, scf.ForOp):
            loops.insert(0, outer)
        outer = outer.parent_op()
    return loops


def _distance(panel: memref.SubviewOp, advanced: Mapping[BlockArgument, int]) -> int | None:
    """Return how far a view moves, in elements, if iterators advance from 0; None if that is unknown."""
    distance = 0
    dynamic_offsets = iter(panel.offsets)
    for offset, stride in zip(panel.static_offsets.iter_values(), strides_of(panel.source), strict=True):
        if offset == DYNAMIC_INDEX:
            moved = _evaluate(next(dynamic_offsets), advanced)
            if moved is None or not isinstance(stride, int):
                return None
            distance += moved * stride
    return distance


def _evaluate(value: SSAValue, iterators: Mapping[BlockArgument, int]) -> int | None:
    """Return an index for these iterators; others are 0."""
    if isinstance(value, BlockArgument):
        return iterators.get(value, 0)
    match value.owner:
        case arith.AddiOp() | arith.MuliOp() | arith.DivUIOp() as op:
            a, b = (_evaluate(v, iterators) for v in op.operands)
            if a is None or b is None:
                return None
            return a + b if isinstance(op, arith.AddiOp) else a * b if isinstance(op, arith.MuliOp) else a // b
        case _:
            return constant_integer(value)


def _trip_count(loop: scf.ForOp) -> int:
    low, high, step = constant_bounds(loop) or (0, 1, 1)
    return -(-(high - low) // step)


def _split(loop: scf.ForOp, middle: int, constants: ConstantPool) -> scf.ForOp:
    """Split a loop at an index; return the first part. `loop` becomes the second one."""
    assert loop.parent is not None
    head = loop.clone()
    head.operands = [head.lb, constants.index(middle), head.step, *loop.iter_args]
    loop.parent.insert_op_before(head, loop)
    loop.operands = [constants.index(middle), loop.ub, loop.step, *head.results]
    return head

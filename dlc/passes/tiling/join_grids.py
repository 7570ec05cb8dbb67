"""Join independent grids of a kernel into one.

If one grid uses barriers, its work-items first compute the points of the other grids. Its barriers must stay outside of
branches, where some OpenCL drivers miscompile them:

    scf.parallel (%i0) = 0 to 56 {level = "grid"} { scf.parallel (%t0) = 0 to 64 {level = "item"} { …, gpu.barrier, … } }
    scf.parallel (%i1) = 0 to 17 {level = "grid"} { scf.parallel (%t1) = 0 to 31 {level = "item"} { A } }
  →
    scf.parallel (%i0) = 0 to 56 {level = "grid"} {
      scf.parallel (%t0) = 0 to 64 {level = "item"} {
        %point = %i0 · 64 + %t0
        scf.if (%point < 527) { A at (%point floordiv 31, %point mod 31) }
        …, gpu.barrier, … } }

If no grid uses barriers, all groups get the same size, and the groups of all grids are numbered consecutively:

    scf.parallel (%group) = 0 to 61 {level = "grid"} {
      scf.if (%group < 56) {
        scf.parallel (%t0) = 0 to 64 {level = "item"} { … }
      } else {
        scf.parallel (%item) = 0 to 64 {level = "item"} {
          %point = (%group - 56) · 64 + %item
          scf.if (%point < 527) { A at … } } } }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from dlc.dialects.sizes import size_of
from dlc.dialects.workgroup import is_workgroup
from dlc.ir import Operation, StringAttr, erase_op, func, gpu, memref, scf
from dlc.passes.structured import ConstantPool, Index, OpBuilder
from dlc.passes.tiling.memory_effects import MemoryEffects
from dlc.shapes.dims import Size, product


@dataclass(frozen=True)
class _WorkGrid:
    """A grid of work-groups, and the loop over the work-items of a group."""

    op: scf.ParallelOp
    items: scf.ParallelOp

    @staticmethod
    def of(op: scf.ParallelOp) -> _WorkGrid:
        loops = (o for o in op.body.block.ops if o.attributes.get("level") == StringAttr("item"))
        return _WorkGrid(op, cast(scf.ParallelOp, next(loops)))

    @property
    def groups(self) -> Size:
        return product(points(self.op))

    @property
    def items_per_group(self) -> int:
        """The work-items of each group."""
        return int(product(points(self.items)))

    @property
    def needs_barriers(self) -> bool:
        """Return whether work-items synchronize or share memory."""
        ops = list(self.op.walk())
        shares = any(is_workgroup(o.memref) for o in ops if isinstance(o, memref.AllocaOp))
        return shares or any(isinstance(o, gpu.BarrierOp) for o in ops)

    def num_groups_with_items(self, items_per_group: int) -> Size:
        """Return the number of groups that cover all points with `items_per_group` work-items per group."""
        return (
            self.groups
            if items_per_group == self.items_per_group
            else _ceil_div(self.groups * self.items_per_group, items_per_group)
        )


def points(op: scf.ParallelOp) -> list[Size]:
    """Return the number of points of a parallel loop (from zero) along each axis."""
    return [_ceil_div(size_of(high), int(size_of(step))) for high, step in zip(op.upperBound, op.step, strict=True)]


def _ceil_div(size: Size, step: int) -> Size:
    """Return ⌈size / step⌉ with a non-negative dividend: kernels divide unsigned indices only."""
    return (size + (step - 1)) // step


def join_grids(kernel: func.FuncOp, effects: dict[Operation, MemoryEffects], constants: ConstantPool) -> None:
    """Join adjacent grids of a kernel, given the memory effects of each."""
    for run in _independent_runs(kernel, effects):
        synchronizing = next((g for g in run if g.needs_barriers), None)
        if len(run) > 1 and synchronizing is not None:
            _share_points_with(synchronizing, run, constants)
        elif len(run) > 1:
            _ConcatenatedGrids(run, constants).generate()


def _independent_runs(kernel: func.FuncOp, effects: dict[Operation, MemoryEffects]) -> list[list[_WorkGrid]]:
    """Return runs of grids that may be joined, in order."""
    runs: list[list[_WorkGrid]] = [[]]
    for op in kernel.body.block.ops:
        if op not in effects:
            # Ops with side effects, and loads of what a grid may have written, separate runs.
            if op.regions or not op.results or isinstance(op, memref.LoadOp):
                runs.append([])
            continue
        grid, run = _WorkGrid.of(cast(scf.ParallelOp, op)), runs[-1]
        if sum(g.needs_barriers for g in (*run, grid)) > 1 or not all(effects[op].is_independent(effects[g.op]) for g in run):
            runs.append([])
        runs[-1].append(grid)
    return runs


def _share_points_with(synchronizing: _WorkGrid, run: Sequence[_WorkGrid], constants: ConstantPool) -> None:
    """Distribute the points of the other grids of a run over the work-items of the one that synchronizes."""
    block, parent, last = synchronizing.items.body.block, synchronizing.op.parent, run[-1].op
    first_op = block.first_op
    assert first_op is not None and parent is not None
    if synchronizing.op is not last:
        # Views of buffers that the other grids write may be defined between the grids.
        synchronizing.op.detach()
        parent.insert_op_before(synchronizing.op, last)
    for grid in run:
        if grid is synchronizing:
            continue
        builder = OpBuilder(constants, block, grid.op.location, anchor=first_op)
        group_index, item_in_group = _linear_index(builder, synchronizing.op), _linear_index(builder, synchronizing.items)
        item = builder.add(builder.multiply(group_index, synchronizing.items_per_group), item_in_group)
        num_points, num_items = grid.groups * grid.items_per_group, synchronizing.groups * synchronizing.items_per_group
        if isinstance(num_points, int) and isinstance(num_items, int) and num_points <= num_items:
            _inline_point(
                builder if num_points == num_items else builder.branch(builder.compare(item, "ult", num_points)), grid, item
            )
            continue
        # Avoid a division by 0 if there are no groups.
        rounds = builder.floordiv(
            builder.compute_size(num_points + (num_items - 1)), builder.maximum(builder.compute_size(num_items), 1)
        )
        for body_builder, current_round in builder.each(0, rounds, 1, "round"):
            step = body_builder.value(body_builder.compute_size(num_items))
            point = body_builder.add(body_builder.multiply(step, current_round), item)
            has_point = body_builder.compare(point, "ult", body_builder.compute_size(num_points))
            _inline_point(body_builder.branch(has_point), grid, point)


def _inline_point(builder: OpBuilder, grid: _WorkGrid, point: Index) -> None:
    """Inline the code of one point of a grid; the points of a group are consecutive."""
    _inline_body(builder, grid.op, builder.floordiv(point, grid.items_per_group))
    _inline_body(builder, grid.items, builder.remainder(point, grid.items_per_group))


class _ConcatenatedGrids:
    """Several grids without barriers as one grid, whose groups are numbered consecutively."""

    def __init__(self, grids: Sequence[_WorkGrid], constants: ConstantPool) -> None:
        self.grids = grids
        self.items_per_group = max(g.items_per_group for g in grids)
        self.sizes = [g.num_groups_with_items(self.items_per_group) for g in grids]
        last = grids[-1].op
        block = last.parent
        assert block is not None
        self.builder = OpBuilder(constants, block, last.location, anchor=last)

    def generate(self) -> None:
        """Generate the joined grid."""
        loop = self.builder.parallel("grid", [(sum(self.sizes, 0), 1)], ["group"])
        builder, group = self.builder.at_block_end(loop.body.block), loop.body.block.args[0]
        first: Size = 0
        grid_builder = builder
        for k, (grid, size) in enumerate(zip(self.grids, self.sizes, strict=True)):
            location_builder = grid_builder.with_location(grid.op.location)
            inner_group = location_builder.subtract(group, location_builder.compute_size(first))
            first = first + size
            group_builder = location_builder
            if k + 1 < len(self.grids):
                group_builder, grid_builder = location_builder.if_else(
                    location_builder.compare(group, "ult", location_builder.compute_size(first))
                )
            if grid.items_per_group == self.items_per_group:
                _inline_body(group_builder, grid.op, inner_group)
            else:
                self.points(group_builder, grid, inner_group)
        builder.insert(scf.ReduceOp())

    def points(self, builder: OpBuilder, grid: _WorkGrid, group: Index) -> None:
        """Distribute the points of a grid over groups of another size."""
        loop = builder.parallel("item", [(self.items_per_group, 1)], ["item"])
        body_builder = builder.at_block_end(loop.body.block)
        point = body_builder.add(body_builder.multiply(group, self.items_per_group), loop.body.block.args[0])
        num_points = body_builder.compute_size(grid.groups * grid.items_per_group)
        _inline_point(body_builder.branch(body_builder.compare(point, "ult", num_points)), grid, point)
        body_builder.insert(scf.ReduceOp())


def _inline_body(builder: OpBuilder, loop: scf.ParallelOp, linear_index: Index) -> None:
    """Move the body of a parallel loop to the insertion point, for point `linear_index` only; erase the loop."""
    block = loop.body.block
    for argument, value in zip(block.args, _induction_values(builder, loop, linear_index), strict=True):
        index = builder.value(value)
        if index.name_hint is None:
            index.name_hint = argument.name_hint
        argument.replace_all_uses_with(index)
    for op in list(block.ops):
        if op is not block.last_op:
            op.detach()
            builder.with_location(op.location).insert(op)
    erase_op(loop)


def _induction_values(builder: OpBuilder, loop: scf.ParallelOp, linear_index: Index) -> list[Index]:
    """Return the induction variables of point `linear_index` of a parallel loop, row-major."""
    sizes, values = points(loop), list[Index]()
    for size, step in reversed(list(zip(sizes, map(size_of, loop.step), strict=True))):
        digit = linear_index
        if len(values) + 1 < len(sizes):
            extent = builder.compute_size(size)
            linear_index, digit = _divmod(builder, linear_index, extent)
        values.insert(0, builder.multiply(digit, int(step)))
    return values


def _linear_index(builder: OpBuilder, loop: scf.ParallelOp) -> Index:
    """Return the row-major index of the current point of a parallel loop."""
    linear_index: Index = 0
    for induction, size, step in zip(loop.body.block.args, points(loop), map(size_of, loop.step), strict=True):
        extent = builder.compute_size(size)
        linear_index = builder.add(builder.multiply(extent, linear_index), builder.floordiv(induction, int(step)))
    return linear_index


def _divmod(builder: OpBuilder, a: Index, b: Index) -> tuple[Index, Index]:
    """Return quotient and remainder of a non-negative index by a positive one."""
    if isinstance(b, int):
        return builder.floordiv(a, b), builder.remainder(a, b)
    quotient = builder.floordiv(a, b)
    return quotient, builder.subtract(a, builder.multiply(quotient, b))

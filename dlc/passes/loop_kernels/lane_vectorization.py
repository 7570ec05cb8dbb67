"""Vectorization of a grid of lanes: each point computes several groups of lanes, as the elements of vectors.

Note [Order of groups] The groups of a grid point hide each other's latency. Between loops and branches, all ops of one group
come before those of the next: temporaries of one group alone are in registers, and the processor overlaps the groups. The
steps of a Lorenz system in f64 take a third less time on AVX2 than with ops on vectors of several registers (Zen 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.scalar import constant_integer
from dlc.ir import (
    AffineDimExpr,
    AffineMap,
    Attribute,
    Block,
    MemRefType,
    Operation,
    Region,
    SSAValue,
    arith,
    erase_op,
    i1,
    memref,
    scf,
    vector,
)
from dlc.passes.loop_kernels.elements import NotLowerableError
from dlc.passes.structured import OpBuilder
from dlc.passes.types import memref_of, vector_type

# The minimum number of tasks, if there are more vectors of lanes, and the number of vectors for which there is another task.
_MIN_TASKS, _POINTS_PER_TASK = 16, 16


def vectorize_lanes(
    grid: scf.ParallelOp, builder: OpBuilder, width: int, num_groups: int, lane_buffers: Mapping[SSAValue, int]
) -> None:
    """Replace a grid over lanes, before which the builder inserts, by grids over vectors of lanes.

        scf.parallel %lane = 0 to 100 { %x = memref.load %a[%lane];  … }
      →
        scf.parallel %i = 0 to 6 { %x = vector.transfer_read %a[16 · %i] : vector<16xf32>;  … }
        scf.parallel %i = 0 to 1 { %x = vector.transfer_read %a[96] : vector<4xf32>;  … }

    A point has `num_groups` vectors of `width` lanes; here one. A while loop runs until no lane runs; its body masks the lanes
    that have ended (Note [Lanes of while loops]).
    Uniform values stay scalars. Raises NotLowerableError for a gather, at indices that differ between lanes.

    Local buffers of lanes, given with their lane axes, become arguments of the function: an array per task, for one vector of
    lanes at a time, so that it stays in the cache. A task then runs several grid points.
    """
    count = constant_integer(grid.upperBound[0])
    assert count is not None
    varying = _Varying(grid)
    num_tasks, lanes_per_point = 0, width * num_groups
    if lane_buffers:
        num_points = max(1, count // lanes_per_point)
        num_tasks = min(num_points, max(_MIN_TASKS, num_points // _POINTS_PER_TASK))
    size = min(lanes_per_point, count)
    task_buffers = {v: _task_buffer(v, axis, num_tasks, size, builder) for v, axis in lane_buffers.items()}
    rest, last = count % lanes_per_point, count % width
    for low, lanes, groups, points in (
        (0, width, num_groups, count // lanes_per_point),
        (count - rest, width, rest // width, 1),
        (count - last, last, 1, 1),
    ):
        if lanes and groups and points:
            tasks = min(points, num_tasks) if lane_buffers else points
            new_grid = builder.parallel("grid", [(tasks, 1)], ["lanes"])
            task, body = new_grid.body.block.args[0], builder.at_block_end(new_grid.body.block)
            inner, point = body, task
            if tasks < points:
                first, end = (body.floordiv(body.multiply(body.add(task, k), points), tasks) for k in (0, 1))
                loop = body.loop(first, end, 1, name="point")
                inner, point = body.at_block_end(loop.body.block), loop.body.block.args[0]
            first_lane = inner.value(inner.add(inner.multiply(point, lanes_per_point), low))
            group_lanes = [inner.value(inner.add(first_lane, group * lanes)) for group in range(groups)]
            _Widener(varying, grid.body.block.args[0], group_lanes, lanes, task, task_buffers).block(grid.body.block, inner)
            if inner is not body:
                inner.yield_()
            body.insert(scf.ReduceOp())
    erase_op(grid)


@dataclass(frozen=True)
class _TaskBuffer:
    """A buffer of arrays, one per task; the lane axis of the local buffer of a lane is their last axis."""

    buffer: SSAValue
    lane_axis: int

    def indices(self, task: SSAValue, indices: Sequence[SSAValue], lane: SSAValue) -> list[SSAValue]:
        """Return the indices of a vector of lanes, given those in the local buffer of a lane, and its lane in the task."""
        return [task, *indices[: self.lane_axis], *indices[self.lane_axis + 1 :], lane]


def _task_buffer(local: SSAValue, lane_axis: int, num_tasks: int, width: int, builder: OpBuilder) -> _TaskBuffer:
    """Add an argument to the function, with an array per task in place of a local buffer of each lane."""
    shape = list(memref_of(local).get_shape())
    del shape[lane_axis]
    type_ = MemRefType(memref_of(local).element_type, (num_tasks, *shape, width))
    return _TaskBuffer(builder.block.insert_arg(type_, len(builder.block.args)), lane_axis)


class _Varying:
    """The varying values: those that differ between lanes."""

    def __init__(self, grid: scf.ParallelOp) -> None:
        self._lane = grid.body.block.args[0]
        self.values: set[SSAValue] = set()
        size = -1
        # A carried value varies if it varies after any iteration.
        while size != len(self.values):
            size = len(self.values)
            self._visit(grid.body.block)

    def _visit(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case scf.ForOp():
                    self._carry(op.iter_args, op.body.block.args[1:], op.res, op.body.block)
                case scf.WhileOp():
                    before, after = op.before_region.block, op.after_region.block
                    self._carry(op.arguments, before.args, (), after)
                    end = before.last_op
                    assert isinstance(end, scf.ConditionOp)
                    for source, argument, result in zip(end.args, after.args, op.res, strict=True):
                        if source in self.values:
                            self.values.update((argument, result))
                case scf.IfOp():
                    for region in op.regions:
                        self._visit(region.block)
                        for value, result in zip(_yielded(region.block), op.output, strict=True):
                            if value in self.values:
                                self.values.add(result)
                case _:
                    if self._lane in op.operands or not self.values.isdisjoint(op.operands):
                        self.values.update(op.results)

    def _carry(
        self, initial: Sequence[SSAValue], arguments: Sequence[SSAValue], results: Sequence[SSAValue], body: Block
    ) -> None:
        self._visit(body)
        for k, (first, argument, last) in enumerate(zip(initial, arguments, _yielded(body), strict=True)):
            if first in self.values or last in self.values or argument in self.values:
                self.values.update((argument, *results[k : k + 1]))


def _yielded(block: Block) -> Sequence[SSAValue]:
    last = block.last_op
    assert isinstance(last, scf.YieldOp)
    return last.arguments


class _Widener:
    """Copies the ops of a lane, with a vector per group for each value that differs between lanes."""

    def __init__(
        self,
        varying: _Varying,
        lane: SSAValue,
        group_lanes: Sequence[SSAValue],
        width: int,
        task: SSAValue,
        task_buffers: Mapping[SSAValue, _TaskBuffer],
    ) -> None:
        self._varying, self._lane, self._group_lanes, self._width = varying.values, lane, group_lanes, width
        self._task, self._task_buffers = task, task_buffers
        # The copy of each group; one copy of a value that is equal in all lanes.
        self._copies: dict[SSAValue, Sequence[SSAValue]] = {}

    def block(self, block: Block, builder: OpBuilder) -> None:
        """Copy the ops of a block, without its terminator; see Note [Order of groups]."""
        pending: list[Operation] = []
        for op in block.ops:
            match op:
                case scf.ForOp() | scf.WhileOp() | scf.IfOp():
                    self._straight_line(pending, builder)
                    pending = []
                    self._control(op, builder)
                case scf.YieldOp() | scf.ReduceOp():
                    pass
                case memref.AllocaOp() if op.results[0] in self._task_buffers:
                    pass
                case _:
                    pending.append(op)
        self._straight_line(pending, builder)

    def _control(self, op: scf.ForOp | scf.WhileOp | scf.IfOp, builder: OpBuilder) -> None:
        match op:
            case scf.ForOp():
                self._for(op, builder)
            case scf.WhileOp():
                self._while(op, builder)
            case scf.IfOp():
                self._if(op, builder)

    def _straight_line(self, ops: Sequence[Operation], builder: OpBuilder) -> None:
        for group in range(len(self._group_lanes)):
            for op in ops:
                if group == 0 or self._differs(op):
                    is_access = isinstance(op, memref.LoadOp | memref.StoreOp)
                    result = self._access(op, group, builder) if is_access else self._compute(op, group, builder)
                    if result is not None:
                        self._copies[op.results[0]] = [*self._copies.get(op.results[0], []), result]

    def _differs(self, op: Operation) -> bool:
        """Return whether groups compute or store different values."""
        if isinstance(op, memref.StoreOp):
            return op.memref in self._task_buffers or self._lane in op.indices
        return op.results[0] in self._varying

    def _types(self, value: SSAValue) -> list[Attribute]:
        """Return the types of the copies of a value."""
        if value in self._varying:
            return [vector_type((self._width,), value.type)] * len(self._group_lanes)
        return [value.type]

    def _copy(self, value: SSAValue, group: int = 0) -> SSAValue:
        copies = self._copies.get(value, (value,))
        return copies[group if value in self._varying else 0]

    def _value(self, value: SSAValue, group: int, builder: OpBuilder, *, like: SSAValue) -> SSAValue:
        """Return the copy of a value; a scalar is broadcast if `like` varies."""
        copy = self._copy(value, group)
        return builder.splat(copy, (self._width,)) if like in self._varying and value not in self._varying else copy

    def _values(self, values: Sequence[SSAValue], likes: Sequence[SSAValue], builder: OpBuilder) -> list[SSAValue]:
        """Return all copies of values that become those of `likes`."""
        pairs = zip(values, likes, strict=True)
        return [self._value(v, group, builder, like=like) for v, like in pairs for group in range(len(self._types(like)))]

    def _bind(self, values: Sequence[SSAValue], copies: Sequence[SSAValue]) -> None:
        """Set the copies of values, from a list of all of them."""
        remaining = iter(copies)
        for value in values:
            self._copies[value] = [next(remaining) for _ in self._types(value)]

    def _compute(self, op: Operation, group: int, builder: OpBuilder) -> SSAValue:
        if self._lane in op.operands or op.regions:
            raise NotLowerableError(f"{op.name} depends on the number of the lane")
        result = op.results[0]
        copy = op.create(
            operands=[self._value(v, group, builder, like=result) for v in op.operands],
            result_types=[self._types(r)[0] for r in op.results],
            properties=op.properties,
            attributes=op.attributes,
        )
        return builder.op(copy)

    def _access(self, op: memref.LoadOp | memref.StoreOp, group: int, builder: OpBuilder) -> SSAValue | None:
        if any(i in self._varying for i in op.indices):
            raise NotLowerableError("a lane accesses an index of its own")
        indices = [self._group_lanes[group] if i is self._lane else self._copy(i) for i in op.indices]
        axes, buffer = [k for k, i in enumerate(op.indices) if i is self._lane], self._copy(op.memref)
        if op.memref in self._task_buffers:
            arrays = self._task_buffers[op.memref]
            indices = arrays.indices(self._task, indices, builder.constants.index(group * self._width))
            buffer, axes = arrays.buffer, [len(indices) - 1]
        rank = len(indices)
        map_ = AffineMap(rank, 0, tuple(AffineDimExpr(axis) for axis in axes))
        if isinstance(op, memref.LoadOp):
            if axes:
                return builder.transfer_read(buffer, indices, (self._width,), map_)
            element = memref_of(buffer).element_type
            return builder.op(memref.LoadOp.create(operands=[buffer, *indices], result_types=[element]))
        value = self._copy(op.value, group)
        if axes:
            value = value if op.value in self._varying else builder.splat(value, (self._width,))
            builder.transfer_write(value, buffer, indices, map_)
        elif op.value in self._varying or not isinstance(op.memref.owner, memref.AllocaOp):
            raise NotLowerableError("all lanes store to one element")
        else:
            builder.insert(memref.StoreOp.create(operands=[value, buffer, *indices]))
        return None

    def _for(self, op: scf.ForOp, builder: OpBuilder) -> None:
        index, *arguments = op.body.block.args
        low, high, step = (self._copy(v) for v in (op.lb, op.ub, op.step))
        loop = builder.loop(low, high, step, self._values(op.iter_args, arguments, builder), name=index.name_hint or "i")
        self._bind((index, *arguments), loop.body.block.args)
        body = builder.at_block_end(loop.body.block)
        self.block(op.body.block, body)
        body.yield_(*self._values(_yielded(op.body.block), arguments, body))
        self._bind(op.res, loop.res)

    def _while(self, op: scf.WhileOp, builder: OpBuilder) -> None:
        before, after = op.before_region.block, op.after_region.block
        end = before.last_op
        assert isinstance(end, scf.ConditionOp)
        # The condition is one argument: that any lane runs. The others are those of the groups.
        others = [a for a in before.args if a is not end.condition]

        def carried(values: Sequence[SSAValue], at: OpBuilder) -> list[SSAValue]:
            by_argument: dict[SSAValue, SSAValue] = dict(zip(before.args, values, strict=True))
            running = by_argument[end.condition]
            condition = self._any(self._copies.get(running, (running,)), at)
            return [condition, *self._values([by_argument[a] for a in others], others, at)]

        initial = carried(op.arguments, builder)
        new_before = Block(arg_types=[v.type for v in initial])
        condition, *forwarded = new_before.args
        self._bind(others, forwarded)
        passed = [
            self._copy(v, group) for v, a in zip(end.args, after.args, strict=True) for group in range(len(self._types(a)))
        ]
        new_before.add_op(scf.ConditionOp(condition, *passed))
        new_after = Block(arg_types=[v.type for v in passed])
        self._bind(after.args, new_after.args)
        body = builder.at_block_end(new_after)
        self.block(after, body)
        body.yield_(*carried(_yielded(after), body))
        loop = scf.WhileOp(initial, [v.type for v in passed], Region(new_before), Region(new_after))
        builder.insert(loop)
        self._bind(op.res, loop.res)

    def _any(self, conditions: Sequence[SSAValue], builder: OpBuilder) -> SSAValue:
        """Return whether a condition holds in any lane."""
        total = conditions[0]
        for condition in conditions[1:]:
            total = builder.op(arith.OrIOp(total, condition))
        if total.type == i1:
            return total
        properties = {
            "kind": vector.CombiningKindAttr(vector.CombiningKindFlag("or")),
            "fastmath": arith.FastMathFlagsAttr("none"),
        }
        return builder.op(vector.ReductionOp.create(operands=[total], result_types=[i1], properties=properties))

    def _if(self, op: scf.IfOp, builder: OpBuilder) -> None:
        if op.cond in self._varying:
            raise NotLowerableError("lanes take different branches")
        blocks = [Block(), Block()]
        for block, region in zip(blocks, op.regions, strict=True):
            body = builder.at_block_end(block)
            self.block(region.block, body)
            body.yield_(*self._values(_yielded(region.block), op.output, body))
        types = [t for r in op.output for t in self._types(r)]
        branch = scf.IfOp(self._copy(op.cond), types, Region(blocks[0]), Region(blocks[1]))
        builder.insert(branch)
        self._bind(op.output, branch.output)

"""Vectorization of a grid of lanes: each point computes `width` lanes, as the elements of vectors."""

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


def vectorize_lanes(grid: scf.ParallelOp, builder: OpBuilder, width: int, lane_buffers: Mapping[SSAValue, int]) -> None:
    """Replace a grid over lanes, before which the builder inserts, by grids over vectors of lanes.

        scf.parallel %lane = 0 to 100 { %x = memref.load %a[%lane];  … }
      →
        scf.parallel %i = 0 to 6 { %x = vector.transfer_read %a[16 · %i] : vector<16xf32>;  … }
        scf.parallel %i = 0 to 1 { %x = vector.transfer_read %a[96] : vector<4xf32>;  … }

    A while loop runs until no lane runs; its body masks the lanes that have ended (Note [Lanes of while loops]).
    Uniform values stay scalars. Raises NotLowerableError for a gather, at indices that differ between lanes.

    Local buffers of lanes, given with their lane axes, become arguments of the function: an array per task, for one vector of
    lanes at a time, so that it stays in the cache. A task then runs several grid points.
    """
    count = constant_integer(grid.upperBound[0])
    assert count is not None
    varying = _Varying(grid)
    num_tasks = 0
    if lane_buffers:
        num_points = max(1, count // width)
        num_tasks = min(num_points, max(_MIN_TASKS, num_points // _POINTS_PER_TASK))
    task_buffers = {v: _task_buffer(v, axis, num_tasks, min(width, count), builder) for v, axis in lane_buffers.items()}
    for low, lanes, points in ((0, width, count // width), (count - count % width, count % width, 1)):
        if lanes and points:
            tasks = min(points, num_tasks) if lane_buffers else points
            new_grid = builder.parallel("grid", [(tasks, 1)], ["lanes"])
            task, body = new_grid.body.block.args[0], builder.at_block_end(new_grid.body.block)
            inner, point = body, task
            if tasks < points:
                first, end = (body.floordiv(body.multiply(body.add(task, k), points), tasks) for k in (0, 1))
                loop = body.loop(first, end, 1, name="point")
                inner, point = body.at_block_end(loop.body.block), loop.body.block.args[0]
            lane = inner.value(inner.add(inner.multiply(point, lanes), low))
            _Widener(varying, grid.body.block.args[0], lane, lanes, task, task_buffers).block(grid.body.block, inner)
            if inner is not body:
                inner.yield_()
            body.insert(scf.ReduceOp())
    erase_op(grid)


@dataclass(frozen=True)
class _TaskBuffer:
    """A buffer of arrays, one per task; the lane axis of the local buffer of a lane is their last axis."""

    buffer: SSAValue
    lane_axis: int

    def indices(self, task: SSAValue, indices: Sequence[SSAValue], zero: SSAValue) -> list[SSAValue]:
        """Return the indices of a vector of lanes, given those in the local buffer of a lane."""
        return [task, *indices[: self.lane_axis], *indices[self.lane_axis + 1 :], zero]


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
    """Copies the ops of a lane, with vectors for the values that differ between lanes."""

    def __init__(
        self,
        varying: _Varying,
        lane: SSAValue,
        first: SSAValue,
        width: int,
        task: SSAValue,
        task_buffers: Mapping[SSAValue, _TaskBuffer],
    ) -> None:
        self._varying, self._lane, self._first, self._width = varying.values, lane, first, width
        self._task, self._task_buffers = task, task_buffers
        self._values: dict[SSAValue, SSAValue] = {}

    def block(self, block: Block, builder: OpBuilder) -> None:
        """Copy the ops of a block, without its terminator if that yields values."""
        for op in block.ops:
            match op:
                case memref.LoadOp() | memref.StoreOp():
                    self._access(op, builder)
                case scf.ForOp():
                    self._for(op, builder)
                case scf.WhileOp():
                    self._while(op, builder)
                case scf.IfOp():
                    self._if(op, builder)
                case scf.YieldOp() | scf.ReduceOp():
                    pass
                case memref.AllocaOp() if op.results[0] in self._task_buffers:
                    pass
                case _:
                    self._compute(op, builder)

    def _type(self, value: SSAValue) -> Attribute:
        return vector_type((self._width,), value.type) if value in self._varying else value.type

    def _value(self, value: SSAValue, builder: OpBuilder, *, like: SSAValue | None = None) -> SSAValue:
        """Return the copy of a value; a scalar is broadcast if `like`, by default the value itself, varies."""
        copy = self._values.get(value, value)
        if (value if like is None else like) in self._varying and value not in self._varying:
            return builder.splat(copy, (self._width,))
        return copy

    def _compute(self, op: Operation, builder: OpBuilder) -> None:
        if self._lane in op.operands or op.regions:
            raise NotLowerableError(f"{op.name} depends on the number of the lane")
        result = op.results[0]
        copy = op.create(
            operands=[self._value(v, builder, like=result) for v in op.operands],
            result_types=[self._type(r) for r in op.results],
            properties=op.properties,
            attributes=op.attributes,
        )
        self._values[result] = builder.op(copy)

    def _access(self, op: memref.LoadOp | memref.StoreOp, builder: OpBuilder) -> None:
        if any(i in self._varying for i in op.indices):
            raise NotLowerableError("a lane accesses an index of its own")
        indices = [self._first if i is self._lane else self._values.get(i, i) for i in op.indices]
        axes, buffer = [k for k, i in enumerate(op.indices) if i is self._lane], self._values.get(op.memref, op.memref)
        if op.memref in self._task_buffers:
            arrays = self._task_buffers[op.memref]
            indices, buffer = arrays.indices(self._task, indices, builder.constants.index(0)), arrays.buffer
            axes = [len(indices) - 1]
        rank = len(indices)
        map_ = AffineMap(rank, 0, tuple(AffineDimExpr(axis) for axis in axes))
        if isinstance(op, memref.LoadOp):
            if axes:
                self._values[op.res] = builder.transfer_read(buffer, indices, (self._width,), map_)
            else:
                element = memref_of(buffer).element_type
                load = memref.LoadOp.create(operands=[buffer, *indices], result_types=[element])
                self._values[op.res] = builder.op(load)
            return
        value = self._values.get(op.value, op.value)
        if axes:
            value = value if op.value in self._varying else builder.splat(value, (self._width,))
            builder.transfer_write(value, buffer, indices, map_)
        elif op.value in self._varying or not isinstance(op.memref.owner, memref.AllocaOp):
            raise NotLowerableError("all lanes store to one element")
        else:
            builder.insert(memref.StoreOp.create(operands=[value, buffer, *indices]))

    def _for(self, op: scf.ForOp, builder: OpBuilder) -> None:
        arguments = op.body.block.args
        initial = [self._value(v, builder, like=a) for v, a in zip(op.iter_args, arguments[1:], strict=True)]
        bounds = [self._values.get(v, v) for v in (op.lb, op.ub, op.step)]
        loop = builder.loop(bounds[0], bounds[1], bounds[2], initial, name=arguments[0].name_hint or "i")
        self._values.update(zip(arguments, loop.body.block.args, strict=True))
        body = builder.at_block_end(loop.body.block)
        self.block(op.body.block, body)
        body.yield_(*(self._value(v, body, like=a) for v, a in zip(_yielded(op.body.block), arguments[1:], strict=True)))
        self._values.update(zip(op.res, loop.res, strict=True))

    def _while(self, op: scf.WhileOp, builder: OpBuilder) -> None:
        before, after = op.before_region.block, op.after_region.block
        end = before.last_op
        assert isinstance(end, scf.ConditionOp)

        def carried(values: Sequence[SSAValue], at: OpBuilder) -> list[SSAValue]:
            copies = [self._value(v, at, like=a) for v, a in zip(values, before.args, strict=True)]
            return [self._any(c, at) if a is end.condition else c for c, a in zip(copies, before.args, strict=True)]

        initial = carried(op.arguments, builder)
        new_before, new_after = Block(arg_types=[v.type for v in initial]), Block(arg_types=[self._type(a) for a in after.args])
        forwarded: dict[SSAValue, SSAValue] = dict(zip(before.args, new_before.args, strict=True))
        new_before.add_op(scf.ConditionOp(forwarded[end.condition], *(forwarded[v] for v in end.args)))
        self._values.update(zip(after.args, new_after.args, strict=True))
        body = builder.at_block_end(new_after)
        self.block(after, body)
        body.yield_(*carried(_yielded(after), body))
        loop = scf.WhileOp(initial, [a.type for a in new_after.args], Region(new_before), Region(new_after))
        builder.insert(loop)
        self._values.update(zip(op.res, loop.res, strict=True))

    def _any(self, condition: SSAValue, builder: OpBuilder) -> SSAValue:
        """Return whether a condition holds in any lane."""
        if condition.type == i1:
            return condition
        properties = {
            "kind": vector.CombiningKindAttr(vector.CombiningKindFlag("or")),
            "fastmath": arith.FastMathFlagsAttr("none"),
        }
        return builder.op(vector.ReductionOp.create(operands=[condition], result_types=[i1], properties=properties))

    def _if(self, op: scf.IfOp, builder: OpBuilder) -> None:
        if op.cond in self._varying:
            raise NotLowerableError("lanes take different branches")
        blocks = [Block(), Block()]
        for block, region in zip(blocks, op.regions, strict=True):
            body = builder.at_block_end(block)
            self.block(region.block, body)
            body.yield_(*(self._value(v, body, like=r) for v, r in zip(_yielded(region.block), op.output, strict=True)))
        branch = scf.IfOp(
            self._values.get(op.cond, op.cond), [self._type(r) for r in op.output], Region(blocks[0]), Region(blocks[1])
        )
        builder.insert(branch)
        self._values.update(zip(op.output, branch.output, strict=True))

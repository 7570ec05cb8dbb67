"""Vectorization of a grid of lanes: each point computes `width` lanes, as the elements of vectors."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.scalar import constant_integer
from dlc.ir import AffineDimExpr, AffineMap, Attribute, Block, Operation, Region, SSAValue, arith, i1, memref, scf, vector
from dlc.passes.loop_kernels.elements import NotLowerableError
from dlc.passes.structured import OpBuilder
from dlc.passes.types import memref_of, vector_type


def vectorize_lanes(grid: scf.ParallelOp, builder: OpBuilder, width: int) -> None:
    """Replace a grid over lanes, before which the builder inserts, by grids over vectors of lanes.

        scf.parallel %lane = 0 to 100 { %x = memref.load %a[%lane];  … }
      →
        scf.parallel %i = 0 to 6 { %x = vector.transfer_read %a[16 · %i] : vector<16xf32>;  … }
        scf.parallel %i = 0 to 1 { %x = vector.transfer_read %a[96] : vector<4xf32>;  … }

    A while loop runs until no lane runs; its body masks the lanes that have ended (Note [Lanes of while loops]).
    Uniform values stay scalars. Raises NotLowerableError for a gather, at indices that differ between lanes.
    """
    count = constant_integer(grid.upperBound[0])
    assert count is not None
    varying = _Varying(grid)
    for low, lanes, points in ((0, width, count // width), (count - count % width, count % width, 1)):
        if lanes and points:
            new_grid = builder.parallel("grid", [(points, 1)], ["lanes"])
            body = builder.at_block_end(new_grid.body.block)
            first = body.value(body.add(body.multiply(new_grid.body.block.args[0], lanes), low))
            _Widener(varying, grid.body.block.args[0], first, lanes).block(grid.body.block, body)
    grid.detach()
    grid.erase()


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

    def __init__(self, varying: _Varying, lane: SSAValue, first: SSAValue, width: int) -> None:
        self._varying, self._lane, self._first, self._width = varying.values, lane, first, width
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
                case scf.YieldOp():
                    pass
                case scf.ReduceOp():
                    builder.insert(scf.ReduceOp())
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
        axes = [k for k, i in enumerate(op.indices) if i is self._lane]
        rank = len(indices)
        map_ = AffineMap(rank, 0, tuple(AffineDimExpr(axis) for axis in axes))
        if isinstance(op, memref.LoadOp):
            if axes:
                self._values[op.res] = builder.transfer_read(op.memref, indices, (self._width,), map_)
            else:
                element = memref_of(op.memref).element_type
                load = memref.LoadOp.create(operands=[op.memref, *indices], result_types=[element])
                self._values[op.res] = builder.op(load)
            return
        if not axes:
            raise NotLowerableError("all lanes store to one element")
        value = self._values.get(op.value, op.value)
        value = value if op.value in self._varying else builder.splat(value, (self._width,))
        builder.transfer_write(value, op.memref, indices, map_)

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

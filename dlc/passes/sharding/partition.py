"""Partition a program: build the program of each rank, with collectives where readers need another sharding.

Each op is split over at most one factor per mesh axis. Among the factors over which operands and readers are sharded, the
partitioner chooses those with the least estimated time: the time of the op divided by the number of its parts, plus the time to
reshard operands and results. This also resolves the conflicts at which propagation stopped.

Partial sums stay partial through linear ops, so that `g1 + g2` is reduced once. 16-bit floats are reduced in f32 and
rounded afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import gcd, isfinite, prod
from typing import TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, PropertyValue, element_type_of, rank_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import ProductSum
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.programs.control import Control, captured_values
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.scalar import wide_float
from dlc.dialects.entry import entry_of
from dlc.dialects.location_text import location_prefix
from dlc.errors import UnsupportedError
from dlc.ir import Attribute, Block, FunctionType, ModuleOp, Operation, Region, SSAValue, UnknownLoc, func
from dlc.passes.sharding.factors import Axes, Factors, factors_of
from dlc.passes.sharding.propagate import Shardings, Spec, uniform_element
from dlc.passes.sharding.reshard import ReshardingStep, compute_seconds, local_shape, plan_resharding, resharding_seconds
from dlc.passes.sharding.split_rows import access_own_rows
from dlc.shapes.dims import is_static

# The mesh axes over which each factor is split.
_Assignment: TypeAlias = "dict[int, tuple[str, ...]]"


@dataclass(frozen=True)
class _LocalValue:
    """A value of one rank.

    Attributes:
        value: The shard.
        spec: The sharding.
        partial: The combinator of each mesh axis whose ranks have partial results.
        round_to: The element type to which the value is rounded after its reduction; None if it already has this type.
    """

    value: SSAValue
    spec: Spec
    partial: Mapping[str, str] = field(default_factory=dict[str, str])
    round_to: Attribute | None = None


def partition(module: ModuleOp, shardings: Shardings) -> ModuleOp:
    """Return the program of one rank; arguments and results are shards, by the specs of `shardings`."""
    main = entry_of(module)
    partitioner = _Partitioner(shardings)
    block, results = partitioner.entry(main.body.block)
    block.add_op(func.ReturnOp(*results))
    local = func.FuncOp("main", FunctionType.from_lists([a.type for a in block.args], [v.type for v in results]), Region(block))
    local.attributes.update({k: v for k, v in main.attributes.items() if k not in local.attributes})
    local.arg_attrs, local.res_attrs = main.arg_attrs, main.res_attrs
    return ModuleOp([local])


class _Partitioner:
    def __init__(self, shardings: Shardings) -> None:
        self.shardings, self.mesh = shardings, shardings.mesh
        self.values: dict[SSAValue, _LocalValue] = {}
        # Resharded copies of values that the current block can read.
        self.resharded: dict[tuple[SSAValue, Spec], SSAValue] = {}
        self.positions: dict[tuple[str, ...], SSAValue] = {}
        self.block = Block()
        self.build = DlBuilder(self.block)
        self.entry_block = self.block

    # Blocks

    def entry(self, source: Block) -> tuple[Block, list[SSAValue]]:
        """Partition the entry's block; return the block without its terminator, and the results."""
        self.entry_block = self.open_block(source, [self.shardings.of(a) for a in source.args])
        self.convert(source)
        assert source.last_op is not None
        return self.block, [self.read(v, self.shardings.of(v)) for v in source.last_op.operands]

    def open_block(self, source: Block, specs: Sequence[Spec]) -> Block:
        """Start a block whose arguments are the shards of those of `source`."""
        types = [
            tensor_type(local_shape(self.mesh, shape_of(a), spec), element_type_of(a))
            for a, spec in zip(source.args, specs, strict=True)
        ]
        self.block = Block(arg_types=types)
        self.build = DlBuilder(self.block)
        for argument, local, spec in zip(source.args, self.block.args, specs, strict=True):
            local.name_hint = argument.name_hint
            self.values[argument] = _LocalValue(local, spec)
        return self.block

    def body(self, source: Block, specs: Sequence[Spec], yielded: Sequence[Spec]) -> Block:
        """Return the local body of a loop or branch, which yields values with these specs."""
        block, build, resharded = self.block, self.build, dict(self.resharded)
        result = self.open_block(source, specs)
        self.convert(source)
        last = source.last_op
        if isinstance(last, YieldOp):
            result.add_op(YieldOp([self.read(v, spec) for v, spec in zip(last.values, yielded, strict=True)]))
        elif last is not None:
            result.add_op(last.clone({v: self.read(v, ((),) * rank_of(v)) for v in last.operands}))
        self.block, self.build, self.resharded = block, build, resharded
        return result

    def convert(self, source: Block) -> None:
        for op in source.ops:
            if isinstance(op, func.ReturnOp | YieldOp | dl.FailOp):
                return
            self.build = DlBuilder(self.block, op.location)
            if isinstance(op, Control):
                self.control(op)
            elif isinstance(op, DlOp):
                self.op(op)
            else:
                self.insert(op.clone({v: self.read_replicated(v) for v in op.operands}), op, [])

    def control(self, op: Control) -> None:
        """Partition a loop or branch; partial results that its bodies read are combined before it."""
        of = self.shardings.of
        for value in dict.fromkeys(v for body in op.blocks for v in captured_values(body)):
            if value in self.values and self.values[value].partial:
                self.read(value, of(value))
        match op:
            case dl.ScanOp():
                states = op.state_count
                arguments = [of(a) for a in op.block.args]
                operands = [
                    self.read(v, spec if k < states else ((), *spec))
                    for k, (v, spec) in enumerate(zip(op.operands, arguments, strict=True))
                ]
                elements = [of(r)[1:] for r in op.results[states:]]
                body = self.body(op.block, arguments, [*arguments[:states], *elements])
                local = dl.ScanOp.of(operands, body, states, op.steps, op.is_reverse)
                self.insert(local, op, [*arguments[:states], *(((), *spec) for spec in elements)])
            case dl.WhileOp():
                arguments = [of(a) for a in op.block.args]
                operands = [self.read(v, spec) for v, spec in zip(op.arguments, arguments, strict=True)]
                condition = self.read_replicated(op.condition)
                self.insert(dl.WhileOp.of(condition, operands, self.body(op.block, arguments, [(), *arguments])), op, arguments)
            case dl.IfOp():
                specs = [of(r) for r in op.results]
                condition = self.read_replicated(op.condition)
                then, otherwise = (self.body(block, [], specs) for block in op.blocks)
                types = [self.local_type(r, spec) for r, spec in zip(op.results, specs, strict=True)]
                self.insert(dl.IfOp.of(condition, then, otherwise, types), op, specs)
            case _:
                operands = dict.fromkeys([*op.operands, *(v for body in op.blocks for v in captured_values(body))])
                specs = [((),) * rank_of(r) for r in op.results]
                self.insert(op.clone({v: self.read_replicated(v) for v in operands}), op, specs)

    def insert(self, local: Operation, op: Operation, specs: Sequence[Spec]) -> None:
        """Insert the local form of an op whose results have these specs."""
        self.build.insert(local)
        for result, value, spec in zip(op.results, local.results, specs, strict=True):
            value.name_hint = result.name_hint
            self.values[result] = _LocalValue(value, spec)

    # Values

    def local_type(self, value: SSAValue, spec: Spec) -> Attribute:
        return tensor_type(local_shape(self.mesh, shape_of(value), spec), element_type_of(value))

    def read_replicated(self, value: SSAValue) -> SSAValue:
        return self.read(value, ((),) * rank_of(value))

    def read(self, value: SSAValue, want: Spec) -> SSAValue:
        """Return a value with the sharding `want`."""
        element = uniform_element(value)
        if element is not None and rank_of(value):
            scalar = self.build.scalar(element, like=value)
            return self.build(dl.BroadcastToOp, scalar, shape=local_shape(self.mesh, shape_of(value), want))
        local, key = self.values[value], (value, want)
        if key not in self.resharded:
            result, producer = local.value, value.owner
            # Messages name the line that computes the value.
            location = producer.location if isinstance(producer, Operation) else self.build.location or UnknownLoc()
            with self.build.at_location(location):
                for step in plan_resharding(self.mesh, local.spec, local.partial, want):
                    result = self.apply(step, result)
                if local.round_to is not None:
                    result = self.build(dl.CastOp, result, to=local.round_to)
            self.resharded[key] = result
            if local.partial:
                # Later readers take the combined value.
                self.values[value] = _LocalValue(result, want)
        return self.resharded[key]

    def apply(self, step: ReshardingStep, value: SSAValue) -> SSAValue:
        """Insert one step of a resharding. Raises UnsupportedError for a collective of a size that depends on data."""
        if step.collective is not None and not is_static(shape_of(value)):
            where = location_prefix(self.build.location or UnknownLoc())
            problem = f"{step.collective.name} of shape {shape_of(value)}, whose size depends on data"
            raise UnsupportedError(f"{where}{problem}; replicate its operands by dlc.shard(x, dlc.P())")
        group: dict[str, PropertyValue] = {"axes": " ".join(step.axes), "group_size": self.mesh.shard_count(step.axes)}
        match step.collective:
            case None:
                return self.local_slice(value, step)
            case dl.AllReduceOp:
                return self.build(dl.AllReduceOp, value, **group, combine=step.combine)
            case dl.ReduceScatterOp:
                return self.build(dl.ReduceScatterOp, value, **group, axis=step.axis, combine=step.combine)
            case dl.AllGatherOp:
                return self.build(dl.AllGatherOp, value, **group, axis=step.axis)
            case _:
                return self.build(dl.AllToAllOp, value, **group, split_axis=step.axis, concat_axis=step.source_axis)

    def local_slice(self, value: SSAValue, step: ReshardingStep) -> SSAValue:
        """Take this rank's part along an axis: one entry of an axis of parts, at the rank's position."""
        parts, shape = self.mesh.shard_count(step.axes), shape_of(value)
        size = shape[step.axis] // parts
        split = self.build(dl.ReshapeOp, value, shape=(*shape[: step.axis], parts, size, *shape[step.axis + 1 :]))
        return self.build(dl.GatherOp, split, self.position(step.axes), axis=step.axis, in_bounds=True)

    def position(self, axes: tuple[str, ...]) -> SSAValue:
        """Return the position of the rank along mesh axes, computed once at the beginning of the program."""
        if axes not in self.positions:
            op = dl.AxisIndexOp.make(axes=" ".join(axes), group_size=self.mesh.shard_count(axes))
            first = self.entry_block.first_op
            if first is None:
                self.entry_block.add_op(op)
            else:
                self.entry_block.insert_op_before(op, first)
            self.positions[axes] = op.result
        return self.positions[axes]

    # Ops

    def op(self, op: DlOp) -> None:
        match op:
            case dl.ShardOp():
                spec = self.shardings.of(op.result)
                self.values[op.result] = _LocalValue(self.read(op.x, spec), spec)
                return
            case dl.ToShardsOp():
                self.values[op.result] = _LocalValue(self.read(op.x, op.mesh_axes), ((),) * rank_of(op.x))
                return
            case dl.FromShardsOp():
                self.values[op.result] = _LocalValue(self.read_replicated(op.x), op.mesh_axes)
                return
            case dl.VaryOp():
                self.values[op.result] = _LocalValue(self.read_replicated(op.x), ((),) * rank_of(op.x))
                return
            case _ if self.shardings.varying.is_local(op):
                # The op computes on shards already.
                local = op.clone({v: self.read_replicated(v) for v in op.operands})
                self.insert(local, op, [((),) * rank_of(r) for r in op.results])
                return
            case _:
                pass
        factors = factors_of(op)
        partial = self.linear_partial(op, factors)
        if partial is not None:
            operand, others = partial
            local = self.values[op.operands[operand]]
            assigned = {f: axes for f, axes in zip(factors.operands[operand], local.spec, strict=True) if f is not None}
            operands = [
                self.values[v].value if k == operand or k in others else self.read(v, _spec(axes, assigned))
                for k, (v, axes) in enumerate(zip(op.operands, factors.operands, strict=True))
            ]
            self.emit(op, operands, [_spec(axes, assigned) for axes in factors.results], local.partial)
            return
        assigned = self.choose(op, factors)
        operands = [self.read(v, _spec(axes, assigned)) for v, axes in zip(op.operands, factors.operands, strict=True)]
        specs, partial = [_spec(axes, assigned) for axes in factors.results], _partial_axes(factors, assigned)
        row_axes = assigned.get(factors.rows, ()) if factors.rows is not None else ()
        if row_axes:
            value = access_own_rows(self.build, op, operands, self.position(row_axes))
            self.values[op.results[0]] = _LocalValue(value, specs[0], partial)
            return
        self.emit(op, operands, specs, partial)

    def emit(self, op: DlOp, operands: Sequence[SSAValue], specs: Sequence[Spec], partial: Mapping[str, str]) -> None:
        """Insert an op on shards."""
        if not operands:
            self.insert(op.clone(), op, specs)
            return
        changed, round_to = self.local_properties(op, specs), None
        narrow = element_type_of(op.results[0])
        if "sum" in partial.values() and isinstance(op, ProductSum | dl.ReduceSumOp) and narrow != wide_float(narrow):
            round_to = narrow
            if isinstance(op, ProductSum):
                changed["result"] = wide_float(narrow)
            else:
                operands = [self.build(dl.CastOp, v, to=wide_float(narrow)) for v in operands]
        local = type(op).make(*operands, **{**op.properties, **changed})
        self.insert(local, op, specs)
        for result, value, spec in zip(op.results, local.results, specs, strict=True):
            expected = local_shape(self.mesh, shape_of(result), spec)
            assert shape_of(value) == expected, f"{op.name}: {shape_of(value)}; expected {expected}"
            self.values[result] = _LocalValue(value, spec, partial, round_to)

    def local_properties(self, op: DlOp, specs: Sequence[Spec]) -> dict[str, PropertyValue]:
        """Return the properties of an op that contain sizes of its result, for shards."""
        shape = local_shape(self.mesh, shape_of(op.results[0]), specs[0])
        match op:
            case dl.BroadcastToOp() | dl.ReshapeOp():
                return {"shape": shape}
            case dl.SliceOp():
                limits = zip(shape, sizes(op.limits), specs[0], strict=True)
                return {"limits": tuple(size if axes else limit for size, limit, axes in limits)}
            case _:
                return {}

    def choose(self, op: DlOp, factors: Factors) -> _Assignment:
        """Return the mesh axes of each factor with the least estimated time."""
        extents: dict[int, int] = {}
        candidates: dict[str, set[int]] = {}
        order: dict[int, list[str]] = {}
        operands = [(v, axes, self.known_spec(v)) for v, axes in zip(op.operands, factors.operands, strict=True)]
        results = [(v, axes, self.shardings.of(v)) for v, axes in zip(op.results, factors.results, strict=True)]
        for value, axes, spec in (*operands, *results):
            for f, mesh_axes, size in zip(axes, spec, shape_of(value), strict=True):
                if f is None:
                    continue
                # A reshape's factor has two extents: parts must divide both.
                extents[f] = gcd(extents.get(f, 0), size) if isinstance(size, int) else 1
                order.setdefault(f, []).extend(a for a in mesh_axes if a not in order.get(f, ()))
                for mesh_axis in mesh_axes:
                    candidates.setdefault(mesh_axis, set()).add(f)
        mesh_axes = [a for a in self.mesh.sizes if a in candidates]
        if not mesh_axes:
            return {}
        seconds = compute_seconds(op)
        best: _Assignment = {}
        least = float("inf")
        for chosen in product(*([*sorted(candidates[a]), None] for a in mesh_axes)):
            by_axis = dict(zip(mesh_axes, chosen, strict=True))
            assigned = {f: tuple(a for a in order[f] if by_axis[a] == f) for f in chosen if f is not None}
            if any(extents[f] % self.mesh.shard_count(own) for f, own in assigned.items()):
                continue
            total = seconds / prod(self.mesh.shard_count(own) for f, own in assigned.items() if f != factors.rows)
            for value, axes, _ in operands:
                if not (rank_of(value) and uniform_element(value) is not None):
                    local = self.values[value]
                    total += resharding_seconds(self.mesh, value, local.spec, local.partial, _spec(axes, assigned))
            partial = _partial_axes(factors, assigned)
            if partial and not all(is_static(shape_of(value)) for value, _, _ in results):
                continue  # Collectives combine results of static sizes.
            for value, axes, spec in results:
                total += resharding_seconds(self.mesh, value, _spec(axes, assigned), partial, spec)
            if total < least:
                best, least = assigned, total
        return best

    def known_spec(self, value: SSAValue) -> Spec:
        if uniform_element(value) is not None:
            return ((),) * rank_of(value)
        return self.values[value].spec

    def linear_partial(self, op: DlOp, factors: Factors) -> tuple[int, set[int]] | None:
        """Return the operand through whose partial sums the op is linear, and further partial operands; None if there is none.

        Integers are excluded for ops such as division, which do not distribute over sums of integers.
        """
        locals_ = [None if uniform_element(v) is not None else self.values[v] for v in op.operands]
        partial = [k for k, local in enumerate(locals_) if local is not None and local.partial]
        if not partial:
            return None
        first = self.values[op.operands[partial[0]]]
        if first.round_to is not None or set(first.partial.values()) != {"sum"}:
            return None
        match op:
            case dl.AddOp() | dl.SubOp():
                x, y = locals_
                is_linear = (
                    x is not None
                    and y is not None
                    and x.partial == y.partial
                    and x.spec == y.spec
                    and y.round_to is None
                    and shape_of(op.x) == shape_of(op.y)
                )
            case dl.NegOp() | dl.TransposeOp() | dl.ReshapeOp():
                is_linear = True
            case dl.MulOp() | dl.DivOp():
                # Scaled by infinity or divided by zero, partial sums of opposite signs would add up to NaN.
                scale = uniform_element(op.operands[1 - partial[0]])
                is_linear = len(partial) == 1 and scale is not None and isfinite(scale) and is_float(element_type_of(op.result))
                is_linear = is_linear and (isinstance(op, dl.MulOp) or (partial == [0] and scale != 0))
            case _:
                is_linear = False
        axes = factors.operands[partial[0]]
        keeps_spec = all(f is not None or not own for f, own in zip(axes, first.spec, strict=True))
        return (partial[0], set(partial)) if is_linear and keeps_spec and self.is_divisible(op, factors, partial[0]) else None

    def is_divisible(self, op: DlOp, factors: Factors, operand: int) -> bool:
        """Return whether the result can have the sharding of an operand."""
        spec = self.values[op.operands[operand]].spec
        assigned = {f: axes for f, axes in zip(factors.operands[operand], spec, strict=True) if f is not None}
        pairs = zip(shape_of(op.results[0]), _spec(factors.results[0], assigned), strict=True)
        return all(not axes or (isinstance(size, int) and size % self.mesh.shard_count(axes) == 0) for size, axes in pairs)


def _spec(axes: Axes, assigned: _Assignment) -> Spec:
    return tuple(assigned.get(f, ()) if f is not None else () for f in axes)


def _partial_axes(factors: Factors, assigned: _Assignment) -> dict[str, str]:
    return {a: combine for f, combine in factors.reduced.items() for a in assigned.get(f, ())}

"""Analysis of `dlc.shard_map`: which values are per rank, and along which mesh axes they vary. See Note [Varying axes]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.distributed.shard_map import ShardMapBoundary
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.programs.control import Control, SingleFunctionControl
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.programs.transformations import Derivative
from dlc.ir import Block, ModuleOp, Operation, SSAValue, walk_ops
from dlc.runtime.collectives.mesh import Mesh

# The mesh axes along which a per-rank value varies; None for a global value.
Varying = frozenset[str] | None
_NOTHING: frozenset[str] = frozenset()


def has_shard_maps(module: ModuleOp) -> bool:
    """Return whether a module has per-rank values."""
    return any(True for _ in walk_ops(module, ShardMapBoundary))


class VaryingAxes:
    """The mesh axes along which the values of a block and of its bodies vary."""

    def __init__(self, block: Block) -> None:
        self._axes: dict[SSAValue, frozenset[str]] = {}
        # The mesh of the per-rank values.
        self.mesh = next((Mesh.of_text(op.mesh.data) for op in block.walk() if isinstance(op, ShardMapBoundary)), Mesh(()))
        self._walk(block)

    def of(self, value: SSAValue) -> Varying:
        """Return the axes along which a per-rank value varies; None for a global value."""
        return self._axes.get(value)

    def joined(self, values: Iterable[SSAValue]) -> Varying:
        """Return the axes along which some of the values vary; None if all are global."""
        known = [axes for axes in map(self.of, values) if axes is not None]
        return _NOTHING.union(*known) if known else None

    def is_local(self, op: Operation) -> bool:
        """Return whether an op computes per-rank values."""
        return not isinstance(op, ShardMapBoundary) and any(self.of(v) is not None for v in (*op.operands, *op.results))

    def record(self, value: SSAValue, axes: Varying) -> bool:
        """Add axes along which a value varies; return whether they are new."""
        known = self.of(value)
        if axes is None or (known is not None and axes <= known):
            return False
        self._axes[value] = axes if known is None else axes | known
        return True

    def _walk(self, block: Block) -> bool:
        """Analyze a block; return whether something changed."""
        return any([self._visit(op) for op in block.ops])

    def _visit(self, op: Operation) -> bool:
        if isinstance(op, Control):
            return self._visit_control(op)
        match op:
            case dl.ToShardsOp():
                axes: Varying = op.split_axes
            case dl.FromShardsOp():
                axes = None
            case dl.AllReduceOp():
                known = self.of(op.x)
                axes = None if known is None else known.difference(op.mesh_axes)
            case dl.VaryOp():
                axes = (self.of(op.x) or _NOTHING).union(op.axes.data.split())
            case Collective():
                axes = (self.joined(op.operands) or _NOTHING).union(op.mesh_axes)
            case _:
                axes = self.joined(op.operands)
        return any([self.record(result, axes) for result in op.results])

    def _visit_control(self, op: Control) -> bool:
        """Analyze the bodies until the states of loops no longer change."""
        changed = any([self.record(v, self.joined(sources)) for v, sources in connections(op)])
        while any([*(self._walk(body) for body in op.blocks), *(self.record(v, self.joined(s)) for v, s in connections(op))]):
            changed = True
        return changed


def connections(op: Control) -> list[tuple[SSAValue, Sequence[SSAValue]]]:
    """Return the arguments of the bodies and the results of an op, each with the values that it may be."""
    match op:
        case dl.ScanOp():
            states, values = op.state_count, op.operands
            carried = [(values[k], op.yielded[k]) for k in range(states)]
            return [
                *zip(op.block.args, (*carried, *((v,) for v in values[states:])), strict=True),
                *zip(op.results, (*carried, *((v,) for v in op.yielded[states:])), strict=True),
            ]
        case dl.WhileOp():
            # Ranks that run different numbers of iterations have different results.
            again, *yielded = op.yielded
            carried = [(*pair, op.condition, again) for pair in zip(op.arguments, yielded, strict=True)]
            return [*zip(op.block.args, carried, strict=True), *zip(op.results, carried, strict=True)]
        case dl.IfOp():
            yields = [body.last_op.values for body in op.blocks if isinstance(body.last_op, YieldOp)]
            return [(r, (*values, op.condition)) for r, *values in zip(op.results, *yields, strict=True)]
        case dl.CustomJvpOp() | dl.CustomVjpOp() | dl.LinearCallOp():
            # A rule may return cotangents that vary like any of the arguments.
            arguments = [a for body in op.blocks for a in body.args]
            return [*((a, op.operands) for a in arguments), *zip(op.results, ((v,) for v in op.yielded), strict=True)]
        case SingleFunctionControl():
            rows = [(a, (v,)) for a, v in zip(op.block.args, op.operands, strict=False)]
            results = [*op.yielded, *_derivative_sources(op)]
            return [*rows, *((r, (v,)) for r, v in zip(op.results, results, strict=True))]
        case _:
            return [(r, op.operands) for r in op.results]


def _derivative_sources(op: SingleFunctionControl) -> Sequence[SSAValue]:
    """Return the values that determine the varying axes of the tangents or cotangents among the results."""
    match op:
        case dl.VjpOp():
            return [op.primals[i] for i in op.wrt_indices]
        case dl.JvpOp():
            return [v for v in op.yielded if is_float(element_type_of(v))]
        case _:
            return []


def condition_axes(op: dl.IfOp | dl.WhileOp, varying: VaryingAxes) -> frozenset[str]:
    """Return the mesh axes along which ranks may execute the bodies of an op differently."""
    conditions = [op.condition, *(op.yielded[:1] if isinstance(op, dl.WhileOp) else ())]
    return varying.joined(conditions) or _NOTHING


def varied_operands(op: Operation, varying: VaryingAxes) -> list[tuple[int, frozenset[str]]]:
    """Return the operands of an op that must vary along more axes than they do, with all axes that they need."""
    match op:
        case dl.FromShardsOp():
            needed: Varying = op.split_axes
        case dl.VaryOp() | dl.ToShardsOp() | Derivative():
            return []
        case Collective():
            needed = frozenset(op.mesh_axes).union(varying.joined(op.operands) or _NOTHING)
        case dl.ScanOp() | dl.WhileOp():
            first = len(op.operands) - len(op.block.args)
            pairs = list(enumerate(zip(op.operands[first:], op.block.args, strict=True), first))
            return [(k, axes) for k, (v, a) in pairs if (axes := _missing(varying, v, a)) is not None]
        case YieldOp():
            return _varied_yields(op, varying)
        case dl.IfOp() | dl.CheckpointOp() | dl.VmapOp():
            return []
        case _:
            needed = varying.joined(op.operands)
    if needed is None:
        return []
    return [(k, needed) for k, v in enumerate(op.operands) if not needed <= (varying.of(v) or _NOTHING)]


def _varied_yields(op: YieldOp, varying: VaryingAxes) -> list[tuple[int, frozenset[str]]]:
    """Return the yielded values of a loop or branch that vary along fewer axes than its results, with all axes."""
    parent = op.parent_op()
    if not isinstance(parent, dl.ScanOp | dl.WhileOp | dl.IfOp):
        return []
    first = 1 if isinstance(parent, dl.WhileOp) else 0
    pairs = list(enumerate(zip(op.values[first:], parent.results, strict=True), first))
    return [(k, axes) for k, (v, r) in pairs if (axes := _missing(varying, v, r)) is not None]


def _missing(varying: VaryingAxes, value: SSAValue, target: SSAValue) -> Varying:
    """Return the axes along which `target` varies, if `value` does not vary along all of them."""
    axes = varying.of(target)
    return None if axes is None or axes <= (varying.of(value) or _NOTHING) else axes

"""Propagate shardings: from annotated values to all others, forward and backward, until nothing changes.

The algorithm follows GSPMD (Xu et al., 2021) and Shardy: shardings are only extended, annotated axes are closed, and a
conflict stops propagation; the partitioner resolves it by cost. Ops that keep axes propagate first, since their shardings are
certain. A uniform value (a broadcast scalar) does not connect its readers: each rank computes it for every reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, rank_of, shape_of
from dlc.dialects.dl.distributed.shard_map import ShardMapBoundary
from dlc.dialects.dl.distributed.sharding import PartialSpec, format_spec, spec_of
from dlc.dialects.dl.programs.control import Control
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.location_text import location_prefix, location_text
from dlc.errors import ShapeError, UnsupportedError
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.dl.rewriting import defines_sizes, splat
from dlc.passes.sharding.factors import Axes, factors_of
from dlc.passes.sharding.varying_axes import VaryingAxes
from dlc.runtime.collectives.mesh import Mesh
from dlc.shapes.dims import Size

# For each axis of a tensor the mesh axes over which it is split, the outermost first.
Spec: TypeAlias = "tuple[tuple[str, ...], ...]"


@dataclass(frozen=True)
class _Relation:
    """Values, each with the factors of its axes: axes with equal factors have the same sharding."""

    values: Sequence[tuple[SSAValue, Axes]]
    keeps_axes: bool = True
    op: Operation | None = None


def uniform_element(value: SSAValue) -> int | float | None:
    """Return the constant that all elements of a value have; None for other values."""
    while isinstance(value.owner, dl.BroadcastToOp | dl.ReshapeOp):
        value = value.owner.x
    return splat(value)


class Shardings:
    """The shardings of the values of a program on a mesh. Per-rank values (`dlc.shard_map`) have none."""

    def __init__(self, mesh: Mesh, varying: VaryingAxes) -> None:
        self.mesh = mesh
        self.varying = varying
        self._specs: dict[SSAValue, Spec] = {}
        # The annotated axes of values.
        self._closed: dict[SSAValue, set[int]] = {}
        self._relations: list[_Relation] = []
        self._reasons: dict[SSAValue, str] = {}

    def reason(self, value: SSAValue) -> str:
        """Return why a value has its sharding: the last annotation or op that extended it; empty for a replicated value."""
        return self._reasons.get(value, "")

    def of(self, value: SSAValue) -> Spec:
        return self._specs.get(value) or ((),) * rank_of(value)

    def annotate(self, value: SSAValue, spec: PartialSpec, name: str) -> None:
        """Close the constrained axes of a value. Raises ShapeError, which begins with `name`, for an invalid spec."""
        require_valid_spec(self.mesh, shape_of(value), spec, name)
        known = self.of(value)
        self._specs[value] = tuple(own if axes is None else axes for own, axes in zip(known, spec, strict=True))
        if any(axes is not None for axes in spec):
            self._reasons[value] = f"annotation {name}"
        self._closed.setdefault(value, set()).update(k for k, axes in enumerate(spec) if axes is not None)

    def relate(self, *values: SSAValue, op: Operation | None = None) -> None:
        """Give values of equal shape one sharding; `op` is the loop or branch that requires it."""
        self._add(values, (tuple(range(rank_of(values[0]))),) * len(values), op=op)

    def _add(
        self, values: Sequence[SSAValue], axes: Sequence[Axes], keeps_axes: bool = True, op: Operation | None = None
    ) -> None:
        """Relate some values; uniform ones and those without factors are left out, since they connect nothing."""
        if self.varying.joined(values) is not None:
            return
        connected = [
            (value, factors)
            for value, factors in zip(values, axes, strict=True)
            if any(f is not None for f in factors) and uniform_element(value) is None
        ]
        if len(connected) > 1:
            self._relations.append(_Relation(connected, keeps_axes, op))

    def annotated_axes(self, value: SSAValue) -> set[int]:
        """Return the axes of a value whose sharding an annotation determines."""
        return self._closed.get(value, set())

    def propagate(self, block: Block) -> None:
        """Propagate through a block and its nested blocks, to a fixpoint."""
        self.collect(block)
        for relations in ([r for r in self._relations if r.keeps_axes], self._relations):
            while any([self._step(relation) for order in (relations, relations[::-1]) for relation in order]):
                pass

    def collect(self, block: Block) -> None:
        """Collect the relations of all ops, and the annotations among them."""
        for op in block.ops:
            if isinstance(op, dl.ShardOp):
                self.annotate(op.result, spec_of(op.spec), f"{location_prefix(op.location)}dlc.shard")
            if isinstance(op, ShardMapBoundary):
                self._collect_boundary(op)
            elif isinstance(op, Control):
                self._collect_control(op)
            elif isinstance(op, DlOp):
                self._require_equal_sizes(op)
                factors = factors_of(op)
                values, axes = (*op.operands, *op.results), (*factors.operands, *factors.results)
                self._add(values, axes, factors.keeps_axes, op)

    def _require_equal_sizes(self, op: DlOp) -> None:
        """Raise UnsupportedError for a result whose size may differ between ranks.

        A call begins again when a size exceeds its memory: then some ranks would repeat collectives, and others would not.
        """
        if defines_sizes(op) and (axes := self.varying.joined(op.operands)):
            raise UnsupportedError(
                f"{location_prefix(op.location)}{op.name}: the size of its result varies along "
                f"{', '.join(map(repr, sorted(axes)))}; "
                "all ranks need equal sizes: use a mask, as dlc.numpy.where, or gather the operand by dlc.lax.all_gather"
            )

    def _collect_boundary(self, op: ShardMapBoundary) -> None:
        """Annotate the result of a shard_map, and require that its specs describe the shards."""
        name = f"{location_prefix(op.location)}dlc.shard_map"
        if op.mesh.data != str(self.mesh):
            raise ShapeError(f"{name}: its mesh is {op.mesh.data}, the function runs on {self.mesh}")
        if isinstance(op, dl.ToShardsOp):
            return
        self.annotate(op.result, op.mesh_axes, name)
        if extra := sorted((self.varying.of(op.x) or frozenset()) - op.split_axes):
            raise ShapeError(
                f"{name}: a result varies along {', '.join(map(repr, extra))}, but its spec P{format_spec(op.mesh_axes)} "
                "requires equal values there; split it over them, or combine it with dlc.lax.psum"
            )

    def _collect_control(self, op: Control) -> None:
        for body in op.blocks:
            self.collect(body)
        match op:
            case dl.ScanOp():
                states = op.state_count
                for k in range(states):
                    self.relate(op.operands[k], op.block.args[k], op.yielded[k], op.results[k], op=op)
                for sequence, element in (
                    *zip(op.operands[states:], op.block.args[states:], strict=True),
                    *zip(op.results[states:], op.yielded[states:], strict=True),
                ):
                    axes = tuple(range(rank_of(element)))
                    self._add((sequence, element), ((None, *axes), axes), op=op)
            case dl.WhileOp():
                for values in zip(op.arguments, op.block.args, op.yielded[1:], op.results, strict=True):
                    self.relate(*values, op=op)
            case dl.IfOp():
                yields = [body.last_op.values for body in op.blocks if isinstance(body.last_op, YieldOp)]
                for values in zip(op.results, *yields, strict=True):
                    self.relate(*values, op=op)
            case _:
                pass

    def _step(self, relation: _Relation) -> bool:
        """Extend the shardings of related values; return whether one changed."""
        by_factor: dict[int, tuple[str, ...]] = {}
        for value, axes in relation.values:
            for f, mesh_axes in zip(axes, self.of(value), strict=True):
                if f is None or not mesh_axes:
                    continue
                known = by_factor.get(f, ())
                shorter, longer = sorted((known, mesh_axes), key=len)
                # In a conflict the first sharding is kept.
                by_factor[f] = longer if longer[: len(shorter)] == shorter else known
        if not by_factor:
            return False
        by_factor, changed = _without_repeated_mesh_axes(by_factor), False
        for value, axes in relation.values:
            if self._extend(value, axes, by_factor):
                changed, self._reasons[value] = True, _reason(relation.op, value)
        return changed

    def _extend(self, value: SSAValue, axes: Axes, by_factor: dict[int, tuple[str, ...]]) -> bool:
        spec, shape, closed = list(self.of(value)), shape_of(value), self._closed.get(value, set())
        changed = False
        for k, f in enumerate(axes):
            new = by_factor.get(f, ()) if f is not None else ()
            added = new[len(spec[k]) :]
            if k in closed or not added or new[: len(spec[k])] != spec[k] or any(a in other for other in spec for a in added):
                continue
            if is_divisible(shape[k], self.mesh.shard_count(new)):
                spec[k], changed = new, True
        if changed:
            self._specs[value] = tuple(spec)
        return changed


def _reason(op: Operation | None, value: SSAValue) -> str:
    if op is None:
        return "donated argument or its result"
    return "operands" if value.owner is op else f"reader {op.name} at {location_text(op.location)}"


def is_divisible(size: Size, parts: int) -> bool:
    """Return whether an axis can be split into equal parts; symbolic sizes only into one."""
    return parts == 1 or (isinstance(size, int) and size % parts == 0)


def _without_repeated_mesh_axes(by_factor: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Cut the mesh axes of each factor before one that another factor has."""
    owner: dict[str, int] = {}
    result: dict[int, tuple[str, ...]] = {}
    for f, mesh_axes in by_factor.items():
        cut = next((k for k, a in enumerate(mesh_axes) if owner.setdefault(a, f) != f), len(mesh_axes))
        result[f] = mesh_axes[:cut]
    return result


def require_valid_spec(mesh: Mesh, shape: Sequence[Size], spec: PartialSpec, name: str) -> None:
    """Raise ShapeError unless a spec names distinct axes of the mesh, each for an axis of the tensor that it divides."""
    if len(spec) > len(shape):
        raise ShapeError(f"{name}: P{format_spec(spec)} has {len(spec)} entries for the shape {list(shape)}")
    used = [a for axes in spec for a in axes or ()]
    if unknown := [a for a in used if a not in mesh.sizes]:
        raise ShapeError(f"{name}: {unknown[0]!r} is not an axis of the mesh {mesh}")
    if len(set(used)) < len(used):
        raise ShapeError(f"{name}: P{format_spec(spec)} uses a mesh axis twice")
    for axis, (size, axes) in enumerate(zip(shape, spec, strict=False)):
        parts = mesh.shard_count(axes or ())
        if not is_divisible(size, parts):
            names = ", ".join(f'"{a}"' for a in axes or ())
            repair = f"pad to {-(-size // parts) * parts}, or P(None)" if isinstance(size, int) else "use a static size"
            reason = f"{size} is not a multiple of {parts}" if isinstance(size, int) else f"{size} is symbolic"
            shape_text = ", ".join(map(str, shape))
            raise ShapeError(f"{name}: axis {axis} of [{shape_text}] in {parts} parts of {names}: {reason}; {repair}")

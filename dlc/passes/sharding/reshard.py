"""Resharding: the collectives that convert a value from one sharding to another, and estimated times of messages and ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction, GatherLike
from dlc.ir import SSAValue
from dlc.passes.sharding.propagate import Spec
from dlc.runtime.collectives.mesh import Mesh
from dlc.shapes.dims import Size

# Costs of a core and of messages between processes of one machine, measured with MPICH on two cores. The time of a collective
# includes the wait for the slowest rank; its latency alone is 1 to 5 µs.
_SECONDS_PER_FLOP = 1 / 40e9
SECONDS_PER_BYTE = 1 / 1.5e9
SECONDS_PER_COLLECTIVE = 20e-6


@dataclass(frozen=True)
class ReshardingStep:
    """One step of a resharding.

    Attributes:
        collective: The op; None for a local slice, which communicates nothing.
        axes: The mesh axes.
        axis: The axis of the tensor that is gathered, scattered or sliced; the one that all_to_all splits.
        source_axis: The axis that all_to_all joins.
        combine: The combinator of a reduction.
    """

    collective: type[Collective] | None
    axes: tuple[str, ...]
    axis: int = 0
    source_axis: int = 0
    combine: str = "sum"

    def apply(self, spec: Spec) -> Spec:
        """Return the sharding after the step."""
        result = list(spec)
        if self.collective in (dl.ReduceScatterOp, dl.AllToAllOp, None):
            result[self.axis] = (*spec[self.axis], *self.axes)
        if self.collective is dl.AllGatherOp:
            result[self.axis] = spec[self.axis][:-1]
        if self.collective is dl.AllToAllOp:
            result[self.source_axis] = spec[self.source_axis][:-1]
        return tuple(result)


class _Plan:
    """Steps so far, and the sharding after them."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.steps: list[ReshardingStep] = []

    def add(self, step: ReshardingStep) -> None:
        self.steps.append(step)
        self.spec = step.apply(self.spec)

    def extends(self, want: Spec, axis: int, mesh_axis: str) -> bool:
        """Return whether `mesh_axis` is the next one of an axis on the way to `want`."""
        known = self.spec[axis]
        return want[axis][: len(known) + 1] == (*known, mesh_axis)

    def slice(self, want: Spec) -> None:
        """Slice axes locally, as far as no other axis is sharded over the same mesh axis."""
        for axis, mesh_axes in enumerate(want):
            if mesh_axes[: len(self.spec[axis])] != self.spec[axis]:
                continue
            for mesh_axis in mesh_axes[len(self.spec[axis]) :]:
                if any(mesh_axis in used for used in self.spec):
                    break
                self.add(ReshardingStep(None, (mesh_axis,), axis))


def plan_resharding(mesh: Mesh, have: Spec, partial: Mapping[str, str], want: Spec) -> list[ReshardingStep]:
    """Return the steps from one sharding to another; `partial` maps mesh axes with partial results to combinators.

    Partial results are combined first: by a reduce_scatter if `want` is sharded over the same mesh axis, else by an
    all_reduce. Slices of replicated axes follow, since they make later messages smaller.
    """
    if have == want and not partial:
        return []
    plan, remaining = _Plan(have), dict(partial)
    for mesh_axis, combine in partial.items():
        axis = next((k for k in range(len(want)) if plan.extends(want, k, mesh_axis)), None)
        if axis is not None:
            plan.add(ReshardingStep(dl.ReduceScatterOp, (mesh_axis,), axis, combine=combine))
            del remaining[mesh_axis]
    for combine in dict.fromkeys(remaining.values()):
        mesh_axes = tuple(a for a in mesh.sizes if remaining.get(a) == combine)
        plan.add(ReshardingStep(dl.AllReduceOp, mesh_axes, combine=combine))
    plan.slice(want)
    for axis in range(len(want)):
        while want[axis][: len(plan.spec[axis])] != plan.spec[axis]:
            mesh_axis = plan.spec[axis][-1]
            target = next((k for k in range(len(want)) if k != axis and plan.extends(want, k, mesh_axis)), None)
            if target is None:
                plan.add(ReshardingStep(dl.AllGatherOp, (mesh_axis,), axis))
            else:
                plan.add(ReshardingStep(dl.AllToAllOp, (mesh_axis,), target, source_axis=axis))
    plan.slice(want)
    return plan.steps


def local_shape(mesh: Mesh, shape: Sequence[Size], spec: Spec) -> tuple[Size, ...]:
    """Return the shape of a shard."""
    return tuple(size // mesh.shard_count(axes) if axes else size for size, axes in zip(shape, spec, strict=True))


def resharding_seconds(mesh: Mesh, value: SSAValue, have: Spec, partial: Mapping[str, str], want: Spec) -> float:
    """Return the estimated time of a resharding of a value of this global type."""
    if have == want and not partial:
        return 0.0
    seconds, spec, itemsize = 0.0, have, numpy_dtype(element_type_of(value)).itemsize
    for step in plan_resharding(mesh, have, partial, want):
        ranks = mesh.shard_count(step.axes)
        size = itemsize * prod(n for n in local_shape(mesh, shape_of(value), spec) if isinstance(n, int))
        if step.collective is not None:
            seconds += SECONDS_PER_COLLECTIVE + step.collective.traffic_bytes(size, ranks) * SECONDS_PER_BYTE
        spec = step.apply(spec)
    return seconds


def compute_seconds(op: DlOp) -> float:
    """Return the estimated time of an op on one core."""
    return flop_count(op) * _SECONDS_PER_FLOP


def flop_count(op: DlOp) -> int:
    """Return the FLOPs of a contraction; of another op, those that a core computes in its time."""
    if isinstance(op, Contraction):
        return 2 * _element_count(op.structure().extents)
    if isinstance(op, GatherLike):
        return 4 * _element_count(shape_of(op.results[0]))
    return 4 * max(_element_count(shape_of(v)) for v in (*op.operands, *op.results))


def _element_count(shape: Sequence[Size]) -> int:
    return prod(size for size in shape if isinstance(size, int))

"""Split scans into segments, so that derivatives need less memory (the checkpoint policy "binomial")."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.location_text import location_prefix
from dlc.ir import Block, SSAValue
from dlc.passes.autodiff.bodies import clone_body, replace_and_erase
from dlc.passes.autodiff.loop_building import BodyBuilder, build_scan, new_body
from dlc.passes.autodiff.shapes import num_bytes
from dlc.passes.transformations.inline import inline
from dlc.shapes.dims import Dim, UndecidableError, is_static

# Note [Scans in segments]
#
# Reverse mode of a scan of n steps stores residuals of r bytes per step. A scan over n / b segments, each of which is a
# checkpointed scan of b steps, stores n / b states of s bytes, and residuals of one segment at a time: n · s / b + b · r bytes,
# least for b = √(n · s / r). All steps run twice. If that exceeds the limit, one half of the memory holds the residuals
# of a shorter segment, and the other half the snapshots of Note [Binomial checkpoints].


def bound_memory(op: dl.CheckpointOp) -> None:
    """Replace a checkpoint with a memory limit by its body, in which scans need at most that memory each.

    Raises UndecidableError for a scan of symbolic sizes.
    """
    memory_bytes = op.memory_bytes
    assert memory_bytes is not None
    for inner in list(op.block.ops):
        if isinstance(inner, dl.ScanOp):
            sizes = (inner.steps, *(size for v in (*inner.arguments, *_values(inner.block)) for size in shape_of(v)))
            if not is_static(sizes):
                symbols = ", ".join(sorted({symbol for size in sizes for symbol in Dim.lift(size).symbols()}))
                problem = f"the memory of a scan of symbolic sizes ({symbols}) cannot be limited; the sizes must be static"
                raise UndecidableError(f"{location_prefix(inner.location)}checkpoint: {problem}")
            _split(inner, int(inner.steps), memory_bytes)
    inline(op, op.block, op.arguments)


def _split(op: dl.ScanOp, steps: int, memory_bytes: int) -> None:
    """Replace a scan by one over segments, and one over the remaining steps; see Note [Scans in segments]."""
    state_bytes = max(1, sum(map(num_bytes, op.arguments[: op.state_count])))
    step_bytes = max(1, sum(map(num_bytes, _values(op.block))))
    if steps * step_bytes <= memory_bytes:
        return
    segment_steps = min(steps, math.isqrt(steps * state_bytes // step_bytes) + 1)
    snapshots = None
    if 0 < memory_bytes < steps // segment_steps * state_bytes + segment_steps * step_bytes:
        segment_steps = max(1, min(segment_steps, memory_bytes // 2 // step_bytes))
        snapshots = max(2, memory_bytes // 2 // state_bytes)
    num_segments = steps // segment_steps
    if snapshots is not None and snapshots >= num_segments:
        snapshots = None
    build, count, split = DlBuilder(op), op.state_count, num_segments * segment_steps

    def part(sequence: SSAValue, first: int, limit: int) -> SSAValue:
        """Return a range of elements, in the order of iteration."""
        if limit - first == steps:
            return sequence
        if op.is_reverse:
            first, limit = steps - limit, steps - first
        starts, limits = [0] * len(shape_of(sequence)), list(shape_of(sequence))
        starts[0], limits[0] = first, limit
        return build(dl.SliceOp, sequence, starts=starts, limits=limits, strides=[1] * len(starts))

    def segments(sequence: SSAValue) -> SSAValue:
        shape = shape_of(sequence)[1:]
        return build(dl.ReshapeOp, part(sequence, 0, split), shape=(num_segments, segment_steps, *shape))

    def run_segment(build: DlBuilder, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return build.insert(dl.ScanOp.of(arguments, clone_body(op.block), count, segment_steps, op.is_reverse)).results

    sequences = op.arguments[count:]
    results = build_scan(
        build,
        op.arguments[:count],
        [segments(v) for v in sequences],
        num_segments,
        run_segment if snapshots is not None else _checkpointed(run_segment),
        op.is_reverse,
        snapshots,
    )
    states = results[:count]
    stacked = [build(dl.ReshapeOp, v, shape=(split, *shape_of(v)[2:])) for v in results[count:]]
    if split < steps:
        rest = [part(v, split, steps) for v in sequences]
        results = build.insert(
            dl.ScanOp.of([*states, *rest], clone_body(op.block), count, steps - split, op.is_reverse)
        ).results
        states = results[:count]
        stacked = [
            build(dl.ConcatOp, *((last, first) if op.is_reverse else (first, last)), axis=0)
            for first, last in zip(stacked, results[count:], strict=True)
        ]
    replace_and_erase(op, [*states, *stacked])


def _checkpointed(step: BodyBuilder) -> BodyBuilder:
    """Return a builder that wraps the same ops in a checkpoint, so that their intermediate values are recomputed."""

    def build_step(build: DlBuilder, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return build.insert(dl.CheckpointOp.of(arguments, new_body([v.type for v in arguments], step))).results

    return build_step


def _values(block: Block) -> list[SSAValue]:
    """Return the results of the ops of a body; those of a nested scan once per step."""
    values: list[SSAValue] = []
    for op in block.ops:
        values += op.results
        for region in op.regions:
            steps = op.steps if isinstance(op, dl.ScanOp) and isinstance(op.steps, int) else 1
            values += steps * _values(region.block)
    return values

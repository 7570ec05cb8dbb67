"""Reverse a loop from a few saved states (binomial checkpointing)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.ir import SSAValue
from dlc.passes.autodiff.loop_building import (
    build_branch,
    build_counting_loop,
    build_while,
    element_at,
    i64_constant,
    with_element,
)
from dlc.passes.autodiff.shapes import zeros

# (builder, states, first segment, end) -> the states after the segments before `end`.
Advance = Callable[[DlBuilder, Sequence[SSAValue], SSAValue, SSAValue], Sequence[SSAValue]]
# (builder, states before a segment, segment, cotangents) -> the cotangents before the segment, then those of its elements.
PullBack = Callable[[DlBuilder, Sequence[SSAValue], SSAValue, Sequence[SSAValue]], Sequence[SSAValue]]

# Note [Binomial checkpoints]
#
# The reverse of a loop needs the states before each segment, the last segment first. Snapshots of some states are on a stack;
# the last segment is reached from the top snapshot by repeating the segments between them. On the way, a new snapshot is
# pushed at the position of Griewank and Walther (Algorithm 799: Revolve, 2000): with s free snapshots, a loop of up to
# β(s, r) = (s + r choose s) segments is reversed with no segment repeated more than r times. The loop of length l with the
# smallest r with l ≤ β(s, r) is split after min(β(s, r - 1), l - β(s - 1, r - 1)) segments, which minimizes repetitions.
# The number of segments may be a runtime value.


def reverse_segments(
    build: DlBuilder,
    num_segments: SSAValue,
    num_snapshots: int,
    initial_states: Sequence[SSAValue],
    cotangents: Sequence[SSAValue],
    advance: Advance,
    pull_back: PullBack,
    sequences: Sequence[SSAValue] = (),
) -> Sequence[SSAValue]:
    """Pull cotangents back through the segments of a loop; see Note [Binomial checkpoints].

    Returns the cotangents before the first segment, then those of `sequences`, of which each segment reads one element.
    Stores `num_snapshots` states, and one more for the segment that is pulled back.
    """
    zero = i64_constant(build, 0)
    positions = _stack(build, zero, num_snapshots + 1)
    snapshots = [_stack(build, state, num_snapshots + 1) for state in initial_states]
    count, num_cotangents = len(snapshots), len(cotangents)
    stacked = [zeros(build, sequence).value for sequence in sequences]

    def step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        end, top, positions, *rest = args
        snapshots, cotangents, stacked = rest[:count], rest[count : count + num_cotangents], rest[count + num_cotangents :]
        one = i64_constant(build, 1)
        position = element_at(build, positions, top)
        free = build(dl.SubOp, i64_constant(build, num_snapshots), top)
        target = build(dl.AddOp, position, _first_part(build, build(dl.SubOp, end, position), free))
        states = advance(build, [element_at(build, s, top) for s in snapshots], position, target)
        last = build(dl.SubOp, end, one)
        is_last = build(dl.EqualOp, target, last)
        elements = [zeros(build, tensor_type(shape_of(v)[1:], element_type_of(v))).value for v in sequences]
        pulled = build_branch(
            build, is_last, [*cotangents, *elements], lambda build: pull_back(build, states, target, cotangents)
        )
        next_slot = build(dl.AddOp, top, one)
        is_used = build(dl.EqualOp, position, last)
        next_top = build(dl.SelectOp, is_last, build(dl.SelectOp, is_used, build(dl.SubOp, top, one), top), next_slot)
        next_end = build(dl.SelectOp, is_last, last, end)
        return [
            build(dl.GreaterOp, next_end, i64_constant(build, 0)),
            next_end,
            next_top,
            # Slots above the top are free; wrong elements of earlier segments are overwritten later.
            with_element(build, positions, next_slot, target),
            *(with_element(build, s, next_slot, state) for s, state in zip(snapshots, states, strict=True)),
            *pulled[:num_cotangents],
            *(with_element(build, v, target, e) for v, e in zip(stacked, pulled[num_cotangents:], strict=True)),
        ]

    has_segments = build(dl.GreaterOp, num_segments, zero)
    results = build_while(build, has_segments, [num_segments, zero, positions, *snapshots, *cotangents, *stacked], step)
    return results[3 + count :]


def _stack(build: DlBuilder, first: SSAValue, size: int) -> SSAValue:
    """Return an array of `size` values; the first is `first`, the others are zeros."""
    array = zeros(build, tensor_type((size, *shape_of(first)), element_type_of(first))).value
    return with_element(build, array, i64_constant(build, 0), first)


def _first_part(build: DlBuilder, length: SSAValue, free: SSAValue) -> SSAValue:
    """Return the number of segments before the split of a loop of `length`; `free` counts the snapshot of its first state."""
    one = i64_constant(build, 1)

    def increase(build: DlBuilder, args: Sequence[SSAValue], r: SSAValue) -> Sequence[SSAValue]:
        (reach,) = args
        reach = build(dl.FloordivOp, build(dl.MulOp, reach, build(dl.AddOp, free, r)), r)
        return [build(dl.LessOp, reach, length), reach]

    reach, r = build_counting_loop(build, build(dl.LessOp, one, length), [one], i64_constant(build, 0), increase)
    # β(s, r - 1) and β(s - 1, r - 1)
    left = build(dl.FloordivOp, build(dl.MulOp, reach, r), build(dl.AddOp, free, r))
    total = build(dl.MaximumOp, build(dl.SubOp, build(dl.AddOp, free, r), one), one)
    right = build(dl.FloordivOp, build(dl.MulOp, left, free), total)
    return build(dl.MinimumOp, left, build(dl.SubOp, length, right))

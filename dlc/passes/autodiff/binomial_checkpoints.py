"""Reverse a loop from a few saved states (binomial checkpointing)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
from dlc.passes.autodiff.shapes import unspecified, zeros

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


@dataclass(frozen=True)
class SnapshotStack:
    """A stack of the states before some segments of a loop; the segment 0 is at the bottom.

    Attributes:
        positions: The segments.
        states: Arrays of each state; the last slot is free.
        top: The index of the top.
    """

    positions: SSAValue
    states: Sequence[SSAValue]
    top: SSAValue

    @classmethod
    def of(cls, build: DlBuilder, states: Sequence[SSAValue], size: int) -> SnapshotStack:
        """Return a stack with space for `size` snapshots, with the states before segment 0."""
        empty, zero = cls.empty(build, states, size), i64_constant(build, 0)
        positions = with_element(build, empty.positions, zero, zero)
        arrays = [with_element(build, a, zero, v) for a, v in zip(empty.states, states, strict=True)]
        return replace(empty, positions=positions, states=arrays)

    @classmethod
    def empty(cls, build: DlBuilder, states: Sequence[SSAValue], size: int) -> SnapshotStack:
        """Return a stack with space for `size` snapshots like `states`. The caller sets the top one."""
        zero = i64_constant(build, 0)
        types = [tensor_type((size + 1, *shape_of(v)), element_type_of(v)) for v in (zero, *states)]
        positions, *arrays = (unspecified(build, t) for t in types)
        return cls(positions, arrays, zero)

    @property
    def size(self) -> int:
        """The maximum number of snapshots."""
        size = shape_of(self.positions)[0]
        assert isinstance(size, int)
        return size - 1


def reverse_segments(
    build: DlBuilder,
    num_segments: SSAValue,
    stack: SnapshotStack,
    cotangents: Sequence[SSAValue],
    advance: Advance,
    pull_back: PullBack,
    sequences: Sequence[SSAValue] = (),
) -> Sequence[SSAValue]:
    """Pull cotangents back through the segments of a loop; see Note [Binomial checkpoints].

    Returns the cotangents before the first segment, then those of `sequences`, of which each segment reads one element.
    """
    zero, count, num_cotangents = i64_constant(build, 0), len(stack.states), len(cotangents)
    stacked = [zeros(build, sequence).value for sequence in sequences]

    def step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        end, top, positions, *rest = args
        snapshots, cotangents, stacked = rest[:count], rest[count : count + num_cotangents], rest[count + num_cotangents :]
        one = i64_constant(build, 1)
        position = element_at(build, positions, top)
        free = build(dl.SubOp, i64_constant(build, stack.size), top)
        target = build(dl.AddOp, position, _first_part(build, build(dl.SubOp, end, position), free))
        states = advance(build, [element_at(build, s, top) for s in snapshots], position, target)
        last = build(dl.SubOp, end, one)
        is_last = build(dl.EqualOp, target, last)
        # Elements of earlier segments, which are overwritten later.
        elements = [unspecified(build, tensor_type(shape_of(v)[1:], element_type_of(v))) for v in sequences]
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
    initial = [num_segments, stack.top, stack.positions, *stack.states, *cotangents, *stacked]
    return build_while(build, has_segments, initial, step)[3 + count :]


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

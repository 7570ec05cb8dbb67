"""Reductions by any body: it is run for whole arrays, for halves of what is left, so that n elements take some log₂ n of it.

Bodies are associative and begin with what changes nothing, as StableHLO demands.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.ir import Block, SSAValue
from dlc.stablehlo.moving import surrounded
from dlc.stablehlo.node import Node, sizes_of


def _combined(node: Node, first: Sequence[SSAValue], second: Sequence[SSAValue]) -> list[SSAValue]:
    """What the body makes of each element of some arrays and the same of others."""
    made: Sequence[SSAValue] = node.inline(node.op.regions[0], [*first, *second])  # pyright: ignore[reportAssignmentType]
    return [node.broadcast(y, sizes_of(x)) for x, y in zip(first, made, strict=True)]


def _part(node: Node, x: SSAValue, axis: int, start: int, limit: int, step: int = 1) -> SSAValue:
    sizes = sizes_of(x)
    starts, limits, strides = [0] * len(sizes), list(sizes), [1] * len(sizes)
    starts[axis], limits[axis], strides[axis] = start, limit, step
    return node.b(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def reduced(node: Node, arrays: Sequence[SSAValue], begins: Sequence[SSAValue], axes: Sequence[int]) -> Sequence[SSAValue]:
    """The arrays without these axes, along which the body combines all elements, each of them with `begins` first."""
    arrays = _combined(node, [node.broadcast(begin, sizes_of(x)) for x, begin in zip(arrays, begins, strict=True)], arrays)
    for axis in axes:
        if not sizes_of(arrays[0])[axis]:
            arrays = [_padded(node, x, begin, axis, 1, 0) for x, begin in zip(arrays, begins, strict=True)]
        while (size := sizes_of(arrays[0])[axis]) > 1:
            even, odd = ([_part(node, x, axis, k, size - size % 2, 2) for x in arrays] for k in range(2))
            pairs = _combined(node, even, odd)
            if size % 2:
                rest = (_part(node, x, axis, size - 1, size) for x in arrays)
                pairs = [node.b(dl.ConcatOp, x, last, axis=axis) for x, last in zip(pairs, rest, strict=True)]
            arrays = pairs
    shape = [n for a, n in enumerate(sizes_of(arrays[0])) if a not in axes]
    return [node.reshape(x, shape) for x in arrays]


def _padded(node: Node, x: SSAValue, value: SSAValue, axis: int, low: int, high: int) -> SSAValue:
    rank = len(sizes_of(x))
    before, after = (tuple(n if a == axis else 0 for a in range(rank)) for n in (low, high))
    return surrounded(node, x, value, before, after)


def of_windows(
    node: Node, arrays: Sequence[SSAValue], begins: Sequence[SSAValue], windows: Sequence[tuple[int, int, int, Sequence[int]]]
) -> Sequence[SSAValue]:
    """What the body makes of windows: of each axis their size, step, distance of elements, and how many `begins` are around."""
    arrays = list(arrays)
    for axis, (count, step, apart, (low, high)) in enumerate(windows):
        arrays = [_padded(node, x, begin, axis, low, high) for x, begin in zip(arrays, begins, strict=True)]
        if count > 1:
            arrays = _along(node, arrays, axis, count, apart)
        if step > 1:
            arrays = [_part(node, x, axis, 0, sizes_of(x)[axis], step) for x in arrays]
    return arrays


def running(
    node: Node, arrays: Sequence[SSAValue], begins: Sequence[SSAValue], axis: int, *, reverse: bool
) -> Sequence[SSAValue]:
    """What the body makes of all elements up to each, or from it on, along an axis of an open size: step by step."""
    front = [axis, *(a for a in range(len(sizes_of(arrays[0]))) if a != axis)]
    rows = [node.transpose(x, front) for x in arrays]
    states = [node.broadcast(begin, sizes_of(x)[1:]) for x, begin in zip(rows, begins, strict=True)]
    count, block = len(states), Block(arg_types=[x.type for x in (*states, *states)])
    with node.trace.inside(block):
        made = _combined(node, block.args[:count], block.args[count:])
        block.add_op(dl.YieldOp([*made, *made]))
    scan = node.b.insert(dl.ScanOp.of([*states, *rows], block, count, sizes_of(rows[0])[0], reverse))
    return [node.transpose(y, [front.index(a) for a in range(len(front))]) for y in scan.results[count:]]


def _along(node: Node, arrays: list[SSAValue], axis: int, count: int, apart: int) -> list[SSAValue]:
    """Windows that begin at every element, of windows of 1, 2, 4, … elements."""
    left = sizes_of(arrays[0])[axis] - (count - 1) * apart
    found, covered, width = list[SSAValue](), 0, 1
    while True:
        if count & width:
            more = [_part(node, x, axis, covered * apart, covered * apart + left) for x in arrays]
            found, covered = _combined(node, found, more) if found else more, covered + width
        if covered == count:
            return found
        size, moved = sizes_of(arrays[0])[axis], width * apart
        first, second = ([_part(node, x, axis, start, start + size - moved) for x in arrays] for start in (0, moved))
        arrays, width = _combined(node, first, second), 2 * width

"""Reductions with any body: apply it to halves of the remaining elements, so that n elements need about log₂ n applications.

Bodies are associative, as StableHLO requires. An initial value that is not neutral is combined once with each result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dlc.dialects import dl
from dlc.ir import Block, SSAValue
from dlc.stablehlo.data_movement import pad_sides
from dlc.stablehlo.node import StableHloNode, sizes_of

# Combines two lists of arrays elementwise.
Combine: TypeAlias = Callable[[StableHloNode, Sequence[SSAValue], Sequence[SSAValue]], list[SSAValue]]


def apply_body(node: StableHloNode, first: Sequence[SSAValue], second: Sequence[SSAValue]) -> list[SSAValue]:
    """Apply the body elementwise to two lists of arrays."""
    results: Sequence[SSAValue] = node.inline(node.op.regions[0], [*first, *second])  # pyright: ignore[reportAssignmentType]
    return [node.broadcast(y, sizes_of(x)) for x, y in zip(first, results, strict=True)]


def _strided_slice(node: StableHloNode, x: SSAValue, axis: int, start: int, limit: int, step: int = 1) -> SSAValue:
    sizes = sizes_of(x)
    starts, limits, strides = [0] * len(sizes), list(sizes), [1] * len(sizes)
    starts[axis], limits[axis], strides[axis] = start, limit, step
    return node.build(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def combine_with_init(node: StableHloNode, init_values: Sequence[SSAValue], reduced: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Apply the body once to the initial values and the reduced arrays."""
    return apply_body(node, [node.broadcast(v, sizes_of(x)) for v, x in zip(init_values, reduced, strict=True)], reduced)


def reduce_by_halving(node: StableHloNode, arrays: Sequence[SSAValue], axes: Sequence[int]) -> Sequence[SSAValue]:
    """Reduce arrays, which are not empty, along these axes with the body."""
    for axis in axes:
        while (size := sizes_of(arrays[0])[axis]) > 1:
            even, odd = ([_strided_slice(node, x, axis, k, size - size % 2, 2) for x in arrays] for k in range(2))
            pairs = apply_body(node, even, odd)
            if size % 2:
                last_elements = (_strided_slice(node, x, axis, size - 1, size) for x in arrays)
                pairs = [node.build(dl.ConcatOp, x, last, axis=axis) for x, last in zip(pairs, last_elements, strict=True)]
            arrays = pairs
    shape = [n for a, n in enumerate(sizes_of(arrays[0])) if a not in axes]
    return [node.reshape(x, shape) for x in arrays]


def _pad_axis(node: StableHloNode, x: SSAValue, value: SSAValue, axis: int, low: int, high: int) -> SSAValue:
    rank = len(sizes_of(x))
    low_amounts, high_amounts = (tuple(n if a == axis else 0 for a in range(rank)) for n in (low, high))
    return pad_sides(node, x, value, low_amounts, high_amounts)


def reduce_windows(
    node: StableHloNode,
    arrays: Sequence[SSAValue],
    padding_values: Sequence[SSAValue],
    windows: Sequence[tuple[int, int, int, Sequence[int]]],
    combine: Combine = apply_body,
) -> Sequence[SSAValue]:
    """Reduce windows in row-major order; per axis: window size, stride, dilation, and padding with `padding_values`."""
    arrays = list(arrays)
    for axis, (count, step, dilation, (low, high)) in reversed([*enumerate(windows)]):
        arrays = [_pad_axis(node, x, value, axis, low, high) for x, value in zip(arrays, padding_values, strict=True)]
        if count > 1:
            arrays = _doubling_windows(node, arrays, axis, count, dilation, combine)
        if step > 1:
            arrays = [_strided_slice(node, x, axis, 0, sizes_of(x)[axis], step) for x in arrays]
    return arrays


def cumulative_reduce(
    node: StableHloNode, arrays: Sequence[SSAValue], init_values: Sequence[SSAValue], axis: int, *, reverse: bool
) -> Sequence[SSAValue]:
    """Cumulative reduction with the body along an axis of symbolic size, from the initial values, as a scan."""
    axis_first = [axis, *(a for a in range(len(sizes_of(arrays[0]))) if a != axis)]
    rows = [node.transpose(x, axis_first) for x in arrays]
    states = [node.broadcast(init_value, sizes_of(x)[1:]) for x, init_value in zip(rows, init_values, strict=True)]
    count, block = len(states), Block(arg_types=[x.type for x in (*states, *states)])
    with node.trace.in_body(block):
        state, row = block.args[:count], block.args[count:]
        results = apply_body(node, row, state) if reverse else apply_body(node, state, row)
        block.add_op(dl.YieldOp([*results, *results]))
    scan = node.build.insert(dl.ScanOp.of([*states, *rows], block, count, sizes_of(rows[0])[0], reverse))
    return [node.transpose(y, [axis_first.index(a) for a in range(len(axis_first))]) for y in scan.results[count:]]


def _doubling_windows(
    node: StableHloNode, arrays: list[SSAValue], axis: int, count: int, dilation: int, combine: Combine
) -> list[SSAValue]:
    """Reduce windows of size `count` at every index, composed of windows of 1, 2, 4, … elements."""
    num_windows = sizes_of(arrays[0])[axis] - (count - 1) * dilation
    reduced, covered, width = list[SSAValue](), 0, 1
    while True:
        if count & width:
            window_slice = [_strided_slice(node, x, axis, covered * dilation, covered * dilation + num_windows) for x in arrays]
            reduced, covered = combine(node, reduced, window_slice) if reduced else window_slice, covered + width
        if covered == count:
            return reduced
        size, offset = sizes_of(arrays[0])[axis], width * dilation
        first, second = ([_strided_slice(node, x, axis, start, start + size - offset) for x in arrays] for start in (0, offset))
        arrays, width = combine(node, first, second), 2 * width

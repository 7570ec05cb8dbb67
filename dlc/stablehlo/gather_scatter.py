"""Gather and scatter: slices at positions computed at run time.

Both access windows of the operand: an array of index vectors specifies the start of each window along some axes. A window is
split into elements, or into whole slices along the axes that it covers, each with its own index, for dl.gather_nd and
dl.scatter_nd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import is_bool
from dlc.ir import SSAValue, i8, i64
from dlc.stablehlo.body_numbering import binary_op, returned
from dlc.stablehlo.data_movement import indices_as_i64
from dlc.stablehlo.node import Converter, StableHloNode, parse_fields, sizes_of
from dlc.stablehlo.syntax import Region

# The scatter mode by the only op of the body; booleans are scattered as integers.
_MODES = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}
_MODES_OF_BOOLS = {"or": "max", "and": "min"}


@dataclass(frozen=True)
class WindowDims:
    """The correspondence of axes between operand, indices and windows (StableHLO dimension numbers)."""

    operand_shape: tuple[int, ...]
    sizes: tuple[int, ...]  # the window size along each axis of the operand
    start_index_map: tuple[int, ...]  # the axis of the operand for each entry of an index vector
    batching_dims: tuple[int, ...]  # batching axes of the operand
    index_batching_dims: tuple[int, ...]  # the corresponding axes of the indices
    window_dims: tuple[int, ...]  # the axes of the operand that are window axes
    index_vector_dim: int  # the axis of the indices that holds the index vectors

    @property
    def indexed_dims(self) -> list[int]:
        """The axes that are indexed element by element; windows cover the other axes completely."""
        partial = (a for a, n in enumerate(self.operand_shape) if a not in self.window_dims or self.sizes[a] != n)
        return list(dict.fromkeys([*self.batching_dims, *self.start_index_map, *partial]))

    @property
    def indexed_window_dims(self) -> list[int]:
        """The indexed axes that are window axes, in order."""
        return [a for a in self.indexed_dims if a in self.window_dims]

    @property
    def full_dims(self) -> list[int]:
        return [a for a in range(len(self.operand_shape)) if a not in self.indexed_dims]

    def max_start(self, axis: int) -> int:
        """Return the last index along an axis at which a window can start."""
        return self.operand_shape[axis] - self.sizes[axis]

    def order(self, offset_dims: Sequence[int], rank: int) -> list[int]:
        """Return the permutation of the axes of an array of windows to: axes of the indices, indexed axes, complete axes.

        `offset_dims` are its window axes.
        """
        offset_dim_of = dict(zip(self.window_dims, offset_dims, strict=True))
        return [
            *(a for a in range(rank) if a not in offset_dims),
            *(offset_dim_of[a] for a in [*self.indexed_window_dims, *self.full_dims]),
        ]


def _element_indices(node: StableHloNode, indices: SSAValue, windows: WindowDims, *, clamped: bool) -> SSAValue:
    """Return the index of each element, or complete slice, of all windows; out of range for out-of-bounds windows."""
    build, components = node.build, list[SSAValue]()
    if windows.index_vector_dim < len(sizes_of(indices)):
        indices = node.transpose(
            indices, [a for a in range(len(sizes_of(indices))) if a != windows.index_vector_dim] + [windows.index_vector_dim]
        )
    else:
        indices = node.reshape(indices, (*sizes_of(indices), 1))
    indices = indices_as_i64(node, indices)
    outer = sizes_of(indices)[:-1]
    shape = (*outer, *(windows.sizes[a] for a in windows.indexed_window_dims))

    def arange(axis: int) -> SSAValue:
        positions = build(dl.IotaOp, size=(shape[axis],), to=i64, start=0, step=1)
        return node.reshape(positions, [n if a == axis else 1 for a, n in enumerate(shape)])

    for axis in windows.indexed_dims:
        index = build.scalar(0, like=indices)
        if axis in windows.batching_dims:
            index_batching_dims = windows.index_batching_dims[windows.batching_dims.index(axis)]
            index = arange(index_batching_dims - (index_batching_dims > windows.index_vector_dim))
        elif axis in windows.start_index_map:
            index = _window_start(node, indices, windows, axis, clamped=clamped)
            index = node.reshape(index, (*outer, *[1] * len(windows.indexed_window_dims)))
        if axis in windows.indexed_window_dims:
            index = build(dl.AddOp, index, arange(len(outer) + windows.indexed_window_dims.index(axis)))
        components.append(node.reshape(node.broadcast(index, shape), (*shape, 1)))
    if not components:
        return build.constant(np.zeros((*shape, 0), np.int64), i64)
    return build(dl.ConcatOp, *components, axis=len(shape)) if len(components) > 1 else components[0]


def _window_start(node: StableHloNode, indices: SSAValue, windows: WindowDims, axis: int, *, clamped: bool) -> SSAValue:
    """Return the start of windows along an axis; a start out of bounds is clamped, or replaced by the size of the axis."""
    build, outer, k = node.build, sizes_of(indices)[:-1], windows.start_index_map.index(axis)
    low, high = (*[0] * len(outer), k), (*outer, k + 1)
    start = node.reshape(build(dl.SliceOp, indices, starts=low, limits=high, strides=(1,) * len(low)), outer)
    zero, max_start = node.scalar(0, start), node.number(windows.max_start(axis))
    if clamped:
        return build(dl.MinimumOp, build(dl.MaximumOp, start, zero), max_start)
    in_bounds = build(dl.AndOp, build(dl.GreaterEqualOp, start, zero), build(dl.LessEqualOp, start, max_start))
    return build(dl.SelectOp, in_bounds, start, node.number(windows.operand_shape[axis]))


def gather(node: StableHloNode) -> SSAValue:
    return gather_windows(node, node.integers("slice_sizes"))


def gather_windows(node: StableHloNode, sizes: Sequence[int]) -> SSAValue:
    """Gather windows of the operand, clamped in bounds."""
    x, indices = node[0], node[1]
    fields, operand_shape = parse_fields(node.get("dimension_numbers")), sizes_of(x)
    batching_dims, offset_dims = fields.get("operand_batching_dims", []), fields.get("offset_dims", [])
    dropped_dims = {*batching_dims, *fields.get("collapsed_slice_dims", [])}
    windows = WindowDims(
        operand_shape,
        tuple(sizes),
        tuple(fields.get("start_index_map", [])),
        tuple(batching_dims),
        tuple(fields.get("start_indices_batching_dims", [])),
        tuple(a for a in range(len(operand_shape)) if a not in dropped_dims),
        fields.get("index_vector_dim", [0])[0],
    )
    element_indices = _element_indices(node, indices, windows, clamped=True)
    y = node.build(dl.GatherNdOp, node.transpose(x, [*windows.indexed_dims, *windows.full_dims]), element_indices)
    order = windows.order(offset_dims, len(node.shape))
    return node.transpose(y, [order.index(a) for a in range(len(order))])


def scatter(node: StableHloNode) -> SSAValue:
    """Combine windows of updates with the operand; windows out of bounds are dropped."""
    if len(node.operands) != 3:
        raise node.unsupported(f"a scatter into {len(node.operands) // 2} operands is not supported")
    (x, indices, updates), operand_shape = node.operands, sizes_of(node[0])
    fields = parse_fields(node.get("scatter_dimension_numbers"))
    batching_dims, offset_dims = fields.get("input_batching_dims", []), fields.get("update_window_dims", [])
    dropped_dims = {*batching_dims, *fields.get("inserted_window_dims", [])}
    window_dims = tuple(a for a in range(len(operand_shape)) if a not in dropped_dims)
    sizes = dict.fromkeys(range(len(operand_shape)), 1) | {
        a: sizes_of(updates)[k] for a, k in zip(window_dims, offset_dims, strict=True)
    }
    windows = WindowDims(
        operand_shape,
        tuple(sizes.values()),
        tuple(fields.get("scatter_dims_to_operand_dims", [])),
        tuple(batching_dims),
        tuple(fields.get("scatter_indices_batching_dims", [])),
        window_dims,
        fields.get("index_vector_dim", [0])[0],
    )
    element_indices = _element_indices(node, indices, windows, clamped=False)
    updates = node.transpose(updates, windows.order(offset_dims, len(sizes_of(updates))))
    axes = [*windows.indexed_dims, *windows.full_dims]
    y = scatter_elements(node, node.transpose(x, axes), element_indices, updates, node.op.regions[0])
    return node.transpose(y, [axes.index(a) for a in range(len(axes))])


def scatter_elements(node: StableHloNode, x: SSAValue, indices: SSAValue, updates: SSAValue, body: Region) -> SSAValue:
    """Combine updates with elements, or slices, of an array by a body; those with an index out of bounds are dropped."""
    mode, element = _mode(node, body), element_type_of(x)
    if not is_bool(element):
        return node.build(dl.ScatterNdOp, x, indices, updates, mode=mode)
    x, updates = (node.build(dl.CastOp, v, to=i8) for v in (x, updates))
    return node.build(dl.CastOp, node.build(dl.ScatterNdOp, x, indices, updates, mode=mode), to=element)


def _mode(node: StableHloNode, body: Region) -> str:
    """Return the mode of `dl.scatter_nd` for a scatter body."""
    if returned(body) == (body.arguments[1].name,):
        return "none"
    kind = binary_op(body)
    modes = _MODES_OF_BOOLS if node.is_bool else _MODES
    if kind not in modes:
        raise node.unsupported(
            f"its body must return the update or be one of {', '.join(name for name in modes if name != 'none')}"
        )
    return modes[kind]


OPERATORS: dict[str, Converter] = {"stablehlo.gather": gather, "stablehlo.scatter": scatter}

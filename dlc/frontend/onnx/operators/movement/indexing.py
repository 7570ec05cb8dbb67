"""Gather and scatter with indices computed at run time, and cumulative operators."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import Converter, ConverterTable
from dlc.ir import i64

table = ConverterTable()


def _needs_check(node: OnnxNode, axis: int) -> bool | None:
    """Return whether indices along an axis need a run-time check. Constant indices are checked now."""
    return _needs_check_for(node, node[1].constant_value, axis) or None


def _need_checks(node: OnnxNode, axes: Sequence[int]) -> bool | None:
    """Return whether index vectors, with one entry for each of `axes`, need a run-time check. Constant ones are checked now."""
    constant_indices = node[1].constant_value
    checked = [
        _needs_check_for(node, None if constant_indices is None else constant_indices[..., k], axis)
        for k, axis in enumerate(axes)
    ]
    return any(checked) or None


def _needs_check_for(node: OnnxNode, indices: Array | None, axis: int) -> bool:
    emit, size = node.emit, node[0].shape[axis]
    if indices is None or indices.dtype == object or emit.is_data_dependent(size):
        return indices is None or indices.size > 0
    # The smallest size of an axis that has these elements.
    min_size = max(int(indices.max()) + 1, -int(indices.min())) if indices.size else 0
    if emit.is_less(size, min_size, node.description):
        out_of_range = dl.out_of_bounds_indices(indices, int(size))
        raise ModelError(f"{node.description}: index {out_of_range[0]} is outside axis {axis} of size {size}")
    return False


@table("Gather")
def gather(node: OnnxNode) -> ImportedValue:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    return node.emit(dl.GatherOp, node[0], node[1], axis=axis, checked=_needs_check(node, axis))


@table("GatherElements")
def gather_elements(node: OnnxNode) -> ImportedValue:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    return node.emit(dl.GatherElementsOp, node[0], node[1], axis=axis, checked=_needs_check(node, axis))


@table("GatherND")
def gather_nd(node: OnnxNode) -> ImportedValue:
    batch = node.integer("batch_dims", 0)
    axes = _indexed_axes(node, batch)
    return node.emit(dl.GatherNdOp, node[0], node[1], batch_dims=batch, checked=_need_checks(node, axes))


def _indexed_axes(node: OnnxNode, batch: int = 0) -> Sequence[int]:
    """Return the axes that the entries of an index vector refer to."""
    depth = int(node[1].shape[-1]) if node[1].rank else 0  # a symbolic size raises UndecidableError, which names it
    return range(batch, min(batch + depth, node[0].rank))


@table("Scatter", until=10)
@table("ScatterElements")
def scatter_elements(node: OnnxNode) -> ImportedValue:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    mode = node.choice("reduction", "none", dl.SCATTER_MODES)
    return node.emit(dl.ScatterElementsOp, node[0], node[1], node[2], axis=axis, mode=mode, checked=_needs_check(node, axis))


@table("ScatterND")
def scatter_nd(node: OnnxNode) -> ImportedValue:
    mode = node.choice("reduction", "none", dl.SCATTER_MODES)
    return node.emit(dl.ScatterNdOp, node[0], node[1], node[2], mode=mode, checked=_need_checks(node, _indexed_axes(node)))


def _cumulative(op: type[DlOp]) -> Converter:
    def convert(node: OnnxNode) -> ImportedValue:
        axis = node.axis(int(node.constant_scalar(1, "axis")), node[0].rank)
        return node.emit(op, node[0], axis=axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse"))

    return convert


table("CumSum")(_cumulative(dl.CumsumOp))
table("CumProd", since=26)(_cumulative(dl.CumprodOp))


@table("TensorScatter", since=24)
def tensor_scatter(node: OnnxNode) -> ImportedValue:
    """Write the update of each batch element into its cache, from its own start index on."""
    emit, cache, update, starts = node.emit, node[0], node[1], node.get(2)
    axis = node.axis(node.integer("axis", -2), cache.rank)
    trailing = (1,) * (cache.rank - 1 - axis)
    indices = emit.reshape(emit.iota(update.shape[axis]), (update.shape[axis], *trailing))
    if starts is not None:
        first = emit.reshape(emit.cast(starts, i64), (starts.shape[0], *(1,) * (cache.rank - 1)))
        indices = emit(dl.AddOp, first, indices)
    if node.choice("mode", "linear", ("linear", "circular")) == "circular":
        indices = emit(dl.ModOp, indices, emit.cast(emit.sizes(cache.shape[axis]), i64))
    indices = emit.broadcast(indices, update.shape)
    return emit(dl.ScatterElementsOp, cache, indices, update, axis=axis, mode="none", checked=True)

"""Operators that read and write at indices that are data."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Converter, Table
from dlc.ir import i64

table = Table()


def _is_checked(node: Node, axis: int) -> bool | None:
    """Whether a node's indices along an axis are to be checked when the model runs: known ones are now, and are an error."""
    return _is_checked_for(node, node[1].known, axis) or None


def _are_checked(node: Node, axes: Sequence[int]) -> bool | None:
    """The same where the last axis of the indices has one for each of these axes."""
    known = node[1].known
    checked = [_is_checked_for(node, None if known is None else known[..., k], axis) for k, axis in enumerate(axes)]
    return any(checked) or None


def _is_checked_for(node: Node, indices: Array | None, axis: int) -> bool:
    size = node[0].shape[axis]
    if indices is None or indices.dtype == object or not isinstance(size, int):
        return indices is None
    wrong = dl.misplaced(indices, size)
    if wrong.size:
        raise ModelError(f"{node.place}: index {wrong[0]} is outside axis {axis} of size {size}")
    return False


@table("Gather")
def gather(node: Node) -> Value:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    return node.emit(dl.GatherOp, node[0], node[1], axis=axis, checked=_is_checked(node, axis))


@table("GatherElements")
def gather_elements(node: Node) -> Value:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    return node.emit(dl.GatherElementsOp, node[0], node[1], axis=axis, checked=_is_checked(node, axis))


@table("GatherND")
def gather_nd(node: Node) -> Value:
    batch = node.integer("batch_dims", 0)
    axes = _axes_named(node, batch)
    return node.emit(dl.GatherNdOp, node[0], node[1], batch_dims=batch, checked=_are_checked(node, axes))


def _axes_named(node: Node, batch: int = 0) -> Sequence[int]:
    """The axes that the last one of the indices has entries for, as far as there are such."""
    depth = int(node[1].shape[-1]) if node[1].rank else 0  # a symbolic size raises UndecidableError, which names it
    return range(batch, min(batch + depth, node[0].rank))


@table("Scatter", until=10)
@table("ScatterElements")
def scatter_elements(node: Node) -> Value:
    axis = node.axis(node.integer("axis", 0), node[0].rank)
    mode = node.choice("reduction", "none", dl.SCATTER_MODES)
    return node.emit(dl.ScatterElementsOp, node[0], node[1], node[2], axis=axis, mode=mode, checked=_is_checked(node, axis))


@table("ScatterND")
def scatter_nd(node: Node) -> Value:
    mode = node.choice("reduction", "none", dl.SCATTER_MODES)
    return node.emit(dl.ScatterNdOp, node[0], node[1], node[2], mode=mode, checked=_are_checked(node, _axes_named(node)))


def _running(op: type[DlOp]) -> Converter:
    def convert(node: Node) -> Value:
        axis = node.axis(int(node.number(1, "axis")), node[0].rank)
        return node.emit(op, node[0], axis=axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse"))

    return convert


table("CumSum")(_running(dl.CumsumOp))
table("CumProd", since=26)(_running(dl.CumprodOp))


@table("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Value:
    """Each sample's update written into its cache, from the sample's own place on."""
    emit, cache, update, starts = node.emit, node[0], node[1], node.get(2)
    axis = node.axis(node.integer("axis", -2), cache.rank)
    trailing = (1,) * (cache.rank - 1 - axis)
    places = emit.reshape(emit.iota(update.shape[axis]), (update.shape[axis], *trailing))
    if starts is not None:
        first = emit.reshape(emit.cast(starts, i64), (starts.shape[0], *(1,) * (cache.rank - 1)))
        places = emit(dl.AddOp, first, places)
    if node.choice("mode", "linear", ("linear", "circular")) == "circular":
        places = emit(dl.ModOp, places, emit.cast(emit.sizes(cache.shape[axis]), i64))
    places = emit.broadcast(places, update.shape)
    return emit(dl.ScatterElementsOp, cache, places, update, axis=axis, mode="none", checked=True)

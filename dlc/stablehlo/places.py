"""Slices at places that data says: gather and scatter.

Both are of windows: an array of indices has a vector for each, which is where it begins along some axes of the operand. Here a
window becomes elements, or whole slices along the axes that it fills, each at a place of its own: dl.gather_nd, dl.scatter_nd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import is_bool
from dlc.ir import SSAValue, i8, i64
from dlc.stablehlo.node import Converter, Node, fields_of, sizes_of
from dlc.stablehlo.syntax import Region

# How a body combines what is there with an update, by its only op.
_MODES = {"stablehlo.add": "add", "stablehlo.multiply": "mul", "stablehlo.maximum": "max", "stablehlo.minimum": "min"}


@dataclass(frozen=True)
class Windows:
    """Which axes of an operand, of its indices and of its windows belong together."""

    whole: tuple[int, ...]
    sizes: tuple[int, ...]  # of a window along each axis of the operand
    begins: tuple[int, ...]  # the axes that the entries of a vector of indices are of
    batch: tuple[int, ...]  # axes of the operand that indices have as well
    beside: tuple[int, ...]  # and which of theirs those are
    kept: tuple[int, ...]  # the axes of the operand that windows have
    vector: int  # the axis of the indices along which a vector lies

    @property
    def pointed(self) -> list[int]:
        """The axes along which places name elements; along the others, windows are whole."""
        partial = (a for a, n in enumerate(self.whole) if a not in self.kept or self.sizes[a] != n)
        return list(dict.fromkeys([*self.batch, *self.begins, *partial]))

    @property
    def wide(self) -> list[int]:
        """Those of them along which windows lie, in order."""
        return [a for a in self.pointed if a in self.kept]

    @property
    def rest(self) -> list[int]:
        return [a for a in range(len(self.whole)) if a not in self.pointed]

    def last(self, axis: int) -> int:
        """The last place along an axis where a window can begin."""
        return self.whole[axis] - self.sizes[axis]

    def order(self, own: Sequence[int], rank: int) -> list[int]:
        """Of an array of all windows, whose own axes are `own`: the axes of indices, those of places, whole ones."""
        at = dict(zip(self.kept, own, strict=True))
        return [*(a for a in range(rank) if a not in own), *(at[a] for a in [*self.wide, *self.rest])]


def _places(node: Node, indices: SSAValue, windows: Windows, *, clamped: bool) -> SSAValue:
    """The place of each element, or whole slice, of all windows; of one outside of the operand, one that is outside."""
    b, columns = node.b, list[SSAValue]()
    if windows.vector < len(sizes_of(indices)):
        indices = node.transpose(indices, [a for a in range(len(sizes_of(indices))) if a != windows.vector] + [windows.vector])
    else:
        indices = node.reshape(indices, (*sizes_of(indices), 1))
    indices = b(dl.CastOp, indices, to=i64) if element_type_of(indices) != i64 else indices
    outer = sizes_of(indices)[:-1]
    shape = (*outer, *(windows.sizes[a] for a in windows.wide))

    def counted(axis: int) -> SSAValue:
        numbers = b(dl.IotaOp, size=(shape[axis],), to=i64, start=0, step=1)
        return node.reshape(numbers, [n if a == axis else 1 for a, n in enumerate(shape)])

    for axis in windows.pointed:
        place = b.scalar(0, like=indices)
        if axis in windows.batch:
            beside = windows.beside[windows.batch.index(axis)]
            place = counted(beside - (beside > windows.vector))
        elif axis in windows.begins:
            place = _begin(node, indices, windows, axis, clamped=clamped)
            place = node.reshape(place, (*outer, *[1] * len(windows.wide)))
        if axis in windows.wide:
            place = b(dl.AddOp, place, counted(len(outer) + windows.wide.index(axis)))
        columns.append(node.reshape(node.broadcast(place, shape), (*shape, 1)))
    if not columns:
        return b.constant(np.zeros((*shape, 0), np.int64), i64)
    return b(dl.ConcatOp, *columns, axis=len(shape)) if len(columns) > 1 else columns[0]


def _begin(node: Node, indices: SSAValue, windows: Windows, axis: int, *, clamped: bool) -> SSAValue:
    """Where windows begin along an axis: moved inside, or, where one is not inside as a whole, behind the operand."""
    b, outer, k = node.b, sizes_of(indices)[:-1], windows.begins.index(axis)
    low, high = (*[0] * len(outer), k), (*outer, k + 1)
    begin = node.reshape(b(dl.SliceOp, indices, starts=low, limits=high, strides=(1,) * len(low)), outer)
    zero, last = node.scalar(0, begin), node.number(windows.last(axis))
    if clamped:
        return b(dl.MinimumOp, b(dl.MaximumOp, begin, zero), last)
    inside = b(dl.AndOp, b(dl.GreaterEqualOp, begin, zero), b(dl.LessEqualOp, begin, last))
    return b(dl.SelectOp, inside, begin, node.number(windows.whole[axis]))


def gather(node: Node) -> SSAValue:
    return windows_of(node, node.integers("slice_sizes"))


def windows_of(node: Node, sizes: Sequence[int]) -> SSAValue:
    """Windows of the operand, moved inside where they begin outside."""
    x, indices = node[0], node[1]
    fields, whole = fields_of(node.get("dimension_numbers")), sizes_of(x)
    batch, own = fields.get("operand_batching_dims", []), fields.get("offset_dims", [])
    hidden = {*batch, *fields.get("collapsed_slice_dims", [])}
    windows = Windows(
        whole,
        tuple(sizes),
        tuple(fields.get("start_index_map", [])),
        tuple(batch),
        tuple(fields.get("start_indices_batching_dims", [])),
        tuple(a for a in range(len(whole)) if a not in hidden),
        fields.get("index_vector_dim", [0])[0],
    )
    places = _places(node, indices, windows, clamped=True)
    y = node.b(dl.GatherNdOp, node.transpose(x, [*windows.pointed, *windows.rest]), places)
    order = windows.order(own, len(node.shape))
    return node.transpose(y, [order.index(a) for a in range(len(order))])


def scatter(node: Node) -> SSAValue:
    """The operand, and windows of updates combined with it; windows that are not inside are left out."""
    if len(node.operands) != 3:
        raise node.unsupported(f"of {len(node.operands) // 2} operands at once")
    (x, indices, updates), whole = node.operands, sizes_of(node[0])
    fields = fields_of(node.get("scatter_dimension_numbers"))
    batch, own = fields.get("input_batching_dims", []), fields.get("update_window_dims", [])
    hidden = {*batch, *fields.get("inserted_window_dims", [])}
    kept = tuple(a for a in range(len(whole)) if a not in hidden)
    sizes = dict.fromkeys(range(len(whole)), 1) | {a: sizes_of(updates)[k] for a, k in zip(kept, own, strict=True)}
    windows = Windows(
        whole,
        tuple(sizes.values()),
        tuple(fields.get("scatter_dims_to_operand_dims", [])),
        tuple(batch),
        tuple(fields.get("scatter_indices_batching_dims", [])),
        kept,
        fields.get("index_vector_dim", [0])[0],
    )
    places = _places(node, indices, windows, clamped=False)
    updates = node.transpose(updates, windows.order(own, len(sizes_of(updates))))
    axes, mode = [*windows.pointed, *windows.rest], _mode(node, node.op.regions[0])
    element = element_type_of(x)
    moved = [node.transpose(x, axes), updates]
    if is_bool(element):
        moved = [node.b(dl.CastOp, v, to=i8) for v in moved]
    y = node.b(dl.ScatterNdOp, moved[0], places, moved[1], mode=mode)
    if is_bool(element):
        y = node.b(dl.CastOp, y, to=element)
    return node.transpose(y, [axes.index(a) for a in range(len(axes))])


def _mode(node: Node, body: Region) -> str:
    """How `dl.scatter_nd` says what a body does with what is there and an update."""
    there, update = (argument.name for argument in body.arguments)
    *made, returned = body.ops
    if not made and list(returned.operands) == [update]:
        return "none"
    if len(made) == 1 and set(made[0].operands) == {there, update} and list(returned.operands) == list(made[0].results):
        logic = {"stablehlo.or": "max", "stablehlo.and": "min"} if node.is_bool else {}
        if mode := (_MODES | logic).get(made[0].name):
            return mode
    raise node.unsupported(f"its body is none of {', '.join(_MODES)}, nor the update alone")


OPERATORS: dict[str, Converter] = {"stablehlo.gather": gather, "stablehlo.scatter": scatter}

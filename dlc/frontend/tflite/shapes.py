"""Operators on shapes and constants: their results are constant if the sizes are static."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import broadcast_shapes, normalized_axes
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode
from dlc.ir import i64
from dlc.shapes.dims import Size

table = TfliteConverterTable()


@table("SHAPE")
def shape(node: TfliteNode) -> ImportedValue:
    return node.emit.cast(node.emit.sizes(node[0].shape), node.element_type())


@table("RANK")
def rank(node: TfliteNode) -> ImportedValue:
    return node.emit.cast(node.emit.sizes(node[0].rank), node.element_type())


@table("RESHAPE", options="shape.ints")
def reshape(node: TfliteNode) -> ImportedValue:
    x = node[0]
    target_shape = node.sizes(1, "shape") if node.get(1) is not None else node.integers("shape")
    return node.emit.reshape(x, node.complete_shape(x.shape, target_shape))


@table("SQUEEZE", options="axes.ints")
def squeeze(node: TfliteNode) -> ImportedValue:
    x = node[0]
    dropped = normalized_axes(None, node.integers("axes"), x.rank) or [k for k, s in enumerate(x.shape) if s == 1]
    return node.emit.reshape(x, [s for k, s in enumerate(x.shape) if k not in dropped])


@table("EXPAND_DIMS")
def expand_dims(node: TfliteNode) -> ImportedValue:
    x = node[0]
    axis = node.axis(node.scalar_input(1, "axis"), x.rank + 1)
    return node.emit.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


@table("BROADCAST_TO")
def broadcast_to(node: TfliteNode) -> ImportedValue:
    x = node[0]
    return node.emit.broadcast(x, broadcast_shapes(None, x.shape, node.sizes(1, "shape")))


@table("TILE")
def tile(node: TfliteNode) -> ImportedValue:
    return node.emit.tile(node[0], node.sizes(1, "multiples"))


@table("FILL")
def fill(node: TfliteNode) -> ImportedValue:
    return node.emit.broadcast(node[1], node.sizes(0, "shape"))


@table("RANGE")
def range_(node: TfliteNode) -> ImportedValue:
    start, limit, step = (node.constant_input(k, "bounds").reshape(()).item() for k in range(3))
    return node.emit.iota(max(-int((start - limit) // step), 0), node.element_type(), start, step)


@table("ONE_HOT", options="axis.i32")
def one_hot(node: TfliteNode) -> ImportedValue:
    emit, indices, depth = node.emit, node[0], node.scalar_input(1, "depth")
    axis = node.axis(node.integer("axis"), indices.rank + 1)
    # Of 64 bits, as depth may exceed the indices' type.
    indices = emit.cast(indices, i64)
    columns = emit.reshape(emit.iota(depth), (depth, *(1,) * (indices.rank - axis)))
    hot = emit(dl.EqualOp, emit.reshape(indices, (*indices.shape[:axis], 1, *indices.shape[axis:])), columns)
    return emit(dl.SelectOp, hot, node[2], node[3])


def _split(node: TfliteNode, x: ImportedValue, sizes: Sequence[Size], axis: int) -> list[ImportedValue]:
    start: Size = 0
    chunks: list[ImportedValue] = []
    for size in sizes:
        chunks.append(node.emit.slice(x, axis, start, start + size))
        start = start + size
    return chunks


@table("SPLIT")
def split(node: TfliteNode) -> list[ImportedValue]:
    """Inputs: the axis, the operand."""
    x, count = node[1], len(node.results)
    axis = node.axis(node.scalar_input(0, "axis"), x.rank)
    size = x.shape[axis]
    if node.emit.are_different(size % count, 0, node.description):
        raise ModelError(
            f"{node.description}: cannot split axis {axis} of shape {list(x.shape)} into {count} results of equal size"
        )
    return _split(node, x, [size // count] * count, axis)


@table("SPLIT_V")
def split_v(node: TfliteNode) -> list[ImportedValue]:
    """Inputs: the operand, the sizes of the results, one of which may be inferred (-1), the axis."""
    x, sizes = node[0], list(node.constant_integers(1, "sizes"))
    axis = node.axis(node.scalar_input(2, "axis"), x.rank)
    inferred = x.shape[axis] - sum(s for s in sizes if s != -1)
    return _split(node, x, [inferred if s == -1 else s for s in sizes], axis)


@table("UNPACK", options="count.i32 axis.i32")
def unpack(node: TfliteNode) -> list[ImportedValue]:
    x = node[0]
    axis = node.axis(node.integer("axis"), x.rank)
    if node.emit.are_different(x.shape[axis], len(node.results), node.description):
        raise ModelError(f"{node.description}: {len(node.results)} results do not match axis {axis} of shape {list(x.shape)}")
    rows = _split(node, x, [1] * len(node.results), axis)
    return [node.emit.reshape(p, (*x.shape[:axis], *x.shape[axis + 1 :])) for p in rows]


@table("PACK", options="count.i32 axis.i32")
def pack(node: TfliteNode) -> ImportedValue:
    values = [node[k] for k in range(len(node.inputs))]
    axis = node.axis(node.integer("axis"), values[0].rank + 1)
    rows = [node.emit.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in values]
    return rows[0] if len(rows) == 1 else node.emit(dl.ConcatOp, *rows, axis=axis)


@table("CONCATENATION", options="axis.i32")
def concatenation(node: TfliteNode) -> ImportedValue:
    values = [node.requantize_to_output(k) for k in range(len(node.inputs))]
    return node.emit(dl.ConcatOp, *values, axis=node.axis(node.integer("axis"), values[0].rank))

"""Operators on shapes: they move no data, and their results are known at import wherever sizes are."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import broadcast_shapes, normalized_axes
from dlc.dims import Dim, Size, UndecidableError, product
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table

table = Table()


@table("Shape")
def shape(node: Node) -> Value:
    rank = node[0].rank
    # A Python slice clamps start and end just as the operator does.
    start, end = node.integer("start", 0), node.integer("end", rank)
    return node.emit.sizes(node[0].shape[start:end])


@table("Size")
def size(node: Node) -> Value:
    return node.emit.sizes(product(node[0].shape))


@table("Reshape")
def reshape(node: Node) -> Value:
    x, wanted = node[0], list(node.sizes(1, "shape"))
    if not node.flag("allowzero"):
        if any(s == 0 for s in wanted[x.rank :]):
            raise ModelError(f"{node.place}: the shape {wanted} copies a size that {list(x.shape)} does not have")
        wanted = [x.shape[k] if s == 0 else s for k, s in enumerate(wanted)]
    free = [k for k, s in enumerate(wanted) if s == -1]
    if len(free) > 1:
        raise ModelError(f"{node.place}: the shape {wanted} leaves more than one size open")
    if free:
        known = product(s for s in wanted if s != -1)
        total = product(x.shape)
        if known == 0 or (isinstance(total, int) and isinstance(known, int) and total % known):
            raise ModelError(f"{node.place}: {total} elements do not fill the shape {wanted}")
        wanted[free[0]] = total // known
    return node.emit.reshape(x, wanted)


@table("Flatten")
def flatten(node: Node) -> Value:
    x, axis = node[0], node.integer("axis", 1)
    # The axis may be the rank itself, which no axis is.
    axis = x.rank if axis == x.rank else node.axis(axis, x.rank)
    return node.emit.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


def _is_one(node: Node, size: Size) -> bool:
    """Whether an axis of this size is dropped where all of size 1 are.

    What data decides keeps its axis: one element is an error of the call. Raises UndecidableError for another open size.
    """
    emit = node.emit
    if not isinstance(size, Dim):
        return size == 1
    if not emit.is_by_data(size):
        raise UndecidableError(f"whether there is an axis hangs on the size {size}")
    number = emit.sizes(size)
    several = emit(dl.NotEqualOp, number, emit.scalar(1, number))
    emit.require(several, f"{node.place}: without axes, no axis is left of a size of {{}} that data decides", number)
    return False


def _squeezed(node: Node, axes: Sequence[int] | None) -> Value:
    x = node[0]
    ones = axes if axes is not None else [k for k, size in enumerate(x.shape) if _is_one(node, size)]
    dropped = normalized_axes(None, ones, x.rank)
    if any(isinstance(x.shape[a], int) and x.shape[a] != 1 for a in dropped):
        raise ModelError(f"{node.place}: axes {list(dropped)} of shape {list(x.shape)} do not all have size 1")
    return node.emit.reshape(x, [s for k, s in enumerate(x.shape) if k not in dropped])


def _unsqueezed(node: Node, axes: Sequence[int]) -> Value:
    x = node[0]
    rank = x.rank + len(axes)
    new, old = set(normalized_axes(None, axes, rank)), iter(x.shape)
    sizes: list[Size] = [1 if k in new else next(old) for k in range(rank)]
    return node.emit.reshape(x, sizes)


@table("Squeeze", until=12)
def squeeze_11(node: Node) -> Value:
    return _squeezed(node, node.integers("axes", ()) or None)


@table("Squeeze", since=13)
def squeeze(node: Node) -> Value:
    return _squeezed(node, node.integers_of(1, "axes") if node.get(1) is not None else None)


@table("Unsqueeze", until=12)
def unsqueeze_11(node: Node) -> Value:
    return _unsqueezed(node, node.integers("axes"))


@table("Unsqueeze", since=13)
def unsqueeze(node: Node) -> Value:
    return _unsqueezed(node, node.integers_of(1, "axes"))


@table("Expand")
def expand(node: Node) -> Value:
    emit, x, wanted = node.emit, node[0], node.decided(1, "shape")
    for size, given in zip(x.shape[::-1], wanted[::-1], strict=False):
        if isinstance(size, int) and size != 1 and isinstance(given, Dim):
            number = emit.sizes(given)
            fits = emit(dl.OrOp, *(emit(dl.EqualOp, number, emit.scalar(n, number)) for n in (1, size)))
            emit.require(fits, f"{node.place}: a size of {{}} against {size}", number)
    return emit.broadcast(x, broadcast_shapes(None, x.shape, wanted))


@table("Tile")
def tile(node: Node) -> Value:
    x, repeats = node[0], node.decided(1, "repeats")
    if len(repeats) != x.rank:
        raise ModelError(f"{node.place}: {len(repeats)} repeats for a tensor of rank {x.rank}")
    return node.emit.tile(x, repeats)


def _blocks(node: Node) -> tuple[Value, int, tuple[Size, ...]]:
    x, block = node[0], node.integer("blocksize")
    if x.rank != 4 or block < 1:
        raise ModelError(f"{node.place}: expected a tensor of rank 4 and a positive blocksize, got rank {x.rank} and {block}")
    return x, block, x.shape


@table("DepthToSpace")
def depth_to_space(node: Node) -> Value:
    emit, (x, b, (n, c, h, w)) = node.emit, _blocks(node)
    depth = c // (b * b)
    if node.choice("mode", "DCR", ("DCR", "CRD")) == "DCR":
        split = emit.transpose(emit.reshape(x, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        split = emit.transpose(emit.reshape(x, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return emit.reshape(split, (n, depth, h * b, w * b))


@table("SpaceToDepth")
def space_to_depth(node: Node) -> Value:
    emit, (x, b, (n, c, h, w)) = node.emit, _blocks(node)
    split = emit.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if node.choice("mode", "DCR", ("DCR", "CRD")) == "DCR" else (0, 1, 3, 5, 2, 4)
    return emit.reshape(emit.transpose(split, order), (n, c * b * b, h // b, w // b))


@table("Transpose")
def transpose(node: Node) -> Value:
    rank = node[0].rank
    return node.emit(dl.TransposeOp, node[0], permutation=node.integers("perm", tuple(range(rank))[::-1]))

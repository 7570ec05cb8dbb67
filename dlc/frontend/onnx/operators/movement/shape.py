"""Shape operators: they move no data, and their results are constant if the sizes are static."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import broadcast_shapes, normalized_axes
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.shapes.dims import Dim, Size, are_equal, product

table = ConverterTable()


@table("Shape")
def shape(node: OnnxNode) -> ImportedValue:
    rank = node[0].rank
    # A Python slice clamps start and end just as the operator does.
    start, end = node.integer("start", 0), node.integer("end", rank)
    return node.emit.sizes(node[0].shape[start:end])


@table("Size")
def size(node: OnnxNode) -> ImportedValue:
    return node.emit.sizes(product(node[0].shape))


@table("Reshape")
def reshape(node: OnnxNode) -> ImportedValue:
    x, target_shape = node[0], list(node.sizes(1, "shape"))
    if not node.flag("allowzero"):
        if any(s == 0 for s in target_shape[x.rank :]):
            raise ModelError(f"{node.description}: the shape {target_shape} copies a size that {list(x.shape)} does not have")
        target_shape = [x.shape[k] if s == 0 else s for k, s in enumerate(target_shape)]
        for k, size in enumerate(target_shape):
            # A computed size of 0 copies the size of `x`.
            if isinstance(size, Dim) and size not in x.shape[k : k + 1]:
                target_shape[k] = x.shape[k] if node.emit.is_less(size, 1, node.description) else size
    return node.emit.reshape(x, node.complete_shape(x.shape, target_shape))


@table("Flatten")
def flatten(node: OnnxNode) -> ImportedValue:
    x, axis = node[0], node.integer("axis", 1)
    # The axis may equal the rank.
    axis = x.rank if axis == x.rank else node.axis(axis, x.rank)
    return node.emit.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


def _is_squeezed(node: OnnxNode, size: Size) -> bool:
    """Return whether an axis of this size is squeezed when no axes are specified.

    An axis of data-dependent size is not squeezed, and its size must not be 1 at run time. Raises UndecidableError for other
    symbolic sizes.
    """
    emit = node.emit
    if not isinstance(size, Dim):
        return size == 1
    if not emit.is_data_dependent(size):
        return are_equal(size, 1)
    number = emit.sizes(size)
    is_not_one = emit(dl.NotEqualOp, number, emit.scalar(1, number))
    emit.require(is_not_one, f"{node.description}: squeeze without axes got a data-dependent size {{}}; specify axes", number)
    return False


def _squeeze(node: OnnxNode, axes: Sequence[int] | None) -> ImportedValue:
    x = node[0]
    size_1_axes = axes if axes is not None else [k for k, size in enumerate(x.shape) if _is_squeezed(node, size)]
    dropped = normalized_axes(None, size_1_axes, x.rank)
    if any(isinstance(x.shape[a], int) and x.shape[a] != 1 for a in dropped):
        raise ModelError(f"{node.description}: axes {list(dropped)} of shape {list(x.shape)} do not all have size 1")
    return node.emit.reshape(x, [s for k, s in enumerate(x.shape) if k not in dropped])


def _unsqueeze(node: OnnxNode, axes: Sequence[int]) -> ImportedValue:
    x = node[0]
    rank = x.rank + len(axes)
    inserted, sizes_of_x = set(normalized_axes(None, axes, rank)), iter(x.shape)
    sizes: list[Size] = [1 if k in inserted else next(sizes_of_x) for k in range(rank)]
    return node.emit.reshape(x, sizes)


@table("Squeeze", until=12)
def squeeze_11(node: OnnxNode) -> ImportedValue:
    return _squeeze(node, node.integers("axes", ()) or None)


@table("Squeeze", since=13)
def squeeze(node: OnnxNode) -> ImportedValue:
    return _squeeze(node, node.constant_integers(1, "axes") if node.get(1) is not None else None)


@table("Unsqueeze", until=12)
def unsqueeze_11(node: OnnxNode) -> ImportedValue:
    return _unsqueeze(node, node.integers("axes"))


@table("Unsqueeze", since=13)
def unsqueeze(node: OnnxNode) -> ImportedValue:
    return _unsqueeze(node, node.constant_integers(1, "axes"))


@table("Expand")
def expand(node: OnnxNode) -> ImportedValue:
    emit, x, target_shape = node.emit, node[0], node.runtime_sizes(1, "shape")
    for size, target_size in zip(x.shape[::-1], target_shape[::-1], strict=False):
        if isinstance(size, int) and size != 1 and isinstance(target_size, Dim):
            number = emit.sizes(target_size)
            is_broadcastable = emit(dl.OrOp, *(emit(dl.EqualOp, number, emit.scalar(n, number)) for n in (1, size)))
            emit.require(is_broadcastable, f"{node.description}: size {{}} does not broadcast with size {size}", number)
    return emit.broadcast(x, broadcast_shapes(None, x.shape, target_shape))


@table("Tile")
def tile(node: OnnxNode) -> ImportedValue:
    x, repeats = node[0], node.runtime_sizes(1, "repeats")
    if len(repeats) != x.rank:
        raise ModelError(f"{node.description}: expected {x.rank} repeats, got {len(repeats)}")
    return node.emit.tile(x, repeats)


def _blocks(node: OnnxNode) -> tuple[ImportedValue, int, tuple[Size, ...]]:
    x, block = node[0], node.integer("blocksize")
    if x.rank != 4 or block < 1:
        raise ModelError(
            f"{node.description}: expected a tensor of rank 4 and a positive blocksize, got rank {x.rank} and {block}"
        )
    return x, block, x.shape


@table("DepthToSpace")
def depth_to_space(node: OnnxNode) -> ImportedValue:
    emit, (x, b, (n, c, h, w)) = node.emit, _blocks(node)
    depth = c // (b * b)
    if node.choice("mode", "DCR", ("DCR", "CRD")) == "DCR":
        split = emit.transpose(emit.reshape(x, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        split = emit.transpose(emit.reshape(x, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return emit.reshape(split, (n, depth, h * b, w * b))


@table("SpaceToDepth")
def space_to_depth(node: OnnxNode) -> ImportedValue:
    emit, (x, b, (n, c, h, w)) = node.emit, _blocks(node)
    split = emit.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if node.choice("mode", "DCR", ("DCR", "CRD")) == "DCR" else (0, 1, 3, 5, 2, 4)
    return emit.reshape(emit.transpose(split, order), (n, c * b * b, h // b, w // b))


@table("Transpose")
def transpose(node: OnnxNode) -> ImportedValue:
    rank = node[0].rank
    return node.emit(dl.TransposeOp, node[0], permutation=node.integers("perm", tuple(range(rank))[::-1]))

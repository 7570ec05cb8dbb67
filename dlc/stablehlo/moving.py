"""Ops that move elements: shapes, slices, orders."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dims import Size
from dlc.ir import SSAValue, i64
from dlc.stablehlo.node import Converter, Node, element_of, sizes_of


def broadcast_in_dim(node: Node) -> SSAValue:
    return broadcast_to(node, node.shape)


def broadcast_to(node: Node, result: Sequence[int]) -> SSAValue:
    """Axis k of the operand becomes axis dims[k] of the result; all others are repeated."""
    dims, x = node.integers("dims", "broadcast_dimensions"), node[0]
    sizes = sizes_of(x)
    order = sorted(range(len(dims)), key=lambda k: dims[k])
    shape = [1] * len(result)
    for size, axis in zip(sizes, dims, strict=True):
        shape[axis] = size
    return node.broadcast(node.reshape(node.transpose(x, order), shape), result)


def reshape(node: Node) -> SSAValue:
    return node.reshape(node[0], node.shape)


def transpose(node: Node) -> SSAValue:
    return node.transpose(node[0], node.integers("dims", "permutation"))


def iota(node: Node) -> SSAValue:
    return counted_along(node, node.shape)


def counted_along(node: Node, shape: Sequence[int]) -> SSAValue:
    """0, 1, … along an axis of an array of this shape."""
    axis: int = node.get("dim", "iota_dimension")
    numbers = node.b(dl.IotaOp, size=(shape[axis],), to=node.element, start=0, step=1)
    aligned = [size if a == axis else 1 for a, size in enumerate(shape)]
    return node.broadcast(node.reshape(numbers, aligned), shape)


def slice_(node: Node) -> SSAValue:
    if "ranges" in node.op.attributes:
        starts, limits, strides = ([along[k] for along in node.get("ranges")] for k in range(3))
    else:
        starts, limits, strides = (node.integers(name) for name in ("start_indices", "limit_indices", "strides"))
    return node.b(dl.SliceOp, node[0], starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def concatenate(node: Node) -> SSAValue:
    operands = [v for v in node.operands if 0 not in sizes_of(v)] or node.operands[:1]
    return node.b(dl.ConcatOp, *operands, axis=node.get("dim", "dimension")) if len(operands) > 1 else operands[0]


def reverse(node: Node) -> SSAValue:
    return node.b(dl.ReverseOp, node[0], axes=tuple(node.integers("dims", "dimensions")))


def pad(node: Node) -> SSAValue:
    low, high = node.integers("low", "edge_padding_low"), node.integers("high", "edge_padding_high")
    return padded(node, low, high, node.integers("interior", "interior_padding"))


def padded(node: Node, low: Sequence[int], high: Sequence[int], between: Sequence[int]) -> SSAValue:
    """The first operand with so many of the second before, behind and between its elements along each axis."""
    x = node[0]
    for axis, count in enumerate(between):
        x = spaced(node, x, node[1], axis, count)
    return surrounded(node, x, node[1], low, high)


def surrounded(node: Node, x: SSAValue, value: SSAValue, low: Sequence[Size], high: Sequence[Size]) -> SSAValue:
    """So many values before and behind each axis; of numbers that are open, which are none below 0, as parts put together."""
    known = [tuple(n if isinstance(n, int) else 0 for n in side) for side in (low, high)]
    if any(map(any, known)):
        x = node.b(dl.PadOp, x, value, low=known[0], high=known[1], pad_mode="constant")
    for axis, amounts in enumerate(zip(low, high, strict=True)):
        sizes = shape_of(x)
        before, behind = (
            [] if isinstance(n, int) else [node.broadcast(value, (*sizes[:axis], n, *sizes[axis + 1 :]))] for n in amounts
        )
        if before or behind:
            x = node.b(dl.ConcatOp, *before, x, *behind, axis=axis)
    return x


def spaced(node: Node, x: SSAValue, value: SSAValue, axis: int, count: int) -> SSAValue:
    """So many values between neighbours along an axis."""
    sizes = sizes_of(x)
    if count == 0 or sizes[axis] in (0, 1):
        return x
    wide = node.reshape(x, [*sizes[: axis + 1], 1, *sizes[axis + 1 :]])
    none = (0,) * (len(sizes) + 1)
    wide = node.b(dl.PadOp, wide, value, low=none, high=(*none[: axis + 1], count, *none[axis + 2 :]), pad_mode="constant")
    merged = node.reshape(wide, [*sizes[:axis], sizes[axis] * (count + 1), *sizes[axis + 1 :]])
    limits = [n if a != axis else n - count for a, n in enumerate(sizes_of(merged))]
    return node.b(dl.SliceOp, merged, starts=(0,) * len(sizes), limits=tuple(limits), strides=(1,) * len(sizes))


def _start(node: Node, index: SSAValue, most: int) -> SSAValue:
    """A start as i64, moved to where a slice is inside."""
    wide = node.b(dl.CastOp, index, to=i64) if element_type_of(index) != i64 else index
    return node.b(dl.MinimumOp, node.b(dl.MaximumOp, wide, node.scalar(0, wide)), node.number(most))


def _counted(node: Node, count: int) -> SSAValue:
    return node.b(dl.IotaOp, size=(count,), to=i64, start=0, step=1)


def dynamic_slice(node: Node) -> SSAValue:
    return slice_at(node, node.operands[1:], node.integers("sizes", "slice_sizes"))


def slice_at(node: Node, starts: Sequence[SSAValue], sizes: Sequence[int]) -> SSAValue:
    """The slice of the first operand of these sizes that begins at places without axes, moved to where it is inside."""
    x = node[0]
    for axis, size in enumerate(sizes):
        whole = sizes_of(x)[axis]
        if size != whole:
            places = node.b(dl.AddOp, _counted(node, size), _start(node, starts[axis], whole - size))
            x = node.b(dl.GatherOp, x, places, axis=axis)
    return x


def dynamic_update_slice(node: Node) -> SSAValue:
    """Each element looks for the one of the update that belongs to it, and whether there is one."""
    x, update, starts = node[0], node[1], node.operands[2:]
    sizes, inside = sizes_of(x), None
    for axis, (whole, size) in enumerate(zip(sizes, sizes_of(update), strict=True)):
        if size == whole:
            continue
        apart = node.b(dl.SubOp, _counted(node, whole), _start(node, starts[axis], whole - size))
        zero, last = node.scalar(0, apart), node.number(size - 1)
        update = node.b(dl.GatherOp, update, node.b(dl.MinimumOp, node.b(dl.MaximumOp, apart, zero), last), axis=axis)
        within = node.b(dl.AndOp, node.b(dl.GreaterEqualOp, apart, zero), node.b(dl.LessEqualOp, apart, last))
        within = node.reshape(within, [whole if a == axis else 1 for a in range(len(sizes))])
        inside = within if inside is None else node.b(dl.AndOp, inside, within)
    return update if inside is None else node.b(dl.SelectOp, inside, update, x)


def sort(node: Node) -> Sequence[SSAValue]:
    """In the order of the operands that its body compares, the first of them first, ascending or descending; NaN is largest."""
    body = node.op.regions[0]
    said = str([op.attributes for op in body.ops if op.name == "stablehlo.compare"])
    axis, descending = node.get("dimension", default=-1), "GT" in said or "GE" in said
    if descending == ("LT" in said or "LE" in said):
        raise node.unsupported("its body compares in both directions, or not at all")
    if len(node.operands) == 1:
        return [node.b(dl.SortOp, node[0], axis=axis, descending=descending)]
    read = {name for op in body.ops for name in op.operands}
    *more, last = [x for k, x in enumerate(node.operands) if read & {a.name for a in body.arguments[2 * k : 2 * k + 2]}]
    places = node.b(dl.ArgsortOp, last, axis=axis, descending=descending)
    for key in reversed(more):
        # What is equal by this one stays in the order of those behind it.
        again = node.b(dl.ArgsortOp, node.b(dl.GatherElementsOp, key, places, axis=axis), axis=axis, descending=descending)
        places = node.b(dl.GatherElementsOp, places, again, axis=axis)
    return [node.b(dl.GatherElementsOp, v, places, axis=axis) for v in node.operands]


def top_k(node: Node) -> Sequence[SSAValue]:
    """The largest elements along the last axis, the first of equal ones first, and their places."""
    return _best(node, len(sizes_of(node[0])) - 1, node.get("k"), True)


def approximate_top_k(node: Node) -> Sequence[SSAValue]:
    """`lax.approx_max_k` and `approx_min_k`: exactly what they look for."""
    settings = node.get("mhlo.backend_config")
    axis, count, comparator = settings["reduction_dim"], settings["top_k"], str(*node.get("called_computations"))
    if node.shape[axis] != count or not comparator.startswith(("top_k_gt_", "top_k_lt_")):
        raise node.unsupported(f"by {comparator}, with {node.shape[axis]} results for {count}; it is with aggregate_to_topk")
    return _best(node, axis, count, comparator.startswith("top_k_gt_"))


def _best(node: Node, axis: int, count: int, descending: bool) -> Sequence[SSAValue]:
    """The first elements in this order, and their places."""
    x, sizes = node[0], sizes_of(node[0])
    order = node.b(dl.ArgsortOp, x, axis=axis, descending=descending)
    limits = (*sizes[:axis], count, *sizes[axis + 1 :])
    order = node.b(dl.SliceOp, order, starts=(0,) * len(sizes), limits=limits, strides=(1,) * len(sizes))
    best = node.b(dl.GatherElementsOp, x, order, axis=axis)
    return [best, node.b(dl.CastOp, order, to=element_of(node.op.types[1], node.where))]


OPERATORS: dict[str, Converter] = {
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.reshape": reshape,
    "stablehlo.transpose": transpose,
    "stablehlo.iota": iota,
    "stablehlo.slice": slice_,
    "stablehlo.concatenate": concatenate,
    "stablehlo.reverse": reverse,
    "stablehlo.pad": pad,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.sort": sort,
    "chlo.top_k": top_k,
    "stablehlo.custom_call @ApproxTopK": approximate_top_k,
}

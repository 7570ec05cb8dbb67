"""Nodes that move, select, sort and reduce elements."""

from __future__ import annotations

import numpy as np

from tests.fuzz.attribute_nodes import AttributeNode, Draw, NodeDraw

_MOVED_DTYPES = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_)
_INT64_MAX = np.iinfo(np.int64).max
_REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip


def _reduce(d: Draw) -> AttributeNode:
    op, rank = d.choice(*_REDUCTIONS), d.size(0, 4)
    x = d.array(d.shape(rank), d.choice(np.float32, np.float32, np.int32))
    if op.startswith("ReduceLog"):
        x = np.abs(x).astype(np.float32) + np.float32(0.5)
    axes, keep = d.maybe(d.axes(rank, 0), 0.7), d.maybe(d.flag())
    if d.flag():
        return AttributeNode(op, {"axes": axes or None, "keepdims": keep}, [x], 11)
    attributes = {"keepdims": keep, "noop_with_empty_axes": d.maybe(d.flag())}
    inputs = [x] if axes is None else [x, np.array(axes, np.int64)]
    return AttributeNode(op, attributes, inputs, 18, constants=(1,))


def _arg_reduce(d: Draw) -> AttributeNode:
    rank = d.size(1, 4)
    attributes = {"axis": d.maybe(d.axis(rank)), "keepdims": d.maybe(d.flag()), "select_last_index": d.maybe(d.flag())}
    x = d.integers(d.shape(rank), -2, 2, d.choice(np.float32, np.int32, np.int8))
    return AttributeNode(d.choice("ArgMax", "ArgMin"), attributes, [x], 13, tolerance=0)


def _cumulative(d: Draw) -> AttributeNode:
    rank = d.size(1, 3)
    attributes = {"exclusive": d.maybe(d.flag()), "reverse": d.maybe(d.flag())}
    x = d.array(d.shape(rank), d.choice(np.float32, np.float64, np.int32, np.int64))
    return AttributeNode("CumSum", attributes, [x, np.array(d.axis(rank), d.choice(np.int32, np.int64))], 14, constants=(1,))


def _top_k(d: Draw) -> AttributeNode:
    rank = d.size(1, 3)
    shape, axis = d.shape(rank, 1, 6), d.axis(rank)
    attributes = {"axis": axis if axis != -1 else d.maybe(axis), "largest": d.maybe(d.flag()), "sorted": 1}
    x = d.integers(shape, -3, 3, d.choice(np.float32, np.int32, np.int64))
    k = np.array([d.size(0, shape[axis])], np.int64)
    return AttributeNode("TopK", attributes, [x, k], 11, 2, constants=(1,), tolerance=0)


def _unique(d: Draw) -> AttributeNode:
    rank = d.size(1, 3)
    attributes = {"axis": d.maybe(d.axis(rank)), "sorted": d.maybe(d.flag())}
    return AttributeNode("Unique", attributes, [d.integers(d.shape(rank), 0, 2, np.float32)], 11, 4, tolerance=0)


def _slice(d: Draw) -> AttributeNode:
    rank = d.size(1, 4)
    shape, axes = d.shape(rank, 1, 6), d.axes(rank)
    starts = [d.choice(*range(-8, 9), -_INT64_MAX, _INT64_MAX) for _ in axes]
    steps = [d.choice(-3, -2, -1, 1, 1, 2, 3) for _ in axes]
    # ONNX Runtime reads INT64_MAX with a negative step as the start of the axis.
    ends = [d.choice(*range(-8, 9), -_INT64_MAX, _INT64_MAX if step > 0 else -_INT64_MAX) for step in steps]
    is_leading = axes == list(range(len(axes)))
    operands = [starts, ends, None if is_leading and d.flag() else axes, d.choice(steps, None)]
    x = d.array(shape, d.choice(*_MOVED_DTYPES))
    if operands[-1] is None:
        operands[1] = [e if s > 0 or e != -_INT64_MAX else _INT64_MAX for e, s in zip(ends, steps, strict=True)]
    inputs = [x, *(None if v is None else np.array(v, np.int64) for v in operands)]
    return AttributeNode("Slice", {}, inputs, 13, constants=d.choice((1, 2, 3, 4), (3, 4)), tolerance=0)


def _gather(d: Draw) -> AttributeNode:
    rank = d.size(1, 4)
    shape, axis = d.shape(rank), d.axis(rank)
    x, size = d.array(shape, d.choice(*_MOVED_DTYPES)), shape[axis]
    if d.flag():
        indices = d.integers(d.shape(d.size(0, 2)), -size, size - 1, d.choice(np.int32, np.int64))
        return AttributeNode("Gather", {"axis": axis if axis else d.maybe(axis)}, [x, indices], 13, tolerance=0)
    others = [d.size(1, n) for n in shape]
    others[axis] = d.size(1, 6)
    indices = d.integers(others, -size, size - 1, d.choice(np.int32, np.int64))
    return AttributeNode("GatherElements", {"axis": axis}, [x, indices], 13, tolerance=0)


def _gather_nd(d: Draw) -> AttributeNode:
    rank = d.size(1, 4)
    shape = d.shape(rank)
    batch = d.size(0, rank - 1)
    depth = d.size(1, rank - batch)
    bounds = np.array(shape[batch : batch + depth])
    raw = d.rng.integers(-bounds, bounds, (*shape[:batch], *d.shape(d.size(0, 2)), depth))
    return AttributeNode("GatherND", {"batch_dims": batch or d.maybe(0)}, [d.array(shape, np.float32), raw], 13, tolerance=0)


def _scatter_elements(d: Draw) -> AttributeNode:
    rank = d.size(1, 3)
    shape, axis, reduction = d.shape(rank), d.axis(rank), d.choice(None, "none", "add", "mul", "max", "min")
    others = [d.size(1, n) for n in shape]
    size = shape[axis]
    if reduction in (None, "none"):
        # Each position is written once.
        line = d.rng.permutation(size)[: others[axis]]
        indices = np.broadcast_to(line.reshape([-1 if i == axis % rank else 1 for i in range(rank)]), others).copy()
    else:
        indices = d.integers(others, -size, size - 1)
    dtype = d.choice(np.float32, np.int32)
    inputs = [d.array(shape, dtype), indices.astype(d.choice(np.int32, np.int64)), d.array(others, dtype)]
    return AttributeNode("ScatterElements", {"axis": axis or d.maybe(0), "reduction": reduction}, inputs, 18)


def _scatter_nd(d: Draw) -> AttributeNode:
    rank = d.size(1, 3)
    shape, depth, reduction = d.shape(rank), d.size(1, rank), d.choice(None, "none", "add", "mul", "max", "min")
    count = int(np.prod(shape[:depth]))
    flat = d.rng.permutation(count)[: d.size(1, count)] if reduction in (None, "none") else d.integers([d.size()], 0, count - 1)
    indices = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64)
    indices = indices - np.array(shape[:depth]) * d.flag()
    updates = d.array([len(flat), *shape[depth:]], np.float32)
    return AttributeNode("ScatterND", {"reduction": reduction}, [d.array(shape, np.float32), indices, updates], 18)


def _one_hot(d: Draw) -> AttributeNode:
    rank, depth, dtype = d.size(0, 3), d.size(1, 6), d.choice(np.float32, np.int32, np.int64)
    indices = d.integers(d.shape(rank), -depth - 1, depth, d.choice(np.int64, np.int32, np.float32))
    inputs = [indices, np.array(depth, d.choice(np.int64, np.float32)), np.array([2, 5], dtype)]
    return AttributeNode("OneHot", {"axis": d.maybe(d.axis(rank + 1))}, inputs, 11, constants=(1,), tolerance=0)


def _split(d: Draw) -> AttributeNode:
    rank, outputs = d.size(1, 3), d.size(1, 4)
    axis, shape = d.axis(rank), d.shape(rank)
    parts = [d.size(0 if k else 1, 3) for k in range(outputs)]
    form = d.choice("parts", "count", "equal")
    if form == "equal":
        shape[axis] = outputs * d.size(1, 3)
        return AttributeNode("Split", {"axis": axis}, [d.floats(shape)], 13, outputs, tolerance=0)
    if form == "count":
        chunk = d.size(1, 3)
        shape[axis] = chunk * outputs - d.size(0, chunk - 1)
        attributes = {"axis": axis, "num_outputs": outputs}
        return AttributeNode("Split", attributes, [d.floats(shape)], 18, outputs, tolerance=0)
    shape[axis] = sum(parts)
    inputs = [d.floats(shape), np.array(parts, np.int64)]
    return AttributeNode("Split", {"axis": axis if axis else d.maybe(0)}, inputs, 13, outputs, (1,), tolerance=0)


def _relayout(d: Draw) -> AttributeNode:
    rank = d.size(1, 4)
    shape = d.shape(rank)
    x = d.array(shape, d.choice(*_MOVED_DTYPES))
    op = d.choice("Transpose", "Flatten", "Squeeze", "Unsqueeze", "Reshape", "Concat", "Expand", "Tile", "Shape", "Trilu")
    if op == "Transpose":
        return AttributeNode(op, {"perm": d.maybe(d.random.sample(range(rank), rank))}, [x], 13, tolerance=0)
    if op == "Flatten":
        return AttributeNode(op, {"axis": d.maybe(d.random.randint(-rank, rank))}, [x], 13, tolerance=0)
    if op == "Squeeze":
        axes = d.axes(rank)
        sizes = [1 if i in axes or i - rank in axes else n for i, n in enumerate(shape)]
        inputs = [x.reshape(-1)[: int(np.prod(sizes))].reshape(sizes), d.maybe(np.array(axes, np.int64), 0.8)]
        return AttributeNode(op, {}, inputs, 13, constants=(1,), tolerance=0)
    if op == "Unsqueeze":
        total = rank + d.size(1, 2)
        axes = [a - total if d.flag() else a for a in d.random.sample(range(total), total - rank)]
        return AttributeNode(op, {}, [x, np.array(axes, np.int64)], 13, constants=(1,), tolerance=0)
    if op == "Reshape":
        sizes = [0 if d.flag() else n for n in shape]
        sizes[d.random.randrange(rank)] = -1
        return AttributeNode(op, {"allowzero": d.maybe(0)}, [x, np.array(sizes, np.int64)], 14, constants=(1,), tolerance=0)
    if op == "Concat":
        axis = d.axis(rank)
        others = [list(shape) for _ in range(d.size(0, 3))]
        for other in others:
            other[axis] = d.size(0, 3)
        return AttributeNode(op, {"axis": axis}, [x, *(d.array(o, x.dtype) for o in others)], 13, tolerance=0)
    if op == "Expand":
        sizes = [n if n > 1 else d.size(1, 3) for n in shape]
        sizes = [1 if d.flag() else n for n in sizes]
        sizes = d.choice(sizes, [d.size(1, 2), *sizes], sizes[1:])
        return AttributeNode(op, {}, [x, np.array(sizes, np.int64)], 13, constants=(1,), tolerance=0)
    if op == "Tile":
        return AttributeNode(op, {}, [x, np.array(d.sizes(rank, 0, 1, 1, 2, 3), np.int64)], 13, constants=(1,), tolerance=0)
    if op == "Shape":
        bounds = {"start": d.maybe(d.random.randint(-6, 6)), "end": d.maybe(d.random.randint(-6, 6))}
        return AttributeNode(op, bounds, [x], 15, tolerance=0)
    x = d.array([*shape, d.size(1, 5)], x.dtype)
    inputs = [x, d.maybe(np.array(d.random.randint(-6, 6), np.int64))]
    return AttributeNode(op, {"upper": d.maybe(d.flag())}, inputs, 14, constants=d.choice((1,), ()), tolerance=0)


def _compress(d: Draw) -> AttributeNode:
    rank = d.size(1, 3)
    shape, axis = d.shape(rank), d.maybe(d.axis(rank))
    size = int(np.prod(shape)) if axis is None else shape[axis]
    condition = d.rng.random(d.size(1, size)) < 0.5
    return AttributeNode("Compress", {"axis": axis}, [d.floats(shape), condition], 11, tolerance=0)


def _reverse_sequence(d: Draw) -> AttributeNode:
    time_axis = d.maybe(d.flag())
    axes = {} if time_axis is None else {"time_axis": time_axis, "batch_axis": 1 - time_axis}
    shape = d.shape(d.size(2, 3))
    time = time_axis or 0
    lengths = d.integers([shape[1 - time]], 1, shape[time])
    return AttributeNode("ReverseSequence", axes, [d.floats(shape), lengths], 10, tolerance=0)


def _eye_like(d: Draw) -> AttributeNode:
    attributes = {"k": d.maybe(d.random.randint(-4, 4)), "dtype": d.maybe(d.choice(1, 6, 7, 11))}
    return AttributeNode("EyeLike", attributes, [d.floats(d.shape(2))], 9, tolerance=0)


def _non_max_suppression(d: Draw) -> AttributeNode:
    boxes = np.sort(d.rng.uniform(0, 1, (d.size(1, 2), 8, 2, 2)), axis=2).reshape(-1, 8, 4).astype(np.float32)
    if d.flag():
        # Either diagonal of a box may be given.
        boxes = boxes[..., [2, 1, 0, 3]].copy()
    center = d.maybe(d.flag())
    scores = d.rng.permutation(8 * 2 * len(boxes)).reshape(len(boxes), 2, 8).astype(np.float32) / 32
    inputs = [boxes, scores, d.maybe(np.array([d.size(0, 4)], np.int64), 0.9)]
    inputs += [np.array([d.choice(0.0, 0.1, 0.5)], np.float32), d.maybe(np.array([0.3], np.float32))]
    return AttributeNode("NonMaxSuppression", {"center_point_box": center}, inputs, 11, constants=(2, 3, 4), tolerance=0)


MOVEMENT: tuple[NodeDraw, ...] = (
    _reduce, _reduce, _arg_reduce, _cumulative, _top_k, _unique, _slice, _slice, _gather, _gather_nd, _scatter_elements,
    _scatter_nd, _one_hot, _split, _relayout, _relayout, _relayout, _compress, _reverse_sequence, _eye_like,
    _non_max_suppression,
)  # fmt: skip

"""Recipes for ONNX operators that move elements: by axes, by indices at run time, and to data-dependent sizes."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper, numpy_helper

from dlc.testing.sample import BOOL, F32, I32, I64, U8, is_float
from tests.fuzz.random_graph import GraphValue, RandomGraph, Recipe, has_axes
from tests.fuzz.random_values import SMALL_SIZES


def _transpose(g: RandomGraph, op: str) -> GraphValue:
    x = g.any()
    return g.add(op, x, **({} if not x.shape or g.flag() else {"perm": g.random.sample(range(len(x.shape)), len(x.shape))}))


def _reshape(g: RandomGraph, op: str) -> GraphValue:
    x = g.any()
    size, shape = math.prod(x.shape), list[int]()
    if size == 0:
        # The shape is a constant: a 0 in it copies the input's size, while a computed 0 is a size.
        return g.add(op, x, g.constant(np.int64([0] * len(x.shape))))
    while size > 1 and len(shape) < 4:
        shape.append(g.random.choice([f for f in range(1, size + 1) if size % f == 0]))
        size //= shape[-1]
    shape.append(size)
    if g.flag():
        shape[g.random.randrange(len(shape))] = -1
    return g.add(op, x, shape=np.int64(shape))


def _squeeze(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: 1 in s)
    ones = [a for a, n in enumerate(x.shape) if n == 1]
    return g.add(op, x, **({} if g.flag() else {"axes": g.random.sample(ones, g.random.randint(1, len(ones)))}))


def _unsqueeze(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) < 4)
    rank = len(x.shape) + g.random.choice([1, 1, 2])
    return g.add(op, x, axes=sorted(g.random.sample(range(rank), rank - len(x.shape))))


def _concat(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=has_axes)
    axis = g.random.randrange(len(x.shape))
    operands = [x]
    for _ in range(g.random.choice([0, 1, 1, 2, 4])):
        operands.append(g.fresh(x.dtype, [g.random.choice((0, 1, 3, 16)) if a == axis else n for a, n in enumerate(x.shape)]))
    return g.add(op, *g.random.sample(operands, len(operands)), axis=axis)


def _split(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=has_axes)
    axis = g.random.randrange(len(x.shape))
    cuts = sorted(g.random.randint(0, x.shape[axis]) for _ in range(g.random.choice([0, 1, 1, 2])))
    lengths = [b - a for a, b in zip([0, *cuts], [*cuts, x.shape[axis]], strict=True)]
    return g.add(op, x, axis=axis, split=np.int64(lengths) if g.opset >= 13 else lengths, results=len(lengths))


def _slice(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) > 0 and min(s) > 3)
    axes = g.random.sample(range(len(x.shape)), g.random.randint(1, len(x.shape)))
    starts, ends = ([g.random.randint(-x.shape[a] - 2, x.shape[a] + 2) for a in axes] for _ in range(2))
    if g.opset < 10:
        return g.add(op, x, starts=starts, ends=ends, axes=axes)
    # A reversed slice that starts before the beginning has one element by the specification, none by `onnx.reference`.
    steps = [
        g.random.choice([1, 1, 2, 3, *([-1, -2] if start >= -x.shape[a] else [])])
        for a, start in zip(axes, starts, strict=True)
    ]
    return g.add(op, x, **{n: np.int64(v) for n, v in (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps))})


def _pad(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op), lambda s: len(s) > 0 and 0 not in s)
    mode = g.random.choice(["constant", "constant", "edge", "reflect"])
    max_pad = min(x.shape) - 1 if mode == "reflect" else 5
    pads = [g.random.choice([0, 0, min(1, max_pad), min(2, max_pad), max_pad]) for _ in range(2 * len(x.shape))]
    if g.opset < 11:
        return g.add(op, x, pads=pads, mode=mode)
    more = {"constant_value": g.random_array(x.dtype, ())} if mode == "constant" and g.flag() else {}
    return g.add(op, x, pads=np.int64(pads), mode=mode, **more)


def _center_crop_pad(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) > 0 and 0 not in s)
    axes = g.axes(x) or [0]
    sizes = np.asarray([g.random.randint(1, x.shape[a] + 4) for a in axes], g.random.choice([np.int32, np.int64]))
    return g.add(op, x, shape=sizes, axes=[a - len(x.shape) if g.flag() else a for a in axes])


def _expand(g: RandomGraph, op: str) -> GraphValue:
    x = g.any()
    ellipsis_shape = [g.random.choice((1, *SMALL_SIZES, 0, 17)) if s == 1 else s for s in x.shape]
    return g.add(op, x, shape=np.int64([*g.random.choice([(), (2,), (1, 3)]), *ellipsis_shape]))


def _tile(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=has_axes)
    return g.add(op, x, repeats=np.int64([g.random.choice([1, 1, 2, 3, 0]) for _ in x.shape]))


def _flatten(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op), has_axes)
    return g.add(op, x, axis=g.random.randint(0, len(x.shape)))


def _blocks(g: RandomGraph, op: str) -> GraphValue:
    size = g.random.choice([1, 2, 3])
    shape = [g.random.choice([1, 2]), *(g.random.choice(SMALL_SIZES) for _ in range(3))]
    shape = [n * size for n in shape] if op == "SpaceToDepth" else shape
    if op == "DepthToSpace":
        shape[1] *= size**2
    x = g.fresh(g.dtype(g.types_of(op)), shape)
    more = {"mode": g.random.choice(["DCR", "CRD"])} if op == "DepthToSpace" and g.opset >= 11 else {}
    return g.add(op, x, blocksize=size, **more)


def _trilu(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) > 1)
    return g.add(op, x, k=np.asarray(g.random.randint(-3, 3)), upper=int(g.flag()))


def _reverse_sequence(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) > 1 and 0 not in s[:2])
    batch = g.random.choice([0, 1])
    lengths = g.rng.integers(1, x.shape[1 - batch] + 1, x.shape[batch])
    return g.add(op, x, sequence_lens=lengths, batch_axis=batch, time_axis=1 - batch)


# Runtime indices


def _random_indices(g: RandomGraph, shape: tuple[int, ...], size: int) -> GraphValue:
    low = -size if g.opset >= 11 else 0
    return g.source(g.rng.integers(low, max(size, low + 1), shape).astype(g.random.choice([I32, I64])))


def _gather(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) > 0 and 0 not in s)
    axis = g.random.randrange(len(x.shape))
    if op == "Gather":
        return g.add(op, x, _random_indices(g, g.shape(g.random.choice([0, 1, 1, 2]), 64), x.shape[axis]), axis=axis)
    shape = [g.random.randint(1, s) for s in x.shape]
    shape[axis] = g.random.choice([1, 2, 5])
    return g.add(op, x, _random_indices(g, tuple(shape), x.shape[axis]), axis=axis)


def _gather_nd(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) > 0 and 0 not in s)
    batch = g.random.choice([0, 0, 1]) if len(x.shape) > 1 and g.opset >= 12 else 0
    depth = g.random.randint(1, len(x.shape) - batch)
    indices = g.source(g.rng.integers(0, min(x.shape), (*x.shape[:batch], g.random.choice([1, 3]), depth)))
    return g.add(op, x, indices, **({"batch_dims": batch} if batch else {}))


def _scatter_elements(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) > 0 and 0 not in s and math.prod(s) < 600)
    axis = g.random.randrange(len(x.shape))
    shape = [g.random.randint(1, s) for s in x.shape]
    # Without a reduction, indices must not repeat.
    order = np.argsort(g.rng.random(x.shape), axis)
    indices = g.source(order[tuple(slice(n) for n in shape)])
    return g.add(op, x, indices, g.fresh(x.dtype, shape), axis=axis)


def _scatter_nd(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) > 0 and 0 not in s and math.prod(s) < 600)
    count = g.random.randint(1, x.shape[0])
    indices = g.source(g.rng.permutation(x.shape[0])[:count, None].astype(I64))
    more = {"reduction": g.random.choice(["add", "mul"])} if g.opset >= 16 and x.dtype != BOOL and g.flag() else {}
    return g.add(op, x, indices, g.fresh(x.dtype, (count, *x.shape[1:])), **more)


def _one_hot(g: RandomGraph, op: str) -> GraphValue:
    indices = g.source(g.rng.integers(0, 5, g.shape(g.random.choice([1, 2]), 32)).astype(g.random.choice([U8, I32, I64])))
    values = g.rng.integers(-9, 9, 2).astype(g.dtype([F32, I32, I64]))
    # Also more classes than the narrowest indices represent.
    depth = np.int64(g.random.choice([5, 5, 300]))
    return g.add(op, indices, depth=depth, values=values, axis=g.random.randint(-1, len(indices.shape)))


# Data-dependent sizes


def _data_dependent(g: RandomGraph, op: str) -> GraphValue:
    """Select elements or indices by data, and apply some operators to the result."""
    # `onnx.reference` treats a scalar as a vector.
    x = g.without_nan(g.any(g.types_of(op), has_axes, exact=True))
    if op == "Unique":
        axis = {} if not x.shape or g.flag() else {"axis": g.random.randrange(len(x.shape))}
        y = g.add(op, x, results=4, sorted=1, **axis, data_dependent=True)
    elif op == "Compress":
        axis = {} if not x.shape or g.flag() else {"axis": g.random.randrange(len(x.shape))}
        length = x.shape[axis["axis"]] if axis else math.prod(x.shape)
        mask = g.source(g.rng.random(g.random.randint(0, length) if g.flag() else length) < g.random.choice([0.1, 0.5, 1]))
        y = g.add(op, x, mask, **axis, data_dependent=True)
    else:
        y = g.add(op, x, data_dependent=True)
    for _ in range(g.random.choice([0, 1, 2, 3])):
        y = _data_dependent_step(g, y)
    return y


def _data_dependent_step(g: RandomGraph, y: GraphValue) -> GraphValue:
    """Apply an operator that is defined for any number of elements."""
    match g.random.choice(["cast", "add", "concat", "transpose", "flatten", "sum", "fill", "expand", "gather"]):
        case "cast":
            return g.add("Cast", y, to=helper.np_dtype_to_tensor_dtype(BOOL), data_dependent=True)
        case "add" if y.dtype in g.types_of("Add") and not is_float(y.dtype):
            return g.add("Add", y, y, data_dependent=True)
        case "concat" if y.shape:
            return g.add("Concat", y, y, axis=g.random.randrange(len(y.shape)), data_dependent=True)
        case "transpose":
            return g.add("Transpose", y, data_dependent=True)
        case "flatten":
            return g.add("Reshape", y, g.constant(np.int64([-1])), data_dependent=True)
        case "sum" if y.shape and y.dtype in g.types_of("ReduceSum") and not is_float(y.dtype):
            return g.add("ReduceSum", y, axes=[g.random.randrange(len(y.shape))], keepdims=int(g.flag()), data_dependent=True)
        case "fill":
            shape = g.add("Shape", y, data_dependent=True)
            return g.add(
                "ConstantOfShape", shape, value=numpy_helper.from_array(g.random_array(g.dtype(), (1,))), data_dependent=True
            )
        case "expand":
            return g.add("Expand", y, g.add("Shape", y, data_dependent=True), data_dependent=True)
        case "gather" if y.dtype == I64 and y.array.size and 0 <= y.array.min() <= y.array.max() < 100:
            return g.add("Gather", g.fresh(g.dtype(), (int(y.array.max()) + 1, 3)), y, data_dependent=True)
        case _:
            return y


MOVEMENT: dict[str, Recipe] = {
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "CenterCropPad": _center_crop_pad,
    "Expand": _expand,
    "Tile": _tile,
    "Flatten": _flatten,
    **dict.fromkeys(["DepthToSpace", "SpaceToDepth"], _blocks),
    "Trilu": _trilu,
    "ReverseSequence": _reverse_sequence,
    **dict.fromkeys(["Gather", "GatherElements"], _gather),
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "OneHot": _one_hot,
    **dict.fromkeys(["NonZero", "Compress", "Unique"], _data_dependent),
}

"""Recipes for ONNX operators: matching operands and attributes, in any opset.

Left out are cases that ONNX does not define, such as integer division by zero, and cases in which `onnx.reference` deviates
from the specification and from ONNX Runtime: f64 functions with f32 constants, integer products computed in floats, softmax
over several axes (opsets before 13), logarithms of underflowed values, grouped transposed convolutions, NaN in pooling.
`onnx.reference` also multiplies by zeros where nothing should be multiplied (padding, dilation gaps, the slope of positive
values), and scales by a matrix of one element: there operands are finite, since 0 times infinity would be NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from dlc.dialects.dl.base import Array
from dlc.testing.sample import BOOL, F32, F64, I8, I32, I64, U8, is_float
from tests.fuzz.floats import epsilon_of, finite_magnitudes
from tests.fuzz.graph_windows import WINDOWS
from tests.fuzz.random_graph import GraphValue, RandomGraph
from tests.fuzz.random_values import SMALL_SIZES, Unsuitable

Recipe = Callable[[RandomGraph, str], GraphValue]

UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseNot",
    "Ceil",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
]
WITH_CONSTANTS = {
    "Celu": ["alpha"],
    "Elu": ["alpha"],
    "HardSigmoid": ["alpha", "beta"],
    "LeakyRelu": ["alpha"],
    "Selu": ["alpha", "gamma"],
    "Shrink": ["bias", "lambd"],
    "Swish": ["alpha"],
    "ThresholdedRelu": ["alpha"],
}
BINARY = [
    "Add",
    "And",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Mod",
    "Mul",
    "Or",
    "PRelu",
    "Pow",
    "Sub",
    "Xor",
]
VARIADIC = ["Max", "Mean", "Min", "Sum"]
REDUCTIONS = [f"Reduce{kind}" for kind in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]]


def _unary(g: RandomGraph, op: str) -> GraphValue:
    dtypes = g.types_of(op)
    return g.add(op, g.any([d for d in dtypes if is_float(d) and d != F64] if op in ("Erf", "Gelu", "HardSwish") else dtypes))


def _with_constants(g: RandomGraph, op: str) -> GraphValue:
    attributes = {name: g.random.choice([0.01, 0.2, 0.5, 1.0, 1.6]) for name in WITH_CONSTANTS[op] if g.flag()}
    dtype = g.dtype(g.types_of(op))
    if is_float(dtype):
        return g.add(op, g.any([dtype]), **attributes)
    # The conversion of out-of-range values to integers is not defined.
    return g.add(op, g.source(g.rng.integers(2, 100, g.shape()).astype(dtype)), **attributes)


def _binary(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op))
    y = g.partner(x) if op != "PRelu" else g.fresh(x.dtype, [s if g.flag() else 1 for s in x.shape][g.random.choice([0, 1]) :])
    if op != "PRelu" and g.flag():
        x, y = y, x
    if not is_float(x.dtype) and op in ("Div", "Mod", "Pow"):
        # Divisions by zero and negative powers of integers are not defined.
        y = g.source(np.maximum(g.random_array(y.dtype, y.shape) % 5, 1).astype(y.dtype))
    if op == "PRelu":
        y = g.finite(y)
    return g.add(op, x, y, **({"fmod": 1} if op == "Mod" and (is_float(x.dtype) or g.flag()) else {}))


def _shift(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op))
    y = g.source((g.rng.integers(0, 8 * x.dtype.itemsize, x.shape)).astype(x.dtype))
    return g.add(op, x, y, direction=g.random.choice(["LEFT", "RIGHT"]))


def _variadic(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op))
    return g.add(op, x, *(g.partner(x) for _ in range(g.random.choice([0, 1, 1, 2]))))


def _where(g: RandomGraph, op: str) -> GraphValue:
    x = g.any()
    condition = g.like(BOOL, lambda s: s in (x.shape, ()), x.shape)
    return g.add(op, condition, *g.random.sample([x, g.partner(x)], 2))


def _clip(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op))
    low, high = ((1, 3) if x.dtype.kind == "u" else (-1, 2)) if g.flag() else (2, 1)
    bounds = {name: value for name, value in (("min", low), ("max", high)) if g.flag()}
    if "min" in g.schema(op).attributes:
        return g.add(op, x, **{name: float(value) for name, value in bounds.items()})
    return g.add(op, x, **{name: np.asarray(value).astype(x.dtype) for name, value in bounds.items()})


def _cast(g: RandomGraph, op: str) -> GraphValue:
    x, to = g.any(g.types_of(op)), g.random.choice(g.types_of(op))
    if is_float(x.dtype) and not is_float(to) and to != BOOL:
        # The conversion of out-of-range values to integers is not defined.
        x = g.source(g.rng.integers(0 if to.kind == "u" else -9, 10, x.shape).astype(x.dtype))
    if op == "CastLike":
        return g.add(op, x, g.fresh(to, (1,)))
    return g.add(op, x, to=helper.np_dtype_to_tensor_dtype(to))


# Along axes


def _has_axes(shape: tuple[int, ...]) -> bool:
    return len(shape) > 0


def _reduction(g: RandomGraph, op: str) -> GraphValue:
    dtypes = [d for d in g.types_of(op) if is_float(d) or op != "ReduceMean"]
    x = g.any(dtypes, lambda s: 0 not in s or op in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare"))
    if op == "ReduceL2" and not is_float(x.dtype):
        # Squares of large integers would overflow, although the root of their sum does not.
        x = g.source(g.rng.integers(0, 10, x.shape).astype(x.dtype))
    settings: dict[str, Any] = {"keepdims": int(g.flag())}
    if g.random.random() < 0.8:
        settings["axes"] = [a - len(x.shape) if g.opset > 10 and g.flag() else a for a in g.axes(x)]
        if not settings["axes"]:
            del settings["axes"]
    if g.opset >= 18 and g.random.random() < 0.3:
        settings["noop_with_empty_axes"] = 1
    infinite = op == "ReduceLogSumExp" and np.isinf(x.array.astype(np.float64)).any()
    return g.add(op, x, accepted=lambda y: y.dtype == x.dtype and not infinite, **settings)


def _extremum(g: RandomGraph, op: str) -> GraphValue:
    x = g.without_nan(g.any(g.types_of(op), lambda s: len(s) > 0 and 0 not in s, exact=True))
    return (
        g.add(op, x, axis=g.random.randrange(len(x.shape)), keepdims=int(g.flag()), select_last_index=int(g.flag()))
        if (g.opset >= 12)
        else g.add(op, x, axis=g.random.randrange(len(x.shape)), keepdims=int(g.flag()))
    )


def _without_nan(g: RandomGraph, op: str, exact: bool = False) -> GraphValue:
    x = g.any(g.types_of(op), lambda s: len(s) > 0 and 0 not in s, exact=exact)
    if is_float(x.dtype) and np.isnan(x.array.astype(np.float64)).any():
        raise Unsuitable
    return x


def _top_k(g: RandomGraph, op: str) -> GraphValue:
    x = g.without_nan(g.any(g.types_of(op), lambda s: len(s) > 0 and 0 not in s, exact=True))
    axis = g.random.randrange(len(x.shape))
    count = g.random.randint(0, x.shape[axis])
    more = {"largest": int(g.flag())} if g.opset >= 11 else {}
    if "k" in g.schema(op).attributes:
        return g.add(op, x, axis=axis, k=max(count, 1), results=2)
    return g.add(op, x, axis=axis, K=np.int64([count]), results=2, **more)


def _cumulative(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op), _has_axes)
    axis = np.asarray(g.axis(x), g.random.choice([np.int32, np.int64]))
    return g.add(op, x, axis=axis, exclusive=int(g.flag()), reverse=int(g.flag()))


def _along_axis(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op), lambda s: len(s) > 0 and 0 not in s)
    axis = g.random.randrange(len(x.shape)) if g.opset >= 13 else len(x.shape) - 1
    return g.add(op, x, axis=axis, accepted=lambda y: op != "LogSoftmax" or not np.isinf(y.astype(np.float32)).any())


def _trailing_norm(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op), lambda s: len(s) > 0 and 0 not in s)
    axis = g.random.randrange(len(x.shape))
    parameters = [g.fresh(x.dtype, x.shape[axis:]) for _ in range(1 if op == "RMSNormalization" else g.random.choice([1, 2]))]
    return g.add(op, x, *parameters, axis=axis, epsilon=g.random.choice([1e-5, 0.1]))


def _channel_norm(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op), lambda s: len(s) > 2 and 0 not in s, (3, 4, 4))
    if g.opset < 14 or x.dtype == F64:
        raise Unsuitable
    if op in ("GroupNormalization", "InstanceNormalization"):
        x = g.tame(x.dtype, lambda s: len(s) > 2 and 0 not in s, (3, 4, 4))
    channels = x.shape[1]
    if op == "LRN":
        x, size = g.fresh(x.dtype, (5, 5, 3, g.random.choice(SMALL_SIZES))), g.random.choice([1, 3, 5])
        return g.add(op, x, size=size, alpha=g.random.choice([1e-2, 0.5]), beta=g.random.choice([0.5, 0.75]), bias=1.0)
    # The parameters are scale, bias and, for batch normalization, mean.
    parameters = [g.fresh(x.dtype, (channels,)) for _ in range(3 if op == "BatchNormalization" else 2)]
    scale, bias, *means = (f.array.astype(np.float64).reshape(-1, *[1] * (len(x.shape) - 2)) for f in parameters)
    finite = np.all([np.isfinite(f) for f in (scale, *means)], 0) & np.isfinite(x.array.astype(np.float64))

    def stays_finite(y: Array) -> bool:
        # Overflow of intermediate results depends on the order of operations, and an infinite bias hides it.
        result = y.astype(np.float64)
        return bool((np.isfinite(result) | ~finite | ((result == bias) & ~np.isfinite(bias)) | np.isnan(bias)).all())

    if op == "InstanceNormalization":
        return g.add(op, x, *parameters, epsilon=1e-3, accepted=stays_finite)
    if op == "GroupNormalization":
        groups = g.random.choice([n for n in range(1, channels + 1) if channels % n == 0])
        largest = float(np.max(finite_magnitudes(parameters[0].array), initial=0))
        tolerance = _variance_tolerance(x.array.reshape(x.shape[0], groups, -1)) * largest
        return g.add(op, x, *parameters, num_groups=groups, accepted=stays_finite, tolerance=tolerance)
    variance = g.source((np.abs(g.rng.standard_normal(channels)) + 0.1).astype(x.dtype))
    return g.add(op, x, *parameters, variance, epsilon=1e-3, accepted=stays_finite)


def _variance_tolerance(rows: Array) -> float:
    """Return the tolerance for normalization by E[x²] - E[x]², which cancels for a large mean; 0 if it does not matter."""
    x = rows.astype(np.float64)
    worst = float(np.max(np.square(x).mean(-1) / (x.var(-1) + 1e-5)))
    return 8 * epsilon_of(rows.dtype) * worst * rows.shape[-1] ** 0.5 if worst > 4 else 0.0


# Movement


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
    x = g.any(suits=_has_axes)
    axis = g.random.randrange(len(x.shape))
    operands = [x]
    for _ in range(g.random.choice([0, 1, 1, 2, 4])):
        operands.append(g.fresh(x.dtype, [g.random.choice((0, 1, 3, 16)) if a == axis else n for a, n in enumerate(x.shape)]))
    return g.add(op, *g.random.sample(operands, len(operands)), axis=axis)


def _split(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=_has_axes)
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


def _expand(g: RandomGraph, op: str) -> GraphValue:
    x = g.any()
    ellipsis_shape = [g.random.choice((1, *SMALL_SIZES, 0, 17)) if s == 1 else s for s in x.shape]
    return g.add(op, x, shape=np.int64([*g.random.choice([(), (2,), (1, 3)]), *ellipsis_shape]))


def _tile(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=_has_axes)
    return g.add(op, x, repeats=np.int64([g.random.choice([1, 1, 2, 3, 0]) for _ in x.shape]))


def _flatten(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op), _has_axes)
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
    x = g.without_nan(g.any(g.types_of(op), _has_axes, exact=True))
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


# Products


def _unscaled(g: RandomGraph, *factors: GraphValue) -> list[GraphValue]:
    """Return the factors, or finite ones if one of them has one element, by which NumPy scales."""
    return [g.finite(f) if any(math.prod(f.shape) == 1 for f in factors) else f for f in factors]


def _matmul(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(g.types_of(op), lambda s: len(s) > 0 and 0 not in s)
    k, n = x.shape[-1], g.random.choice([1, 2, 5, 16, 17, 33])
    batch = [s if g.flag() else 1 for s in x.shape[:-2]][g.random.choice([0, 2]) :]
    shape = g.random.choice([(k,), (k, n), (k, n), (*batch, k, n)])
    dtype = x.dtype if op == "MatMul" else g.random.choice([I8, U8])
    if op == "MatMulInteger" and len(shape) == 1:
        raise Unsuitable
    return g.add(op, *_unscaled(g, x, g.fresh(dtype, shape, k**-0.5)))


def _gemm(g: RandomGraph, op: str) -> GraphValue:
    m, k, n = (g.random.choice([1, 3, 8, 17]) for _ in range(3))
    dtype, transposed = g.dtype(g.types_of(op)), [g.flag(), g.flag()]
    a, b = _unscaled(
        g, *(g.fresh(dtype, s[::-1] if t else s, k**-0.5) for s, t in zip(((m, k), (k, n)), transposed, strict=True))
    )
    c = [g.fresh(dtype, g.random.choice([(n,), (m, n), (1, n), (m, 1), (1,)]))] if g.opset < 11 or g.flag() else []
    factors = {name: g.random.choice([0.5, 1.0, 2.0]) for name in ("alpha", "beta")}

    def is_in_range(y: Array) -> bool:
        # A fraction of integers beyond the dtype is undefined.
        return is_float(dtype) or not (y == np.iinfo(dtype).min).any()

    transpositions = {"transA": int(transposed[0]), "transB": int(transposed[1])}
    return g.add(op, a, b, *c, **transpositions, **factors, accepted=is_in_range)


def _einsum(g: RandomGraph, op: str) -> GraphValue:
    sizes = dict(zip("ijk", (g.random.choice(SMALL_SIZES) for _ in range(3)), strict=True))
    equation = g.random.choice(
        [
            "ij,jk->ik",
            "ij,kj->ki",
            "ij->ji",
            "ij->i",
            "ij,ij->",
            "i,j->ij",
            "ijk,kj->i",
            "iik->ik",
            "ii->",
            ",->",
            "ij,->j",
            "...ij,...jk->...ik",
            "i...,...j->j...i",
            "...,i->...",
            "...i->...",
        ]
    )
    terms = equation.split("->")[0].split(",")
    dtype, ellipsis_shape = g.dtype(g.types_of(op)), g.random.choices(SMALL_SIZES, k=2)

    def shape(term: str) -> list[int]:
        """Return the shape of a term; an ellipsis stands for trailing axes, which may be broadcast."""
        prefix, dots, suffix = term.partition("...")
        axes = [n if g.random.random() < 0.8 else 1 for n in ellipsis_shape[g.random.choice([0, 0, 1, 2]) :]] if dots else []
        return [*(sizes[c] for c in prefix), *axes, *(sizes[c] for c in suffix)]

    return g.add(op, *(g.fresh(dtype, shape(t)) for t in terms), equation=equation)


def _center_crop_pad(g: RandomGraph, op: str) -> GraphValue:
    x = g.any(suits=lambda s: len(s) > 0 and 0 not in s)
    axes = g.axes(x) or [0]
    sizes = np.asarray([g.random.randint(1, x.shape[a] + 4) for a in axes], g.random.choice([np.int32, np.int64]))
    return g.add(op, x, shape=sizes, axes=[a - len(x.shape) if g.flag() else a for a in axes])


# Quantization and creation


def _quantization(g: RandomGraph, op: str) -> GraphValue:
    if op == "DynamicQuantizeLinear":
        return g.add(op, g.tame(F32, lambda s: math.prod(s) > 1), accepted=lambda y: y.any(), results=3)
    dtype = g.random.choice([I8, U8])
    x = g.tame(F32) if op == "QuantizeLinear" else g.any([dtype])
    axis = g.random.randrange(len(x.shape)) if x.shape else 0
    shape = (x.shape[axis],) if x.shape and g.opset >= 13 and g.flag() else ()
    scale = np.asarray(g.rng.choice([0.25, 0.5, 1.0, 0.1, 3.0], shape), np.float32)
    zero = np.asarray(g.rng.integers(0 if dtype.kind == "u" else -3, 4, shape)).astype(dtype)
    more = {"axis": axis} if shape else {}
    return g.add(op, x, g.constant(scale), g.constant(zero), **more)


def _shape(g: RandomGraph, op: str) -> GraphValue:
    return g.add(op, g.any())


def _constant_of_shape(g: RandomGraph, op: str) -> GraphValue:
    value = numpy_helper.from_array(g.random_array(g.dtype(), (1,)))
    return g.add(op, g.shape_operand(np.int64(g.shape(max_elements=64))), value=value)


def _eye(g: RandomGraph, op: str) -> GraphValue:
    x = g.fresh(g.dtype(g.types_of(op)), g.shape(2))
    return g.add(op, x, k=g.random.randint(-2, 2))


def _range(g: RandomGraph, op: str) -> GraphValue:
    dtype = g.random.choice(g.types_of(op))
    start, step = g.random.choice([(0, 1), (7, -3), (1, 2)])
    limit = start + step * g.random.randint(-1, 9)
    if dtype == I64 and g.flag():
        # A distance beyond the dtype.
        start, limit, step = g.random.choice([(-(2**63), 2**63 - 1, 2**62), (2**63 - 1, -(2**63), -(2**62))])
    return g.add(op, *(g.shape_operand(np.asarray(v, dtype)) for v in (start, limit, step)))


RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(WITH_CONSTANTS, _with_constants),
    **dict.fromkeys(BINARY, _binary),
    "BitShift": _shift,
    **dict.fromkeys(VARIADIC, _variadic),
    "Where": _where,
    "Clip": _clip,
    **dict.fromkeys(["Cast", "CastLike"], _cast),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(["ArgMax", "ArgMin"], _extremum),
    "TopK": _top_k,
    **dict.fromkeys(["CumSum", "CumProd"], _cumulative),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax", "LpNormalization"], _along_axis),
    **dict.fromkeys(["LayerNormalization", "RMSNormalization"], _trailing_norm),
    **dict.fromkeys(["BatchNormalization", "GroupNormalization", "InstanceNormalization", "LRN"], _channel_norm),
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
    **dict.fromkeys(["MatMul", "MatMulInteger"], _matmul),
    "Gemm": _gemm,
    "Einsum": _einsum,
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"], _quantization),
    **dict.fromkeys(["Shape", "Size"], _shape),
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye,
    "Range": _range,
    **WINDOWS,
}

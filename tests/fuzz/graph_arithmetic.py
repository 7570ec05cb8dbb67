"""Recipes for elementwise ONNX operators, reductions and normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from dlc.dialects.dl.base import Array
from dlc.testing.sample import BOOL, F64, is_float
from tests.fuzz.floats import epsilon_of, finite_magnitudes
from tests.fuzz.random_graph import GraphValue, RandomGraph, Recipe, has_axes
from tests.fuzz.random_values import SMALL_SIZES, Unsuitable

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
    x = g.any(g.types_of(op), has_axes)
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


ARITHMETIC: dict[str, Recipe] = {
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
}

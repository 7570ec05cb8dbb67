"""Cotangents of the operands of scalar and vector ops."""

from __future__ import annotations

import math as python_math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import Attribute, Operation, arith, f32, f64, math, vector
from dlc.kernels import functions as k
from dlc.kernels.values import Value, stacked

# Cotangents of the operands from: the op, the cotangent and the value of its result, and the values of its operands.
Rule: TypeAlias = Callable[[Any, Value, Value, Sequence[Value]], "Sequence[Value | None]"]


def cotangent_element(element: Attribute) -> Attribute:
    """Return the element type in which cotangents are summed: f32 for half precision."""
    return element if element in (f32, f64) else f32


def _elementwise(derivative: Callable[[Value, Value], Any]) -> Rule:
    """Return the rule of a function whose derivative is a function of x and of the result."""
    return lambda op, ct, y, xs: [ct * derivative(xs[0], y)]


def _select(op: arith.SelectOp, ct: Value, y: Value, xs: Sequence[Value]) -> Sequence[Value | None]:
    return None, k.select(xs[0], ct, 0.0), k.select(xs[0], 0.0, ct)


def _extremum(is_first: Callable[[Value, Value], Value]) -> Rule:
    """Return the rule of an extremum: of equal operands, the first gets the cotangent."""

    def rule(op: Operation, ct: Value, y: Value, xs: Sequence[Value]) -> Sequence[Value | None]:
        first = is_first(xs[0], xs[1])
        return k.select(first, ct, 0.0), k.select(first, 0.0, ct)

    return rule


def _broadcast(op: vector.BroadcastOp, ct: Value, y: Value, xs: Sequence[Value]) -> Sequence[Value | None]:
    shape = xs[0].shape
    while len(ct.shape) > len(shape):
        ct = ct.sum(0)
    for axis, n in enumerate(shape):
        if n < ct.shape[axis]:
            ct = ct.sum(axis, keepdims=True)
    return (ct,)


def _reduction(op: vector.ReductionOp, ct: Value, y: Value, xs: Sequence[Value]) -> Sequence[Value | None]:
    x, kind = xs[0], op.kind.data.value
    if kind == "add":
        return (ct.derived(ct.kernel_value.splat(x.shape)),)
    # The cotangent of an extremum is divided among equal elements.
    is_extreme = k.select(x == y, k.full(x.shape, 1.0, x.dtype), 0.0)
    return (is_extreme * (ct / is_extreme.sum()),)


def _extract(op: vector.ExtractOp, ct: Value, y: Value, xs: Sequence[Value]) -> Sequence[Value | None]:
    (row,) = (int(i) for i in op.static_position.get_values())
    zeros = k.full(ct.shape, 0.0, ct.dtype)
    return (stacked([ct if i == row else zeros for i in range(xs[0].shape[0])]),)


def _resize(op: Operation, ct: Value, y: Value, xs: Sequence[Value]) -> Sequence[Value | None]:
    return (ct.astype(numpy_dtype(cotangent_element(cast(Attribute, xs[0].element)))),)


def _power(op: Operation, ct: Value, y: Value, xs: Sequence[Value]) -> Sequence[Value | None]:
    x, exponent = xs
    return ct * exponent * k.power(x, exponent - 1.0), ct * k.select(x > 0.0, y * k.log(k.maximum(x, 1e-30)), 0.0)


_LN2 = python_math.log(2)
RULES: dict[type[Operation], Rule] = {
    arith.AddfOp: lambda op, ct, y, xs: (ct, ct),
    arith.SubfOp: lambda op, ct, y, xs: (ct, -ct),
    arith.MulfOp: lambda op, ct, y, xs: (ct * xs[1], ct * xs[0]),
    # d(a/b) = da/b - (a/b)·db/b
    arith.DivfOp: lambda op, ct, y, xs: (ct / xs[1], -ct * y / xs[1]),
    arith.NegfOp: lambda op, ct, y, xs: (-ct,),
    **dict.fromkeys((vector.FMAOp, math.FmaOp), lambda op, ct, y, xs: (ct * xs[1], ct * xs[0], ct)),
    arith.SelectOp: _select,
    arith.MaximumfOp: _extremum(lambda a, b: a >= b),
    arith.MinimumfOp: _extremum(lambda a, b: a <= b),
    **dict.fromkeys((arith.ExtFOp, arith.TruncFOp), _resize),
    vector.BroadcastOp: _broadcast,
    vector.ReductionOp: _reduction,
    vector.ExtractOp: _extract,
    math.ExpOp: _elementwise(lambda x, y: y),
    math.Exp2Op: _elementwise(lambda x, y: y * _LN2),
    math.ExpM1Op: _elementwise(lambda x, y: y + 1.0),
    math.LogOp: _elementwise(lambda x, y: 1.0 / x),
    math.Log2Op: _elementwise(lambda x, y: 1.0 / (x * _LN2)),
    math.Log1pOp: _elementwise(lambda x, y: 1.0 / (x + 1.0)),
    math.SqrtOp: _elementwise(lambda x, y: 0.5 / y),
    math.RsqrtOp: _elementwise(lambda x, y: -0.5 * y / x),
    math.SinOp: _elementwise(lambda x, y: k.cos(x)),
    math.CosOp: _elementwise(lambda x, y: -k.sin(x)),
    math.TanhOp: _elementwise(lambda x, y: 1.0 - y * y),
    math.ErfOp: _elementwise(lambda x, y: k.exp(-x * x) * (2 / python_math.sqrt(python_math.pi))),
    math.AbsFOp: lambda op, ct, y, xs: (k.select(xs[0] < 0.0, -ct, ct),),
    math.PowFOp: _power,
    # Piecewise constant functions, and conversions from integers.
    **dict.fromkeys(
        (math.FloorOp, math.CeilOp, math.TruncOp, math.RoundEvenOp, arith.SIToFPOp, arith.UIToFPOp), lambda op, ct, y, xs: ()
    ),
}

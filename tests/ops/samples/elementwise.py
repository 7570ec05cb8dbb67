"""Samples of elementwise ops: every pair of boundary values, of every kind of element type."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import element_type
from dlc.testing.sample import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Sample,
    exactly,
    is_float,
    values,
)

FLOATS, INTEGERS = (F32, F64, F16, BF16), (I8, I32, I64, U8, U64)
NUMBERS = (*FLOATS, *INTEGERS)
UNSIGNED = (U8, U16, U32, U64)


def telling(dtype: np.dtype) -> np.ndarray:
    """Return the boundary values of a dtype, at which an op is most likely wrong."""
    if dtype == BOOL:
        return np.array([False, True])
    if is_float(dtype):
        plain = [-math.inf, -300.5, -2.0, -1.0, -0.5, -0.0, 0.0, 0.25, 1.0, 3.0, 7.5, 300.5, math.inf, math.nan]
        return np.array(plain).astype(dtype)
    info = np.iinfo(dtype)
    return np.array([v for v in (info.min, -7, -2, -1, 0, 1, 2, 3, 5, 9, info.max) if v >= info.min], dtype)


def unary(op: type[DlOp], formula: Callable[..., Any], dtypes: Iterable[np.dtype], **more: Any) -> list[Sample]:
    return [Sample(op, (telling(d),), exactly(formula), **more) for d in dtypes]


def binary(op: type[DlOp], formula: Callable[..., Any], dtypes: Iterable[np.dtype], **more: Any) -> list[Sample]:
    return [Sample(op, (telling(d)[:, None], telling(d)), exactly(formula), **more) for d in dtypes]


def on_integers(formula: Callable[[int, int], int]) -> Callable[..., Any]:
    return np.frompyfunc(lambda x, y: 0 if y == 0 else formula(int(x), int(y)), 2, 1)


def truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def by_kind(on_floats: Callable[..., Any], integers: Callable[[int, int], int]) -> Callable[..., Any]:
    return lambda x, y: on_integers(integers)(x, y) if x.dtype == object else on_floats(x, y)


def integer_power(x: int, y: int) -> int:
    return x**y % (1 << 64) if y < 64 else pow(x, y, 1 << 64)


def power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype != object:
        return np.power(x, y)

    def each(a: int, b: int) -> int:
        return integer_power(a, b) if b >= 0 else {1: 1, -1: 1 - 2 * (b % 2)}.get(a, 0)

    return np.frompyfunc(each, 2, 1)(x, y)


def sign(x: np.ndarray) -> np.ndarray:
    return np.where(x != x, x, (x > 0).astype(int) - (x < 0).astype(int))


def shift(x: np.ndarray, y: np.ndarray, to_left: bool) -> np.ndarray:
    width = 8 * x.dtype.itemsize

    def each(a: int, b: int) -> int:
        if not 0 <= b < width:
            return -1 if a < 0 and not to_left else 0
        return a << b if to_left else a >> b

    return np.frompyfunc(each, 2, 1)(x.astype(object), y.astype(object))


# Quotients that are nearly integers, exceed the precision or the range of their type; remainders of one magnitude.
_DIVIDENDS = np.array([1.0, -1.0, 1e16, -1e16, 1e30, 3e38, -1e-20, 5.3, 1e38, -0.6])
_DIVISORS = np.array([0.1, 0.1, 3.0, 7.0, 0.7, -1.1, -1.3, 0.1, 1e-6, 0.3])
# Exponents of normal, subnormal and infinite products, away from the steps of ⌊y⌋.
_EXPONENTS = np.array([0.5, 1.5, -0.5, 10.5, -24.5, 127.5, -125.5, 140.5, -148.5, 276.5, 1030.5, -1073.5, np.nan])


def _ldexp(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.astype(np.longdouble) * np.longdouble(2) ** np.floor(y.astype(np.longdouble))


ARITHMETIC = [
    *binary(dl.AddOp, lambda x, y: x + y, NUMBERS),
    *binary(dl.SubOp, lambda x, y: x - y, NUMBERS),
    *binary(dl.MulOp, lambda x, y: x * y, NUMBERS),
    *binary(dl.DivOp, by_kind(np.divide, truncated), NUMBERS),
    *binary(dl.FloordivOp, by_kind(np.floor_divide, lambda x, y: x // y), NUMBERS),
    *binary(dl.ModOp, by_kind(np.mod, lambda x, y: x % y), NUMBERS),
    *binary(dl.ModOp, by_kind(np.fmod, lambda x, y: x - y * truncated(x, y)), NUMBERS, properties={"fmod": True}, label="fmod"),
    *(
        Sample(op, (_DIVIDENDS.astype(d), _DIVISORS.astype(d)), exactly(formula), properties, label=label)
        for op, formula, properties, label in (
            (dl.FloordivOp, np.floor_divide, {}, "magnitudes"),
            (dl.ModOp, np.mod, {}, "magnitudes"),
            (dl.ModOp, np.fmod, {"fmod": True}, "magnitudes_fmod"),
        )
        for d in (F32, F64)
    ),
    *binary(dl.GcdOp, np.frompyfunc(lambda x, y: math.gcd(int(x), int(y)), 2, 1), UNSIGNED),
    *(Sample(dl.GcdOp, (values(d, 70, scale=99.0), values(d, 70, scale=99.0)), np.gcd, label="loop") for d in UNSIGNED),
    *binary(dl.PowOp, power, (F32, F16, I8, I32, U8), tolerance=1e-6),
    *binary(dl.Atan2Op, np.arctan2, (F32, F64, F16), tolerance=1e-6),
    *(Sample(dl.LdexpOp, (telling(d)[:, None], _EXPONENTS.astype(d)), _ldexp) for d in (F32, F64, F16)),
    *binary(dl.MaximumOp, np.maximum, (*NUMBERS, BOOL)),
    *binary(dl.MinimumOp, np.minimum, (*NUMBERS, BOOL)),
    *unary(dl.NegOp, lambda x: -x, NUMBERS),
    *unary(dl.AbsOp, abs, NUMBERS),
    *unary(dl.SignOp, sign, NUMBERS),
    *unary(dl.ReluOp, lambda x: np.where(x < 0, 0, x), NUMBERS),
]

_ANY = (*NUMBERS, BOOL)
COMPARISON = [
    *binary(dl.EqualOp, lambda x, y: x == y, _ANY),
    *binary(dl.NotEqualOp, lambda x, y: x != y, _ANY),
    *binary(dl.LessOp, lambda x, y: x < y, _ANY),
    *binary(dl.LessEqualOp, lambda x, y: x <= y, _ANY),
    *binary(dl.GreaterOp, lambda x, y: x > y, _ANY),
    *binary(dl.GreaterEqualOp, lambda x, y: x >= y, _ANY),
]

LOGIC = [
    *binary(dl.AndOp, np.logical_and, [BOOL]),
    *binary(dl.OrOp, np.logical_or, [BOOL]),
    *binary(dl.XorOp, np.logical_xor, [BOOL]),
    *unary(dl.NotOp, np.logical_not, [BOOL]),
    *binary(dl.BitwiseAndOp, lambda x, y: x & y, INTEGERS),
    *binary(dl.BitwiseOrOp, lambda x, y: x | y, INTEGERS),
    *binary(dl.BitwiseXorOp, lambda x, y: x ^ y, INTEGERS),
    *unary(dl.BitwiseNotOp, lambda x: -x - 1, INTEGERS),
    *[
        Sample(op, (telling(d)[:, None], np.array(amounts, d)), lambda x, y, left=left: shift(x, y, left))
        for op, left in ((dl.ShiftLeftOp, True), (dl.ShiftRightOp, False))
        for d, amounts in ((I8, [-1, 0, 1, 7, 8]), (I64, [0, 5, 63, 64]), (U8, [0, 1, 7, 8, 200]), (U32, [0, 3, 31, 32]))
    ],
]

SELECTION = [
    Sample(dl.SelectOp, (values(BOOL, 4, 1), values(d, 3), values(d, 1, 3, seed=1)), lambda c, x, y: x * c + y * ~c)
    for d in (F32, F16, I32, U8, BOOL)
]


def converted(x: np.ndarray, to: np.dtype) -> Any:
    """Compute a cast, one Python scalar at a time."""
    if to == BOOL:
        return np.array([v != 0 for v in x.tolist()])
    if is_float(to):
        return x.astype(np.float64)
    info = np.iinfo(to)

    def each(v: float) -> int:
        return 0 if math.isnan(v) else info.max if v >= info.max else info.min if v <= info.min else int(v)

    return np.array([each(float(v)) if is_float(x.dtype) else int(v) for v in x], object)


_CASTS = (F32, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)
CONVERSION = [
    Sample(dl.CastOp, (telling(a),), lambda x, b=b: converted(x, b), {"to": element_type(b)}, label=f"to_{b.name}")
    for a in _CASTS
    for b in _CASTS
    if F32 in (a, b) or b in (I8, U8, BOOL) or {a, b} in ({F16, BF16}, {F64, I64}, {F64, U64})
]
_BITS = ((F32, I32), (I32, F32), (F64, U64), (F16, I16), (U16, BF16), (I8, U8), (U32, I32))
BITS = [
    Sample(dl.BitcastOp, (telling(a),), lambda x, b=b: x.view(b), {"to": element_type(b)}, label=f"to_{b.name}")
    for a, b in _BITS
]

SAMPLES = [*ARITHMETIC, *COMPARISON, *LOGIC, *SELECTION, *CONVERSION, *BITS]

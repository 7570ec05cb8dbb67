"""Arithmetic on arrays of static and symbolic sizes, for constant folding of shape arithmetic.

Such an array has dtype object and holds `int` and `Dim`. A comparison that is not decided for every value of the symbols
(is `n` less than 4?) makes the result unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, element_type_of, ints
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.shapes.dims import Dim, Size, UndecidableError, are_equal, is_nonnegative


def object_array(entries: Sequence[Size] | Size) -> Array:
    """Return sizes as an array of objects (NumPy would convert a `Dim` to an integer)."""
    if isinstance(entries, int | Dim):
        scalar = np.empty((), object)
        scalar[()] = entries
        return scalar
    array = np.empty(len(entries), object)
    array[:] = list(entries)
    return array


def without_symbols(array: Array, dtype: np.dtype[Any]) -> Array:
    """Convert an array of objects to `dtype` if it contains no symbolic size."""
    if array.dtype == object and not any(isinstance(e, Dim) for e in array.flat):
        return array.astype(dtype)
    return array


def _truncating_divide(a: Size, b: Size) -> Size:
    # ONNX truncates integer division, which equals floor division for nonnegative operands.
    if a >= 0 and b > 0:
        return a // b
    raise UndecidableError(f"the sign of {a} / {b}")


def _truncating_remainder(a: Size, b: Size) -> Size:
    return a - b * _truncating_divide(a, b)


def _select(condition: object, a: Size, b: Size) -> Size:
    if not isinstance(condition, bool | np.bool_):
        raise UndecidableError(f"is {condition}?")
    return a if condition else b


def _sizes_differ(a: Size, b: Size) -> bool:
    return not are_equal(a, b)


ELEMENTWISE: dict[type[DlOp], Callable[..., Any]] = {
    dl.AddOp: operator.add,
    dl.SubOp: operator.sub,
    dl.MulOp: operator.mul,
    dl.NegOp: operator.neg,
    dl.DivOp: _truncating_divide,
    dl.ModOp: _truncating_remainder,
    dl.FloordivOp: operator.floordiv,
    dl.MaximumOp: max,
    dl.MinimumOp: min,
    dl.EqualOp: are_equal,
    dl.NotEqualOp: _sizes_differ,
    dl.LessOp: operator.lt,
    dl.LessEqualOp: operator.le,
    dl.GreaterOp: operator.gt,
    dl.GreaterEqualOp: operator.ge,
    dl.SelectOp: _select,
}
_REDUCTIONS: dict[type[DlOp], Callable[..., Any]] = {dl.ReduceSumOp: np.add.reduce, dl.ReduceProdOp: np.multiply.reduce}
# Their reference implementations only move elements and accept any dtype.
_DATA_MOVEMENT: tuple[type[DlOp], ...] = (
    dl.ReshapeOp, dl.TransposeOp, dl.BroadcastToOp, dl.SliceOp, dl.ReverseOp, dl.ConcatOp, dl.GatherOp,
)  # fmt: skip

# Narrower integers cannot hold every size.
MIN_SIZE_BYTES = 4
# Larger coefficients could overflow 64-bit integers at run time.
_MAX_COEFFICIENT = 1 << 48


def evaluate(op: DlOp, operands: Sequence[Array]) -> Array | None:
    """Return the only result of `op` over operands with symbolic sizes.

    None if the result is undecided or may not fit into 64-bit integers.
    """
    element = element_type_of(op.results[0])
    try:
        if type(op) in ELEMENTWISE:
            rule = np.frompyfunc(ELEMENTWISE[type(op)], len(operands), 1)
            object_operands = [o if o.dtype == object else o.astype(object) for o in operands]
            result = cast(Any, rule(*object_operands))
        elif type(op) in _REDUCTIONS:
            axes, keepdims = ints(op.properties["axes"]), op.results[0].type.get_num_dims() == operands[0].ndim  # pyright: ignore
            result = _REDUCTIONS[type(op)](operands[0], axis=axes, keepdims=keepdims)
        elif isinstance(op, dl.CastOp) and not is_float(element):
            result = operands[0]
        elif isinstance(op, _DATA_MOVEMENT):
            result = op.reference(*operands)
        else:
            return None
    except UndecidableError:
        return None
    array = object_array(result) if isinstance(result, int | Dim) else np.asarray(result)
    dtype = numpy_dtype(element)
    if not isinstance(op, _DATA_MOVEMENT) and not all(is_representable(size, dtype) for size in array.flat):
        return None
    return without_symbols(array, dtype)


def is_representable(size: Size, dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype represents a result of arithmetic on sizes; for a `Dim`, whether it does for realistic sizes."""
    if dtype.kind not in "iu":
        return dtype.kind == "b" and isinstance(size, bool | np.bool_)
    if isinstance(size, Dim):
        has_sign = dtype.kind == "i" or is_nonnegative(size)
        return has_sign and dtype.itemsize >= MIN_SIZE_BYTES and all(abs(c) < _MAX_COEFFICIENT for c in size.terms.values())
    return np.iinfo(dtype).min <= size <= np.iinfo(dtype).max

"""Arithmetic on arrays of sizes, symbolic ones among them: what `Emitter` folds shape chains with.

Such an array has dtype object and holds `int` and `Dim`. A question without an answer for every value of the symbols
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
from dlc.dims import Dim, Size, UndecidableError


def object_array(entries: Sequence[Size] | Size) -> Array:
    """Sizes as an array of objects (NumPy would ask a `Dim` for its integer)."""
    if isinstance(entries, int | Dim):
        scalar = np.empty((), object)
        scalar[()] = entries
        return scalar
    array = np.empty(len(entries), object)
    array[:] = list(entries)
    return array


def settled(array: Array, dtype: np.dtype[Any]) -> Array:
    """An array of objects as one of `dtype` when no symbolic size is left in it."""
    if array.dtype == object and not any(isinstance(e, Dim) for e in array.flat):
        return array.astype(dtype)
    return array


def _divide(a: Size, b: Size) -> Size:
    # Division of integers truncates in ONNX; it is floor division where no sign is negative.
    if a >= 0 and b > 0:
        return a // b
    raise UndecidableError(f"the sign of {a} / {b}")


def _remainder(a: Size, b: Size) -> Size:
    # By either kind of division.
    if a >= 0 and b > 0:
        return a % b
    raise UndecidableError(f"the sign of the remainder of {a} / {b}")


def _maximum(a: Size, b: Size) -> Size:
    return a if a >= b else b


def _minimum(a: Size, b: Size) -> Size:
    return a if a <= b else b


def _select(condition: bool, a: Size, b: Size) -> Size:
    return a if condition else b


def equal(a: Size, b: Size) -> bool:
    """Whether two sizes are equal. Raises UndecidableError for what only a call says."""
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    if a < b or b < a:
        return False
    raise UndecidableError(f"is {a} == {b}?")


def _differ(a: Size, b: Size) -> bool:
    return not equal(a, b)


ELEMENTWISE: dict[type[DlOp], Callable[..., Any]] = {
    dl.AddOp: operator.add,
    dl.SubOp: operator.sub,
    dl.MulOp: operator.mul,
    dl.NegOp: operator.neg,
    dl.DivOp: _divide,
    dl.ModOp: _remainder,
    dl.FloordivOp: operator.floordiv,
    dl.MaximumOp: _maximum,
    dl.MinimumOp: _minimum,
    dl.EqualOp: equal,
    dl.NotEqualOp: _differ,
    dl.LessOp: operator.lt,
    dl.LessEqualOp: operator.le,
    dl.GreaterOp: operator.gt,
    dl.GreaterEqualOp: operator.ge,
    dl.SelectOp: _select,
}
_REDUCTIONS: dict[type[DlOp], Callable[..., Any]] = {dl.ReduceSumOp: np.add.reduce, dl.ReduceProdOp: np.multiply.reduce}
# Their references only move elements, so that any dtype will do.
_MOVES: tuple[type[DlOp], ...] = (
    dl.ReshapeOp, dl.TransposeOp, dl.BroadcastToOp, dl.SliceOp, dl.ReverseOp, dl.ConcatOp, dl.GatherOp,
)  # fmt: skip

# Beyond it what is computed may wrap round, which sizes do not.
_MOST = 1 << 48


def evaluate(op: DlOp, operands: Sequence[Array]) -> Array | None:
    """The only result of `op` over operands with symbolic sizes; none where it has no answer, or one that integers of 64 bits
    may not hold."""
    element = element_type_of(op.results[0])
    try:
        if type(op) in ELEMENTWISE:
            rule = np.frompyfunc(ELEMENTWISE[type(op)], len(operands), 1)
            plain = [o if o.dtype == object else o.astype(object) for o in operands]
            result = cast(Any, rule(*plain))
        elif type(op) in _REDUCTIONS:
            axes, keepdims = ints(op.properties["axes"]), op.results[0].type.get_num_dims() == operands[0].ndim  # pyright: ignore
            result = _REDUCTIONS[type(op)](operands[0], axis=axes, keepdims=keepdims)
        elif isinstance(op, dl.CastOp) and not is_float(element):
            result = operands[0]
        elif isinstance(op, _MOVES):
            result = op.reference(*operands)
        else:
            return None
    except UndecidableError:
        return None
    array = object_array(result) if isinstance(result, int | Dim) else np.asarray(result)
    if not isinstance(op, _MOVES) and not all(map(_is_held, array.flat)):
        return None
    return settled(array, numpy_dtype(element))


def _is_held(size: Size) -> bool:
    """Whether 64 bits hold an integer, and surely a size."""
    if isinstance(size, Dim):
        return all(abs(c) < _MOST for c in size.terms.values())
    return -(1 << 63) <= size < 1 << 63

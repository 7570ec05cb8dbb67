"""What every function of `dlc.numpy` does: promote its operands, then append an op, or compute at once.

With a Tracer among the operands an op is appended to its trace. Without one the op's NumPy reference computes the result,
so that the functions also work on plain arrays and a traced function folds what does not depend on its arguments.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, PropertyValue, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError
from dlc.frontend.trace import Tracer, blamed_on_user, is_number
from dlc.ir import Block

# What a function takes for an array. Numbers take the dtype of the arrays they meet.
ArrayLike: TypeAlias = "Tracer | Array | np.generic | bool | int | float | list[Any] | tuple[Any, ...]"
Operand: TypeAlias = "Tracer | Array"
_NUMBER = {"b": True, "i": 1, "u": 1, "f": 1.0}


def operand(x: ArrayLike) -> Operand:
    """A Tracer or an array."""
    return x if isinstance(x, Tracer) else np.asarray(x)


def dtype_of(*xs: ArrayLike) -> np.dtype[Any]:
    """The dtype that the operands promote to: NumPy's rules, with numbers (and traced numbers) as weak."""
    if all(is_weak(x) for x in xs):
        return np.result_type(*(operand(x).dtype for x in xs))
    return np.result_type(*(_NUMBER[operand(x).dtype.kind] if is_weak(x) else operand(x).dtype for x in xs))


def is_weak(x: ArrayLike) -> bool:
    """Whether it is a number, or stands for one."""
    return x.weak if isinstance(x, Tracer) else is_number(x)


def promote(*xs: ArrayLike) -> list[Operand]:
    """The operands with one dtype."""
    dtype = dtype_of(*xs)
    return [convert(x, dtype) for x in xs]


def promote_to_float(*xs: ArrayLike) -> list[Operand]:
    """The operands with one floating-point dtype: float64 for integers, as in NumPy."""
    dtype = dtype_of(*xs)
    return [convert(x, np.dtype(np.float64) if dtype.kind in "iub" else dtype) for x in xs]


def convert(x: ArrayLike, dtype: Any) -> Operand:
    """`x` with this dtype; itself if it has it."""
    dtype = np.dtype(dtype)
    with blamed_on_user():
        to = element_type(dtype)
        if is_number(x):
            return _number(x, dtype)
    x = operand(x)
    if x.dtype == dtype:
        return x
    return apply(dl.CastOp, x, to=to) if isinstance(x, Tracer) else x.astype(dtype)


def _number(x: Any, dtype: np.dtype[Any]) -> Array:
    try:
        return np.asarray(x, dtype)
    except OverflowError as error:
        raise DTypeError(f"{error}; give it a dtype, such as numpy.int64({x})") from error


def apply(op: type[DlOp], *operands: Operand, **properties: PropertyValue | None) -> Any:
    """The result of an op; errors of shape and dtype name the user's line."""
    tracer = next((x for x in operands if isinstance(x, Tracer)), None)
    if tracer is not None:
        trace = tracer.trace
        return trace.apply(op, *(x if isinstance(x, Tracer) else trace.constant(x) for x in operands), **properties)
    with blamed_on_user():
        block = Block(arg_types=[tensor_type(x.shape, element_type(x.dtype)) for x in operands])
        return op.make(*block.args, **properties).evaluate(*(np.asarray(x) for x in operands))[0]

"""Tables of rules by operator name, and PyTorch's type promotion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

import dlc.numpy as dnp
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import ArrayLike, convert, is_floating
from dlc.shapes.traced_dims import TracedDim

Rule: TypeAlias = "Callable[..., Any]"
Function = TypeVar("Function", bound=Rule)
Dtype: TypeAlias = "np.dtype[Any]"


class RuleTable:
    """Rules by operator name: ATen's name and overload, `add.Tensor`; without the overload `default`."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}

    def __call__(self, names: str) -> Callable[[Function], Function]:
        """Register the decorated function as the rule of these operators, whose names are separated by spaces."""

        def add(rule: Function) -> Function:
            for name in names.split():
                assert name not in self.rules, name
                self.rules[name] = rule
            return rule

        return add


def at_least_1d(x: Any) -> Any:
    """Reshape an array of rank 0 to (1,), as operators along an axis treat it."""
    return x if x.ndim else dnp.reshape(x, (1,))


def is_tensor(x: object) -> bool:
    """Return whether `x` is an array, traced or not."""
    return isinstance(x, Tracer | np.ndarray)


def promoted(*xs: ArrayLike) -> list[Any]:
    """Convert the operands to the dtype that PyTorch computes in."""
    dtype = promoted_dtype(*xs)
    return [convert_wrapping(x, dtype) for x in xs]


def convert_wrapping(x: Any, dtype: Dtype) -> Any:
    """Convert an operand; integers wrap around, also a Python integer that the dtype does not represent."""
    is_wrapped = isinstance(x, int) and not isinstance(x, bool) and dtype.kind in "iu"
    return convert(np.int64(x).astype(dtype) if is_wrapped else x, dtype)


def widened(x: Any) -> Any:
    """Convert half precision to float32, in which sums over many elements do not overflow; None stays."""
    return None if x is None else convert(x, np.promote_types(x.dtype, np.float32))


def promoted_floats(*xs: ArrayLike) -> list[Any]:
    """Convert the operands to one floating-point dtype, float32 if none is a float."""
    dtype = promoted_dtype(*xs)
    return [convert(x, dtype if is_floating(dtype) else np.float32) for x in xs]


def promoted_dtype(*xs: Any) -> Dtype:
    """Return the dtype that operands promote to in PyTorch.

    Arrays take precedence over arrays of rank 0, and these over Python scalars: the latter count only if they are of a higher
    kind, bool < integer < float.
    """
    result_dtype: Dtype | None = None
    arrays, rank_0 = ([x.dtype for x in xs if is_tensor(x) and bool(x.ndim) is has_axes] for has_axes in (True, False))
    scalars = [_default(x) for x in xs if not is_tensor(x)]
    for dtypes in (arrays, rank_0, scalars):
        dtype = joined_dtype(dtypes)
        if dtype is not None and (result_dtype is None or _kind(dtype) > _kind(result_dtype)):
            result_dtype = dtype
    assert result_dtype is not None, "an operator without operands"
    return result_dtype


def joined_dtype(dtypes: Sequence[Dtype]) -> Dtype | None:
    """Return the dtype that array dtypes promote to; a float takes precedence over integers of any width."""
    result: Dtype | None = None
    for dtype in dtypes:
        if result is None or _kind(dtype) > _kind(result):
            result = dtype
        elif _kind(dtype) == _kind(result) and dtype != result:
            are_half_precision = dtype.itemsize == result.itemsize == 2 and _kind(dtype) == 2
            result = np.dtype(np.float32) if are_half_precision else np.promote_types(dtype, result)
    return result


def _kind(dtype: Dtype) -> int:
    return 2 if is_floating(dtype) else 0 if dtype == np.bool_ else 1


def _default(number: object) -> Dtype:
    if isinstance(number, bool):
        return np.dtype(np.bool_)
    return np.dtype(np.int64 if isinstance(number, int | TracedDim) else np.float32)

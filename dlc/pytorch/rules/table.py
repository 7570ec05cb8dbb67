"""A table of rules by the names of operators, and how PyTorch's dtypes promote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

import dlc.numpy as dnp
from dlc.dims import Dim
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import ArrayLike, convert, is_floating

Rule: TypeAlias = "Callable[..., Any]"
Function = TypeVar("Function", bound=Rule)
Dtype: TypeAlias = "np.dtype[Any]"


class Table:
    """Rules by name: `add.Tensor` as ATen has it, without the overload where that is `default`."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}

    def __call__(self, names: str) -> Callable[[Function], Function]:
        """The decorated function is the rule of these operators, written with spaces between."""

        def add(rule: Function) -> Function:
            for name in names.split():
                assert name not in self.rules, name
                self.rules[name] = rule
            return rule

        return add


def with_an_axis(x: Any) -> Any:
    """A tensor of rank 0 as one of one row, which operators along an axis take it for."""
    return x if x.ndim else dnp.reshape(x, (1,))


def is_tensor(x: object) -> bool:
    """Whether it is an array, traced or not."""
    return isinstance(x, Tracer | np.ndarray)


def promoted(*xs: ArrayLike) -> list[Any]:
    """Operands with the dtype that PyTorch computes in."""
    dtype = promoted_dtype(*xs)
    return [convert(x, dtype) for x in xs]


def promoted_floats(*xs: ArrayLike) -> list[Any]:
    """Operands with one floating-point dtype, float32 where none has one."""
    dtype = promoted_dtype(*xs)
    return [convert(x, dtype if is_floating(dtype) else np.float32) for x in xs]


def promoted_dtype(*xs: Any) -> Dtype:
    """PyTorch's rule: arrays come before those of rank 0, and those before numbers; the later ones count only where they are
    of a higher kind, bool < integer < float."""
    found: Dtype | None = None
    arrays, scalars = ([x.dtype for x in xs if is_tensor(x) and bool(x.ndim) is whole] for whole in (True, False))
    numbers = [_default(x) for x in xs if not is_tensor(x)]
    for dtypes in (arrays, scalars, numbers):
        dtype = joined_dtype(dtypes)
        if dtype is not None and (found is None or _kind(dtype) > _kind(found)):
            found = dtype
    assert found is not None, "an operator without operands"
    return found


def joined_dtype(dtypes: Sequence[Dtype]) -> Dtype | None:
    """The dtype that holds those of arrays: of an integer and a float it is the float."""
    result: Dtype | None = None
    for dtype in dtypes:
        if result is None or _kind(dtype) > _kind(result):
            result = dtype
        elif _kind(dtype) == _kind(result) and dtype != result:
            half = dtype.itemsize == result.itemsize == 2 and _kind(dtype) == 2
            result = np.dtype(np.float32) if half else np.promote_types(dtype, result)
    return result


def _kind(dtype: Dtype) -> int:
    return 2 if is_floating(dtype) else 0 if dtype == np.bool_ else 1


def _default(number: object) -> Dtype:
    if isinstance(number, bool):
        return np.dtype(np.bool_)
    return np.dtype(np.int64 if isinstance(number, int | Dim) else np.float32)

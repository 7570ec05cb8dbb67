"""Sizes of traced arrays: symbolic dimensions whose comparisons add guards to the trace.

`x.shape[0]` of a traced array is a `TracedDim`. Arithmetic with sizes returns a size, arithmetic with other numbers and arrays
a traced array. The trace decides comparisons whose result depends on the values of symbols, as for PyTorch's `SymInt`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from math import ceil, floor, isfinite
from numbers import Integral
from typing import Any, NoReturn, Protocol, TypeAlias, cast

import numpy as np

from dlc.shapes.dims import Dim, Relation, Size, UndecidableError, decided_negative, decided_zero

TracedSize: TypeAlias = "int | TracedDim"
_Operator: TypeAlias = "Callable[[TracedDim, Any], Any]"


class SizeScope(Protocol):
    """A trace: it decides comparisons of the sizes of its arrays, and computes with them."""

    def decide_size(self, size: Dim, relation: Relation, /) -> bool | None:
        """Return whether a size has a relation to 0; None if that cannot be decided."""
        ...

    def size_as_array(self, size: Dim) -> Any:
        """Return a size as a traced number."""
        ...

    def require_active(self, size: Dim) -> None:
        """Raise DlcError, which names the traced function, if tracing has ended."""
        ...

    def reject_size(self, size: TracedDim) -> NoReturn:
        """Raise DlcError for a size of another trace."""
        ...


def _size_operators(function: Callable[[Any, Any], Any]) -> tuple[_Operator, _Operator]:
    """Return an operator and its reflected form, which compute a size from sizes, and a traced array from other operands."""
    array_operator, reflected_array_operator = _array_operators(function)

    def apply(self: TracedDim, other: Any) -> Any:
        size = self.size_operand(other)
        return array_operator(self, other) if size is None else self.in_scope(function(self.dim, size))

    def apply_reflected(self: TracedDim, other: Any) -> Any:
        size = self.size_operand(other)
        return reflected_array_operator(self, other) if size is None else self.in_scope(function(size, self.dim))

    return apply, apply_reflected


def _array_operators(function: Callable[[Any, Any], Any]) -> tuple[_Operator, _Operator]:
    """Return an operator and its reflected form, which compute a traced array."""

    def apply(self: TracedDim, other: Any) -> Any:
        return function(self.as_array(self), self.as_array(other)) if self.is_number(other) else NotImplemented

    def apply_reflected(self: TracedDim, other: Any) -> Any:
        return function(self.as_array(other), self.as_array(self)) if self.is_number(other) else NotImplemented

    return apply, apply_reflected


def _comparison(
    function: Callable[[Any, Any], bool], round_float: Callable[[float], int], decide: Callable[[TracedDim, Size], bool]
) -> Callable[[TracedDim, object], bool]:
    """Return an order comparison with a size, or with a float, which is rounded to the equivalent integer."""

    def apply(self: TracedDim, other: object) -> bool:
        if isinstance(other, float):
            if not isfinite(other):
                return function(0, other)
            other = round_float(other)
        size = self.size_operand(other)
        return NotImplemented if size is None else decide(self, size)

    return apply


class TracedDim:
    """A symbolic size of the trace `scope`; its polynomial is `dim`.

    Comparisons raise UndecidableError if neither polynomials nor the trace decides them. Every use except for text raises
    DlcError after tracing, and together with a size of another trace.
    """

    __slots__ = ("dim", "scope")

    def __init__(self, dim: Dim, scope: SizeScope) -> None:
        self.dim = dim
        self.scope = scope

    def size_operand(self, other: object) -> Size | None:
        """Return an operand that is a size, as plain data; None for another value."""
        self.scope.require_active(self.dim)
        if isinstance(other, TracedDim):
            return other.dim if other.scope is self.scope else self.scope.reject_size(other)
        return int(other) if isinstance(other, Integral) else other if isinstance(other, Dim) else None

    def in_scope(self, result: Size | tuple[Size, ...]) -> Any:
        """Return sizes as sizes of this trace."""
        return traced_sizes(result, self.scope) if isinstance(result, tuple) else traced_size(result, self.scope)

    def is_number(self, other: object) -> bool:
        """Return whether an operand is a size, a number or an array, with which a size combines to an array."""
        return isinstance(other, float) or hasattr(other, "__array__") or self.size_operand(other) is not None

    def as_array(self, operand: Any) -> Any:
        """Return an operand of an array function, with a size as a traced number."""
        size = self.size_operand(operand)
        return self.scope.size_as_array(size) if isinstance(size, Dim) else operand

    __add__, __radd__ = _size_operators(lambda x, y: x + y)
    __sub__, __rsub__ = _size_operators(lambda x, y: x - y)
    __mul__, __rmul__ = _size_operators(lambda x, y: x * y)
    __floordiv__, __rfloordiv__ = _size_operators(lambda x, y: x // y)
    __mod__, __rmod__ = _size_operators(lambda x, y: x % y)
    __divmod__, __rdivmod__ = _size_operators(divmod)
    __truediv__, __rtruediv__ = _array_operators(lambda x, y: x / y)
    __matmul__, __rmatmul__ = _array_operators(lambda x, y: x @ y)
    __and__, __rand__ = _array_operators(lambda x, y: x & y)
    __or__, __ror__ = _array_operators(lambda x, y: x | y)
    __xor__, __rxor__ = _array_operators(lambda x, y: x ^ y)
    __lshift__, __rlshift__ = _array_operators(lambda x, y: x << y)
    __rshift__, __rrshift__ = _array_operators(lambda x, y: x >> y)
    _array_power, __rpow__ = _array_operators(lambda x, y: x**y)

    def __pow__(self, other: Any) -> Any:
        """Return a size for a static exponent that is not negative, else a traced array."""
        size = self.size_operand(other)
        return self.in_scope(self.dim**size) if isinstance(size, int) and size >= 0 else self._array_power(other)

    def __neg__(self) -> TracedSize:
        self.scope.require_active(self.dim)
        return self.in_scope(-self.dim)

    def __pos__(self) -> TracedDim:
        return self

    def __abs__(self) -> Any:
        return abs(self.as_array(self))

    def __round__(self, digits: int | None = None) -> TracedDim:
        return self

    def __eq__(self, other: object) -> bool:
        size = int(other) if isinstance(other, float) and other.is_integer() else self.size_operand(other)
        if size is None:
            return False if isinstance(other, float | complex) else NotImplemented
        return self._is_zero(self.dim - size, f"is {self} == {size}?")

    def __bool__(self) -> bool:
        self.scope.require_active(self.dim)
        return not self._is_zero(self.dim, f"is {self} == 0?")

    # For integers, `a <= b` is `a - b - 1 < 0`.
    __lt__ = _comparison(operator.lt, ceil, lambda self, n: self._is_negative(self.dim - n, f"is {self} < {n}?"))
    __le__ = _comparison(operator.le, floor, lambda self, n: self._is_negative(self.dim - n - 1, f"is {self} <= {n}?"))
    __gt__ = _comparison(operator.gt, floor, lambda self, n: not self._is_negative(self.dim - n - 1, f"is {self} > {n}?"))
    __ge__ = _comparison(operator.ge, ceil, lambda self, n: not self._is_negative(self.dim - n, f"is {self} >= {n}?"))

    def _is_negative(self, size: Size, question: str) -> bool:
        decided = decided_negative(size)
        return self._decided(self.scope.decide_size(Dim.lift(-size - 1), ">=") if decided is None else decided, question)

    def _is_zero(self, size: Size, question: str) -> bool:
        decided = decided_zero(size)
        return self._decided(self.scope.decide_size(Dim.lift(size), "==") if decided is None else decided, question)

    def _decided(self, answer: bool | None, question: str) -> bool:
        if answer is None:
            raise UndecidableError(
                f"{question} It depends on the call; pass an integer, or choose by dlc.lax.cond or dlc.numpy.where, "
                "which take a comparison of arrays: dlc.numpy.asarray(n) < 4"
            )
        return answer

    def __hash__(self) -> int:
        self.scope.require_active(self.dim)
        raise UndecidableError(f"the size {self} is symbolic: it cannot be hashed while a function is traced")

    def __int__(self) -> int:
        self.scope.require_active(self.dim)
        raise UndecidableError(
            f"the size {self} is symbolic and has no integer value while a function is traced; pass an integer, "
            "and write dlc.numpy.asarray(table)[n] for table[n] of a NumPy array"
        )

    __index__ = __int__

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.scope.require_active(self.dim)
        raise UndecidableError(
            f"the size {self} is symbolic, so NumPy cannot use it; call functions of dlc.numpy, "
            "and write dlc.numpy.asarray(table)[n] for table[n]"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
        """Apply a function of NumPy: arithmetic and comparisons of sizes as operators, any other to traced arrays."""
        size_operator = _SIZE_UFUNCS.get(ufunc)
        # NumPy compares a scalar as an array of rank 0.
        scalars = [x[()] if isinstance(cast(object, x), np.ndarray) and x.ndim == 0 else x for x in operands]
        sizes = [self.size_operand(x) for x in scalars]
        if size_operator is not None and method == "__call__" and not settings and None not in sizes:
            return size_operator(*(self.in_scope(cast(Size, size)) for size in sizes))
        return getattr(ufunc, method)(*(self.as_array(x) for x in operands), **settings)

    def __copy__(self) -> TracedDim:
        return self

    def __deepcopy__(self, memo: object) -> TracedDim:
        # A TracedDim is immutable, and its scope is not copied with it.
        return self

    def __str__(self) -> str:
        return str(self.dim)

    __repr__ = __str__


# Functions whose result on sizes is a size or a bool.
_SIZE_UFUNCS: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.floor_divide: operator.floordiv,
    np.remainder: operator.mod, np.power: operator.pow, np.equal: operator.eq, np.not_equal: operator.ne,
    np.less: operator.lt, np.less_equal: operator.le, np.greater: operator.gt, np.greater_equal: operator.ge,
}  # fmt: skip


def traced_size(size: Size, scope: SizeScope) -> TracedSize:
    """Return a size as a size of a trace."""
    return TracedDim(size, scope) if isinstance(size, Dim) else size


def traced_sizes(sizes: Iterable[Size], scope: SizeScope) -> tuple[TracedSize, ...]:
    """Return a shape as a shape of a trace."""
    return tuple([TracedDim(size, scope) if isinstance(size, Dim) else size for size in sizes])


def untraced(value: Any, scope: SizeScope | None = None) -> Any:
    """Return a size as plain data, also in lists and tuples, which become tuples, and in dicts; return other values unchanged.

    Raises DlcError for a size that does not belong to `scope`, and for one whose trace has ended.
    """
    if isinstance(value, list | tuple):
        return tuple([untraced(x, scope) for x in cast("list[Any] | tuple[Any, ...]", value)])
    if isinstance(value, dict):
        return {key: untraced(x, scope) for key, x in cast("dict[Any, Any]", value).items()}
    if not isinstance(value, TracedDim):
        return value
    value.scope.require_active(value.dim)
    return value.dim if scope in (None, value.scope) else scope.reject_size(value)

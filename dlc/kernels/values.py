"""Values inside kernels: scalars and vectors of numbers and booleans, and indices.

Arithmetic follows NumPy without implicit conversions: a Python scalar takes the dtype of the other operand, and operands of two
dtypes are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NoReturn, TypeAlias, cast

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.dtypes import element_type, is_bool, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import is_unsigned, storage_type
from dlc.errors import AbsentError, DlcError, DTypeError, ShapeError
from dlc.frontend.trace import Tracer, is_python_scalar
from dlc.ir import Attribute, DenseIntOrFPElementsAttr, arith, bf16, f16, i64, math, vector
from dlc.kernels.conversions import convert, floor_divide
from dlc.kernels.index_ranges import Fact, Interval, LinearForm, is_less
from dlc.kernels.index_sets import IndexSet
from dlc.kernels.kernel_trace import KernelTrace, Scope
from dlc.kernels.lanes import LoopLanes
from dlc.kernels.shapes import require_shape
from dlc.kernels.unknown_values import UnknownWhileTracing
from dlc.passes.kernel_values import KernelValue, math_op, maximum, minimum, shape_of_vector
from dlc.passes.types import i64_array, vector_type
from dlc.shapes.traced_dims import TracedDim

_HALF_PRECISION = (f16, bf16)
# The method for an operator whose first operand is a scalar or array of NumPy, by ufunc.
_REFLECTED = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "less": "__gt__", "less_equal": "__ge__",
    "greater": "__lt__", "greater_equal": "__le__", "equal": "__eq__", "not_equal": "__ne__",
}  # fmt: skip
# Larger powers are those of floats, by k.power.
_MAX_POWER = 64
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


@dataclass(frozen=True, eq=False)
class Value(UnknownWhileTracing):
    """A scalar or vector of a dtype, or an index.

    Attributes:
        trace: The kernel's trace.
        kernel_value: The value in the IR.
        element: The element type in the `dl` dialect; None for an index.
        scope: The scope in which it is defined.
        form: An index as a linear form of loop variables.
        facts: The conditions on indices that hold where a boolean is true.
        index_set: Where exactly a boolean is true, if this depends on loop variables only and is known.
    """

    trace: KernelTrace
    kernel_value: KernelValue
    element: Attribute | None
    scope: Scope
    form: LinearForm | None = None
    facts: Sequence[Fact] = ()
    index_set: IndexSet | None = None

    @property
    def dtype_name(self) -> str:
        """The dtype for messages; `index` for an index."""
        return "index" if self.element is None else str(numpy_dtype(self.element))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype. Raises DTypeError for an index, which has none."""
        if self.element is None:
            raise self.error("the dtype of an index; convert it with .astype(np.int64)", DTypeError)
        return numpy_dtype(self.element)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a vector or tile, () of a scalar."""
        return shape_of_vector(self.kernel_value.type)

    @property
    def is_index(self) -> bool:
        return self.element is None

    @property
    def is_bool(self) -> bool:
        return self.element is not None and is_bool(self.element)

    @property
    def is_float(self) -> bool:
        return self.element is not None and is_float(self.element)

    # Arithmetic

    def __add__(self, other: ValueLike) -> Value:
        return self._arithmetic("+", other, lambda a, b: a + b, lambda a, b: a + b)

    def __radd__(self, other: ValueLike) -> Value:
        return self.converted(other) + self

    def __sub__(self, other: ValueLike) -> Value:
        return self._arithmetic("-", other, lambda a, b: a - b, lambda a, b: a - b)

    def __rsub__(self, other: ValueLike) -> Value:
        return self.converted(other) - self

    def __mul__(self, other: ValueLike) -> Value:
        return self._arithmetic("*", other, lambda a, b: a * b, self._product_form)

    def __rmul__(self, other: ValueLike) -> Value:
        return self.converted(other) * self

    def __truediv__(self, other: ValueLike) -> Value:
        a, b = self._operands("/", other)
        if not a.is_float:
            raise a.error(f"/ of {a.dtype_name} values; use //, or convert with .astype(np.float32)", DTypeError)
        return a.derived(a.kernel_value / b.kernel_value)

    def __rtruediv__(self, other: ValueLike) -> Value:
        return self.converted(other) / self

    def __floordiv__(self, other: ValueLike) -> Value:
        return self._divided("//", other)[0]

    def __rfloordiv__(self, other: ValueLike) -> Value:
        return self.converted(other) // self

    def __mod__(self, other: ValueLike) -> Value:
        return self._divided("%", other)[1]

    def __rmod__(self, other: ValueLike) -> Value:
        return self.converted(other) % self

    def __neg__(self) -> Value:
        return 0 - self if not self.is_float else self.derived(-self.require_arithmetic("-").kernel_value)

    def __abs__(self) -> Value:
        """Return |x|; the smallest integer is its own absolute value."""
        x = self.require_usable().require_arithmetic("abs").kernel_value
        if self.is_float:
            return self.derived(math_op(math.AbsFOp, x))
        if not x.signed:
            return self
        negative = -self
        result = maximum(x, negative.kernel_value)
        limits = self.range.maximum(negative.range).maximum(Interval(0, 0)) if self.is_index else None
        return self.derived(result) if limits is None else self.index_of(result, limits)

    def __pow__(self, exponent: int) -> Value:
        """Return the power with a small static exponent, by multiplications."""
        if not isinstance(cast(object, exponent), int) or not 1 <= exponent <= _MAX_POWER:
            problem = f"** {exponent!r:.60}; expected a Python integer of 1 to {_MAX_POWER}; use k.power for floats"
            raise self.error(problem, DTypeError)
        half = self ** (exponent // 2) if exponent > 1 else None
        if half is None:
            return self.require_usable().require_arithmetic("**")
        return half * half * self if exponent % 2 else half * half

    def __divmod__(self, other: ValueLike) -> tuple[Value, Value]:
        return self._divided("divmod", other)

    def __and__(self, other: ValueLike) -> Value:
        return self._bitwise("&", other, lambda a, b: a & b)

    def __or__(self, other: ValueLike) -> Value:
        return self._bitwise("|", other, lambda a, b: a | b)

    def __xor__(self, other: ValueLike) -> Value:
        return self._bitwise("^", other, lambda a, b: a ^ b)

    def __invert__(self) -> Value:
        result = self ^ (True if self.is_bool else self.converted(-1) if self.kernel_value.signed else self._all_ones())
        return result if self.index_set is None else replace(result, index_set=self.index_set.complement())

    def __lshift__(self, count: int | Value) -> Value:
        return self._shifted("<<", count)

    def __rshift__(self, count: int | Value) -> Value:
        return self._shifted(">>", count)

    def __lt__(self, other: ValueLike) -> Value:
        return self._compared("lt", other)

    def __le__(self, other: ValueLike) -> Value:
        return self._compared("le", other)

    def __gt__(self, other: ValueLike) -> Value:
        return self._compared("gt", other)

    def __ge__(self, other: ValueLike) -> Value:
        return self._compared("ge", other)

    def __eq__(self, other: ValueLike) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compared("eq", other)

    def __ne__(self, other: ValueLike) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compared("ne", other)

    __hash__ = object.__hash__

    # Vectors and tiles

    def __getitem__(self, row: int) -> Value:
        """Return one row of a tile."""
        self.require_usable()
        if len(self.shape) < 2 or not isinstance(cast(object, row), int) or not -self.shape[0] <= row < self.shape[0]:
            rows = f"expected a Python integer below {self.shape[0]}" if len(self.shape) > 1 else "only tiles have rows"
            raise self.error(f"index {row!r:.60} of a value of shape {self.shape}; {rows}", ShapeError)
        return self._rows()[row]

    def sum(self, axis: int | None = None, *, keepdims: bool = False) -> Value:
        """Return the sum of the elements, or the sums along an axis."""
        return self._reduced("sum", axis, keepdims, lambda v: v.reduce_lanes("add"), lambda a, b: a + b)

    def max(self, axis: int | None = None, *, keepdims: bool = False) -> Value:
        """Return the largest element, or those along an axis; NaN if one is NaN."""
        return self._reduced("max", axis, keepdims, lambda v: v.extreme(smallest=False), maximum)

    def min(self, axis: int | None = None, *, keepdims: bool = False) -> Value:
        """Return the smallest element, or those along an axis; NaN if one is NaN."""
        return self._reduced("min", axis, keepdims, lambda v: v.extreme(smallest=True), minimum)

    def any(self) -> Value:
        """Return whether an element of a vector of booleans is true."""
        return self._combined("any", "or")

    def all(self) -> Value:
        """Return whether all elements of a vector of booleans are true."""
        return self._combined("all", "and")

    def reshape(self, *shape: int) -> Value:
        """Return the elements in another shape, such as a vector as a column: `v.reshape(8, 1)`."""
        self.require_usable()
        sizes = require_shape(self.trace, "reshape", shape)
        if prod(sizes) != prod(self.shape) or not self.shape:
            raise self.error(f".reshape{sizes} of a value of shape {self.shape}", ShapeError)
        builder = self.trace.builder
        memory = builder.scratch(prod(sizes), element=storage_type(cast(Attribute, self.element)))
        source, target = memory.with_shape(self.shape), memory.with_shape(sizes)
        source.set_vector(self.kernel_value)
        return self.derived(target.vector())

    # Conversions

    def astype(self, dtype: Any) -> Value:
        """Convert to a dtype by NumPy's rules; floats saturate at the limits of integers, and NaN becomes 0."""
        self.require_usable()
        target = element_type_of_dtype(self.trace, dtype)
        if self.lane_stride:
            return self._lane_values().astype(dtype)
        if self.element is None:
            integer = Value(self.trace, self.kernel_value.as_integer(i64), _int64(), self.trace.scope)
            return integer.astype(dtype)
        if target == self.element:
            return self
        if is_bool(target):
            return self != 0
        return self.of_element(convert(self.kernel_value, self.element, target), target)

    def view(self, dtype: Any) -> Value:
        """Return the same bits as another dtype of the same size."""
        self.require_usable()
        target = element_type_of_dtype(self.trace, dtype)
        if self.element is None or is_bool(target) or self.is_bool or scalar.bits(target) != scalar.bits(self.element):
            problem = f".view({np.dtype(dtype)}) of {self.dtype_name} values; expected a dtype of the same size"
            raise self.error(problem, DTypeError)
        if storage_type(target) == storage_type(self.element):
            return self.of_element(self.kernel_value, target)
        return self.of_element(self.kernel_value.bits_as(storage_type(target)), target)

    # Python

    def __rpow__(self, base: ValueLike) -> NoReturn:
        raise self.error(f"{base!r:.60} ** a {self.dtype_name} value; use k.power(x, y) or k.exp2", DTypeError)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **_: Any) -> Value:
        """Apply an operator whose first operand is a NumPy scalar or array. Raises DTypeError for other NumPy functions."""
        if ufunc.__name__ in _REFLECTED and method == "__call__" and operands[1] is self:
            # Comparisons convert scalars to arrays of rank 0.
            return getattr(self, _REFLECTED[ufunc.__name__])(np.asarray(operands[0])[()])
        hint = "use an operator, or a function of dlc.kernels"
        raise self.error(f"np.{ufunc.__name__} of a {self.dtype_name} value; {hint}", DTypeError)

    @property
    def noun(self) -> str:
        return "an index" if self.is_index else f"a {self.dtype_name} value"

    def __matmul__(self, other: ValueLike) -> NoReturn:
        raise self.error("@ of values; use k.dot(a, b), or (a * b).sum()", DTypeError)

    __rmatmul__ = __matmul__

    def __len__(self) -> int:
        if not self.shape:
            raise self.error(f"len() of a {self.dtype_name} scalar", ShapeError)
        return self.shape[0]

    def __iter__(self) -> NoReturn:
        raise self.error("iteration over a value; use k.range for a loop")

    def __repr__(self) -> str:
        return f"Value({self.dtype_name}{list(self.shape)})"

    # Helpers

    def error(self, problem: str, kind: type[DlcError] = DlcError) -> DlcError:
        return self.trace.error(problem, kind)

    def require_usable(self) -> Value:
        """Return the value; raise DlcError if its scope is closed."""
        self.trace.require_open(self.scope, "a value")
        return self

    def derived(self, kernel_value: KernelValue) -> Value:
        """Return a value of the same element type, computed in the current scope."""
        return self.of_element(kernel_value, self.element)

    def of_element(self, kernel_value: KernelValue, element: Attribute | None) -> Value:
        """Return a value computed in the current scope."""
        signed = element is None or not is_unsigned(element)
        return Value(self.trace, KernelValue(kernel_value.builder, kernel_value.ssa, signed), element, self.trace.scope)

    def index_of(self, kernel_value: KernelValue, interval: Interval) -> Value:
        """Return a new index with a range, which is equal in all lanes."""
        self.trace.set_range(kernel_value.ssa, interval)
        return Value(self.trace, kernel_value, None, self.trace.scope, LinearForm.of(kernel_value.ssa))

    @property
    def range(self) -> Interval:
        """The range of an index."""
        assert self.form is not None
        return self.trace.range_of(self.form)

    @property
    def lane_stride(self) -> int:
        """The difference of an index in consecutive lanes of a vectorized loop; 0 for other values."""
        return 0 if self.trace.lanes is None or self.form is None else self.trace.lanes.stride(self.form)

    def _lane_values(self) -> Value:
        """Return the index in each lane, as int64."""
        first = Value(self.trace, self.kernel_value.as_integer(i64), _int64(), self.trace.scope)
        offsets = counted(self.trace, cast(LoopLanes, self.trace.lanes).width)
        return matched(first, offsets * self.lane_stride)[0] + offsets * self.lane_stride

    def converted(self, other: ValueLike) -> Value:
        """Return an operand as a value of this dtype. Raises DTypeError for another dtype."""
        if isinstance(other, Value):
            other.require_usable()
            if other.element != self.element:
                raise self.error(
                    f"operands of dtypes {self.dtype_name} and {other.dtype_name}; convert one of them with .astype", DTypeError
                )
            return other
        return constant(self.trace, other, self.element)

    def _operands(self, operator: str, other: ValueLike) -> tuple[Value, Value]:
        """Return both operands of an arithmetic operator, with equal shapes."""
        self.require_usable()
        a, b = matched(self.require_arithmetic(operator), self.converted(other))
        return a, b

    def require_arithmetic(self, operator: str) -> Value:
        """Return the value; raise DTypeError for booleans and half precision."""
        if self.is_bool:
            raise self.error(f"{operator} of booleans; use & | ^ ~, or convert with .astype", DTypeError)
        if self.element in _HALF_PRECISION:
            problem = f"{operator} of {self.dtype_name} values; compute in .astype(np.float32) and convert the result"
            raise self.error(problem, DTypeError)
        return self

    def _arithmetic(
        self,
        operator: str,
        other: ValueLike,
        compute: Callable[[KernelValue, KernelValue], KernelValue],
        combine: Callable[[LinearForm, LinearForm], LinearForm | None],
    ) -> Value:
        a, b = self._operands(operator, other)
        result = a.derived(compute(a.kernel_value, b.kernel_value))
        if a.form is None or b.form is None:
            return result
        form = combine(a.form, b.form)
        if form is None:
            require_uniform(operator, a, b)
            result = self.index_of(result.kernel_value, a.range * b.range)
            form = cast(LinearForm, result.form)
        self.trace.require_no_overflow(form)
        return Value(self.trace, result.kernel_value, None, self.trace.scope, form)

    def _product_form(self, a: LinearForm, b: LinearForm) -> LinearForm | None:
        if not a.coefficients or not b.coefficients:
            form, factor = (a, b.constant) if not b.coefficients else (b, a.constant)
            return form.scaled(factor) if isinstance(factor, int) else None
        return None

    def _divided(self, operator: str, other: ValueLike) -> tuple[Value, Value]:
        """Return the quotient, rounded down, and the remainder, which has the sign of the divisor; 0 for a zero divisor."""
        a, b = self._operands(operator, other)
        if a.is_float:
            raise a.error(f"{operator} of floats; use k.floor(x / y)", DTypeError)
        if a.element is None:
            require_uniform(operator, a, b)
            if self.trace.never_runs:
                return a, a
            if b.range.low <= 0:
                raise a.error(f"{operator} of an index by {b.range}; the divisor must be positive")
            x, y = a.kernel_value, b.kernel_value
            quotient, remainder = (x // y, x % y) if is_less(a.range.low, 0) is False else floor_divide(x, y)
            ranges = a.range.floor_divided(b.range), a.range.remainder(b.range)
            return a.index_of(quotient, ranges[0]), a.index_of(remainder, ranges[1])
        quotient, remainder = floor_divide(a.kernel_value, b.kernel_value)
        return a.derived(quotient), a.derived(remainder)

    def _bitwise(self, operator: str, other: ValueLike, compute: Callable[[KernelValue, KernelValue], KernelValue]) -> Value:
        a, b = matched(self.require_usable(), self.converted(other))
        if a.is_float or a.is_index:
            raise a.error(f"{operator} of {a.dtype_name} values; expected booleans or integers", DTypeError)
        result = a.derived(compute(a.kernel_value, b.kernel_value))
        facts = (*a.facts, *b.facts) if operator == "&" else ()
        index_set = None
        if a.index_set is not None and b.index_set is not None and operator in "&|":
            index_set = a.index_set & b.index_set if operator == "&" else a.index_set | b.index_set
        return replace(result, facts=facts, index_set=index_set)

    def _shifted(self, operator: str, count: int | Value) -> Value:
        """Return the bits shifted by an integer or an index in bounds; `>>` of signed integers is arithmetic."""
        self.require_usable()
        if self.is_float or self.is_bool:
            raise self.error(f"{operator} of {self.dtype_name} values; expected integers", DTypeError)
        bits = 63 if self.element is None else scalar.bits(self.element)
        given = count if isinstance(count, Value) else constant(self.trace, count, None)
        if not given.is_index or not Interval(0, bits - 1).contains(given.range):
            problem = f"{operator} by {count!r:.60}; expected an integer, or an index, that is provably in 0..{bits - 1}"
            raise self.error(problem, DTypeError)
        require_uniform(operator, self, given)
        if self.element is None:
            return self._shifted_index(operator, given)
        x = self.kernel_value
        y = x.like(count) if isinstance(count, int) else x.like(given.kernel_value.as_integer(storage_type(self.element)))
        if operator == "<<":
            return self.derived(x << y)
        return self.derived(x.builder.op(arith.ShRSIOp(x.ssa, y.ssa)) if x.signed else x >> y)

    def _shifted_index(self, operator: str, count: Value) -> Value:
        """Return an index that is not negative, multiplied by 2 to the power of `count`, or divided by it."""
        if self.range.low < 0:
            raise self.error(f"{operator} of the index {self.range}; expected an index that is not negative", DTypeError)
        low, high = (1 << cast(int, end) for end in (count.range.low, count.range.high))
        if operator == "<<":
            result = self.index_of(self.kernel_value << count.kernel_value, self.range * Interval(low, high))
            self.trace.require_no_overflow(cast(LinearForm, result.form))
            return result
        return self.index_of(self.kernel_value >> count.kernel_value, self.range.floor_divided(Interval(low, high)))

    def _all_ones(self) -> int:
        return int(scalar.limits(cast(Attribute, self.element))[1])

    def _compared(self, predicate: str, other: ValueLike) -> Value:
        a, b = matched(self.require_usable(), self.converted(other))
        if a.lane_stride or b.lane_stride:
            return a.astype(np.int64)._compared(predicate, b.astype(np.int64))
        if a.element in _HALF_PRECISION:
            a.require_arithmetic(_COMPARISONS[predicate])
        facts, index_set = (), None
        if a.form is not None and b.form is not None:
            facts = tuple(self.trace.comparison_facts(predicate, a.form, b.form))
            index_set = IndexSet.of_comparison(predicate, a.form - b.form)
        result = KernelValue(self.trace.builder, a.kernel_value.compared(predicate, b.kernel_value).ssa, False)
        return Value(self.trace, result, _bool(), self.trace.scope, facts=facts, index_set=index_set)

    def _combined(self, name: str, kind: str) -> Value:
        if not self.is_bool or len(self.shape) != 1:
            raise self.error(f".{name}() of {self!r}; expected a vector of booleans", DTypeError)
        self.trace.require_elements(f".{name}()")
        return self.derived(self.require_usable().kernel_value.reduce_lanes(kind))

    def _rows(self) -> list[Value]:
        """Return the rows of a tile."""
        t = vector_type(self.shape[1:], storage_type(cast(Attribute, self.element)))
        x, positions = self.kernel_value, ({"static_position": i64_array((i,))} for i in range(self.shape[0]))
        ops = (vector.ExtractOp.create(operands=[x.ssa], result_types=[t], properties=p) for p in positions)
        return [self.derived(x.builder.op(op, signed=x.signed)) for op in ops]

    def _reduced(
        self,
        name: str,
        axis: int | None,
        keepdims: bool,
        reduce: Callable[[KernelValue], KernelValue],
        combine: Callable[[KernelValue, KernelValue], KernelValue],
    ) -> Value:
        """Reduce a vector, or a tile along all axes or one."""
        self.require_usable().trace.require_elements(f".{name}()")
        rank = len(self.shape)
        if not rank:
            raise self.error(f".{name}() of a scalar; expected a vector", ShapeError)
        if axis is not None and not -rank <= axis < rank:
            raise self.error(f".{name}(axis={axis}) of a value of shape {self.shape}", ShapeError)
        self.require_arithmetic(f".{name}()")
        if rank == 1:
            result = self.derived(reduce(self.kernel_value))
            return result.derived(result.kernel_value.splat((1,))) if keepdims else result
        rows = self._rows()
        if axis is not None and axis % rank:
            reduced = [row._reduced(name, axis % rank - 1, keepdims, reduce, combine) for row in rows]
            return stacked(reduced)
        total = self.derived(_tree([row.kernel_value for row in rows], combine))
        if axis is None:
            total = total._reduced(name, None, False, reduce, combine)
        return total.derived(total.kernel_value.splat((1,) * (rank - len(total.shape)) + total.shape)) if keepdims else total


def absent(trace: KernelTrace, owner: str, name: str) -> AttributeError:
    """Return the error of an attribute that a value or reference does not have."""
    # Python and NumPy look up special names to find protocols that an object supports.
    if name.startswith("__"):
        return AttributeError(name)
    return trace.error(f"{owner} has no attribute {name!r}; use functions of dlc.kernels, or loops", AbsentError)


def _attribute(value: Value, name: str) -> NoReturn:
    raise absent(value.trace, value.noun, name)


Value.__getattr__ = _attribute  # pyright: ignore[reportAttributeAccessIssue]


# An operand of an operator; a Python scalar takes the dtype of the other operand.
ValueLike: TypeAlias = "Value | bool | int | float | np.generic | TracedDim"


def _int64() -> Attribute:
    return element_type(np.dtype(np.int64))


def _bool() -> Attribute:
    return element_type(np.dtype(np.bool_))


def element_type_of_dtype(trace: KernelTrace, dtype: Any) -> Attribute:
    """Return the element type of a dtype; raise DTypeError for one that kernels do not compute with."""
    try:
        return element_type(np.dtype(dtype))
    except (TypeError, DTypeError):
        raise trace.error(
            f"{dtype!r} is not a dtype of kernels; use a dtype of NumPy, such as np.float32", DTypeError
        ) from None


def constant(trace: KernelTrace, number: object, element: Attribute | None, shape: tuple[int, ...] = ()) -> Value:
    """Return a Python or NumPy scalar as a value. Raises DTypeError if the dtype does not represent it."""
    if isinstance(number, Tracer | np.ndarray):
        what = f"an array of shape {number.shape}"
        raise trace.error(
            f"{what} is used in the kernel; pass it as an operand of the kernel, and read its elements", DTypeError
        )
    if isinstance(number, np.generic):
        number = cast("np.generic[Any]", number)
        if element is None or element_type(number.dtype) != element:
            name = "index" if element is None else str(numpy_dtype(element))
            raise trace.error(f"operands of dtypes {name} and {number.dtype}; convert one of them with .astype", DTypeError)
        number = number.item()
    if isinstance(number, TracedDim):
        size = Value(trace, trace.size_value(number), None, trace.scopes[0], LinearForm(number))
        return size if element is None else size.astype(numpy_dtype(element))
    if not is_python_scalar(number):
        raise trace.error(f"{number!r:.80}; expected a number or a value of the kernel", DTypeError)
    number = cast("float", number)
    builder = trace.builder
    if element is None:
        if not isinstance(number, int):
            raise trace.error(f"{number!r} with an index; expected an integer", DTypeError)
        return Value(trace, builder.index(int(number)), None, trace.scopes[0], LinearForm(int(number)))
    dtype = numpy_dtype(element)
    if not is_float(element):
        low, high = scalar.limits(element)
        if isinstance(number, float) or not low <= number <= high:
            raise trace.error(f"{number!r} is not a value of dtype {dtype}; convert with .astype", DTypeError)
    elif isinstance(number, bool):
        number = float(number)
    t = storage_type(element)
    kernel_value = builder.constant(number, vector_type(shape, t) if shape else t, signed=not is_unsigned(element))
    return Value(trace, kernel_value, element, trace.scopes[0])


def require_uniform(action: str, *values: Value) -> None:
    """Raise DlcError for an index that depends on the lane of a vectorized loop."""
    for value in values:
        if value.lane_stride:
            hint = "such an index can be added to, compared, and be an index of an array"
            raise value.error(f"{action} with an index of {value.trace.lanes} cannot be vectorized; {hint}")


def counted(trace: KernelTrace, count: int, rank_after: int = 0) -> Value:
    """Return the vector 0, 1, … count - 1, as int64, with more axes of size 1 after its axis."""
    t = vector_type((count, *(1 for _ in range(rank_after))), i64)
    numbers = DenseIntOrFPElementsAttr.from_list(cast(Any, t), range(count))
    return Value(trace, KernelValue(trace.builder, trace.builder.op_builder.constants.get(numbers, t)), _int64(), trace.scope)


def matched(*values: Value) -> tuple[Value, ...]:
    """Broadcast values to one shape by NumPy's rules. Raises ShapeError if there is none."""
    shapes = [v.shape for v in values]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        distinct = " and ".join(map(str, dict.fromkeys(s for s in shapes if s)))
        raise values[0].error(f"vectors of shapes {distinct}; expected shapes that broadcast", ShapeError) from None
    return tuple(v if v.shape == shape else v.derived(v.kernel_value.splat(shape)) for v in values)


def stacked(values: Sequence[Value]) -> Value:
    """Join values of one shape along a new leading axis."""
    first = values[0]
    (shape,) = {v.shape for v in values}
    memory = first.trace.builder.scratch(len(values), *shape, element=storage_type(cast(Attribute, first.element)))
    for i, v in enumerate(values):
        start = (i, *(0 for _ in shape))
        if shape:
            memory.set_block(start, tuple(range(1, len(start))), v.kernel_value)
        else:
            memory[start] = v.kernel_value
    return first.derived(memory.vector())


def _tree(values: Sequence[KernelValue], combine: Callable[[KernelValue, KernelValue], KernelValue]) -> KernelValue:
    """Combine values pairwise."""
    while len(values) > 1:
        pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *values[2 * len(pairs) :]]
    return values[0]


def common(trace: KernelTrace, function: str, *operands: object) -> tuple[Value, ...]:
    """Return operands with one dtype and shape. Raises DTypeError if they have several, or if none has a dtype."""
    first = next((x for x in operands if isinstance(x, Value)), None)
    if first is None:
        raise trace.error(f"k.{function}: {operands[0]!r:.60} has no dtype; use math.{function}, or k.full", DTypeError)
    first.require_usable()
    return matched(*(first.converted(cast(Any, x)) for x in operands))

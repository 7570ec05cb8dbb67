"""Values inside kernels: scalars and vectors of numbers and booleans, and indices.

Arithmetic follows NumPy without implicit conversions: a Python scalar takes the dtype of the other operand, and operands of two
dtypes are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, cast

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.dtypes import element_type, is_bool, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import is_unsigned, storage_type
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.trace import Tracer, is_python_scalar
from dlc.ir import Attribute, Operation, arith, bf16, f16, f32, i32, i64
from dlc.kernels.index_ranges import Fact, Interval, LinearForm
from dlc.kernels.kernel_trace import KernelTrace, Scope
from dlc.passes.library_kernels.values import KernelValue, shape_of_vector, with_element
from dlc.passes.library_kernels.values import select as select_elements
from dlc.passes.types import vector_type

_HALF_PRECISION = (f16, bf16)
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


@dataclass(frozen=True, eq=False)
class Value:
    """A scalar or vector of a dtype, or an index.

    Attributes:
        trace: The kernel's trace.
        kernel_value: The value in the IR.
        element: The element type in the `dl` dialect; None for an index.
        scope: The scope in which it is defined.
        form: An index as a linear form of loop variables.
        facts: The conditions on indices that hold where a boolean is true.
    """

    trace: KernelTrace
    kernel_value: KernelValue
    element: Attribute | None
    scope: Scope
    form: LinearForm | None = None
    facts: Sequence[Fact] = ()

    @property
    def dtype_name(self) -> str:
        """The dtype for messages; `index` for an index."""
        return "index" if self.element is None else str(numpy_dtype(self.element))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a vector, () of a scalar."""
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
        return self._converted(other) + self

    def __sub__(self, other: ValueLike) -> Value:
        return self._arithmetic("-", other, lambda a, b: a - b, lambda a, b: a - b)

    def __rsub__(self, other: ValueLike) -> Value:
        return self._converted(other) - self

    def __mul__(self, other: ValueLike) -> Value:
        return self._arithmetic("*", other, lambda a, b: a * b, self._product_form)

    def __rmul__(self, other: ValueLike) -> Value:
        return self._converted(other) * self

    def __truediv__(self, other: ValueLike) -> Value:
        a, b = self._operands("/", other)
        if not a.is_float:
            raise a.error(f"/ of {a.dtype_name} values; use //, or convert with .astype(np.float32)", DTypeError)
        return a.derived(a.kernel_value / b.kernel_value)

    def __rtruediv__(self, other: ValueLike) -> Value:
        return self._converted(other) / self

    def __floordiv__(self, other: ValueLike) -> Value:
        return self._divided("//", other)[0]

    def __rfloordiv__(self, other: ValueLike) -> Value:
        return self._converted(other) // self

    def __mod__(self, other: ValueLike) -> Value:
        return self._divided("%", other)[1]

    def __rmod__(self, other: ValueLike) -> Value:
        return self._converted(other) % self

    def __neg__(self) -> Value:
        return 0 - self if not self.is_float else self.derived(-self._arithmetic_operand("-").kernel_value)

    def __and__(self, other: ValueLike) -> Value:
        return self._bitwise("&", other, lambda a, b: a & b)

    def __or__(self, other: ValueLike) -> Value:
        return self._bitwise("|", other, lambda a, b: a | b)

    def __xor__(self, other: ValueLike) -> Value:
        return self._bitwise("^", other, lambda a, b: a ^ b)

    def __invert__(self) -> Value:
        return self ^ (True if self.is_bool else self._converted(-1) if self.kernel_value.signed else self._all_ones())

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

    # Vectors

    def sum(self) -> Value:
        """Return the sum of the elements of a vector."""
        return self._reduced("sum", lambda v: v.reduce_lanes("add"))

    def max(self) -> Value:
        """Return the largest element of a vector; NaN if one is NaN."""
        return self._reduced("max", lambda v: v.extreme(smallest=False))

    def min(self) -> Value:
        """Return the smallest element of a vector; NaN if one is NaN."""
        return self._reduced("min", lambda v: v.extreme(smallest=True))

    # Conversions

    def astype(self, dtype: Any) -> Value:
        """Convert to a dtype by NumPy's rules; floats saturate at the limits of integers, and NaN becomes 0."""
        self.require_usable()
        target = element_type_of_dtype(self.trace, dtype)
        if self.element is None:
            integer = Value(self.trace, self.kernel_value.as_integer(i64), _int64(), self.trace.scope)
            return integer.astype(dtype)
        if target == self.element:
            return self
        if is_bool(target):
            return self != 0
        return self.of_element(_convert(self.kernel_value, self.element, target), target)

    # Python

    def __bool__(self) -> NoReturn:
        raise self.error(
            f"a Python condition (if, while, and, or, not) on a {self.dtype_name} value, which is not known while the kernel "
            "is traced; use k.when(condition), k.select(condition, x, y), or & | ~"
        )

    def __index__(self) -> NoReturn:
        raise self.error(f"a {self.dtype_name} value as a Python integer, which is not known while the kernel is traced; "
                         "for a loop use k.range")  # fmt: skip

    __int__ = __float__ = __index__

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
        """Return a new index with a range."""
        self.trace.set_range(kernel_value.ssa, interval)
        return Value(self.trace, kernel_value, None, self.trace.scope, LinearForm.of(kernel_value.ssa))

    @property
    def range(self) -> Interval:
        """The range of an index."""
        assert self.form is not None
        return self.trace.range_of(self.form)

    def _converted(self, other: ValueLike) -> Value:
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
        a, b = matched(self._arithmetic_operand(operator), self._converted(other))
        return a, b

    def _arithmetic_operand(self, operator: str) -> Value:
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
            result = self.index_of(result.kernel_value, a.range * b.range)
            form = cast(LinearForm, result.form)
        self.trace.require_no_overflow(form)
        return Value(self.trace, result.kernel_value, None, self.trace.scope, form)

    def _product_form(self, a: LinearForm, b: LinearForm) -> LinearForm | None:
        if not a.coefficients or not b.coefficients:
            return a.scaled(b.constant) if not b.coefficients else b.scaled(a.constant)
        return None

    def _divided(self, operator: str, other: ValueLike) -> tuple[Value, Value]:
        """Return the quotient, rounded down, and the remainder, which has the sign of the divisor; 0 for a zero divisor."""
        a, b = self._operands(operator, other)
        if a.is_float:
            raise a.error(f"{operator} of floats; use k.floor(x / y)", DTypeError)
        if a.element is None:
            if b.range.low <= 0:
                raise a.error(f"{operator} of an index by {b.range}; the divisor must be positive")
            quotient, remainder = _divide_by_positive(a.kernel_value, b.kernel_value, may_be_negative=a.range.low < 0)
            ranges = a.range.floor_divided(b.range), a.range.remainder(b.range)
            return a.index_of(quotient, ranges[0]), a.index_of(remainder, ranges[1])
        quotient, remainder = _floor_divide(a.kernel_value, b.kernel_value)
        return a.derived(quotient), a.derived(remainder)

    def _bitwise(self, operator: str, other: ValueLike, compute: Callable[[KernelValue, KernelValue], KernelValue]) -> Value:
        a, b = matched(self.require_usable(), self._converted(other))
        if a.is_float or a.is_index:
            raise a.error(f"{operator} of {a.dtype_name} values; expected booleans or integers", DTypeError)
        result = a.derived(compute(a.kernel_value, b.kernel_value))
        facts = (*a.facts, *b.facts) if operator == "&" else ()
        return Value(result.trace, result.kernel_value, result.element, result.scope, facts=facts)

    def _all_ones(self) -> int:
        return int(scalar.limits(cast(Attribute, self.element))[1])

    def _compared(self, predicate: str, other: ValueLike) -> Value:
        a, b = matched(self.require_usable(), self._converted(other))
        if a.element in _HALF_PRECISION:
            a._arithmetic_operand(_COMPARISONS[predicate])
        facts = () if a.form is None or b.form is None else tuple(comparison_facts(self.trace, predicate, a.form, b.form))
        result = a.kernel_value.compared(predicate, b.kernel_value)
        return Value(self.trace, KernelValue(result.builder, result.ssa, False), _bool(), self.trace.scope, facts=facts)

    def _reduced(self, name: str, reduce: Callable[[KernelValue], KernelValue]) -> Value:
        self.require_usable()
        if len(self.shape) != 1:
            raise self.error(f".{name}() of a scalar; expected a vector", ShapeError)
        self._arithmetic_operand(f".{name}()")
        return self.derived(reduce(self.kernel_value))


# An operand of an operator; a Python scalar takes the dtype of the other operand.
ValueLike: TypeAlias = "Value | bool | int | float | np.generic"


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
    if not is_python_scalar(number):
        raise trace.error(f"{number!r:.60} is not a number", DTypeError)
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


def matched(*values: Value) -> tuple[Value, ...]:
    """Broadcast scalars to the shape of the vectors among the values. Raises ShapeError for vectors of two shapes."""
    shapes = dict.fromkeys(v.shape for v in values if v.shape)
    if len(shapes) > 1:
        raise values[0].error(f"vectors of shapes {' and '.join(map(str, shapes))}; expected equal shapes", ShapeError)
    if not shapes:
        return values
    (shape,) = shapes
    return tuple(v if v.shape else v.derived(v.kernel_value.splat(shape)) for v in values)


def common(trace: KernelTrace, function: str, *operands: object) -> tuple[Value, ...]:
    """Return operands with one dtype and shape. Raises DTypeError if they have several, or if none has a dtype."""
    first = next((x for x in operands if isinstance(x, Value)), None)
    if first is None:
        raise trace.error(f"k.{function}: {operands[0]!r:.60} has no dtype; use math.{function}, or k.full", DTypeError)
    first.require_usable()
    return matched(*(first._converted(cast(Any, x)) for x in operands))  # pyright: ignore[reportPrivateUsage]


def comparison_facts(trace: KernelTrace, predicate: str, a: LinearForm, b: LinearForm) -> list[Fact]:
    """Return the conditions on indices that follow from a comparison."""
    difference = a - b
    # The range of a - b.
    ranges = {
        "lt": Interval(-(1 << 190), -1),
        "le": Interval(-(1 << 190), 0),
        "gt": Interval(1, 1 << 190),
        "ge": Interval(0, 1 << 190),
        "eq": Interval(0, 0),
    }
    if predicate not in ranges:
        return []
    interval = ranges[predicate]
    a_range, b_range = trace.range_of(a), trace.range_of(b)
    negated = Interval(-interval.high, -interval.low)
    facts = [
        Fact(difference.terms, interval + Interval(-difference.constant, -difference.constant)),
        # a = (a - b) + b, and b = a - (a - b)
        Fact(a.terms, interval + b_range + Interval(-a.constant, -a.constant)),
        Fact(b.terms, negated + a_range + Interval(-b.constant, -b.constant)),
    ]
    return [f for fact in facts if fact.terms for f in (fact, fact.negated())]


def _divide_by_positive(a: KernelValue, b: KernelValue, *, may_be_negative: bool) -> tuple[KernelValue, KernelValue]:
    """Return the quotient, rounded down, and the remainder of an index by a positive one."""
    return _floor_divide(a, b) if may_be_negative else (a // b, a % b)


def _floor_divide(x: KernelValue, y: KernelValue) -> tuple[KernelValue, KernelValue]:
    """Return the quotient of integers, rounded down, and the remainder; 0 for a zero divisor.

    Processors trap for a zero divisor, and for the smallest integer divided by -1: the divisor is replaced there.
    """
    builder = x.builder
    by_zero = y.equals(0)
    if not x.signed:
        divisor = select_elements(by_zero, 1, y)
        quotient = builder.op(arith.DivUIOp(x.ssa, divisor.ssa), signed=False)
        return select_elements(by_zero, 0, quotient), select_elements(by_zero, 0, x - quotient * y)
    by_minus_one = y.equals(-1)
    divisor = select_elements(by_zero | by_minus_one, 1, y)
    truncated = builder.op(arith.DivSIOp(x.ssa, divisor.ssa))
    remainder = x - truncated * divisor
    rounds_up = remainder.differs(0) & ((remainder < 0) ^ (divisor < 0))
    quotient = select_elements(rounds_up, truncated - 1, truncated)
    remainder = select_elements(rounds_up, remainder + divisor, remainder)
    quotient = select_elements(by_minus_one, x.like(0) - x, quotient)
    return select_elements(by_zero, 0, quotient), select_elements(by_zero, 0, remainder)


def _convert(x: KernelValue, source: Attribute, target: Attribute) -> KernelValue:
    """Return the conversion between two element types, of which neither is an index and the target is not bool."""
    if storage_type(source) == storage_type(target):
        return x
    if is_float(source):
        return _resized_float(x, source, target) if is_float(target) else _saturated(x, source, target)
    if is_float(target):
        wide = scalar.wide_float(target)
        convert = arith.UIToFPOp if is_unsigned(source) else arith.SIToFPOp
        return _resized_float(_typed(x, convert, wide), wide, target)
    if scalar.bits(storage_type(target)) < scalar.bits(storage_type(source)):
        return _typed(x, arith.TruncIOp, storage_type(target))
    return _typed(x, arith.ExtUIOp if is_unsigned(source) else arith.ExtSIOp, storage_type(target))


def _typed(x: KernelValue, op: type[Operation], element: Attribute) -> KernelValue:
    """Apply a conversion op to a scalar or vector."""
    return x.builder.op(op.create(operands=[x.ssa], result_types=[with_element(x.type, element)]))


def _resized_float(x: KernelValue, source: Attribute, target: Attribute) -> KernelValue:
    if source == target:
        return x
    if scalar.bits(source) == scalar.bits(target):
        return _typed(_typed(x, arith.ExtFOp, f32), arith.TruncFOp, target)
    return _typed(x, arith.ExtFOp if scalar.bits(source) < scalar.bits(target) else arith.TruncFOp, target)


def _saturated(x: KernelValue, source: Attribute, target: Attribute) -> KernelValue:
    wide = scalar.wide_float(source)
    x = _resized_float(x, source, wide)
    if scalar.bits(target) >= 32:
        return _typed(x, arith.FPToUIOp if is_unsigned(target) else arith.FPToSIOp, storage_type(target))
    # Integers of 32 bits, which saturate, clamped to the limits of the target.
    integer = _typed(x, arith.FPToSIOp, i32)
    low, high = scalar.limits(target)
    integer = select_elements(integer < low, low, integer)
    return _typed(select_elements(integer > high, high, integer), arith.TruncIOp, storage_type(target))

"""Tracing: run a Python function once on tracers, and record the ops that it calls in a `dl` module.

A `Tracer` stands for an array: it has a shape and a dtype but no elements. Its operators and the functions of `dlc.numpy`
append `dl` ops, each with the source location of the call. Bodies of loops and branches are traced the same way: while a body
is traced, ops are appended to it, and it may read values of the enclosing blocks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from math import prod
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, PropertyValue, element_type_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.dialects.dl.dtypes import element_type, is_float, numpy_dtype
from dlc.dialects.location_text import location_prefix
from dlc.errors import DlcError, DTypeError, OutOfRangeError, ShapeError
from dlc.frontend.data_dependent_sizes import DataDependentSizes
from dlc.frontend.key_uses import KeyUses
from dlc.frontend.size_guards import SizeGuards
from dlc.frontend.snapshots import Snapshots, is_unchanged
from dlc.frontend.value_numbering import ValueNumbering
from dlc.ir import (
    Block,
    BlockArgument,
    FileLineColLoc,
    IntAttr,
    LocationAttr,
    Operation,
    SSAValue,
    StringAttr,
    UnknownLoc,
    i64,
)
from dlc.shapes.dims import Dim, Size, UndecidableError, is_known_different, is_known_less, is_static, product
from dlc.shapes.guards import Guard, assume_comparison
from dlc.shapes.traced_dims import TracedDim, TracedSize, traced_sizes, untraced
from dlc.source_locations import find_user_line, format_line
from dlc.weights import WeightStore

Error = TypeVar("Error", bound=DlcError)
# A property of an op whose sizes may be sizes of a trace.
TracedProperty: TypeAlias = "PropertyValue | Sequence[TracedSize]"
# Tensors with more elements exceed the virtual address space of a process on x86-64, even with one byte per element.
MAX_ELEMENTS = 1 << 47


class Trace:
    """The trace of one function. `block` is its block; `build` inserts into the innermost body being traced.

    It is the scope of the sizes of its arrays: `decide_size` decides their comparisons.
    """

    def __init__(self, function_name: str = "a function", size_guards: SizeGuards | None = None) -> None:
        self.function_name = function_name
        self.decide_size = (size_guards or SizeGuards({})).decide
        # The guards under which the traced ops are valid, in addition to those of their shape inference.
        self.guards: list[Guard] = []
        self.block = Block()
        self.build = DlBuilder(self.block)
        self.weights = WeightStore()
        self.finished = False
        # The number of times that ops traced now may be differentiated; custom rules must support this order.
        self.derivative_orders = 0
        self._active_blocks = [self.block]
        value_numbering = ValueNumbering()
        self.key_uses = KeyUses(self._active_blocks, value_numbering)
        self.data_dependent_sizes = DataDependentSizes(self._active_blocks, value_numbering)
        # The source location of ops traced now, if they do not come from a running user function.
        self.location_override: LocationAttr | None = None
        # Captured arrays by id: the array, its snapshot, and the value of the constant.
        self._constants: dict[int, tuple[Array, Array, SSAValue]] = {}
        self.snapshots = Snapshots()
        # The integer dtypes to which weakly typed arguments were converted, by argument index.
        self.weak_argument_dtypes: dict[int, set[np.dtype[Any]]] = {}
        # The weakly typed integers with a known smallest and largest value, such as counters of loops.
        self._integer_ranges: dict[SSAValue, tuple[int, int]] = {}

    def is_less(self, a: Size, b: Size, name: str, problem: str = "") -> bool:
        """Return whether `a < b` for all values of the symbols; if that is undecidable, `a >= b` becomes a guard.

        `name` is the function that compares. Data-dependent sizes are checked where they are used, since branches run for some
        data only; `problem` describes a failure of this check.
        """
        return self._compare(is_known_less, dl.GreaterEqualOp, a, b, name, problem)

    def are_different(self, a: Size, b: Size, name: str) -> bool:
        """Return whether two sizes differ, as `is_less`: if that is undecidable, equality becomes a guard."""
        return self._compare(is_known_different, dl.EqualOp, a, b, name)

    def _compare(
        self,
        comparison: Callable[[Size, Size], bool],
        required: type[dl.GreaterEqualOp | dl.EqualOp],
        a: Size,
        b: Size,
        name: str,
        problem: str = "",
    ) -> bool:
        """Return the result of a comparison; the `required` relation of its operands becomes a guard or a check."""
        guards: list[Guard] = []
        result = assume_comparison(comparison, a, b, location_prefix(user_location()) + name, guards)
        for guard in guards:
            if self.is_data_dependent(guard.size):
                symbols = sorted(guard.size.symbols())
                message = f"{name}: {problem}" if problem else f"{name} requires {guard}"
                sizes_text = ", ".join(f"{symbol} = {{}}" for symbol in symbols)
                is_valid = self.apply(required, self.value(guard.size), self.value(np.zeros((), np.int64)))
                self.require(is_valid, f"{message}; with {sizes_text}", *map(self.value, map(Dim.symbol, symbols)))
            else:
                self.guards.append(guard)
        return result

    def record_range(self, number: Tracer, low: int, high: int) -> None:
        """Record the smallest and the largest value of a weakly typed integer."""
        self._integer_ranges[number.value] = low, high

    def require_representable(self, number: Tracer, dtype: np.dtype[Any]) -> None:
        """Require that an integer dtype represents a weakly typed integer, as it must represent a Python integer.

        An argument is checked by its caller, another number that is unknown while tracing when the function is called. Raises
        DTypeError for a number or a range that is known to exceed the dtype.
        """
        limits, own_limits, value = np.iinfo(dtype), np.iinfo(number.dtype), number.value
        if isinstance(value, BlockArgument) and value.owner is self.block:
            self.weak_argument_dtypes.setdefault(value.index, set()).add(dtype)
            return
        if limits.min <= own_limits.min and own_limits.max <= limits.max:
            return
        repair = "convert it with .astype, or use a dtype that represents it"
        if (known := self._known_range(number)) is not None:
            low, high = known
            with suppress(UndecidableError):
                if limits.min <= low and high <= limits.max:
                    return
                value_text = f"integer {low}" if low is high else f"integers {low} to {high}"
                raise with_user_line(OutOfRangeError(f"Python {value_text} out of bounds for {dtype}; {repair}"))
        at_least, at_most = (
            self.apply(op, number, self.constant(np.asarray(limit, number.dtype)))
            for op, limit in (
                (dl.GreaterEqualOp, max(limits.min, own_limits.min)),
                (dl.LessEqualOp, min(limits.max, own_limits.max)),
            )
        )
        message = f"Python integer {{}} out of bounds for {dtype}; {repair}"
        self.require(self.apply(dl.AndOp, at_least, at_most), message, self.apply(dl.CastOp, number, to=i64))

    def _known_range(self, number: Tracer) -> tuple[int, int] | None:
        """Return the smallest and the largest value of an integer, if they are known while tracing."""
        if number.array is not None:
            return (element := int(number.array)), element
        if isinstance(number.value.owner, dl.SizeOp):
            (size,) = cast("tuple[int]", traced_sizes(sizes(number.value.owner.size), self))
            return size, size
        return self._integer_ranges.get(number.value)

    def apply(self, op: type[DlOp], *operands: Tracer, **properties: TracedProperty | None) -> Tracer:
        """Return the first result of a `dl` op; see `apply_all`."""
        return self.apply_all(op, *operands, **properties)[0]

    def apply_all(self, op: type[DlOp], *operands: Tracer, **properties: TracedProperty | None) -> list[Tracer]:
        """Return the results of a `dl` op, located at the user's line; its ShapeErrors and DTypeErrors start with that line.

        Raises DlcError as `require_in_scope` does.
        """
        plain = untraced(properties, self)
        for operand in operands:
            self.require_in_scope(operand)
        with errors_at_user_line():
            new_op = op.make(*(t.value for t in operands), **plain)
            self.data_dependent_sizes.require_equal_sizes(new_op)
            for shape in map(shape_of, new_op.results):
                if is_static(shape) and prod(cast("tuple[int, ...]", shape)) >= MAX_ELEMENTS:
                    raise ShapeError(f"{op.name}: a result of shape {shape} does not fit in memory")
            return self.insert(new_op)

    def select(self, op: type[SelectionOp], x: Tracer, **properties: TracedProperty | None) -> list[Tracer]:
        """Return the results of a selection op, whose size is data-dependent; reuse those of an equal selection."""
        plain: Mapping[str, PropertyValue | None] = untraced(properties, self)
        if (known_results := self.data_dependent_sizes.find(op, x.value, plain)) is not None:
            return [Tracer(self, value) for value in known_results]
        results = self.apply_all(op, x, size=(self.size_of(op, x, plain),), **plain)
        self.data_dependent_sizes.record(op, x.value, plain, [r.value for r in results])
        return results

    def size_of(self, op: type[SelectionOp], x: Tracer, properties: Mapping[str, PropertyValue | None]) -> Size:
        """Return the result size of a selection from `x`."""
        return self.data_dependent_sizes.new_symbol(op, user_line_text())

    def insert(self, op: Operation) -> list[Tracer]:
        """Insert any op at the user's line and return its results."""
        with self.build.at_location(user_location()):
            return [Tracer(self, result) for result in self.build.insert(op).results]

    def require(self, condition: Tracer, message: str, *message_values: Tracer) -> None:
        """Emit a check at the user's line: the call fails with `message` unless a condition holds.

        `message_values`, rank-0 i64, fill the last `{}` of the message.
        """
        otherwise = dl.FailOp(location_prefix(user_location()) + message, [n.value for n in message_values])
        self.insert(dl.IfOp.of(condition.value, Block([dl.YieldOp([])]), Block([otherwise]), []))

    @contextmanager
    def in_body(self, body: Block, orders: int | None = None) -> Generator[None]:
        """Append ops to `body` inside the context; its values may be used only there.

        The body may be differentiated `orders` times, or as often as the enclosing code if that is None.
        """
        previous = self.build, self.derivative_orders
        self.build, self.derivative_orders = DlBuilder(body), self.derivative_orders if orders is None else orders
        self._active_blocks.append(body)
        try:
            yield
        finally:
            self._active_blocks.pop()
            self.build, self.derivative_orders = previous

    @property
    def innermost_block(self) -> Block:
        """The block to which ops are appended now."""
        return self._active_blocks[-1]

    @contextmanager
    def at(self, location: LocationAttr | None) -> Generator[None]:
        """Locate ops and errors inside the context at `location`, or at the running line if it is None."""
        previous, self.location_override = self.location_override, location
        try:
            yield
        finally:
            self.location_override = previous

    @property
    def is_eager(self) -> bool:
        """Return whether ops are evaluated immediately, so that Python control flow may depend on data."""
        return False

    def array_of(self, value: SSAValue) -> Array | None:
        """Return the elements of a value if they are constant during tracing (dlc/just_in_time/eager.py)."""
        return None

    def bind(self, body: Block, arguments: Sequence[Tracer]) -> None:
        """Bind the arguments of a body to the values of the trace for which the body is computed."""

    def require_in_scope(self, value: Tracer) -> None:
        """Raise DlcError for a value of another trace, of a body whose trace has ended, or of a finished trace."""
        if self.finished or value.owner is not self:
            problem = "a tracer is used outside of the call in which its function was traced"
            raise with_user_line(DlcError(f"{problem}; return it from there, or pass it as an argument"))
        owner = value.value.owner
        if (owner.parent if isinstance(owner, Operation) else owner) not in self._active_blocks:
            problem = "a value of the body of a loop, a branch or a transformed function is used outside of that body"
            raise with_user_line(DlcError(f"{problem}; make it part of what the body returns"))

    def is_data_dependent(self, size: object) -> bool:
        """Return whether a size depends on data of the function."""
        return self.data_dependent_sizes.is_data_dependent(untraced(size, self))

    def size_as_array(self, size: Dim) -> Tracer:
        """Return a size as a weakly typed number."""
        return Tracer(self, self.value(size).value, weak=True)

    def require_active(self, size: Dim) -> None:
        """Raise DlcError for a size of a finished trace."""
        if self.finished:
            problem = f"the size {size} of an array in {self.function_name} is used after {self.function_name} was traced"
            raise with_user_line(DlcError(f"{problem}; return it as a result, or use the shape of an array of this call"))

    def reject_size(self, size: TracedDim) -> NoReturn:
        """Raise DlcError for a size of another trace."""
        size.scope.require_active(size.dim)
        problem = f"the size {size} belongs to another trace than that of {self.function_name}"
        raise with_user_line(DlcError(f"{problem}; pass an array of this size as an argument"))

    def literal(self, array: Array) -> Tracer:
        """Add a small array as a constant of the program, whose values the compiler sees."""
        return Tracer(self, self.build.constant(array, element_type(array.dtype)))

    def constant(self, array: Array, hint: str = "w") -> Tracer:
        """Add a captured array as a constant.

        A scalar becomes a literal, any other array a weight whose name starts with `hint`.
        """
        if array.ndim == 0:
            return self.literal(array)
        cached = self._constants.get(id(array))
        if cached is None or not is_unchanged(array, cached[1]):
            snapshot = self.snapshots.take(array)
            name = self.weights.add(snapshot, hint)
            type_ = tensor_type(array.shape, element_type(array.dtype))
            # In the outermost block, so that every body can read it.
            value = DlBuilder(self.block).insert(dl.WeightOp.of(name, snapshot, type_)).results[0]
            self._constants[id(array)] = cached = array, snapshot, value
        return Tracer(self, cached[2])

    def value(self, x: object) -> Tracer:
        """Convert to a Tracer of this trace: an array or number becomes a constant, a symbolic size its run-time value."""
        if isinstance(x, Tracer):
            self.require_in_scope(x)
            return x
        if isinstance(x, Dim | TracedDim):
            return self.apply(dl.SizeOp, size=(untraced(x, self),), to=i64)
        return self.constant(np.asarray(x))


# Loops and branches belong to the current trace even if no argument of theirs is a Tracer.
_tracing: ContextVar[Trace | None] = ContextVar("tracing", default=None)


def current_trace() -> Trace | None:
    """Return the trace of the function that is being traced in this thread."""
    return _tracing.get()


@contextmanager
def tracing(trace: Trace) -> Generator[None]:
    """Make `trace` the current trace inside the context, and finish it afterwards."""
    token = _tracing.set(trace)
    try:
        yield
    finally:
        _tracing.reset(token)
        trace.snapshots.restore_writeable()
        trace.finished = True


class Tracer:
    """A placeholder for an array while a function is traced; `weak` marks a weakly typed number, such as a Python scalar.

    `dlc.numpy` gives it the operators and methods of an array.
    """

    def __init__(self, owner: Trace, value: SSAValue, weak: bool = False) -> None:
        self.owner = owner
        self.value = value
        self.weak = weak
        self._array = owner.array_of(value)

    @property
    def shape(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", traced_sizes(shape_of(self.value), self.owner))

    @property
    def dtype(self) -> np.dtype[Any]:
        return numpy_dtype(element_type_of(self.value))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return cast(int, product(self.shape))

    def __len__(self) -> int:
        if not self.shape:
            hint = "for a loop up to a traced number use dlc.lax.fori_loop"
            raise with_user_line(ShapeError(f"len() or iteration of an array of rank 0, which has no axes; {hint}"))
        return self.shape[0]

    @property
    def array(self) -> Array | None:
        """Its elements, if they are constant during tracing."""
        return self._array

    def __repr__(self) -> str:
        return f"Tracer({self.dtype}{list(self.shape)})" if self._array is None else repr(self._array)

    def __str__(self) -> str:
        return repr(self) if self._array is None else str(self._array)

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: object) -> Tracer:
        # A Tracer is immutable.
        return self

    def __reduce__(self) -> NoReturn:
        problem = f"a pickle of {self!r}, which has no elements while the function is traced"
        raise with_user_line(DTypeError(f"{problem}; pickle the result of the compiled function"))

    def _elements(self, operation: str, hint: str) -> Array:
        """Return the elements, for an operation that needs them. Raises DTypeError with a remedy if they are not known."""
        self.owner.require_in_scope(self)
        if self._array is not None:
            return self._array
        unknown = f"needs the elements of {self!r}, which are not known while the function is traced"
        raise with_user_line(DTypeError(f"{operation} {unknown}; {hint}"))

    def _constant(self, operation: str, hint: str) -> Array:
        """Return the elements as constants without derivatives. Raises DTypeError if the derivative would be wrong."""
        array = self._elements(operation, hint)
        if (
            self.owner.derivative_orders
            and is_float(element_type_of(self.value))
            and not isinstance(self.value.owner, dl.StopGradientOp)
        ):
            lost = "would be a constant with respect to the derivative being computed"
            raise with_user_line(DTypeError(f"{operation} {lost}; {hint}, or apply it to dlc.stop_gradient(x)"))
        return array

    def __bool__(self) -> bool:
        hint = (
            "use dlc.lax.cond for if, dlc.lax.while_loop for while, dlc.numpy.where to choose element by element, "
            "& | ~ for and, or, not, or pass the deciding value in static_argnames"
        )
        return bool(self._elements("a condition (if, while, and, or, not, in)", hint))

    def __int__(self) -> int:
        return int(self._constant("int()", "use .astype, or pass the value in static_argnames"))

    def __index__(self) -> int:
        hint = "use dlc.lax.fori_loop for a loop, dlc.numpy.take to index a list, or pass the value in static_argnames"
        return operator.index(self._elements("a Python index or range", hint).item())

    def __float__(self) -> float:
        hint = "use .astype, a function of dlc.numpy in place of the one in math, or pass the value in static_argnames"
        return float(self._constant("float(), or an element of a NumPy array that it is assigned to,", hint))

    def __complex__(self) -> complex:
        return complex(self._constant("complex()", "x + 0j is an array of complex numbers"))

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        array = self._elements(f"the format {spec!r}", "format the result of the compiled function")
        return format(array if array.ndim else array.item(), spec)

    def item(self, *index: Any) -> Any:
        return self._constant(".item()", "keep the array of rank 0, which can be used as a number").item(*index)

    def tolist(self) -> Any:
        hint = "iterate over the array, or convert the result of the compiled function"
        return self._constant(".tolist()", hint).tolist()

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        hint = (
            "call the function of the same name in dlc.numpy; for table[i] write dlc.numpy.take(table, i, axis=0), "
            "for y[i] = x write y = dlc.numpy.at(y)[i].set(x)"
        )
        return self._constant("a NumPy function, index or array that it is assigned to", hint).__array__(*args, **kwargs)

    def __setitem__(self, index: object, value: object) -> NoReturn:
        problem = "an array cannot be changed in place while a function is traced; make a new one"
        raise with_user_line(DlcError(f"{problem}: y = x.at[index].set(value), or dlc.numpy.where(mask, value, x)"))

    def __iter__(self) -> Iterator[Any]:
        return (cast(Any, self)[i] for i in range(len(self)))


def is_python_scalar(value: object) -> bool:
    """Return whether a value is a Python number, which has no dtype of its own; NumPy scalars have one, float64 included."""
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)


def user_line_text() -> str:
    """Return the innermost line outside dlc and NumPy for messages: `step.py:12`."""
    location = user_location()
    return format_line(location.filename.data, location.line.data) if isinstance(location, FileLineColLoc) else ""


@lru_cache(maxsize=1024)
def line_location(file: str, line: int) -> LocationAttr:
    """Return the location of a line of a file."""
    return FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(0))


def user_location() -> LocationAttr:
    """Return the innermost line outside dlc and NumPy, or the location that the current trace specifies instead."""
    current = _tracing.get()
    if current is not None and current.location_override is not None:
        return current.location_override
    line = find_user_line()
    return UnknownLoc() if line is None else line_location(*line)


def with_user_line(error: Error) -> Error:
    """Return the same error with the user's line in front."""
    line = user_line_text()
    return type(error)(f"{line}: {error}") if line else error


@contextmanager
def errors_at_user_line() -> Generator[None]:
    """Prefix ShapeErrors and DTypeErrors raised inside the context with the user's line."""
    try:
        yield
    except (ShapeError, DTypeError) as error:
        raise with_user_line(error) from None

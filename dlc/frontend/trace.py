"""Tracing: a Python function runs once on stand-ins, and what it calls becomes a `dl` module.

A `Tracer` stands for an array: it has a shape and a dtype but no elements. Operators and the functions of `dlc.numpy` on it
append `dl` ops, each with the place in the user's file that called it. Bodies of loops and branches are traced the same way:
while one is open, ops go into it, and it reads what is outside as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from math import prod
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, PropertyValue, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.data_dependent.selection import Selection
from dlc.dialects.dl.dtypes import element_type, is_float, numpy_dtype
from dlc.dialects.places import place as shown_place
from dlc.dims import Answering, Dim, Size, answering, deciding, is_static, product
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.computations import Computations
from dlc.frontend.counts import Counts
from dlc.frontend.key_uses import KeyUses
from dlc.frontend.snapshots import Snapshots, holds_still
from dlc.ir import (
    Block,
    BlockArgument,
    FileLineColLoc,
    IntAttr,
    LocationAttr,
    Operation,
    SSAValue,
    StringAttr,
    SymbolRefAttr,
    UnknownLoc,
    i64,
)
from dlc.user_lines import shown_line, user_line
from dlc.weights import WeightStore

Error = TypeVar("Error", bound=DlcError)
# Of bytes, no machine addresses more.
MOST_ELEMENTS = 1 << 47


class Trace:
    """One function being traced. `block` is its own; `build` inserts into the innermost body that is open."""

    def __init__(self) -> None:
        self.block = Block()
        self.build = Build(self.block)
        self.weights = WeightStore()
        self.finished = False
        # How many derivatives may be taken of what is traced now: functions with rules of their own are asked for so many.
        self.orders = 0
        self._open = [self.block]
        computations = Computations()
        self.key_uses = KeyUses(self._open, computations)
        self.counts = Counts(self._open, computations)
        # Where what is traced now comes from, if it is no function of the user's that runs.
        self.place: LocationAttr | None = None
        # What the function reads of arrays around it: the array, what it held, and the value that stands for that.
        self._constants: dict[int, tuple[Array, Array, SSAValue]] = {}
        self.snapshots = Snapshots()
        # Of numbers among the arguments, by their places: the integer dtypes that they took.
        self.taken_by_numbers: dict[int, set[np.dtype[Any]]] = {}

    def note_taken(self, number: SSAValue, dtype: np.dtype[Any]) -> None:
        """Notes that a number takes an integer dtype, if it is an argument: what it is, only a call says."""
        if isinstance(number, BlockArgument) and number.owner is self.block:
            self.taken_by_numbers.setdefault(number.index, set()).add(dtype)

    def apply(self, op: type[DlOp], *operands: Tracer, **properties: PropertyValue | None) -> Tracer:
        """The first result of a `dl` op; see `apply_all`."""
        return self.apply_all(op, *operands, **properties)[0]

    def apply_all(self, op: type[DlOp], *operands: Tracer, **properties: PropertyValue | None) -> list[Tracer]:
        """The results of a `dl` op, at the user's line; its ShapeErrors and DTypeErrors start with that line.

        Raises DlcError as `require_own` does.
        """
        for operand in operands:
            self.require_own(operand)
        with blamed_on_user():
            made = op.make(*(t.value for t in operands), **properties)
            self.counts.require_one_size(made)
            for shape in map(shape_of, made.results):
                if is_static(shape) and prod(cast("tuple[int, ...]", shape)) >= MOST_ELEMENTS:
                    raise ShapeError(f"{op.name}: a result of shape {shape}, which no memory holds")
            return self.insert(made)

    def select(self, op: type[Selection], x: Tracer, **properties: PropertyValue | None) -> list[Tracer]:
        """The results of an op of `x` whose size is for data to decide: those of an equal one, if there are some."""
        if (found := self.counts.made(op, x.value, properties)) is not None:
            return [Tracer(self, value) for value in found]
        results = self.apply_all(op, x, size=(self.size_of(op, x, properties),), **properties)
        self.counts.note(op, x.value, properties, [r.value for r in results])
        return results

    def size_of(self, op: type[Selection], x: Tracer, properties: Mapping[str, PropertyValue | None]) -> Size:
        """The size of what is selected of `x`."""
        return self.counts.new(op, user_place())

    def insert(self, op: Operation) -> list[Tracer]:
        """The results of any op, at the user's line."""
        with self.build.at(user_location()):
            return [Tracer(self, result) for result in self.build.insert(op).results]

    def require(self, condition: Tracer, message: str, *numbers: Tracer) -> None:
        """Makes it an error of the call, at the user's line, if a condition does not hold.

        `numbers`, i64 without axes, stand where the last `{}` of `message` are.
        """
        otherwise = dl.FailOp(shown_place(user_location()) + message, [n.value for n in numbers])
        self.insert(dl.IfOp.of(condition.value, Block([dl.YieldOp([])]), Block([otherwise]), []))

    @contextmanager
    def inside(self, body: Block, orders: int | None = None) -> Generator[None]:
        """Ops made inside go to the end of `body`, whose values may be used only there.

        It may be differentiated `orders` times, as often as what is around it if that is None.
        """
        before = self.build, self.orders
        self.build, self.orders = Build(body), self.orders if orders is None else orders
        self._open.append(body)
        try:
            yield
        finally:
            self._open.pop()
            self.build, self.orders = before

    @contextmanager
    def at(self, place: LocationAttr | None) -> Generator[None]:
        """Ops made inside, and errors raised inside, come from `place`; from the line that runs if it is None."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    @property
    def steps(self) -> bool:
        """Whether what is traced now is computed at once, so that data may decide what is traced: loops are Python's."""
        return False

    def array_of(self, value: SSAValue) -> Array | None:
        """The elements of a value, where they are known while the function is traced (dlc/eager.py)."""
        return None

    def bind(self, body: Block, arguments: Sequence[Tracer]) -> None:
        """Says what the arguments of a body stand for: values of the trace that the body is computed for."""

    def require_own(self, value: Tracer) -> None:
        """Raises DlcError for a value of another trace or of a body that is closed, and for any when this one is finished."""
        if self.finished or value.owner is not self:
            problem = "a value that stands for an array while a function is traced is used outside of that call"
            raise at_user_line(DlcError(f"{problem}; return it from there, or pass it as an argument"))
        place = value.value.owner
        if (place.parent if isinstance(place, Operation) else place) not in self._open:
            problem = "a value of the body of a loop, a branch or a transformed function is used outside of that body"
            raise at_user_line(DlcError(f"{problem}; make it part of what the body returns"))

    def constant(self, array: Array, hint: str = "w") -> Tracer:
        """An array that the function uses but was not passed: a scalar becomes a literal, anything else a weight, whose name
        starts with `hint`."""
        element = element_type(array.dtype)
        if array.ndim == 0:
            return Tracer(self, self.build.constant(array, element))
        known = self._constants.get(id(array))
        if known is None or not holds_still(array, known[1]):
            taken = self.snapshots.take(array)
            name = self.weights.add(taken, hint)
            type_ = tensor_type(array.shape, element)
            # Before every body that is open, so that all of them, and what follows, may read it.
            value = Build(self.block)(dl.WeightOp, symbol=SymbolRefAttr(name), type=type_)
            self._constants[id(array)] = known = array, taken, value
        return Tracer(self, known[2])

    def value(self, x: object) -> Tracer:
        """A Tracer of this trace as it is, an array or a number as a constant, a size as the number that it is in a call."""
        if isinstance(x, Tracer):
            self.require_own(x)
            return x
        if isinstance(x, Dim):
            return self.apply(dl.SizeOp, size=(x,), to=i64)
        return self.constant(np.asarray(x))


# Loops and branches belong to the function that is being traced, also where nothing among their arguments tells of it.
_tracing: ContextVar[Trace | None] = ContextVar("tracing", default=None)


def current_trace() -> Trace | None:
    """The trace of the function that is being traced in this thread."""
    return _tracing.get()


@contextmanager
def tracing(trace: Trace, answers: Answering | None = None) -> Generator[None]:
    """Inside, `trace` is the current one, and `answers` what is known of open sizes; afterwards it is finished."""
    before, decided, answered = _tracing.set(trace), deciding.set(True), answering.set(answers)
    try:
        yield
    finally:
        _tracing.reset(before)
        deciding.reset(decided)
        answering.reset(answered)
        trace.snapshots.thaw()
        trace.finished = True


class Tracer:
    """A stand-in for an array while a function is traced; `weak` marks a number without a dtype of its own.

    `dlc.numpy` gives it the operators and methods of an array.
    """

    def __init__(self, owner: Trace, value: SSAValue, weak: bool = False) -> None:
        self.owner = owner
        self.value = value
        self.weak = weak
        self._array = owner.array_of(value)

    @property
    def shape(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", shape_of(self.value))

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
            repair = "to count to a traced number there is dlc.lax.fori_loop"
            raise at_user_line(ShapeError(f"len() or iteration of an array of rank 0; it has no axes; {repair}"))
        return self.shape[0]

    @property
    def array(self) -> Array | None:
        """Its elements, where they are known while the function is traced."""
        return self._array

    def __repr__(self) -> str:
        return f"Tracer({self.dtype}{list(self.shape)})" if self._array is None else repr(self._array)

    def __str__(self) -> str:
        return repr(self) if self._array is None else str(self._array)

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: object) -> Tracer:
        # Nothing changes what it stands for.
        return self

    def __reduce__(self) -> NoReturn:
        problem = f"a pickle of {self!r}, which has no elements while the function is traced"
        raise at_user_line(DTypeError(f"{problem}; pickle the result of the compiled function"))

    def _elements(self, what: str, repair: str) -> Array:
        """The elements, for `what`. Raises DTypeError, which says how to do without, where they are not known."""
        self.owner.require_own(self)
        if self._array is not None:
            return self._array
        unknown = f"needs the elements of {self!r}, which are not known while the function is traced"
        raise at_user_line(DTypeError(f"{what} {unknown}; {repair}"))

    def _constant(self, what: str, repair: str) -> Array:
        """The elements as numbers that derivatives do not see. Raises DTypeError where that would be a wrong derivative."""
        array = self._elements(what, repair)
        if self.owner.orders and is_float(element_type_of(self.value)) and not isinstance(self.value.owner, dl.StopGradientOp):
            lost = "would be a constant to the derivative that is being taken"
            raise at_user_line(DTypeError(f"{what} {lost}; {repair}, or take it of dlc.stop_gradient(x)"))
        return array

    def __bool__(self) -> bool:
        repair = (
            "use dlc.lax.cond for if, dlc.lax.while_loop for while, dlc.numpy.where to choose element by element, "
            "& | ~ for and, or, not, or pass the deciding value in static_argnames"
        )
        return bool(self._elements("a condition (if, while, and, or, not, in)", repair))

    def __int__(self) -> int:
        return int(self._constant("int()", "use .astype, or pass the value in static_argnames"))

    def __index__(self) -> int:
        repair = (
            "use dlc.lax.fori_loop to count to it, dlc.numpy.take for an index of a list, or pass the value in static_argnames"
        )
        return operator.index(self._elements("a Python index or range", repair).item())

    def __float__(self) -> float:
        repair = "use .astype, a function of dlc.numpy in place of the one in math, or pass the value in static_argnames"
        return float(self._constant("float(), or an element of a NumPy array that it is assigned to,", repair))

    def __complex__(self) -> complex:
        return complex(self._constant("complex()", "x + 0j is an array of complex numbers"))

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        array = self._elements(f"the format {spec!r}", "format the result of the compiled function")
        return format(array if array.ndim else array.item(), spec)

    def item(self, *place: Any) -> Any:
        return self._constant(".item()", "keep the array of rank 0, which can be used as a number").item(*place)

    def tolist(self) -> Any:
        repair = "iterate over the array, or convert the result of the compiled function"
        return self._constant(".tolist()", repair).tolist()

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        repair = (
            "call the function of the same name in dlc.numpy; for table[i] write dlc.numpy.take(table, i, axis=0), "
            "for y[i] = x write y = dlc.numpy.at(y)[i].set(x)"
        )
        return self._constant("a NumPy function, index or array that it is assigned to", repair).__array__(*args, **kwargs)

    def __setitem__(self, place: object, value: object) -> NoReturn:
        problem = "an array cannot be changed in place while a function is traced; make a new one"
        raise at_user_line(DlcError(f"{problem}: y = x.at[place].set(value), or dlc.numpy.where(mask, value, x)"))

    def __iter__(self) -> Iterator[Any]:
        return (cast(Any, self)[i] for i in range(len(self)))


def is_number(value: object) -> bool:
    """Whether it is a Python number, which has no dtype of its own; NumPy's scalars have one, float64 among them."""
    return isinstance(value, bool | int | float) and not isinstance(value, np.generic)


def user_place() -> str:
    """The innermost line outside dlc and NumPy, as it is shown: `step.py:12`."""
    place = user_location()
    return shown_line(place.filename.data, place.line.data) if isinstance(place, FileLineColLoc) else ""


@lru_cache(maxsize=1024)
def line_location(file: str, line: int) -> LocationAttr:
    """A line of a file."""
    return FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(0))


def user_location() -> LocationAttr:
    """The innermost line outside dlc and NumPy; or where the trace says that what it traces now comes from."""
    current = _tracing.get()
    if current is not None and current.place is not None:
        return current.place
    line = user_line()
    return UnknownLoc() if line is None else line_location(*line)


def at_user_line(error: Error) -> Error:
    """The same error with the user's line in front."""
    place = user_place()
    return type(error)(f"{place}: {error}") if place else error


@contextmanager
def blamed_on_user() -> Generator[None]:
    """ShapeErrors and DTypeErrors raised inside start with the user's line."""
    try:
        yield
    except (ShapeError, DTypeError) as error:
        raise at_user_line(error) from None

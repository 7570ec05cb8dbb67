"""What every function of `dlc.numpy` does: promote its operands, then append an op, or compute at once.

With a Tracer among the operands an op is appended to its trace. Without one the op's NumPy reference computes the result,
so that the functions also work on plain arrays and a traced function folds what does not depend on its arguments.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, SupportsIndex, TypeAlias, TypeVar, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, PropertyValue, shape_of, tensor_type
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.dims import Dim, Size
from dlc.errors import DeviceError, DlcError, DTypeError, ShapeError
from dlc.frontend.complex_numbers import Complex
from dlc.frontend.trace import MOST_ELEMENTS, Tracer, at_user_line, blamed_on_user, current_trace, is_number
from dlc.ir import Block, i64

# What a function takes for an array. Numbers take the dtype of the arrays they meet.
ArrayLike: TypeAlias = "Tracer | Array | np.generic | bool | int | float | Dim | list[Any] | tuple[Any, ...]"
Operand: TypeAlias = "Tracer | Array"
Axes: TypeAlias = "int | Sequence[int] | None"
# What NumPy makes a dtype of.
AnyDType: TypeAlias = Any
Function = TypeVar("Function", bound=Callable[..., Any])
# The kinds of dtypes of numbers; V is that of ml_dtypes.
_NUMBERS = "biufcV"
_NUMBER = {"b": True, "i": 1, "u": 1, "f": 1.0}
_LARGE = np.dtype(np.int64)


def operand(x: ArrayLike) -> Operand:
    """A Tracer or an array; a list or tuple that holds Tracers is stacked, a size that comes with a call is a number."""
    if isinstance(x, Tracer):
        return x
    if isinstance(x, Complex):
        problem = "this function takes no complex numbers; use it on .real and .imag, or an operator or a method of theirs"
        return refuse(DTypeError(f"{problem} (docs/numpy.md has those that there are)"))
    if isinstance(x, Dim) and (trace := current_trace()) is not None:
        return Tracer(trace, trace.value(x).value, weak=True)
    if isinstance(x, list | tuple) and has_tracer(x):
        rows = promote(*(operand(row) for row in cast("Sequence[ArrayLike]", x)))
        return apply(dl.ConcatOp, *(apply(dl.ReshapeOp, row, shape=(1, *row.shape)) for row in rows), axis=0)
    try:
        array = np.asarray(x)
    except ValueError as error:
        return refuse(ShapeError(f"a {type(x).__name__} is no array: {error}"))
    return array if array.dtype.kind in _NUMBERS else refuse(DTypeError(f"{x!r:.60} in place of an array of numbers"))


def places(size: Size) -> Any:
    """0, 1, … size - 1; an op where a function is traced, from which kernels see that what it decides follows from places."""
    trace = current_trace()
    return np.arange(int(size)) if trace is None else trace.apply(dl.IotaOp, size=(size,), to=i64, start=0, step=1)


def has_tracer(value: object) -> bool:
    """Whether it is a Tracer, or a list, tuple or slice that holds one."""
    if isinstance(value, list | tuple):
        return any(has_tracer(v) for v in cast("Sequence[object]", value))
    if isinstance(value, slice):
        bounds = cast("slice[object, object, object]", value)
        return has_tracer((bounds.start, bounds.stop, bounds.step))
    return isinstance(value, Tracer)


def has_open_size(value: object) -> bool:
    """Whether it is a size that comes with a call, or a tuple or list of sizes that holds one."""
    return (
        any(map(has_open_size, cast("Sequence[object]", value))) if isinstance(value, list | tuple) else isinstance(value, Dim)
    )


def is_weak(x: ArrayLike) -> bool:
    """Whether it is a number, or stands for one."""
    return x.weak if isinstance(x, Tracer) else is_number(x) or isinstance(x, Dim)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether it is a floating-point dtype; NumPy itself does not know that bfloat16 is one."""
    return dtype.kind == "f" or is_float(element_type(dtype))


def dtype_of(*xs: ArrayLike) -> np.dtype[Any]:
    """The dtype that the operands promote to; raises DTypeError as `common_dtype` does."""
    return common_dtype([(_LARGE if _is_large(x) else operand(x).dtype, is_weak(x)) for x in xs])


def _is_large(x: ArrayLike) -> bool:
    """Whether it is an integer beyond 64 bits, which a float may hold and NumPy has no dtype for."""
    return isinstance(x, int) and x.bit_length() > 64


def common_dtype(dtypes: Sequence[tuple[np.dtype[Any], bool]]) -> np.dtype[Any]:
    """The dtype that these promote to: NumPy's rules, with those of numbers (and traced numbers) marked as weak.

    Raises DTypeError for dtypes that dlc does not have, or that promote to none.
    """
    with blamed_on_user():
        for dtype, _ in dtypes:
            element_type(dtype)
        strong = [d for d, weak in dtypes if not weak]
        try:
            if not strong:
                return np.result_type(*(d for d, _ in dtypes))
            if is_floating(result := np.result_type(*strong)):
                return result
        except TypeError:
            names = " and ".join(str(d) for d in strong)
            raise DTypeError(f"{names} have no dtype in common; convert one of them with .astype") from None
        return np.result_type(result, *(_NUMBER[d.kind] for d, weak in dtypes if weak))


def promote(*xs: ArrayLike) -> list[Operand]:
    """The operands with one dtype."""
    dtype = dtype_of(*xs)
    return [convert(x, dtype) for x in xs]


def promote_to_float(*xs: ArrayLike, least: Any = np.float64) -> list[Operand]:
    """The operands with one floating-point dtype: for integers the one that holds those of each, at least `least`."""
    dtype = dtype_of(*xs)
    if not is_floating(dtype):
        # Numbers go by arrays of integers, bools by numbers.
        typed = [d for x in xs if not is_number(x) and (d := dtype_of(x)) != np.bool_] or [dtype]
        dtype = np.result_type(*(np.result_type(d, least) for d in typed))
    return [convert(x, dtype) for x in xs]


def convert(x: ArrayLike, dtype: Any) -> Operand:
    """`x` with this dtype, which is its own from then on; itself if it has it."""
    dtype = given_dtype(dtype)
    with blamed_on_user():
        to = element_type(dtype)
        if is_number(x) or (isinstance(x, list | tuple) and not has_tracer(x)):
            return _of_numbers(x, dtype)
    x = operand(x)
    if isinstance(x, Tracer) and x.weak and x.dtype.kind in "iu" and dtype.kind in "iu":
        x.owner.note_taken(x.value, dtype)
    if x.dtype != dtype:
        return apply(dl.CastOp, x, to=to)
    return Tracer(x.owner, x.value) if isinstance(x, Tracer) and x.weak else x


def given_dtype(dtype: Any) -> np.dtype[Any]:
    """What is given as a dtype; raises DTypeError for what is none."""
    try:
        return np.dtype(dtype)
    except TypeError:
        return refuse(DTypeError(f"{dtype!r} is no dtype; write one of dlc.numpy's, such as dlc.numpy.float32, or its name"))


def _of_numbers(x: Any, dtype: np.dtype[Any]) -> Array:
    """A number, or lists of them. Raises DTypeError for one that the dtype does not hold."""
    try:
        return np.asarray(x, dtype)
    except (OverflowError, ValueError) as error:
        if not is_number(x):
            operand(x)
        wide = next((d for d in (np.int64, np.uint64) if is_number(x) and np.iinfo(d).min <= x <= np.iinfo(d).max), None)
        repair = f"give it a dtype that holds it{f', such as numpy.{wide.__name__}({x})' if wide else ''}"
        raise DTypeError(f"{error}; {repair}") from error


def apply(op: type[DlOp], *operands: Operand, **properties: PropertyValue | None) -> Any:
    """The first result of an op; errors of shape and dtype name the user's line."""
    return apply_all(op, *operands, **properties)[0]


def apply_all(op: type[DlOp], *operands: Operand, **properties: PropertyValue | None) -> Sequence[Any]:
    """The results of an op; errors of shape and dtype name the user's line."""
    tracer = next((x for x in operands if isinstance(x, Tracer)), None)
    trace = tracer.owner if tracer is not None else current_trace() if any(map(has_open_size, properties.values())) else None
    if trace is not None:
        return trace.apply_all(op, *(x if isinstance(x, Tracer) else trace.constant(x) for x in operands), **properties)
    with blamed_on_user(), np.errstate(all="ignore"):
        block = Block(arg_types=[tensor_type(x.shape, element_type(x.dtype)) for x in operands])
        made = op.make(*block.args, **properties)
        try:
            return made.evaluate(*(np.asarray(x) for x in operands))
        except ValueError:
            shape = next((s for r in made.results if prod(cast("Any", s := shape_of(r))) >= MOST_ELEMENTS), None)
            if shape is None:
                raise
            raise ShapeError(f"{op.name}: a result of shape {shape}, which no memory holds") from None


def described(function: Function, name: str, doc: str) -> Function:
    """The function, called so, with this docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def in_wide_type(function: Function) -> Function:
    """A function of operands of one float dtype that computes in float32 where they are narrower, and rounds once."""

    @functools.wraps(function)
    def widened(*xs: Operand) -> Any:
        dtype = xs[0].dtype
        if dtype.itemsize >= 4:
            return function(*xs)
        results = function(*(convert(x, np.float32) for x in xs))
        if isinstance(results, tuple):
            return tuple(convert(r, dtype) for r in cast("tuple[Operand, ...]", results))
        return convert(results, dtype)

    return cast(Function, widened)


def by_numpy(name: str, function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """What a function of NumPy's makes of what is known; ShapeError for what it cannot make, DeviceError without memory."""
    try:
        return function(*args, **settings)
    except MemoryError as error:
        return refuse(DeviceError(f"{name}: no memory for its result; make it smaller: {error}"))
    except (ValueError, OverflowError) as error:
        return refuse(ShapeError(f"{name}: {error}"))


def refuse(error: DlcError) -> Any:
    """Raises the error with the user's line in front."""
    raise at_user_line(error)


def sizes_of(name: str, shape: object, least: int = 0) -> tuple[Size, ...]:
    """A shape, which may be given as its only size.

    Raises DTypeError for what is no shape, ShapeError for a size below `least` or beyond 63 bits.
    """
    one = cast(Array, shape).ndim != 1 if isinstance(shape, np.ndarray) else hasattr(shape, "__index__")
    if one or isinstance(shape, str | bytes) or not isinstance(shape, Iterable):
        return (_size(name, cast(object, shape), least),)
    return tuple(_size(name, size, least) for size in cast("Iterable[object]", shape))


def _size(name: str, size: object, least: int) -> Size:
    if isinstance(size, Dim):
        return size
    try:
        number = operator.index(cast(SupportsIndex, size))
    except DlcError:
        raise
    except TypeError:
        return refuse(DTypeError(f"{name}: {size!r} for a size; expected a whole number, or a tuple of them"))
    if not least <= number < 1 << 63:
        refuse(ShapeError(f"{name}: a size of {number}; expected one from {least} on, of 63 bits"))
    return number


def listed(name: str, arrays: object) -> list[Any]:
    """The arrays of a list, a tuple, or of another array's first axis. Raises DTypeError for what has none."""
    try:
        return list(cast("Iterable[Any]", arrays))
    except DlcError:
        raise
    except TypeError:
        got = type(arrays).__name__
        return refuse(DTypeError(f"{name}: {got} in place of a list of arrays; write {name}([x, y])"))


def axes_of(name: str, x: Operand, axis: Axes) -> tuple[int, ...]:
    """Axes counted from the front; all of them for None. Raises ShapeError for one that `x` has not, or twice the same."""
    if axis is None:
        return tuple(range(x.ndim))
    try:
        given = tuple(operator.index(a) for a in axis) if isinstance(axis, Sequence) else (operator.index(axis),)
    except TypeError:
        return refuse(DTypeError(f"{name}: axis {axis!r}; expected a whole number, or several in a tuple"))
    axes = tuple(a + x.ndim if a < 0 else a for a in given)
    if any(not 0 <= a < x.ndim for a in axes):
        refuse(ShapeError(f"{name}: axis {axis} of an array of shape {x.shape}; it has {x.ndim} axes, counted from 0"))
    if len(set(axes)) < len(axes):
        refuse(ShapeError(f"{name}: axis {axis} names an axis of {x.shape} twice"))
    return axes


def along(name: str, x: ArrayLike, axis: int | None) -> tuple[Operand, int]:
    """`x` and an axis counted from the front; for None the flattened array and its axis."""
    x = operand(x)
    if axis is None:
        return apply(dl.ReshapeOp, x, shape=(x.size,)) if x.ndim != 1 else x, 0
    return x, axis_of(name, x, axis)


def axis_of(name: str, x: Operand, axis: int | None) -> int:
    """An axis counted from the front. Raises ShapeError for one that `x` has not, DTypeError for None."""
    if axis is None:
        refuse(DTypeError(f"{name}: axis None; expected a whole number"))
    return axes_of(name, x, axis)[0]

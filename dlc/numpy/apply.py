"""Shared steps of every function of `dlc.numpy`: promote the operands, then append an op to the trace or compute immediately.

If an operand is a Tracer, the op is appended to its trace. Otherwise the op's NumPy reference implementation computes the
result, so that the functions also work on plain arrays, and a traced function constant-folds whatever does not depend on its
arguments.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from math import prod
from typing import Any, SupportsIndex, TypeAlias, TypeVar, cast

import numpy as np

from dlc.arrays import Array as OwnedArray
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, shape_of, tensor_type
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.errors import DeviceError, DlcError, DTypeError, OutOfBoundsError, OutOfRangeError, ShapeError
from dlc.frontend.complex_numbers import (
    Complex,
    component_dtype,
    contains_complex,
    from_parts,
    is_complex,
    real_and_imaginary,
)
from dlc.frontend.trace import (
    MAX_ELEMENTS,
    Trace,
    TracedProperty,
    Tracer,
    current_trace,
    errors_at_user_line,
    is_python_scalar,
    with_user_line,
)
from dlc.ir import Block, i64
from dlc.shapes.dims import Dim, Size, is_known_different, is_known_less, product
from dlc.shapes.traced_dims import TracedDim, TracedSize, untraced

# Accepted as an array argument. Python scalars are weakly typed: they take the dtype of the array operands.
ArrayLike: TypeAlias = "Tracer | Array | np.generic | bool | int | float | TracedDim | list[Any] | tuple[Any, ...]"
Operand: TypeAlias = "Tracer | Array"
Axes: TypeAlias = "int | Sequence[int] | None"
# Anything that numpy.dtype() accepts.
AnyDType: TypeAlias = Any
Function = TypeVar("Function", bound=Callable[..., Any])
# dtype.kind of numeric dtypes; "V" is that of ml_dtypes.
_NUMERIC_KINDS = "biufcV"
_SCALAR_BY_KIND = {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}
_LARGE_INTEGER_DTYPE = np.dtype(np.int64)


def operand(x: ArrayLike) -> Operand:
    """Convert `x` to a Tracer or a NumPy array.

    A list or tuple with Tracers or symbolic sizes is stacked; a symbolic size becomes a weakly typed scalar of the trace.
    """
    if isinstance(x, Tracer):
        return x
    if isinstance(x, Complex):
        return _refuse_complex()
    if isinstance(x, TracedDim):
        return x.as_array(x)
    if isinstance(x, list | tuple) and is_traced(x):
        rows = promote(*(operand(row) for row in cast("Sequence[ArrayLike]", x)))
        return apply(dl.ConcatOp, *(apply(dl.ReshapeOp, row, shape=(1, *row.shape)) for row in rows), axis=0)
    try:
        array = np.asarray(x)
    except ValueError as error:
        return refuse(ShapeError(f"a {type(x).__name__} is not an array: {error}"))
    return array if array.dtype.kind in _NUMERIC_KINDS else refuse(DTypeError(f"{x!r:.60} is not an array of numbers"))


def iota(size: TracedSize) -> Any:
    """Return 0, 1, … size - 1: an op in a traced function, so that the compiler sees that a mask depends on positions only."""
    trace = current_trace()
    return np.arange(int(size)) if trace is None else trace.apply(dl.IotaOp, size=(size,), to=i64, start=0, step=1)


def is_traced(value: object) -> bool:
    """Return whether `value` is a Tracer or a symbolic size, or a list, tuple or slice that contains one."""
    if isinstance(value, list | tuple):
        return any(is_traced(v) for v in cast("Sequence[object]", value))
    if isinstance(value, slice):
        bounds = cast("slice[object, object, object]", value)
        return is_traced((bounds.start, bounds.stop, bounds.step))
    return isinstance(value, Tracer | TracedDim)


def scope_of(value: object) -> Trace | None:
    """Return the trace of a symbolic size, or of the first one in a tuple or list; None if there is none."""
    if isinstance(value, list | tuple):
        return next(filter(None, map(scope_of, cast("Sequence[object]", value))), None)
    return cast(Trace, value.scope) if isinstance(value, TracedDim) else None


def operand_in_scope(x: ArrayLike, sizes: object) -> Operand:
    """Convert `x` as `operand` does, to a Tracer if there is a symbolic size among `sizes`."""
    x, scope = operand(x), scope_of(sizes)
    return x if scope is None or isinstance(x, Tracer) else scope.constant(x)


def has_symbolic_size(value: object) -> bool:
    """Return whether `value` is a symbolic size, or a tuple or list that contains one."""
    return scope_of(value) is not None


def is_weak(x: ArrayLike | Complex | complex) -> bool:
    """Return whether `x` is weakly typed: a Python scalar, a symbolic size, or a Tracer of one."""
    if isinstance(x, Complex):
        return is_weak(x.real) and is_weak(x.imag)
    return x.weak if isinstance(x, Tracer) else is_python_scalar(x) or isinstance(x, TracedDim)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` is a floating-point dtype, including bfloat16, which NumPy does not classify as one."""
    return dtype.kind == "f" or (dtype.kind == "V" and is_float(element_type(dtype)))


def result_dtype(*xs: ArrayLike | Complex | complex) -> np.dtype[Any]:
    """Return the dtype that the operands promote to. Raises DTypeError as `common_dtype` does."""
    return common_dtype([(_dtype_of(x), is_weak(x)) for x in xs])


def _dtype_of(x: Any) -> np.dtype[Any]:
    return _LARGE_INTEGER_DTYPE if _is_large(x) else x.dtype if isinstance(x, Complex) else operand(x).dtype


def _is_large(x: object) -> bool:
    """Return whether `x` is an integer of more than 64 bits, which a float may represent but no NumPy integer dtype."""
    return isinstance(x, int) and x.bit_length() > 64


def common_dtype(dtypes: Sequence[tuple[np.dtype[Any], bool]]) -> np.dtype[Any]:
    """Return the dtype that these (dtype, is weak) pairs promote to, by NumPy's rules for arrays and Python scalars.

    Raises DTypeError for dtypes that dlc does not support, and for dtypes without a common promotion.
    """
    with errors_at_user_line():
        for dtype, _ in dtypes:
            element_type(component_dtype(dtype) if dtype.kind == "c" else dtype)
        strong = [d for d, weak in dtypes if not weak]
        try:
            if not strong:
                return np.result_type(*(d for d, _ in dtypes))
            result = np.result_type(*strong)
        except TypeError:
            names = " and ".join(str(d) for d in strong)
            raise DTypeError(f"{names} have no common dtype; convert one of them with .astype") from None
        weak_kinds = {d.kind for d, weak in dtypes if weak}
        if result.kind != "c" and is_floating(result) and "c" not in weak_kinds:
            return result
        return np.result_type(result, *(_SCALAR_BY_KIND[kind] for kind in weak_kinds))


def promote(*xs: ArrayLike) -> list[Operand]:
    """Convert the operands to their common dtype. Raises DTypeError if it is complex."""
    dtype = _require_real(result_dtype(*xs))
    return [convert(x, dtype) for x in xs]


def _refuse_complex() -> Any:
    problem = "this function does not support complex arrays; apply it to .real and .imag, or use an operator or a method"
    return refuse(DTypeError(f"{problem} (docs/numpy.md lists those that do)"))


def _require_real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return _refuse_complex() if dtype.kind == "c" else dtype


def promote_to_float(*xs: ArrayLike, min_dtype: Any = np.float64) -> list[Operand]:
    """Convert the operands to a common floating-point dtype of at least `min_dtype`.

    Integers become a float that represents them.
    """
    dtype = _require_real(result_dtype(*xs))
    if not is_floating(dtype):
        # Integer arrays determine the float dtype; Python scalars only if there are none, and bools last.
        typed_dtypes = [d for x in xs if not is_python_scalar(x) and (d := result_dtype(x)) != np.bool_] or [dtype]
        dtype = np.result_type(*(np.result_type(d, min_dtype) for d in typed_dtypes))
    return [convert(x, dtype) for x in xs]


def convert(x: ArrayLike | Complex | complex, dtype: Any) -> Operand:
    """Return `x` with this dtype, no longer weakly typed; `x` itself if it already is."""
    dtype = as_dtype(dtype)
    if dtype.kind == "c":
        return from_parts(*(convert(part, component_dtype(dtype)) for part in split_parts(x)))
    with errors_at_user_line():
        target_type = element_type(dtype)
        if is_python_scalar(x) or (isinstance(x, list | tuple) and not is_traced(x)):
            if contains_complex(x):
                raise DTypeError(f"complex numbers as {dtype}; use their real parts, or a complex dtype")
            return _scalars_to_array(x, dtype)
    x = operand(cast("ArrayLike", x))
    if isinstance(x, Tracer) and x.weak and x.dtype.kind in "iu" and dtype.kind in "iu":
        x.owner.require_representable(x, dtype)
    if x.dtype != dtype:
        return apply(dl.CastOp, x, to=target_type)
    return Tracer(x.owner, x.value) if isinstance(x, Tracer) and x.weak else x


def split_parts(value: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part; the imaginary part of a real value is zero."""
    if is_complex(value):
        return real_and_imaginary(value)
    if contains_complex(value):
        pairs = [split_parts(v) for v in value]
        return [a for a, _ in pairs], [b for _, b in pairs]
    if value is None or is_python_scalar(value):
        return value, None if value is None else 0
    x = operand(value)
    return x, apply(dl.BroadcastToOp, np.zeros((), x.dtype), shape=x.shape)


def complex_operand(x: Any) -> Any:
    """Return a complex scalar or array, or a list or tuple that contains one, as a complex array."""
    return from_parts(*map(operand, split_parts(x)))


def as_index(x: Operand) -> Operand:
    """Return integer indices with a dtype that represents every size: int64, or uint64 unchanged."""
    return x if x.dtype.itemsize == 8 else convert(x, np.int64)


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Return `dtype` as a numpy.dtype. Raises DTypeError for anything else."""
    try:
        return np.dtype(dtype)
    except TypeError:
        return refuse(DTypeError(f"{dtype!r} is not a dtype; use one of dlc.numpy's, such as dlc.numpy.float32, or its name"))


def _scalars_to_array(x: Any, dtype: np.dtype[Any]) -> Array:
    """Return a Python scalar, or nested lists of them, as an array.

    Raises DTypeError if the dtype does not represent a value.
    """
    try:
        return np.asarray(x, dtype)
    except (OverflowError, ValueError) as error:
        if not is_python_scalar(x):
            operand(x)
        wide_dtype = next(
            (d for d in (np.int64, np.uint64) if is_python_scalar(x) and np.iinfo(d).min <= x <= np.iinfo(d).max), None
        )
        hint = f"use a dtype that represents it{f', such as numpy.{wide_dtype.__name__}({x})' if wide_dtype else ''}"
        raise (OutOfRangeError if isinstance(error, OverflowError) else DTypeError)(f"{error}; {hint}") from error


def apply(op: type[DlOp], *operands: Operand, **properties: TracedProperty | None) -> Any:
    """Apply an op and return its first result. Shape and dtype errors name the user's line."""
    return apply_all(op, *operands, **properties)[0]


def apply_all(op: type[DlOp], *operands: Operand, **properties: TracedProperty | None) -> Sequence[Any]:
    """Apply an op and return its results. Shape and dtype errors name the user's line."""
    tracer = next((x for x in operands if isinstance(x, Tracer)), None)
    trace = tracer.owner if tracer is not None else scope_of([*properties.values()])
    if trace is not None:
        return trace.apply_all(op, *(x if isinstance(x, Tracer) else trace.constant(x) for x in operands), **properties)
    with errors_at_user_line(), np.errstate(all="ignore"):
        block = Block(arg_types=[tensor_type(x.shape, element_type(x.dtype)) for x in operands])
        new_op = op.make(*block.args, **cast("dict[str, Any]", properties))
        try:
            return [_with_array_methods(result) for result in new_op.evaluate(*(np.asarray(x) for x in operands))]
        except ValueError:
            shape = next((s for r in new_op.results if prod(cast("Any", s := shape_of(r))) >= MAX_ELEMENTS), None)
            if shape is None:
                raise
            raise ShapeError(f"{op.name}: a result of shape {shape} does not fit in memory") from None


def with_name_and_doc(function: Function, name: str, doc: str) -> Function:
    """Set the name and the docstring of a function and return it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def in_float32_or_wider(function: Function) -> Function:
    """Decorate a function of operands of one float dtype: half-precision operands are computed in float32, and rounded once."""

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


def call_numpy(name: str, function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """Call a NumPy function on static values. Raises ShapeError for what it rejects, DeviceError if memory runs out."""
    try:
        return _with_array_methods(function(*args, **settings))
    except MemoryError as error:
        return refuse(DeviceError(f"{name}: not enough memory for the result; make it smaller: {error}"))
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        return refuse(ShapeError(f"{name}: {error}"))


def _with_array_methods(result: Any) -> Any:
    """Return a NumPy array as one that has `.at`, as traced arrays do; other values unchanged."""
    return result.view(OwnedArray) if type(result) is np.ndarray else result


def refuse(error: DlcError) -> Any:
    """Raise the error with the user's line in front."""
    raise with_user_line(error)


def is_less(x: Operand, a: Size, b: Size, name: str, problem: str = "") -> bool:
    """Return whether `a < b` for all values of the symbols; if that is undecidable, `a >= b` becomes a guard of the trace.

    The sizes are those of `x`, an operand of the function `name`. Data-dependent sizes are checked when the function is called;
    `problem` describes a failure.
    """
    return x.owner.is_less(a, b, name, problem) if isinstance(x, Tracer) else is_known_less(a, b)


def are_different(x: Operand, a: Size, b: Size, name: str) -> bool:
    """Return whether two sizes differ, as `is_less`: if that is undecidable, equality becomes a guard of the trace."""
    return x.owner.are_different(a, b, name) if isinstance(x, Tracer) else is_known_different(a, b)


def is_empty(name: str, x: Operand, axes: Collection[int], axis: Axes) -> bool:
    """Return whether a reduction of `x` over these axes, `axis` for users, has results of no elements.

    That it has none may become a guard, or a check when the function is called.
    """
    return is_less(x, _excess_elements(x, axes), 0, name, f"no elements along axis {axis} of shape {x.shape}")


def require_elements(name: str, x: Operand, axes: Collection[int], axis: Axes) -> None:
    """Raise ShapeError if a reduction of `x` has results of no elements, as `is_empty` finds."""
    if is_empty(name, x, axes, axis):
        refuse(ShapeError(f"{name}: no elements along axis {axis} of shape {x.shape}; pass initial"))


def _excess_elements(x: Operand, axes: Collection[int]) -> Size:
    """Return a size that is negative if a reduction of `x` over these axes has results of no elements."""
    sizes = untraced(x.shape)
    count, results = (product(size for k, size in enumerate(sizes) if (k in axes) == reduced) for reduced in (True, False))
    return results * (count - 1)


def as_shape(name: str, shape: object, minimum: int = 0) -> tuple[int, ...]:
    """Return a shape as a tuple; an integer n is the shape (n,).

    Raises DTypeError for anything that is not a shape, and ShapeError for a size below `minimum` or of more than 63 bits.
    """
    is_scalar = cast(Array, shape).ndim != 1 if isinstance(shape, np.ndarray) else hasattr(shape, "__index__")
    if is_scalar or isinstance(shape, str | bytes) or not isinstance(shape, Iterable):
        return (_size(name, cast(object, shape), minimum),)
    return tuple(_size(name, size, minimum) for size in cast("Iterable[object]", shape))


def _size(name: str, size: object, minimum: int) -> int:
    if isinstance(size, Dim | TracedDim):
        return cast(int, size)
    try:
        size_value = operator.index(cast(SupportsIndex, size))
    except DlcError:
        raise
    except TypeError:
        return refuse(DTypeError(f"{name}: size {size!r}; expected an integer, or a tuple of integers"))
    if not minimum <= size_value < 1 << 63:
        refuse(ShapeError(f"{name}: size {size_value}; expected at least {minimum}, of at most 63 bits"))
    return size_value


def as_list(name: str, arrays: object) -> list[Any]:
    """Return the arrays of a list or tuple, or the slices of an array along axis 0. Raises DTypeError for anything else."""
    try:
        return list(cast("Iterable[Any]", arrays))
    except DlcError:
        raise
    except TypeError:
        got = type(arrays).__name__
        return refuse(DTypeError(f"{name}: got a {got}, expected a list of arrays; write {name}([x, y])"))


def normalize_axes(name: str, x: Operand, axis: Axes) -> tuple[int, ...]:
    """Return non-negative axes; all axes for None.

    Raises ShapeError for an axis that `x` does not have, and for a repeated axis.
    """
    if axis is None:
        return tuple(range(x.ndim))
    try:
        entries = tuple(axis) if isinstance(axis, Sequence) else (axis,)
        if any(isinstance(a, bool) for a in entries):
            raise TypeError
        requested_axes = tuple(map(operator.index, entries))
    except TypeError:
        return refuse(DTypeError(f"{name}: axis {axis!r}; expected an integer, or a tuple of integers"))
    axes = tuple(a + x.ndim if a < 0 else a for a in requested_axes)
    if any(not 0 <= a < x.ndim for a in axes):
        refuse(OutOfBoundsError(f"{name}: axis {axis} of an array of shape {x.shape}; it has {x.ndim} axes, counted from 0"))
    if len(set(axes)) < len(axes):
        refuse(ShapeError(f"{name}: axis {axis} repeats an axis of shape {x.shape}"))
    return axes


def with_axis_or_flattened(name: str, x: ArrayLike, axis: int | None) -> tuple[Operand, int]:
    """Return `x` and the non-negative axis; for axis None, `x` flattened and axis 0."""
    x = operand(x)
    if axis is None:
        return apply(dl.ReshapeOp, x, shape=(x.size,)) if x.ndim != 1 else x, 0
    return x, normalize_axis(name, x, axis)


def normalize_axis(name: str, x: Operand, axis: int | None) -> int:
    """Return a non-negative axis. Raises ShapeError for an axis that `x` does not have, and DTypeError for None."""
    if axis is None:
        refuse(DTypeError(f"{name}: axis None; expected an integer"))
    return normalize_axes(name, x, axis)[0]

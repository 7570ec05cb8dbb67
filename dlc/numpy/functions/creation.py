"""Array creation.

The result is a plain NumPy array, which a traced function treats as a constant, unless an argument is traced or a size is
symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import contains_complex
from dlc.frontend.trace import Tracer, errors_at_user_line, is_python_scalar
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Operand,
    apply,
    as_dtype,
    as_shape,
    call_numpy,
    complex_operand,
    convert,
    has_symbolic_size,
    iota,
    is_traced,
    operand,
    promote_to_float,
    refuse,
    result_dtype,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.data_dependent import dynamic_arange, true_indices
from dlc.numpy.functions.comparison import equal, greater, greater_equal, less, logical_not, maximum, minimum
from dlc.numpy.functions.elementwise import add, divide, floor, floor_divide, multiply, negative, power, subtract, where
from dlc.numpy.functions.joining import stack
from dlc.numpy.functions.shape_manipulation import broadcast_to, moveaxis, reshape
from dlc.numpy.namespace import check_device
from dlc.shapes.dims import is_nonnegative
from dlc.shapes.traced_dims import TracedDim, untraced

__all__ = [
    "arange", "array", "asarray", "copy", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "geomspace",
    "identity", "indices", "linspace", "logspace", "meshgrid", "ones", "ones_like", "tri", "tril", "tril_indices", "triu",
    "triu_indices", "vander", "zeros", "zeros_like",
]  # fmt: skip

Shape = int | Sequence[int]


def asarray(x: ArrayLike, /, dtype: AnyDType = None, *, device: str | None = None, copy: bool | None = None) -> Any:
    """Convert `x` to an array, of `dtype` if given; lists may contain traced arrays."""
    check_device(device)
    if dtype is None:
        result: Any = complex_operand(x) if contains_complex(x) and not isinstance(x, np.ndarray) else operand(x)
    else:
        result = convert(x, dtype)
    is_same_array = result is x or (isinstance(x, np.ndarray) and x.dtype == result.dtype)
    if copy is False and not is_same_array:
        refuse(ArgumentError(f"asarray: copy = False, but a {type(x).__name__} needs a copy; pass copy=None"))
    return np.array(cast(Array, result)) if copy and isinstance(result, np.ndarray) else result


def array(x: ArrayLike, /, dtype: AnyDType = None, *, copy: bool | None = True, ndmin: int = 0) -> Any:
    """Convert `x` to a new array of at least `ndmin` axes, of `dtype` if given; lists may contain traced arrays."""
    result = asarray(x, dtype, copy=copy)
    return apply(dl.ReshapeOp, result, shape=(1,) * (ndmin - result.ndim) + result.shape) if result.ndim < ndmin else result


@componentwise("x")
def copy(x: ArrayLike, /) -> Any:
    """Return a copy of `x`."""
    return asarray(x, copy=True)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Array:
    """Return an array that shares the memory of another library's array; a copy if `copy`."""
    check_device(device)
    try:
        array = np.from_dlpack(x)
    except (AttributeError, BufferError, TypeError) as error:
        return refuse(DTypeError(f"from_dlpack: {type(x).__name__} does not export an array that NumPy can import: {error}"))
    return array.copy() if copy else array


def _static_shape(name: str, shape: Shape) -> tuple[Any, ...]:
    """Return a shape. Raises UnsupportedError for a size that is a traced value."""
    if any(isinstance(size, Tracer) for size in (shape if isinstance(shape, list | tuple) else (shape,))):
        refuse(
            UnsupportedError(f"{name}: a size is a traced value; sizes must be static: name the argument in static_argnames")
        )
    return as_shape(name, shape)


# The dtype of arrays that are created without one.
_DEFAULT_DTYPE = np.dtype(np.float32)


def _fill(name: str, shape: Shape, value: int, dtype: AnyDType) -> Array:
    dtype = as_dtype(_DEFAULT_DTYPE if dtype is None else dtype)
    if has_symbolic_size(shape):
        return full(shape, value, dtype)
    return call_numpy(name, np.ones if value else np.zeros, _static_shape(name, shape), dtype)


def zeros(shape: Shape, dtype: AnyDType = None, *, device: str | None = None) -> Array:
    """Return zeros; float32 by default."""
    check_device(device)
    return _fill("zeros", shape, 0, dtype)


def ones(shape: Shape, dtype: AnyDType = None, *, device: str | None = None) -> Array:
    """Return ones; float32 by default."""
    check_device(device)
    return _fill("ones", shape, 1, dtype)


def empty(shape: Shape, dtype: AnyDType = None, *, device: str | None = None) -> Array:
    """Return zeros, since a traced function has no uninitialized memory; float32 by default."""
    check_device(device)
    return _fill("empty", shape, 0, dtype)


@componentwise("fill_value")
def full(shape: Shape, fill_value: ArrayLike, dtype: AnyDType = None, *, device: str | None = None) -> Any:
    """Return an array filled with a value, which may broadcast; by default float32, int64 or bool for a scalar."""
    check_device(device)
    if dtype is None:
        dtype = _DEFAULT_DTYPE if isinstance(fill_value, float) and is_python_scalar(fill_value) else operand(fill_value).dtype
    shape = _static_shape("full", shape)
    value = convert(fill_value, dtype)
    if not isinstance(value, Tracer) and not has_symbolic_size(shape):
        return call_numpy("full", np.full, shape, value)
    return apply(dl.BroadcastToOp, value, shape=shape)


def zeros_like(x: ArrayLike, /, dtype: AnyDType = None, *, shape: Shape | None = None, device: str | None = None) -> Array:
    """Return zeros with the shape and dtype of `x`, or those given."""
    return full_like(x, 0, dtype, shape=shape, device=device)


def ones_like(x: ArrayLike, /, dtype: AnyDType = None, *, shape: Shape | None = None, device: str | None = None) -> Array:
    """Return ones with the shape and dtype of `x`, or those given."""
    return full_like(x, 1, dtype, shape=shape, device=device)


def empty_like(x: ArrayLike, /, dtype: AnyDType = None, *, shape: Shape | None = None, device: str | None = None) -> Array:
    """Return zeros with the shape and dtype of `x`, or those given, since a traced function has no uninitialized memory."""
    return full_like(x, 0, dtype, shape=shape, device=device)


def full_like(
    x: ArrayLike,
    /,
    fill_value: ArrayLike,
    dtype: AnyDType = None,
    *,
    shape: Shape | None = None,
    device: str | None = None,
) -> Any:
    """Return an array filled with a value, which may broadcast, with the shape and dtype of `x`, or those given."""
    like: Any = asarray(x)
    return full(like.shape if shape is None else shape, fill_value, like.dtype if dtype is None else dtype, device=device)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: AnyDType = None, device: str | None = None
) -> Array:
    """Return start, start + step, … before stop; 0, 1, … before `start` without `stop`. int64, or float32 for float bounds."""
    check_device(device)
    bounds = (0, start, step) if stop is None else (start, stop, step)
    if dtype is None and not any(isinstance(x, Tracer) for x in bounds) and any(isinstance(x, float) for x in bounds):
        dtype = np.float32
    if is_traced(bounds):
        symbolic_result = _symbolic_arange(*bounds, dtype or np.int64)
        return _traced_arange(*bounds, dtype) if symbolic_result is None else symbolic_result
    # As Python integers: NumPy computes the length of narrow ones in their dtype.
    bounds = [int(x) if isinstance(x, np.integer) else x for x in bounds]
    return call_numpy("arange", np.arange, *bounds, dtype=dtype)


def _symbolic_arange(start: Any, stop: Any, step: Any, dtype: AnyDType) -> Any:
    """Return `arange` between symbolic sizes; None if the length cannot be expressed as a symbolic size."""
    if not (isinstance(start, int | TracedDim) and isinstance(stop, int | TracedDim) and isinstance(step, int) and step):
        return None
    span = stop - start if step > 0 else start - stop
    count = (span + abs(step) - 1) // abs(step)
    if not is_nonnegative(untraced(count)):
        return None
    with errors_at_user_line():
        target_type = element_type(as_dtype(dtype))
        if isinstance(start, int):
            return apply(dl.IotaOp, size=(count,), to=target_type, start=start, step=step)
        return convert(add(apply(dl.IotaOp, size=(count,), to=element_type(np.int64), start=0, step=step), start), dtype)


def _traced_arange(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    """Return `arange` with traced bounds, of the data-dependent length ⌈(stop − start) / step⌉; int64 for narrower integers."""
    common_dtype = result_dtype(start, stop, step)
    if common_dtype.kind in "iu" and common_dtype.itemsize < 8:
        common_dtype = np.dtype(np.int64)
    first, last, stride = (convert(x, common_dtype) for x in (start, stop, step))
    if first.ndim or last.ndim or stride.ndim:
        refuse(
            ShapeError(
                f"arange: start, stop and step of shapes {first.shape}, {last.shape} and {stride.shape}; expected scalars"
            )
        )
    if first.dtype.kind in "iu":
        count = _integer_count(first, last, stride)
    else:
        count = negative(floor_divide(subtract(first, last), stride))
    values = add(first, multiply(convert(dynamic_arange(operand(count)), first.dtype), stride))
    return values if dtype is None else convert(values, as_dtype(dtype))


def _integer_count(start: Operand, stop: Operand, step: Operand) -> Any:
    """Return max(⌈(stop − start) / step⌉, 0) for integers of one dtype.

    The distance is computed modulo 2⁶⁴, in which the distance of two ordered integers is exact.
    """
    is_ascending = greater(step, 0)
    low, high = where(is_ascending, start, stop), where(is_ascending, stop, start)
    first, last, stride = (convert(convert(x, np.int64), np.uint64) if x.dtype != np.uint64 else x for x in (low, high, step))
    stride = where(is_ascending, stride, subtract(np.uint64(0), stride))
    count = add(floor_divide(subtract(subtract(last, first), np.uint64(1)), maximum(stride, 1)), np.uint64(1))
    return convert(where(less(low, high), minimum(count, np.uint64(2**63 - 1)), np.uint64(0)), np.int64)


@componentwise("start", "stop")
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    /,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: AnyDType = None,
    axis: int = 0,
    *,
    device: str | None = None,
) -> Any:
    """Return `num` evenly spaced values from start to stop along a new axis, and with `retstep` their distance.

    float32 by default. The distance is NaN if there is only one value.
    """
    check_device(device)
    dtype = as_dtype(_float_dtype(dtype, start, stop))
    if not is_traced((start, stop, num)):
        values, step = call_numpy("linspace", np.linspace, operand(start), operand(stop), num, endpoint=endpoint, retstep=True)
        step = step if dtype.kind in "iu" else np.asarray(step, dtype)
        values = (np.floor(values) if dtype.kind in "iu" else values).astype(dtype)
    else:
        first, last = promote_to_float(start, stop)
        rank, intervals = max(first.ndim, last.ndim), num - 1 if endpoint else num
        divisor = convert(maximum(intervals, 1), first.dtype)
        index = convert(apply(dl.ReshapeOp, arange(num), shape=(num, *[1] * rank)), first.dtype)
        step = divide(subtract(last, first), divisor)
        values = add(first, multiply(step, index))
        # The last element is exactly `stop`; a single element is `start`.
        values = where(greater_equal(index, divisor), last, values) if endpoint else values
        values = convert(floor(values) if dtype.kind in "iu" else values, dtype)
        step = where(greater(intervals, 0), step, np.nan)
    values = moveaxis(values, 0, axis)
    return (values, step) if retstep else values


def _float_dtype(dtype: Any, *xs: ArrayLike) -> Any:
    """Return `dtype`, or by default the float dtype that the arrays among `xs` promote to: float32 if there are none."""
    if dtype is not None:
        return dtype
    typed = [x for x in xs if isinstance(x, Tracer | np.ndarray | np.generic)]
    return promote_to_float(*typed)[0].dtype if typed else _DEFAULT_DTYPE


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    /,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: AnyDType = None,
    axis: int = 0,
) -> Any:
    """Return `num` powers of `base` with evenly spaced exponents along a new axis; float32 by default."""
    if is_traced((start, stop, num, base)):
        exponents = linspace(start, stop, num, endpoint)
        return moveaxis(convert(power(base, exponents), _float_dtype(dtype, start, stop)), 0, axis)
    bounds = operand(start), operand(stop)
    return call_numpy("logspace", np.logspace, *bounds, num, endpoint=endpoint, base=base, axis=axis).astype(
        _float_dtype(dtype, start, stop)
    )


def geomspace(
    start: ArrayLike, stop: ArrayLike, /, num: int = 50, endpoint: bool = True, dtype: AnyDType = None, axis: int = 0
) -> Any:
    """Return `num` values of a geometric progression along a new axis, from start to stop of one sign; float32 by default."""
    if is_traced((start, stop, num)):
        first, last = promote_to_float(start, stop)
        rank = max(first.ndim, last.ndim)
        fraction = linspace(0, 1, num, endpoint, dtype=first.dtype)
        fraction = reshape(fraction, (*fraction.shape, *[1] * rank))
        values = multiply(first, power(divide(last, first), fraction))
        # The last element is exactly `stop`.
        values = convert(where(greater_equal(fraction, 1), last, values), _float_dtype(dtype, start, stop))
        return moveaxis(values, 0, axis)
    bounds = operand(start), operand(stop)
    return call_numpy("geomspace", np.geomspace, *bounds, num, endpoint=endpoint, axis=axis).astype(
        _float_dtype(dtype, start, stop)
    )


def eye(n: int, m: int | None = None, /, k: int = 0, dtype: AnyDType = None, *, device: str | None = None) -> Any:
    """Return an n × m matrix (n × n if `m` is None) with ones on the k-th diagonal; float32 by default."""
    check_device(device)
    dtype = as_dtype(_DEFAULT_DTYPE if dtype is None else dtype)
    if has_symbolic_size((n, m, k)):
        rows, columns = map(iota, _static_shape("eye", (n, n if m is None else m)))
        return convert(equal(add(_column(rows), k), columns), dtype)
    return call_numpy("eye", np.eye, n, m, k, dtype=dtype)


def identity(n: int, /, dtype: AnyDType = None) -> Array:
    """Return the n × n identity matrix; float32 by default."""
    return eye(n, dtype=dtype)


def tri(n: int, m: int | None = None, /, k: int = 0, dtype: AnyDType = None) -> Any:
    """Return an n × m matrix with ones on and below the k-th diagonal; float32 by default."""
    dtype = as_dtype(_DEFAULT_DTYPE if dtype is None else dtype)
    if has_symbolic_size((n, m, k)):
        rows, columns = map(arange, _static_shape("tri", (n, n if m is None else m)))
        return convert(greater_equal(add(_column(rows), k), columns), dtype)
    return call_numpy("tri", np.tri, n, m, k, dtype=dtype)


def _column(x: Operand) -> Any:
    return apply(dl.ReshapeOp, x, shape=(*x.shape, 1))


@componentwise("x")
def tril(x: ArrayLike, /, k: int = 0) -> Any:
    """Return the lower triangle of the last two axes: elements above the k-th diagonal are 0."""
    x = operand(x)
    return where(_lower(x, k), x, np.zeros((), x.dtype))


@componentwise("x")
def triu(x: ArrayLike, /, k: int = 0) -> Any:
    """Return the upper triangle of the last two axes: elements below the k-th diagonal are 0."""
    x = operand(x)
    return where(_lower(x, k - 1), np.zeros((), x.dtype), x)


def _lower(x: Operand, k: int) -> Any:
    if x.ndim < 2:
        refuse(ShapeError(f"tril, triu: array of shape {x.shape}; expected a matrix, at least two axes"))
    rows, columns = x.shape[-2:]
    return tri(rows, columns, k, np.bool_)


def tril_indices(n: int, /, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """Return the row and column indices of the elements on and below the k-th diagonal of an n × m matrix."""
    if is_traced((n, k, m)):
        return tuple(true_indices(tri(n, m, k, np.bool_)))
    return call_numpy("tril_indices", np.tril_indices, n, k, m)


def triu_indices(n: int, /, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """Return the row and column indices of the elements on and above the k-th diagonal of an n × m matrix."""
    if is_traced((n, k, m)):
        return tuple(true_indices(logical_not(tri(n, m, k - 1, np.bool_))))
    return call_numpy("triu_indices", np.triu_indices, n, k, m)


def vander(x: ArrayLike, n: int | None = None, /, increasing: bool = False) -> Any:
    """Return the Vandermonde matrix of a vector: columns are its powers n - 1, …, 1, 0; ascending if `increasing`.

    Integers and bools are promoted to int64, uint64 to float64.
    """
    x = operand(x)
    if x.dtype.kind in "iub":
        x = convert(x, np.result_type(x.dtype, np.int64))
    if x.ndim != 1:
        refuse(ShapeError(f"vander: array of shape {x.shape}; expected a vector"))
    count = x.shape[0] if n is None else n
    if isinstance(n, int) and n < 0:
        refuse(ArgumentError(f"vander: N {n}; expected at least 0"))
    exponents = iota(count) if increasing else subtract(count - 1, iota(count))
    powers = convert(exponents, x.dtype)
    return apply(dl.PowOp, apply(dl.ReshapeOp, x, shape=(*x.shape, 1)), powers)


def indices(dimensions: Sequence[int], dtype: AnyDType = int, sparse: bool = False) -> Any:
    """Return the index arrays of a grid along a new first axis; with `sparse`, a tuple of arrays that broadcast to it."""
    if not is_traced(dimensions):
        return call_numpy("indices", np.indices, dimensions, dtype, sparse)
    sizes = _static_shape("indices", dimensions)
    axes = meshgrid(*(convert(iota(size), dtype) for size in sizes), sparse=sparse, indexing="ij")
    return tuple(axes) if sparse else stack(axes)


def meshgrid(*arrays: ArrayLike, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """Return the coordinate arrays of the grid over these vectors; "xy" swaps the first two axes, "ij" does not.

    With `sparse` they have size 1 along the axes of the other vectors.
    """
    if indexing not in ("xy", "ij"):
        refuse(ArgumentError(f"meshgrid: indexing {indexing!r}; expected 'xy' or 'ij'"))
    vectors = [asarray(x) for x in arrays]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = 1, 0
    sizes = [vectors[k].size for k in order]
    columns = [reshape(x, [x.size if a == order.index(k) else 1 for a in range(len(vectors))]) for k, x in enumerate(vectors)]
    return columns if sparse else [broadcast_to(column, sizes) for column in columns]

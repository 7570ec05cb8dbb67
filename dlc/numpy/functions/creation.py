"""Creation: plain NumPy arrays, which a traced function holds as constants, unless a traced value goes into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import element_type
from dlc.dims import Dim, never_negative
from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer, blamed_on_user, is_number
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Operand,
    apply,
    by_numpy,
    convert,
    given_dtype,
    has_open_size,
    has_tracer,
    operand,
    promote,
    promote_to_float,
    refuse,
    sizes_of,
)
from dlc.numpy.by_parts import by_parts
from dlc.numpy.functions.comparing import equal, greater_equal, maximum
from dlc.numpy.functions.elementwise import add, divide, floor, floor_divide, multiply, negative, power, subtract, where
from dlc.numpy.namespace import check_device
from dlc.numpy.places import numbers_below

__all__ = [
    "arange", "array", "asarray", "copy", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "geomspace",
    "identity", "indices", "linspace", "logspace", "meshgrid", "ones", "ones_like", "tri", "tril", "tril_indices", "triu",
    "triu_indices", "vander", "zeros", "zeros_like",
]  # fmt: skip

Shape = int | Sequence[int]


def asarray(x: ArrayLike, /, dtype: AnyDType = None, *, device: str | None = None, copy: bool | None = None) -> Any:
    """`x` as an array, with `dtype` if that is given; lists may hold traced arrays."""
    check_device(device)
    x = operand(x) if dtype is None else convert(x, dtype)
    return np.array(x) if copy and isinstance(x, np.ndarray) else x


def array(x: ArrayLike, /, dtype: AnyDType = None) -> Any:
    """`x` as an array, with `dtype` if that is given; lists may hold traced arrays."""
    return asarray(x, dtype, copy=True)


@by_parts("x")
def copy(x: ArrayLike, /) -> Any:
    """`x`, in memory of its own."""
    return asarray(x, copy=True)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Array:
    """The memory of another library's array as an array; a copy of it if `copy`."""
    check_device(device)
    try:
        array = np.from_dlpack(x)
    except (AttributeError, BufferError, TypeError) as error:
        return refuse(DTypeError(f"from_dlpack: {type(x).__name__} has no array that NumPy can take: {error}"))
    return array.copy() if copy else array


def _known(name: str, shape: Shape) -> tuple[Any, ...]:
    """A shape, of which no size may be traced."""
    if has_tracer(shape):
        refuse(UnsupportedError(f"{name}: a size that is a traced value; sizes must be known: pass it in static_argnames"))
    return sizes_of(name, shape)


def _filled(name: str, shape: Shape, value: int, dtype: AnyDType) -> Array:
    return by_numpy(name, np.ones if value else np.zeros, _known(name, shape), given_dtype(dtype))


def zeros(shape: Shape, dtype: AnyDType = np.float32, *, device: str | None = None) -> Array:
    """Zeros; float32 unless told otherwise."""
    check_device(device)
    return full(shape, 0, dtype) if has_open_size(shape) else _filled("zeros", shape, 0, dtype)


def ones(shape: Shape, dtype: AnyDType = np.float32, *, device: str | None = None) -> Array:
    """Ones; float32 unless told otherwise."""
    check_device(device)
    return full(shape, 1, dtype) if has_open_size(shape) else _filled("ones", shape, 1, dtype)


def empty(shape: Shape, dtype: AnyDType = np.float32, *, device: str | None = None) -> Array:
    """Zeros, as a traced function has no memory to leave as it is; float32 unless told otherwise."""
    check_device(device)
    return full(shape, 0, dtype) if has_open_size(shape) else _filled("empty", shape, 0, dtype)


def full(shape: Shape, fill_value: ArrayLike, dtype: AnyDType = None, *, device: str | None = None) -> Any:
    """One value, or what broadcasts, everywhere; of the value's dtype, where a number's are float32, int64 and bool."""
    check_device(device)
    if dtype is None:
        dtype = np.float32 if isinstance(fill_value, float) and is_number(fill_value) else operand(fill_value).dtype
    shape = _known("full", shape)
    if not has_tracer(fill_value) and not has_open_size(shape):
        return by_numpy("full", np.full, shape, convert(fill_value, dtype))
    return apply(dl.BroadcastToOp, convert(fill_value, dtype), shape=shape)


def zeros_like(x: ArrayLike, /, dtype: AnyDType = None, *, device: str | None = None) -> Array:
    """Zeros with the shape and dtype of `x`."""
    return full_like(x, 0, dtype, device=device)


def ones_like(x: ArrayLike, /, dtype: AnyDType = None, *, device: str | None = None) -> Array:
    """Ones with the shape and dtype of `x`."""
    return full_like(x, 1, dtype, device=device)


def empty_like(x: ArrayLike, /, dtype: AnyDType = None, *, device: str | None = None) -> Array:
    """Zeros with the shape and dtype of `x`, as a traced function has no memory to leave as it is."""
    return full_like(x, 0, dtype, device=device)


def full_like(x: ArrayLike, /, fill_value: ArrayLike, dtype: AnyDType = None, *, device: str | None = None) -> Any:
    """One value, or what broadcasts, everywhere, with the shape and dtype of `x`."""
    x = operand(x)
    return full(x.shape, fill_value, x.dtype if dtype is None else dtype, device=device)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: AnyDType = None, device: str | None = None
) -> Array:
    """start, start + step, … before stop (0, 1, … before `start` if `stop` is None); int64, with a float float32."""
    check_device(device)
    bounds = (start,) if stop is None else (start, stop, step)
    if dtype is None and not has_tracer(bounds) and any(isinstance(x, float) for x in bounds):
        dtype = np.float32
    if has_tracer(bounds) or has_open_size(bounds):
        first, last = (0, start) if stop is None else (start, stop)
        found = _of_sizes(first, last, step, dtype or np.int64)
        return _counted(first, last, step, dtype) if found is None else found
    return by_numpy("arange", np.arange, *bounds, dtype=dtype)


def _of_sizes(start: Any, stop: Any, step: Any, dtype: AnyDType) -> Any:
    """start, start + step, … before stop between sizes; None where how many there are is not seen."""
    if not (isinstance(start, int | Dim) and isinstance(stop, int | Dim) and isinstance(step, int) and step):
        return None
    span = stop - start if step > 0 else start - stop
    count = (span + abs(step) - 1) // abs(step)
    if not never_negative(count):
        return None
    with blamed_on_user():
        to = element_type(given_dtype(dtype))
        if isinstance(start, int):
            return apply(dl.IotaOp, size=(count,), to=to, start=start, step=step)
        return convert(add(apply(dl.IotaOp, size=(count,), to=element_type(np.int64), start=0, step=step), start), dtype)


def _counted(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    """start, start + step, … before stop, of which data says how many there are: ⌈(stop − start) / step⌉."""
    first, last, by = promote(start, stop, step)
    if first.ndim or last.ndim or by.ndim:
        refuse(ShapeError(f"arange: bounds of shapes {first.shape}, {last.shape} and {by.shape}; expected numbers"))
    count = negative(floor_divide(subtract(first, last), by))
    numbers = add(first, multiply(convert(numbers_below(operand(count)), first.dtype), by))
    return numbers if dtype is None else convert(numbers, given_dtype(dtype))


def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    /,
    num: int = 50,
    *,
    endpoint: bool = True,
    dtype: AnyDType = None,
    device: str | None = None,
) -> Any:
    """`num` numbers at equal distances from start to stop, along a new first axis; float32 unless told otherwise."""
    check_device(device)
    dtype = given_dtype(_float_of(dtype, start, stop))
    if not has_tracer((start, stop)) and not has_open_size((start, stop, num)):
        numbers = by_numpy("linspace", np.linspace, operand(start), operand(stop), num, endpoint=endpoint)
        return (np.floor(numbers) if dtype.kind in "iu" else numbers).astype(dtype)
    first, last = promote_to_float(start, stop)
    rank = max(first.ndim, last.ndim)
    parts = convert(maximum(num - 1 if endpoint else num, 1), first.dtype)
    place = convert(apply(dl.ReshapeOp, arange(num), shape=(num, *[1] * rank)), first.dtype)
    numbers = add(first, multiply(divide(subtract(last, first), parts), place))
    # The last one is exact; one alone is the first.
    numbers = where(greater_equal(place, parts), last, numbers) if endpoint else numbers
    return convert(floor(numbers) if dtype.kind in "iu" else numbers, dtype)


def _float_of(dtype: Any, *xs: ArrayLike) -> Any:
    """`dtype`, or the one of numbers at distances between these: float32 if they have none of their own."""
    if dtype is not None:
        return dtype
    own = [x for x in xs if isinstance(x, Tracer | np.ndarray | np.generic)]
    return promote_to_float(*own)[0].dtype if own else np.float32


def logspace(
    start: ArrayLike, stop: ArrayLike, /, num: int = 50, *, endpoint: bool = True, base: float = 10.0, dtype: AnyDType = None
) -> Any:
    """`num` powers of `base` with exponents at equal distances; float32 unless told otherwise."""
    if has_tracer((start, stop)):
        return convert(power(base, linspace(start, stop, num, endpoint=endpoint)), _float_of(dtype, start, stop))
    bounds = operand(start), operand(stop)
    return by_numpy("logspace", np.logspace, *bounds, num, endpoint=endpoint, base=base).astype(_float_of(dtype, start, stop))


def geomspace(start: ArrayLike, stop: ArrayLike, /, num: int = 50, *, endpoint: bool = True, dtype: AnyDType = None) -> Any:
    """`num` numbers of equal ratios from start to stop, both of one sign; float32 unless told otherwise."""
    if has_tracer((start, stop)):
        first, last = promote_to_float(start, stop)
        rank = max(first.ndim, last.ndim)
        share = by_numpy("geomspace", np.linspace, 0, 1, num, endpoint=endpoint).reshape(-1, *[1] * rank).astype(first.dtype)
        numbers = multiply(first, power(divide(last, first), share))
        # The last one is exact.
        return convert(where(greater_equal(share, 1), last, numbers), _float_of(dtype, start, stop))
    bounds = operand(start), operand(stop)
    return by_numpy("geomspace", np.geomspace, *bounds, num, endpoint=endpoint).astype(_float_of(dtype, start, stop))


def eye(n: int, m: int | None = None, /, k: int = 0, dtype: AnyDType = np.float32, *, device: str | None = None) -> Any:
    """Ones on the diagonal `k` above the main one of an n × m matrix (n × n if `m` is None); float32 unless told otherwise."""
    check_device(device)
    if has_open_size((n, m, k)):
        rows, columns = _known("eye", (n, n if m is None else m))
        return convert(equal(add(_column(rows), k), arange(columns)), dtype)
    return by_numpy("eye", np.eye, n, m, k, dtype=dtype)


def identity(n: int, /, dtype: AnyDType = np.float32) -> Array:
    """Ones on the diagonal of an n × n matrix; float32 unless told otherwise."""
    return eye(n, dtype=dtype) if has_open_size(n) else by_numpy("identity", np.eye, n, dtype=dtype)


def tri(n: int, m: int | None = None, /, k: int = 0, dtype: AnyDType = np.float32) -> Any:
    """Ones on and below the diagonal `k` above the main one of an n × m matrix; float32 unless told otherwise."""
    if has_open_size((n, m, k)):
        rows, columns = _known("tri", (n, n if m is None else m))
        return convert(greater_equal(add(_column(rows), k), arange(columns)), dtype)
    return by_numpy("tri", np.tri, n, m, k, dtype=dtype)


def _column(rows: Any) -> Any:
    """0, 1, … rows - 1 as a column."""
    return apply(dl.ReshapeOp, arange(rows), shape=(rows, 1))


@by_parts("x")
def tril(x: ArrayLike, /, k: int = 0) -> Any:
    """The elements on and below the diagonal `k` above the main one of the last two axes, others 0."""
    x = operand(x)
    return where(_lower(x, k), x, np.zeros((), x.dtype))


@by_parts("x")
def triu(x: ArrayLike, /, k: int = 0) -> Any:
    """The elements on and above the diagonal `k` above the main one of the last two axes, others 0."""
    x = operand(x)
    return where(_lower(x, k - 1), np.zeros((), x.dtype), x)


def _lower(x: Operand, k: int) -> Any:
    if x.ndim < 2:
        refuse(ShapeError(f"tril, triu: an array of shape {x.shape} is no matrix"))
    rows, columns = x.shape[-2:]
    return tri(rows, columns, k, np.bool_)


def tril_indices(n: int, /, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The rows and columns of the elements on and below a diagonal of an n × m matrix."""
    return by_numpy("tril_indices", np.tril_indices, n, k, m)


def triu_indices(n: int, /, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The rows and columns of the elements on and above a diagonal of an n × m matrix."""
    return by_numpy("triu_indices", np.triu_indices, n, k, m)


def vander(x: ArrayLike, /, n: int | None = None, *, increasing: bool = False) -> Any:
    """The powers n - 1, …, 1, 0 of a vector as the columns of a matrix; in the other order if `increasing`."""
    x = operand(x)
    if x.ndim != 1:
        refuse(ShapeError(f"vander: an array of shape {x.shape}; expected a vector"))
    count = x.shape[0] if n is None else n
    exponents = arange(count) if increasing else subtract(count - 1, arange(count))
    powers = convert(exponents, x.dtype)
    return apply(dl.PowOp, apply(dl.ReshapeOp, x, shape=(*x.shape, 1)), powers)


def indices(dimensions: Sequence[int], dtype: AnyDType = np.int64) -> Array:
    """The index of each place of a shape: along a new first axis, one entry per axis."""
    return by_numpy("indices", np.indices, dimensions, dtype)


def meshgrid(*arrays: ArrayLike, indexing: str = "xy") -> list[Any]:
    """The coordinates of the grid over these vectors, one array each; "xy" exchanges the first two axes, "ij" does not."""
    vectors = [operand(x) for x in arrays]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = 1, 0
    sizes = [vectors[k].size for k in order]
    return [
        apply(
            dl.BroadcastToOp,
            apply(dl.ReshapeOp, x, shape=[x.size if a == order.index(k) else 1 for a in range(len(vectors))]),
            shape=sizes,
        )
        for k, x in enumerate(vectors)
    ]

"""Methods of NumPy's ufuncs on traced arrays: `np.logaddexp.reduce(x)`, `np.maximum.accumulate(x)`, `np.subtract.outer(x, y)`.

NumPy dispatches the methods to `call_method`. The functions of dlc.numpy have the same methods: `dnp.maximum.accumulate(x)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, cast

import numpy as np

from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import Complex
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import Operand, convert, normalize_axes, normalize_axis, operand, refuse
from dlc.numpy.functions import cumulative, reductions
from dlc.numpy.functions.creation import full
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.shape_manipulation import slice_axis, squeeze

# The function for the method `reduce` of a ufunc: np.add.reduce is np.sum along axis 0.
_REDUCE: Mapping[np.ufunc, Callable[..., Any]] = {
    np.add: reductions.sum, np.multiply: reductions.prod, np.maximum: reductions.max, np.minimum: reductions.min,
    np.logical_and: reductions.all, np.logical_or: reductions.any,
}  # fmt: skip

# Other associative ufuncs: an axis is reduced in halves.
_ASSOCIATIVE = (
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.fmax, np.fmin, np.gcd, np.hypot, np.lcm, np.logaddexp, np.logaddexp2,
    np.logical_xor,
)  # fmt: skip

# The functions whose accumulation is a cumulative operation; that of the other ufuncs is a scan by recursive doubling.
_CUMULATIVE: Mapping[np.ufunc, Callable[..., Any]] = {np.add: cumulative.cumsum, np.multiply: cumulative.cumprod}

_LOGICAL = (np.logical_and, np.logical_or, np.logical_xor)

_METHODS = ("accumulate", "at", "outer", "reduce", "reduceat")


def add_methods(namespace: ModuleType) -> None:
    """Add the methods of NumPy's binary ufuncs to the functions of the same names."""
    for name in namespace.__all__:
        function, ufunc = getattr(namespace, name), getattr(np, name, None)
        if not (inspect.isfunction(function) and isinstance(ufunc, np.ufunc)):
            continue
        if (ufunc.nin, ufunc.nout, ufunc.signature) == (2, 1, None):
            for method in _METHODS:
                setattr(function, method, getattr(ufunc, method))


def call_method(ufunc: np.ufunc, method: str, operands: tuple[Any, ...], settings: Mapping[str, Any]) -> Any:
    """Call a method of a ufunc on traced arrays. Raises UnsupportedError if the ufunc is not associative."""
    name = f"numpy.{ufunc.__name__}.{method}"
    if method == "at":
        problem = f"{name} writes into an array, which a traced function cannot do"
        refuse(UnsupportedError(f"{problem}; assign the result of x.at[indices].add(values), .multiply, .max or .min"))
    if method == "outer":
        first, second = (x if isinstance(x, Complex) else operand(x) for x in operands)
        column = cast(Any, first).reshape((*first.shape, *(1 for _ in second.shape)))
        return ufunc(column, second, **settings)
    if method not in _METHODS or (ufunc not in _REDUCE and ufunc not in _ASSOCIATIVE):
        refuse(UnsupportedError(f"{name} on a traced array; use the functions of dlc.numpy"))
    if ufunc not in _REDUCE and (unsupported := settings.keys() - {"axis", "dtype", "keepdims"}):
        refuse(UnsupportedError(f"{name} with {', '.join(sorted(unsupported))} on a traced array"))
    if method == "reduce":
        return _reduction(ufunc)(operands[0], *(operands[1:] or (() if "axis" in settings else (0,))), **settings)
    return {"accumulate": _accumulate, "reduceat": _reduceat}[method](ufunc, *operands, **settings)


def _reduction(ufunc: np.ufunc) -> Callable[..., Any]:
    return _REDUCE.get(ufunc, partial(_reduce, ufunc))


def _reduce(ufunc: np.ufunc, array: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """Return the reduction along axes by an associative ufunc, in halves."""
    name = f"numpy.{ufunc.__name__}.reduce"
    x: Any = _with_result_dtype(ufunc, name, array, dtype)
    axes = normalize_axes(name, x, axis)
    identity = ufunc.identity
    for k in axes:
        size = x.shape[k]
        if size == 0:
            problem = f"{name}: axis {k} of shape {x.shape} is empty; this ufunc has no identity"
            value: Any = refuse(ShapeError(problem)) if identity is None else identity
            x = full((*x.shape[:k], 1, *x.shape[k + 1 :]), value, dtype=x.dtype)
        while size > 1:
            half = size // 2
            combined = ufunc(slice_axis(x, k, 0, half), slice_axis(x, k, half, 2 * half))
            x = combined if size == 2 * half else concat([combined, slice_axis(x, k, 2 * half, size)], axis=k)
            size -= half
    return x if keepdims else squeeze(x, axis=axes)


def _accumulate(ufunc: np.ufunc, array: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Return the inclusive scan by an associative ufunc along `axis`."""
    name = f"numpy.{ufunc.__name__}.accumulate"
    axis = normalize_axis(name, operand(array), axis)
    if ufunc in _CUMULATIVE:
        return _CUMULATIVE[ufunc](array, axis, dtype)
    return cumulative.associative_scan(ufunc, _with_result_dtype(ufunc, name, array, dtype), axis)


def _reduceat(ufunc: np.ufunc, array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Return the reduction of each segment, from an index to the next one; a segment has at least one element."""
    name = f"numpy.{ufunc.__name__}.reduceat"
    x = operand(array)
    axis = normalize_axis(name, x, axis)
    if isinstance(indices, Tracer):
        refuse(UnsupportedError(f"{name} at indices of a traced array; use x.at[segments].add, or static indices"))
    first: list[int] = np.asarray(indices, np.int64).tolist()
    settings = {} if dtype is None else {"dtype": dtype}

    def reduced(part: Any) -> Any:
        return _reduction(ufunc)(part, axis=axis, keepdims=True, **settings)

    if not first:
        return slice_axis(reduced(x), axis, 0, 0)
    bounds = zip(first, [*first[1:], x.shape[axis]], strict=True)
    parts = (slice_axis(x, axis, start, stop if stop > start else start + 1) for start, stop in bounds)
    return concat([reduced(part) for part in parts], axis=axis)


def _with_result_dtype(ufunc: np.ufunc, name: str, array: Any, dtype: Any) -> Operand:
    """Return the array with the dtype of the ufunc's result."""
    x = operand(array)
    if ufunc in _LOGICAL:
        if dtype is not None and np.dtype(dtype) != np.bool_:
            refuse(DTypeError(f"{name}: dtype {np.dtype(dtype)}; expected bool"))
        return convert(x, np.bool_)
    if dtype is not None:
        return convert(x, dtype)
    try:
        return convert(x, ufunc.resolve_dtypes((x.dtype, x.dtype, None))[-1])
    except TypeError:
        return refuse(DTypeError(f"{name}: dtype {x.dtype} is not supported"))

"""NumPy protocols: NumPy's own functions called on Tracers and on complex arrays of Tracers.

`np.tanh(x)`, `np.linalg.norm(x)` and `np.fft.fft(x)` dispatch to the functions of the same name in dlc.numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from dlc.errors import DTypeError, UnsupportedError
from dlc.frontend.complex_numbers import Complex
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import convert, normalize_axis, operand, refuse
from dlc.numpy.functions import cumulative, reductions
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.shape_manipulation import reshape, slice_axis

# The function for the method `reduce` of each ufunc: np.add.reduce is np.sum along axis 0.
_REDUCE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: reductions.sum, np.multiply: reductions.prod, np.maximum: reductions.max, np.minimum: reductions.min,
    np.logical_and: reductions.all, np.logical_or: reductions.any,
}  # fmt: skip


# The functions whose accumulation is a cumulative operation; that of the others in _REDUCE is a scan by recursive doubling.
_CUMULATIVE: dict[np.ufunc, Callable[..., Any]] = {np.add: cumulative.cumsum, np.multiply: cumulative.cumprod}

_LOGICAL = (np.logical_and, np.logical_or)


def _accumulate(ufunc: np.ufunc, array: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Return the inclusive scan by `ufunc` along `axis`."""
    name = f"numpy.{ufunc.__name__}.accumulate"
    axis = normalize_axis(name, operand(array), axis)
    if ufunc in _CUMULATIVE:
        return _CUMULATIVE[ufunc](array, axis, dtype)
    if ufunc in _LOGICAL:
        if dtype is not None and np.dtype(dtype) != np.bool_:
            refuse(DTypeError(f"{name}: dtype {np.dtype(dtype)}; expected bool"))
        dtype = np.bool_
    x: Any = operand(array) if dtype is None else convert(array, dtype)
    size, shift = x.shape[axis], 1
    while shift < size:
        # Element i has the result of the last `shift` elements up to i.
        combined = ufunc(slice_axis(x, axis, shift, size), slice_axis(x, axis, 0, size - shift))
        x = concat([slice_axis(x, axis, 0, shift), combined], axis=axis)
        shift *= 2
    return x


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
        return _REDUCE[ufunc](part, axis=axis, keepdims=True, **settings)

    if not first:
        return slice_axis(reduced(x), axis, 0, 0)
    bounds = zip(first, [*first[1:], x.shape[axis]], strict=True)
    parts = (slice_axis(x, axis, start, stop if stop > start else start + 1) for start, stop in bounds)
    return concat([reduced(part) for part in parts], axis=axis)


def install(namespace: ModuleType) -> None:
    """Implement NumPy's dispatch protocols on Tracers by the functions of `namespace`."""

    def __array_ufunc__(_: Tracer, ufunc: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
        if "out" in settings:
            problem = f"numpy.{ufunc.__name__} with out= writes into an array, which a traced function cannot do"
            refuse(UnsupportedError(f"{problem}; assign the result: z = dlc.numpy.{ufunc.__name__}(x, y), not x += y"))
        if method == "__call__":
            return _call(namespace, "numpy", ufunc.__name__, operands, settings)
        if method == "reduce" and ufunc in _REDUCE:
            return _REDUCE[ufunc](operands[0], **({"axis": 0} | settings))
        if method == "accumulate" and (ufunc in _CUMULATIVE or ufunc in _REDUCE):
            return _accumulate(ufunc, *operands, **settings)
        if method == "reduceat" and ufunc in _REDUCE:
            return _reduceat(ufunc, *operands, **settings)
        if method == "at":
            problem = f"numpy.{ufunc.__name__}.at writes into an array, which a traced function cannot do"
            refuse(UnsupportedError(f"{problem}; assign the result of x.at[indices].add(values), .multiply, .max or .min"))
        if method == "outer":
            first, second = (operand(x) for x in operands)
            column = reshape(first, (*first.shape, *(1 for _ in second.shape)))
            return _call(namespace, "numpy", ufunc.__name__, (column, second), settings)
        return refuse(UnsupportedError(f"numpy.{ufunc.__name__}.{method} on a traced array; use the functions of dlc.numpy"))

    def __array_function__(_: Tracer, function: Any, types: Any, arguments: Any, settings: Mapping[str, Any]) -> Any:
        return _call(namespace, function.__module__, function.__name__, arguments, settings)

    def __array_namespace__(_: Tracer, *, api_version: str | None = None) -> ModuleType:
        return namespace

    for function in (__array_ufunc__, __array_function__, __array_namespace__):
        for array in (Tracer, Complex):
            setattr(array, function.__name__, function)


def _call(namespace: Any, module: str, name: str, arguments: tuple[Any, ...], settings: Mapping[str, Any]) -> Any:
    """Call the function of the namespace with the name of a NumPy function. Raises UnsupportedError if there is none."""
    where = f"{module}.{name} on a traced array"
    try:
        function = getattr({"numpy.linalg": namespace.linalg, "numpy.fft": namespace.fft}.get(module, namespace), name)
    except AttributeError as error:
        return refuse(UnsupportedError(f"{where}: {error}"))
    return function(*arguments, **settings)

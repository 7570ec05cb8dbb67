"""NumPy's own functions called on Tracers, on complex numbers of them, and on sizes that come with a call.

`np.tanh(x)`, `np.linalg.norm(x)` and `np.fft.fft(x)` are those of the same name in dlc.numpy.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from dlc.dims import Dim
from dlc.errors import UnsupportedError
from dlc.frontend.complex_numbers import Complex
from dlc.frontend.trace import Tracer, current_trace
from dlc.misuse import unexplained
from dlc.numpy.apply import operand, refuse
from dlc.numpy.functions import reductions
from dlc.numpy.functions.complex_numbers import RULES
from dlc.numpy.functions.shaping import reshape

# The reductions that are methods of NumPy's functions of elements: np.add.reduce is np.sum along axis 0.
_REDUCE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: reductions.sum, np.multiply: reductions.prod, np.maximum: reductions.max, np.minimum: reductions.min,
    np.logical_and: reductions.all, np.logical_or: reductions.any,
}  # fmt: skip


# What these make of sizes and whole numbers of NumPy's is a size.
_OF_SIZES: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.floor_divide: operator.floordiv,
    np.remainder: operator.mod, np.power: operator.pow,
}  # fmt: skip


def install(namespace: ModuleType) -> None:
    """Makes NumPy's functions on Tracers those of `namespace`, by NumPy's protocols."""

    def __array_ufunc__(_: Tracer | Dim, ufunc: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
        if "out" in settings:
            problem = f"numpy.{ufunc.__name__} writes into an array, which a traced function cannot"
            refuse(UnsupportedError(f"{problem}; make a new one: z = dlc.numpy.{ufunc.__name__}(x, y), not x += y"))
        if method == "__call__":
            return _call(namespace, "numpy", ufunc.__name__, operands, settings)
        if method == "reduce" and ufunc in _REDUCE:
            return _REDUCE[ufunc](operands[0], **({"axis": 0} | settings))
        if method == "outer":
            first, second = (operand(x) for x in operands)
            column = reshape(first, (*first.shape, *(1 for _ in second.shape)))
            return _call(namespace, "numpy", ufunc.__name__, (column, second), settings)
        return refuse(UnsupportedError(f"numpy.{ufunc.__name__}.{method} on a traced array; use functions of dlc.numpy"))

    def of_sizes(size: Dim, ufunc: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
        if ufunc in _OF_SIZES and not settings and all(isinstance(x, Dim | int | np.integer) for x in operands):
            return _OF_SIZES[ufunc](*(x if isinstance(x, Dim) else int(x) for x in operands))
        return NotImplemented if current_trace() is None else __array_ufunc__(size, ufunc, method, *operands, **settings)

    def __array_function__(_: Tracer, function: Any, types: Any, arguments: Any, settings: Mapping[str, Any]) -> Any:
        return _call(namespace, function.__module__, function.__name__, arguments, settings)

    def __array_namespace__(_: Tracer, *, api_version: str | None = None) -> ModuleType:
        return namespace

    Dim.__array_ufunc__ = of_sizes  # pyright: ignore[reportAttributeAccessIssue]
    for function in (__array_ufunc__, __array_function__, __array_namespace__):
        for array in (Tracer, Complex):
            setattr(array, function.__name__, function)


def _call(namespace: Any, module: str, name: str, arguments: tuple[Any, ...], settings: Mapping[str, Any]) -> Any:
    """Calls the function of the namespace that is called as this one of NumPy's; UnsupportedError if it is another."""
    where = f"{module}.{name} on a traced array"
    try:
        found = getattr({"numpy.linalg": namespace.linalg, "numpy.fft": namespace.fft}.get(module, namespace), name)
    except AttributeError as error:
        return refuse(UnsupportedError(f"{where}: {error}"))
    if any(isinstance(x, Complex) for x in arguments):
        found = RULES.get(unexplained(found), found)
    try:
        inspect.signature(found).bind(*arguments, **settings)
    except TypeError as error:
        parameters = ", ".join(inspect.signature(found).parameters)
        return refuse(UnsupportedError(f"{where}: {error}; dlc has {name}({parameters})"))
    return found(*arguments, **settings)

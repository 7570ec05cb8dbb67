"""NumPy protocols: NumPy's own functions called on Tracers and on complex arrays of Tracers.

`np.tanh(x)`, `np.linalg.norm(x)` and `np.fft.fft(x)` dispatch to the functions of the same name in dlc.numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from dlc.errors import UnsupportedError
from dlc.frontend.complex_numbers import Complex
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import operand, refuse
from dlc.numpy.functions import reductions
from dlc.numpy.functions.shape_manipulation import reshape

# The function for the method `reduce` of each ufunc: np.add.reduce is np.sum along axis 0.
_REDUCE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: reductions.sum, np.multiply: reductions.prod, np.maximum: reductions.max, np.minimum: reductions.min,
    np.logical_and: reductions.all, np.logical_or: reductions.any,
}  # fmt: skip


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

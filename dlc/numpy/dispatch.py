"""NumPy protocols: NumPy's own functions called on Tracers and on complex arrays of Tracers.

`np.tanh(x)`, `np.linalg.norm(x)` and `np.fft.fft(x)` dispatch to the functions of the same name in dlc.numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from dlc.errors import UnsupportedError
from dlc.frontend.complex_numbers import Complex
from dlc.frontend.trace import Tracer
from dlc.numpy import ufunc_methods
from dlc.numpy.apply import refuse


def install(namespace: ModuleType) -> None:
    """Implement NumPy's dispatch protocols on Tracers by the functions of `namespace`."""

    def __array_ufunc__(_: Tracer, ufunc: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
        if "out" in settings:
            problem = f"numpy.{ufunc.__name__} with out= writes into an array, which a traced function cannot do"
            refuse(UnsupportedError(f"{problem}; assign the result: z = dlc.numpy.{ufunc.__name__}(x, y), not x += y"))
        if method == "__call__":
            return _call(namespace, "numpy", ufunc.__name__, operands, settings)
        return ufunc_methods.call_method(ufunc, method, operands, settings)

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

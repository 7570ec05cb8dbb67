"""Operators and methods of arrays, on Tracers, and NumPy's own functions called on them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dlc.errors import UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy import comparing as cmp
from dlc.numpy import elementwise as ew
from dlc.numpy import indexing, linear, reductions, running, shaping, sorting
from dlc.numpy.apply import is_weak, refuse


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """What numbers make is a number, as in Python: still without a dtype of its own."""

    def operator(*xs: Any) -> Any:
        result = function(*xs)
        if all(map(is_weak, xs)):
            for part in result if isinstance(result, tuple) else (result,):
                part.weak = True
        return result

    return operator


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    def reflected(x: Any, y: Any) -> Any:
        return function(y, x)

    return reflected


def _reshape(x: Tracer, *shape: Any, **settings: Any) -> Any:
    return shaping.reshape(x, shape[0] if len(shape) == 1 else shape, **settings)


def _transpose(x: Tracer, *axes: Any) -> Any:
    given: Any = axes[0] if len(axes) == 1 else axes
    return shaping.transpose(x, given or None)


def _rounded(x: Tracer, decimals: int | None = None) -> Any:
    return ew.round(x, decimals or 0)


_BINARY: dict[str, Callable[..., Any]] = {
    "add": ew.add, "sub": ew.subtract, "mul": ew.multiply, "truediv": ew.divide, "floordiv": ew.floor_divide,
    "mod": ew.remainder, "divmod": ew.divmod, "pow": ew.power, "matmul": linear.matmul, "and": cmp.bitwise_and,
    "or": cmp.bitwise_or, "xor": cmp.bitwise_xor, "lshift": cmp.bitwise_left_shift, "rshift": cmp.bitwise_right_shift,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": cmp.equal, "ne": cmp.not_equal, "lt": cmp.less, "le": cmp.less_equal, "gt": cmp.greater, "ge": cmp.greater_equal,
}  # fmt: skip
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": ew.negative, "pos": ew.positive, "abs": ew.abs, "invert": cmp.bitwise_invert,
}  # fmt: skip
_METHODS: dict[str, Callable[..., Any]] = {
    "__getitem__": indexing.getitem, "__round__": _rounded, "reshape": _reshape, "transpose": _transpose,
    "flatten": shaping.ravel, "copy": ew.positive, "conjugate": ew.conj,
    **{f.__name__: f for f in (
        ew.astype, ew.clip, ew.conj, ew.round, linear.dot, linear.trace, indexing.choose, indexing.take, sorting.argsort,
        sorting.searchsorted, sorting.sort, shaping.diagonal, shaping.ravel, shaping.repeat, shaping.squeeze, shaping.swapaxes,
        running.cumprod, running.cumsum, reductions.all, reductions.any, reductions.argmax, reductions.argmin, reductions.max,
        reductions.mean, reductions.min, reductions.prod, reductions.ptp, reductions.std, reductions.sum, reductions.var,
    )},
}  # fmt: skip
_PROPERTIES: dict[str, Callable[[Tracer], Any]] = {
    "T": shaping.transpose, "mT": shaping.matrix_transpose, "at": indexing.At, "flat": shaping.ravel, "real": ew.conj,
}  # fmt: skip


def _methods() -> dict[str, Callable[..., Any]]:
    named = {f"__{name}__": _operator(f) for name, f in (_BINARY | _COMPARISONS | _UNARY).items()}
    reflected = {f"__r{name}__": _operator(_reflected(f)) for name, f in _BINARY.items()}
    return named | reflected | _METHODS


# The reductions that are methods of NumPy's functions of elements: np.add.reduce is np.sum along axis 0.
_REDUCE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: reductions.sum, np.multiply: reductions.prod, np.maximum: reductions.max, np.minimum: reductions.min,
    np.logical_and: reductions.all, np.logical_or: reductions.any,
}  # fmt: skip


def _call_ufunc(module: Any, ufunc: np.ufunc, method: str, operands: tuple[Any, ...], settings: Mapping[str, Any]) -> Any:
    """What `np.add(x, y)` and its like do when an operand is a Tracer."""
    if "out" in settings:
        problem = f"numpy.{ufunc.__name__} writes into an array, which a traced function cannot"
        refuse(UnsupportedError(f"{problem}; make a new one: y = dlc.numpy.{ufunc.__name__}(…), not y += …"))
    if method == "__call__":
        operator = _ufunc_operators().get(ufunc)
        return operator(*operands) if operator and not settings else _call(module, ufunc.__name__, "numpy", operands, settings)
    if method == "reduce" and ufunc in _REDUCE:
        return _REDUCE[ufunc](operands[0], **{"axis": 0, **settings})
    if method == "outer":
        first, second = (
            shaping.reshape(x, (*np.shape(x), *(1,) * k)) for x, k in zip(operands, (np.ndim(operands[1]), 0), strict=True)
        )
        return _call(module, ufunc.__name__, "numpy", (first, second), settings)
    return refuse(UnsupportedError(f"numpy.{ufunc.__name__}.{method} on a traced array; write it with functions of dlc.numpy"))


@functools.cache
def _ufunc_operators() -> dict[np.ufunc, Callable[..., Any]]:
    """NumPy's functions behind the operators: an array on the left calls them, and a number stays a number."""
    names = {
        "sub": "subtract",
        "mul": "multiply",
        "mod": "remainder",
        "pow": "power",
        "lshift": "left_shift",
        "rshift": "right_shift",
        "truediv": "true_divide",
        "floordiv": "floor_divide",
        "eq": "equal",
        "ne": "not_equal",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "and": "bitwise_and",
        "or": "bitwise_or",
        "xor": "bitwise_xor",
    }
    return {getattr(np, names.get(name, name)): _operator(f) for name, f in (_BINARY | _COMPARISONS).items()}


def _call(module: Any, name: str, numpy_module: str, arguments: tuple[Any, ...], settings: Mapping[str, Any]) -> Any:
    """Calls the function of `dlc.numpy` that is named like one of NumPy's."""
    own = f"dlc.{numpy_module}"
    try:
        function = getattr(module.linalg if numpy_module == "numpy.linalg" else module, name)
    except AttributeError as error:
        return refuse(UnsupportedError(f"{numpy_module}.{name} on a traced array: {error}"))
    try:
        inspect.signature(function).bind(*arguments, **settings)
    except TypeError as error:
        return refuse(
            UnsupportedError(
                f"{numpy_module}.{name} on a traced array: {error}; it is {own}.{name}{inspect.signature(function)}"
            )
        )
    return function(*arguments, **settings)


def install(module: Any) -> None:
    """Gives Tracer the operators and methods of an array; equality is elementwise, so Tracers hash by identity.

    NumPy's functions on Tracers become those of `module`, which is dlc.numpy.
    """
    for name, function in _methods().items():
        setattr(Tracer, name, function)
    for name, function in _PROPERTIES.items():
        setattr(Tracer, name, property(function))
    Tracer.__hash__ = object.__hash__  # pyright: ignore[reportAttributeAccessIssue]

    def __array_ufunc__(self: Tracer, ufunc: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
        return _call_ufunc(module, ufunc, method, operands, settings)

    def __array_function__(
        self: Tracer, function: Any, types: object, arguments: tuple[Any, ...], settings: Mapping[str, Any]
    ) -> Any:
        return _call(module, function.__name__, function.__module__, arguments, settings)

    def __array_namespace__(self: Tracer, *, api_version: str | None = None) -> Any:
        return module

    for function in (__array_ufunc__, __array_function__, __array_namespace__):
        setattr(Tracer, function.__name__, function)

"""Operators and methods of arrays, on Tracers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlc.frontend.trace import Tracer
from dlc.numpy import elementwise as ew
from dlc.numpy import linear, reductions, shaping
from dlc.numpy.apply import is_weak


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """What numbers make is a number, as in Python: still without a dtype of its own."""

    def operator(*xs: Any) -> Any:
        result: Tracer = function(*xs)
        result.weak = all(map(is_weak, xs))
        return result

    return operator


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    def reflected(x: Any, y: Any) -> Any:
        return function(y, x)

    return reflected


def _reshape(x: Tracer, *shape: Any) -> Any:
    return shaping.reshape(x, shape[0] if len(shape) == 1 else shape)


def _transpose(x: Tracer, *axes: Any) -> Any:
    given: Any = axes[0] if len(axes) == 1 else axes
    return shaping.transpose(x, given or None)


def _flatten(x: Tracer) -> Any:
    return shaping.reshape(x, -1)


_BINARY = {
    "add": ew.add, "sub": ew.subtract, "mul": ew.multiply, "truediv": ew.divide, "floordiv": ew.floor_divide,
    "mod": ew.remainder, "pow": ew.power, "matmul": linear.matmul, "and": ew.logical_and, "or": ew.logical_or,
}  # fmt: skip
_COMPARISONS = {
    "eq": ew.equal, "ne": ew.not_equal, "lt": ew.less, "le": ew.less_equal, "gt": ew.greater, "ge": ew.greater_equal,
}  # fmt: skip
_UNARY = {"neg": ew.negative, "abs": ew.abs, "invert": ew.logical_not}
_UFUNCS = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "truediv", np.floor_divide: "floordiv",
    np.remainder: "mod", np.power: "pow", np.matmul: "matmul", np.bitwise_and: "and", np.bitwise_or: "or", np.equal: "eq",
    np.not_equal: "ne", np.less: "lt", np.less_equal: "le", np.greater: "gt", np.greater_equal: "ge",
}  # fmt: skip
_METHODS: dict[str, Callable[..., Any]] = {
    "__getitem__": shaping.getitem, "astype": ew.astype, "clip": ew.clip, "reshape": _reshape, "transpose": _transpose,
    "squeeze": shaping.squeeze, "swapaxes": shaping.swapaxes, "flatten": _flatten, "ravel": _flatten,
    "sum": reductions.sum, "prod": reductions.prod, "mean": reductions.mean, "max": reductions.max, "min": reductions.min,
    "var": reductions.var, "std": reductions.std, "any": reductions.any, "all": reductions.all,
    "argmax": reductions.argmax, "argmin": reductions.argmin, "dot": linear.dot,
}  # fmt: skip


def install() -> None:
    """Gives Tracer the operators and methods of an array; equality is elementwise, so Tracers hash by identity."""
    for name, function in _BINARY.items():
        setattr(Tracer, f"__{name}__", _operator(function))
        setattr(Tracer, f"__r{name}__", _operator(_reflected(function)))
    for name, function in (_COMPARISONS | _UNARY).items():
        setattr(Tracer, f"__{name}__", _operator(function))
    Tracer.ufuncs.update({ufunc: (_BINARY | _COMPARISONS)[name] for ufunc, name in _UFUNCS.items()})
    for name, function in _METHODS.items():
        setattr(Tracer, name, function)
    Tracer.__hash__ = object.__hash__
    Tracer.T = property(shaping.transpose)  # pyright: ignore[reportAttributeAccessIssue]
    Tracer.mT = property(shaping.matrix_transpose)  # pyright: ignore[reportAttributeAccessIssue]

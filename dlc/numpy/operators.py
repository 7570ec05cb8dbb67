"""Operators and methods of arrays, on Tracers and on complex numbers of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

import numpy as np

from dlc.dims import Dim
from dlc.errors import DTypeError
from dlc.frontend.complex_numbers import Complex, is_complex
from dlc.frontend.trace import Tracer, at_user_line, current_trace
from dlc.misuse import explaining
from dlc.numpy.absent import ABSENT, raise_absent
from dlc.numpy.apply import is_weak
from dlc.numpy.by_parts import PARTWISE
from dlc.numpy.functions import comparing as cmp
from dlc.numpy.functions import (
    complex_numbers,
    counting,
    creation,
    indexing,
    linear,
    reductions,
    running,
    shaping,
    sorting,
    updating,
)
from dlc.numpy.functions import elementwise as ew

# What an open size may stand beside as a number.
_NUMBERS = (Dim, int, float, np.ndarray, np.generic, Tracer, Complex)


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """What numbers make is a number, as in Python: still without a dtype of its own. With complex ones go other rules."""
    of_complex = complex_numbers.rule_of(function)

    def operator(*xs: Any) -> Any:
        if any(map(is_complex, xs)):
            return of_complex(*xs)
        result: Any = function(*xs)
        if all(map(is_weak, xs)):
            parts = cast("tuple[Tracer, ...]", result if isinstance(result, tuple) else (result,))
            for part in parts:
                part.weak = True
        return cast(Any, result)

    return operator


def _reflected(operator: Callable[..., Any]) -> Callable[..., Any]:
    def reflected(x: Any, y: Any) -> Any:
        return operator(y, x)

    return reflected


def _beside_sizes(of_sizes: Callable[..., Any] | None, operator: Callable[..., Any]) -> Callable[..., Any]:
    """What sizes make with sizes is a size, where there is one; with other numbers and arrays an open size is a number."""

    def of_size(x: Dim, y: Any) -> Any:
        result = NotImplemented if of_sizes is None else of_sizes(x, y)
        if result is NotImplemented and isinstance(y, _NUMBERS) and current_trace() is not None:
            return operator(x, y)
        return result

    return of_size


def _reshape(x: Tracer, *shape: Any, **settings: Any) -> Any:
    return shaping.reshape(x, shape[0] if len(shape) == 1 else shape, **settings)


def _transpose(x: Tracer, *axes: Any) -> Any:
    given: Any = axes[0] if len(axes) == 1 else axes
    return shaping.transpose(x, given or None)


def _compress(x: Tracer, condition: Any, axis: int | None = None) -> Any:
    return counting.compress(condition, x, axis)


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
    "compress": _compress, "nonzero": counting.nonzero,
    "__getitem__": indexing.getitem, "__round__": _rounded, "reshape": _reshape, "transpose": _transpose,
    "flatten": shaping.ravel, "copy": creation.copy, "conjugate": complex_numbers.conj, "conj": complex_numbers.conj,
    **{f.__name__: f for f in (
        ew.astype, ew.clip, ew.round, linear.dot, linear.trace, indexing.choose, indexing.take, sorting.argsort,
        sorting.searchsorted, sorting.sort, shaping.diagonal, shaping.ravel, shaping.repeat, shaping.squeeze, shaping.swapaxes,
        running.cumprod, running.cumsum, reductions.all, reductions.any, reductions.argmax, reductions.argmin, reductions.max,
        reductions.mean, reductions.min, reductions.prod, reductions.ptp, reductions.std, reductions.sum, reductions.var,
    )},
}  # fmt: skip
_PROPERTIES: dict[str, Callable[[Tracer], Any]] = {
    "T": shaping.transpose, "mT": shaping.matrix_transpose, "at": updating.At, "flat": shaping.ravel,
    "real": complex_numbers.real, "imag": complex_numbers.imag,
}  # fmt: skip


def _attribute(x: Tracer, name: str) -> NoReturn:
    """What happens when an array of a traced function lacks an attribute."""
    raise_absent("an array of a traced function", name, ABSENT)


def _hash(x: Tracer) -> NoReturn:
    problem = f"a key of a dict, or a member of a set, must be known while the function is traced, and {x!r} is not"
    raise at_user_line(DTypeError(f"{problem}; use its place in a list, or keep it as a value of the dict"))


def install() -> None:
    """Gives Tracer the operators and methods of an array; equality is elementwise, so that it has no hash.

    Sizes that come with a call get those of numbers, beside the ones that make sizes of them.
    """
    for name, function in (_BINARY | _COMPARISONS).items():
        for array in (Tracer, Complex):
            setattr(array, f"__{name}__", _operator(function))
    for name, function in _BINARY.items():
        for array in (Tracer, Complex):
            setattr(array, f"__r{name}__", _reflected(_operator(function)))
    for name, function in _BINARY.items():
        operator = _operator(function)
        for method, order in ((f"__{name}__", operator), (f"__r{name}__", _reflected(operator))):
            setattr(Dim, method, _beside_sizes(getattr(Dim, method, None), order))
    Dim.__abs__ = _operator(ew.abs)  # pyright: ignore[reportAttributeAccessIssue]
    for name, function in _UNARY.items():
        setattr(Tracer, f"__{name}__", _operator(function))
    for name, function in _METHODS.items():
        setattr(Tracer, name, function if name.startswith("__") else explaining(f"array.{name}", function))
    for name, function in _PROPERTIES.items():
        setattr(Tracer, name, property(function))
    for name, function in _METHODS.items():
        if function in (*PARTWISE, _reshape, _transpose):
            setattr(Complex, name, function)
    for name, function in (("__neg__", ew.negative), ("__pos__", ew.positive)):
        setattr(Complex, name, function)
    for name in ("T", "mT", "flat"):
        setattr(Complex, name, property(_PROPERTIES[name]))
    for name, function in (("__abs__", "abs"), ("conj", "conj"), ("conjugate", "conj")):
        setattr(Complex, name, getattr(complex_numbers, function))
    Tracer.__hash__ = _hash  # pyright: ignore[reportAttributeAccessIssue]
    Tracer.__getattr__ = _attribute  # pyright: ignore[reportAttributeAccessIssue]

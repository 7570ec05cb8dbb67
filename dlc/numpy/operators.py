"""Operators and methods of Tracers and of complex arrays of Tracers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from dlc.argument_validation.validate import wrap_with_validation
from dlc.arrays import Array as OwnedArray
from dlc.errors import DTypeError
from dlc.frontend.complex_numbers import Complex, is_complex
from dlc.frontend.pytree import flatten, unflatten
from dlc.frontend.trace import Tracer, with_user_line
from dlc.numpy.apply import is_weak
from dlc.numpy.calling_convention import numpy_converters
from dlc.numpy.componentwise import COMPONENTWISE_FUNCTIONS
from dlc.numpy.functions import comparison as cmp
from dlc.numpy.functions import (
    complex_numbers,
    creation,
    cumulative,
    data_dependent_shapes,
    indexed_updates,
    indexing,
    integers,
    matrix_products,
    reductions,
    shape_manipulation,
    sorting,
)
from dlc.numpy.functions import elementwise as ew
from dlc.numpy.unsupported_names import UNSUPPORTED_NAMES, raise_unsupported_name


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as an operator: weakly typed operands give a weakly typed result, complex operands use their own rule."""
    complex_operator = complex_numbers.complex_rule(function)

    def operator(*xs: Any) -> Any:
        result: Any = (complex_operator if any(map(is_complex, xs)) else function)(*xs)
        if all(map(is_weak, xs)):
            leaves, tree = flatten(result)
            # A part of a complex number may be a constant.
            trace = next(leaf.owner for leaf in leaves if isinstance(leaf, Tracer))
            result = unflatten(
                tree, iter([_as_weak(leaf if isinstance(leaf, Tracer) else trace.constant(leaf)) for leaf in leaves])
            )
        return result

    return operator


def _as_weak(x: Tracer) -> Tracer:
    x.weak = True
    return x


def _reflected_operator(operator: Callable[..., Any]) -> Callable[..., Any]:
    def reflected(x: Any, y: Any) -> Any:
        return operator(y, x)

    return reflected


def _reshape(x: Tracer, *shape: Any, **settings: Any) -> Any:
    return shape_manipulation.reshape(x, shape[0] if len(shape) == 1 else shape, **settings)


def _transpose(x: Tracer, *axes: Any) -> Any:
    permutation: Any = axes[0] if len(axes) == 1 else axes
    return shape_manipulation.transpose(x, permutation or None)


def _compress(x: Tracer, condition: Any, axis: int | None = None) -> Any:
    return data_dependent_shapes.compress(condition, x, axis)


def _round_operator(x: Tracer, decimals: int | None = None) -> Any:
    return ew.round(x, decimals or 0)


_BINARY: dict[str, Callable[..., Any]] = {
    "add": ew.add, "sub": ew.subtract, "mul": ew.multiply, "truediv": ew.divide, "floordiv": ew.floor_divide,
    "mod": ew.remainder, "divmod": ew.divmod, "pow": ew.power, "matmul": matrix_products.matmul, "and": cmp.bitwise_and,
    "or": cmp.bitwise_or, "xor": cmp.bitwise_xor, "lshift": cmp.bitwise_left_shift, "rshift": cmp.bitwise_right_shift,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": cmp.equal, "ne": cmp.not_equal, "lt": cmp.less, "le": cmp.less_equal, "gt": cmp.greater, "ge": cmp.greater_equal,
}  # fmt: skip
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": ew.negative, "pos": ew.positive, "abs": ew.abs, "invert": cmp.bitwise_invert,
}  # fmt: skip
_METHODS: dict[str, Callable[..., Any]] = {
    "compress": _compress, "nonzero": data_dependent_shapes.nonzero,
    "__getitem__": indexing.getitem, "__round__": _round_operator, "reshape": _reshape, "transpose": _transpose,
    "flatten": shape_manipulation.ravel, "copy": creation.copy,
    "conjugate": complex_numbers.conj, "conj": complex_numbers.conj,
    **{f.__name__: f for f in (
        complex_numbers.astype, integers.view, ew.clip, ew.round, matrix_products.dot, matrix_products.trace, indexing.choose,
        indexing.take,
        sorting.argsort, sorting.searchsorted, sorting.sort, shape_manipulation.diagonal, shape_manipulation.ravel,
        shape_manipulation.repeat, shape_manipulation.squeeze, shape_manipulation.swapaxes, cumulative.cumprod,
        cumulative.cumsum, reductions.all, reductions.any, reductions.argmax, reductions.argmin, reductions.max,
        reductions.mean, reductions.min, reductions.prod, reductions.ptp, reductions.std, reductions.sum, reductions.var,
    )},
}  # fmt: skip
_PROPERTIES: dict[str, Callable[[Tracer], Any]] = {
    "T": shape_manipulation.transpose, "mT": shape_manipulation.matrix_transpose,
    "at": indexed_updates.At, "flat": shape_manipulation.ravel,
    "real": complex_numbers.real, "imag": complex_numbers.imag,
}  # fmt: skip


def _attribute(x: Tracer, name: str) -> NoReturn:
    """Raise AbsentError for an attribute that a traced array does not have."""
    raise_unsupported_name("an array of a traced function", name, UNSUPPORTED_NAMES)


def _hash(x: Tracer) -> NoReturn:
    problem = f"{x!r} is a traced array, which cannot be a dict key or a member of a set"
    raise with_user_line(DTypeError(f"{problem}; use its position in a list as the key, or store it as a value of the dict"))


def install() -> None:
    """Give Tracer the operators and methods of an array. Equality is elementwise, so that a Tracer is not hashable."""
    for name, function in (_BINARY | _COMPARISONS).items():
        for array in (Tracer, Complex):
            setattr(array, f"__{name}__", _operator(function))
    for name, function in _BINARY.items():
        for array in (Tracer, Complex):
            setattr(array, f"__r{name}__", _reflected_operator(_operator(function)))
    for name, function in _UNARY.items():
        setattr(Tracer, f"__{name}__", _operator(function))
    converters = numpy_converters(np, _METHODS)
    for name, function in _METHODS.items():
        method = wrap_with_validation(
            f"array.{name}", complex_numbers.with_complex_rule(function), convert_call=converters.get(name)
        )
        setattr(Tracer, name, function if name.startswith("__") else method)
    for name, function in _PROPERTIES.items():
        setattr(Tracer, name, property(function))
    for name, function in _METHODS.items():
        if function in (*COMPONENTWISE_FUNCTIONS, _reshape, _transpose):
            setattr(Complex, name, function)
        elif function in complex_numbers.COMPLEX_RULES:
            setattr(Complex, name, complex_numbers.COMPLEX_RULES[function])
    for name, function in (("__neg__", ew.negative), ("__pos__", ew.positive)):
        setattr(Complex, name, function)
    OwnedArray.at = property(indexed_updates.At)  # pyright: ignore[reportAttributeAccessIssue]
    for name in ("T", "mT", "flat"):
        setattr(Complex, name, property(_PROPERTIES[name]))
    for name, function in (("__abs__", "abs"), ("conj", "conj"), ("conjugate", "conj"), ("astype", "astype")):
        setattr(Complex, name, getattr(complex_numbers, function))
    Tracer.__hash__ = _hash  # pyright: ignore[reportAttributeAccessIssue]
    Tracer.__getattr__ = _attribute  # pyright: ignore[reportAttributeAccessIssue]

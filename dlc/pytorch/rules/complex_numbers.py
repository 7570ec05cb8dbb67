"""Complex numbers, which graphs have between their inputs and outputs.

`of_complex` has what operators are that others' rules know for real numbers alone; those of `BY_PARTS` are the same of real and
of imaginary parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, cast

import numpy as np

import dlc.numpy as dnp
from dlc.frontend.complex_numbers import is_complex, of_parts, parts_of
from dlc.numpy.apply import convert
from dlc.pytorch.rules import creation, shaping
from dlc.pytorch.rules.table import Dtype, Rule, Table, promoted_floats

table, of_complex = Table(), Table()


@table("view_as_real view_as_real_copy")
def view_as_real(x: Any) -> Any:
    return dnp.stack(parts_of(x), -1)


@table("view_as_complex view_as_complex_copy")
def view_as_complex(x: Any) -> Any:
    return of_parts(x[..., 0], x[..., 1])


@table("complex")
def complex_(real: Any, imag: Any) -> Any:
    return of_parts(*promoted_floats(real, imag))


@table("polar")
def polar(size: Any, angle: Any) -> Any:
    return of_parts(dnp.multiply(size, dnp.cos(angle)), dnp.multiply(size, dnp.sin(angle)))


@table("real")
def real(x: Any) -> Any:
    return parts_of(x)[0] if is_complex(x) else x


@table("imag")
def imag(x: Any) -> Any:
    return parts_of(x)[1]


@table("angle")
def angle(x: Any) -> Any:
    return dnp.angle(x)


@table("_conj _conj_physical conj_physical")
def conj(x: Any) -> Any:
    return dnp.conj(x)


@table("resolve_conj resolve_neg")
def resolved(x: Any) -> Any:
    return x


BY_PARTS = (
    *("view", "_unsafe_view", "reshape", "permute", "transpose.int", "t", "unsqueeze", "squeeze.dim", "squeeze.dims", "expand"),
    *("slice.Tensor", "select.int", "index_select", "flip", "roll", "repeat", "clone", "alias", "detach"),
    *("split_with_sizes", "split.Tensor", "unbind.int", "flatten.using_ints", "unfold"),
    *("diagonal", "tril", "triu", "gather", "index_fill.int_Tensor", "index_put", "slice_scatter", "select_scatter"),
    *("neg", "sum", "sum.dim_IntList", "mean", "mean.dim", "cumsum", "copy"),
)


def by_parts(rule: Rule) -> Rule:
    """The rule of an operator of complex numbers that is `rule` of each of their parts."""

    def part(argument: Any, number: int) -> Any:
        if isinstance(argument, list | tuple):
            return [part(a, number) for a in cast("Sequence[Any]", argument)]
        return parts_of(argument)[number] if is_complex(argument) else argument

    def of_both(*args: Any, **kwargs: Any) -> Any:
        real, imag = (rule(*part(args, k), **kwargs) for k in range(2))
        return [*map(of_parts, cast("Any", real), imag)] if isinstance(real, list | tuple) else of_parts(real, imag)

    return of_both


@of_complex("cat")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    return dnp.concat(tensors, axis=dim)


@of_complex("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return dnp.stack(tensors, axis=dim)


def _real_dtype(dtype: Any) -> Dtype:
    """The dtype of the parts."""
    return np.dtype(np.float64 if np.dtype(dtype).itemsize == 16 else np.float32)


def _both(x: Any) -> tuple[Any, Any]:
    """The parts, of a real number with a 0."""
    return parts_of(x) if is_complex(x) else (x, dnp.zeros_like(x) if hasattr(x, "dtype") else 0.0)


@of_complex("_to_copy")
def to_copy(x: Any, dtype: Any = None) -> Any:
    """To a real dtype, the real part."""
    if dtype is None or np.dtype(dtype).kind != "c":
        return x if dtype is None else convert(parts_of(x)[0], dtype)
    return of_parts(*(convert(part, _real_dtype(dtype)) for part in _both(x)))


@of_complex("full")
def full(size: Sequence[Any], fill_value: Any, dtype: Any = None) -> Any:
    of = _real_dtype(dtype or np.complex64)
    return of_parts(*(creation.filled(size, part, of) for part in _both(fill_value)))


@of_complex("full_like fill.Scalar fill.Tensor")
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    return full(x.shape, fill_value, dtype or x.dtype)


@of_complex("new_full")
def new_full(x: Any, size: Sequence[Any], fill_value: Any, dtype: Any = None) -> Any:
    return full(size, fill_value, dtype or x.dtype)


@of_complex("zeros empty.memory_format")
def zeros(size: Sequence[Any], dtype: Any = None) -> Any:
    return full(size, 0, dtype)


@of_complex("ones")
def ones(size: Sequence[Any], dtype: Any = None) -> Any:
    return full(size, 1, dtype)


@of_complex("zeros_like empty_like")
def zeros_like(x: Any, dtype: Any = None) -> Any:
    return full(x.shape, 0, dtype or x.dtype)


@of_complex("ones_like")
def ones_like(x: Any, dtype: Any = None) -> Any:
    return full(x.shape, 1, dtype or x.dtype)


@of_complex("new_zeros")
def new_zeros(x: Any, size: Sequence[Any], dtype: Any = None) -> Any:
    return full(size, 0, dtype or x.dtype)


@of_complex("scalar_tensor")
def scalar_tensor(s: Any, dtype: Any = None) -> Any:
    return full((), s, dtype)


@of_complex("where.self where.ScalarOther where.ScalarSelf")
def where(condition: Any, x: Any, y: Any) -> Any:
    return of_parts(*(dnp.where(condition, a, b) for a, b in zip(_both(x), _both(y), strict=True)))


@of_complex("masked_fill.Scalar masked_fill.Tensor")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return where(mask, value, x)


@of_complex("eq.Tensor eq.Scalar")
def equal(x: Any, y: Any) -> Any:
    return dnp.logical_and(*(dnp.equal(a, b) for a, b in zip(_both(x), _both(y), strict=True)))


@of_complex("ne.Tensor ne.Scalar")
def not_equal(x: Any, y: Any) -> Any:
    return dnp.logical_not(equal(x, y))


@of_complex("mm bmm matmul mv dot")
def matmul(x: Any, y: Any) -> Any:
    (a, b), (c, d) = _both(x), _both(y)
    return of_parts(dnp.subtract(dnp.matmul(a, c), dnp.matmul(b, d)), dnp.add(dnp.matmul(a, d), dnp.matmul(b, c)))


@of_complex("outer")
def outer(x: Any, y: Any) -> Any:
    columns, rows = ([dnp.expand_dims(part, axis) for part in _both(v)] for v, axis in ((x, 1), (y, 0)))
    return of_parts(*columns) * of_parts(*rows)


@of_complex("einsum")
def einsum(equation: str, operands: Sequence[Any], path: Any = None) -> Any:
    """The sum over the parts of each operand of what they make; each imaginary one turns it by a quarter."""
    quarters: list[Any] = [None] * 4
    for choice in product(range(2), repeat=len(operands)):
        parts = [_both(x)[k] for x, k in zip(operands, choice, strict=True)]
        made, turn = dnp.einsum(equation, *parts), sum(choice) % 4
        quarters[turn] = made if quarters[turn] is None else dnp.add(quarters[turn], made)
    real, imag, minus_real, minus_imag = (q if q is not None else dnp.zeros_like(quarters[0]) for q in quarters)
    return of_parts(dnp.subtract(real, minus_real), dnp.subtract(imag, minus_imag))


@of_complex("reciprocal")
def reciprocal(x: Any) -> Any:
    return 1.0 / x


@of_complex("square")
def square(x: Any) -> Any:
    return x * x


@of_complex("exp")
def exp(x: Any) -> Any:
    return dnp.exp(x)


@of_complex("log")
def log(x: Any) -> Any:
    return dnp.log(x)


@of_complex("sqrt")
def sqrt(x: Any) -> Any:
    return dnp.sqrt(x)


@of_complex("sgn")
def sgn(x: Any) -> Any:
    length = dnp.abs(x)
    return x / dnp.where(dnp.equal(length, 0), 1.0, length)


@of_complex("constant_pad_nd")
def constant_pad(x: Any, pad: Sequence[int], value: float = 0) -> Any:
    real, imag = parts_of(x)
    return of_parts(shaping.constant_pad(real, pad, value), shaping.constant_pad(imag, pad))


@of_complex("abs")
def size(x: Any) -> Any:
    return dnp.abs(x)


@of_complex("add.Tensor add.Scalar")
def add(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x + (y if alpha == 1 else y * alpha)


@of_complex("sub.Tensor sub.Scalar")
def sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x - (y if alpha == 1 else y * alpha)


@of_complex("mul.Tensor mul.Scalar")
def mul(x: Any, y: Any) -> Any:
    return x * y


@of_complex("div.Tensor div.Scalar")
def div(x: Any, y: Any) -> Any:
    return x / y


@of_complex("pow.Tensor_Scalar")
def power(x: Any, exponent: Any) -> Any:
    return x**exponent

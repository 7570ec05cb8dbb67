"""Rules for complex arrays.

`complex_table` has the rules for complex operands of operators whose other rules support only real ones. The operators
`COMPONENTWISE_OPS` act on the real and the imaginary part separately.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np

import dlc.numpy as dnp
from dlc.frontend.complex_numbers import component_dtype, from_parts, is_complex, real_and_imaginary
from dlc.numpy.apply import convert
from dlc.pytorch.rules import reductions, shape_manipulation
from dlc.pytorch.rules.creation import components_of
from dlc.pytorch.rules.rule_table import Rule, RuleTable, promoted_floats

table, complex_table = RuleTable(), RuleTable()


@table("view_as_real view_as_real_copy")
def view_as_real(x: Any) -> Any:
    return dnp.stack(real_and_imaginary(x), -1)


@table("view_as_complex view_as_complex_copy")
def view_as_complex(x: Any) -> Any:
    return from_parts(x[..., 0], x[..., 1])


@table("complex")
def complex_(real: Any, imag: Any) -> Any:
    return from_parts(*dnp.broadcast_arrays(*promoted_floats(real, imag)))


@table("polar")
def polar(magnitude: Any, angle: Any) -> Any:
    magnitude, angle = dnp.broadcast_arrays(magnitude, angle)
    return from_parts(dnp.multiply(magnitude, dnp.cos(angle)), dnp.multiply(magnitude, dnp.sin(angle)))


@table("real")
def real(x: Any) -> Any:
    return real_and_imaginary(x)[0] if is_complex(x) else x


@table("imag")
def imag(x: Any) -> Any:
    return real_and_imaginary(x)[1]


@table("angle")
def angle(x: Any) -> Any:
    return dnp.angle(x if is_complex(x) else promoted_floats(x)[0])


@table("_conj _conj_physical conj_physical")
def conj(x: Any) -> Any:
    return dnp.conj(x)


@table("resolve_conj resolve_neg")
def resolved(x: Any) -> Any:
    return x


# The positions of arguments whose values are stored among those of the first one. The imaginary part of a real value is 0;
# other real arguments, such as indices and masks, are the same for both parts.
COMPONENTWISE_OPS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((
        "view", "_unsafe_view", "reshape", "permute", "transpose.int", "t", "unsqueeze", "squeeze.dim", "squeeze.dims",
        "expand", "slice.Tensor", "select.int", "index_select", "flip", "roll", "repeat", "clone", "alias", "detach",
        "split_with_sizes", "split.Tensor", "unbind.int", "flatten.using_ints", "unfold", "diagonal", "tril", "triu", "gather",
        "neg", "sum", "sum.dim_IntList", "mean", "mean.dim", "cumsum", "narrow_copy", "split_with_sizes_copy",
        "unbind_copy.int", "masked_scatter_backward",
    ), ()),
    **dict.fromkeys(("copy", "slice_scatter", "select_scatter", "diagonal_scatter"), (1,)),
    **dict.fromkeys(("index_put", "put", "masked_scatter"), (2,)),
    **dict.fromkeys((
        "index_fill.int_Tensor", "index_fill.int_Scalar", "index_add", "index_copy", "scatter.src", "scatter.value",
        "scatter_add",
    ), (3,)),
}  # fmt: skip


def componentwise(rule: Rule, value_positions: Sequence[int]) -> Rule:
    """Return the rule for complex operands of an operator that acts on the real and the imaginary part separately."""

    def component(argument: Any, index: int, is_value: bool = False) -> Any:
        if isinstance(argument, list | tuple):
            return [component(a, index) for a in cast("Sequence[Any]", argument)]
        return components_of(argument)[index] if is_value or is_complex(argument) else argument

    def apply_to_parts(*args: Any, **kwargs: Any) -> Any:
        parts = ([component(a, k, position in value_positions) for position, a in enumerate(args)] for k in range(2))
        real, imag = (rule(*part, **kwargs) for part in parts)
        return [*map(from_parts, cast("Any", real), imag)] if isinstance(real, list | tuple) else from_parts(real, imag)

    return apply_to_parts


@complex_table("cat")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    return dnp.concat(tensors, axis=dim)


@complex_table("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return dnp.stack(tensors, axis=dim)


@complex_table("_to_copy")
def to_copy(x: Any, dtype: Any = None) -> Any:
    """Cast; to a real dtype, the real part is cast."""
    if dtype is None or np.dtype(dtype).kind != "c":
        return x if dtype is None else convert(real_and_imaginary(x)[0], dtype)
    return from_parts(*(convert(component, component_dtype(dtype)) for component in components_of(x)))


@complex_table("where.self where.ScalarOther where.ScalarSelf")
def where(condition: Any, x: Any, y: Any) -> Any:
    return from_parts(*(dnp.where(condition, a, b) for a, b in zip(components_of(x), components_of(y), strict=True)))


@complex_table("masked_fill.Scalar masked_fill.Tensor")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return where(mask, value, x)


@complex_table("eq.Tensor eq.Scalar")
def equal(x: Any, y: Any) -> Any:
    return dnp.logical_and(*(dnp.equal(a, b) for a, b in zip(components_of(x), components_of(y), strict=True)))


@complex_table("ne.Tensor ne.Scalar")
def not_equal(x: Any, y: Any) -> Any:
    return dnp.logical_not(equal(x, y))


@complex_table("mm bmm matmul mv dot")
def matmul(x: Any, y: Any) -> Any:
    (a, b), (c, d) = components_of(x), components_of(y)
    return from_parts(dnp.subtract(dnp.matmul(a, c), dnp.matmul(b, d)), dnp.add(dnp.matmul(a, d), dnp.matmul(b, c)))


@complex_table("outer")
def outer(x: Any, y: Any) -> Any:
    columns, rows = ([dnp.expand_dims(component, axis) for component in components_of(v)] for v, axis in ((x, 1), (y, 0)))
    return from_parts(*columns) * from_parts(*rows)


@complex_table("einsum")
def einsum(equation: str, operands: Sequence[Any], path: Any = None) -> Any:
    """Expand each operand into its real and imaginary part, and add up the products by their power of i."""
    sums: list[Any] = [None] * 4  # by the power of i, modulo 4
    for choice in product(range(2), repeat=len(operands)):
        components = [components_of(x)[k] for x, k in zip(operands, choice, strict=True)]
        product_, power = dnp.einsum(equation, *components), sum(choice) % 4
        sums[power] = product_ if sums[power] is None else dnp.add(sums[power], product_)
    real, imag, minus_real, minus_imag = (s if s is not None else dnp.zeros_like(sums[0]) for s in sums)
    return from_parts(dnp.subtract(real, minus_real), dnp.subtract(imag, minus_imag))


for _name in (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin",
    "acos", "atan", "asinh", "acosh", "atanh",
):  # fmt: skip
    complex_table(_name)(getattr(dnp, _name))
_OPERATORS: dict[str, Rule] = {
    "mul.Tensor mul.Scalar": operator.mul, "div.Tensor div.Scalar": operator.truediv,
    "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar": dnp.power,
    "sgn": dnp.sign, "reciprocal": partial(operator.truediv, 1.0),
}  # fmt: skip
for _name, _function in _OPERATORS.items():
    complex_table(_name)(_function)


@complex_table("square")
def square(x: Any) -> Any:
    return x * x


@complex_table("rsqrt")
def rsqrt(x: Any) -> Any:
    return 1.0 / dnp.sqrt(x)


@complex_table("sigmoid")
def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + dnp.exp(-x))


@complex_table("prod")
def prod(x: Any, dtype: Any = None) -> Any:
    return dnp.prod(x, dtype=dtype)


@complex_table("prod.dim_int")
def prod_along(x: Any, dim: int, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.prod(x, dim, dtype=dtype, keepdims=keepdim)


def _of_nonzero(rule: Rule) -> Rule:
    """Return the rule for complex operands of a function of booleans."""

    def apply_to_booleans(*args: Any, **kwargs: Any) -> Any:
        return rule(*(not_equal(a, 0) if is_complex(a) else a for a in args), **kwargs)

    return apply_to_booleans


for _name in ("logical_and", "logical_not", "logical_or", "logical_xor"):
    complex_table(_name)(_of_nonzero(getattr(dnp, _name)))
for _name in ("any", "any.dim", "any.dims", "all", "all.dim", "all.dims"):
    complex_table(_name)(_of_nonzero(reductions.table.rules[_name]))


@complex_table("constant_pad_nd")
def constant_pad(x: Any, pad: Sequence[int], value: float = 0) -> Any:
    real, imag = real_and_imaginary(x)
    return from_parts(shape_manipulation.constant_pad(real, pad, value), shape_manipulation.constant_pad(imag, pad))


@complex_table("add.Tensor add.Scalar")
def add(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x + (y if alpha == 1 else y * alpha)


@complex_table("sub.Tensor sub.Scalar")
def sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x - (y if alpha == 1 else y * alpha)


@complex_table("rsub.Tensor rsub.Scalar")
def rsub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return sub(y, x, alpha)


@complex_table("addcmul")
def addcmul(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    return add(x, a * b, value)


@complex_table("addcdiv")
def addcdiv(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    return add(x, a / b, value)

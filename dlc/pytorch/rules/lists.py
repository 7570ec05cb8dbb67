"""Operators of lists of arrays, which optimisers have: each is another operator of every element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import dlc.numpy as dnp
from dlc.numpy.apply import convert
from dlc.pytorch.rules import pointwise, reductions
from dlc.pytorch.rules.table import Rule, Table

table = Table()
_OF_ONE = {**pointwise.table.rules, **reductions.table.rules}


def _each(rule: Rule) -> Rule:
    """The rule of the elements at each place of lists; what is no list is every element's."""

    def of_lists(*args: Any, **kwargs: Any) -> list[Any]:
        (count,) = {len(cast("Sequence[Any]", a)) for a in args if isinstance(a, list)}
        return [rule(*(a[k] if isinstance(a, list) else a for a in args), **kwargs) for k in range(count)]

    return of_lists


_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "lgamma", "log",
    "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh",
    "trunc", "max",
)  # fmt: skip
for _name in _UNARY:
    table(f"_foreach_{_name}")(_each(_OF_ONE[_name]))

_BINARY = {
    "add": "add.Tensor", "sub": "sub.Tensor", "mul": "mul.Tensor", "div": "div.Tensor", "maximum": "maximum",
    "minimum": "minimum", "clamp_min": "clamp_min.Tensor", "clamp_max": "clamp_max.Tensor", "pow": "pow.Tensor_Tensor",
}  # fmt: skip
for _name, _rule in _BINARY.items():
    for _overload in ("Scalar", "List", "ScalarList", "Tensor", "ScalarAndTensor"):
        table(f"_foreach_{_name}.{_overload}")(_each(_OF_ONE[_rule]))

for _name in ("lerp.Scalar", "lerp.List", "lerp.ScalarList"):
    table(f"_foreach_{_name}")(_each(pointwise.lerp))


@table("_foreach_norm.Scalar")
@_each
def norm(x: Any, ord: float = 2, dtype: Any = None) -> Any:
    return reductions.vector_norm(x, ord, None, False, dtype)


@table("_foreach_zero")
@_each
def zero(x: Any) -> Any:
    return dnp.zeros_like(x)


@table("_foreach_clone")
@_each
def clone(x: Any, memory_format: Any = None) -> Any:
    return x


@table("_foreach_copy")
@_each
def copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    return convert(dnp.broadcast_to(source, x.shape), x.dtype)


def _scaled(operator: str) -> Rule:
    """x + value · (y ∘ z) of three lists, by one number for all or one for each."""

    def of_lists(xs: Sequence[Any], ys: Sequence[Any], zs: Sequence[Any], value: Any = 1) -> list[Any]:
        values = [value] * len(xs) if isinstance(value, int | float) else value
        made = [dnp.multiply(_OF_ONE[operator](y, z), values[k]) for k, (y, z) in enumerate(zip(ys, zs, strict=True))]
        return [_OF_ONE["add.Tensor"](x, m) for x, m in zip(xs, made, strict=True)]

    return of_lists


for _name, _rule in (("addcmul", "mul.Tensor"), ("addcdiv", "div.Tensor")):
    for _overload in ("Scalar", "ScalarList", "Tensor"):
        table(f"_foreach_{_name}.{_overload}")(_scaled(_rule))

"""Foreach operators on lists of tensors, which optimizers use: each applies another operator to every element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import dlc.numpy as dnp
from dlc.numpy.apply import convert
from dlc.pytorch.rules import pointwise, reductions
from dlc.pytorch.rules.rule_table import Rule, RuleTable

table = RuleTable()
_ELEMENT_RULES = {**pointwise.table.rules, **reductions.table.rules}


def _lift_to_lists(rule: Rule) -> Rule:
    """Lift a rule to lists; an argument that is not a list is passed to every call."""

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
    table(f"_foreach_{_name}")(_lift_to_lists(_ELEMENT_RULES[_name]))

_BINARY = {
    "add": "add.Tensor", "sub": "sub.Tensor", "mul": "mul.Tensor", "div": "div.Tensor", "maximum": "maximum",
    "minimum": "minimum", "clamp_min": "clamp_min.Tensor", "clamp_max": "clamp_max.Tensor", "pow": "pow.Tensor_Tensor",
}  # fmt: skip
for _name, _rule in _BINARY.items():
    for _overload in ("Scalar", "List", "ScalarList", "Tensor", "ScalarAndTensor"):
        table(f"_foreach_{_name}.{_overload}")(_lift_to_lists(_ELEMENT_RULES[_rule]))

for _name in ("lerp.Scalar", "lerp.List", "lerp.ScalarList"):
    table(f"_foreach_{_name}")(_lift_to_lists(pointwise.lerp))


@table("_foreach_norm.Scalar")
@_lift_to_lists
def norm(x: Any, ord: float = 2, dtype: Any = None) -> Any:
    return reductions.vector_norm(x, ord, None, False, dtype)


@table("_foreach_zero")
@_lift_to_lists
def zero(x: Any) -> Any:
    return dnp.zeros_like(x)


@table("_foreach_clone")
@_lift_to_lists
def clone(x: Any, memory_format: Any = None) -> Any:
    return x


@table("_foreach_copy")
@_lift_to_lists
def copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    return convert(dnp.broadcast_to(source, x.shape), x.dtype)


def _add_scaled(operator: str) -> Rule:
    """Return the rule x + value · (y ∘ z) for lists, with one value for all or one for each."""

    def of_lists(xs: Sequence[Any], ys: Sequence[Any], zs: Sequence[Any], value: Any = 1) -> list[Any]:
        values = [value] * len(xs) if isinstance(value, int | float) else value
        terms = [dnp.multiply(_ELEMENT_RULES[operator](y, z), values[k]) for k, (y, z) in enumerate(zip(ys, zs, strict=True))]
        return [_ELEMENT_RULES["add.Tensor"](x, term) for x, term in zip(xs, terms, strict=True)]

    return of_lists


for _name, _rule in (("addcmul", "mul.Tensor"), ("addcdiv", "div.Tensor")):
    for _overload in ("Scalar", "ScalarList", "Tensor"):
        table(f"_foreach_{_name}.{_overload}")(_add_scaled(_rule))

"""Symbolic sizes: integer arithmetic that is evaluated during tracing, and assertions, which are ignored."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import convert
from dlc.numpy.data_dependent import dynamic_arange
from dlc.pytorch.rules.rule_table import Rule, RuleTable, is_tensor
from dlc.shapes.traced_dims import TracedDim, TracedSize

table = RuleTable()


@table("sym_size.int size.int")
def size(x: Any, dim: int) -> TracedSize:
    return x.shape[dim]


@table("sym_numel numel")
def numel(x: Any) -> TracedSize:
    return x.size


@table("operator.getitem")
def getitem(x: Any, index: int) -> Any:
    return x[index]


_ARITHMETIC: dict[str, Rule] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "neg": operator.neg, "pow": operator.pow, "truediv": operator.truediv, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "not_": operator.not_,
    "and_": operator.and_, "or_": operator.or_,
}  # fmt: skip

for _name, _function in _ARITHMETIC.items():
    table(f"operator.{_name}")(_function)


@table("operator.sym_sum")
def sym_sum(numbers: Sequence[Any]) -> Any:
    return sum(numbers[1:], numbers[0])


@table("operator.sym_ite")
def sym_ite(condition: Any, a: Any, b: Any) -> Any:
    if is_tensor(condition):
        return dnp.where(condition, a, b)
    return a if condition else b


@table("operator.sym_min")
def sym_min(a: Any, b: Any) -> Any:
    return dnp.minimum(a, b) if is_tensor(a) or is_tensor(b) else sym_ite(a <= b, a, b)


@table("operator.sym_max")
def sym_max(a: Any, b: Any) -> Any:
    return dnp.maximum(a, b) if is_tensor(a) or is_tensor(b) else sym_ite(a >= b, a, b)


@table("operator.sym_float")
def sym_float(a: Any) -> Any:
    if is_tensor(a):
        return convert(a, np.float64)
    return a if isinstance(a, TracedDim) else float(a)


def _integer(rounded: Rule, of_static: Rule) -> Rule:
    """Return the rule of a function that rounds a number to an integer: an array by `rounded`, another by `of_static`."""

    def rule(a: Any) -> Any:
        if is_tensor(a):
            return convert(rounded(a), np.int64)
        return a if isinstance(a, TracedDim) else of_static(a)

    return rule


for _names, _rounded, _of_static in (
    ("operator.sym_int math.trunc", dnp.trunc, math.trunc),
    ("math.floor", dnp.floor, math.floor),
    ("math.ceil", dnp.ceil, math.ceil),
):
    table(_names)(_integer(_rounded, _of_static))


@table("operator.sym_not")
def sym_not(a: Any) -> Any:
    return dnp.logical_not(a) if is_tensor(a) else not a


# Operators that read the only element of an array: as a size if PyTorch knows that it is a non-negative integer.
SCALAR_READ_OPS = ("_local_scalar_dense", "item")


@table(" ".join(SCALAR_READ_OPS))
def item(x: Any, *, counts: bool = False) -> Any:
    """Return the only element: as a data-dependent size if `counts`, else as an array of rank 0."""
    if not isinstance(x, Tracer):
        return x.item()
    element = dnp.reshape(x, ())
    return dynamic_arange(element).shape[0] if counts else element


# Assertions of PyTorch about the sizes a graph was exported for; dlc checks the sizes of each call by its own guards.
ASSERTION_OPS = (
    *("_assert_async.msg", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size"),
    *("_functional_assert_async.msg", "_functional_sym_constrain_range", "operator._assert", "_linalg_check_errors"),
)


@table(" ".join(ASSERTION_OPS))
def checked(*_: Any, **__: Any) -> None:
    """Do nothing."""

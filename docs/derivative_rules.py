"""Describe the derivative rule of each op for the page on ops, from the tables of the autodiff pass."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.interfaces import Composite
from dlc.ir import Operation
from dlc.passes.autodiff import partials
from dlc.passes.autodiff.jvp_rules import JVP_RULES
from dlc.passes.autodiff.partials import BINARY_PARTIALS, UNARY_PARTIALS
from dlc.passes.autodiff.rules import NO_DERIVATIVE, ZERO
from dlc.passes.autodiff.transpose_rules import TRANSPOSE_RULES


def _entries(table: str) -> dict[str, ast.expr]:
    """Return the source of each entry of a table of partial derivatives, by op."""
    tree = ast.parse(inspect.getsource(partials))
    (table_literal,) = (n.value for n in tree.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == table)
    assert isinstance(table_literal, ast.Dict)
    return {
        ast.unparse(k).removeprefix("dl."): v
        for k, v in zip(table_literal.keys, table_literal.values, strict=True)
        if k is not None
    }


_PARTIALS = {**_entries("UNARY_PARTIALS"), **_entries("BINARY_PARTIALS")}


def _formula(rule: ast.expr) -> str:
    """Return the formula of an entry, or the docstring of its function."""
    if isinstance(rule, ast.Lambda):
        return "`" + re.sub(r"\b_(?=[a-z])|\bmath\.", "", ast.unparse(rule.body)) + "`"
    return _summary(vars(partials)[ast.unparse(rule)])


def _summary(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "").split("\n")[0].rstrip(".").replace("*", r"\*")


def derivative_rule(op: type[Operation]) -> str | None:
    """Describe in one line how an op is differentiated; None if it is not, or through its bodies."""
    if not issubclass(op, DlOp):
        return None
    if op in UNARY_PARTIALS:
        return f"∂r/∂x = {_formula(_PARTIALS[op.__name__])}"
    if op in BINARY_PARTIALS:
        partial_derivatives = _PARTIALS[op.__name__]
        assert isinstance(partial_derivatives, ast.Tuple)
        return ", ".join(f"∂r/∂{name} = {_formula(rule)}" for name, rule in zip("xy", partial_derivatives.elts, strict=True))
    rules: list[str] = []
    for kind, table in (("linear", TRANSPOSE_RULES), ("tangent", JVP_RULES)):
        if op in table:
            rules.append(f"{kind}: {_summary(table[op])}" if table[op].__doc__ else kind)
    if op in ZERO:
        rules.append("0")
    if op in NO_DERIVATIVE:
        rules.append(f"none: {NO_DERIVATIVE[op]}")
    if not rules and issubclass(op, Composite):
        rules.append("that of its decomposition")
    return "; else ".join(rules) or None

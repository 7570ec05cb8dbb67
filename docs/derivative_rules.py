"""The rule by which each op is differentiated, for the page about ops: read from the tables of the pass."""

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
from dlc.passes.autodiff.partials import OF_ONE, OF_TWO
from dlc.passes.autodiff.rules import NO_DERIVATIVE, ZERO
from dlc.passes.autodiff.tangents import TANGENTS
from dlc.passes.autodiff.transposes import TRANSPOSES


def _entries(table: str) -> dict[str, ast.expr]:
    """What stands in a table of partial derivatives, by the names of ops."""
    tree = ast.parse(inspect.getsource(partials))
    (found,) = (n.value for n in tree.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == table)
    assert isinstance(found, ast.Dict)
    return {ast.unparse(k).removeprefix("dl."): v for k, v in zip(found.keys, found.values, strict=True) if k is not None}


_PARTIALS = {**_entries("OF_ONE"), **_entries("OF_TWO")}


def _formula(rule: ast.expr) -> str:
    """A formula as the table has it, or what a function that stands there says of itself."""
    if isinstance(rule, ast.Lambda):
        return "`" + re.sub(r"\b_(?=[a-z])|\bmath\.", "", ast.unparse(rule.body)) + "`"
    return _said(vars(partials)[ast.unparse(rule)])


def _said(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "").split("\n")[0].rstrip(".").replace("*", r"\*")


def derivative_rule(op: type[Operation]) -> str | None:
    """How an op is differentiated, in a line; None for what has no part in derivatives, or bodies that have."""
    if not issubclass(op, DlOp):
        return None
    if op in OF_ONE:
        return f"∂r/∂x = {_formula(_PARTIALS[op.__name__])}"
    if op in OF_TWO:
        by = _PARTIALS[op.__name__]
        assert isinstance(by, ast.Tuple)
        return ", ".join(f"∂r/∂{name} = {_formula(rule)}" for name, rule in zip("xy", by.elts, strict=True))
    found: list[str] = []
    for kind, table in (("linear", TRANSPOSES), ("change", TANGENTS)):
        if op in table:
            found.append(f"{kind}: {_said(table[op])}" if table[op].__doc__ else kind)
    if op in ZERO:
        found.append("0")
    if op in NO_DERIVATIVE:
        found.append(f"none: {NO_DERIVATIVE[op]}")
    if not found and issubclass(op, Composite):
        found.append("that of its decomposition")
    return "; else ".join(found) or None

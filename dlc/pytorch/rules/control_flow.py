"""Conditionals and loops, whose bodies are functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dlc.numpy as dnp
from dlc import lax
from dlc.pytorch.rules.rule_table import RuleTable

table = RuleTable()


@table("higher_order.cond")
def cond(holds: Any, true: Callable[..., Any], false: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    return lax.cond(holds, lambda: tuple(true(*operands)), lambda: tuple(false(*operands)))


@table("higher_order.while_loop")
def while_loop(condition: Callable[..., Any], body: Callable[..., Any], carry: Sequence[Any], extra: Sequence[Any] = ()) -> Any:
    def holds(values: tuple[Any, ...]) -> Any:
        (result,) = condition(*values, *extra)
        return dnp.reshape(result, ())

    return lax.while_loop(holds, lambda values: tuple(body(*values, *extra)), tuple(carry))

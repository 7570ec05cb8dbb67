"""Orthogonal polynomials of tensor degrees, by their three-term recurrences.

    P(k + 1) = ((a·k + b)·x + c·k + d)·P(k) - e(k)·P(k - 1), divided by k + 1 for Laguerre and Legendre polynomials

P(0) is 1; a polynomial of negative degree is 0. Formulas: Abramowitz and Stegun, 22.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax
from dlc.numpy.apply import convert
from dlc.pytorch.rules.rule_table import Rule, RuleTable, promoted_floats

table = RuleTable()


@dataclass(frozen=True)
class _Family:
    """The first polynomial of a family, P(1) at x, and P(k + 1) from k, x, P(k) and P(k - 1)."""

    first: Callable[[Any], Any]
    next: Callable[[Any, Any, Any, Any], Any]


def _chebyshev_next(k: Any, x: Any, current: Any, previous: Any) -> Any:
    return 2 * x * current - previous


FAMILIES = {
    "chebyshev_polynomial_t": _Family(lambda x: x, _chebyshev_next),
    "chebyshev_polynomial_u": _Family(lambda x: 2 * x, _chebyshev_next),
    "chebyshev_polynomial_v": _Family(lambda x: 2 * x - 1, _chebyshev_next),
    "chebyshev_polynomial_w": _Family(lambda x: 2 * x + 1, _chebyshev_next),
    "hermite_polynomial_h": _Family(lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q),
    "hermite_polynomial_he": _Family(lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": _Family(lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)),
    "legendre_polynomial_p": _Family(lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)),
}


def _rule(family: _Family, is_shifted: bool) -> Rule:
    """Return the rule of a family; a shifted polynomial is that of 2x - 1."""

    def polynomial(x: Any, n: Any) -> Any:
        x, degree = dnp.broadcast_arrays(*promoted_floats(x, n))
        dtype = x.dtype
        # Half precision overflows in between.
        x = convert(x, np.promote_types(dtype, np.float32))
        x = 2 * x - 1 if is_shifted else x
        degree = dnp.trunc(degree)
        one, first = dnp.ones_like(x), family.first(x)
        result = dnp.where(dnp.less(degree, 0), 0, dnp.where(dnp.equal(degree, 0), one, first))

        def step(k: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            current, previous, result = state
            following = family.next(convert(k, x.dtype), x, current, previous)
            return following, current, dnp.where(dnp.equal(degree, convert(k + 1, degree.dtype)), following, result)

        max_degree = convert(dnp.max(degree, initial=0), np.int64)
        _, _, result = lax.fori_loop(np.int64(1), max_degree, step, (first, one, result))
        return convert(result, dtype)

    return polynomial


def _register(name: str, rule: Rule) -> None:
    table(" ".join(f"special_{name}{overload}" for overload in ("", ".x_scalar", ".n_scalar")))(rule)


for _name, _family in FAMILIES.items():
    _register(_name, _rule(_family, False))
    if _name.startswith("chebyshev"):
        _register(f"shifted_{_name}", _rule(_family, True))

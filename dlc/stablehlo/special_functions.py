"""Special functions, which are CHLO ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc import special
from dlc.special.gamma import lgamma
from dlc.stablehlo.node import Converter, StableHloNode, StableHloValue

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lgamma": lgamma,
    "digamma": special.digamma,
    "bessel_i1e": special.i1e,
    "erfc": special.erfc,
    "polygamma": special.polygamma,
    "zeta": special.zeta,
}


def _of(function: Callable[..., Any]) -> Converter:
    def convert(node: StableHloNode) -> StableHloValue:
        return node.value(function(*node.arrays))

    return convert


OPERATORS: dict[str, Converter] = {f"chlo.{name}": _of(function) for name, function in _FUNCTIONS.items()}

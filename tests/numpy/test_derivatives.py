"""The derivative of every function of dlc.numpy: forward mode against differences, reverse mode against forward mode."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DlcError
from tests.numpy.cases import CASES, DATA
from tests.numpy.test_functions import call

STEP = 1e-6
# Where a function is defined and smooth; elsewhere in (0.2, 0.8).
DOMAINS = {"acosh": (1.2, 1.8)}
# Functions of floats that are no functions of their elements' size.
NOT_SMOOTH = {"nextafter": "to the next number is a step", "floor_divide": "0 but for steps"}


def _moving(text: str) -> list[str]:
    """The arrays of floats that a call reads."""
    names = dict.fromkeys(re.findall(r"(?<![.\w'])\w+", text))
    return [n for n in names if n in DATA and np.asarray(DATA[n]).dtype.kind == "f"]


class Case:
    """A call as a function of the arrays of floats that it reads, to its results of floats."""

    def __init__(self, family: str, name: str, text: str) -> None:
        self.place = f"{name}({text})"
        self.names = _moving(text)
        random = np.random.default_rng(len(self.place))
        low, high = DOMAINS.get(name, (0.2, 0.8))
        self.data = {
            n: random.uniform(low, high, x.shape) if n in self.names else x
            for n, x in ((n, np.asarray(v)) for n, v in DATA.items())
        }
        if name == "interp":
            self.data["v"] = np.sort(self.data["v"])

        def run(*arrays: Any) -> list[Any]:
            found = call(dnp, family, name, text, {**self.data, **dict(zip(self.names, arrays, strict=True))})
            results = found if isinstance(found, tuple | list) else [found]
            return [r for r in results if getattr(r, "dtype", None) == np.float64]

        self.run: Callable[..., list[Any]] = run

    @property
    def point(self) -> list[np.ndarray]:
        return [self.data[n] for n in self.names]


def _cases(family: str) -> list[Case]:
    found: list[Case] = []
    for name, texts in CASES[family].items():
        for text in texts:
            if name in NOT_SMOOTH or not _moving(text):
                continue
            case = Case(family, name, text)
            try:
                value = case.run(*case.point)
            except DlcError:
                continue
            if value:
                found.append(case)
    return found


def _difference(case: Case, point: Sequence[np.ndarray], directions: Sequence[np.ndarray]) -> list[np.ndarray]:
    ahead, behind = (case.run(*(x + s * d for x, d in zip(point, directions, strict=True))) for s in (STEP, -STEP))
    return [(np.asarray(a) - np.asarray(b)) / (2 * STEP) for a, b in zip(ahead, behind, strict=True)]


def wrong(case: Case) -> str | None:
    random = np.random.default_rng(0)
    point = case.point
    directions = [random.standard_normal(x.shape) for x in point]
    weights = [random.standard_normal(np.shape(r)) for r in case.run(*point)]

    @dlc.jit(target="reference")
    def derivatives(point: Any, directions: Any, weights: Any) -> Any:
        _, tangents = dlc.jvp(case.run, point, directions)
        _, pullback = dlc.vjp(case.run, *point)
        return tangents, pullback(list(weights))

    tangents, cotangents = derivatives(tuple(point), tuple(directions), tuple(weights))
    scale = 1.0
    for got, expected in zip(tangents, _difference(case, point, directions), strict=True):
        scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
        if not np.allclose(got, expected, rtol=0, atol=3e-7 * scale):
            return f"{case.place}: forward {np.asarray(got).ravel()[:4]}, differences {expected.ravel()[:4]}"
    forward = sum(float(np.vdot(w, t)) for w, t in zip(weights, tangents, strict=True))
    reverse = sum(float(np.vdot(c, d)) for c, d in zip(cotangents, directions, strict=True))
    if not np.isclose(forward, reverse, rtol=1e-9, atol=1e-9):
        return f"{case.place}: reverse {reverse}, forward {forward}"
    return None


@pytest.mark.parametrize("family", [f for f in CASES])
def test_derivatives(family: str) -> None:
    found = [w for case in _cases(family) if (w := wrong(case))]
    assert not found, "\n".join(found)

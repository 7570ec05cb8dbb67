"""Derivatives of every function of dlc.numpy: forward mode against differences, reverse mode against forward mode."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DlcError
from tests.differences import wrong_derivative
from tests.numpy.cases import CASES, DATA
from tests.numpy.test_functions import call

# Intervals in which a function is defined and smooth; the default is (0.2, 0.8).
DOMAINS = {"acosh": (1.2, 1.8)}
NOT_SMOOTH = {"nextafter": "the next number is a step away", "floor_divide": "0 but for steps"}
# The derivative of the mantissa of a subnormal number exceeds the range of float64.
OUT_OF_RANGE = {("frexp", "x_f8 * 1e-310")}
# Number of calls of each function that differ in more than dtypes.
CALLS = 2


def moving(text: str) -> list[str]:
    """Return the float arrays that a call reads."""
    names = dict.fromkeys(re.findall(r"(?<![.\w'])\w+", text))
    return [n for n in names if n in DATA and np.asarray(DATA[n]).dtype.kind == "f"]


def function(family: str, name: str, text: str) -> tuple[Callable[..., list[Any]], list[np.ndarray]]:
    """Return a call as a function from its float arrays to its float results, and a point, in float64."""
    random, names = np.random.default_rng(len(name + text)), moving(text)
    data = {n: np.asarray(x) for n, x in DATA.items()}
    data |= {n: random.uniform(*DOMAINS.get(name, (0.2, 0.8)), data[n].shape) for n in names}
    if name == "interp":
        data["v"] = np.sort(data["v"])

    def run(*arrays: Any) -> list[Any]:
        found = call(dnp, family, name, text, {**data, **dict(zip(names, arrays, strict=True))})
        results = found if isinstance(found, tuple | list) else [found]
        floats = [r for r in results if getattr(r, "dtype", None) == np.float64]
        # The caller cannot know the shape of a cotangent with a data-dependent size.
        return [dnp.sum(r * dnp.cumsum(r, 0)) for r in floats] if family == "data_dependent_shapes" else floats

    return run, [data[n] for n in names]


def calls(family: str) -> Iterator[tuple[str, Callable[..., list[Any]], list[np.ndarray]]]:
    for name, texts in CASES[family].items():
        distinct = {re.sub(r"_(f2|f4|f8)\b", "", text): text for text in texts if moving(text)}
        for text in [] if name in NOT_SMOOTH else list(distinct.values())[:CALLS]:
            if (name, text) in OUT_OF_RANGE:
                continue
            run, point = function(family, name, text)
            try:
                value = run(*point)
            except DlcError:
                continue
            if value:
                yield f"{name}({text})", run, point


@pytest.mark.parametrize("family", CASES)
def test_derivatives(family: str) -> None:
    found = {place: wrong_derivative(run, point) for place, run, point in calls(family)}
    assert not [f"{place}: {wrong}" for place, wrong in found.items() if wrong]


def test_higher_derivatives_of_decompositions() -> None:
    """Custom rules that call functions with custom rules support derivatives of any order."""

    def gradient(run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def pulled(*arrays: Any) -> list[Any]:
            results, pullback = dlc.vjp(run, *arrays)
            return list(pullback([dnp.cos(r) for r in results]))

        return dlc.jit(target="reference")(pulled)

    first = {place.split("(")[0]: (run, point) for place, run, point in reversed(list(calls("linalg")))}
    chosen = ("slogdet", "solve", "det", "cholesky", "qr", "eigvalsh", "pinv")
    found = {name: wrong_derivative(gradient(first[name][0]), first[name][1]) for name in chosen}
    assert not [f"{name}: {wrong}" for name, wrong in found.items() if wrong]


@pytest.mark.parametrize(
    ("run", "second"),
    [
        (lambda x: dnp.logaddexp(x, 0.0), 0.25),
        (lambda x: dnp.logaddexp(0.0, x), 0.25),
        (lambda x: dnp.logaddexp2(x, 0.0), np.log(2) / 4),
        (dlc.nn.softplus, 0.25),
        (dlc.nn.mish, 0.64),
        (dlc.special.log_expit, -0.25),
        (lambda x: dlc.nn.sigmoid_cross_entropy(x, 0.3), 0.25),
    ],
)
def test_second_derivative_at_0(run: Callable[[Any], Any], second: float) -> None:
    assert dlc.grad(dlc.grad(run))(np.float64(0)) == pytest.approx(second)

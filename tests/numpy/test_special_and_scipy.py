"""Functions of `dlc.special` that are quotients, sums and recurrences of others, against SciPy and difference quotients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
from dlc import special

scipy_special = pytest.importorskip("scipy.special")

X = np.array([-3.5, -2.0, -0.5, -0.0, 0.0, 0.1, 1.0, 2.5, 3.0, 7.3, 20.0, 150.0])
P = np.array([0.01, 0.2, 0.5, 0.77, 0.99, 1.0])
POWERS = np.array([0.0, 1, 2, -1, 0.5, 3])
Z = np.array([1e-300, 1e-8, 1e-5, 0.1, 1, 2.4048, 5, 9.99, 10, 30, 99, 101, 1e3])
SIGNED = np.concatenate([-Z, Z, [0.0]])
M = np.array([-1e5, -1, 0, 0.3, 0.99, 1, 1 - 1e-12, 2.0])
PAIRS = np.array([0.0, 0, 1, 2, -1, 1]), np.array([0.0, 1, 2, 0, 1, -1])
LOSSES = np.array([1.0, 1, 2, -1, 0]), np.array([0.5, 3, -5, 1, 2])
COUNTS = np.array([0.0, 2, 5, 8])
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "gamma": [(X,)],
    "rgamma": [(X,)],
    "gammasgn": [(X[X != 0],)],
    "psi": [(P,)],
    "beta": [(np.array([0.5, 2, 30, 1e-3]), np.array([0.7, 3, 40, 5]))],
    "binom": [(np.array([5.0, 10, 4.5, -3.5, 50]), np.array([2.0, 3, 1.2, 2, 25]))],
    "comb": [(np.array([5.0, 10, 3, -1]), np.array([2.0, 3, 4, 0]))],
    "perm": [(np.array([5.0, 10, 3]), np.array([2.0, 3, 4]))],
    "factorial": [(np.array([0.0, 1, 5, 10, -2, 20]),)],
    "poch": [(np.array([1.0, 2.5, 3, -1.5]), np.array([2.0, 3, 0, 1]))],
    "multigammaln": [(np.array([3.0, 10.0]), 3)],
    "exp10": [(POWERS,)],
    "exprel": [(np.array([-3, -1e-6, 0, 1e-9, 5e-6, 2, 50.0, 700.0, np.inf]),)],
    "cosm1": [(np.array([1e-8, 0.5, 3.0]),)],
    "softplus": [(X,)],
    **{name: [(P, POWERS)] for name in ("boxcox", "boxcox1p", "inv_boxcox")},
    "inv_boxcox1p": [(P * 0.3, POWERS)],
    **{name: [PAIRS] for name in ("rel_entr", "kl_div")},
    **{name: [LOSSES] for name in ("huber", "pseudo_huber")},
    **{name: [(3.0, Z[1:9])] for name in ("chdtr", "chdtrc")},
    **{name: [(1.5, 2.0, Z[1:9])] for name in ("gdtr", "gdtrc")},
    **{name: [(np.array([0.0, 2, 5.5]), 2.0)] for name in ("pdtr", "pdtrc")},
    **{name: [(COUNTS, 8.0, 0.3)] for name in ("bdtr", "bdtrc")},
    **{name: [(3.0, 4.0, Z[1:9])] for name in ("fdtr", "fdtrc")},
    "stdtr": [(3.0, np.array([-9.0, -1e-3, -1e-8, 0, 0.4, 50]))],
    "erfcinv": [(np.array([1e-200, 1e-3, 0.5, 1, 1.9, 2, 0]),)],
    "betaincc": [(2.0, 3.0, P)],
    "ellipk": [(M,)],
    "ellipe": [(M,)],
    "ellipkm1": [(np.array([1e-300, 1e-10, 0.5, 1, 3, 0]),)],
    "softmax": [(X[:4].reshape(2, 2),), (X[:4].reshape(2, 2), 1)],
    "log_softmax": [(X[:4].reshape(2, 2), 0)],
    **{name: [(n, z) for n in (-3, 0, 1, 2, 5, 30)] for name, z in (("jn", SIGNED), ("yn", Z), ("kn", Z))},
}


def test_values() -> None:
    """Bessel functions are compared with their amplitude, 1e-3, next to their zeros."""
    wrong: list[str] = []
    for name, calls in CALLS.items():
        for arguments in calls:
            with np.errstate(all="ignore"):
                expected = getattr(scipy_special, name)(*arguments)
                got = np.asarray(getattr(special, name)(*arguments))
                size = np.maximum(np.abs(expected), 1e-3 if name in ("jn", "yn") else 1e-300)
                differs = ~((np.abs(got - expected) <= 2e-12 * size) | (got == expected) | (np.isnan(got) & np.isnan(expected)))
            if differs.any() or got.dtype != np.float64:
                wrong.append(f"{name}{arguments}: {got[differs]}, expected {expected[differs]}")
    assert not wrong, "\n".join(wrong)


def test_derivatives() -> None:
    functions = (
        lambda x: special.jn(4, x), lambda x: special.yn(2, x), lambda x: special.kn(3, x), special.gamma, special.exprel,
        lambda x: special.ellipk(x / 40), lambda x: special.ellipe(x / 40), lambda x: special.huber(5.0, x),
        lambda x: special.beta(x, 2.0), lambda x: special.comb(x + 1, 2.0),
    )  # fmt: skip
    x, step = np.array([0.3, 2.0, 7.0, 30.0]), 1e-6
    tangents = dlc.jit(lambda x: [dlc.jvp(f, (x,), (np.ones(4),))[1] for f in functions], target="reference")(x)
    for function, tangent in zip(functions, tangents, strict=True):
        y = (function(x + step) - function(x - step)) / (2 * step)
        np.testing.assert_allclose(tangent[1:], y[1:], rtol=1e-6)


def test_orders_are_bounded() -> None:
    with pytest.raises(dlc.DlcError, match="order 500; expected from -200 to 200"):
        special.jn(500, X)


def test_the_derivative_of_exprel_next_to_zero() -> None:
    """It is 1/2 + x/3 + x²/8 + …, without cancellation in float32."""
    x = np.array([0, 1.1e-5, -2e-5, 1e-3, -0.01], np.float32)
    gradient = dlc.jit(dlc.grad(lambda x: special.exprel(x).sum()))(x)
    np.testing.assert_allclose(gradient, 0.5 + x / 3 + x**2 / 8 + x**3 / 30, rtol=1e-6)

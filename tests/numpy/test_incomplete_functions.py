"""Incomplete gamma and beta functions against values of 30 digits, their limits, and their derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dlc
from dlc import special

INF, NAN = math.inf, math.nan
# (a, x, P(a, x), Q(a, x)) and (a, b, x, I(a, b, x)), by mpmath: every method, and both sides of the limits between them.
GAMMA = [
    (0.05, 0.0001, 0.648126939262669, 0.351873060737331),
    (0.05, 0.3, 0.9543811218743458, 0.04561887812565424),
    (0.3, 1.05, 0.9215703360548394, 0.07842966394516059),
    (0.9, 0.4, 0.3797250573517283, 0.6202749426482718),
    (0.5, 1.2, 0.8786647496415179, 0.12133525035848215),
    (2.5, 1.0, 0.15085496391539036, 0.8491450360846097),
    (2.5, 3.0, 0.6937810815867216, 0.3062189184132784),
    (7.0, 30.0, 0.9999998826805799, 1.1731942002346961e-07),
    (19.0, 12.0, 0.03741648966339191, 0.962583510336608),
    (21.0, 14.0, 0.047908409419985205, 0.9520915905800148),
    (21.0, 26.0, 0.8613300800320883, 0.1386699199679117),
    (30.0, 30.0, 0.52428301389368, 0.4757169861063199),
    (30.0, 41.0, 0.9688457699080965, 0.03115423009190351),
    (100.0, 60.0, 1.4815276326460468e-06, 0.9999985184723673),
    (250.0, 255.0, 0.6312601781833672, 0.3687398218166328),
    (250.0, 400.0, 0.9999999999999997, 3.1770076592385687e-16),
    (3000.0, 2800.0, 9.580940676978428e-05, 0.9999041905932302),
    (10000.0, 10000.0, 0.5013298083399552, 0.4986701916600448),
    (10000.0, 13500.0, 1.0, 2.3086561643555273e-219),
    (1000000.0, 1001000.0, 0.8413447863683403, 0.15865521363165971),
]
BETA = [
    (0.05, 0.05, 0.3, 0.4802183280058102),
    (0.5, 0.5, 1e-06, 0.0006366198784709244),
    (0.5, 2.0, 0.9, 0.9961174629530395),
    (2.0, 3.0, 0.25, 0.26171875),
    (5.0, 0.1, 0.999, 0.38710164062500546),
    (9.0, 9.0, 0.5, 0.5),
    (40.0, 60.0, 0.35, 0.15345812249917357),
    (40.0, 60.0, 0.6, 0.9999721885677186),
    (1000.0, 3.0, 0.995, 0.12318159331562693),
    (500.0, 700.0, 0.4, 0.12051628908943207),
    (4000.0, 5000.0, 0.45, 0.8555565683736753),
    (0.001, 200.0, 0.01, 0.9999513641700233),
]
BETALN = (1.6571065161914822, 6.904208335756638, -4.0943445622221, -9550.849430486198, -6.335390211057437, -41.446531674892825)
SLOPES: dict[str, list[tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "gammainc": [
        ((0.3, 0.2), (-1.0233803072203944, 0.8443472324699167)),
        ((2.5, 1.0), (-0.1800996069540415, 0.2767383316137298)),
        ((2.5, 6.0), (-0.04392923998836797, 0.02740462000088208)),
        ((30.0, 33.0), (-0.060477394493677714, 0.057365070736305875)),
        ((100.0, 150.0), (-2.538946697261135e-06, 2.0838128235826387e-06)),
    ],
    "gammaincc": [
        ((0.3, 0.2), (1.0233803072203944, -0.8443472324699167)),
        ((2.5, 6.0), (0.04392923998836797, -0.02740462000088208)),
        ((30.0, 33.0), (0.060477394493677714, -0.057365070736305875)),
        ((100.0, 150.0), (2.538946697261135e-06, -2.0838128235826387e-06)),
    ],
    "betainc": [
        ((0.5, 0.5, 0.2), (-0.6419756782692088, 0.3875637692754405, 0.7957747154594766)),
        ((2.0, 3.0, 0.7), (-0.0695712511310605, 0.08187252372208087, 0.7560000000000002)),
        ((40.0, 60.0, 0.35), (-0.03060139003568163, 0.018321239196398435, 4.999617165382569)),
    ],
}


def test_incomplete_gamma() -> None:
    a, x, p, q = np.array(GAMMA).T
    got = dlc.jit(lambda a, x: (special.gammainc(a, x), special.gammaincc(a, x)))(a, x)
    np.testing.assert_allclose(got, [p, q], rtol=2e-12)
    np.testing.assert_allclose(special.gammainc(a[:4], x[:4]), p[:4], rtol=2e-13)
    single = dlc.jit(special.gammainc)(a.astype(np.float32), x.astype(np.float32))
    assert np.asarray(single).dtype == np.float32


def test_incomplete_beta() -> None:
    a, b, x, expected = np.array(BETA).T
    np.testing.assert_allclose(dlc.jit(special.betainc)(a, b, x), expected, rtol=1e-12)


def test_betaln() -> None:
    a, b = np.array([0.5, 1e-3, 3, 1e4, 1e6, 2]), np.array([0.25, 20, 4, 5e3, 0.5, 1e9])
    expected = [*BETALN]
    np.testing.assert_allclose(dlc.jit(special.betaln)(a, b), expected, rtol=1e-13)


def test_limits() -> None:
    a, x = np.array([2, 2, 0, 0, INF, -1, 1, INF, NAN]), np.array([0, INF, 1, 0, 2, 1, -1, INF, 1])
    np.testing.assert_array_equal(special.gammainc(a, x), [0, 1, 1, NAN, 0, NAN, NAN, NAN, NAN])
    np.testing.assert_array_equal(special.gammaincc(a, x), [1, 0, 0, NAN, 1, NAN, NAN, NAN, NAN])
    a, b, x = np.array([2, 2, 0, 3, 0, -1, 2.0]), np.array([3, 3, 3, 0, 0, 1, 2.0]), np.array([0, 1, 0.5, 0.5, 0.5, 0.5, 1.5])
    np.testing.assert_array_equal(special.betainc(a, b, x), [0, 1, 1, 0, NAN, NAN, NAN])


@pytest.mark.parametrize("name", [*SLOPES])
def test_derivatives(name: str) -> None:
    function, (points, slopes) = getattr(special, name), zip(*SLOPES[name], strict=True)
    arguments, expected = np.array(points).T, np.array(slopes).T

    def forward(*x: Any) -> list[Any]:
        return [dlc.jvp(function, x, [np.float64(i == k) for i in range(len(x))])[1] for k in range(len(x))]

    reverse = dlc.grad(function, tuple(range(len(arguments))))
    got = dlc.jit(dlc.vmap(lambda *x: (forward(*x), reverse(*x))))(*arguments)
    for slopes_of_mode in got:
        np.testing.assert_allclose(slopes_of_mode, expected, rtol=1e-9)


def test_derivative_at_zero() -> None:
    slope = dlc.vmap(dlc.grad(special.gammainc, 1))(np.array([0.5, 1, 2.0]), np.zeros(3))
    np.testing.assert_array_equal(slope, [INF, 1, 0])


def test_second_derivative_by_x() -> None:
    # The derivative of x^(a-1) e^-x / Γ(a) for a = 3.
    second = dlc.grad(dlc.grad(special.gammainc, 1), 1)(np.float64(3), np.float64(2))
    assert second == pytest.approx((2 * 2 - 2**2) * math.exp(-2) / 2, abs=1e-12)

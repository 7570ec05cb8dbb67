"""`dlc.special` against values computed with 30 digits, against difference quotients, and SciPy's special values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dlc
from dlc import special

# Arguments that every float dtype represents, and the values there, by mpmath.
VALUES: dict[str, tuple[list[float], list[float]]] = {
    "erf": (
        [-8.5, -2.25, -0.75, 0.125, 0.5, 1.75, 3.5, 9.25],
        [
            -1.0,
            -0.99853728341331885,
            -0.71115563365351513,
            0.14031620480133382,
            0.52049987781304654,
            0.98667167121918244,
            0.99999925690162766,
            1.0,
        ],
    ),
    "erfc": (
        [-8.5, -2.25, -0.75, 0.125, 0.5, 1.75, 3.5, 9.25],
        [
            2.0,
            1.9985372834133188,
            1.7111556336535151,
            0.85968379519866618,
            0.47950012218695346,
            0.013328328780817556,
            7.4309837234141275e-7,
            4.2020372149197111e-39,
        ],
    ),
    "erfcx": (
        [-8.5, -2.25, -0.75, 0.125, 0.5, 1.75, 3.5, 9.25],
        [
            4.7731635244483685e31,
            315.73888373164453,
            3.003171663627452,
            0.8732218450821508,
            0.6156903441929259,
            0.2849722347374364,
            0.1552936556088943,
            0.06064311514114366,
        ],
    ),
    "log_ndtr": (
        [-8.5, -2.25, -0.75, 0.125, 0.5, 1.75, 3.5, 9.25],
        [
            -39.19739642821767,
            -4.404315381153271,
            -1.4844482299196562,
            -0.598313068912425,
            -0.3689464152886564,
            -0.04088361815209493,
            -0.00023265614137680455,
            -1.1224633591327982e-20,
        ],
    ),
    "ndtri": (
        [0.0078125, 0.015625, 0.03125, 0.125, 0.375, 0.5, 0.75, 0.998046875],
        [
            -2.4175590162365051,
            -2.1538746940614562,
            -1.8627318674216515,
            -1.1503493803760082,
            -0.31863936396437516,
            0.0,
            0.67448975019608174,
            2.8856349124267571,
        ],
    ),
    "gammaln": (
        [-20.25, -3.75, -0.5, 0.0625, 1.5, 7.75, 10.5, 1000.0],
        [
            -41.600961915340524,
            -1.3172679424463637,
            1.2655121234846454,
            2.7396316219462034,
            -0.12078223763524522,
            8.0254583963159839,
            13.940625219403764,
            5905.2204232091812,
        ],
    ),
    "digamma": (
        [-20.25, -3.75, -0.5, 0.0625, 1.5, 7.75, 10.5, 1000.0],
        [
            6.1742356336144838,
            -1.6923885983113303,
            0.036489973978576521,
            -16.478853490060104,
            0.036489973978576521,
            1.9817915626943456,
            2.3030010342976864,
            6.9072551956488121,
        ],
    ),
    "i0": (
        [-60.5, -25.0, -3.25, 0.0625, 1.5, 12.75, 25.5, 80.0],
        [
            9.6772816958368982e24,
            5774560606.4663103,
            5.9893359979395184,
            1.0009768009444508,
            1.6467231897728908,
            38891.082566089018,
            9425875965.3176764,
            2.4751784043341705e33,
        ],
    ),
    "i0e": (
        [-60.5, -25.0, -3.25, 0.0625, 1.5, 12.75, 25.5, 80.0],
        [
            0.051396935812720722,
            0.080196773547436708,
            0.23223175875812104,
            0.94033068238046136,
            0.36743360905415834,
            0.11287438264606808,
            0.07939852454797062,
            0.044673291782275278,
        ],
    ),
    "i1": (
        [-60.5, -25.0, -3.25, 0.0625, 1.5, 12.75, 25.5, 80.0],
        [
            -9.5969680667597319e24,
            -5657865129.8787014,
            -4.952546165908548,
            0.031265261272791485,
            0.98166642857790759,
            37333.344823554051,
            9239167088.5568891,
            2.4596595795675409e33,
        ],
    ),
    "i1e": (
        [-60.5, -25.0, -3.25, 0.0625, 1.5, 12.75, 25.5, 80.0],
        [
            -0.050970382719785383,
            -0.078576113319292772,
            -0.19203105433313604,
            0.0293709948519366,
            0.21903938742092567,
            0.10835332860458383,
            0.077825789091938575,
            0.044393200058097465,
        ],
    ),
    "ndtr": (
        [-8.5, -2.25, -0.75, 0.125, 0.5, 1.75, 3.5, 9.25],
        [
            9.4795348222033184e-18,
            0.012224472655044703,
            0.2266273523768682,
            0.54973822483011289,
            0.6914624612740131,
            0.95994084313618291,
            0.99976737092096447,
            1.0,
        ],
    ),
    "expit": (
        [-8.5, -2.25, -0.75, 0.125, 0.5, 1.75, 3.5, 9.25],
        [
            0.00020342697805520652,
            0.095349464899109494,
            0.32082130082460703,
            0.53120937337375626,
            0.62245933120185456,
            0.85195280196831053,
            0.97068776924864368,
            0.99990389758450053,
        ],
    ),
    "log_expit": (
        [-8.5, -2.25, -0.75, 0.125, 0.5, 1.75, 3.5, 9.25],
        [
            -8.5002034476721294,
            -2.3502065589167472,
            -1.1368710061148999,
            -0.63259903531716907,
            -0.47407698418010668,
            -0.16022415043808723,
            -0.029750418272620565,
            -9.610703363248456e-5,
        ],
    ),
    "logit": (
        [0.0078125, 0.25, 0.484375, 0.5625, 0.75, 0.9375],
        [
            -4.8441870864585913,
            -1.0986122886681097,
            -0.06252035698133399,
            0.25131442828090608,
            1.0986122886681097,
            2.7080502011022101,
        ],
    ),
    "entr": (
        [0.0078125, 0.25, 0.484375, 0.5625, 0.75, 0.9375],
        [
            0.037906486436872009,
            0.34657359027997265,
            0.35112144132984834,
            0.32364233150825354,
            0.2157615543388357,
            0.060504863566472973,
        ],
    ),
    "erfinv": (
        [-0.96875, -0.5, 0.0625, 0.75],
        [-1.5230194019969561, -0.47693627620446987, 0.05544594877278202, 0.81341984759761854],
    ),
    "j0": (
        [-20.25, -3.25, 0.0625, 1.5, 5.5, 12.75, 60.5],
        [
            0.14542139387367762,
            -0.33275080217061151,
            0.99902367589271061,
            0.51182767173591813,
            -0.0068438694178191968,
            0.18288505664015527,
            -0.10255272478099084,
        ],
    ),
    "j1": (
        [-20.25, -3.25, 0.0625, 1.5, 5.5, 12.75, 60.5],
        [
            -0.1050149686495336,
            -0.24111968801520389,
            0.031234743694262266,
            0.55793650791009964,
            -0.34143821542904335,
            -0.12117855082319187,
            -0.0031323643677641963,
        ],
    ),
    "y0": (
        [0.0625, 1.5, 5.5, 12.75, 60.5],
        [-1.8364722732208493, 0.38244892379775884, -0.33948059288191104, -0.12824200354074158, -0.0022848010305739883],
    ),
    "y1": (
        [0.0625, 1.5, 5.5, 12.75, 60.5],
        [-10.25328863150691, -0.4123086269739113, -0.023758238956389618, -0.18804588535941155, 0.10253734416809377],
    ),
    "k0": (
        [0.0625, 0.5, 1.5, 2.5, 12.75, 60.5],
        [
            2.8923186673699382,
            0.92441907122766586,
            0.21380556264752574,
            0.062347553200366186,
            1.0091301604924682e-6,
            8.5403581676705559e-28,
        ],
    ),
    "k0e": (
        [0.0625, 0.5, 1.5, 2.5, 12.75, 60.5],
        [
            3.0788571948399866,
            1.5241093857739095,
            0.9582100532948965,
            0.75954869032809958,
            0.34769771024754626,
            0.16080229388195202,
        ],
    ),
    "k1": (
        [0.0625, 0.5, 1.5, 2.5, 12.75, 60.5],
        [
            15.894045582444432,
            1.6564411200033009,
            0.27738780045684382,
            0.073890816347747064,
            1.0479823549844807e-6,
            8.610652681565439e-28,
        ],
    ),
    "k1e": (
        [0.0625, 0.5, 1.5, 2.5, 12.75, 60.5],
        [
            16.919123452299979,
            2.7310097082117857,
            1.243165873552553,
            0.90017442390787809,
            0.3610843075288847,
            0.16212583545476372,
        ],
    ),
}
INF, NAN = math.inf, math.nan
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "erf": [(INF, 1), (-INF, -1), (NAN, NAN)],
    "erfc": [(INF, 0), (-INF, 2), (NAN, NAN), (0, 1), (40, 0)],
    "erfcx": [(INF, 0), (-INF, INF), (NAN, NAN), (0, 1), (1e10, 5.641895835477563e-11)],
    "log_ndtr": [(INF, 0), (-INF, -INF), (NAN, NAN), (-1e4, -50000010.12927891), (-1.9e19, -1.805e38)],
    "erfinv": [(1, INF), (-1, -INF), (1.5, NAN)],
    "ndtri": [
        (2.0**-1000, -37.111011937164791),
        (2.0**-50, -7.956038125481531),
        (0, -INF),
        (1, INF),
        (-0.5, NAN),
        (1.5, NAN),
        (NAN, NAN),
    ],
    "gammaln": [(INF, INF), (-INF, -INF), (NAN, NAN), (0, INF), (-3, INF), (1, 0), (2, 0)],
    "digamma": [(INF, INF), (-INF, NAN), (NAN, NAN), (0, -INF), (-0.0, INF), (-3, NAN)],
    "i0": [(INF, INF), (-INF, INF), (NAN, NAN), (0, 1), (710, 3.345334558619656e306)],
    "i1": [(INF, INF), (-INF, -INF), (NAN, NAN), (0, 0)],
    "i0e": [(INF, 0), (-INF, 0), (NAN, NAN), (0, 1)],
    "i1e": [(INF, 0), (NAN, NAN), (0, 0)],
    "j0": [(INF, 0), (-INF, 0), (NAN, NAN), (0, 1)],
    "j1": [(INF, 0), (-INF, 0), (NAN, NAN), (0, 0)],
    "y0": [(INF, 0), (-1, NAN), (NAN, NAN), (0, -INF)],
    "y1": [(INF, 0), (-1, NAN), (NAN, NAN), (0, -INF)],
    "k0": [(INF, 0), (-1, NAN), (NAN, NAN), (0, INF)],
    "k0e": [(INF, 0), (-1, NAN), (NAN, NAN), (0, INF)],
    "k1": [(INF, 0), (-1, NAN), (NAN, NAN), (0, INF)],
    "k1e": [(INF, 0), (-1, NAN), (NAN, NAN), (0, INF)],
    "ndtr": [(INF, 1), (-INF, 0), (NAN, NAN), (0, 0.5)],
    "expit": [(INF, 1), (-INF, 0), (NAN, NAN)],
    "log_expit": [(INF, 0), (-INF, -INF), (NAN, NAN), (-1e4, -1e4)],
    "logit": [(0, -INF), (1, INF), (2, NAN), (0.5, 0)],
    "entr": [(0, 0), (-1, -INF), (1, 0), (NAN, NAN)],
}


def all_of(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(special, name)(x) for name, x in arguments.items()}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_values(target: str, dtype: Any) -> None:
    """Also at the limits of a function's domain, at arguments that float64 represents."""
    special_cases = SPECIAL if dtype == np.float64 else {}
    points = {name: [*x, *(at for at, _ in special_cases.get(name, []))] for name, (x, _) in VALUES.items()}
    got = dlc.jit(target=target)(all_of)({name: np.array(x, dtype) for name, x in points.items()})
    for name, (x, expected) in VALUES.items():
        with np.errstate(over="ignore"):
            rounded = np.array(expected).astype(dtype)
        # Half precision is computed in float32 or wider and rounded once.
        ulps = 1 if dtype == np.float16 else 16
        # Near a root the absolute error of the terms bounds the relative accuracy.
        least = 4e-15 if name in ("gammaln", "digamma", "j0", "j1", "y0", "y1") else np.finfo(dtype).tiny
        assert got[name].dtype == dtype
        np.testing.assert_allclose(got[name][: len(x)], rounded, rtol=ulps * np.finfo(dtype).eps, atol=least, err_msg=name)
        values = [y for _, y in special_cases.get(name, [])]
        np.testing.assert_allclose(got[name][len(x) :], values, rtol=1e-13, atol=3e-15, err_msg=name)


def test_gammaln_next_to_its_roots() -> None:
    x = np.array([1, 2, 1 + 2**-40, 2 - 2**-40, 2.75])
    expected = [0, 0, -5.24974589007601782e-13, -3.84520112764379389e-13, 0.475214666914937130]
    np.testing.assert_allclose(dlc.jit(special.gammaln)(x), expected, rtol=1e-15)


def test_erfcx_overflow() -> None:
    for x, expected in ((np.float32(-9.3789072), 3.1861522002327341e38), (np.float64(-26.628), 1.7286185065900286e308)):
        np.testing.assert_allclose(dlc.jit(special.erfcx)(np.array([x])), expected, rtol=8 * np.finfo(x.dtype).eps)


def test_derivatives() -> None:
    arguments = {name: np.array([v for v in x if abs(v) < 30]) for name, (x, _) in VALUES.items()}
    step = {name: 1e-6 * np.maximum(abs(x), 0.1) for name, x in arguments.items()}
    values, slopes = dlc.jit(lambda x, t: dlc.jvp(all_of, (x,), (t,)))(
        arguments, {n: np.ones_like(x) for n, x in arguments.items()}
    )
    above, below = (all_of({n: x + sign * step[n] for n, x in arguments.items()}) for sign in (1, -1))
    for name in arguments:
        quotient = (above[name] - below[name]) / (2 * step[name])
        np.testing.assert_allclose(slopes[name], quotient, rtol=2e-7, atol=1e-9 * np.abs(values[name]).max(), err_msg=name)


def test_functions_of_two() -> None:
    x, y = np.array([0, 0, 0, 1, 2, NAN, 0]), np.array([0, 1, NAN, -1, 3, 0, INF])
    with np.errstate(all="ignore"):
        expected = [np.where((x == 0) & ~np.isnan(y), 0, x * function(y)) for function in (np.log, np.log1p)]
    got = dlc.jit(lambda x, y: (special.xlogy(x, y), special.xlog1py(x, y)))(x, y)
    np.testing.assert_allclose(got, expected, rtol=1e-15)


def test_zeta_and_polygamma() -> None:
    x = np.array([1.25, 2, 3, 4.5, 2, 8, 20, 1, 0.5, 2, 2, 2, 1.5])
    q = np.array([0.5, 1, 0.0625, 2.25, 100, 1.5, 3, 1, 1, -3, -0.5, 1e300, INF])
    expected = [
        *(6.33396752920820211, 1.64493406684822644, 4097.02115277518136, 0.0336601886762780102, 0.0100501666633335714),
        *(0.0397258304758065416, 2.87717466546113152e-10, INF, NAN, INF, NAN, 1e-300, 0),
    ]
    n, z = np.array([1, 1, 1, 1, 2, 3, 5, 0, 2, 1]), np.array([-3.75, 0.0625, 1.5, 1000, 1.5, 0.25, 10.5, 1.5, -0.5, 1e200])
    derived = [
        *(19.5049800605995753, 257.506420042915414, 0.934802200544679309, 0.00100050016666663333, -0.828796644234319996),
        *(1538.7821440091884, 0.000237047875076858516, 0.0364899739785765206, NAN, 1e-200),
    ]
    got = dlc.jit(lambda x, q, n, z: (special.zeta(x, q), special.polygamma(n, z)))(x, q, n, z)
    np.testing.assert_allclose(got[0], expected, rtol=1e-14)
    np.testing.assert_allclose(got[1], derived, rtol=1e-14)
    (at,) = np.flatnonzero(n == 2)[:1]
    np.testing.assert_allclose(dlc.grad(lambda x: special.polygamma(1, x))(z[at]), derived[at], rtol=1e-12)


def test_logsumexp() -> None:
    x = np.array([[1.0, 2.0, 1000.0], [-INF, -INF, -INF], [0.0, 0.0, INF]])
    np.testing.assert_allclose(special.logsumexp(x, axis=1), [1000, -INF, INF])
    assert special.logsumexp(x[:1], axis=-1, keepdims=True).shape == (1, 1)
    np.testing.assert_allclose(dlc.grad(special.logsumexp)(np.array([0.0, 0.0])), [0.5, 0.5])

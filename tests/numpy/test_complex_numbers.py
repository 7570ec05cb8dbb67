"""Functions of complex numbers against NumPy's, at infinities, NaN, zeros of both signs, and extreme sizes."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp

SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, 1e-6, np.inf, -np.inf, np.nan)
PAIRS = np.array([complex(*pair) for pair in itertools.product(SPECIAL, SPECIAL)])
# Extreme sizes of f32, also of f64 when divided by their sizes in f32.
EXTREME = np.array([-1 + 1e-6j, -1 - 1e-6j, 1e30 + 1e30j, 3e38 + 3e38j, 1e-40 + 1e-40j, -3e38 + 1j, 1e-45, 1e-3 - 1e20j])
PRECISIONS = ((np.complex64, 5e-7), (np.complex128, 2e-15))


def check(got: Any, wanted: Any, tolerance: float, z: Any = None) -> None:
    for one, other in ((got.real, wanted.real), (got.imag, wanted.imag)):
        np.testing.assert_allclose(one, other, tolerance, 0)
        # C99 leaves the signs of the zeros of exp(-inf + inf i) open.
        is_zero = (other == 0) & np.isfinite(wanted if z is None else z.imag)
        np.testing.assert_array_equal(np.signbit(one[is_zero]), np.signbit(other[is_zero]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["sqrt", "exp", "log", "reciprocal"])
def test_special_values(name: str, target: str, dtype: type, tolerance: float) -> None:
    for z in (PAIRS, EXTREME) if name in ("sqrt", "log") else (PAIRS,):
        z = z.astype(dtype)
        check(dlc.jit(getattr(dnp, name), target=target)(z), getattr(np, name)(z), tolerance, z)


def test_the_exponential_of_a_large_number_is_finite_where_it_can_be() -> None:
    z = np.array([89 + 1.57j, 89 + 3.14j], np.complex64)
    wanted, got = np.exp(z.astype(np.complex128)), dlc.jit(dnp.exp, target="reference")(z)
    np.testing.assert_allclose([got[0].real, got[1].imag], [wanted[0].real, wanted[1].imag], 1e-5)


def test_numbers_have_as_many_axes_as_wanted() -> None:
    for function in ("atleast_1d", "atleast_2d", "atleast_3d"):
        wanted = getattr(np, function)(np.ones(2) * 1j, 2j)
        own = getattr(dnp, function)
        for got in (own(np.ones(2) * 1j, 2j), dlc.jit(lambda x, f=own: f(x * 1j, 2j), target="reference")(np.ones(2))):
            for array, expected in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(array, expected)


ELEMENTARY = (
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
    *("expm1", "log1p", "exp2", "log2", "log10", "sign"),
)
PARTS = (0.0, -0.0, 1e-6, -1e-6, 0.3, -0.3, 0.9, -0.9, 1.0 + 2**-10, -1.0 - 2**-10, 2.5, -2.5, 20.0, -20.0)
PLANE = np.array([complex(*pair) for pair in itertools.product(PARTS, PARTS)])
FAR = np.array([1e30 + 1e30j, -3e38 + 1j, 1e-3 - 1e20j, complex(np.inf, 1), complex(-2, np.inf), complex(np.inf, -np.inf)])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.complex64, 3e-6), (np.complex128, 1e-14)])
def test_elementary_functions(dtype: type, tolerance: float) -> None:
    for z, names, target in ((PLANE, ELEMENTARY, "cpu"), (FAR, ELEMENTARY[6:12], "reference")):
        z, functions = z.astype(dtype), [getattr(dnp, name) for name in names]
        for name, got in zip(names, dlc.jit(lambda z, f=functions: [g(z) for g in f], target=target)(z), strict=True):
            wanted = getattr(np, name)(z.astype(np.complex128))
            for part in ("real", "imag"):
                np.testing.assert_allclose(getattr(got, part), getattr(wanted, part), tolerance, tolerance, err_msg=name)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_infinite_and_undefined_parts_of_elementary_functions() -> None:
    names = [name for name in ELEMENTARY if name not in ("expm1", "log1p")]
    results = dlc.jit(lambda z: [getattr(dnp, name)(z) for name in names], target="reference")(PAIRS)
    for name, got in zip(names, results, strict=True):
        wanted = getattr(np, name)(PAIRS)
        for part, other in (("real", "imag"), ("imag", "real")):
            # C99 leaves the sign of an infinite part next to an undefined one open.
            is_open = np.isnan(getattr(wanted, other))
            a, b = (np.where(is_open & np.isinf(x), np.inf, x) for x in (getattr(got, part), getattr(wanted, part)))
            np.testing.assert_allclose(a, b, 1e-14, 1e-14, err_msg=f"{name}, {part}")


def test_next_to_the_poles_of_the_arctangent() -> None:
    z = np.array([1e-30 - 1j, 1 + 1e-30j, -1 + 1e-40j, 1 - 1e-4j])
    for dtype, tolerance in PRECISIONS:
        wanted = np.arctanh(z.astype(dtype).astype(np.complex128))
        np.testing.assert_allclose(dnp.arctanh(z.astype(dtype)), wanted, 2 * tolerance)


def test_derivatives_of_elementary_functions() -> None:
    """Finite differences along the real axis, at points of which some are on an axis."""
    points = np.array([0.4 + 0.3j, 0.4, 0.3j, -1.7 + 0.6j, 2.2 - 0.1j])
    names = [name for name in ELEMENTARY if name != "sign"]

    def sums(a: Any) -> Any:
        return dnp.stack(
            [part for name in names for y in [getattr(dnp, name)(a + 1j * points.imag)] for part in (y.real, y.imag)]
        )

    _, tangents = dlc.jvp(sums, (points.real,), (np.ones(5),))
    step = 1e-6
    for k, name in enumerate(names):
        difference = (getattr(np, name)(points + step) - getattr(np, name)(points - step)) / (2 * step)
        np.testing.assert_allclose(tangents[2 * k] + 1j * tangents[2 * k + 1], difference, 1e-6, 1e-6, err_msg=name)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_division_by_zero_and_infinity() -> None:
    z = np.array([1 + 1j, 1, 1j, 0, -1, -2 - 1j, np.inf])
    divide = dlc.jit(lambda a, b: a / b, target="reference")
    zeros = np.zeros_like(z)
    check(divide(z, zeros), z / zeros, 0)
    for infinite in (complex(np.inf, np.inf), complex(-np.inf, np.inf), complex(np.inf, 1), complex(0, -np.inf)):
        np.testing.assert_array_equal(divide(z[:-1], np.full(6, infinite)), 0)


@pytest.mark.parametrize("name", ["sqrt", "exp", "log"])
def test_derivatives(name: str) -> None:
    """The Cauchy-Riemann equations with the complex derivative, also on the real axis."""
    of_numpy: dict[str, Any] = {"sqrt": lambda z: 0.5 / np.sqrt(z), "exp": np.exp, "log": lambda z: 1 / z}
    for z in (2 + 0j, 1 + 3j, -2 + 1j, -1 - 3j, 1j, 1 + 1j):
        x = np.array([z.real, z.imag])
        derivative = dlc.jacrev(lambda x: _parts_of(getattr(dnp, name), x))(x)
        slope = of_numpy[name](z)
        np.testing.assert_allclose(derivative, [[slope.real, -slope.imag], [slope.imag, slope.real]], 1e-12, 1e-12)


def _parts_of(function: Any, x: Any) -> Any:
    result = function(x[0] + 1j * x[1])
    return dnp.stack([result.real, result.imag])


def test_padding() -> None:
    """Ramps and means act on both parts; end values may be real, complex or traced."""
    x = np.array([[1 + 2j, 1 - 1j, 5j], [2, 3, 4j]], np.complex64)
    width = ((1, 2), (2, 1))
    options: list[dict[str, Any]] = [
        {"mode": "linear_ramp", "end_values": -4},
        {"mode": "linear_ramp", "end_values": ((1j, 2), (3, 4 - 1j))},
        {"mode": "mean", "stat_length": ((1, 2), (2, 1))},
    ]
    for option in options:
        result = dlc.jit(lambda x, option=option: dnp.pad(x, width, **option))(x)
        np.testing.assert_allclose(result, np.pad(x, width, **option), rtol=1e-6)
    ends = np.array([[1, 2], [3, 4]], np.float32)
    traced = dlc.jit(lambda x, ends: dnp.pad(x, 1, mode="linear_ramp", end_values=ends))(x, ends)
    np.testing.assert_allclose(traced, np.pad(x, 1, mode="linear_ramp", end_values=ends), rtol=1e-6)
    with pytest.raises(dlc.UnsupportedError, match=r"pad: mode 'maximum' of a complex array; apply it to \.real and \.imag"):
        dlc.jit(lambda x: dnp.pad(x, 1, mode="maximum"))(x)


def test_powers() -> None:
    """Exponents are integers, fractions, complex numbers and arrays; powers of 0 are those of NumPy."""
    z = np.array([1 + 2j, -0.5 + 0.25j, -3, 1e-3j, 0, 0, 0, 0])
    exponents = np.array([0.5, -1.5 + 1j, 1 / 3, 2 - 1j, 0, 2.5, 1j, -1])
    calls: list[Any] = [
        lambda z, w: (z**0.5, z**2.0, z ** (1 - 2j), z**-2, z**w, w**z, z.real**w, 2.0**z, z**w.real, np.power(z, w)),
        lambda z, w: (
            dnp.array_equal(z, z + 0),
            dnp.array_equiv(z, z[0]),
            dnp.array_equal(z / z.imag, z / z.imag, equal_nan=True),
        ),
    ]
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        for f in calls:
            results = (f(z, exponents), dlc.jit(f, target="reference")(z, exponents))
            expected = f(z, exponents) if f is calls[0] else (True, False, True)
            for result in results:
                for k, (got, want) in enumerate(zip(result, expected, strict=True)):
                    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-15, err_msg=str(k))

    single = dlc.jit(lambda z, w: z**w, target="reference")(z[:4].astype(np.complex64), exponents[:4].astype(np.complex64))
    assert single.dtype == np.complex64
    np.testing.assert_allclose(single, z[:4] ** exponents[:4], rtol=1e-5)

    def loss(z: Any) -> Any:
        return dnp.sum(dnp.abs(z**0.5 + z ** (1 + 1j)))

    direction, step = 1 - 0.5j, 1e-6
    gradient = dlc.jit(dlc.grad(loss), target="reference")(z[:2])
    expected = (loss(z[:2] + direction * step) - loss(z[:2] - direction * step)) / (2 * step)
    np.testing.assert_allclose(np.real(np.conj(gradient) * direction).sum(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int32, np.float16, np.float32, np.float64, np.complex64])
def test_powers_of_promoted_dtypes(dtype: Any) -> None:
    real, z = np.ones(2, dtype), np.complex64([1 + 2j, -0.5j])
    for x, y in ((real, z), (z, real)):
        got, expected = dnp.power(x, y), np.power(x, y)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_comparisons_roundings_and_samples() -> None:
    z = np.array([1.5 + 2.25j, 0, complex(-np.inf, 0.5), complex(np.nan, 1), 1.5 + 2.25j])
    near = z + 1e-7
    calls: dict[str, tuple[Any, ...]] = {
        "isclose": (z, near),
        "allclose": (z[:2], near[:2]),
        "any": (z,),
        "all": (z,),
        "count_nonzero": (z,),
        "logical_not": (z,),
        "logical_and": (z, near.imag),
        "round": (z[:2], 1),
        "rint": (z,),
        "nan_to_num": (z,),
        "convolve": (z[:2], z[:1]),
        "correlate": (z[:2], 1j * z[:1]),
        "linspace": (0, 1 + 2j, 5),
        "zeros_like": (z,),
        "ones_like": (z, np.dtype(np.complex64)),
        "trapezoid": (z[:2],),
        "gradient": (np.array([1, 2j, 3 + 1j, 0]),),
    }
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        for name, arguments in calls.items():
            arrays, others = (
                [x for x in arguments if isinstance(x, np.ndarray)],
                [x for x in arguments if not isinstance(x, np.ndarray)],
            )
            function, expected = getattr(dnp, name), np.asarray(getattr(np, name)(*arguments))
            results = [function(*arguments)]
            if arrays:
                results.append(
                    dlc.jit(lambda arrays, f=function, others=others: f(*arrays, *others), target="reference")(arrays)
                )
            for result in results:
                assert np.asarray(result).dtype.kind == expected.dtype.kind, name
                np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-12, err_msg=name)
        for got, want in zip(dnp.nonzero(z), np.nonzero(z), strict=True):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(dnp.isclose(z, z, equal_nan=True), True)
        assert dnp.empty_like(z, np.float32).dtype == np.float32 and dnp.ones_like(z, np.complex64).dtype == np.complex64

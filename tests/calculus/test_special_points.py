"""Derivatives at points where they are easy to get wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DTypeError

INF, NAN = np.inf, np.nan


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def max_pool(x: Any) -> Any:
    return dnp.sum(dlc.nn.max_pool(dnp.reshape(x, (1, 4, 1)), (2,)) * np.array([1.0, 10.0]).reshape(1, 2, 1))


def set_twice(v: Any) -> Any:
    return dnp.sum(dnp.at(dnp.zeros(3, np.float64))[np.array([1, 1])].set(v))


def newton(a: Any) -> Any:
    """√a by Newton's method."""
    return lax.while_loop(lambda x: dnp.abs(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a)


def cubes(x: Any) -> Any:
    return dnp.sum(dnp.maximum(x, 0.0) ** 3)


def used_twice(x: Any) -> Any:
    below = dnp.expm1(x)
    return dnp.where(x > 0, x, below * below + below)


def chosen_softmax(x: Any) -> Any:
    """The first weight of each row that is not all -inf, in two ways."""
    chosen = dnp.max(x, -1, keepdims=True) > -INF
    by_rows, by_elements = (dnp.where(c, dlc.nn.softmax(x), 0) for c in (chosen, x > -INF))
    return dnp.sum(by_rows[:, 0]) + dnp.sum(by_elements[:, 0])


# The function, the point, and the gradient with respect to each argument.
ANSWERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "where_sqrt": (lambda x: dnp.sum(dnp.where(x > 0, dnp.sqrt(x), 0)), (vector(0, -1),), (vector(0, 0),)),
    "where_of_where": (
        lambda x: dnp.sum(dnp.where(x > 0, dnp.where(x < 2, dnp.log(x), x), 0)),
        (vector(0, 1, 3),),
        (vector(0, 1, 1),),
    ),
    "where_softmax": (chosen_softmax, (np.array([[1, 1], [-INF, -INF]]),), (np.array([[0.5, -0.5], [0, 0]]),)),
    "where_log_softmax": (
        lambda x: dnp.sum(dnp.where(x > -INF, dlc.nn.log_softmax(x), 0)),
        (np.array([[1, 1], [-INF, -INF]]),),
        (np.array([[0, 0], [0, 0]]),),
    ),
    "not_chosen_twice": (used_twice, (1000.0,), (1.0,)),
    "sqrt": (dnp.sqrt, (0.0,), (INF,)),
    "norm": (dnp.linalg.norm, (vector(0, 0),), (vector(0, 0),)),
    "norm_squared": (lambda x: dnp.linalg.norm(x) ** 2, (vector(0, 0),), (vector(0, 0),)),
    "abs": (dnp.abs, (0.0,), (0.0,)),
    "relu": (dlc.nn.relu, (0.0,), (0.0,)),
    "maximum": (lambda x: dnp.maximum(x, 0.0), (0.0,), (0.5,)),
    "max": (dnp.max, (vector(2, 2, 1),), (vector(0.5, 0.5, 0),)),
    "min": (dnp.min, (vector(2, 1, 1),), (vector(0, 0.5, 0.5),)),
    "max_pool": (max_pool, (vector(3, 3, 1, 1),), (vector(1, 0, 10, 0),)),
    "sort": (lambda x: dnp.sort(x)[0], (vector(2, 1, 1),), (vector(0, 1, 0),)),
    "clip_low": (lambda x: dnp.clip(x, 0, 1), (0.0,), (0.5,)),
    "clip_high": (lambda x: dnp.clip(x, 0, 1), (1.0,), (0.5,)),
    "logaddexp_of_nothing": (dnp.logaddexp, (-INF, -INF), (0.0, 0.0)),
    "logaddexp_of_one": (dnp.logaddexp, (-INF, 0.0), (0.0, 1.0)),
    "logaddexp_of_equals": (dnp.logaddexp, (2.0, 2.0), (0.5, 0.5)),
    "prod_with_a_zero": (dnp.prod, (vector(0, 2, 3),), (vector(6, 0, 0),)),
    "prod_with_zeros": (dnp.prod, (vector(0, 0, 3),), (vector(0, 0, 0),)),
    "cumprod": (lambda x: dnp.sum(dnp.cumprod(x)), (vector(2, 0, 3),), (vector(1, 8, 0),)),
    "atan2": (dnp.arctan2, (1.0, 1.0), (0.5, -0.5)),
    "atan2_behind": (dnp.arctan2, (0.0, -1.0), (-1.0, 0.0)),
    "atan2_at_nothing": (dnp.arctan2, (0.0, 0.0), (NAN, NAN)),
    "square_at_zero": (lambda x: x**2.0, (0.0,), (0.0,)),
    "power_of_zero_to_zero": (lambda x, y: x**y, (0.0, 0.0), (0.0, 0.0)),
    "power_of_zero": (lambda x, y: x**y, (0.0, 2.0), (0.0, 0.0)),
    "power_of_negative": (lambda x: x**3.0, (-2.0,), (12.0,)),
    "through_integers": (lambda x: dnp.sum(x.astype(np.int32).astype(np.float64)), (vector(1.5),), (vector(0),)),
    "std": (dnp.std, (vector(2, 2, 2),), (vector(0, 0, 0),)),
    "set_twice": (set_twice, (vector(5, 6),), (vector(0, 1),)),
    "softplus": (lambda x: dnp.logaddexp(x, 0.0), (100.0,), (1.0,)),
    "sigmoid": (lambda x: 1 / (1 + dnp.exp(-x)), (-90.0,), (pytest.approx(0, abs=1e-30),)),
    "tanh": (dnp.tanh, (50.0,), (0.0,)),
    "newton": (newton, (3.0,), (0.5 / 3**0.5,)),
    "hypot": (dnp.hypot, (3.0, 4.0), (0.6, 0.8)),
    "hypot_of_equals": (dnp.hypot, (3.0, 3.0), (0.5**0.5, 0.5**0.5)),
    "cbrt": (dnp.cbrt, (-8.0,), (1 / 12,)),
    "sinc": (dnp.sinc, (0.0,), (0.0,)),
    "sinc_twice": (lambda x: dlc.grad(dnp.sinc)(x), (0.0,), (-(np.pi**2) / 3,)),
    "hessian_of_cubes": (lambda x: dnp.sum(dlc.grad(cubes)(x)), (vector(-1, 0, 2),), (vector(0, 0, 12),)),
    "stopped": (lambda x: x * dlc.stop_gradient(x), (3.0,), (3.0,)),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_gradient(name: str) -> None:
    f, arguments, expected = ANSWERS[name]
    every = tuple(range(len(arguments)))
    gradient = dlc.jit(target="reference")(lambda *given: dlc.grad(f, argnums=every)(*given))(*arguments)
    for got, right in zip(gradient, expected, strict=True):
        if isinstance(right, float | np.ndarray):
            np.testing.assert_allclose(np.asarray(got), right, rtol=1e-7, atol=1e-12)
        else:
            assert float(got) == right


def test_an_integer_has_no_gradient() -> None:
    with pytest.raises(DTypeError, match=r"argument 0 has dtype int64, which has no gradient"):
        dlc.grad(lambda x: x * 2.0)(3)


def test_a_masked_row_of_attention_gives_zeros() -> None:
    """A fully masked query gives zeros, and no NaN in gradients."""

    def loss(q: Any, k: Any, v: Any) -> Any:
        return dnp.sum(dlc.nn.attention(q, k, v, mask=np.array([[True, True], [False, False]])) ** 2)

    random = np.random.default_rng(0)
    arguments = [random.standard_normal((1, 2, 4), np.float32) for _ in range(3)]
    for gradient in dlc.grad(loss, argnums=(0, 1, 2))(*arguments):
        assert np.isfinite(np.asarray(gradient)).all()


# Functions of more equal elements than f16 counts: each gets the same share of the gradient.
_MANY = 70_000
TIES: dict[str, Callable[[Any], Any]] = {
    "max": dnp.max,
    "min": dnp.min,
    "nanmax": dnp.nanmax,
    "nanmin": dnp.nanmin,
    "infinity norm": lambda x: dnp.linalg.norm(x, INF),
    "rows": lambda x: dnp.max(dnp.reshape(x, (_MANY, 1)), 0)[0],
    "scattered": lambda x: dnp.at(dnp.zeros(2, x.dtype))[np.zeros(_MANY, np.int64)].max(x)[0],
}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", TIES)
def test_many_ties_in_half_precision(name: str, dtype: Any) -> None:
    x = np.ones(_MANY, dtype)
    run = dlc.jit(lambda x: (dlc.grad(TIES[name])(x), dlc.jvp(TIES[name], (x,), (x,))[1]), target="reference")
    gradient, tangent = (np.asarray(result).astype(np.float64) for result in run(x))
    np.testing.assert_allclose(gradient, 1 / _MANY, rtol=1e-2)
    assert tangent == pytest.approx(1, rel=1e-2)


# Means and norms whose sums f16 cannot represent.
SUMS: dict[str, Callable[[Any], Any]] = {
    "average": lambda x: dnp.average(x, weights=x),
    "cov": dnp.cov,
    "cov of weights": lambda x: dnp.cov(x, aweights=np.abs(np.sin(np.arange(_MANY)))),
    "norm": lambda x: dnp.linalg.norm(x, 3),
    "avg_pool": lambda x: dlc.nn.avg_pool(dnp.reshape(x, (1, _MANY, 1)), (_MANY,)),
    "log_softmax": dlc.nn.log_softmax,
}


@pytest.mark.parametrize("name", SUMS)
def test_large_sums_in_half_precision(name: str) -> None:
    def results(x: np.ndarray) -> list[np.ndarray]:
        run = dlc.jit(lambda x: (SUMS[name](x), dlc.grad(lambda x: dnp.sum(SUMS[name](x)))(x)), target="reference")
        return [np.asarray(result).astype(np.float64) for result in run(x)]

    x = np.random.default_rng(0).uniform(0.5, 1.5, _MANY).astype(np.float16)
    for got, expected in zip(results(x), results(x.astype(np.float32)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-2, atol=5e-3)

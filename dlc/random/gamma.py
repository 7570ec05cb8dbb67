"""The gamma distribution, and those that are derived from it: beta, chi-squared, Dirichlet and Student's t.

The default shape of a result is that to which the parameters broadcast; a parameter that is not positive gives nan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.calculus.batching import vmap
from dlc.errors import DTypeError, ShapeError
from dlc.lax import while_loop
from dlc.numpy import (
    broadcast_shapes,
    broadcast_to,
    divide,
    exp,
    greater_equal,
    less_equal,
    log,
    logical_and,
    logical_or,
    maximum,
    multiply,
    negative,
    power,
    sqrt,
    subtract,
    where,
)
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, convert, is_floating, operand, refuse
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.creation import Shape
from dlc.random.distributions import exponential_from_key, normal_from_key, uniform_from_key
from dlc.random.keys import as_int_shape, checked_key, derive_keys
from dlc.special.incomplete_gamma import log_sample_derivative

__all__ = ["beta", "chisquare", "dirichlet", "gamma", "loggamma", "t"]


def gamma(
    key: ArrayLike, a: ArrayLike, shape: Shape | None = None, dtype: AnyDType = np.float32, *, reuse: bool = False
) -> Any:
    """Draw floats from the gamma distribution of shape parameter `a` and scale 1; differentiable with respect to `a`.

    Algorithm: Marsaglia and Tsang, A simple method for generating gamma variables, 2000.
    """
    parameter = _parameter("gamma", a, shape, dtype)
    return _gamma_from_key(checked_key("gamma", key, reuse), parameter, False)


def loggamma(
    key: ArrayLike, a: ArrayLike, shape: Shape | None = None, dtype: AnyDType = np.float32, *, reuse: bool = False
) -> Any:
    """Draw logarithms of floats from the gamma distribution; these are finite where small `a` make the floats 0."""
    parameter = _parameter("loggamma", a, shape, dtype)
    return _gamma_from_key(checked_key("loggamma", key, reuse), parameter, True)


def beta(
    key: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    shape: Shape | None = None,
    dtype: AnyDType = np.float32,
    *,
    reuse: bool = False,
) -> Any:
    """Draw floats from the beta distribution of parameters `a` and `b`."""
    size = broadcast_shapes(operand(a).shape, operand(b).shape) if shape is None else shape
    keys = derive_keys(checked_key("beta", key, reuse), (2,))
    logarithms = [
        _gamma_from_key(operand(keys[k]), _parameter("beta", parameter, size, dtype), True)
        for k, parameter in enumerate((a, b))
    ]
    largest = maximum(*logarithms)
    first, second = (exp(subtract(logarithm, largest)) for logarithm in logarithms)
    return divide(first, first + second)


def dirichlet(
    key: ArrayLike, alpha: ArrayLike, shape: Shape | None = None, dtype: AnyDType = np.float32, *, reuse: bool = False
) -> Any:
    """Draw vectors from the Dirichlet distribution with the parameters along the last axis of `alpha`.

    The result has the shape `shape`, by default that of `alpha` without its last axis, followed by that axis.
    """
    parameters = operand(alpha)
    if not parameters.shape:
        refuse(ShapeError("dlc.random.dirichlet: alpha has no axes; expected parameters along the last axis"))
    size = (*(parameters.shape[:-1] if shape is None else as_int_shape(shape)), parameters.shape[-1])
    parameter = _parameter("dirichlet", parameters, size, dtype)
    logarithms = _gamma_from_key(checked_key("dirichlet", key, reuse), parameter, True)
    variates = exp(subtract(logarithms, logarithms.max(axis=-1, keepdims=True)))
    return divide(variates, variates.sum(axis=-1, keepdims=True))


def chisquare(
    key: ArrayLike, df: ArrayLike, shape: Shape | None = None, dtype: AnyDType = np.float32, *, reuse: bool = False
) -> Any:
    """Draw floats from the chi-squared distribution with `df` degrees of freedom."""
    half = divide(_parameter("chisquare", df, shape, dtype), 2)
    return multiply(exp(_gamma_from_key(checked_key("chisquare", key, reuse), half, True)), 2)


def t(key: ArrayLike, df: ArrayLike, shape: Shape | None = None, dtype: AnyDType = np.float32, *, reuse: bool = False) -> Any:
    """Draw floats from Student's t distribution with `df` degrees of freedom."""
    half = divide(_parameter("t", df, shape, dtype), 2)
    keys = derive_keys(checked_key("t", key, reuse), (2,))
    normals = normal_from_key(operand(keys[0]), half.shape, dtype)
    return multiply(normals, sqrt(divide(half, _gamma_from_key(operand(keys[1]), half, False))))


def _parameter(name: str, x: ArrayLike, shape: Shape | None, dtype: AnyDType) -> Any:
    """Return a parameter in a float dtype, broadcast to `shape`. Raises DTypeError for another dtype."""
    if not is_floating(np.dtype(dtype)):
        refuse(DTypeError(f"dlc.random.{name}: dtype {np.dtype(dtype)}; expected a float"))
    parameter = convert(x, np.dtype(dtype))
    return parameter if shape is None else broadcast_to(parameter, as_int_shape(shape))


def _gamma_from_key(key: Operand, a: Any, logarithmic: bool) -> Any:
    """Draw gamma variates, or their logarithms, for shape parameters `a`, each from a key of its own."""
    flat = a.reshape(-1)
    if flat.shape[0] == 0:
        return a
    keys, draw = derive_keys(key, flat.shape), _draw_log_gamma if logarithmic else _draw_gamma

    def tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
        """Return the tangent of a variate at constant cumulative probability."""
        slope = log_sample_derivative(operands[0], result if logarithmic else log(where(result == 0, 1, result)))
        return multiply(slope if logarithmic else multiply(slope, result), tangents[0])

    @with_jvp_rule(tangent)
    def variates(a: Operand) -> Any:
        return draw(keys, a)

    return variates(flat).reshape(a.shape)


def _gamma_variate(key: Any, a: Any) -> Any:
    keys = derive_keys(key, (2,))
    # A variate for a < 1 is a variate for a + 1, times u^(1 / a).
    u = subtract(1, uniform_from_key(operand(keys[1]), (), a.dtype))
    boost = where(greater_equal(a, 1), 1, power(u, divide(1, a)))
    return multiply(_marsaglia_tsang(operand(keys[0]), a)[0], boost)


def _log_gamma_variate(key: Any, a: Any) -> Any:
    keys = derive_keys(key, (2,))
    log_u = negative(exponential_from_key(operand(keys[1]), (), a.dtype))
    log_boost = where(logical_or(greater_equal(a, 1), greater_equal(log_u, 0)), 0, multiply(log_u, divide(1, a)))
    _, scale, cube = _marsaglia_tsang(operand(keys[0]), a)
    return log(scale) + log(cube) + log_boost


def _marsaglia_tsang(key: Operand, a: Any) -> tuple[Any, Any, Any]:
    """Return d·v, d and v, where d·v is a variate for `a` if a ≥ 1, else for a + 1."""
    d = subtract(where(greater_equal(a, 1), a, a + 1), 1 / 3)
    c = divide(1 / 3, sqrt(d))

    def is_rejected(state: tuple[Any, ...]) -> Any:
        _, square_of_normal, cube, u = state
        fails_squeeze = greater_equal(u, 1 - multiply(multiply(square_of_normal, square_of_normal), 0.0331))
        return logical_and(fails_squeeze, greater_equal(log(u), square_of_normal * 0.5 + d * (1 - cube + log(cube))))

    def propose(state: tuple[Any, ...]) -> tuple[Any, ...]:
        keys = derive_keys(operand(state[0]), (3,))
        _, x, v = while_loop(lambda s: less_equal(s[2], 0), draw_root, (keys[1], a * 0, a * 0 - 1))
        return keys[0], multiply(x, x), v * v * v, uniform_from_key(operand(keys[2]), (), a.dtype)

    def draw_root(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        keys = derive_keys(operand(state[0]), (2,))
        x = normal_from_key(operand(keys[1]), (), a.dtype)
        return keys[0], x, 1 + multiply(x, c)

    # The initial state is rejected.
    _, _, cube, _ = while_loop(is_rejected, propose, (key, a * 0, a * 0 + 1, a * 0 + 2))
    return d * cube, d, cube


_draw_gamma, _draw_log_gamma = vmap(_gamma_variate), vmap(_log_gamma_variate)

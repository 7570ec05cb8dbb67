"""Stochastic differential equations: terms and methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from dlc.calculus.linear_maps import jvp
from dlc.errors import ShapeError
from dlc.numpy.apply import convert, refuse
from dlc.solve.brownian_motion import BrownianPath, Noise
from dlc.solve.runge_kutta import Method, Step
from dlc.solve.vectors import ravel, ravel_like

__all__ = [
    "SRA1", "ControlTerm", "EulerHeun", "ItoMilstein", "MultiTerm", "ODETerm", "StochasticMethod", "StratonovichMilstein",
    "equation_of", "path_step",
]  # fmt: skip

Field: TypeAlias = Callable[[Any, Any], Any]


class ODETerm(NamedTuple):
    """The drift f(t, y, args) dt of an equation."""

    vector_field: Callable[[Any, Any, Any], Any]


class ControlTerm(NamedTuple):
    """The diffusion g(t, y, args) dw of an equation, where w is Brownian motion.

    For w of shape (m,) and y of n elements, g is a pytree like y, which is multiplied elementwise if n = m (diagonal noise),
    or an array (n, m).
    """

    vector_field: Callable[[Any, Any, Any], Any]
    control: BrownianPath


class MultiTerm(NamedTuple):
    """The sum of a drift and a diffusion: dy = f(t, y, args) dt + g(t, y, args) dw."""

    drift: ODETerm
    diffusion: ControlTerm


class Diffusion(NamedTuple):
    """The diffusion of an equation on vectors: `field` returns (n,) for diagonal noise, else (n, m)."""

    field: Field
    path: BrownianPath


class EulerHeun(NamedTuple):
    """The method of Euler and Heun for Stratonovich equations, of strong order 0.5, and 1 for commutative noise."""

    def step(self, f: Field, g: Field, t: Any, y: Any, h: Any, noise: Noise) -> Any:
        """Return the state after a step."""
        change = _apply(g(t, y), noise.increment)
        return y + h * f(t, y) + (change + _apply(g(t, y + change), noise.increment)) / 2


class ItoMilstein(NamedTuple):
    """The method of Milstein for Itô equations with diagonal noise, of strong order 1."""

    def step(self, f: Field, g: Field, t: Any, y: Any, h: Any, noise: Noise) -> Any:
        """Return the state after a step."""
        return y + h * f(t, y) + _milstein(g, t, y, noise.increment, abs(h))


class StratonovichMilstein(NamedTuple):
    """The method of Milstein for Stratonovich equations with diagonal noise, of strong order 1."""

    def step(self, f: Field, g: Field, t: Any, y: Any, h: Any, noise: Noise) -> Any:
        """Return the state after a step."""
        return y + h * f(t, y) + _milstein(g, t, y, noise.increment, 0 * h)


class SRA1(NamedTuple):
    """A stochastic Runge-Kutta method for additive noise, of strong order 1.5 (Rößler, 2010)."""

    def step(self, f: Field, g: Field, t: Any, y: Any, h: Any, noise: Noise) -> Any:
        """Return the state after a step."""
        at_start, at_end = g(t, y), g(t + h, y)
        # ∫(w - w₀) dt / h
        mean = noise.increment / 2 + noise.area
        first = f(t, y)
        second = f(t + 0.75 * h, y + 0.75 * h * first + 1.5 * _apply(at_end, mean))
        return y + h / 3 * (first + 2 * second) + _apply(at_end, noise.increment - mean) + _apply(at_start, mean)


StochasticMethod: TypeAlias = EulerHeun | ItoMilstein | StratonovichMilstein | SRA1


def _milstein(g: Field, t: Any, y: Any, increment: Any, correction: Any) -> Any:
    """Return g Δw + ½ g g' (Δw² - correction) for diagonal noise."""
    value = g(t, y)
    if len(value.shape) != 1:
        refuse(ShapeError(f"dlc.solve.diffeqsolve: diffusion of shape {value.shape}; methods of Milstein need diagonal noise"))

    def at_time(y: Any) -> Any:
        return g(t, y)

    _, slope = jvp(at_time, (y,), (value,))
    return value * increment + slope * (increment * increment - correction) / 2


def _apply(diffusion: Any, increment: Any) -> Any:
    """Return the product of a diffusion, (n,) or (n, m), and an increment."""
    return diffusion * increment if len(diffusion.shape) == 1 else diffusion @ increment


def equation_of(api_name: str, terms: Any, args: Any, unravel: Callable[[Any], Any], like: Any) -> tuple[Any, Diffusion | None]:
    """Return the drift of `terms` as a function of t and vectors y, and the diffusion if there is one.

    Raises ShapeError for a drift that is no pytree like y, and for a diffusion whose shape does not fit the noise.
    """
    if isinstance(terms, ODETerm) or not isinstance(terms, MultiTerm):
        drift = terms.vector_field if isinstance(terms, ODETerm) else terms
    else:
        drift = terms.drift.vector_field

    def on_vectors(function: Callable[[Any, Any, Any], Any]) -> Field:
        def call(t: Any, y: Any) -> Any:
            unknowns = unravel(y)
            return ravel_like(api_name, function(t, unknowns, args), unknowns, like.dtype)

        return call

    if not isinstance(terms, MultiTerm):
        return on_vectors(drift), None
    path, size, diffusion = terms.diffusion.control, like.shape[0], terms.diffusion.vector_field

    def field(t: Any, y: Any) -> Any:
        value = diffusion(t, unravel(y), args)
        shape = getattr(value, "shape", ())
        if shape == (size, *path.shape):
            return convert(value, like.dtype)
        vector = convert(ravel(api_name, value)[0], like.dtype)
        if vector.shape != (size,) or path.shape not in ((size,), ()):
            expected = f"{(size, *path.shape)}, or {size} elements for noise of shape {(size,)}"
            refuse(ShapeError(f"{api_name}: diffusion of shape {shape}, for noise of shape {path.shape}; expected {expected}"))
        return vector

    return on_vectors(drift), Diffusion(field, path)


def path_step(method: Method | StochasticMethod, f: Field, diffusion: Diffusion, t: Any, y: Any, h: Any, step: Any) -> Step:
    """Take a step. A Runge-Kutta method integrates the slope f + g Δw / h, and estimates its error."""
    noise, g = diffusion.path.noise(t, h, step), diffusion.field
    if not isinstance(method, Method):
        return Step(method.step(f, g, t, y, h, noise), None, None, None)

    def slope(t: Any, y: Any) -> Any:
        return f(t, y) + _apply(g(t, y), noise.increment) / h

    return method.step(slope, t, y, slope(t, y), h)

"""Compare derivatives of f64 array functions with finite differences, and forward mode with reverse mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc

STEP = 1e-6


def wrong_derivative(run: Callable[..., list[Any]], point: Sequence[np.ndarray]) -> str | None:
    """Describe the first wrong derivative of `run` at a point where it is smooth; `run` also accepts plain arrays."""
    random = np.random.default_rng(0)
    directions = [random.standard_normal(x.shape) for x in point]
    weights = [random.standard_normal(np.shape(r)) for r in run(*point)]

    @dlc.jit(target="reference")
    def derivatives(point: Any, directions: Any, weights: Any) -> Any:
        _, tangents = dlc.jvp(run, point, directions)
        _, pullback = dlc.vjp(run, *point)
        return tangents, pullback(weights)

    tangents, cotangents = derivatives(tuple(point), tuple(directions), weights)
    forward_values, backward_values = (run(*(x + s * d for x, d in zip(point, directions, strict=True))) for s in (STEP, -STEP))
    for got, a, b in zip(tangents, forward_values, backward_values, strict=True):
        expected = (np.asarray(a) - np.asarray(b)) / (2 * STEP)
        scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
        if not np.allclose(got, expected, rtol=0, atol=3e-7 * scale):
            return f"forward {np.asarray(got).ravel()[:4]}, differences {expected.ravel()[:4]}"
    forward = sum(float(np.vdot(w, t)) for w, t in zip(weights, tangents, strict=True))
    reverse = sum(float(np.vdot(c, d)) for c, d in zip(cotangents, directions, strict=True))
    return None if np.isclose(forward, reverse, rtol=1e-9, atol=1e-9) else f"reverse {reverse}, forward {forward}"

"""Brownian motion: paths drawn step by step, and paths that can be evaluated at any time."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlc import lax
from dlc.errors import ArgumentError
from dlc.numpy import maximum, minimum, sqrt, where, zeros
from dlc.numpy.apply import ArrayLike, refuse
from dlc.random import fold_in, normal

__all__ = ["BrownianPath", "Noise", "UnsafeBrownianPath", "VirtualBrownianTree"]


class Noise(NamedTuple):
    """The increment of Brownian motion in a step, (m,), and its space-time Lévy area, (m,), or None."""

    increment: Any
    area: Any


class UnsafeBrownianPath(NamedTuple):
    """Brownian motion of a shape, whose increments are drawn step by step from a key of `dlc.random`.

    The path depends on the steps, so that only steps of constant length are supported.
    """

    shape: tuple[int, ...]
    key: ArrayLike

    def noise(self, t: Any, h: Any, step: Any) -> Noise:
        """Draw the noise of a step of length |h|, the number `step`."""
        draws = normal(fold_in(self.key, step), (2, *self.shape), h.dtype)
        # The variances are |h| and |h| / 12.
        scale = sqrt(abs(h))
        return Noise(scale * draws[0], scale / 12**0.5 * draws[1])


class VirtualBrownianTree(NamedTuple):
    """Brownian motion of a shape between the numbers `t0` < `t1`, a function of time and a key of `dlc.random`.

    Every step sees the same path, so that steps may be adaptive. Intervals are halved around a time down to the length `tol`.
    The path is drawn at their ends and interpolated between them (Li et al., Scalable gradients for stochastic differential
    equations, 2020).

    Raises ArgumentError for an empty interval, and for a tolerance that is not positive, when it is evaluated.
    """

    t0: float
    t1: float
    tol: float
    shape: tuple[int, ...]
    key: ArrayLike

    def noise(self, t: Any, h: Any, step: Any) -> Noise:
        """Return the noise of a step of length h that begins at t."""
        return Noise(self.evaluate(t + h) - self.evaluate(t), None)

    def evaluate(self, t: Any) -> Any:
        """Return the path at a time, as floats of its dtype; 0 at `t0`."""
        length = float(self.t1 - self.t0)
        if not (length > 0 and self.tol > 0):
            got = f"t0 = {self.t0}, t1 = {self.t1}, tol = {self.tol}"
            refuse(ArgumentError(f"dlc.solve.VirtualBrownianTree: {got}; expected t0 < t1 and tol > 0"))

        def draw(node: Any) -> Any:
            # Every step draws from the keys of the same nodes.
            return normal(fold_in(self.key, node), self.shape, t.dtype, reuse=True)

        position = minimum(maximum((t - self.t0) / length, 0.0), 1.0)

        def halve(_: Any, state: Any) -> Any:
            """Draw the middle of an interval from the key of its node, and go to the half that contains the time."""
            node, start, width, left, right = state
            middle = (left + right) / 2 + sqrt(width * length) / 2 * draw(node)
            is_right = position >= start + width / 2
            start = where(is_right, start + width / 2, start)
            left, right = where(is_right, middle, left), where(is_right, right, middle)
            return 2 * node + where(is_right, 1, 0), start, width / 2, left, right

        zero = zeros(self.shape, t.dtype)
        end = math.sqrt(length) * draw(0)
        depth = max(math.ceil(math.log2(length / self.tol)), 0)
        start = (np.int64(1), 0 * position, 0 * position + 1, zero, end)
        _, start, width, left, right = lax.fori_loop(0, depth, halve, start)
        return left + (right - left) * ((position - start) / width)


BrownianPath: TypeAlias = UnsafeBrownianPath | VirtualBrownianTree

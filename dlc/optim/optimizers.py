"""Optimizers: pairs of `init` and `update`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from dlc import tree
from dlc.errors import DTypeError, ShapeError
from dlc.numpy import add, divide, expm1, less, multiply, negative, sqrt, square, sum, where, zeros_like
from dlc.numpy.apply import convert, operand, refuse
from dlc.optim.schedules import Schedule

__all__ = [
    "AdamState",
    "Optimizer",
    "SgdState",
    "adam",
    "adamw",
    "apply_updates",
    "chain",
    "clip_by_global_norm",
    "global_norm",
    "sgd",
]


class Optimizer(NamedTuple):
    """An optimizer: a pair of functions.

    Attributes:
        init: `init(params)` returns the initial state.
        update: `update(grads, state, params)` returns the updates, which are added to the parameters, and the next state.
    """

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


class SgdState(NamedTuple):
    """The step count, and the velocity of each parameter; None without momentum."""

    count: Any
    velocity: Any


class AdamState(NamedTuple):
    """The step count, and the exponential moving averages of the gradients and of their squares."""

    count: Any
    mean: Any
    square: Any


def sgd(learning_rate: float | Schedule, momentum: float | None = None, nesterov: bool = False) -> Optimizer:
    """Stochastic gradient descent: -learning_rate · v, where v is g, or g + momentum · (previous v).

    `nesterov` applies the momentum once more: -learning_rate · (g + momentum · v).
    """

    def init(params: Any) -> SgdState:
        return SgdState(_zero_count(), None if momentum is None else tree.map(zeros_like, params))

    def update(grads: Any, state: SgdState, params: Any = None) -> tuple[Any, SgdState]:
        _require_state("dlc.optim.sgd", state, SgdState)

        def with_momentum(g: Any, v: Any) -> Any:
            return add(g, multiply(v, momentum))

        velocity = None if momentum is None else tree.map(with_momentum, grads, state.velocity)
        direction = grads if velocity is None else tree.map(with_momentum, grads, velocity) if nesterov else velocity
        return _scale_directions(direction, learning_rate, state.count), SgdState(add(state.count, 1), velocity)

    return Optimizer(init, update)


def adam(learning_rate: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Optimizer:
    """Adam (Kingma and Ba, 2015): -learning_rate · m / (√v + eps), with bias-corrected moving averages m of g and v of g²."""
    return _adam(learning_rate, b1, b2, eps, 0.0)


def adamw(
    learning_rate: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, *, weight_decay: float
) -> Optimizer:
    """Adam with decoupled weight decay of learning_rate · weight_decay (Loshchilov and Hutter, 2019)."""
    return _adam(learning_rate, b1, b2, eps, weight_decay)


def _adam(learning_rate: float | Schedule, b1: float, b2: float, eps: float, weight_decay: float) -> Optimizer:
    def init(params: Any) -> AdamState:
        return AdamState(_zero_count(), tree.map(zeros_like, params), tree.map(zeros_like, params))

    def update(grads: Any, state: AdamState, params: Any = None) -> tuple[Any, AdamState]:
        if weight_decay and params is None:
            refuse(
                ShapeError("dlc.optim.adamw: update(grads, state) without params; pass them as third argument for weight decay")
            )
        _require_state("dlc.optim.adam", state, AdamState)
        mean = _update_running_mean(b1, grads, state.mean)
        squares = _update_running_mean(b2, tree.map(square, grads), state.square)
        count = add(state.count, 1)
        mean_bias, square_bias = _bias_correction(b1, count), _bias_correction(b2, count)

        def direction(m: Any, v: Any, p: Any = None) -> Any:
            step = divide(divide(m, mean_bias), add(sqrt(divide(v, square_bias)), eps))
            return step if p is None else add(step, multiply(p, weight_decay))

        directions = tree.map(direction, mean, squares, *([params] if weight_decay else []))
        return _scale_directions(directions, learning_rate, state.count), AdamState(count, mean, squares)

    return Optimizer(init, update)


def clip_by_global_norm(max_norm: float) -> Optimizer:
    """Scale all gradients by one factor so that their global norm is at most `max_norm`."""

    def update(grads: Any, state: tuple[()], params: Any = None) -> tuple[Any, tuple[()]]:
        norm = global_norm(grads)
        factor = where(less(norm, max_norm), 1.0, divide(max_norm, norm))

        def clipped(g: Any) -> Any:
            return convert(multiply(g, factor), operand(g).dtype)

        return tree.map(clipped, grads), state

    def init(params: Any) -> tuple[()]:
        return ()

    return Optimizer(init, update)


def chain(*optimizers: Optimizer) -> Optimizer:
    """Compose optimizers: each transforms the updates of the previous one."""

    def init(params: Any) -> tuple[Any, ...]:
        return tuple(optimizer.init(params) for optimizer in optimizers)

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, tuple[Any, ...]]:
        states = cast("tuple[Any, ...]", state) if isinstance(state, tuple | list) else ()
        if len(states) != len(optimizers):
            got = type(cast(object, state)).__name__
            refuse(DTypeError(f"dlc.optim.chain: update: the state is a {got}; expected the result of init(params)"))
        new_states: list[Any] = []
        for optimizer, old_state in zip(optimizers, states, strict=True):
            grads, new_state = optimizer.update(grads, old_state, params)
            new_states.append(new_state)
        return grads, tuple(new_states)

    return Optimizer(init, update)


def apply_updates(params: Any, updates: Any) -> Any:
    """Add updates to parameters, keeping the parameters' dtypes."""

    def updated(p: Any, u: Any) -> Any:
        return convert(add(p, u), operand(p).dtype)

    return tree.map(updated, params, updates)


def global_norm(values: Any) -> Any:
    """Return the square root of the sum of all squares."""
    total: Any = 0.0
    for leaf in tree.leaves(values):
        total = add(sum(square(leaf)), total)
    return sqrt(total)


def _require_state(where: str, state: object, kind: type[SgdState] | type[AdamState]) -> None:
    """Raise DTypeError for a state of another type."""
    if not all(hasattr(state, field) for field in kind._fields):
        got = type(state).__name__
        refuse(
            DTypeError(f"{where}: update: the state is a {got}; expected the result of init(params) or of the previous update")
        )


def _zero_count() -> Any:
    return np.zeros((), np.int32)


def _bias_correction(decay: float, count: Any) -> Any:
    """Return 1 - decay^count, the bias of a moving average that starts at 0, by expm1, which is accurate for decay near 1."""
    return negative(expm1(multiply(convert(count, np.float32), math.log(decay))))


def _update_running_mean(decay: float, new: Any, means: Any) -> Any:
    """Return the updated moving averages."""

    def updated(x: Any, mean: Any) -> Any:
        return add(multiply(mean, decay), multiply(x, 1 - decay))

    return tree.map(updated, new, means)


def _scale_directions(directions: Any, learning_rate: float | Schedule, count: Any) -> Any:
    """Return the updates: the directions scaled by the negative learning rate."""
    rate = learning_rate(count) if callable(learning_rate) else learning_rate

    def descend(direction: Any) -> Any:
        return negative(multiply(direction, rate))

    return tree.map(descend, directions)

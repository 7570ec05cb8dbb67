"""The steps of an initial value problem on vectors, and their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlc import lax
from dlc.frontend.trace import current_trace
from dlc.numpy import (
    abs,
    all,
    arange,
    at,
    concat,
    full,
    isfinite,
    less,
    logical_and,
    logical_not,
    minimum,
    sign,
    stack,
    where,
    zeros,
)
from dlc.solve.runge_kutta import Method, Step
from dlc.solve.saving import SaveAt, interpolate
from dlc.solve.step_size_controllers import ConstantStepSize, Controller, PIDController
from dlc.solve.stochastic import Diffusion, StochasticMethod, path_step
from dlc.traced_functions.derivatives import constant

__all__ = [
    "Adjoint",
    "DirectAdjoint",
    "InitialValueProblem",
    "RecursiveCheckpointAdjoint",
    "State",
    "integrate",
    "locate_event",
]


class DirectAdjoint(NamedTuple):
    """Reverse mode through a scan whose states are stored, of `max_steps` steps unless the number of steps is static."""


class RecursiveCheckpointAdjoint(NamedTuple):
    """Reverse mode with checkpoints: some states are stored, and the steps between them repeated (`dlc.checkpoint`).

    The time depends on the number of steps, the memory neither on this number nor on `max_steps`.
    """


Adjoint: TypeAlias = RecursiveCheckpointAdjoint | DirectAdjoint


class InitialValueProblem(NamedTuple):
    """An initial value problem on vectors."""

    f: Callable[[Any, Any], Any]
    diffusion: Diffusion | None
    method: Method | StochasticMethod
    start: Any
    end: Any
    controller: Controller
    times: Any
    event: Callable[[Any, Any], Any] | None
    saveat: SaveAt
    max_steps: int


class State(NamedTuple):
    """The state between two steps; the coefficients of the previous step, (5, n), and its start; and the results.

    Attributes:
        outputs: The states at the times of `SaveAt.ts`.
        ends: The ends of all steps, (max_steps,), if they are saved; infinite for the unused ones.
        coefficients: The coefficients of all steps, (max_steps, 5, n), for dense output.
        states: The states at the ends of all steps, (max_steps, n).
        is_stuck: Whether no step length is left, or the start has no slope.
    """

    t: Any
    y: Any
    slope: Any
    length: Any
    errors: Any
    outputs: Any
    previous_t: Any
    previous: Any
    ends: Any
    coefficients: Any
    states: Any
    num_steps: Any
    num_accepted: Any
    is_finished: Any
    is_stuck: Any


def integrate(problem: InitialValueProblem, y: Any, length: Any, static_steps: int | None, adjoint: Adjoint) -> State:
    """Return the state after the last step.

    Without derivatives, a while loop computes it. With derivatives, that loop runs first, as a constant, and finds the lengths
    of the steps. A scan over these lengths, or a while loop with checkpoints, then computes the state.
    """
    max_steps, has_checkpoints = problem.max_steps, isinstance(adjoint, RecursiveCheckpointAdjoint)
    if static_steps is not None and not has_checkpoints:
        return lax.fori_loop(0, static_steps, lambda _, state: _advance(problem, state), _initial(problem, y, length))
    trace = current_trace()

    def is_running(state: State) -> Any:
        return logical_and(less(state.num_steps, max_steps), logical_not(state.is_finished | state.is_stuck))

    if trace is None or trace.derivative_orders == 0:
        return lax.while_loop(is_running, lambda state: _advance(problem, state), _initial(problem, y, length))

    def find_lengths() -> Any:
        def advance(carry: Any) -> Any:
            state, lengths = carry
            next_state = _advance(problem, state)
            accepted_length = next_state.t - state.t
            return next_state, at(lengths)[minimum(state.num_accepted, max_steps - 1)].set(accepted_length)

        initial = (_initial(problem, y, length), zeros(max_steps, y.dtype))
        state, lengths = lax.while_loop(lambda carry: is_running(carry[0]), advance, initial)
        counts = state.num_accepted, state.num_steps, state.is_finished, state.is_stuck
        return lengths, counts, state.t == problem.end

    lengths, counts, reaches_end = constant("dlc.solve.diffeqsolve", find_lengths)
    num_accepted, num_steps, is_finished, is_stuck = counts

    def step(state: State, index: Any, length: Any) -> State:
        return _replay(problem, state, length, reaches_end & (index == num_accepted - 1))

    def replay(state: State, element: Any) -> tuple[State, None]:
        index, length = element
        return lax.cond(index < num_accepted, lambda: step(state, index, length), lambda: state), None

    initial = _initial(problem, y, length)
    if has_checkpoints:
        # A while loop saves checkpoints.
        state = lax.while_loop(
            lambda s: s.num_accepted < num_accepted, lambda s: step(s, s.num_accepted, lengths[s.num_accepted]), initial
        )
    else:
        state, _ = lax.scan(replay, initial, (arange(max_steps), lengths))
    return state._replace(num_steps=num_steps, num_accepted=num_accepted, is_finished=is_finished, is_stuck=is_stuck)


def _initial(problem: InitialValueProblem, y: Any, length: Any) -> State:
    slope = problem.f(problem.start, y)
    if length is None:
        assert isinstance(problem.controller, PIDController)
        length = problem.controller.initial_length(y, slope)
    ones = zeros(2, y.dtype) + 1
    outputs: Any = zeros((0, y.shape[0]), y.dtype)
    if problem.times is not None:
        is_start = problem.times == problem.start
        outputs = where(is_start[:, None], y, full((problem.times.shape[0], y.shape[0]), math.inf, y.dtype))
    size, count = y.shape[0], problem.max_steps
    has_ends, saveat = problem.saveat.steps or problem.saveat.dense, problem.saveat
    return State(
        t=problem.start,
        y=y,
        slope=slope,
        length=length,
        errors=ones,
        outputs=outputs,
        previous_t=problem.start,
        previous=zeros((5 if problem.event else 0, size), y.dtype),
        ends=full(count if has_ends else 0, math.inf, y.dtype),
        coefficients=zeros((count if saveat.dense else 0, 5, size), y.dtype),
        states=full((count if saveat.steps else 0, size), math.inf, y.dtype),
        num_steps=np.asarray(0),
        num_accepted=np.asarray(0),
        is_finished=problem.start == problem.end,
        is_stuck=logical_not(all(isfinite(y) & isfinite(slope))),
    )


def _advance(problem: InitialValueProblem, state: State) -> State:
    """Try a step, and accept or reject it."""
    remaining = problem.end - state.t
    # A step that ends this close to the end is extended to it: the rest would be a step of rounding errors.
    is_last = abs(remaining) <= state.length * (1 + 1e-6)
    h = where(is_last, remaining, sign(remaining) * state.length)
    step = _step(problem, state, h)
    if isinstance(problem.controller, ConstantStepSize):
        return _accept(problem, state, step, h, is_last, state.length, state.errors, np.asarray(True))
    assert isinstance(problem.method, Method)
    error = problem.controller.error(state.y, step)
    is_accepted = error <= 1
    length = abs(h) * problem.controller.factor(problem.method.order, error, state.errors, is_accepted)
    errors = where(is_accepted, concat([error[None], state.errors[:1]]), state.errors)
    return _accept(problem, state, step, h, is_last, length, errors, is_accepted)


def _step(problem: InitialValueProblem, state: State, h: Any) -> Step:
    """Take a step of length `h`."""
    if problem.diffusion is not None:
        return path_step(problem.method, problem.f, problem.diffusion, state.t, state.y, h, state.num_steps)
    assert isinstance(problem.method, Method)
    return problem.method.step(problem.f, state.t, state.y, state.slope, h)


def _coefficients(problem: InitialValueProblem, y: Any, step: Step, h: Any) -> Any:
    """Return the coefficients of the states within a step that began at y. A path of noise has no slopes."""
    if problem.diffusion is not None:
        change = step.end - y
        return stack([y, change, 0 * y, 0 * y, 0 * y])
    assert isinstance(problem.method, Method)
    return problem.method.coefficients(y, step, h)


def _accept(
    problem: InitialValueProblem, state: State, step: Step, h: Any, is_last: Any, length: Any, errors: Any, is_accepted: Any
) -> State:
    """Return the state after a step; if the step is rejected, the state before it with the new step length."""
    t = where(is_last, problem.end, state.t + h)
    is_finished = is_last
    if problem.event is not None:
        before, after = problem.event(state.t, state.y), problem.event(t, step.end)
        is_finished = is_last | (sign(before) * sign(after) < 0) | ((after == 0) & (before != 0))
    is_finished = is_accepted & is_finished
    saveat, is_interpolated = problem.saveat, problem.saveat.dense or problem.times is not None or problem.event is not None
    coefficients: Any = _coefficients(problem, state.y, step, h) if is_interpolated else None
    next_t = where(is_accepted, t, state.t)
    # The entries of rejected steps are overwritten by the next one.
    index = state.num_accepted
    return State(
        t=next_t,
        y=where(is_accepted, step.end, state.y),
        slope=state.slope if problem.diffusion is not None else where(is_accepted, step.slope, state.slope),
        length=length,
        errors=errors,
        outputs=_save(problem, state, coefficients, t, h, is_accepted),
        previous_t=where(is_accepted, state.t, state.previous_t),
        previous=where(is_accepted, coefficients, state.previous) if problem.event is not None else state.previous,
        ends=at(state.ends)[index].set(where(is_accepted, t, math.inf)) if saveat.steps or saveat.dense else state.ends,
        coefficients=at(state.coefficients)[index].set(coefficients) if saveat.dense else state.coefficients,
        states=at(state.states)[index].set(where(is_accepted, step.end, math.inf)) if saveat.steps else state.states,
        num_steps=state.num_steps + 1,
        num_accepted=state.num_accepted + where(is_accepted, 1, 0),
        is_finished=is_finished,
        is_stuck=next_t + sign(problem.end - problem.start) * length == next_t,
    )


def _replay(problem: InitialValueProblem, state: State, length: Any, is_last: Any) -> State:
    """Repeat an accepted step. The length of the last one depends on the end."""
    h = where(is_last, problem.end - state.t, length)
    step = _step(problem, state, h)
    return _accept(problem, state, step, h, is_last, state.length, state.errors, np.asarray(True))


def _save(problem: InitialValueProblem, state: State, coefficients: Any, t: Any, h: Any, is_accepted: Any) -> Any:
    """Store the interpolated states at the requested times inside a step."""
    if problem.times is None:
        return state.outputs
    direction = sign(problem.end - problem.start)
    is_inside = ((problem.times - state.t) * direction > 0) & ((problem.times - t) * direction <= 0)
    position = where(is_inside, (problem.times - state.t) / where(h == 0, 1, h), 0)
    values = interpolate(coefficients[:, None], position[:, None])
    return where((is_inside & is_accepted)[:, None], values, state.outputs)


def locate_event(problem: InitialValueProblem, state: State) -> tuple[Any, Any, Any]:
    """Return whether the last step contains an event, its time, and the state there."""
    assert problem.event is not None
    event, h = problem.event, state.t - state.previous_t

    def state_at(position: Any) -> Any:
        return interpolate(state.previous, position)

    def value_at(position: Any) -> Any:
        return event(state.previous_t + position * h, state_at(position))

    first = value_at(zeros((), state.y.dtype))
    happened = (sign(first) * sign(event(state.t, state.y)) < 0) | ((event(state.t, state.y) == 0) & (first != 0))

    def bisect(_: Any, position: Any) -> Any:
        def halve(_: Any, interval: Any) -> Any:
            lower, upper = interval
            middle = (lower + upper) / 2
            is_before = sign(value_at(middle)) == sign(first)
            return where(is_before, middle, lower), where(is_before, upper, middle)

        return lax.fori_loop(0, _NUM_BISECTION_STEPS, halve, (position * 0, position * 0 + 1))[1]

    def tangent_solve(g: Callable[[Any], Any], y: Any) -> Any:
        return y / where(happened, g(zeros((), state.y.dtype) + 1), 1)

    position = lax.custom_root(value_at, zeros((), state.y.dtype), bisect, tangent_solve)
    position = where(happened, position, 1)
    return happened, state.previous_t + position * h, where(happened, state_at(position), state.y)


# One step per bit of the relative position in a step, a float64.
_NUM_BISECTION_STEPS = 52

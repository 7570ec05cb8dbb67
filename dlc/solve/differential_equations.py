"""Initial value problems of ordinary differential equations."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlc import lax
from dlc.calculus.batching import vmap
from dlc.errors import DlcError, DTypeError, ShapeError
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
    maximum,
    minimum,
    power,
    sign,
    sqrt,
    sum,
    where,
    zeros,
)
from dlc.numpy.apply import ArrayLike, convert, operand, refuse
from dlc.solve.runge_kutta import Method, Step
from dlc.solve.stochastic import (
    SRA1,
    Diffusion,
    EulerHeun,
    ItoMilstein,
    MultiTerm,
    ODETerm,
    StochasticMethod,
    StratonovichMilstein,
    equation_of,
    path_step,
)
from dlc.solve.vectors import ravel, require_kind
from dlc.traced_functions.derivatives import constant

__all__ = ["ConstantStepSize", "DiffEqSolution", "Event", "PIDController", "SaveAt", "diffeqsolve"]


class ConstantStepSize(NamedTuple):
    """Steps of length `dt0`; the last one ends at `t1`."""


class PIDController(NamedTuple):
    """Steps whose estimated error is at most atol + rtol · |y| in the root-mean-square norm (Söderlind, 2003).

    The step is scaled by (1 / error)^(icoeff / order), times powers of the two previous errors by `pcoeff` and `dcoeff`.
    """

    rtol: float
    atol: float
    pcoeff: float = 0.0
    icoeff: float = 1.0
    dcoeff: float = 0.0
    safety: float = 0.9
    factormin: float = 0.2
    factormax: float = 10.0


class SaveAt(NamedTuple):
    """The times of the results: increasing times `ts` in the direction of integration, or the end."""

    ts: ArrayLike | None = None


class Event(NamedTuple):
    """The end of an integration where `cond_fn(t, y, args)`, a float scalar, changes its sign."""

    cond_fn: Callable[[Any, Any, Any], Any]


class DiffEqSolution(NamedTuple):
    """The solution of a differential equation.

    Attributes:
        ts: The times (m,): those of `SaveAt`, or the end alone, which is the time of the event if there was one.
        ys: A pytree like `y0`, with the times along a new axis 0; inf for times after an event and times that were not reached.
        succeeded: Whether the end or an event was reached in `max_steps` steps with a finite state, a bool.
        num_steps: The number of steps, including rejected ones.
        num_accepted_steps: The number of accepted steps.
        event_happened: Whether an event ended the integration, a bool.
    """

    ts: Any
    ys: Any
    succeeded: Any
    num_steps: Any
    num_accepted_steps: Any
    event_happened: Any


Controller: TypeAlias = ConstantStepSize | PIDController
Terms: TypeAlias = Callable[[Any, Any, Any], Any] | ODETerm | MultiTerm

_CONSTANT, _END = ConstantStepSize(), SaveAt()


class _State(NamedTuple):
    """The state between two steps, and the previous step: its start, its slopes (stages, n) and its length."""

    t: Any
    y: Any
    slope: Any
    length: Any
    errors: Any
    outputs: Any
    previous_t: Any
    previous_y: Any
    slopes: Any
    num_steps: Any
    num_accepted: Any
    is_finished: Any


def diffeqsolve(
    terms: Terms,
    solver: Method | StochasticMethod,
    t0: ArrayLike,
    t1: ArrayLike,
    dt0: ArrayLike | None,
    y0: Any,
    args: Any = None,
    *,
    saveat: SaveAt = _END,
    stepsize_controller: Controller = _CONSTANT,
    event: Event | None = None,
    max_steps: int = 4096,
) -> DiffEqSolution:
    """Solve dy/dt = terms(t, y, args) with y(t0) = y0 from `t0` to `t1`, in either direction.

    `terms` is a function, or for a stochastic equation a `MultiTerm` of a drift and a diffusion. Then steps are constant;
    `Euler` solves the equation in the sense of Itô (Euler-Maruyama), `Heun` and `Midpoint` in that of Stratonovich.

    `y0` is an array or a pytree of floats; times have its dtype. `dt0` is the length of the first step, and with
    `ConstantStepSize` of all steps. With `PIDController` it may be None: the solver chooses it. Results between steps are
    interpolated.

    Differentiable with respect to `y0`, `args`, the times and all values that the terms close over. The derivative is that of
    the accepted steps, with constant lengths except for the last one. Reverse mode stores up to `max_steps` states.

    Raises ShapeError for terms whose results are no pytrees like `y0`, DTypeError for an event that is no real scalar, and
    DlcError for constant steps without `dt0`, for adaptive steps of a method without an error estimate, for a stochastic
    method without noise, and for noise with an implicit method, adaptive steps or an event.
    """
    api_name = "dlc.solve.diffeqsolve"
    is_adaptive = isinstance(stepsize_controller, PIDController)
    require_kind(api_name, "solver", solver, Method, EulerHeun, ItoMilstein, StratonovichMilstein, SRA1)
    require_kind(api_name, "stepsize_controller", stepsize_controller, ConstantStepSize, PIDController)
    if is_adaptive and isinstance(solver, Method) and solver.error_weights is None:
        refuse(DlcError(f"{api_name}: the solver has no error estimate; use ConstantStepSize, or another solver such as Tsit5"))
    if dt0 is None and not is_adaptive:
        refuse(
            DlcError(f"{api_name}: dt0 is None; give the length of the steps, or stepsize_controller=PIDController(rtol, atol)")
        )
    if isinstance(dt0, int | float) and not builtins.abs(dt0) > 0:
        refuse(DlcError(f"{api_name}: dt0 = {dt0}; expected the length of a step, which is not 0"))
    y, unravel = ravel(api_name, y0)

    slope, diffusion = equation_of(api_name, terms, args, unravel, y)
    _require_support(api_name, solver, diffusion, is_adaptive or event is not None)

    def event_value(t: Any, y: Any) -> Any:
        assert event is not None
        value = operand(event.cond_fn(t, unravel(y), args))
        if value.dtype.kind in "bc" or value.shape:
            got = f"an array of dtype {value.dtype} and shape {value.shape}"
            refuse(
                DTypeError(f"{api_name}: event returned {got}; expected a real scalar that changes its sign: y - 1, not y < 1")
            )
        return convert(value, y.dtype)

    problem = _Problem(
        f=slope,
        diffusion=diffusion,
        method=solver,
        start=convert(operand(t0), y.dtype),
        end=convert(operand(t1), y.dtype),
        controller=stepsize_controller,
        times=None if saveat.ts is None else convert(operand(saveat.ts), y.dtype),
        event=None if event is None else event_value,
    )
    if problem.times is not None and len(problem.times.shape) != 1:
        refuse(ShapeError(f"{api_name}: saveat.ts has shape {problem.times.shape}; expected one axis"))
    length = None if dt0 is None else abs(convert(operand(dt0), y.dtype))
    static_steps = None
    numbers = [float(v) for v in (t0, t1, dt0) if isinstance(v, int | float)]
    if not is_adaptive and event is None and len(numbers) == 3:
        # The tolerance allows for a quotient that rounds up.
        num_steps = math.ceil(builtins.abs((numbers[1] - numbers[0]) / numbers[2]) * (1 - 1e-9))
        static_steps = num_steps if num_steps <= max_steps else None
    final = _integrate(problem, y, length, max_steps, static_steps)
    event_happened = np.asarray(False)
    ts, ys = (problem.times, final.outputs) if problem.times is not None else (final.t[None], final.y[None])
    if problem.event is not None:
        event_happened, event_t, event_y = _locate_event(problem, final)
        if problem.times is None:
            ts, ys = event_t[None], event_y[None]
        else:
            is_after_event = (problem.times - event_t) * sign(problem.end - problem.start) > 0
            ys = where(logical_and(event_happened, is_after_event)[:, None], math.inf, ys)
    succeeded = logical_and(final.is_finished, all(isfinite(final.y)))
    return DiffEqSolution(ts, vmap(unravel)(ys), succeeded, final.num_steps, final.num_accepted, event_happened)


def _require_support(
    api_name: str, solver: Method | StochasticMethod, diffusion: Diffusion | None, has_events_or_adapts: bool
) -> None:
    if diffusion is None and not isinstance(solver, Method):
        refuse(DlcError(f"{api_name}: {type(solver).__name__} needs noise; pass terms=MultiTerm(ODETerm(…), ControlTerm(…))"))
    if diffusion is not None and isinstance(solver, Method) and solver.diagonal:
        refuse(DlcError(f"{api_name}: implicit methods do not support noise; use Euler, or another explicit method"))
    if diffusion is not None and has_events_or_adapts:
        refuse(DlcError(f"{api_name}: noise supports neither adaptive steps nor events; use ConstantStepSize, and no event"))


class _Problem(NamedTuple):
    """An initial value problem on vectors."""

    f: Callable[[Any, Any], Any]
    diffusion: Diffusion | None
    method: Method | StochasticMethod
    start: Any
    end: Any
    controller: Controller
    times: Any
    event: Callable[[Any, Any], Any] | None


def _integrate(problem: _Problem, y: Any, length: Any, max_steps: int, static_steps: int | None) -> _State:
    """Return the state after the last step.

    Without derivatives, a while loop computes it. With derivatives, that loop runs first, as a constant, and finds the lengths
    of the steps. A scan over these lengths, which has a reverse mode, then computes the state.
    """
    if static_steps is not None:
        return lax.fori_loop(0, static_steps, lambda _, state: _advance(problem, state), _initial(problem, y, length))
    trace = current_trace()

    def is_running(state: _State) -> Any:
        return logical_and(less(state.num_steps, max_steps), logical_not(state.is_finished))

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
        return lengths, state.num_accepted, state.num_steps, state.is_finished, state.t == problem.end

    lengths, num_accepted, num_steps, is_finished, reaches_end = constant("dlc.solve.diffeqsolve", find_lengths)

    def replay(state: _State, element: Any) -> tuple[_State, None]:
        index, length = element
        is_last = reaches_end & (index == num_accepted - 1)
        return lax.cond(index < num_accepted, lambda: _replay(problem, state, length, is_last), lambda: state), None

    state, _ = lax.scan(replay, _initial(problem, y, length), (arange(max_steps), lengths))
    return state._replace(num_steps=num_steps, num_accepted=num_accepted, is_finished=is_finished)


def _initial(problem: _Problem, y: Any, length: Any) -> _State:
    slope = problem.f(problem.start, y)
    if length is None:
        length = _initial_length(problem, y, slope)
    ones = zeros(2, y.dtype) + 1
    outputs: Any = zeros((0, y.shape[0]), y.dtype)
    if problem.times is not None:
        is_start = problem.times == problem.start
        outputs = where(is_start[:, None], y, full((problem.times.shape[0], y.shape[0]), math.inf, y.dtype))
    num_slopes = len(problem.method.weights) if isinstance(problem.method, Method) else 1
    slopes = zeros((num_slopes, y.shape[0]), y.dtype) + slope
    is_finished = problem.start == problem.end
    return _State(
        problem.start, y, slope, length, ones, outputs, problem.start, y, slopes, np.asarray(0), np.asarray(0), is_finished
    )


def _initial_length(problem: _Problem, y: Any, slope: Any) -> Any:
    """Return a first step length of about 1 % of the scale of the solution (Hairer, Nørsett and Wanner, II.4)."""
    assert isinstance(problem.controller, PIDController)
    scale = problem.controller.atol + problem.controller.rtol * abs(y)
    size, speed = _norm(y / scale), _norm(slope / scale)
    is_tiny = (size < 1e-5) | (speed < 1e-5)
    return where(is_tiny, 1e-6, 0.01 * size / where(is_tiny, 1, speed))


def _norm(x: Any) -> Any:
    """Return the root mean square."""
    return sqrt(sum(x * x) / x.shape[0])


def _advance(problem: _Problem, state: _State) -> _State:
    """Try a step, and accept or reject it."""
    remaining = problem.end - state.t
    # A step that ends this close to the end is extended to it: the rest would be a step of rounding errors.
    is_last = abs(remaining) <= state.length * (1 + 1e-6)
    h = where(is_last, remaining, sign(remaining) * state.length)
    step = _step(problem, state, h)
    if isinstance(problem.controller, ConstantStepSize):
        return _accept(problem, state, step, h, is_last, state.length, state.errors, np.asarray(True))
    scale = problem.controller.atol + problem.controller.rtol * maximum(abs(state.y), abs(step.end))
    error = _norm(step.error / scale)
    # Bounds for powers of the error; NaN and infinity reject the step.
    error = where(isfinite(error), maximum(error, 1e-10), 1e10)
    is_accepted = error <= 1
    length = abs(h) * _factor(problem, error, state.errors, is_accepted)
    errors = where(is_accepted, concat([error[None], state.errors[:1]]), state.errors)
    return _accept(problem, state, step, h, is_last, length, errors, is_accepted)


def _step(problem: _Problem, state: _State, h: Any) -> Step:
    """Take a step of length `h`."""
    if problem.diffusion is not None:
        end = path_step(problem.method, problem.f, problem.diffusion, state.t, state.y, h, state.num_steps)
        return Step(end, None, state.slope, state.slopes)
    assert isinstance(problem.method, Method)
    return problem.method.step(problem.f, state.t, state.y, state.slope, h)


def _interpolate(problem: _Problem, y: Any, step: Step, h: Any, position: Any) -> Any:
    """Return the states at relative positions (m,) of a step that began at y: (m, n). A path of noise has no slopes."""
    if problem.diffusion is not None:
        return y + position[:, None] * (step.end - y)
    assert isinstance(problem.method, Method)
    return problem.method.interpolate(y, step, h, position)


def _factor(problem: _Problem, error: Any, errors: Any, is_accepted: Any) -> Any:
    """Return the factor of the next step length, from the estimated error and the two previous errors."""
    controller = problem.controller
    assert isinstance(controller, PIDController)
    assert isinstance(problem.method, Method)
    order = problem.method.order
    exponents = (
        -(controller.icoeff + controller.pcoeff + controller.dcoeff) / order,
        (controller.pcoeff + 2 * controller.dcoeff) / order,
        -controller.dcoeff / order,
    )
    factor = controller.safety * power(error, exponents[0])
    for exponent, previous in zip(exponents[1:], (errors[0], errors[1]), strict=True):
        if exponent:
            factor = factor * power(previous, exponent)
    factor = minimum(maximum(factor, controller.factormin), controller.factormax)
    return where(is_accepted, factor, minimum(factor, 1.0))


def _accept(
    problem: _Problem, state: _State, step: Step, h: Any, is_last: Any, length: Any, errors: Any, is_accepted: Any
) -> _State:
    """Return the state after a step; if the step is rejected, the state before it with the new step length."""
    t = where(is_last, problem.end, state.t + h)
    is_finished = is_last
    if problem.event is not None:
        before, after = problem.event(state.t, state.y), problem.event(t, step.end)
        is_finished = is_last | (sign(before) * sign(after) < 0) | ((after == 0) & (before != 0))
    is_finished = is_accepted & is_finished
    return _State(
        t=where(is_accepted, t, state.t),
        y=where(is_accepted, step.end, state.y),
        slope=where(is_accepted, step.slope, state.slope),
        length=length,
        errors=errors,
        outputs=_save(problem, state, step, t, h, is_accepted),
        previous_t=where(is_accepted, state.t, state.previous_t),
        previous_y=where(is_accepted, state.y, state.previous_y),
        slopes=where(is_accepted, step.slopes, state.slopes),
        num_steps=state.num_steps + 1,
        num_accepted=state.num_accepted + where(is_accepted, 1, 0),
        is_finished=is_finished,
    )


def _replay(problem: _Problem, state: _State, length: Any, is_last: Any) -> _State:
    """Repeat an accepted step. The length of the last one depends on the end."""
    h = where(is_last, problem.end - state.t, length)
    step = _step(problem, state, h)
    return _accept(problem, state, step, h, is_last, state.length, state.errors, np.asarray(True))


def _save(problem: _Problem, state: _State, step: Step, t: Any, h: Any, is_accepted: Any) -> Any:
    """Store the interpolated states at the requested times inside a step."""
    if problem.times is None:
        return state.outputs
    direction = sign(problem.end - problem.start)
    is_inside = ((problem.times - state.t) * direction > 0) & ((problem.times - t) * direction <= 0)
    position = where(is_inside, (problem.times - state.t) / where(h == 0, 1, h), 0)
    values = _interpolate(problem, state.y, step, h, position)
    return where((is_inside & is_accepted)[:, None], values, state.outputs)


def _locate_event(problem: _Problem, state: _State) -> tuple[Any, Any, Any]:
    """Return whether the last step contains an event, its time, and the state there."""
    assert problem.event is not None
    event, h = problem.event, state.t - state.previous_t
    step = Step(state.y, None, state.slope, state.slopes)

    def state_at(position: Any) -> Any:
        return _interpolate(problem, state.previous_y, step, h, position[None])[0]

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

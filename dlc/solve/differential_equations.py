"""Initial value problems of ordinary differential equations."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlc import tree
from dlc.calculus.batching import vmap
from dlc.errors import ArgumentError, DlcError, DTypeError, ShapeError
from dlc.numpy import (
    abs,
    all,
    arange,
    at,
    concat,
    full,
    isfinite,
    logical_and,
    logical_not,
    maximum,
    sign,
    where,
)
from dlc.numpy.apply import ArrayLike, convert, operand, refuse
from dlc.solve.brownian_motion import VirtualBrownianTree
from dlc.solve.integration import (
    Adjoint,
    DirectAdjoint,
    InitialValueProblem,
    RecursiveCheckpointAdjoint,
    State,
    integrate,
    locate_event,
)
from dlc.solve.results import RESULTS
from dlc.solve.runge_kutta import Method
from dlc.solve.saving import DenseInterpolation, DiffEqSolution, SaveAt
from dlc.solve.step_size_controllers import ConstantStepSize, Controller, PIDController
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
)
from dlc.solve.vectors import ravel, require_kind

__all__ = ["Event", "diffeqsolve"]


class Event(NamedTuple):
    """The end of an integration where `cond_fn(t, y, args)`, a float scalar, changes its sign."""

    cond_fn: Callable[[Any, Any, Any], Any]


Terms: TypeAlias = Callable[[Any, Any, Any], Any] | ODETerm | MultiTerm

_CONSTANT, _END = ConstantStepSize(), SaveAt(t1=True)


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
    adjoint: Adjoint | None = None,
    max_steps: int = 4096,
) -> DiffEqSolution:
    """Solve dy/dt = terms(t, y, args) with y(t0) = y0 from `t0` to `t1`, in either direction.

    `terms` is a function, or for a stochastic equation a `MultiTerm` of a drift and a diffusion. `Euler` solves it in the sense
    of Itô (Euler-Maruyama), `Heun` and `Midpoint` in that of Stratonovich. With a `VirtualBrownianTree`, steps of `Heun` and
    `Midpoint` may be adaptive.

    `y0` is an array or a pytree of floats; times have its dtype. `dt0` is the length of the first step, and with
    `ConstantStepSize` of all steps. With `PIDController` it may be None: the solver chooses it. Results between steps are
    interpolated.

    Differentiable with respect to `y0`, `args`, the times and all values that the terms close over. The derivative is that of
    the accepted steps, with constant lengths except for the last one. `adjoint` selects how reverse mode repeats them, by
    default with checkpoints, or directly if the number of steps is static.

    Raises ShapeError for terms whose results are no pytrees like `y0`, DTypeError for an event that is no real scalar, and
    DlcError for constant steps without `dt0`, for adaptive steps of a method without an error estimate, for a stochastic
    method without noise, for noise with an implicit method or an event, and for adaptive steps of a path that is drawn step by
    step.
    """
    api_name = "dlc.solve.diffeqsolve"
    is_adaptive = isinstance(stepsize_controller, PIDController)
    require_kind(api_name, "solver", solver, Method, EulerHeun, ItoMilstein, StratonovichMilstein, SRA1)
    require_kind(api_name, "stepsize_controller", stepsize_controller, ConstantStepSize, PIDController)
    if adjoint is not None:
        require_kind(api_name, "adjoint", adjoint, DirectAdjoint, RecursiveCheckpointAdjoint)
    if saveat.steps < 0:
        refuse(ArgumentError(f"{api_name}: saveat.steps = {saveat.steps}; expected True, or n for every n-th step"))
    if not (saveat.t0 or saveat.t1 or saveat.ts is not None or saveat.steps or saveat.dense):
        refuse(DlcError(f"{api_name}: saveat saves nothing; expected SaveAt(t1=True), or times, steps or dense output"))
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
    _require_support(api_name, solver, diffusion, is_adaptive, event is not None)

    def event_value(t: Any, y: Any) -> Any:
        assert event is not None
        value = operand(event.cond_fn(t, unravel(y), args))
        if value.dtype.kind in "bc" or value.shape:
            got = f"an array of dtype {value.dtype} and shape {value.shape}"
            refuse(
                DTypeError(f"{api_name}: event returned {got}; expected a real scalar that changes its sign: y - 1, not y < 1")
            )
        return convert(value, y.dtype)

    problem = InitialValueProblem(
        f=slope,
        diffusion=diffusion,
        method=solver,
        start=convert(operand(t0), y.dtype),
        end=convert(operand(t1), y.dtype),
        controller=stepsize_controller,
        times=None if saveat.ts is None else convert(operand(saveat.ts), y.dtype),
        event=None if event is None else event_value,
        saveat=saveat,
        max_steps=max_steps,
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
    if adjoint is None:
        adjoint = RecursiveCheckpointAdjoint() if static_steps is None else DirectAdjoint()
    final = integrate(problem, y, length, static_steps, adjoint)
    event_mask, end, end_state = np.asarray(False), final.t, final.y
    if problem.event is not None:
        event_mask, end, end_state = locate_event(problem, final)
        final = _end_at_event(problem, final, event_mask, end, end_state)
    ts, ys = _collect(problem, y, final, end, end_state)
    interpolation = None
    if saveat.dense:
        starts = concat([problem.start[None], final.ends[:-1]])
        interpolation = DenseInterpolation(starts, final.ends, vmap(vmap(unravel))(final.coefficients))
    values = None if ts is None else _values(problem, args, unravel, y, ts, ys)
    stats = {
        "num_steps": final.num_steps,
        "num_accepted_steps": final.num_accepted,
        "num_rejected_steps": final.num_steps - final.num_accepted,
    }
    return DiffEqSolution(ts, values, _result(final, event_mask), stats, event_mask, interpolation)


def _result(final: State, event_mask: Any) -> Any:
    """Return the code of the reason why an integration ended."""
    unfinished = where(final.is_stuck, np.int32(RESULTS.dt_min_reached), np.int32(RESULTS.max_steps_reached))
    finished = where(event_mask, np.int32(RESULTS.event_occurred), np.int32(RESULTS.successful))
    finished = where(all(isfinite(final.y)), finished, np.int32(RESULTS.nonfinite))
    return where(final.is_finished, finished, unfinished)


def _values(problem: InitialValueProblem, args: Any, unravel: Callable[[Any], Any], start: Any, ts: Any, ys: Any) -> Any:
    """Return the saved values of the states (m, n): `fn` of the states that were reached, else inf."""
    fn = problem.saveat.fn
    if fn is None:
        return vmap(unravel)(ys)

    def value(t: Any, y: Any) -> Any:
        is_reached = logical_not(all(y == math.inf))

        def reached(leaf: Any) -> Any:
            return where(is_reached, leaf, math.inf)

        # An infinite argument would make derivatives of `fn` undefined.
        return tree.map(reached, fn(where(is_reached, t, problem.start), unravel(where(is_reached, y, start)), args))

    return vmap(value)(ts, ys)


def _collect(problem: InitialValueProblem, y: Any, final: State, end: Any, end_state: Any) -> tuple[Any, Any]:
    """Return the saved times (m,) and states (m, n) in order, or None without any."""
    saveat = problem.saveat
    ts, ys = list[Any](), list[Any]()
    if saveat.t0:
        ts, ys = [problem.start[None]], [y[None]]
    if problem.times is not None:
        ts, ys = [*ts, problem.times], [*ys, final.outputs]
    if saveat.steps:
        # The end follows the last step, or is it.
        every, extra = int(saveat.steps), problem.max_steps % int(saveat.steps) if saveat.t1 else 0
        step_ts, step_ys = (x[every - 1 :: every] for x in (final.ends, final.states))
        if extra:
            step_ts = concat([step_ts, full(1, math.inf, y.dtype)])
            step_ys = concat([step_ys, full((1, y.shape[0]), math.inf, y.dtype)])
        if saveat.t1 and every > 1:
            last = maximum(final.num_accepted - 1, 0) // every
            step_ts, step_ys = at(step_ts)[last].set(end), at(step_ys)[last].set(end_state)
        ts, ys = [*ts, step_ts], [*ys, step_ys]
    elif saveat.t1:
        ts, ys = [*ts, end[None]], [*ys, end_state[None]]
    return (concat(ts), concat(ys)) if ts else (None, None)


def _end_at_event(problem: InitialValueProblem, final: State, happened: Any, end: Any, end_state: Any) -> State:
    """Return the final state with results only until the event."""
    if problem.times is not None:
        is_after = (problem.times - end) * sign(problem.end - problem.start) > 0
        final = final._replace(outputs=where(logical_and(happened, is_after)[:, None], math.inf, final.outputs))
    if problem.saveat.steps:
        last = maximum(final.num_accepted - 1, 0)
        is_last = logical_and(arange(problem.max_steps) == last, final.num_accepted > 0)
        final = final._replace(states=where(is_last[:, None], end_state, final.states))
        if not problem.saveat.dense:
            # Dense output extends to the end of the step.
            final = final._replace(ends=where(is_last, end, final.ends))
    return final


def _require_support(
    api_name: str, solver: Method | StochasticMethod, diffusion: Diffusion | None, is_adaptive: bool, has_event: bool
) -> None:
    name = type(solver).__name__
    if diffusion is None:
        if not isinstance(solver, Method):
            refuse(DlcError(f"{api_name}: {name} needs noise; pass terms=MultiTerm(ODETerm(…), ControlTerm(…))"))
        return
    if isinstance(solver, Method) and solver.diagonal:
        refuse(DlcError(f"{api_name}: implicit methods do not support noise; use Euler, or another explicit method"))
    if has_event:
        refuse(DlcError(f"{api_name}: noise does not support events; pass no event"))
    is_tree = isinstance(diffusion.path, VirtualBrownianTree)
    if is_tree and isinstance(solver, SRA1):
        refuse(DlcError(f"{api_name}: SRA1 needs areas, which VirtualBrownianTree has not; use UnsafeBrownianPath"))
    if is_adaptive and not is_tree:
        refuse(DlcError(f"{api_name}: adaptive steps need a path that does not depend on them; use VirtualBrownianTree"))
    if is_adaptive and not isinstance(solver, Method):
        refuse(DlcError(f"{api_name}: {name} has no error estimate; use ConstantStepSize, or Heun"))

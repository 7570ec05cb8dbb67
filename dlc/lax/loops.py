"""While loops and counted loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.trace import Trace, Tracer, current_trace
from dlc.numpy.apply import ArrayLike, Operand, convert, is_weak, operand, refuse, result_dtype
from dlc.numpy.functions.comparison import less
from dlc.numpy.functions.elementwise import add
from dlc.traced_functions.bodies import TracedLoop, require_functions
from dlc.traced_functions.type_agreement import AbstractValue

__all__ = ["fori_loop", "while_loop"]


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any, /) -> Any:
    """Return the carry after applying `body_fun` to it, from `init_val` on, while `cond_fun` of it is true.

    `cond_fun` returns a bool of rank 0; `body_fun` returns a value with the structure, shapes and dtypes of its argument. A
    number in `init_val` takes the dtype that `body_fun` returns for it.

    Raises ShapeError or DTypeError, naming every leaf, for a carry that changes its shape or dtype, and for a condition that is
    not a bool.
    """
    api_name, trace = "dlc.lax.while_loop", current_trace()
    require_functions(api_name, cond_fun=cond_fun, body_fun=body_fun)

    def continues(value: Any) -> bool:
        return bool(cast(Any, _condition(api_name, cond_fun(value))))

    if trace is None:
        value = init_val
        while continues(value):
            value = body_fun(value)
        return value
    loop = TracedLoop(trace, api_name, "value{} from body_fun", "init_val{}", init_val)
    if trace.is_eager and continues(value := loop.value(loop.initial_arrays)):
        value = loop.next_carry(body_fun(value))
        while continues(value):
            value = loop.next_carry(body_fun(value))
        return value
    return _while(trace, api_name, cond_fun, body_fun, loop)


def _while(
    trace: Trace, api_name: str, cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], loop: TracedLoop
) -> Any:
    def finish(next_carry: list[Tracer], _: Any) -> Sequence[Any]:
        return [_condition(api_name, cond_fun(loop.value(next_carry))), *next_carry]

    body = loop.body([], lambda carry, _: (body_fun(carry), None), finish)
    initial_arrays = loop.initial_arrays
    initial_condition = trace.value(_condition(api_name, cond_fun(loop.value(initial_arrays))))
    return loop.result(trace.insert(dl.WhileOp.of(initial_condition.value, [x.value for x in initial_arrays], body)))


def _condition(api_name: str, value: ArrayLike) -> Operand:
    condition = operand(value)
    if condition.shape or condition.dtype != np.bool_:
        got = f"{condition.dtype}{list(condition.shape)}"
        error = ShapeError if condition.shape else DTypeError
        refuse(error(f"{api_name}: cond_fun returned {got}; expected a bool without axes, such as the result of a comparison"))
    return condition


def fori_loop(lower: ArrayLike, upper: ArrayLike, body_fun: Callable[[Any, Any], Any], init_val: Any, /) -> Any:
    """Return the carry after `value = body_fun(i, value)` for each `i` from `lower` to before `upper`, from `init_val` on.

    The bounds are integers of rank 0. `body_fun` returns a value with the structure, shapes and dtypes of its argument; a
    number in `init_val` takes the dtype that `body_fun` returns for it.

    Raises ShapeError or DTypeError for other bounds, for a bound that the dtype of the other does not represent and, naming
    every leaf, for a carry that changes its shape or dtype.
    """
    api_name, trace = "dlc.lax.fori_loop", current_trace()
    require_functions(api_name, body_fun=body_fun)
    for name, x in (("lower", lower), ("upper", upper)):
        _require_integer(api_name, name, x)
    aval = AbstractValue((), result_dtype(lower, upper), is_weak(lower) and is_weak(upper))
    bounds = [convert(x, aval.dtype) for x in (lower, upper)]
    if trace is None:
        value = init_val
        for i in range(*map(int, bounds)):
            value = body_fun(i if aval.weak else aval.dtype.type(i), value)
        return value
    loop = TracedLoop(trace, api_name, "value{} from body_fun", "init_val{}", init_val)
    if trace.is_eager and (steps := range(*map(int, bounds))):
        value = loop.value(loop.initial_arrays)
        for i in steps:
            index = Tracer(trace, trace.constant(np.asarray(i, aval.dtype)).value, aval.weak)
            value = loop.next_carry(body_fun(index, value))
        return value
    if any(isinstance(bound, Tracer) for bound in bounds):
        first_index, end_index = map(trace.value, bounds)
        return _count_loop(trace, first_index, end_index, aval, body_fun, loop)
    first, last = map(int, bounds)
    count = max(last - first, 0)

    def step(carry: Any, i: list[Tracer]) -> tuple[Any, None]:
        trace.record_range(i[0], first, last - 1)
        return body_fun(i[0], carry), None

    body = loop.body([aval], step, lambda next_carry, _: next_carry)
    indices = trace.apply(dl.IotaOp, size=(count,), to=element_type(aval.dtype), start=first, step=1)
    arguments = [x.value for x in (*loop.initial_arrays, indices)]
    return loop.result(trace.insert(dl.ScanOp.of(arguments, body, len(loop.avals), count)))


def _count_loop(
    trace: Trace, lower: Tracer, upper: Tracer, aval: AbstractValue, body_fun: Callable[[Any, Any], Any], loop: TracedLoop
) -> Any:
    """Trace a loop between traced bounds as a while loop whose carry includes the counter."""

    def finish(next_carry: list[Tracer], i: Tracer) -> Sequence[Any]:
        next_index = add(i, 1)
        return [less(next_index, upper), *next_carry, next_index]

    body = loop.body([aval], lambda carry, i: (body_fun(i[0], carry), i[0]), finish)
    initial_condition: Tracer = less(lower, upper)
    *last, _ = trace.insert(dl.WhileOp.of(initial_condition.value, [x.value for x in (*loop.initial_arrays, lower)], body))
    return loop.result(last)


def _require_integer(api_name: str, name: str, x: ArrayLike) -> None:
    bound = operand(x)
    if bound.shape:
        refuse(ShapeError(f"{api_name}: {name} has shape {bound.shape}; expected an integer scalar, without axes"))
    if bound.dtype.kind not in "iu":
        refuse(DTypeError(f"{api_name}: {name} is of dtype {bound.dtype}; expected an integer"))

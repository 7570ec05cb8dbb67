"""Loops that run while data says so, or from one number to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.trace import Trace, Tracer, current_trace
from dlc.lax.agreement import Kind
from dlc.lax.bodies import Loop, require_functions
from dlc.numpy.apply import ArrayLike, Operand, convert, dtype_of, is_weak, operand, refuse
from dlc.numpy.functions.comparing import less
from dlc.numpy.functions.elementwise import add

__all__ = ["fori_loop", "while_loop"]


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any, /) -> Any:
    """What `init_val` has become when `cond_fun` of it no longer holds: as long as it does, `body_fun` makes the next one.

    `cond_fun` returns a bool without axes, `body_fun` a value of the structure, shapes and dtypes of what it is given. A
    number in `init_val` takes the dtype that `body_fun` makes of it.

    Raises ShapeError or DTypeError, naming every place, for a value that does not keep its shape and dtype, and for a
    condition that is no bool.
    """
    where, trace = "dlc.lax.while_loop", current_trace()
    require_functions(where, cond_fun=cond_fun, body_fun=body_fun)

    def goes_on(value: Any) -> bool:
        return bool(cast(Any, _condition(where, cond_fun(value))))

    if trace is None:
        value = init_val
        while goes_on(value):
            value = body_fun(value)
        return value
    loop = Loop(trace, where, "value{} from body_fun", "init_val{}", init_val)
    if trace.steps and goes_on(value := loop.value(loop.first)):
        value = loop.following(body_fun(value))
        while goes_on(value):
            value = loop.following(body_fun(value))
        return value
    return _while(trace, where, cond_fun, body_fun, loop)


def _while(trace: Trace, where: str, cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], loop: Loop) -> Any:
    def finish(following: list[Tracer], _: Any) -> Sequence[Any]:
        return [_condition(where, cond_fun(loop.value(following))), *following]

    body = loop.body([], lambda carry, _: (body_fun(carry), None), finish)
    first = loop.first
    begin = trace.value(_condition(where, cond_fun(loop.value(first))))
    return loop.result(trace.insert(dl.WhileOp.of(begin.value, [x.value for x in first], body)))


def _condition(where: str, value: ArrayLike) -> Operand:
    condition = operand(value)
    if condition.shape or condition.dtype != np.bool_:
        got = f"{condition.dtype}{list(condition.shape)}"
        error = ShapeError if condition.shape else DTypeError
        refuse(error(f"{where}: cond_fun returned {got}; expected a bool without axes, such as a comparison makes"))
    return condition


def fori_loop(lower: ArrayLike, upper: ArrayLike, body_fun: Callable[[Any, Any], Any], init_val: Any, /) -> Any:
    """What `init_val` has become after `value = body_fun(i, value)` for each `i` from `lower` to before `upper`.

    The bounds are integers without axes. `body_fun` returns a value of the structure, shapes and dtypes of what it is given;
    a number in `init_val` takes the dtype that `body_fun` makes of it.

    Raises ShapeError and DTypeError for bounds that are not such, and, naming every place, for a value that does not keep
    its shape and dtype.
    """
    where, trace = "dlc.lax.fori_loop", current_trace()
    require_functions(where, body_fun=body_fun)
    bounds = [_bound(where, name, x) for name, x in (("lower", lower), ("upper", upper))]
    kind = Kind((), dtype_of(lower, upper), is_weak(lower) and is_weak(upper))
    if trace is None:
        value = init_val
        for i in range(*map(int, bounds)):
            value = body_fun(i if kind.weak else kind.dtype.type(i), value)
        return value
    loop = Loop(trace, where, "value{} from body_fun", "init_val{}", init_val)
    if trace.steps and (steps := range(*map(int, bounds))):
        value = loop.value(loop.first)
        for i in steps:
            number = Tracer(trace, trace.constant(np.asarray(i, kind.dtype)).value, kind.weak)
            value = loop.following(body_fun(number, value))
        return value
    if any(isinstance(bound, Tracer) for bound in bounds):
        begin, end = (trace.value(convert(bound, kind.dtype)) for bound in bounds)
        return _count(trace, begin, end, kind, body_fun, loop)
    first, last = map(int, bounds)
    count = max(last - first, 0)
    body = loop.body([kind], lambda carry, i: (body_fun(i[0], carry), None), lambda following, _: following)
    numbers = trace.apply(dl.IotaOp, size=(count,), to=element_type(kind.dtype), start=first, step=1)
    arguments = [x.value for x in (*loop.first, numbers)]
    return loop.result(trace.insert(dl.ScanOp.of(arguments, body, len(loop.kinds), count)))


def _count(trace: Trace, lower: Tracer, upper: Tracer, kind: Kind, body_fun: Callable[[Any, Any], Any], loop: Loop) -> Any:
    """A loop between traced bounds, which counts in a state of its own."""

    def finish(following: list[Tracer], i: Tracer) -> Sequence[Any]:
        after = add(i, 1)
        return [less(after, upper), *following, after]

    body = loop.body([kind], lambda carry, i: (body_fun(i[0], carry), i[0]), finish)
    begin: Tracer = less(lower, upper)
    *last, _ = trace.insert(dl.WhileOp.of(begin.value, [x.value for x in (*loop.first, lower)], body))
    return loop.result(last)


def _bound(where: str, name: str, x: ArrayLike) -> Operand:
    bound = operand(x)
    if bound.shape:
        refuse(ShapeError(f"{where}: {name} has the shape {bound.shape}; expected one integer, without axes"))
    if bound.dtype.kind not in "iu":
        refuse(DTypeError(f"{where}: {name} is of dtype {bound.dtype}; expected an integer"))
    return bound

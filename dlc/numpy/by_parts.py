"""Functions that do the same to both parts of complex numbers: what moves, joins, chooses or adds up elements."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from dlc.dialects import dl
from dlc.frontend.complex_numbers import is_complex, of_parts, parts_of
from dlc.frontend.trace import is_number
from dlc.numpy.apply import apply, operand

Function = TypeVar("Function", bound=Callable[..., Any])


def by_parts(*values: str) -> Callable[[Function], Function]:
    """Calls the function once for each part where one of the parameters `values`, or of a list there, is complex."""

    def decorator(function: Function) -> Function:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def of_both(*arguments: Any, **settings: Any) -> Any:
            if not any(map(_has_complex, arguments)) and not any(map(_has_complex, settings.values())):
                return function(*arguments, **settings)
            given = signature.bind(*arguments, **settings)
            parts = {name: _parts(value) for name, value in given.arguments.items() if name in values}
            made: list[Any] = []
            for k in (0, 1):
                given.arguments.update((name, pair[k]) for name, pair in parts.items())
                made.append(function(*given.args, **given.kwargs))
            return _joined(*made)

        PARTWISE.add(of_both)
        return cast(Function, of_both)

    return decorator


# All functions of this kind.
PARTWISE: set[Callable[..., Any]] = set()


def _has_complex(value: object) -> bool:
    return any(map(is_complex, cast("Sequence[object]", value))) if isinstance(value, list | tuple) else is_complex(value)


def _parts(value: Any) -> tuple[Any, Any]:
    """The real and the imaginary parts: real numbers have zeros."""
    if is_complex(value):
        return parts_of(value)
    if _has_complex(value):
        pairs = [_parts(v) for v in value]
        return [a for a, _ in pairs], [b for _, b in pairs]
    if value is None or is_number(value):
        return value, None if value is None else 0
    x = operand(value)
    return x, apply(dl.BroadcastToOp, np.zeros((), x.dtype), shape=x.shape)


def _joined(real: Any, imag: Any) -> Any:
    if isinstance(real, list | tuple):
        kind = cast("Callable[[Iterable[Any]], Any]", list if isinstance(real, list) else tuple)
        return kind(_joined(a, b) for a, b in zip(cast("Sequence[Any]", real), imag, strict=True))
    return of_parts(real, imag)

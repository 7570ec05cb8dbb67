"""Apply functions to the real and the imaginary part of complex arrays separately: reshape, join, select, sums."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from dlc.dialects import dl
from dlc.errors import UnsupportedError
from dlc.frontend.complex_numbers import from_parts, is_complex, real_and_imaginary
from dlc.frontend.trace import is_python_scalar
from dlc.numpy.apply import apply, as_dtype, operand, refuse

Function = TypeVar("Function", bound=Callable[..., Any])


def componentwise(*values: str) -> Callable[[Function], Function]:
    """Decorate a function to run on the real and the imaginary part separately if an argument is complex.

    `values` are the names of the parameters that may be complex arrays, or lists of them.
    """

    def decorator(function: Function) -> Function:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def apply_to_parts(*arguments: Any, **kwargs: Any) -> Any:
            if not any(map(_contains_complex, arguments)) and not any(map(_contains_complex, kwargs.values())):
                return function(*arguments, **kwargs)
            bound_arguments = signature.bind(*arguments, **kwargs)
            dtype = bound_arguments.arguments.get("dtype")
            if dtype is not None and as_dtype(dtype).kind != "c":
                problem = f"{function.__name__}: dtype {as_dtype(dtype)} of a complex array"
                refuse(UnsupportedError(f"{problem}; apply it to .real, or convert with .astype"))
            if dtype is not None:
                bound_arguments.arguments["dtype"] = np.float64 if as_dtype(dtype).itemsize == 16 else np.float32
            component_pairs = {name: _split_parts(value) for name, value in bound_arguments.arguments.items() if name in values}
            results: list[Any] = []
            for k in (0, 1):
                bound_arguments.arguments.update((name, pair[k]) for name, pair in component_pairs.items())
                results.append(function(*bound_arguments.args, **bound_arguments.kwargs))
            return _join_parts(*results)

        COMPONENTWISE_FUNCTIONS.add(apply_to_parts)
        return cast(Function, apply_to_parts)

    return decorator


# All decorated functions.
COMPONENTWISE_FUNCTIONS: set[Callable[..., Any]] = set()


def _contains_complex(value: object) -> bool:
    return any(map(is_complex, cast("Sequence[object]", value))) if isinstance(value, list | tuple) else is_complex(value)


def _split_parts(value: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part; the imaginary part of a real value is zero."""
    if is_complex(value):
        return real_and_imaginary(value)
    if _contains_complex(value):
        pairs = [_split_parts(v) for v in value]
        return [a for a, _ in pairs], [b for _, b in pairs]
    if value is None or is_python_scalar(value):
        return value, None if value is None else 0
    x = operand(value)
    return x, apply(dl.BroadcastToOp, np.zeros((), x.dtype), shape=x.shape)


def _join_parts(real: Any, imag: Any) -> Any:
    if isinstance(real, list | tuple):
        container = cast("Callable[[Iterable[Any]], Any]", list if isinstance(real, list) else tuple)
        return container(_join_parts(a, b) for a, b in zip(cast("Sequence[Any]", real), imag, strict=True))
    return from_parts(real, imag)

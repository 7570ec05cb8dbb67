"""Apply functions to the real and the imaginary part of complex arrays separately: reshape, join, select, sums."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from dlc.errors import UnsupportedError
from dlc.frontend.complex_numbers import component_dtype, contains_complex, from_parts
from dlc.numpy.apply import as_dtype, convert, refuse, split_parts

Function = TypeVar("Function", bound=Callable[..., Any])


def componentwise(*values: str) -> Callable[[Function], Function]:
    """Decorate a function to run on the real and the imaginary part separately if an argument or its dtype is complex.

    `values` are the names of the parameters that may be complex arrays, or lists of them.
    """

    def decorator(function: Function) -> Function:
        signature = inspect.signature(function)
        names = list(signature.parameters)
        dtype_position = names.index("dtype") if "dtype" in names else len(names)

        @functools.wraps(function)
        def apply_to_parts(*arguments: Any, **kwargs: Any) -> Any:
            dtype = kwargs.get("dtype", next(iter(arguments[dtype_position:]), None))
            is_real = not any(map(contains_complex, arguments)) and not any(map(contains_complex, kwargs.values()))
            if is_real and (dtype is None or as_dtype(dtype).kind != "c"):
                return function(*arguments, **kwargs)
            bound_arguments = signature.bind(*arguments, **kwargs)
            if dtype is not None and as_dtype(dtype).kind != "c":
                problem = f"{function.__name__}: dtype {as_dtype(dtype)} of a complex array"
                refuse(UnsupportedError(f"{problem}; apply it to .real, or convert with .astype"))
            if dtype is not None:
                bound_arguments.arguments["dtype"] = component_dtype(as_dtype(dtype))
            component_pairs = {name: split_parts(value) for name, value in bound_arguments.arguments.items() if name in values}
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


def _join_parts(real: Any, imag: Any) -> Any:
    if isinstance(real, list | tuple):
        container = cast("Callable[[Iterable[Any]], Any]", list if isinstance(real, list) else tuple)
        return container(_join_parts(a, b) for a, b in zip(cast("Sequence[Any]", real), imag, strict=True))
    dtype = np.promote_types(real.dtype, np.float32)
    return from_parts(convert(real, dtype), convert(imag, dtype))

"""Calls of transformed functions: into the program that is being traced, or compiled and run at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

from dlc.errors import DTypeError
from dlc.frontend.pytree import flatten, is_array_like, unflatten
from dlc.frontend.trace import current_trace
from dlc.just_in_time import jit


def traced(function: Callable[..., Any], like: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`function`, which can be called while something is traced, as one that can be called anywhere.

    Elsewhere it is compiled for the shapes and dtypes of the arrays it is given; other arguments are settings, and each value
    of them is compiled for by itself.
    """
    compiled: dict[Hashable, Callable[..., Any]] = {}

    @functools.wraps(like)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return function(*args, **kwargs)
        leaves, tree = flatten((args, kwargs))
        settings = tuple((i, leaf) for i, leaf in enumerate(leaves) if not is_array_like(leaf))
        for _, setting in settings:
            if not isinstance(setting, Hashable):
                raise DTypeError(f"{call.__name__}: an argument is a {type(setting).__name__}, neither an array nor a setting")
        if (tree, settings) not in compiled:
            given, count = dict(settings), len(leaves)

            def run(arrays: list[Any]) -> Any:
                others = iter(arrays)
                args, kwargs = unflatten(tree, iter([given[i] if i in given else next(others) for i in range(count)]))
                return function(*args, **kwargs)

            run.__name__ = call.__name__
            compiled[tree, settings] = jit(run)
        return compiled[tree, settings]([leaf for leaf in leaves if is_array_like(leaf)])

    call.__name__ = call.__qualname__ = f"{name} of {getattr(like, '__name__', 'function')}"
    return call

"""Calls of transformed functions: traced into the current program, or compiled and run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

from dlc.errors import DTypeError
from dlc.frontend.pytree import flatten, is_array_like, unflatten
from dlc.frontend.trace import current_trace
from dlc.just_in_time.decorator import jit
from dlc.runtime.collectives.mesh import Mesh


def trace_or_compile(
    function: Callable[..., Any], like: Callable[..., Any], name: str, mesh: Mesh | None = None
) -> Callable[..., Any]:
    """Make `function`, which can only be called during tracing, callable anywhere.

    Outside of tracing it is compiled for the shapes and dtypes of its array arguments; other arguments are static, and each of
    their values is compiled separately. `name` describes the transformation of `like` in names and errors. The ranks of a
    `mesh` run it together.
    """
    compiled: dict[Hashable, Callable[..., Any]] = {}

    @functools.wraps(like)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return function(*args, **kwargs)
        leaves, tree = flatten((args, kwargs))
        static_leaves = tuple((i, leaf) for i, leaf in enumerate(leaves) if not is_array_like(leaf))
        for _, static_leaf in static_leaves:
            if not isinstance(static_leaf, Hashable):
                raise DTypeError(
                    f"{call.__name__}: argument of type {type(static_leaf).__name__}; expected an array or a hashable value"
                )
        if (tree, static_leaves) not in compiled:
            static_by_index, count = dict(static_leaves), len(leaves)

            def run(arrays: list[Any]) -> Any:
                array_leaves = iter(arrays)
                merged_leaves = [static_by_index[i] if i in static_by_index else next(array_leaves) for i in range(count)]
                args, kwargs = unflatten(tree, iter(merged_leaves))
                return function(*args, **kwargs)

            run.__name__ = call.__name__
            compiled[tree, static_leaves] = jit(mesh=mesh)(run)
        return compiled[tree, static_leaves]([leaf for leaf in leaves if is_array_like(leaf)])

    call.__name__ = call.__qualname__ = f"{name} of {getattr(like, '__name__', 'function')}"
    return call

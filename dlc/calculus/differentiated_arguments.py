"""The arguments of a call that a function is differentiated with respect to."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from dlc.argument_validation.validate import call_user_function
from dlc.errors import DTypeError
from dlc.frontend.pytree import unflatten
from dlc.frontend.trace import with_user_line
from dlc.traced_functions.leaf_functions import NamedLeaves

Function = Callable[..., Any]


@dataclass(frozen=True)
class DifferentiatedArguments:
    """The selected arguments of a call, and a function of them.

    Attributes:
        leaves: The leaves of the selected arguments.
        call: Calls the function with other values for these leaves.
    """

    leaves: NamedLeaves
    call: Function

    @classmethod
    def of(
        cls,
        api_name: str,
        fun: Function,
        argnums: int | Sequence[int],
        argnames: str | Sequence[str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> DifferentiatedArguments:
        """Select arguments by number and name; a single `argnums` integer selects the argument itself, not a tuple.

        Raises DTypeError for an argument that the call does not have, and for one that is selected twice.
        """
        is_single = isinstance(argnums, SupportsIndex) and not argnames
        positions = [argnums] if isinstance(argnums, SupportsIndex) else list(argnums)
        names = [argnames] if isinstance(argnames, str) else list(argnames)
        for position in positions:
            if not -len(args) <= operator.index(position) < len(args):
                problem = f"{api_name}: argnums {position}, but the call has {len(args)} positional arguments"
                raise with_user_line(
                    DTypeError(problem + ("; pass argnums=() to select keyword arguments only" if names else ""))
                )
        for name in names:
            if name not in kwargs:
                keyword_names = ", ".join(kwargs) or "none"
                raise with_user_line(
                    DTypeError(f"{api_name}: argnames {name!r}, but the call has the keyword arguments {keyword_names}")
                )
        positions = [position % len(args) for position in positions]
        for selection in (positions, names):
            if len(set(selection)) < len(selection):
                raise with_user_line(DTypeError(f"{api_name}: {selection} selects an argument twice; expected each once"))
        selected_arguments = [(args[i], f"argument {i}") for i in positions] + [(kwargs[name], name) for name in names]
        tree = selected_arguments[0][0] if is_single else tuple(argument for argument, _ in selected_arguments)
        leaves = NamedLeaves.of(api_name, selected_arguments[0][1] if is_single else "argument", tree)
        if not is_single:
            paths = [path for argument, name in selected_arguments for path in NamedLeaves.of(api_name, name, argument).names]
            leaves = NamedLeaves(leaves.values, leaves.tree, paths)

        def call(*values: Any) -> Any:
            new_values = unflatten(leaves.tree, iter(values))
            replaced = [new_values] if is_single else list(new_values)
            positional, keywords = list(args), dict(kwargs)
            for i, value in zip(positions, replaced, strict=False):
                positional[i] = value
            keywords |= zip(names, replaced[len(positions) :], strict=True)
            return call_user_function(fun, *positional, **keywords)

        return cls(leaves, call)

"""Which arguments of a call a function is differentiated by."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from dlc.calculus.function import Leaves
from dlc.errors import DTypeError
from dlc.frontend.pytree import unflatten
from dlc.frontend.trace import at_user_line
from dlc.misuse import applied

Function = Callable[..., Any]


@dataclass(frozen=True)
class Selected:
    """The arguments of a call that a function is differentiated by, and the call for others in their place."""

    leaves: Leaves
    call: Function

    @classmethod
    def of(
        cls,
        where: str,
        fun: Function,
        argnums: int | Sequence[int],
        argnames: str | Sequence[str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Selected:
        """The arguments of these numbers and names; one by itself is no tuple. Raises DTypeError for one that is not given,
        or twice.
        """
        alone = isinstance(argnums, SupportsIndex) and not argnames
        numbers = [argnums] if isinstance(argnums, SupportsIndex) else list(argnums)
        names = [argnames] if isinstance(argnames, str) else list(argnames)
        for number in numbers:
            if not -len(args) <= operator.index(number) < len(args):
                problem = f"{where}: argnums {number} of a call with {len(args)} positional arguments"
                raise at_user_line(DTypeError(problem + ("; argnums=() is none of them" if names else "")))
        for name in names:
            if name not in kwargs:
                given = ", ".join(kwargs) or "none"
                raise at_user_line(DTypeError(f"{where}: argnames {name!r} of a call with the keyword arguments {given}"))
        numbers = [number % len(args) for number in numbers]
        for chosen in (numbers, names):
            if len(set(chosen)) < len(chosen):
                raise at_user_line(DTypeError(f"{where}: {chosen} has an argument twice; name each once"))
        parts = [(args[i], f"argument {i}") for i in numbers] + [(kwargs[name], name) for name in names]
        tree = parts[0][0] if alone else tuple(part for part, _ in parts)
        leaves = Leaves.of(where, parts[0][1] if alone else "argument", tree)
        if not alone:
            paths = [path for part, name in parts for path in Leaves.of(where, name, part).names]
            leaves = Leaves(leaves.values, leaves.tree, paths)

        def call(*values: Any) -> Any:
            chosen = unflatten(leaves.tree, iter(values))
            replaced = [chosen] if alone else list(chosen)
            positional, named = list(args), dict(kwargs)
            for i, value in zip(numbers, replaced, strict=False):
                positional[i] = value
            named |= zip(names, replaced[len(numbers) :], strict=True)
            return applied(fun, *positional, **named)

        return cls(leaves, call)

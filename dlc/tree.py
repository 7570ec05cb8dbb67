"""Trees of arrays: nested tuples, lists, dicts and dataclasses, as functions take and return them. None has no leaves.

Entries of dicts come in the order of their keys, whatever order they were made in.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any

from dlc.errors import ShapeError
from dlc.frontend import pytree
from dlc.frontend.pytree import Tree
from dlc.misuse import explain_misuse

__all__ = ["Tree", "flatten", "leaves", "map", "unflatten"]


def flatten(tree: Any, /) -> tuple[list[Any], Tree]:
    """The leaves of a tree, in order, and its shape, which `unflatten` takes."""
    given, shape = pytree.flatten(tree)
    ordered = shape.ordered()
    return ordered.leaves_of(shape, given), ordered


def leaves(tree: Any, /) -> list[Any]:
    """The leaves of a tree, in order."""
    return flatten(tree)[0]


def unflatten(shape: Tree, leaves: Iterable[Any], /) -> Any:
    """The tree of a shape with these leaves. Raises ShapeError for more or fewer than it has."""
    given, count = list(leaves), len(list(shape.paths("")))
    if len(given) != count:
        raise ShapeError(f"dlc.tree.unflatten: {len(given)} leaves for a tree with {count}")
    return pytree.unflatten(shape, iter(given))


def map(f: Callable[..., Any], tree: Any, /, *rest: Any) -> Any:
    """The tree with `f(leaf, *others)` for each leaf; `others` are the leaves at its place in trees of the same shape.

    Raises ShapeError where one of these differs.
    """
    first, shape = pytree.flatten(tree)
    columns = [first]
    for k, other in enumerate(rest):
        given, its = pytree.flatten(other)
        if found := shape.difference(its):
            path, there, here = found
            raise ShapeError(f"dlc.tree.map: tree{path} is {there}, rest[{k}]{path} is {here}; expected the same structure")
        columns.append(shape.leaves_of(its, given))
    return pytree.unflatten(shape, builtins.map(f, *columns))


explain_misuse(globals())

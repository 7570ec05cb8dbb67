"""Pytrees: nested tuples, lists, dicts and dataclasses of arrays, as functions take and return them. None has no leaves.

Dict entries are ordered by key, independent of insertion order.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any

from dlc.argument_validation.validate import validate_arguments
from dlc.errors import ShapeError
from dlc.frontend import pytree
from dlc.frontend.pytree import Tree

__all__ = ["Tree", "flatten", "leaves", "map", "unflatten"]


def flatten(tree: Any, /) -> tuple[list[Any], Tree]:
    """Return the leaves of a tree, in order, and its structure, which `unflatten` takes."""
    flat, shape = pytree.flatten(tree)
    ordered = shape.with_sorted_keys()
    return ordered.reordered_leaves(shape, flat), ordered


def leaves(tree: Any, /) -> list[Any]:
    """Return the leaves of a tree, in order."""
    return flatten(tree)[0]


def unflatten(shape: Tree, leaves: Iterable[Any], /) -> Any:
    """Build the tree of a structure from leaves. Raises ShapeError for a wrong number of leaves."""
    flat, count = list(leaves), len(list(shape.paths("")))
    if len(flat) != count:
        raise ShapeError(f"dlc.tree.unflatten: got {len(flat)} leaves for a tree with {count}")
    return pytree.unflatten(shape, iter(flat))


def map(f: Callable[..., Any], tree: Any, /, *rest: Any) -> Any:
    """Return the tree with `f(leaf, *others)` for each leaf; `others` are the corresponding leaves of `rest`.

    Raises ShapeError if a tree of `rest` has another structure.
    """
    first_leaves, shape = pytree.flatten(tree)
    columns = [first_leaves]
    for k, other_tree in enumerate(rest):
        flat, other_shape = pytree.flatten(other_tree)
        if mismatch := shape.first_difference(other_shape):
            path, first_node, other_node = mismatch
            raise ShapeError(
                f"dlc.tree.map: tree{path} is {first_node}, rest[{k}]{path} is {other_node}; expected the same structure"
            )
        columns.append(shape.reordered_leaves(other_shape, flat))
    return pytree.unflatten(shape, builtins.map(f, *columns))


validate_arguments(globals())

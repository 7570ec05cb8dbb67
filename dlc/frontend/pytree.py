"""Pytrees: nested tuples, lists, dicts and dataclasses of leaves, as arguments and results."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from dlc.arrays import Array
from dlc.errors import DTypeError
from dlc.frontend.complex_numbers import Complex, from_parts, is_complex, real_and_imaginary


class Tree(NamedTuple):
    """The structure of a pytree without its leaves; equal structures compare and hash equal.

    `kind` is the class of the container, or None for a leaf; `keys` are the keys of a dict or the field names of a dataclass. A
    NamedTuple, because one is built for the arguments of every call.
    """

    kind: type[Any] | None
    keys: tuple[Hashable, ...] = ()
    children: tuple[Tree, ...] = ()

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the path of each leaf, in order: `params['w']`, `x[0]`, `state.mean`."""
        if self.kind is None:
            yield prefix
        for key, child in zip(self.keys, self.children, strict=True):
            yield from child.paths(prefix + self._step(key))

    def _step(self, key: Hashable) -> str:
        return f".{key}" if dataclasses.is_dataclass(self.kind) else f"[{key!r}]"

    def __str__(self) -> str:
        if self.kind is None:
            return "an array or number"
        if self.kind is type(None):
            return "None"
        if issubclass(self.kind, tuple | list):
            return f"a {self.kind.__name__} of {len(self.keys)}"
        keys = ", ".join(map(str, self.keys) if dataclasses.is_dataclass(self.kind) else map(repr, self.keys))
        return f"a {self.kind.__name__} of {keys or 'nothing'}"

    def first_difference(self, other: Tree) -> tuple[str, Tree, Tree] | None:
        """Return the path to the first subtree with a different structure, and both subtrees; dicts match by key."""
        if self.kind is not other.kind or set(self.keys) != set(other.keys):
            return "", self, other
        others = dict(zip(other.keys, other.children, strict=True))
        for key, child in zip(self.keys, self.children, strict=True):
            if difference := child.first_difference(others[key]):
                return self._step(key) + difference[0], *difference[1:]
        return None

    def with_sorted_keys(self) -> Tree:
        """Return the tree with the entries of dicts sorted by key."""
        children = [child.with_sorted_keys() for child in self.children]
        entries = list(zip(self.keys, children, strict=True))
        if self.kind is not None and issubclass(self.kind, dict):
            # Sort by type first, then integers and strings by value, and other keys, which may not be comparable, by repr.
            entries.sort(key=lambda e: (type(e[0]).__name__, e[0] if isinstance(e[0], int | str) else repr(e[0])))
        return Tree(self.kind, tuple([k for k, _ in entries]), tuple([c for _, c in entries]))

    def reordered_leaves(self, other: Tree, leaves: Sequence[Any]) -> list[Any]:
        """Return the leaves of another tree, which differs only in the order of dict keys, in the order of this tree."""
        if self == other:
            return list(leaves)
        by_path = dict(zip(other.paths(""), leaves, strict=True))
        return [by_path[path] for path in self.paths("")]


# Types whose instances are leaves without further checks.
ARRAY_TYPES = (np.ndarray, Array)
_LEAF = Tree(None)
_NONE = Tree(type(None))
_NO_ENTRIES = Tree(dict)
# A complex array has two leaves.
_COMPLEX = Tree(Complex, ("real", "imag"), (_LEAF, _LEAF))


def flatten(value: object) -> tuple[list[Any], Tree]:
    """Return the leaves of a pytree, in order, and its structure. None is a tree without leaves.

    Raises DTypeError for a container that contains itself.
    """
    leaves: list[Any] = []
    try:
        return leaves, _flatten(value, leaves)
    except RecursionError:
        kind = type(value).__name__
        raise DTypeError(f"a {kind} that contains itself is not a tree of arrays") from None


@lru_cache
def tree_of_positional_arrays(count: int) -> Tree:
    """Return the structure of (args, kwargs) for a call with `count` positional arrays only."""
    return Tree(tuple, (0, 1), (Tree(tuple, _indices(count), (_LEAF,) * count), _NO_ENTRIES))


def _flatten(value: Any, leaves: list[Any]) -> Tree:
    kind = cast("type[Any]", type(value))
    if kind in ARRAY_TYPES:
        if value.dtype.kind == "c":
            leaves += real_and_imaginary(value)
            return _COMPLEX
        leaves.append(value)
        return _LEAF
    if value is None:
        return _NONE
    keys: tuple[Hashable, ...]
    values: list[Any]
    if isinstance(value, (tuple, list)):
        values = list(cast("list[Any]", value))
        keys = _indices(len(values))
    elif isinstance(value, dict):
        entries = cast("dict[Hashable, Any]", value)
        if kind is dict and not entries:
            return _NO_ENTRIES
        keys, values = tuple(entries), list(entries.values())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        keys = tuple([f.name for f in dataclasses.fields(value)])
        values = [getattr(value, str(k)) for k in keys]
    elif is_complex(value):
        leaves += real_and_imaginary(value)
        return _COMPLEX
    else:
        leaves.append(value)
        return _LEAF
    return Tree(kind, keys, tuple([_flatten(v, leaves) for v in values]))


@lru_cache
def _indices(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    """Build the pytree with this structure and these leaves."""
    if tree.kind is None:
        return next(leaves)
    if tree.kind is type(None):
        return None
    children = [unflatten(child, leaves) for child in tree.children]
    if tree.kind is Complex:
        return from_parts(*children)
    make: Callable[..., Any] = tree.kind
    if issubclass(tree.kind, dict):
        # Item by item: the constructor of a subclass may not accept pairs, as with Counter.
        entries: Any = cast(Any, dict).__new__(make)
        for key, child in zip(tree.keys, children, strict=True):
            entries[key] = child
        return entries
    if issubclass(tree.kind, tuple | list):
        is_named_tuple = "_fields" in vars(cast(Any, tree.kind))
        return make(*children) if is_named_tuple else make(children)
    # A dataclass: set the fields that __init__ does not accept directly.
    fields = {f.name: f for f in dataclasses.fields(cast(Any, make))}
    field_values = dict(zip(cast("tuple[str, ...]", tree.keys), children, strict=True))
    result = make(**{k: v for k, v in field_values.items() if fields[k].init})
    for key, child in field_values.items():
        if not fields[key].init:
            object.__setattr__(result, key, child)
    return result


def argument_names(function: Callable[..., Any], tree: Tree) -> list[str]:
    """Return the name of each leaf of the (args, kwargs) tree of a call."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        # Some functions in C have no signature.
        parameters = []
    positional, keyword = tree.children
    names: list[str] = []
    for i, child in enumerate(positional.children):
        is_variadic = i >= len(parameters) or parameters[i].kind is inspect.Parameter.VAR_POSITIONAL
        names += child.paths(f"arg{i}" if is_variadic else parameters[i].name)
    for key, child in zip(keyword.keys, keyword.children, strict=True):
        names += child.paths(str(key))
    return names


def is_array_like(leaf: object) -> bool:
    """Return whether a leaf is an array or a number."""
    return hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__") or isinstance(leaf, bool | int | float)


def require_array_like(leaf: object, name: str) -> None:
    """Raise DTypeError, naming the argument, for a leaf that is neither an array nor a number."""
    if not is_array_like(leaf):
        hint = "pass other values as static arguments, which static_argnames lists"
        if isinstance(leaf, Future):
            hint = "pass its .result(), or call .submit, which waits for futures"
        raise DTypeError(f"argument {name}: expected an array or a number, got {type(cast(object, leaf)).__name__}; {hint}")

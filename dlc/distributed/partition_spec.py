"""Partition specs: the mesh axes over which the axes of an array are split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from dlc.dialects.dl.distributed.sharding import PartialSpec, format_spec
from dlc.errors import DTypeError
from dlc.frontend.pytree import Tree, flatten


class _Unconstrained:
    """The type of `P.UNCONSTRAINED`."""

    def __repr__(self) -> str:
        return "P.UNCONSTRAINED"


class P:
    """The mesh axes over which each axis of an array is split: `P("data", None)`.

    An entry is the name of a mesh axis, a tuple of names with the outermost first, None for a replicated axis, or
    `P.UNCONSTRAINED` to leave the axis to propagation. Entries that are omitted at the end mean replicated axes in
    `in_shardings` and `out_shardings`, and unconstrained ones in `dlc.shard`.
    """

    UNCONSTRAINED: ClassVar[_Unconstrained] = _Unconstrained()

    def __init__(self, *axes: str | Sequence[str] | _Unconstrained | None) -> None:
        """Raises DTypeError for an entry of another type."""
        self.axes: tuple[tuple[str, ...] | None, ...] = tuple(map(_entry, axes))

    def padded(self, rank: int, fill: tuple[str, ...] | None) -> PartialSpec:
        """Return the spec with an entry `fill` for each omitted axis of an array of `rank`."""
        return (*self.axes, *(fill,) * (rank - len(self.axes)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, P) and self.axes == other.axes

    def __hash__(self) -> int:
        return hash(self.axes)

    def __repr__(self) -> str:
        return f"P{format_spec(self.axes)}"


def _entry(entry: object) -> tuple[str, ...] | None:
    match entry:
        case _Unconstrained():
            return None
        case None:
            return ()
        case str():
            return (entry,)
        case tuple() | list() if all(isinstance(name, str) for name in cast("Sequence[object]", entry)):
            return tuple(cast("Sequence[str]", entry))
        case _:
            raise DTypeError(f"dlc.P: {entry!r}; expected the name of a mesh axis, a tuple of names, None or P.UNCONSTRAINED")


def specs_of_leaves(prefix: Any, tree: Tree, name: str) -> list[P | None]:
    """Return the spec of each leaf of a tree: a `P` or None in `prefix` applies to all leaves below it.

    Raises DTypeError, which begins with `name`, for a prefix of another structure.
    """
    if prefix is None or isinstance(prefix, P):
        return [prefix] * sum(1 for _ in tree.paths(""))
    children, structure = _children(prefix)
    if tree.kind is None or set(structure.keys) != set(tree.keys):
        raise DTypeError(f"{name} is {structure}, but annotates {tree}; expected the same structure, a P or None")
    by_key = dict(zip(structure.keys, children, strict=True))
    return [
        spec
        for key, child in zip(tree.keys, tree.children, strict=True)
        for spec in specs_of_leaves(by_key[key], child, f"{name}[{key!r}]")
    ]


def _children(container: Any) -> tuple[list[Any], Tree]:
    """Return the direct children of a container, and its structure."""
    match container:
        case dict():
            entries = cast("dict[Any, Any]", container)
            return list(entries.values()), Tree(type(entries), tuple(entries), ())
        case tuple() | list():
            elements = cast("Sequence[Any]", container)
            return list(elements), Tree(type(elements), tuple(range(len(elements))), ())
        case _:
            leaves, structure = flatten(container)
            if structure.kind is None:
                raise DTypeError(f"{container!r} in in_shardings or out_shardings; expected P, None, or a container of them")
            return leaves, structure


def spec_trees(shardings: Any, parameters: Sequence[str], position_count: int) -> Callable[[int, str | None], Any]:
    """Return the function that maps an argument, by its position and its name, to its tree of specs.

    `shardings` is one tree for all arguments, or a tuple with one per parameter; for a function with `*args`, one for each of
    `position_count` positional arguments. Raises DTypeError for a tuple of another length, and for another type.
    """
    if shardings is None or isinstance(shardings, P):
        return lambda position, name: shardings
    if not isinstance(shardings, tuple | list):
        raise DTypeError(
            f"in_shardings = {shardings!r}; expected a P, None, or a tuple, one entry per parameter: {', '.join(parameters)}"
        )
    by_position = tuple(cast("Sequence[Any]", shardings))
    if len(by_position) not in (len(parameters), position_count):
        raise DTypeError(
            f"in_shardings has {len(by_position)} entries; expected one for each parameter: {', '.join(parameters) or 'none'}"
        )

    def of(position: int, name: str | None) -> Any:
        index = parameters.index(name) if name in parameters else position
        return by_position[index] if index < len(by_position) else None

    return of

"""Batches of functions: what is written for one example, computed for many."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from dlc.calculus.call import traced
from dlc.calculus.function import Leaves, require_trace
from dlc.dialects import dl
from dlc.dialects.dl.programs.transformations import NOT_BATCHED, without_lanes
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.pytree import Tree, argument_names, flatten, is_array_like, unflatten
from dlc.frontend.trace import Trace, Tracer, at_user_line, is_number
from dlc.ir import Block
from dlc.lax.bodies import close, discard_on_error
from dlc.misuse import applied

# An axis; None for what is the same in all lanes; or a container that says it of its parts.
LaneAxes: TypeAlias = Any
_WHERE = "dlc.vmap"


def vmap(fun: Callable[..., Any], in_axes: LaneAxes = 0, out_axes: LaneAxes = 0) -> Callable[..., Any]:
    """A function that computes `fun` for many lanes at once: what `fun` makes of each, as one array.

    `in_axes` says along which axis the lanes of an argument lie: a number or None, which leaves it as it is in every lane, for
    all of them, or a tuple with an entry for each positional argument. An entry is a number or None for all arrays of the
    argument, or a container like the argument with an entry for each part of it. Keyword arguments have their lanes along axis
    0. `out_axes` says the same of what `fun` returns; None asks for a result that is the same in all lanes. Negative numbers
    count from the end.

    `fun` sees arrays without the lanes' axis, and whatever it reads besides is the same in all lanes. Branches on data that
    differs between lanes are computed both ways, loops run until the last lane is done. Random keys are arrays like others:
    `dlc.vmap(f)(dlc.random.split(key, n))` gives each lane its own.

    Raises ShapeError where numbers of lanes differ or there are none, for an axis that is none of the array, and for
    `in_axes` or `out_axes` of another structure; DTypeError for an argument with lanes that is no array.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        trace, given = require_trace(), _Arguments.of(fun, args, kwargs, in_axes)
        size = given.lanes()
        block = Block(arg_types=[without_lanes(v.value, axis) for v, axis in given.batched])
        with discard_on_error([block]), trace.inside(block):
            args, kwargs = given.of_one_lane(trace, block)
            results = Leaves.of(_WHERE, "result", applied(fun, *args, **kwargs))
            places = _out_axes(results, out_axes)
            close(trace, block, results.values)
        operands, axes = [v.value for v, _ in given.batched], [axis for _, axis in given.batched]
        made = trace.insert(dl.VmapOp.of(operands, block, size, axes, places))
        return results.like([Tracer(r.owner, r.value, of.weak) for r, of in zip(made, results.values, strict=True)])

    return traced(call, fun, "lanes")


@dataclasses.dataclass(frozen=True)
class _Arguments:
    """The leaves of a call's arguments; `axes` has None for those that are the same in all lanes."""

    leaves: list[Any]
    tree: Tree
    names: list[str]
    axes: list[int | None]

    @classmethod
    def of(cls, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: LaneAxes) -> _Arguments:
        if isinstance(in_axes, tuple | list) and len(cast("Sequence[LaneAxes]", in_axes)) != len(args):
            count = len(cast("Sequence[LaneAxes]", in_axes))
            raise _error(ShapeError, f"in_axes has {count} entries for {len(args)} positional arguments; expected one each")
        leaves, tree = flatten((args, kwargs))
        names = argument_names(fun, tree)
        positional, keyword = tree.children
        axes = [*_per_leaf("in_axes", in_axes, positional), *_per_leaf("in_axes", 0, keyword)]
        batched = [_batched(leaf, name, axis) for leaf, name, axis in zip(leaves, names, axes, strict=True)]
        return cls([leaf for leaf, _ in batched], tree, names, [axis for _, axis in batched])

    @property
    def batched(self) -> list[tuple[Tracer, int]]:
        """The arrays that have lanes, and their axis."""
        return [(leaf, axis) for leaf, axis in zip(self.leaves, self.axes, strict=True) if axis is not None]

    def lanes(self) -> int:
        """How many lanes there are; raises ShapeError where arguments differ or none has any."""
        said = {
            name: (leaf.shape[axis], axis)
            for name, leaf, axis in zip(self.names, self.leaves, self.axes, strict=True)
            if axis is not None
        }
        if not said:
            raise _error(ShapeError, "no argument has lanes; give one of them an axis in in_axes")
        if len({size for size, _ in said.values()}) > 1:
            found = ", ".join(f"{name}: {size} along axis {axis}" for name, (size, axis) in said.items())
            raise _error(ShapeError, f"the numbers of lanes differ ({found}); in_axes says which axes are lanes")
        ((size, _), *_) = said.values()
        if not isinstance(size, int):
            raise _error(ShapeError, f"the number of lanes, {size}, is open; leave it out of jit's dynamic")
        return size

    def of_one_lane(self, trace: Trace, block: Block) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call in the body of one lane."""
        own = iter(block.args)
        return unflatten(
            self.tree,
            iter(
                [leaf if axis is None else Tracer(trace, next(own)) for leaf, axis in zip(self.leaves, self.axes, strict=True)]
            ),
        )


def _batched(leaf: Any, name: str, axis: int | None) -> tuple[Any, int | None]:
    """A leaf with lanes as a value of the trace, and their axis counted from the front; raises where it has none."""
    if axis is None:
        return leaf, None
    if not is_array_like(leaf) or is_number(leaf):
        got = type(leaf).__name__
        raise _error(DTypeError, f"{name} is a {got}, which has no lanes; None in in_axes leaves it as it is")
    value = require_trace().value(leaf)
    if not -value.ndim <= axis < value.ndim:
        raise _error(
            ShapeError, f"{name} has the shape {value.shape} and no axis {axis} for lanes; in_axes says where they lie"
        )
    return value, axis % value.ndim


def _out_axes(results: Leaves, out_axes: LaneAxes) -> list[int]:
    """Where the lanes of each result go."""
    places: list[int] = []
    for value, name, axis in zip(results.values, results.names, _per_leaf("out_axes", out_axes, results.tree), strict=True):
        rank = value.ndim + 1
        if axis is not None and not -rank <= axis < rank:
            raise _error(ShapeError, f"{name} has {rank} axes with its lanes, out_axes {axis} is none of them")
        places.append(NOT_BATCHED if axis is None else axis % rank)
    return places


def _per_leaf(what: str, axes: LaneAxes, tree: Tree) -> list[int | None]:
    """An axis for each leaf of a tree; raises ShapeError where the axes have another structure."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes for _ in tree.paths("")]
    parts = _parts(axes, tree)
    if parts is None:
        expected = "a number, None" + ("" if tree.kind is None else " or a container like it")
        raise _error(ShapeError, f"{what} has {axes!r} for {tree}; expected {expected}")
    return [axis for part, child in zip(parts, tree.children, strict=True) for axis in _per_leaf(what, part, child)]


def _parts(axes: LaneAxes, tree: Tree) -> list[LaneAxes] | None:
    """The entries of a container of axes in the order of a tree's children; None if it is of another structure."""
    if dataclasses.is_dataclass(axes) and type(axes) is tree.kind:
        return [getattr(axes, str(key)) for key in tree.keys]
    if isinstance(axes, dict) and tree.kind is not None and issubclass(tree.kind, dict):
        entries = cast("dict[Any, LaneAxes]", axes)
        return [entries[key] for key in tree.keys] if set(entries) == set(tree.keys) else None
    if isinstance(axes, tuple | list) and tree.kind is not None and issubclass(tree.kind, tuple | list):
        entries = cast("Sequence[LaneAxes]", axes)
        return list(entries) if len(entries) == len(tree.children) else None
    return None


def _error(kind: type[DlcError], problem: str) -> DlcError:
    return at_user_line(kind(f"{_WHERE}: {problem}"))

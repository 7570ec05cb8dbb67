"""Vectorization: `dlc.vmap` maps a function over a batch axis of its arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from dlc.argument_validation.validate import call_user_function
from dlc.calculus.transformed_calls import trace_or_compile
from dlc.dialects import dl
from dlc.dialects.dl.programs.transformations import NOT_BATCHED, remove_batch_axis
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.pytree import Tree, argument_names, flatten, is_array_like, unflatten
from dlc.frontend.trace import Trace, Tracer, is_python_scalar, with_user_line
from dlc.ir import Block
from dlc.shapes.dims import Size
from dlc.shapes.traced_dims import untraced
from dlc.traced_functions.bodies import discard_on_error, terminate_body
from dlc.traced_functions.leaf_functions import NamedLeaves, require_trace

# The batch axis of an argument; None for an unbatched argument; or a container with an entry for each child.
BatchAxes: TypeAlias = Any
_API_NAME = "dlc.vmap"


def vmap(fun: Callable[..., Any], in_axes: BatchAxes = 0, out_axes: BatchAxes = 0) -> Callable[..., Any]:
    """Return a function that maps `fun` over a batch axis of its arguments and stacks the results.

    `in_axes` gives the batch axis of the arguments: an integer, or None for unbatched, for all positional arguments, or a tuple
    with an entry for each. An entry is an integer or None for all arrays of the argument, or a container like the argument with
    an entry for each child. Keyword arguments are batched along axis 0. `out_axes` gives the batch axis of the results in the
    same way; None requires a result that does not depend on batched values. Negative axes count from the end.

    `fun` sees arrays without the batch axis; values that it closes over are unbatched. A branch on a batched predicate computes
    both sides, and a loop runs until the last example has finished. Random keys are arrays like others:
    `dlc.vmap(f)(dlc.random.split(key, n))` gives each example its own key.

    Raises ShapeError if the batch axes have different sizes, if no argument is batched, if an array lacks the axis, or if
    `in_axes` or `out_axes` have another structure. Raises DTypeError for a batched argument that is not an array.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        trace, arguments = require_trace(), _Arguments.of(fun, args, kwargs, in_axes)
        size = arguments.batch_size()
        block = Block(arg_types=[remove_batch_axis(v.value, axis) for v, axis in arguments.batched])
        with discard_on_error([block]), trace.in_body(block):
            args, kwargs = arguments.unbatched(trace, block)
            results = NamedLeaves.of(_API_NAME, "result", call_user_function(fun, *args, **kwargs))
            result_axes = _out_axes(results, out_axes)
            terminate_body(trace, block, results.values)
        operands, axes = [v.value for v, _ in arguments.batched], [axis for _, axis in arguments.batched]
        vmap_results = trace.insert(dl.VmapOp.of(operands, block, size, axes, result_axes))
        return results.with_leaves(
            [Tracer(r.owner, r.value, leaf.weak) for r, leaf in zip(vmap_results, results.values, strict=True)]
        )

    return trace_or_compile(call, fun, "vmap")


@dataclasses.dataclass(frozen=True)
class _Arguments:
    """The leaves of a call's arguments, and the batch axis of each; None for unbatched leaves."""

    leaves: list[Any]
    tree: Tree
    names: list[str]
    axes: list[int | None]

    @classmethod
    def of(cls, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: BatchAxes) -> _Arguments:
        if isinstance(in_axes, tuple | list) and len(cast("Sequence[BatchAxes]", in_axes)) != len(args):
            count = len(cast("Sequence[BatchAxes]", in_axes))
            raise _error(ShapeError, f"in_axes has {count} entries for {len(args)} positional arguments; expected one each")
        leaves, tree = flatten((args, kwargs))
        names = argument_names(fun, tree)
        positional, keyword = tree.children
        axes = [*_per_leaf("in_axes", in_axes, positional), *_per_leaf("in_axes", 0, keyword)]
        batched = [_as_batched(leaf, name, axis) for leaf, name, axis in zip(leaves, names, axes, strict=True)]
        return cls([leaf for leaf, _ in batched], tree, names, [axis for _, axis in batched])

    @property
    def batched(self) -> list[tuple[Tracer, int]]:
        """Return the batched arrays and their batch axes."""
        return [(leaf, axis) for leaf, axis in zip(self.leaves, self.axes, strict=True) if axis is not None]

    def batch_size(self) -> Size:
        """Return the size of the batch axes. Raises ShapeError if arguments differ or none is batched."""
        sizes = {
            name: (untraced(leaf.shape[axis]), axis)
            for name, leaf, axis in zip(self.names, self.leaves, self.axes, strict=True)
            if axis is not None
        }
        if not sizes:
            raise _error(ShapeError, "no argument is batched; in_axes must give at least one of them an axis")
        if len({size for size, _ in sizes.values()}) > 1:
            sizes_text = ", ".join(f"{name}: {size} along axis {axis}" for name, (size, axis) in sizes.items())
            raise _error(ShapeError, f"the sizes of the batch axes differ ({sizes_text}); in_axes gives the batch axes")
        ((size, _), *_) = sizes.values()
        return size

    def unbatched(self, trace: Trace, block: Block) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call in the body, which computes one example."""
        body_arguments = iter(block.args)
        return unflatten(
            self.tree,
            iter(
                [
                    leaf if axis is None else Tracer(trace, next(body_arguments))
                    for leaf, axis in zip(self.leaves, self.axes, strict=True)
                ]
            ),
        )


def _as_batched(leaf: Any, name: str, axis: int | None) -> tuple[Any, int | None]:
    """Return a batched leaf as a Tracer with its non-negative batch axis. Raises an error if it does not have the axis."""
    if axis is None:
        return leaf, None
    if not is_array_like(leaf) or is_python_scalar(leaf):
        got = type(leaf).__name__
        raise _error(DTypeError, f"{name} is a {got}, which has no batch axis; use None in in_axes")
    value = require_trace().value(leaf)
    if not -value.ndim <= axis < value.ndim:
        raise _error(ShapeError, f"{name} has shape {value.shape} and no axis {axis}; in_axes gives the batch axis")
    return value, axis % value.ndim


def _out_axes(results: NamedLeaves, out_axes: BatchAxes) -> list[int]:
    """Return the batch axis of each result."""
    normalized: list[int] = []
    for value, name, axis in zip(results.values, results.names, _per_leaf("out_axes", out_axes, results.tree), strict=True):
        rank = value.ndim + 1
        if axis is not None and not -rank <= axis < rank:
            raise _error(ShapeError, f"out_axes {axis} for {name}, which has {rank} axes including the batch axis")
        normalized.append(NOT_BATCHED if axis is None else axis % rank)
    return normalized


def _per_leaf(parameter: str, axes: BatchAxes, tree: Tree) -> list[int | None]:
    """Return an axis for each leaf of a tree. Raises ShapeError if `axes` has another structure."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes for _ in tree.paths("")]
    child_axes = _child_axes(axes, tree)
    if child_axes is None:
        expected = "an integer, None" + ("" if tree.kind is None else " or a container of the same structure")
        raise _error(ShapeError, f"{parameter} has {axes!r} for {tree}; expected {expected}")
    return [
        axis
        for child_axis, child in zip(child_axes, tree.children, strict=True)
        for axis in _per_leaf(parameter, child_axis, child)
    ]


def _child_axes(axes: BatchAxes, tree: Tree) -> list[BatchAxes] | None:
    """Return the entries of a container of axes in the order of a tree's children; None if the structure differs."""
    if dataclasses.is_dataclass(axes) and type(axes) is tree.kind:
        return [getattr(axes, str(key)) for key in tree.keys]
    if isinstance(axes, dict) and tree.kind is not None and issubclass(tree.kind, dict):
        entries = cast("dict[Any, BatchAxes]", axes)
        return [entries[key] for key in tree.keys] if set(entries) == set(tree.keys) else None
    if isinstance(axes, tuple | list) and tree.kind is not None and issubclass(tree.kind, tuple | list):
        entries = cast("Sequence[BatchAxes]", axes)
        return list(entries) if len(entries) == len(tree.children) else None
    return None


def _error(error_type: type[DlcError], problem: str) -> DlcError:
    return with_user_line(error_type(f"{_API_NAME}: {problem}"))

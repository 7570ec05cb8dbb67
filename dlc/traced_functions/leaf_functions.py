"""Functions of the leaves of a pytree, traced into bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, tensor_of
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.pytree import Tree, flatten, is_array_like, unflatten
from dlc.frontend.trace import Trace, Tracer, current_trace, is_python_scalar, with_user_line
from dlc.ir import Block, SSAValue
from dlc.numpy.apply import convert
from dlc.traced_functions.bodies import discard_on_error, terminate_body


@dataclass(frozen=True)
class NamedLeaves:
    """The leaves of a pytree as Tracers, and the path of each as its name."""

    values: list[Tracer]
    tree: Tree
    names: list[str]

    @classmethod
    def of(cls, api_name: str, name: str, tree: object) -> NamedLeaves:
        """Flatten a pytree. Raises DTypeError for a leaf that is neither an array nor a number."""
        trace = require_trace()
        leaves, structure = flatten(tree)
        names = list(structure.paths(name))
        for leaf, path in zip(leaves, names, strict=True):
            if not is_array_like(leaf):
                got = type(leaf).__name__
                raise with_user_line(
                    DTypeError(f"{api_name}: {path} is a {got}; expected arrays, numbers and containers of them")
                )
        values = [Tracer(trace, trace.value(leaf).value, _is_weak(leaf)) for leaf in leaves]
        return cls(values, structure, names)

    def require_floats(self, api_name: str, derivative: str, alternative: str = "leave it out of argnums") -> None:
        """Raise DTypeError for a leaf that is not a float; the message suggests `alternative`."""
        for value, name in zip(self.values, self.names, strict=True):
            if not is_float(element_type_of(value.value)):
                hint = f"convert it with .astype, or {alternative}"
                raise with_user_line(
                    DTypeError(f"{api_name}: {name} has dtype {value.dtype}, which has no {derivative}; {hint}")
                )

    def match_leaves(self, api_name: str, name: str, pytree: object) -> list[Tracer]:
        """Return the leaves of a pytree, which must have the same structure as this one, in this pytree's order.

        Entries of dicts may be in another order; numbers take the dtypes of this pytree. Raises ShapeError or DTypeError,
        naming the leaf, for a difference.
        """
        other = NamedLeaves.of(api_name, name, pytree)
        if difference := self.tree.first_difference(other.tree):
            path, expected_structure, actual = difference
            raise with_user_line(ShapeError(f"{api_name}: {name}{path} is {actual}; expected {expected_structure}"))
        values = self.tree.reordered_leaves(other.tree, other.values)
        for value, expected, path in zip(values, self.values, self.tree.paths(name), strict=True):
            if value.shape != expected.shape:
                raise with_user_line(ShapeError(f"{api_name}: {path} has shape {value.shape}; expected {expected.shape}"))
            if value.dtype != expected.dtype and not value.weak:
                problem = f"{api_name}: {path} has dtype {value.dtype}; expected {expected.dtype}: convert it with .astype"
                raise with_user_line(DTypeError(problem))
        trace = require_trace()
        return [trace.value(convert(v, e.dtype)) for v, e in zip(values, self.values, strict=True)]

    def with_leaves(self, arrays: Sequence[Any]) -> Any:
        """Return a pytree of this structure with other leaves."""
        return unflatten(self.tree, iter(arrays))


def _is_weak(leaf: object) -> bool:
    return leaf.weak if isinstance(leaf, Tracer) else is_python_scalar(leaf)


def require_trace() -> Trace:
    """Return the current trace. The callers only run during tracing."""
    trace = current_trace()
    assert trace is not None
    return trace


def ssa_values(tracers: Sequence[Tracer]) -> list[SSAValue]:
    """Return the SSA values of Tracers."""
    return [t.value for t in tracers]


def insert_with_weak_types(op: dl.JvpOp | dl.VjpOp, like: Sequence[Tracer]) -> list[Tracer]:
    """Insert an op and return its results, weakly typed where those of `like` are."""
    results = require_trace().insert(op)
    return [Tracer(r.owner, r.value, template.weak) for r, template in zip(results, like, strict=True)]


def trace_differentiated_body(api_name: str, function: Callable[..., Any], arguments: NamedLeaves) -> tuple[Block, NamedLeaves]:
    """Trace a body that is differentiated once more than the code around it."""
    return trace_body(api_name, function, arguments, require_trace().derivative_orders + 1)


def trace_body(
    api_name: str, function: Callable[..., Any], arguments: NamedLeaves, orders: int | None = None, binds_arguments: bool = True
) -> tuple[Block, NamedLeaves]:
    """Trace `function(*leaves)` into a body with arguments like these, and return the body and its results.

    Args:
        orders: How many times the body may be differentiated; None for as often as the code around it.
        binds_arguments: Whether the body is evaluated at these arguments, not at others of the same types.
    """
    trace = require_trace()
    block = Block(arg_types=[tensor_of(v.value) for v in arguments.values])
    if binds_arguments:
        trace.bind(block, arguments.values)
    block_tracers = [Tracer(trace, a, v.weak) for a, v in zip(block.args, arguments.values, strict=True)]
    with discard_on_error([block]), trace.in_body(block, orders):
        results = NamedLeaves.of(api_name, "result", function(*block_tracers))
        terminate_body(trace, block, results.values)
    return block, results


def require_tuple(api_name: str, source: str, value: object, count: int, expected: str) -> tuple[Any, ...]:
    """Return the entries of a tuple of `count` entries that a user's function returned. Raises DTypeError for anything else."""
    items = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else None
    if items is None or len(items) != count:
        got = f"a {type(cast(object, value)).__name__}" if items is None else f"a tuple of {len(items)}"
        raise with_user_line(DTypeError(f"{api_name}: {source} returned {got}; expected {expected}"))
    return items

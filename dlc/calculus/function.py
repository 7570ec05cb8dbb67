"""A function of some leaves of its arguments, traced into a body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.dialects.dl.base import element_type_of, tensor_of
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import DTypeError
from dlc.frontend.pytree import Tree, flatten, is_array_like, unflatten
from dlc.frontend.trace import Trace, Tracer, at_user_line, current_trace, is_number
from dlc.ir import Block
from dlc.lax.bodies import close, discard_on_error


@dataclass(frozen=True)
class Leaves:
    """Arrays of a tree, as values of the trace; `names` say where each is."""

    values: list[Tracer]
    tree: Tree
    names: list[str]

    @classmethod
    def of(cls, where: str, name: str, tree: object) -> Leaves:
        """The leaves of a tree; raises DTypeError for one that is neither an array nor a number."""
        trace = require_trace()
        leaves, shape = flatten(tree)
        names = list(shape.paths(name))
        for leaf, path in zip(leaves, names, strict=True):
            if not is_array_like(leaf):
                got = type(leaf).__name__
                raise at_user_line(DTypeError(f"{where}: {path} is a {got}; expected arrays, numbers and containers of them"))
        values = [Tracer(trace, trace.value(leaf).value, _is_weak(leaf)) for leaf in leaves]
        return cls(values, shape, names)

    def require_floats(self, where: str, what: str) -> None:
        """Raises DTypeError, naming it, for a leaf that is not of floats."""
        for value, name in zip(self.values, self.names, strict=True):
            if not is_float(element_type_of(value.value)):
                repair = "convert it with .astype, or leave it out of argnums"
                raise at_user_line(DTypeError(f"{where}: {name} is of {value.dtype}, which has no {what}; {repair}"))

    def like(self, arrays: Sequence[Any]) -> Any:
        """A tree of this shape with other leaves."""
        return unflatten(self.tree, iter(arrays))


def _is_weak(leaf: object) -> bool:
    return leaf.weak if isinstance(leaf, Tracer) else is_number(leaf)


def require_trace() -> Trace:
    """The trace that is going on; functions here are called only while there is one."""
    trace = current_trace()
    assert trace is not None
    return trace


def body_of(where: str, function: Callable[..., Any], arguments: Leaves) -> tuple[Block, Leaves]:
    """The body that `function(*leaves)` is, for leaves like these arguments, and its results, as values of the body."""
    trace = require_trace()
    block = Block(arg_types=[tensor_of(v.value) for v in arguments.values])
    inside = [Tracer(trace, a, v.weak) for a, v in zip(block.args, arguments.values, strict=True)]
    with discard_on_error([block]), trace.inside(block):
        results = Leaves.of(where, "result", function(*inside))
        close(trace, block, results.values)
    return block, results


def parts_of(where: str, who: str, value: object, count: int, expected: str) -> tuple[Any, ...]:
    """The parts of a tuple that a function of the user's returned; raises DTypeError for anything else."""
    parts = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else None
    if parts is None or len(parts) != count:
        got = f"a {type(cast(object, value)).__name__}" if parts is None else f"a tuple of {len(parts)}"
        raise at_user_line(DTypeError(f"{where}: {who} returned {got}; expected {expected}"))
    return parts

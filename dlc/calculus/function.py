"""A function of some leaves of its arguments, traced into a body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, tensor_of
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.pytree import Tree, flatten, is_array_like, unflatten
from dlc.frontend.trace import Trace, Tracer, at_user_line, current_trace, is_number
from dlc.ir import Block, SSAValue
from dlc.lax.bodies import close, discard_on_error
from dlc.numpy.apply import convert


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

    def require_floats(self, where: str, what: str, leave_out: str = "leave it out of argnums") -> None:
        """Raises DTypeError, naming it, for a leaf that is not of floats; `leave_out` says what else may be done."""
        for value, name in zip(self.values, self.names, strict=True):
            if not is_float(element_type_of(value.value)):
                repair = f"convert it with .astype, or {leave_out}"
                raise at_user_line(DTypeError(f"{where}: {name} is of {value.dtype}, which has no {what}; {repair}"))

    def matching(self, where: str, name: str, given: object) -> list[Tracer]:
        """The leaves of a tree, called so, that is like this one, in the order of this one's.

        Entries of dicts may be in another order, numbers take the dtypes that are here. Raises ShapeError or DTypeError,
        naming the leaf, for what is different.
        """
        other = Leaves.of(where, name, given)
        if found := self.tree.difference(other.tree):
            path, there, here = found
            raise at_user_line(ShapeError(f"{where}: {name}{path} is {here}, expected {there}"))
        values = self.tree.leaves_of(other.tree, other.values)
        for value, expected, path in zip(values, self.values, self.tree.paths(name), strict=True):
            if value.shape != expected.shape:
                raise at_user_line(ShapeError(f"{where}: {path} has the shape {value.shape}, expected {expected.shape}"))
            if value.dtype != expected.dtype and not value.weak:
                problem = f"{where}: {path} is of {value.dtype}, expected {expected.dtype}; convert it with .astype"
                raise at_user_line(DTypeError(problem))
        trace = require_trace()
        return [trace.value(convert(v, e.dtype)) for v, e in zip(values, self.values, strict=True)]

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


def ssa_values(tracers: Sequence[Tracer]) -> list[SSAValue]:
    """The values of the program that these stand for."""
    return [t.value for t in tracers]


def inserted(op: dl.JvpOp | dl.VjpOp, like: Sequence[Tracer]) -> list[Tracer]:
    """The results of an op as numbers where what they stand for are."""
    results = require_trace().insert(op)
    return [Tracer(r.owner, r.value, model.weak) for r, model in zip(results, like, strict=True)]


def differentiated(where: str, function: Callable[..., Any], arguments: Leaves) -> tuple[Block, Leaves]:
    """`body_of` for a body that is differentiated once more than what is around it."""
    return body_of(where, function, arguments, require_trace().orders + 1)


def body_of(
    where: str, function: Callable[..., Any], arguments: Leaves, orders: int | None = None, computed: bool = True
) -> tuple[Block, Leaves]:
    """The body that `function(*leaves)` is, for leaves like these arguments, and its results, as values of the body.

    `orders` is how often it may be differentiated, as often as what is around it if None. `computed`: for these arguments
    themselves, not for others like them.
    """
    trace = require_trace()
    block = Block(arg_types=[tensor_of(v.value) for v in arguments.values])
    if computed:
        trace.bind(block, arguments.values)
    inside = [Tracer(trace, a, v.weak) for a, v in zip(block.args, arguments.values, strict=True)]
    with discard_on_error([block]), trace.inside(block, orders):
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

"""Bodies of loops and branches: blocks that a function is traced into, and what a loop hands from step to step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from dlc.dialects import dl
from dlc.errors import DTypeError
from dlc.frontend.pytree import unflatten
from dlc.frontend.trace import Trace, Tracer, blamed_on_user
from dlc.ir import Block
from dlc.lax.agreement import Kind, Leaves, carried
from dlc.numpy.apply import convert, refuse

# A step: the next carry and something else, from the carry and the elements of sequences.
Step = Callable[[Any, "list[Tracer]"], "tuple[Any, Any]"]
# All that a body yields, from the arrays of the next carry and what else the step made.
Finish = Callable[["list[Tracer]", Any], Sequence[Any]]


def require_functions(where: str, **functions: object) -> None:
    """Raises DTypeError, naming the parameter, for what cannot be called."""
    for name, function in functions.items():
        if not callable(function):
            refuse(DTypeError(f"{where}: {name} is of {type(function).__name__}; expected a function"))


def close(trace: Trace, body: Block, values: Sequence[Any]) -> None:
    """Ends a body, which is open, with what it yields."""
    body.add_op(dl.YieldOp([trace.value(x).value for x in values]))


@contextmanager
def discard_on_error(bodies: Sequence[Block]) -> Generator[None]:
    """Bodies that are not to be part of the program, if anything goes wrong inside, read nothing any more."""
    try:
        yield
    except BaseException:
        for body in bodies:
            body.erase(safe_erase=False)
        raise


def marked(results: Sequence[Tracer], kinds: Sequence[Kind]) -> Sequence[Tracer]:
    """The results of a loop or branch, those marked as numbers that are still such."""
    for result, kind in zip(results, kinds, strict=True):
        result.weak = kind.weak
    return results


class Loop:
    """A loop while it is traced: what it begins with, as far as the steps so far say what that is."""

    def __init__(self, trace: Trace, where: str, returned: str, name: str, init: object) -> None:
        self.trace = trace
        self.init = Leaves.of(where, name, init)
        self.kinds = self.init.kinds
        self._returned = returned

    def body(self, elements: Sequence[Kind], step: Step, finish: Finish) -> Block:
        """The body, for elements of these kinds. A step is traced again where it makes something else of a number.

        Raises ShapeError or DTypeError, naming every place, for a carry that a step changes.
        """
        while True:
            count, kinds = len(self.kinds), [*self.kinds, *elements]
            body = Block(arg_types=[kind.type for kind in kinds])
            arguments = [Tracer(self.trace, a, kind.weak) for a, kind in zip(body.args, kinds, strict=True)]
            with discard_on_error([body]), self.trace.inside(body), self.trace.key_uses.in_loop(body):
                carry, other = step(self.value(arguments[:count]), arguments[count:])
                following = Leaves.of(self.init.where, self._returned, carry).in_order_of(self.init)
                settled = carried(self.init, self.kinds, following)
                if settled == self.kinds:
                    yielded = [self.trace.value(x) for x in finish(self._converted(following), other)]
                    with blamed_on_user():
                        self.trace.counts.require_outside(self.init.where, body, [x.value for x in yielded])
                    close(self.trace, body, yielded)
                    return body
            body.erase(safe_erase=False)
            self.kinds = settled

    @property
    def first(self) -> list[Tracer]:
        """The arrays that it begins with."""
        return self._converted(self.init)

    def value(self, arrays: Sequence[Tracer]) -> Any:
        """A carry of these arrays."""
        return unflatten(self.init.tree, iter(arrays))

    def following(self, carry: object) -> Any:
        """What a step that is taken at once hands on, as the next one takes it; raises as `body` does."""
        following = Leaves.of(self.init.where, self._returned, carry).in_order_of(self.init)
        self.kinds = carried(self.init, self.kinds, following)
        return self.value(self._converted(following))

    def result(self, last: Sequence[Tracer]) -> Any:
        """The carry after the last step."""
        return self.value(marked(last, self.kinds))

    def _converted(self, carry: Leaves) -> list[Tracer]:
        arrays = [self.trace.value(convert(x, kind.dtype)) for x, kind in zip(carry.leaves, self.kinds, strict=True)]
        # What stands for a number goes on doing so, in a Tracer of its own: others may hold the one converted.
        return [Tracer(self.trace, a.value, kind.weak) for a, kind in zip(arrays, self.kinds, strict=True)]

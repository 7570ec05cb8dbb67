"""Traced bodies of loops and branches: blocks that a function is traced into, and the carry of a loop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from dlc.dialects import dl
from dlc.errors import DTypeError
from dlc.frontend.pytree import unflatten
from dlc.frontend.trace import Trace, Tracer, errors_at_user_line
from dlc.ir import Block
from dlc.numpy.apply import convert, refuse
from dlc.traced_functions.type_agreement import AbstractValue, TracedTree, carry_avals

# (carry, elements of the scanned sequences) → (next carry, other results of the step).
StepFunction = Callable[[Any, "list[Tracer]"], "tuple[Any, Any]"]
# (arrays of the next carry, other results of the step) → all values that the body yields.
YieldFunction = Callable[["list[Tracer]", Any], Sequence[Any]]


def require_functions(api_name: str, **functions: object) -> None:
    """Raise DTypeError, naming the parameter, for an argument that is not callable."""
    for name, function in functions.items():
        if not callable(function):
            refuse(DTypeError(f"{api_name}: {name} is a {type(function).__name__}; expected a function"))


def terminate_body(trace: Trace, body: Block, values: Sequence[Any]) -> None:
    """Append the `dl.yield` terminator to a body."""
    body.add_op(dl.YieldOp([trace.value(x).value for x in values]))


@contextmanager
def discard_on_error(bodies: Sequence[Block]) -> Generator[None]:
    """Erase the bodies if an exception leaves the `with` block, since they do not become part of the program."""
    try:
        yield
    except BaseException:
        for body in bodies:
            body.erase(safe_erase=False)
        raise


def with_weak_types(results: Sequence[Tracer], avals: Sequence[AbstractValue]) -> Sequence[Tracer]:
    """Mark the results of a loop or branch whose abstract values are weakly typed."""
    for result, aval in zip(results, avals, strict=True):
        result.weak = aval.weak
    return results


class TracedLoop:
    """A loop that is being traced: its initial carry, and the abstract values of the carry found so far."""

    def __init__(self, trace: Trace, api_name: str, returned: str, name: str, init: object) -> None:
        self.trace = trace
        self.init = TracedTree.of(api_name, name, init)
        self.avals = self.init.avals
        self._returned = returned

    def body(self, elements: Sequence[AbstractValue], step: StepFunction, finish: YieldFunction) -> Block:
        """Trace the body for elements of these abstract values, until the dtypes of weakly typed carries no longer change.

        Raises ShapeError or DTypeError, naming every leaf, for a carry that a step changes.
        """
        while True:
            count, avals = len(self.avals), [*self.avals, *elements]
            body = Block(arg_types=[aval.type for aval in avals])
            arguments = [Tracer(self.trace, a, aval.weak) for a, aval in zip(body.args, avals, strict=True)]
            with discard_on_error([body]), self.trace.in_body(body), self.trace.key_uses.in_loop(body):
                carry, step_output = step(self.value(arguments[:count]), arguments[count:])
                next_carry = TracedTree.of(self.init.api_name, self._returned, carry).reordered_like(self.init)
                new_avals = carry_avals(self.init, self.avals, next_carry)
                if new_avals == self.avals:
                    yielded = [self.trace.value(x) for x in finish(self._convert_carry(next_carry), step_output)]
                    with errors_at_user_line():
                        self.trace.data_dependent_sizes.require_loop_invariant_sizes(
                            self.init.api_name, body, [x.value for x in yielded]
                        )
                    terminate_body(self.trace, body, yielded)
                    return body
            body.erase(safe_erase=False)
            self.avals = new_avals

    @property
    def initial_arrays(self) -> list[Tracer]:
        """Return the arrays of the initial carry."""
        return self._convert_carry(self.init)

    def value(self, arrays: Sequence[Tracer]) -> Any:
        """Return the carry as a pytree of these arrays."""
        return unflatten(self.init.tree, iter(arrays))

    def next_carry(self, carry: object) -> Any:
        """Return the carry after a step that is executed while tracing, with its dtypes settled. Raises what `body` raises."""
        next_carry = TracedTree.of(self.init.api_name, self._returned, carry).reordered_like(self.init)
        self.avals = carry_avals(self.init, self.avals, next_carry)
        return self.value(self._convert_carry(next_carry))

    def result(self, last: Sequence[Tracer]) -> Any:
        """Return the carry after the last step."""
        return self.value(with_weak_types(last, self.avals))

    def _convert_carry(self, carry: TracedTree) -> list[Tracer]:
        arrays = [self.trace.value(convert(x, aval.dtype)) for x, aval in zip(carry.leaves, self.avals, strict=True)]
        # Weakly typed values stay so, in a new Tracer: other code may hold the converted one.
        return [Tracer(self.trace, a.value, aval.weak) for a, aval in zip(arrays, self.avals, strict=True)]

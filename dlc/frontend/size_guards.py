"""Evaluate comparisons of symbolic sizes while a function is traced or a model imported: `if x.shape[0] > 4`.

The declared ranges of the sizes decide a comparison where they can. Where they cannot, a trace may use the sizes of a concrete
call: the outcome for these is recorded as a guard, which other calls must satisfy to reuse the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType

from dlc.shapes.dims import Dim, Relation, size_decisions
from dlc.shapes.guards import Guard, SizeBounds
from dlc.shapes.ranges import SizeRange

# The node that is being imported, for messages.
imported_node: ContextVar[str] = ContextVar("imported_node", default="")
# The values of data-dependent sizes, by symbol, for which a model is imported: the program checks them when it runs.
data_dependent_size_values: ContextVar[Mapping[str, int]] = ContextVar(
    "data_dependent_size_values", default=MappingProxyType({})
)


class SizeGuards:
    """Decide comparisons by the `ranges` of sizes, else by the `sizes` of a call, recording `guards`.

    `locate` returns the origin of a guard: the node or the line that compares.
    """

    def __init__(
        self,
        ranges: Mapping[str, SizeRange],
        sizes: Mapping[str, int] | None = None,
        locate: Callable[[], str] = imported_node.get,
    ) -> None:
        self._bounds = SizeBounds(ranges)
        self._sizes, self._locate = sizes, locate
        self._guards: dict[Guard, None] = {}

    @property
    def guards(self) -> tuple[Guard, ...]:
        return tuple(self._guards)

    def decide(self, size: Dim, relation: Relation) -> bool | None:
        """Return whether a size has this relation to 0, >= or ==; record that, or its negation, if it depends on the call.

        None if it cannot be decided.
        """
        guard = Guard(size, relation)
        decided = self._bounds.decide(guard)
        if decided is not None or self._sizes is None or not size.symbols() <= self._sizes.keys():
            return decided
        holds = guard.holds(self._sizes)
        negation = Guard(Dim.lift(-size - 1), ">=") if relation == ">=" else Guard(size, "!=")
        self._guards.setdefault(replace(guard if holds else negation, origin=self._locate()))
        return holds


@contextmanager
def deciding_sizes(decisions: SizeGuards) -> Generator[None]:
    """Let `decisions` decide the comparisons of sizes in a `with` block that imports a model."""
    token = size_decisions.set(decisions.decide)
    try:
        yield
    finally:
        size_decisions.reset(token)


@contextmanager
def specializing_data_dependent_sizes(sizes: Mapping[str, int]) -> Generator[None]:
    """Import a model in a `with` block for these values of data-dependent sizes, in addition to those of outer blocks."""
    token = data_dependent_size_values.set({**data_dependent_size_values.get(), **sizes})
    try:
        yield
    finally:
        data_dependent_size_values.reset(token)

"""Detect reuse of random keys in a traced function: two draws from one key are not independent.

Two keys are equal if they are computed in the same way from the same values, or are arrays with equal elements. Inside a
loop, a key must depend on a value that changes between iterations; otherwise every iteration draws the same values. Mutually
exclusive branches may draw from the same key. Not detected: different computations that return the same key, draws inside and
outside of a transformed function, and draws of two calls.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from dlc.dialects.dl.base import Array
from dlc.frontend.value_numbering import ValueNumbering
from dlc.ir import Block, SSAValue

Branch = TypeVar("Branch")


class KeyUses:
    """The keys used so far, with the location of each use; `active_blocks` are the blocks that are being traced."""

    def __init__(self, active_blocks: Sequence[Block], value_numbering: ValueNumbering) -> None:
        self._active_blocks = active_blocks
        self._value_numbering = value_numbering
        self._loops: list[Block] = []
        self._drawn: dict[Hashable, str] = {}

    def draw(self, key: SSAValue | Array, location: str) -> str | None:
        """Record that a key is used at a location; return an error message if that is a reuse."""
        if isinstance(key, SSAValue):
            identity, depends_on = self._value_numbering.of(key)
        else:
            identity, depends_on = key.tobytes(), frozenset[Block | None]()
        if self._loops and depends_on.isdisjoint(self._active_blocks[self._active_blocks.index(self._loops[-1]) :]):
            return "does not change in the enclosing loop, so that every iteration draws the same values"
        if previous_location := self._drawn.get(identity):
            return f"was used before ({previous_location}), so that both draw the same values"
        self._drawn[identity] = location
        return None

    @contextmanager
    def in_loop(self, body: Block) -> Generator[None]:
        """Mark `body` as the body of a loop while it is traced."""
        self._loops.append(body)
        try:
            yield
        finally:
            self._loops.pop()

    def alternatives(self, branches: Iterable[Branch]) -> Iterator[Branch]:
        """Yield mutually exclusive branches, to be traced in order. Different branches may draw from the same key."""
        drawn_before = self._drawn
        drawn_in_any = dict(drawn_before)
        for branch in branches:
            self._drawn = dict(drawn_before)
            yield branch
            drawn_in_any |= self._drawn
        self._drawn = drawn_in_any

"""Which keys of random numbers a traced function has drawn from: numbers of one key twice are not independent.

Two keys are the same if they are computed in the same way from the same values, or are arrays of equal elements. In a loop a
key must depend on what changes there, since every step would draw the same numbers otherwise. Branches of which one runs may
draw from the same key. What is not seen is never an error: a key that two computations happen to give, one drawn from inside
and outside of what a transformation is given, and anything between two calls.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from dlc.dialects.dl.base import Array
from dlc.frontend.computations import Computations
from dlc.ir import Block, SSAValue

Branch = TypeVar("Branch")


class KeyUses:
    """The keys drawn from so far, each with the place where; `open_blocks` are the function's and the bodies that are open."""

    def __init__(self, open_blocks: Sequence[Block], computations: Computations) -> None:
        self._open = open_blocks
        self._computations = computations
        self._loops: list[Block] = []
        self._drawn: dict[Hashable, str] = {}

    def draw(self, key: SSAValue | Array, place: str) -> str | None:
        """Notes that a key is drawn from at `place`; what is wrong with that, if something is."""
        if isinstance(key, SSAValue):
            identity, depends_on = self._computations.of(key)
        else:
            identity, depends_on = key.tobytes(), frozenset[Block | None]()
        if self._loops and depends_on.isdisjoint(self._open[self._open.index(self._loops[-1]) :]):
            return "does not change in the loop around it, so that every step draws the same numbers"
        if before := self._drawn.get(identity):
            return f"was drawn from before ({before}), so that both draw the same numbers"
        self._drawn[identity] = place
        return None

    @contextmanager
    def in_loop(self, body: Block) -> Generator[None]:
        """Inside, `body` is traced, which runs any number of times."""
        self._loops.append(body)
        try:
            yield
        finally:
            self._loops.pop()

    def alternatives(self, branches: Iterable[Branch]) -> Iterator[Branch]:
        """Branches to be traced one after another, of which one runs: what one draws from, another may too."""
        before = self._drawn
        drawn = dict(before)
        for branch in branches:
            self._drawn = dict(before)
            yield branch
            drawn |= self._drawn
        self._drawn = drawn

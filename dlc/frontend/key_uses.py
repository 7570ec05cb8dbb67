"""Which keys of random numbers a traced function has drawn from: numbers of one key twice are not independent.

Two keys are the same if they are computed in the same way from the same values, or are arrays of equal elements. In a loop a
key must depend on what changes there, since every step would draw the same numbers otherwise. Branches of which one runs may
draw from the same key. What is not seen is never an error: a key that two computations happen to give, one drawn from inside
and outside of what a transformation is given, and anything between two calls.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from dlc.dialects.dl.base import Array, DlOp
from dlc.ir import Block, OpResult, SSAValue

Branch = TypeVar("Branch")


class KeyUses:
    """The keys drawn from so far, each with the place where; `open_blocks` are the function's and the bodies that are open."""

    def __init__(self, open_blocks: Sequence[Block]) -> None:
        self._open = open_blocks
        self._loops: list[Block] = []
        self._drawn: dict[Hashable, str] = {}
        # What each value is computed by: equal numbers are equal computations. And the blocks that it depends on.
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[SSAValue, tuple[int, frozenset[Block | None]]] = {}

    def draw(self, key: SSAValue | Array, place: str) -> str | None:
        """Notes that a key is drawn from at `place`; what is wrong with that, if something is."""
        if isinstance(key, SSAValue):
            identity, depends_on = self._computation(key)
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

    def _computation(self, value: SSAValue) -> tuple[int, frozenset[Block | None]]:
        """What a value is computed by, as a number, and the blocks that this depends on."""
        # Not by recursion: keys made from one another in a loop of Python's are a long way.
        missing = [value]
        while missing:
            current = missing[-1]
            op = current.owner
            operands = op.operands if isinstance(op, DlOp) and not op.regions else ()
            unknown = [v for v in operands if v not in self._known]
            missing += unknown
            if unknown:
                continue
            missing.pop()
            text: Hashable = current
            blocks = frozenset([op if isinstance(op, Block) else op.parent])
            if isinstance(op, DlOp) and not op.regions:
                properties = tuple(sorted(op.properties.items(), key=lambda entry: entry[0]))
                numbers = tuple(self._known[v][0] for v in operands)
                text = op.name, properties, numbers, cast("OpResult[Any]", current).index
                blocks = frozenset[Block | None]().union(*(self._known[v][1] for v in operands))
            self._known[current] = self._numbers.setdefault(text, len(self._numbers)), blocks
        return self._known[value]

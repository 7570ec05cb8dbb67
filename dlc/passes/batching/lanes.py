"""What becomes of a function's values when it is computed for many lanes at once.

A value that differs between lanes becomes one with the lanes along axis 0; a value that is the same in all of them stays as
it is, as long as nothing asks for it in lanes. Other places of the lanes' axis are a matter of the borders: operands and
results of `dl.vmap`, and sequences of loops.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from dlc.dialects.dl.arithmetic.logic import AndOp, NotOp
from dlc.dialects.dl.base import DlOp, PropertyValue, element_type_of, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.transformations import NOT_BATCHED, with_lanes
from dlc.dims import Size
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.batching.differences import computed_from
from dlc.passes.dl.rewriting import is_identity


class Lanes:
    """A function while it is batched: `size` lanes, what became of the values of one lane, and where new ops go."""

    def __init__(self, size: int, build: Build) -> None:
        self.size = size
        self.build = build
        # The values of one lane that differ between lanes.
        self.differing: set[SSAValue] = set()
        self._became: dict[SSAValue, SSAValue] = {}
        # Conditions of the lanes, each with what it is in those that take part in what is batched at the moment.
        self._taking_part: list[tuple[SSAValue, bool]] = []

    # Values

    def set(self, value: SSAValue, became: SSAValue, differs: bool) -> None:
        """Says what a value of one lane became: one with lanes along axis 0 if it differs between them."""
        self._became[value] = became
        if differs:
            self.differing.add(value)

    def set_all(self, values: Sequence[SSAValue], became: Sequence[SSAValue], differs: Sequence[bool]) -> None:
        for value, new, d in zip(values, became, differs, strict=True):
            self.set(value, new, d)

    def differs(self, value: SSAValue) -> bool:
        """Whether a value of one lane differs between lanes."""
        return value in self.differing

    def read(self, value: SSAValue) -> SSAValue:
        """What a value of one lane became."""
        return self._became.get(value, value)

    def all(self, value: SSAValue) -> SSAValue:
        """A value of one lane with lanes along axis 0: repeated if it is the same in all of them."""
        now = self.read(value)
        return now if self.differs(value) else self.build(BroadcastToOp, now, shape=(self.size, *shape_of(now)))

    def settled(self, value: SSAValue, differs: bool) -> SSAValue:
        """A value of one lane with lanes along axis 0, or as one that is known to be the same in all of them."""
        assert differs or not self.differs(value)
        return self.all(value) if differs else self.read(value)

    def aligned(self, value: SSAValue, rank: int) -> SSAValue:
        """What a value became, so that it broadcasts with others of so many axes in one lane."""
        now = self.read(value)
        missing = rank - rank_of(value)
        if not self.differs(value) or missing == 0:
            return now
        return self.build(ReshapeOp, now, shape=(self.size, *(1,) * missing, *shape_of(value)))

    def mapped(self) -> dict[SSAValue, SSAValue]:
        """What became of every value, for ops that are the same in all lanes."""
        return self._became

    def reads_lanes(self, op: Operation) -> bool:
        """Whether an op's results are computed from a value that differs between lanes."""
        return any(v in self.differing for v in computed_from(op))

    # Ops

    def again(self, op: DlOp, *operands: SSAValue, **changed: PropertyValue | None) -> list[SSAValue]:
        """The results of an op on other operands, with its properties but for those that changed."""
        return list(self.build.insert(type(op).make(*operands, **{**op.properties, **changed})).results)

    def reshaped(self, value: SSAValue, *shape: Size) -> SSAValue:
        return value if shape_of(value) == shape else self.build(ReshapeOp, value, shape=shape)

    def transposed(self, value: SSAValue, permutation: Sequence[int]) -> SSAValue:
        return value if is_identity(permutation) else self.build(TransposeOp, value, permutation=tuple(permutation))

    def moved(self, value: SSAValue, axis: int, to: int) -> SSAValue:
        """A value with one of its axes in another place."""
        order = [a for a in range(rank_of(value)) if a != axis]
        order.insert(to, axis)
        return self.transposed(value, order)

    def empty(self, like: SSAValue) -> SSAValue:
        """No lanes of a value of one lane."""
        zero = self.build.scalar(0, like=tensor_type((), element_type_of(like)))
        return self.build(BroadcastToOp, zero, shape=(self.size, *shape_of(like)))

    @contextmanager
    def reading(self, value: SSAValue, became: SSAValue, differs: bool) -> Generator[None]:
        """Inside, a value of one lane is read as this one, with lanes along axis 0 if it differs between them."""
        before, differed = self.read(value), self.differs(value)
        self.set(value, became, differs)
        try:
            yield
        finally:
            self._became[value] = before
            if not differed:
                self.differing.discard(value)

    # Bodies

    def copy_of(self, body: Block, differs: Sequence[bool]) -> Block:
        """An empty body whose arguments are what those of another one become."""
        types = [with_lanes(a, 0 if d else NOT_BATCHED, self.size) for a, d in zip(body.args, differs, strict=True)]
        made = Block(arg_types=types)
        self.set_all(body.args, made.args, differs)
        return made

    @contextmanager
    def inside(self, body: Block) -> Generator[None]:
        """New ops go to the end of a body."""
        before, self.build = self.build, Build(body, self.build.location)
        try:
            yield
        finally:
            self.build = before

    @contextmanager
    def where(self, condition: SSAValue, holds: bool, within: bool = True) -> Generator[None]:
        """Inside, only lanes take part in which a condition of all lanes holds, or does not: what others compute is not used.

        It is a condition of those that take part already, or (not `within`) implies that they do.
        """
        before = self._taking_part
        self._taking_part = [*(before if within else []), (condition, holds)]
        try:
            yield
        finally:
            self._taking_part = before

    @property
    def some_may_not_take_part(self) -> bool:
        return bool(self._taking_part)

    def and_takes_part(self, condition: SSAValue | None = None) -> SSAValue:
        """Whether a condition of all lanes holds and the lane takes part; one of them at least says something."""
        for other, holds in self._taking_part:
            other = other if holds else self.build(NotOp, other)
            condition = other if condition is None else self.build(AndOp, condition, other)
        assert condition is not None
        return condition

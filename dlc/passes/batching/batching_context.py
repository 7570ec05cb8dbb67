"""The batching context: maps the values of a function to their batched counterparts.

A batched value has the batch along axis 0; a value that is the same for all batch elements has no batch axis until an
op needs one. Other positions of the batch axis only occur in operands and results of `dl.vmap`, and in sequences
of loops.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from dlc.dialects.dl.arithmetic.logic import AndOp, NotOp
from dlc.dialects.dl.base import DlOp, PropertyValue, element_type_of, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.transformations import NOT_BATCHED, add_batch_axis
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.batching.batched_values import computed_from
from dlc.passes.dl.rewriting import is_identity
from dlc.shapes.dims import Size


class BatchingContext:
    """The state of batching one function: the batch size, the counterparts of its values, and the builder for new ops."""

    def __init__(self, size: Size, build_op: DlBuilder) -> None:
        self.size = size
        self.build = build_op
        # The values that are batched.
        self.batched: set[SSAValue] = set()
        self._counterparts: dict[SSAValue, SSAValue] = {}
        # Conditions per batch element, each with the value that it has for active elements.
        self._active_conditions: list[tuple[SSAValue, bool]] = []

    # Values

    def map_value(self, value: SSAValue, counterpart: SSAValue, is_batched: bool) -> None:
        """Map a value to its counterpart, which has the batch along axis 0 if it is batched."""
        self._counterparts[value] = counterpart
        if is_batched:
            self.batched.add(value)

    def map_values(self, values: Sequence[SSAValue], counterpart: Sequence[SSAValue], is_batched: Sequence[bool]) -> None:
        for value, new, batched in zip(values, counterpart, is_batched, strict=True):
            self.map_value(value, new, batched)

    def is_batched(self, value: SSAValue) -> bool:
        """Return whether a value is batched."""
        return value in self.batched

    def lookup(self, value: SSAValue) -> SSAValue:
        """Return the counterpart of a value."""
        return self._counterparts.get(value, value)

    def with_batch_axis(self, value: SSAValue) -> SSAValue:
        """Return the counterpart of a value with the batch along axis 0, broadcast if it is not batched."""
        counterpart = self.lookup(value)
        return (
            counterpart
            if self.is_batched(value)
            else self.build(BroadcastToOp, counterpart, shape=(self.size, *shape_of(counterpart)))
        )

    def as_batched(self, value: SSAValue, is_batched: bool) -> SSAValue:
        """Return the counterpart of a value, with the batch axis if `is_batched`."""
        assert is_batched or not self.is_batched(value)
        return self.with_batch_axis(value) if is_batched else self.lookup(value)

    def align_rank(self, value: SSAValue, rank: int) -> SSAValue:
        """Return the counterpart of a value, reshaped to broadcast with values of `rank` axes plus the batch."""
        counterpart = self.lookup(value)
        missing = rank - rank_of(value)
        if not self.is_batched(value) or missing == 0:
            return counterpart
        return self.build(ReshapeOp, counterpart, shape=(self.size, *(1,) * missing, *shape_of(value)))

    def mapping(self) -> dict[SSAValue, SSAValue]:
        """Return the counterparts of all values, to clone ops that are not batched."""
        return self._counterparts

    def reads_batched(self, op: Operation) -> bool:
        """Return whether an op's results are computed from a batched value."""
        return any(v in self.batched for v in computed_from(op))

    # Ops

    def clone_op(self, op: DlOp, *operands: SSAValue, **changed: PropertyValue | None) -> list[SSAValue]:
        """Insert the same op on other operands, with changed properties; return its results."""
        return list(self.build.insert(type(op).make(*operands, **{**op.properties, **changed})).results)

    def reshape(self, value: SSAValue, *shape: Size) -> SSAValue:
        return value if shape_of(value) == shape else self.build(ReshapeOp, value, shape=shape)

    def transpose(self, value: SSAValue, permutation: Sequence[int]) -> SSAValue:
        return value if is_identity(permutation) else self.build(TransposeOp, value, permutation=tuple(permutation))

    def move_axis(self, value: SSAValue, axis: int, to: int) -> SSAValue:
        """Move an axis of a value (numpy.moveaxis)."""
        order = [a for a in range(rank_of(value)) if a != axis]
        order.insert(to, axis)
        return self.transpose(value, order)

    def empty(self, like: SSAValue) -> SSAValue:
        """Return the counterpart of a value for batch size 0."""
        zero = self.build.scalar(0, like=tensor_type((), element_type_of(like)))
        return self.build(BroadcastToOp, zero, shape=(self.size, *shape_of(like)))

    @contextmanager
    def override(self, value: SSAValue, counterpart: SSAValue, is_batched: bool) -> Generator[None]:
        """Map a value to another counterpart within a `with` block."""
        previous, was_batched = self.lookup(value), self.is_batched(value)
        self.map_value(value, counterpart, is_batched)
        try:
            yield
        finally:
            self._counterparts[value] = previous
            if not was_batched:
                self.batched.discard(value)

    # Bodies

    def batched_body(self, body: Block, is_batched: Sequence[bool]) -> Block:
        """Return an empty body whose arguments are the counterparts of another body's arguments."""
        types = [
            add_batch_axis(a, 0 if batched else NOT_BATCHED, self.size)
            for a, batched in zip(body.args, is_batched, strict=True)
        ]
        new_body = Block(arg_types=types)
        self.map_values(body.args, new_body.args, is_batched)
        return new_body

    @contextmanager
    def inserting_into(self, body: Block) -> Generator[None]:
        """Insert new ops at the end of a body within a `with` block."""
        previous, self.build = self.build, DlBuilder(body, self.build.location)
        try:
            yield
        finally:
            self.build = previous

    @contextmanager
    def restrict_active(self, condition: SSAValue, expected: bool, combine: bool = True) -> Generator[None]:
        """Restrict the active batch elements, within a `with` block, to those whose condition is `expected`.

        With `combine` the restriction adds to the current one; otherwise it replaces the current one, which `condition` must
        imply.
        """
        previous = self._active_conditions
        self._active_conditions = [*(previous if combine else []), (condition, expected)]
        try:
            yield
        finally:
            self._active_conditions = previous

    @property
    def may_have_inactive(self) -> bool:
        return bool(self._active_conditions)

    def active_mask(self, condition: SSAValue | None = None) -> SSAValue:
        """Return a mask of the active batch elements, combined with `condition` if given; one of them must exist."""
        for active_condition, expected in self._active_conditions:
            active_condition = active_condition if expected else self.build(NotOp, active_condition)
            condition = active_condition if condition is None else self.build(AndOp, condition, active_condition)
        assert condition is not None
        return condition

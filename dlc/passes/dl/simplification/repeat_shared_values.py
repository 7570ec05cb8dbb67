"""Rematerialize cheap values that several concatenations share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.interfaces import DataMovement, Elementwise
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.ir import Block, Context, ModuleOp, ModulePass, Operation, SSAValue
from dlc.passes.dl.rewriting import program_blocks, users
from dlc.passes.elementwise_costs import elementwise_cost

# Maximum cost of the repeated ops of a part, in additions per element: about that of storing and loading one value.
_MAX_REPEATED_ADDS = 16.0
# Maximum arrays that a concatenation reads only for repeated ops; more of them cost more than the stored values.
_MAX_ADDITIONAL_INPUTS = 2


@dataclass(frozen=True)
class RepeatSharedValuesPass(ModulePass):
    """`repeat-shared-values`: rematerializes cheap elementwise values for each part of a concatenation that needs them.

        %r = dl.mul %u, %v;  %a = dl.sub %x, %r;  %b = dl.add %y, %r;  %p = dl.concat %a, …;  %q = dl.concat %b, …
    →   %r = dl.mul %u, %v;  %a = dl.sub %x, %r;  %p = dl.concat %a, …
        %s = dl.mul %u, %v;  %b = dl.add %y, %s;  %q = dl.concat %b, …

    A concatenation forms one kernel with the ops that compute its parts, if no other kernel needs their values. Otherwise
    each part is a kernel that stores both values, and the concatenation copies them. The parts of a grid's interior and borders
    (`peel-borders`) share values if the equations of several fields have equal terms, and those of opposite borders if the grid
    is periodic. Only values that elementwise ops compute from values in memory are repeated, and only if all of their users are
    parts of concatenations.
    """

    name = "repeat-shared-values"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            concatenations = [_Concatenation(root) for root in _roots(block)]
            for concatenation in concatenations:
                concatenation.repeat_values_of_parts(concatenations)
            for k, concatenation in enumerate(concatenations):
                concatenation.repeat_values_of(concatenations[:k] + concatenations[k + 1 :])


def _roots(block: Block) -> Iterator[ConcatOp]:
    """Yield the concatenations that are not parts of others."""
    for op in block.ops:
        if isinstance(op, ConcatOp) and not all(isinstance(user, ConcatOp) for user in users(op.result)):
            yield op


class _Concatenation:
    """A concatenation, with the nested ones, and the elementwise ops that compute its parts."""

    def __init__(self, root: ConcatOp) -> None:
        self.block = root.parent
        self.concats: set[Operation] = {root}
        self.parts: list[SSAValue] = []
        pending = list(root.values)
        while pending:
            value = pending.pop()
            if isinstance(value.owner, ConcatOp) and value.owner.parent is self.block:
                self.concats.add(value.owner)
                pending += value.owner.values
            else:
                self.parts.append(value)
        self.ops = self._ops_of_parts()

    def _ops_of_parts(self) -> set[Operation]:
        return {op for part in self.parts for op in self._elementwise_ops(part)}

    def _elementwise_ops(self, part: SSAValue) -> set[Operation]:
        """Return the elementwise ops of one shape that compute a part."""
        ops, pending, shape = set[Operation](), [part], shape_of(part)
        while pending:
            op = pending.pop().owner
            if isinstance(op, Elementwise) and op not in ops and op.parent is self.block and shape_of(op.results[0]) == shape:
                ops.add(op)
                pending += op.operands
        return ops

    def repeat_values_of_parts(self, concatenations: list[_Concatenation]) -> None:
        """Clone the ops that earlier parts need too: a kernel computes each part in loops of its own."""
        earlier_ops = set[Operation]()
        for part in self.parts:
            ops = self._elementwise_ops(part)
            if part.owner not in earlier_ops and self._are_repeatable(shared := ops & earlier_ops, concatenations, [part]):
                self._repeat(shared, ops - shared)
            earlier_ops |= ops
        self.ops = self._ops_of_parts()

    def repeat_values_of(self, others: list[_Concatenation]) -> None:
        """Clone the ops that other concatenations need too, if that costs less than storing their results."""
        shared = self.ops & {op for other in others for op in other.ops}
        additional_arrays = _arrays_read(shared) - _arrays_read(self.ops - shared)
        if len(additional_arrays) <= _MAX_ADDITIONAL_INPUTS and self._are_repeatable(shared, [self, *others], self.parts):
            copies = self._repeat(shared, (self.ops - shared) | self.concats)
            self.parts = [copies.get(part, part) for part in self.parts]
            self.ops = self._ops_of_parts()

    def _are_repeatable(
        self, shared: set[Operation], concatenations: Sequence[_Concatenation], parts: Sequence[SSAValue]
    ) -> bool:
        """Return whether repeating ops costs less than storing their results, which only parts of concatenations need."""
        if not shared:
            return False
        needed_by = set[Operation]().union(*(c.ops | c.concats for c in concatenations))
        if not all(needed_by.issuperset(users(r)) for op in shared for r in op.results):
            return False
        costs = (sum(elementwise_cost(op) for op in self._elementwise_ops(p) & shared) for p in parts)
        return all(map(_is_in_memory, _inputs(shared))) and max(costs) <= _MAX_REPEATED_ADDS

    def _repeat(self, shared: set[Operation], users_of_copies: set[Operation]) -> dict[SSAValue, SSAValue]:
        """Clone ops for these users; return the copies of their results."""
        assert self.block is not None
        copies: dict[SSAValue, SSAValue] = {}
        for op in [op for op in self.block.ops if op in shared]:
            self.block.insert_op_before(copy := op.clone(copies), op)
            copies |= zip(op.results, copy.results, strict=True)
        for value, copy in copies.items():
            value.replace_uses_with_if(copy, lambda use: use.operation in users_of_copies)
        return copies


def _inputs(ops: set[Operation]) -> set[SSAValue]:
    return {v for op in ops for v in op.operands if v.owner not in ops}


def _is_in_memory(value: SSAValue) -> bool:
    """Return whether kernels read a value from memory, directly or through data movement."""
    return not isinstance(op := value.owner, Operation) or isinstance(op, DataMovement | ConstantOp)


def _arrays_read(ops: set[Operation]) -> set[SSAValue]:
    """Return the arrays that ops read, directly or through data movement."""
    inputs = (v for v in _inputs(ops) if shape_of(v))
    return {v.owner.operands[0] if isinstance(v.owner, DataMovement) else v for v in inputs}

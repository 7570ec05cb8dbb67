"""Rematerialize cheap values that several concatenations share."""

from __future__ import annotations

from collections.abc import Iterator
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
    """`repeat-shared-values`: rematerializes cheap elementwise values for each concatenation that needs them.

        %r = dl.mul %u, %v;  %a = dl.sub %x, %r;  %b = dl.add %y, %r;  %p = dl.concat %a, …;  %q = dl.concat %b, …
    →   %r = dl.mul %u, %v;  %a = dl.sub %x, %r;  %p = dl.concat %a, …
        %s = dl.mul %u, %v;  %b = dl.add %y, %s;  %q = dl.concat %b, …

    A concatenation forms one kernel with the ops that compute its parts, if no other kernel needs their values. Otherwise
    each part is a kernel that stores both values, and the concatenation copies them. The parts of a grid's interior and borders
    (`peel-borders`) share values if the equations of several fields have equal terms. Only values that elementwise ops compute
    from values in memory are repeated, and only if all of their users are parts of concatenations.
    """

    name = "repeat-shared-values"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            concatenations = [_Concatenation(root) for root in _roots(block)]
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
        self.ops = {op for part in self.parts for op in self._elementwise_ops(part)}

    def _elementwise_ops(self, part: SSAValue) -> set[Operation]:
        """Return the elementwise ops of one shape that compute a part."""
        ops, pending, shape = set[Operation](), [part], shape_of(part)
        while pending:
            op = pending.pop().owner
            if isinstance(op, Elementwise) and op not in ops and op.parent is self.block and shape_of(op.results[0]) == shape:
                ops.add(op)
                pending += op.operands
        return ops

    def repeat_values_of(self, others: list[_Concatenation]) -> None:
        """Clone the ops that other concatenations need too, if that costs less than storing their results."""
        shared = self.ops & {op for other in others for op in other.ops}
        needed_by = self.ops.union(self.concats, *(other.ops | other.concats for other in others))
        if not shared or self.block is None or not all(needed_by.issuperset(users(r)) for op in shared for r in op.results):
            return
        costs = (sum(elementwise_cost(op) for op in self._elementwise_ops(p) & shared) for p in self.parts)
        additional_arrays = _arrays_read(shared) - _arrays_read(self.ops - shared)
        if not all(map(_is_in_memory, _inputs(shared))) or max(costs) > _MAX_REPEATED_ADDS:
            return
        if len(additional_arrays) > _MAX_ADDITIONAL_INPUTS:
            return
        copies: dict[SSAValue, SSAValue] = {}
        for op in [op for op in self.block.ops if op in shared]:
            self.block.insert_op_before(copy := op.clone(copies), op)
            copies |= zip(op.results, copy.results, strict=True)
            self.ops.add(copy)
        self.ops -= shared
        for value, copy in copies.items():
            value.replace_uses_with_if(copy, lambda use: use.operation in self.ops or use.operation in self.concats)
        self.parts = [copies.get(part, part) for part in self.parts]


def _inputs(ops: set[Operation]) -> set[SSAValue]:
    return {v for op in ops for v in op.operands if v.owner not in ops}


def _is_in_memory(value: SSAValue) -> bool:
    """Return whether kernels read a value from memory, directly or through data movement."""
    return not isinstance(op := value.owner, Operation) or isinstance(op, DataMovement | ConstantOp)


def _arrays_read(ops: set[Operation]) -> set[SSAValue]:
    """Return the arrays that ops read, directly or through data movement."""
    inputs = (v for v in _inputs(ops) if shape_of(v))
    return {v.owner.operands[0] if isinstance(v.owner, DataMovement) else v for v in inputs}

"""Shorten live ranges: compute expressions early if they are the only reason to keep other values alive."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.ir import Block, Context, ModuleOp, ModulePass, Operation, SSAValue
from dlc.passes.dl.rewriting import program_blocks, users

# Maximum ops of an expression; longer ones are not fused into one kernel.
_MAX_FORMULA_OPS = 64


@dataclass(frozen=True)
class ShortenLiveRangesPass(ModulePass):
    """`shorten-live-ranges`: moves an elementwise expression to the producer of a value that stays alive only for it.

        %e = dl.erf %x;  %y = dl.mul %x, %e                      %e = dl.erf %x;  %d = dl.add %e, %p;  %y = dl.mul %x, %e
        …                                                    →   …
        %d = dl.add %e, %p;  %g = dl.mul %ct, %d                 %g = dl.mul %ct, %d

    The kernel that computes the value then computes the expression too, and stores its result instead. So derivatives are
    computed in the forward pass, where their operands are available, and the backward pass reads fewer residuals.
    """

    name = "shorten-live-ranges"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            _LiveRangeShortener(block).run()


class _LiveRangeShortener:
    def __init__(self, block: Block) -> None:
        self.block = block
        # Positions are compared lexicographically: (k,) for the k-th op; an op moved after another one extends that op's
        # position. `preceding_kernels` counts the ops up to each op that are not elementwise.
        self.position: dict[Operation, tuple[int, ...]] = {}
        self.preceding_kernels: dict[Operation, int] = {}
        count = 0
        for k, op in enumerate(block.ops):
            count += not isinstance(op, Elementwise | ConstantOp)
            self.position[op], self.preceding_kernels[op] = (k,), count
        self.move_count = 0
        # Cached users of values: moving ops does not change them.
        self.users_of: dict[SSAValue, set[Operation]] = {}

    def cached_users(self, value: SSAValue) -> set[Operation]:
        if value not in self.users_of:
            self.users_of[value] = users(value)
        return self.users_of[value]

    def run(self) -> None:
        moved: set[Operation] = set()
        # Visit the last op of an expression first: moving it moves the others.
        for op in reversed(self.movable_ops()):
            if shape_of(op.results[0]) and op not in moved:
                moved |= self.move(op)

    def movable_ops(self) -> list[Operation]:
        """Return the elementwise ops computed only from values before the last non-elementwise op: the candidates to move."""
        reads_earlier: dict[Operation, bool] = {}
        for op in self.block.ops:
            if not isinstance(op, Elementwise):
                continue
            owners = (v.owner for v in op.operands)
            producers = [m for m in owners if isinstance(m, Operation) and m in self.position and not isinstance(m, ConstantOp)]
            same_run = [m for m in producers if self.preceding_kernels[m] == self.preceding_kernels[op]]
            if all(m in reads_earlier for m in same_run):
                reads_earlier[op] = len(same_run) < len(producers) or any(reads_earlier[m] for m in same_run)
        return [op for op, reads in reads_earlier.items() if reads]

    def move(self, last: Operation) -> set[Operation]:
        """Move the expression that ends in an op after the last value that it reads, if that pays; return the moved ops."""
        expression = self.expression(last)
        operands = (v for op in expression for v in op.operands)
        inputs = {v for v in operands if v.owner not in expression and not isinstance(v.owner, ConstantOp)}
        producers = [v.owner for v in inputs if isinstance(v.owner, Operation) and v.owner in self.position]
        if not producers:
            return set()
        anchor = max(producers, key=lambda op: self.position[op])
        if any(self.position[op] < self.position[anchor] for op in expression):
            return set()
        if self.is_one_elementwise_run(anchor, {last}) or not any(self.is_live_only_for(v, expression, anchor) for v in inputs):
            return set()
        start, preceding_kernels = self.position[anchor], self.preceding_kernels[anchor]
        sorted_expression = sorted(expression, key=lambda op: self.position[op])
        to_insert = dict.fromkeys(op for member in sorted_expression for op in (*self.constants_after(member, start), member))
        self.move_count += 1
        for k, op in enumerate(to_insert):
            op.detach()
            self.block.insert_op_after(op, anchor)
            # An op inserted later at the same position precedes the earlier one.
            self.position[op], self.preceding_kernels[op] = (*start, -self.move_count, k), preceding_kernels
            anchor = op
        return expression

    def constants_after(self, op: Operation, start: tuple[int, ...]) -> list[Operation]:
        """Return the constants after `start` that an op reads; constants of outer blocks come before all of this one."""
        constants = (v.owner for v in op.operands if isinstance(v.owner, ConstantOp))
        return [c for c in constants if self.position.get(c, start) > start]

    def is_one_elementwise_run(self, first: Operation, ops: set[Operation]) -> bool:
        """Return whether only elementwise ops are between `first` and the other ops, all after it."""
        start, preceding_kernels = self.position[first], self.preceding_kernels[first]
        return all(self.preceding_kernels.get(op) == preceding_kernels and self.position[op] >= start for op in ops)

    def is_live_only_for(self, value: SSAValue, expression: set[Operation], anchor: Operation) -> bool:
        """Return whether an elementwise result, of the expression's size, stays alive for the expression only.

        That is so if its other users, and the insertion point, follow its producer without another kernel in between.
        """
        producer, like = value.owner, next(iter(expression)).results[0]
        if not isinstance(producer, Elementwise) or producer not in self.position or shape_of(value) != shape_of(like):
            return False
        return self.is_one_elementwise_run(producer, (self.cached_users(value) | {anchor}) - expression)

    def expression(self, last: Operation) -> set[Operation]:
        """Return an elementwise op with its same-shape producers that have no other users, transitively."""
        shape, members, pending = shape_of(last.results[0]), {last}, [last]
        while pending and len(members) < _MAX_FORMULA_OPS:
            for value in pending.pop().operands:
                op = value.owner
                if (
                    isinstance(op, Elementwise)
                    and op not in members
                    and self.cached_users(value) <= members
                    and shape_of(value) == shape
                ):
                    members.add(op)
                    pending.append(op)
        return members

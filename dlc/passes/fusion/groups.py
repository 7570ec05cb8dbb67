"""Deciding which ops share a kernel.

A group grows from a root, in program order, by the users of its values, and stops at the first user that cannot join. So a
group can run where its last op stood: everything it reads is there, and everybody who reads it comes later. No cycle can
arise.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeGuard

from dlc.dialects.dl.base import DlOp, element_type_of, ints, shape_of
from dlc.dialects.dl.dtypes import is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Contraction, Elementwise, Movement, Procedure, Staged, Window
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, TransposeOp
from dlc.dialects.dl.programs.control import Control, PrintOp
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dims import Range, Size, is_static
from dlc.ir import Block, Operation, SSAValue, func
from dlc.passes.dl.rewriting import splat, users
from dlc.passes.fusion.spaces import Space, absorbs, is_heavy, row_axes, space_of, takes_makers
from dlc.passes.fusion.weighted_sums import sums_rows, sums_run
from dlc.passes.views import is_view, joins_pieces
from dlc.target import Target

# Longer chains gain nothing more from staying in registers, and spill.
MAX_OPS = 64
# Of a register tile; what waits for a contraction in the cache are as many rows or more.
FEWEST_ROWS = 8
# Why a kernel ends where the program does.
RETURNED = "the program returns it"


@dataclass(frozen=True)
class End:
    """Where a group ended: the op that would have been next (None: nobody reads it there), and why it did not join."""

    op: Operation | None
    reason: str


class Grouper:
    """Chooses groups of a block's ops, which shrinks as they are formed; `end` is where the last one ended."""

    def __init__(self, block: Block, target: Target, ranges: Mapping[str, Range], exact: bool) -> None:
        self.block = block
        # Whether sums are to be those of the ops as they stand.
        self.exact = exact
        self.alignment, self.longest_row = target.alignment, target.machine.row_elements
        self.target = target
        # What is known of symbolic sizes.
        self.ranges = ranges
        self.constant = WeightExpressions()
        self.position: dict[Operation, int] = {op: k for k, op in enumerate(block.ops)}
        self.end = End(None, "")
        # What is joined where kernels write the pieces.
        self.joined = {op for op in block.ops if isinstance(op, ConcatOp) and self._joins_results(op)}

    def is_candidate(self, op: Operation) -> bool:
        """Whether an op of the host program belongs in a kernel: views are parts of buffers, weight expressions run ahead."""
        if not isinstance(op, DlOp) or op.parent is not self.block or op in self.joined:
            return False
        return not is_view(op, self.alignment) and not self.constant.holds(op)

    def _joins_results(self, op: ConcatOp) -> bool:
        """Whether all that is joined is made by kernels of their own, which may as well write it where it is joined."""
        return joins_pieces(op, self.alignment) and all(map(self._ends_heavy, op.values))

    def _ends_heavy(self, value: SSAValue) -> bool:
        """Whether an elementwise chain leads to `value` from a contraction or the like."""
        pending, met = [value], {value}
        while pending and len(met) < MAX_OPS:
            op = pending.pop().owner
            if isinstance(op, Contraction | Staged | Window):
                return True
            beside = [v for v in op.operands if shape_of(v) == shape_of(value)] if isinstance(op, Elementwise) else []
            pending += [v for v in beside if v not in met]
            met.update(beside)
        return False

    def reads_through(self, op: Operation, index: int) -> bool:
        """Whether operand `index` of a kernel's op is a movement that the kernel makes itself."""
        value = op.operands[index]
        if not isinstance(value.owner, Movement) or is_view(value.owner, self.alignment):
            return False
        return value not in self.constant and absorbs(op, index, value.owner)

    def waits(self, root: DlOp) -> bool:
        """Whether `root` should not start a group yet, since its users will read through it or a heavier root may take it."""
        if isinstance(root, Movement):
            return all(absorbs(use.operation, use.index, root) for r in root.results for use in r.uses)
        if not isinstance(root, Elementwise):
            return False
        last, reader = root, self._next(root)
        for _ in range(MAX_OPS):
            if not isinstance(reader, Elementwise) or shape_of(reader.results[0]) != shape_of(root.results[0]):
                return takes_makers(reader, self.longest_row)
            if any(self._belongs_to_heavy(v, last) for v in reader.operands):
                return True
            last, reader = reader, self._next(reader)
        return False

    def _next(self, op: Elementwise) -> Operation | None:
        """What reads all that is made of an elementwise op's result: its only reader, or where several ways meet again.

        Ops on these ways are elementwise and of its shape.
        """
        shape = shape_of(op.results[0])
        ways = {reader: self._place(reader) for reader in users(op.results[0])}
        for _ in range(MAX_OPS):
            if len(ways) < 2:
                return next(iter(ways), None)
            first = min(ways, key=ways.__getitem__)
            if not isinstance(first, Elementwise) or shape_of(first.results[0]) != shape or not self.is_candidate(first):
                return None
            del ways[first]
            ways |= {reader: self._place(reader) for reader in users(first.results[0])}
        return None

    def _belongs_to_heavy(self, value: SSAValue, besides: Operation) -> bool:
        """Whether an elementwise chain leads to `value` from a contraction or the like that has no kernel yet."""
        op = value.owner
        while isinstance(op, DlOp) and op is not besides and self.is_candidate(op) and only_user(value) is not None:
            if is_heavy(op, self.longest_row):
                return True
            chain = [v for v in op.operands if isinstance(op, Elementwise) and shape_of(v) == shape_of(value)]
            if not chain:
                return False
            value = chain[0]
            op = value.owner
        return False

    def grow(self, root: DlOp) -> list[DlOp]:
        """The ops of the group that starts with `root`, in program order."""
        group = self._weighted_sums(root)
        if not group:
            space = space_of(root, self.longest_row)
            group = self._joined(root, space)
            if not space.rows and not isinstance(root, Procedure):
                group += self._finished(root, group)
        return sorted(group, key=lambda op: self.position[op])

    def _weighted_sums(self, root: DlOp) -> list[DlOp]:
        """A contraction, what makes weights of its rows, and the contraction that sums by them: softmax(q·kᵀ)·v.

        Empty for what is none, or where kernels of their own are better.
        """
        if not isinstance(root, Contraction) or not self._waits_in_cache(shape_of(root.results[0])):
            return []
        space = Space(shape_of(root.results[0]), takes_rows=True)
        weights = self._joined(root, space)
        results = results_of(weights)
        second = only_user(results[0]) if space.rows and len(results) == 1 else None
        if not isinstance(second, Contraction) or not self.is_candidate(second) or not sums_rows(second, results[0]):
            return []
        if any(c.operands[1] in self.constant for c in (root, second)):
            return []
        if shape_of(results[0])[-1] * FEWEST_ROWS > self.longest_row and (self.exact or not sums_run(second, weights)):
            return []
        group = [*weights, *self._joined(second, space_of(second, self.longest_row))]
        return [*group, *self._finished(second, group)]

    def _waits_in_cache(self, shape: Sequence[Size]) -> bool:
        """Whether a cache holds what becomes of a register tile of rows, and there are enough of them to be shared as tasks.

        Of longer rows it is blocks that wait there, if sums can run.
        """
        machine = self.target.machine
        if not machine.row_tiles or len(shape) < 2 or not is_static(shape) or shape[-2] == 1:
            return False
        *outer, length = (int(size) for size in shape)
        least = machine.block_tiles * self.target.vector_registers
        return 0 < length <= self.longest_row and prod(outer) >= least

    def _joined(self, root: DlOp, space: Space) -> list[DlOp]:
        """`root` and those of its users, and theirs, that fit its space."""
        members: dict[DlOp, None] = {root: None}
        if takes_makers(root, self.longest_row):
            makers = (self._makers([value], root, (), Space(shape_of(value))) for value in root.operands)
            members = dict.fromkeys([*(op for group in makers for op in group), root])
        # The values that others read now, in the group's order, and those of the longest group so far that may be one.
        stored = dict.fromkeys(results_of(members))
        best, kept = len(members), list(stored)
        queue: list[tuple[int, int, Operation]] = []
        queued: set[Operation] = set()
        # What members alone read, and what makes it; others read what makes that, and may join yet.
        waiting: list[SSAValue] = []
        refused: End | None = None
        self._enqueue(root, queue, queued)
        while queue and not space.closed and len(members) < MAX_OPS:
            user = heapq.heappop(queue)[-1]
            if user in members:
                continue
            joining = self._joining(user, members, space, waiting)
            if joining is None:
                refused = End(user, self._refusal(user, space))
                break
            for op in joining:
                members[op] = None
                self._enqueue(op, queue, queued)
                for value in (*op.operands, *op.results):
                    if value.owner in members:
                        if is_stored(value, members):
                            stored[value] = None
                        else:
                            stored.pop(value, None)
            read = (*waiting, *(v for op in joining for v in op.operands))
            waiting = [v for v in read if v.owner not in members and all(use.operation in members for use in v.uses)]
            if not space.holds([shape_of(r) for r in stored]):
                continue
            if not self._only_widens(kept, list(stored), list(members)[best:], members, space):
                best, kept = len(members), list(stored)
        self.end = self._end(list(members), best, space, refused, queue)
        return list(members)[:best]

    def _finished(self, root: DlOp, group: Sequence[DlOp]) -> list[DlOp]:
        """What a group's only result goes through before it is stored."""
        finishing = self._finishing(root, group)
        if finishing:
            reader = min(users(finishing[-1].results[0]), key=self._place, default=None)
            self.end = End(reader, "the result is stored as its readers want it")
        return finishing

    def _end(
        self, members: Sequence[DlOp], kept: int, space: Space, refused: End | None, queue: Sequence[tuple[int, int, Operation]]
    ) -> End:
        """Why a group has no more than the first `kept` of its members."""
        if kept < len(members):
            if space.max_results > 1:
                return End(members[kept], f"the kernel would have more than {space.max_results} results of one size")
            return End(members[kept], "others read what the kernel makes before it, and a kernel like this has one result")
        following = queue[0][-1] if queue else None
        if refused is not None:
            return refused
        if space.closed and following is not None:
            return End(following, f"nothing follows a {members[0].name} in its kernel")
        if following is not None:
            return End(following, f"a kernel has up to {MAX_OPS} ops")
        return End(None, "nothing else reads what it makes")

    def _place(self, op: Operation) -> int:
        return self.position.get(op, len(self.position))

    def _refusal(self, user: Operation, space: Space) -> str:
        """Why an op does not join a group that iterates over `space`."""
        if isinstance(user, func.ReturnOp):
            return RETURNED
        if isinstance(user, DispatchOp):
            return "it is a kernel already, which was formed before this one"
        if isinstance(user, PrintOp):
            return "dlc.debug.print shows it"
        if isinstance(user, Control):
            return "it is a loop or a branch, whose body has kernels of its own"
        if not isinstance(user, DlOp):
            return "it ends the body of a loop or a branch"
        if user in self.joined:
            return "it is made of what kernels write where it is joined"
        if not self.is_candidate(user):
            if not is_view(user, self.alignment):
                return "it has a kernel already, or is a weight"
            reader = min(users(user.results[0]), key=self._place, default=None)
            view = "it is a view of a buffer and costs nothing"
            return view if reader is None else f"{view}; {reader.name} behind it: {self._refusal(reader, space)}"
        if isinstance(user, Contraction | Window):
            return "it reads each element many times: what it reads is in memory, and it begins a kernel"
        if isinstance(user, Elementwise):
            goes = f"it goes over {_shape(shape_of(user.results[0]))}, this kernel over {_shape(space.shape)}"
            return f"{goes}: of one shape they share a kernel"
        if row_axes(user, self.longest_row):
            others = "it reduces other axes than this kernel goes along: of the same ones they share a kernel"
            return others if space.takes_rows else "it reduces rows of its own"
        if isinstance(user, Movement):
            return "it moves elements: who reads them reads through it"
        return "it goes over elements in an order of its own"

    def _only_widens(
        self, kept: Sequence[SSAValue], now: Sequence[SSAValue], added: Sequence[DlOp], members: Container[object], space: Space
    ) -> bool:
        """Whether a group made integers, and the ops added but wider floats of them: who reads those can, too."""
        if not all(is_integer(element_type_of(v)) for v in kept) or _widest(now) <= _widest(kept):
            return False
        read = (v for op in added for v in op.operands if v.owner not in members and v not in self.constant)
        return is_float(element_type_of(now[-1])) and not any(shape_of(v) == space.shape for v in read)

    def _enqueue(self, op: Operation, queue: list[tuple[int, int, Operation]], queued: set[Operation]) -> None:
        for result in op.results:
            for user in users(result) - queued:
                queued.add(user)
                heapq.heappush(queue, (self.position[user], len(queued), user))

    def _joining(
        self, user: Operation, members: Container[Operation | Block], space: Space, waiting: Iterable[SSAValue]
    ) -> list[DlOp] | None:
        """`user`, after producers that join with it, of what is `waiting` among them; None if it must stay outside."""
        if not isinstance(user, DlOp) or not self.is_candidate(user):
            return None
        rows = row_axes(user, self.longest_row)
        if rows and space.takes_rows and rows == (space.rows or rows) and shape_of(user.operands[0]) == space.shape:
            if user.operands[0].owner not in members:
                return None
            space.rows = rows
            return [user]
        if not isinstance(user, Elementwise) or shape_of(user.results[0]) not in space.shapes:
            return None
        return [*self._makers([*waiting, *user.operands], user, members, space), user]

    def _makers(
        self, values: Iterable[SSAValue], user: DlOp, members: Container[Operation | Block], space: Space
    ) -> list[DlOp]:
        """The ops that make `values` for a group and `user` alone, in program order; others another kernel had better compute.

        They are the most that make what only they, the group and `user` read, and read nothing that others compute in a kernel
        of elementwise ops or a heavier one. What the program returns is stored by whichever kernel makes it.
        """
        made: dict[Operation | Block, None] = {}

        def read_elsewhere(op: DlOp) -> bool:
            for result in op.results:
                for use in result.uses:
                    reader = use.operation
                    if reader is user or reader in made or reader in members:
                        continue
                    if space.max_results == 1 or not isinstance(reader, func.ReturnOp):
                        return True
            return False

        # The last first: who reads an op has been met before it.
        queue: list[tuple[int, int, Operation]] = []
        queued: set[Operation] = set()
        pending = [value.owner for value in values]
        while (queue or pending) and len(made) < MAX_OPS:
            for op in pending:
                if isinstance(op, Operation) and op not in queued:
                    queued.add(op)
                    heapq.heappush(queue, (-self._place(op), len(queued), op))
            pending = []
            if queue:
                op = heapq.heappop(queue)[-1]
                if op not in members and self._fits(op, space) and not read_elsewhere(op):
                    made[op] = None
                    pending = [value.owner for value in op.operands]
        pending = list(made)
        while pending:
            op = pending.pop()
            if op not in made or not isinstance(op, DlOp):
                continue
            if read_elsewhere(op) or any(v.owner not in made and not self._is_there(v, members) for v in op.operands):
                del made[op]
                pending += [*(r for result in op.results for r in users(result)), *(v.owner for v in op.operands)]
        return sorted((op for op in made if isinstance(op, DlOp)), key=self._place)

    def _fits(self, op: Operation | Block, space: Space) -> TypeGuard[DlOp]:
        """Whether what an op makes may be made in a kernel that goes over `space`, for what reads it there."""
        if isinstance(op, Elementwise):
            shape = shape_of(op.results[0])
            return bool(shape) and shape in space.shapes and self.is_candidate(op)
        if not space.rows or not isinstance(op, DlOp) or row_axes(op, self.longest_row) != space.rows:
            return False
        return shape_of(op.operands[0]) == space.shape and self.is_candidate(op)

    def _is_there(self, value: SSAValue, members: Container[Operation | Block]) -> bool:
        """Whether a kernel can read a value that it does not make without taking its maker from a kernel it belongs to."""
        op = value.owner
        if op in members or not isinstance(op, DlOp) or not self.is_candidate(op) or not shape_of(value):
            return True
        return isinstance(op, Movement) or space_of(op, self.longest_row).closed

    def _finishing(self, root: DlOp, group: Sequence[DlOp]) -> list[DlOp]:
        """A transpose and a pad that the group's only result goes through before it is stored."""
        results = results_of(group)
        if len(results) != 1:
            return []
        value, finishing = results[0], list[DlOp]()
        reader = only_user(value)
        if isinstance(reader, TransposeOp) and not isinstance(root, Movement | ConcatOp | PadOp):
            finishing.append(reader)
            value = reader.result
        pads = [u for u in users(value) if isinstance(u, PadOp) and is_border(u, value)]
        pad = min(pads, key=lambda u: self.position[u], default=None)
        if pad is not None and all(
            _reads_crop(u.operation, u.index, self.longest_row) for u in value.uses if u.operation is not pad
        ):
            finishing.append(pad)
        return finishing


def _shape(sizes: Sequence[Size]) -> str:
    return "×".join(map(str, sizes)) or "a single number"


def only_user(value: SSAValue) -> Operation | None:
    """The op that reads `value`, if it is one."""
    readers = users(value)
    return next(iter(readers)) if len(readers) == 1 else None


def results_of(members: Iterable[DlOp]) -> list[SSAValue]:
    """The values of a group that others read, in the group's order; a procedure stores all that it makes."""
    inside = dict.fromkeys(members)
    return [r for op in inside for r in op.results if is_stored(r, inside)]


def is_stored(value: SSAValue, inside: Container[Operation]) -> bool:
    """Whether others read a value of a group."""
    return isinstance(value.owner, Procedure) or any(use.operation not in inside for use in value.uses)


def _widest(values: Iterable[SSAValue]) -> int:
    """The most bytes of an element of any of these."""
    return max(numpy_dtype(element_type_of(v)).itemsize for v in values)


def is_border(pad: PadOp, value: SSAValue) -> bool:
    """Whether a pad surrounds `value` with a known number."""
    known = pad.mode == "constant" and splat(pad.value) is not None
    return pad.x is value and known and min(*ints(pad.low), *ints(pad.high)) >= 0


def _reads_crop(user: Operation, index: int, longest_row: int) -> bool:
    """Whether the kernel of `user` can read operand `index` as a part of a padded tensor."""
    if isinstance(user, Elementwise | Movement | Contraction | Window | PadOp | ConcatOp):
        return True
    return index == 0 and bool(row_axes(user, longest_row))

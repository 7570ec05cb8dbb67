"""Deciding which ops share a kernel.

A group grows from a root, in program order, by the users of its values, and stops at the first user that cannot join. So a
group can run where its last op stood: everything it reads is there, and everybody who reads it comes later. No cycle can
arise.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Sequence
from math import prod

from dlc.dialects.dl.base import DlOp, element_type_of, ints, shape_of
from dlc.dialects.dl.dtypes import is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Contraction, Elementwise, Movement, Procedure, Window
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, TransposeOp
from dlc.dims import Size, is_static
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.dl.rewriting import splat, users
from dlc.passes.fusion.candidates import MAX_OPS, Candidates
from dlc.passes.fusion.endings import End, refusal
from dlc.passes.fusion.makers import makers
from dlc.passes.fusion.spaces import Space, absorbs, is_heavy, is_long, row_axes, space_of, takes_makers
from dlc.passes.fusion.weighted_sums import sums_rows, sums_run
from dlc.target import Target

# Of a register tile; what waits for a contraction in the cache are as many rows or more.
FEWEST_ROWS = 8


class Grouper:
    """Chooses groups of candidates; `end` is where the last one ended."""

    def __init__(self, candidates: Candidates, target: Target, exact: bool) -> None:
        self.candidates = candidates
        # Whether sums are to be those of the ops as they stand.
        self.exact = exact
        self.longest_row = target.machine.row_elements
        self.target = target
        self.end = End(None, "")

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
        ways = {reader: self.candidates.place(reader) for reader in users(op.results[0])}
        for _ in range(MAX_OPS):
            if len(ways) < 2:
                return next(iter(ways), None)
            first = min(ways, key=ways.__getitem__)
            if not isinstance(first, Elementwise) or shape_of(first.results[0]) != shape or first not in self.candidates:
                return None
            del ways[first]
            ways |= {reader: self.candidates.place(reader) for reader in users(first.results[0])}
        return None

    def _belongs_to_heavy(self, value: SSAValue, besides: Operation) -> bool:
        """Whether an elementwise chain leads to `value` from a contraction or the like that has no kernel yet."""
        op = value.owner
        while isinstance(op, DlOp) and op is not besides and op in self.candidates and only_user(value) is not None:
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
        return sorted(group, key=lambda op: self.candidates.position[op])

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
        if not isinstance(second, Contraction) or second not in self.candidates or not sums_rows(second, results[0]):
            return []
        if any(c.operands[1] in self.candidates.constant for c in (root, second)):
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
            made = (makers(self.candidates, [value], root, (), Space(shape_of(value))) for value in root.operands)
            members = dict.fromkeys([*(op for group in made for op in group), root])
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
                refused = End(user, refusal(self.candidates, user, space))
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
            reader = min(users(finishing[-1].results[0]), key=self.candidates.place, default=None)
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

    def _only_widens(
        self, kept: Sequence[SSAValue], now: Sequence[SSAValue], added: Sequence[DlOp], members: Container[object], space: Space
    ) -> bool:
        """Whether a group made integers, and the ops added but wider floats of them: who reads those can, too."""
        if not all(is_integer(element_type_of(v)) for v in kept) or _widest(now) <= _widest(kept):
            return False
        read = (v for op in added for v in op.operands if v.owner not in members and v not in self.candidates.constant)
        return is_float(element_type_of(now[-1])) and not any(shape_of(v) == space.shape for v in read)

    def _enqueue(self, op: Operation, queue: list[tuple[int, int, Operation]], queued: set[Operation]) -> None:
        for result in op.results:
            for user in users(result) - queued:
                queued.add(user)
                heapq.heappush(queue, (self.candidates.position[user], len(queued), user))

    def _joining(
        self, user: Operation, members: Container[Operation | Block], space: Space, waiting: Iterable[SSAValue]
    ) -> list[DlOp] | None:
        """`user`, after producers that join with it, of what is `waiting` among them; None if it must stay outside."""
        if not isinstance(user, DlOp) or user not in self.candidates:
            return None
        rows = row_axes(user, self.longest_row)
        if rows and space.takes_rows and rows == (space.rows or rows) and shape_of(user.operands[0]) == space.shape:
            if user.operands[0].owner not in members:
                return None
            space.rows = rows
            return [user]
        if not isinstance(user, Elementwise) or shape_of(user.results[0]) not in space.shapes:
            return None
        joining = [*makers(self.candidates, [*waiting, *user.operands], user, members, space), user]
        return joining if space.takes_long or not any(map(is_long, joining)) else None

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
        pad = min(pads, key=lambda u: self.candidates.position[u], default=None)
        if pad is not None and all(
            _reads_crop(u.operation, u.index, self.longest_row) for u in value.uses if u.operation is not pad
        ):
            finishing.append(pad)
        return finishing


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

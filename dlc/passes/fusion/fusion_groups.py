"""Choose the ops that are fused into a kernel.

A group starts at a root op. In program order, users of its values are added, until the first one that cannot be. So the
kernel can run at the position of its last op: all operands are available there, and all users are later. No cycle
can arise.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Sequence
from math import prod
from typing import TypeGuard

from dlc.dialects.dl.base import DlOp, element_type_of, has_symbolic_dims, ints, shape_of
from dlc.dialects.dl.dtypes import is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Contraction, DataMovement, Elementwise, LibraryKernel, StagedComposite, Window
from dlc.dialects.dl.movement.indexing import IndexedRead
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, TransposeOp
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.dl.rewriting import splat, users
from dlc.passes.fusion.attention_patterns import allows_online_softmax, is_attention_product
from dlc.passes.fusion.candidates import MAX_KERNEL_OPS, Candidates
from dlc.passes.fusion.fusion_refusals import GroupEnd, refusal_reason
from dlc.passes.fusion.iteration_spaces import (
    IterationSpace,
    can_fuse_movement,
    choose_iteration_space,
    fuses_producers,
    is_fusion_root,
    is_scalarized,
    row_axes,
)
from dlc.passes.fusion.producers import find_producers
from dlc.shapes.dims import Size, is_static
from dlc.target import Target

# Minimum rows of scores that a cache must hold: a register tile.
MIN_CACHED_ROWS = 8


class FusionGrouper:
    """Choose groups of candidates; `end` records where the last group ended, and why."""

    def __init__(self, candidates: Candidates, target: Target, exact: bool) -> None:
        self.candidates = candidates
        # Forbid transformations that change the order of additions.
        self.exact = exact
        self.max_row_elements = target.costs.max_row_elements
        self.target = target
        self.end = GroupEnd(None, "")

    def should_wait(self, root: DlOp) -> bool:
        """Return whether `root` should not start a group yet, because its users or another root may fuse it."""
        if isinstance(root, DataMovement):
            return all(can_fuse_movement(use.operation, use.index, root) for r in root.results for use in r.uses)
        if self._is_nested_concat(root):
            return True
        if not isinstance(root, Elementwise):
            return False
        previous, user = root, self._single_consumer(root)
        for _ in range(MAX_KERNEL_OPS):
            if not isinstance(user, Elementwise) or shape_of(user.results[0]) != shape_of(root.results[0]):
                return fuses_producers(user, self.max_row_elements)
            if any(self._follows_pending_root(v, previous) for v in user.operands):
                return True
            previous, user = user, self._single_consumer(user)
        return False

    def _single_consumer(self, op: Elementwise) -> Operation | None:
        """Return the only user of an elementwise op's result, or the op where all paths from it join; else None.

        All ops on these paths must be elementwise and have the same shape.
        """
        shape = shape_of(op.results[0])
        pending = {user: self.candidates.position_of(user) for user in users(op.results[0])}
        for _ in range(MAX_KERNEL_OPS):
            if len(pending) < 2:
                return next(iter(pending), None)
            first = min(pending, key=pending.__getitem__)
            if not isinstance(first, Elementwise) or shape_of(first.results[0]) != shape or first not in self.candidates:
                return None
            del pending[first]
            pending |= {user: self.candidates.position_of(user) for user in users(first.results[0])}
        return None

    def _follows_pending_root(self, value: SSAValue, excluded: Operation) -> bool:
        """Return whether `value` is computed elementwise from a contraction or similar op that is not in a kernel yet."""
        op = value.owner
        while isinstance(op, DlOp) and op is not excluded and op in self.candidates and single_user(value) is not None:
            if is_fusion_root(op, self.max_row_elements):
                return True
            same_shape_operands = [v for v in op.operands if isinstance(op, Elementwise) and shape_of(v) == shape_of(value)]
            if not same_shape_operands:
                return False
            value = same_shape_operands[0]
            op = value.owner
        return False

    def grow(self, root: DlOp) -> list[DlOp]:
        """Return the ops of the group that starts with `root`, in program order."""
        group = self._attention_group(root)
        if not group:
            space = choose_iteration_space(root, self.max_row_elements)
            group = self._grow_in_space(root, space)
            if not space.row_axes and not isinstance(root, LibraryKernel):
                group += self._add_epilogue(root, group)
        return sorted(group, key=lambda op: self.candidates.position[op])

    def _attention_group(self, root: DlOp) -> list[DlOp]:
        """Return the ops of softmax(q·kᵀ)·v: both contractions, and the softmax of rows of scores between them.

        Empty for other ops, or if separate kernels are better.
        """
        if not isinstance(root, Contraction) or not self._rows_fit_cache(shape_of(root.results[0])):
            return []
        space = IterationSpace(shape_of(root.results[0]), accepts_row_ops=True)
        weights = self._grow_in_space(root, space)
        results = results_of(weights)
        output_op = single_user(results[0]) if space.row_axes and len(results) == 1 else None
        if (
            not isinstance(output_op, Contraction)
            or output_op not in self.candidates
            or not is_attention_product(output_op, results[0])
        ):
            return []
        operands = (*root.operands, *output_op.operands)
        if any(map(has_symbolic_dims, operands)) or any(v in self.candidates.constant for v in operands[1::2]):
            return []
        if shape_of(results[0])[-1] * MIN_CACHED_ROWS > self.max_row_elements and (
            self.exact or not allows_online_softmax(output_op, weights)
        ):
            return []
        group = [*weights, *self._grow_in_space(output_op, choose_iteration_space(output_op, self.max_row_elements))]
        return [*group, *self._add_epilogue(output_op, group)]

    def _rows_fit_cache(self, shape: Sequence[Size]) -> bool:
        """Return whether a cache holds the rows of scores of a register tile, and there are enough rows for parallel tasks.

        For longer rows, the cache holds key blocks if an online softmax applies.
        """
        costs = self.target.costs
        if not costs.row_tiles or len(shape) < 2 or not is_static(shape) or shape[-2] == 1:
            return False
        *outer, length = (int(size) for size in shape)
        min_rows = costs.min_tiles_per_panel * self.target.vector_registers
        return 0 < length <= self.max_row_elements and prod(outer) >= min_rows

    def _grow_in_space(self, root: DlOp, space: IterationSpace) -> list[DlOp]:
        """Return `root` and its direct and indirect users that fit its iteration space."""
        members: dict[DlOp, None] = {root: None}
        if fuses_producers(root, self.max_row_elements):
            members = dict.fromkeys([*self._fused_producers(root), root])
        # The results of the current group, in order, and those of the largest legal group so far.
        stored_values = dict.fromkeys(results_of(members))
        best_size, best_results = len(members), list(stored_values)
        queue: list[tuple[int, int, Operation]] = []
        queued: set[Operation] = set()
        # Operands that only members use; their producers are fused once members are their only users.
        deferred_operands: list[SSAValue] = []
        refusal: GroupEnd | None = None
        self._enqueue(root, queue, queued)
        while queue and not space.is_closed and len(members) < MAX_KERNEL_OPS:
            user = heapq.heappop(queue)[-1]
            if user in members:
                continue
            fused_ops = self._ops_to_fuse(user, members, space, deferred_operands)
            if fused_ops is None:
                refusal = GroupEnd(user, refusal_reason(self.candidates, user, space))
                break
            for op in fused_ops:
                members[op] = None
                self._enqueue(op, queue, queued)
                for value in (*op.operands, *op.results):
                    if value.owner in members:
                        if is_stored(value, members):
                            stored_values[value] = None
                        else:
                            stored_values.pop(value, None)
            operands = (*deferred_operands, *(v for op in fused_ops for v in op.operands))
            deferred_operands = [
                v for v in operands if v.owner not in members and all(use.operation in members for use in v.uses)
            ]
            if not space.allows_results([shape_of(r) for r in stored_values]):
                continue
            if not self._only_converts_to_float(best_results, list(stored_values), list(members)[best_size:], members, space):
                best_size, best_results = len(members), list(stored_values)
        self.end = self._reason_for_end(list(members), best_size, space, refusal, queue)
        return list(members)[:best_size]

    def _fused_producers(self, root: DlOp) -> Iterator[DlOp]:
        """Yield the ops that compute the operands of `root` in its kernel; nested concatenations become one."""
        for value in root.operands:
            if self._is_nested_concat(value.owner):
                yield from self._fused_producers(value.owner)
                yield value.owner
            else:
                yield from find_producers(self.candidates, [value], root, (), IterationSpace(shape_of(value)))

    def _is_nested_concat(self, op: Operation | Block) -> TypeGuard[ConcatOp]:
        """Return whether an op is a concatenation that only another concatenation reads, once."""
        if not isinstance(op, ConcatOp) or op not in self.candidates or not op.results[0].has_one_use():
            return False
        user = single_user(op.results[0])
        return isinstance(user, ConcatOp) and user in self.candidates

    def _add_epilogue(self, root: DlOp, group: Sequence[DlOp]) -> list[DlOp]:
        """Return the transpose and pad that store the group's only result, and record them as the end of the group."""
        epilogue = self._epilogue(root, group)
        if epilogue:
            user = min(users(epilogue[-1].results[0]), key=self.candidates.position_of, default=None)
            self.end = GroupEnd(user, "the result is stored in the layout that its users read")
        return epilogue

    def _reason_for_end(
        self,
        members: Sequence[DlOp],
        num_members: int,
        space: IterationSpace,
        refusal: GroupEnd | None,
        queue: Sequence[tuple[int, int, Operation]],
    ) -> GroupEnd:
        """Return where and why a group ends after its first `num_members` members."""
        if num_members < len(members):
            if space.max_results > 1:
                return GroupEnd(
                    members[num_members], f"the kernel would have more than {space.max_results} results of one shape"
                )
            return GroupEnd(
                members[num_members], "other ops read the value before it, and a kernel of this kind has one result"
            )
        next_op = queue[0][-1] if queue else None
        if refusal is not None:
            return refusal
        if space.is_closed and next_op is not None:
            return GroupEnd(next_op, f"a kernel of {members[0].name} fuses no other ops")
        if next_op is not None:
            return GroupEnd(next_op, f"a kernel has at most {MAX_KERNEL_OPS} ops")
        return GroupEnd(None, "no other op reads the result")

    def _only_converts_to_float(
        self,
        old_results: Sequence[SSAValue],
        new_results: Sequence[SSAValue],
        added_ops: Sequence[DlOp],
        members: Container[object],
        space: IterationSpace,
    ) -> bool:
        """Return whether added ops only convert the group's integers to wider floats, which users can do themselves.

        A contraction cannot: it would convert an element for each product.
        """
        if not all(is_integer(element_type_of(v)) for v in old_results) or _widest(new_results) <= _widest(old_results):
            return False
        if any(isinstance(user, Contraction) for user in _users_after_movement(new_results[-1])):
            return False
        inputs = (v for op in added_ops for v in op.operands if v.owner not in members and v not in self.candidates.constant)
        return is_float(element_type_of(new_results[-1])) and not any(shape_of(v) == space.shape for v in inputs)

    def _enqueue(self, op: Operation, queue: list[tuple[int, int, Operation]], queued: set[Operation]) -> None:
        """Queue the users of an op's results, by their position."""
        for result in op.results:
            for user in users(result) - queued:
                queued.add(user)
                heapq.heappush(queue, (self.candidates.position[user], len(queued), user))

    def _ops_to_fuse(
        self,
        user: Operation,
        members: Container[Operation | Block],
        space: IterationSpace,
        deferred_operands: Iterable[SSAValue],
    ) -> list[DlOp] | None:
        """Return the ops to fuse: `user`, preceded by producers, also of `deferred_operands`; None if it cannot be fused."""
        if not isinstance(user, DlOp) or user not in self.candidates:
            return None
        rows = row_axes(user, self.max_row_elements)
        if rows and space.accepts_row_ops and rows == (space.row_axes or rows) and shape_of(user.operands[0]) == space.shape:
            if user.operands[0].owner not in members:
                return None
            space.row_axes = rows
            return [user]
        if not isinstance(user, Elementwise) or shape_of(user.results[0]) not in space.shapes:
            return None
        fused_ops = [*find_producers(self.candidates, [*deferred_operands, *user.operands], user, members, space), user]
        return fused_ops if space.accepts_scalarized_ops or not any(map(is_scalarized, fused_ops)) else None

    def _epilogue(self, root: DlOp, group: Sequence[DlOp]) -> list[DlOp]:
        """Return the transpose and the pad that only change the layout of a group's single result; empty if there are none."""
        results = results_of(group)
        if len(results) != 1:
            return []
        value, epilogue = results[0], list[DlOp]()
        user = single_user(value)
        if isinstance(user, TransposeOp) and _can_store_transposed(root, user):
            epilogue.append(user)
            value = user.result
        pads = [u for u in users(value) if isinstance(u, PadOp) and is_constant_pad(u, value)]
        pad = min(pads, key=lambda u: self.candidates.position[u], default=None)
        if pad is not None and all(
            _can_read_padded_slice(u.operation, u.index, self.max_row_elements) for u in value.uses if u.operation is not pad
        ):
            epilogue.append(pad)
        return epilogue


def _can_store_transposed(root: DlOp, transpose: TransposeOp) -> bool:
    """Return whether the kernel of `root` stores its result in the order of a transpose without a loss of speed.

    Data movement is fused into its users instead. The last axis of a gather and of a composite of several stages, which compute
    vectors along it, must stay the last one.
    """
    if isinstance(root, IndexedRead | StagedComposite):
        permutation = ints(transpose.permutation)
        return permutation[-1] == len(permutation) - 1
    return not isinstance(root, DataMovement | ConcatOp | PadOp)


def single_user(value: SSAValue) -> Operation | None:
    """Return the only op that reads `value`, or None."""
    value_users = users(value)
    return next(iter(value_users)) if len(value_users) == 1 else None


def results_of(members: Iterable[DlOp]) -> list[SSAValue]:
    """Return the values of a group that other ops read, in order, and all results of library kernels."""
    group = dict.fromkeys(members)
    return [r for op in group for r in op.results if is_stored(r, group)]


def is_stored(value: SSAValue, group: Container[Operation]) -> bool:
    """Return whether a value of a group is a result: an op outside reads it, or a library kernel computes it."""
    return isinstance(value.owner, LibraryKernel) or any(use.operation not in group for use in value.uses)


def _widest(values: Iterable[SSAValue]) -> int:
    """Return the maximum element size in bytes."""
    return max(numpy_dtype(element_type_of(v)).itemsize for v in values)


def is_constant_pad(pad: PadOp, value: SSAValue) -> bool:
    """Return whether a pad extends `value` by a constant."""
    is_constant = pad.mode == "constant" and splat(pad.value) is not None
    return pad.x is value and is_constant and min(*ints(pad.low), *ints(pad.high)) >= 0


def _can_read_padded_slice(user: Operation, index: int, max_row_elements: int) -> bool:
    """Return whether the kernel of `user` can read operand `index` as a slice of a padded tensor."""
    if isinstance(user, Elementwise | DataMovement | Contraction | Window | PadOp | ConcatOp):
        return True
    return index == 0 and bool(row_axes(user, max_row_elements))


def _users_after_movement(value: SSAValue) -> Iterator[Operation]:
    """Yield the users of a value, and those of its padded or transposed copies."""
    for user in users(value):
        if isinstance(user, PadOp | TransposeOp):
            yield from _users_after_movement(user.result)
        else:
            yield user

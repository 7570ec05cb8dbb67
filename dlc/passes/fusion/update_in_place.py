"""Update loop states in place if a step changes only some rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlc.dialects.dl.base import attribute
from dlc.dialects.dl.programs.control import ScanOp, WhileOp, captured_values
from dlc.dialects.dl.programs.program import OUTPUT_ALIASES, DispatchOp, YieldOp, output_aliases
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, walk_ops
from dlc.passes.dl.rewriting import users
from dlc.passes.fusion.kernel_table import KernelTable
from dlc.passes.fusion.reuse_donated import readers, replaces_rows, set_output_alias
from dlc.passes.views import in_place_updates, result_index, source_of


@dataclass(frozen=True)
class UpdateInPlacePass(ModulePass):
    """`update-in-place`: scatter rows directly into a loop's state instead of a copy.

        dl.while %c, %first {                            dl.while %c, %first {
        ^bb0(%rows):                                     ^bb0(%rows):
          …                                         →      …
          %next = dl.dispatch @scatter(%rows, %i, %row)    %next = dl.dispatch @scatter(%rows, %i, %row) {output_aliases = [0]}
          dl.yield %again, %next }                         dl.yield %again, %next }

    Otherwise each step would copy the whole state. `output_aliases` of a dispatch and its kernel gives, for each result, the
    argument whose buffer it reuses, or -1. The kernel then writes only the changed rows. Several dispatches may change the
    state one after the other. No op may read the old state while the kernel runs, or later: a dispatch moves after the readers
    of the state that it changes. A loop has `output_aliases` if it changes the state of the loop around it, or the last state
    of another loop that no other op reads: it works on the same buffer. Run the pass before `dedupe-kernels`, and after passes
    that move dispatches.
    """

    name = "update-in-place"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = KernelTable(op)
        # Inner loops first: an outer one checks whether they update its state in place.
        for loop in reversed(list(walk_ops(op, ScanOp, WhileOp))):
            _alias_states(loop, kernels)
        for loop in walk_ops(op, ScanOp, WhileOp):
            for k, value in enumerate(_states(loop)):
                update = _Update(loop, k, k)
                if _updates_in_place(loop, k) and _is_last_state_for(value, update):
                    _alias(update, kernels)


def _is_last_state_for(value: SSAValue, update: _Update) -> bool:
    """Return whether a value is the last state of a loop that updates it in place, and no other op than the update reads it."""
    loop = value.owner
    return (
        isinstance(loop, ScanOp | WhileOp)
        and loop.parent is update.op.parent
        and _updates_in_place(loop, result_index(value))
        and users(value) == {update.op}
        and _is_read_by_one_argument(value, update)
    )


def _alias_states(loop: ScanOp | WhileOp, kernels: KernelTable) -> None:
    for state, value in zip(loop.block.args, _next_states(loop), strict=False):
        updates = _updates(state, value, kernels)
        # From the last one: an earlier one moves after the readers of the state, at most to the next update.
        if updates and all([_move_after_readers(update) for update in reversed(updates)]):
            for update in updates:
                _alias(update, kernels)


def _alias(update: _Update, kernels: KernelTable) -> None:
    """Make the result of an update reuse the buffer of the argument."""
    op, argument, result = update
    if isinstance(op, DispatchOp):
        set_output_alias(kernels, op, result, argument)
    else:
        aliases = output_aliases(op) | {result: argument}
        op.attributes[OUTPUT_ALIASES] = attribute([aliases.get(k, -1) for k, _ in enumerate(op.results)])


class _Update(NamedTuple):
    """A dispatch or nested loop whose result is its argument with some rows replaced."""

    op: DispatchOp | ScanOp | WhileOp
    argument: int
    result: int


def _updates(state: SSAValue, value: SSAValue, kernels: KernelTable) -> list[_Update]:
    """Return the updates that make a value of a state, in order; none if it is made in another way."""
    updates: list[_Update] = []
    while value is not state:
        op = value.owner
        if not isinstance(op, DispatchOp | ScanOp | WhileOp) or op.parent is not state.owner:
            return []
        result = result_index(value)
        arguments = _replaced_arguments(op, result, kernels)
        if len(arguments) != 1 or (updates and not _is_read_by_one_argument(value, updates[0])):
            return []
        updates.insert(0, _Update(op, arguments[0], result))
        value = source_of(op.arguments[arguments[0]])[0]
    return updates if updates and _is_read_by_one_argument(state, updates[0]) else []


def _replaced_arguments(op: DispatchOp | ScanOp | WhileOp, result: int, kernels: KernelTable) -> list[int]:
    """Return the arguments of which a result is a copy with other rows."""
    if isinstance(op, DispatchOp):
        return [k for k, _ in enumerate(op.arguments) if replaces_rows(kernels[op.symbol], k, result)]
    return [result] if _updates_in_place(op, result) else []


def _updates_in_place(loop: ScanOp | WhileOp, result: int) -> bool:
    """Return whether a result of a loop is a state that the loop updates in place."""
    return result < len(_states(loop)) and bool(in_place_updates(loop.block.args[result], _next_states(loop)[result]))


def _states(loop: ScanOp | WhileOp) -> Sequence[SSAValue]:
    return loop.arguments[: loop.state_count] if isinstance(loop, ScanOp) else loop.arguments


def _next_states(loop: ScanOp | WhileOp) -> Sequence[SSAValue]:
    assert isinstance(loop.block.last_op, YieldOp)
    values = loop.block.last_op.values
    return values[: loop.state_count] if isinstance(loop, ScanOp) else values[1:]


def _is_read_by_one_argument(value: SSAValue, update: _Update) -> bool:
    return [source_of(v)[0] is value for v in _read_values(update.op)].count(True) == 1


def _read_values(op: DispatchOp | ScanOp | WhileOp) -> list[SSAValue]:
    """Return the values that an op and its body read."""
    return [*op.arguments, *(v for region in op.regions for v in captured_values(region.block))]


def _move_after_readers(update: _Update) -> bool:
    """Move an update after the other readers of the state that it changes; return False if one needs the updated value."""
    moved = update.op
    block = moved.parent
    assert block is not None
    old_readers = [op for op in readers(source_of(moved.arguments[update.argument])[0]) if op is not moved]
    later = [op for op in old_readers if moved.is_before_in_block(op)]
    if not later:
        return True
    new_readers = {op for value in moved.results for op in users(value)}
    first_reader = next(op for op in block.ops if op in new_readers)
    if not all(op.is_before_in_block(first_reader) for op in later):
        return False
    sources = {source_of(v)[0] for v in _read_values(moved)}
    op = moved.next_op
    while op is not first_reader:
        # What the update reads may be changed in place on the way.
        if isinstance(op, DispatchOp | ScanOp | WhileOp) and any(
            source_of(op.arguments[k])[0] in sources for k in output_aliases(op).values()
        ):
            return False
        assert op is not None
        op = op.next_op
    moved.detach()
    block.insert_op_before(moved, first_reader)
    return True

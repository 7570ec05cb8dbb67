"""Update loop states in place if a step changes only some rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dlc.dialects.dl.programs.control import LoopLikeOp, ScanOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp, output_aliases
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, walk_ops
from dlc.passes.dl.rewriting import users
from dlc.passes.fusion.reuse_donated import readers, replaces_rows, set_output_alias
from dlc.passes.views import source_of


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
    of the state that it changes. Run it before `dedupe-kernels`, and after passes that move dispatches.
    """

    name = "update-in-place"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = {k.symbol: k for k in op.ops if isinstance(k, KernelOp)}
        for loop in walk_ops(op, LoopLikeOp):
            _alias_states(op, loop, kernels)


def _alias_states(module: ModuleOp, loop: LoopLikeOp, kernels: dict[str, KernelOp]) -> None:
    block = loop.block
    assert isinstance(block.last_op, YieldOp)
    next_states = block.last_op.values[: loop.state_count] if isinstance(loop, ScanOp) else block.last_op.values[1:]
    for state, value in zip(block.args, next_states, strict=False):
        updates = _updates(state, value, kernels)
        # From the last one: an earlier one moves after the readers of the state, at most to the next update.
        if updates and all([_move_after_readers(update) for update in reversed(updates)]):
            for update in updates:
                set_output_alias(module, kernels, update.dispatch, update.result, update.argument)


class _Update(NamedTuple):
    """A dispatch whose result is its argument with some rows replaced."""

    dispatch: DispatchOp
    argument: int
    result: int


def _updates(state: SSAValue, value: SSAValue, kernels: dict[str, KernelOp]) -> list[_Update]:
    """Return the updates that make a value of a state, in order; none if it is made in another way."""
    updates: list[_Update] = []
    while value is not state:
        dispatch = value.owner
        if not isinstance(dispatch, DispatchOp) or dispatch.parent is not state.owner:
            return []
        result, kernel = dispatch.outputs.index(value), kernels[dispatch.symbol]
        arguments = [k for k, _ in enumerate(dispatch.arguments) if replaces_rows(kernel, k, result)]
        if len(arguments) != 1 or (updates and not _is_read_by_one_argument(value, updates[0])):
            return []
        updates.insert(0, _Update(dispatch, arguments[0], result))
        value = source_of(dispatch.arguments[arguments[0]])[0]
    return updates if updates and _is_read_by_one_argument(state, updates[0]) else []


def _is_read_by_one_argument(value: SSAValue, update: _Update) -> bool:
    return [source_of(v)[0] is value for v in update.dispatch.arguments].count(True) == 1


def _move_after_readers(update: _Update) -> bool:
    """Move an update after the other readers of the state that it changes; return False if one needs the updated value."""
    dispatch = update.dispatch
    block = dispatch.parent
    assert block is not None
    old_readers = [op for op in readers(source_of(dispatch.arguments[update.argument])[0]) if op is not dispatch]
    later = [op for op in old_readers if dispatch.is_before_in_block(op)]
    if not later:
        return True
    new_readers = {op for value in dispatch.outputs for op in users(value)}
    first_reader = next(op for op in block.ops if op in new_readers)
    if not all(op.is_before_in_block(first_reader) for op in later):
        return False
    sources = {source_of(v)[0] for v in dispatch.arguments}
    op = dispatch.next_op
    while op is not first_reader:
        # What the update reads may be changed in place on the way.
        if isinstance(op, DispatchOp) and any(source_of(op.arguments[k])[0] in sources for k in output_aliases(op).values()):
            return False
        assert op is not None
        op = op.next_op
    dispatch.detach()
    block.insert_op_before(dispatch, first_reader)
    return True

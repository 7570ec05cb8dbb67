"""Update loop states in place if a step changes only some rows."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.programs.control import LoopLikeOp, ScanOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, walk_ops
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
    argument whose buffer it reuses, or -1. The kernel then writes only the changed rows. No op may read the old state
    while the kernel runs, or later. Run it before `dedupe-kernels`, and after passes that move dispatches.
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
        dispatch = value.owner
        if not isinstance(dispatch, DispatchOp) or dispatch.parent is not block:
            continue
        kernel, result = kernels[dispatch.symbol], dispatch.outputs.index(value)
        operand_indices = [k for k, v in enumerate(dispatch.arguments) if source_of(v)[0] is state]
        if len(operand_indices) == 1 and _is_last_reader(dispatch, state) and replaces_rows(kernel, operand_indices[0], result):
            set_output_alias(module, kernels, dispatch, result, operand_indices[0])


def _is_last_reader(dispatch: DispatchOp, state: SSAValue) -> bool:
    """Return whether a dispatch is the last op of the body that reads a state."""
    return all(op is dispatch or op.is_before_in_block(dispatch) for op in readers(state))

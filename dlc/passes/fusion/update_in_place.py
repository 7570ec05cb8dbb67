"""States of loops of which a step changes some rows."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import attribute, ints
from dlc.dialects.dl.interfaces import Scattering
from dlc.dialects.dl.programs.control import Loop, ScanOp
from dlc.dialects.dl.programs.program import OVER, DispatchOp, KernelOp, YieldOp
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, all_of
from dlc.passes.fusion.reuse_donated import readers
from dlc.passes.views import source_of


@dataclass(frozen=True)
class UpdateInPlacePass(ModulePass):
    """`update-in-place`: rows that a step of a loop scatters into a state are written where the state is.

        dl.while %c, %first {                                  dl.while %c, %first {
        ^bb0(%rows):                                           ^bb0(%rows):
          …                                               →      …
          %next = dl.dispatch @scatter(%rows, %i, %row)          %next = dl.dispatch @scatter(%rows, %i, %row) {over = [0]}
          dl.yield %again, %next }                               dl.yield %again, %next }

    Otherwise each step copies the whole state. `over` says of each result of a dispatch, and of its kernel, which argument's
    memory it takes, -1 of a new one: the kernel finds the argument there and writes nothing but what differs. That is so where
    nothing reads the state as it was when the kernel runs, or later. Requires kernels with one dispatch each, so run it before
    `dedupe-kernels`, and after what moves dispatches.
    """

    name = "update-in-place"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = {k.symbol: k for k in op.ops if isinstance(k, KernelOp)}
        for loop in all_of(op, Loop):
            _mark(loop, kernels)


def _mark(loop: Loop, kernels: dict[str, KernelOp]) -> None:
    block = loop.block
    assert isinstance(block.last_op, YieldOp)
    following = block.last_op.values[: loop.state_count] if isinstance(loop, ScanOp) else block.last_op.values[1:]
    for state, value in zip(block.args, following, strict=False):
        dispatch = value.owner
        if not isinstance(dispatch, DispatchOp) or dispatch.parent is not block:
            continue
        kernel, result = kernels[dispatch.symbol], dispatch.outputs.index(value)
        places = [k for k, v in enumerate(dispatch.arguments) if source_of(v)[0] is state]
        if len(places) == 1 and _is_last_reader(dispatch, state) and _is_changed(kernel, places[0], result):
            over = list(ints(dispatch.attributes.get(OVER))) or [-1] * len(dispatch.outputs)
            over[result] = places[0]
            dispatch.attributes[OVER] = kernel.attributes[OVER] = attribute(over)


def _is_last_reader(dispatch: DispatchOp, state: SSAValue) -> bool:
    """Whether nothing of the body reads a state behind a dispatch, not even the next step."""
    return all(op is dispatch or op.is_before_in_block(dispatch) for op in readers(state))


def _is_changed(kernel: KernelOp, argument: int, result: int) -> bool:
    """Whether a result of a kernel is an argument with other rows, and nothing else reads that."""
    given, made = kernel.body.block.args[argument], kernel.yielded[result]
    op = made.owner
    return isinstance(op, Scattering) and op.operands[0] is given and given.has_one_use() and made.has_one_use()

"""Reasons why a kernel does not contain more ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.interfaces import Contraction, DataMovement, Elementwise, Window
from dlc.dialects.dl.programs.control import Control, PrintOp
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.ir import Operation, func
from dlc.passes.dl.rewriting import users
from dlc.passes.fusion.candidates import Candidates
from dlc.passes.fusion.iteration_spaces import IterationSpace, is_scalarized, row_axes
from dlc.shapes.dims import Size

# The reason if the group's result is a result of the program.
RETURNED = "the program returns it"


@dataclass(frozen=True)
class GroupEnd:
    """The end of a group: the next op, which was not fused (None if there is no user), and the reason."""

    op: Operation | None
    reason: str


def refusal_reason(candidates: Candidates, user: Operation, space: IterationSpace) -> str:
    """Return why an op is not fused into a group that iterates over `space`."""
    if isinstance(user, func.ReturnOp):
        return RETURNED
    if isinstance(user, DispatchOp):
        return "it is already a kernel, formed before this one"
    if isinstance(user, PrintOp):
        return "dlc.debug.print prints it"
    if isinstance(user, Control):
        return "it is a loop or a branch; its body has separate kernels"
    if not isinstance(user, DlOp):
        return "it ends the body of a loop or a branch"
    if user in candidates.fused_concats:
        return "it is a concatenation; kernels write its operands directly into the result"
    if user not in candidates:
        if not candidates.is_view(user):
            return "it is already in a kernel, or is a weight expression"
        next_user = min(users(user.results[0]), key=candidates.position_of, default=None)
        view = "it is a view of a buffer and costs nothing"
        return (
            view if next_user is None else f"{view}; {next_user.name} after it: {refusal_reason(candidates, next_user, space)}"
        )
    if isinstance(user, Contraction | Window):
        return "it reads each element several times, so its operands must be in memory: it starts a kernel"
    if isinstance(user, Elementwise):
        if not space.accepts_scalarized_ops and is_scalarized(user):
            return "its code is long, and would be duplicated for each tile size of the dynamic shape"
        shapes = f"its shape is {_shape(shape_of(user.results[0]))}, this kernel's is {_shape(space.shape)}"
        return f"{shapes}; fusion needs equal shapes"
    if row_axes(user, candidates.max_row_elements):
        return (
            "it reduces other axes than this kernel does"
            if space.accepts_row_ops
            else "it reduces rows, which this kernel does not"
        )
    if isinstance(user, DataMovement):
        return "it is data movement: its users fuse it"
    return "it iterates in another order"


def _shape(sizes: Sequence[Size]) -> str:
    return "×".join(map(str, sizes)) or "scalar"

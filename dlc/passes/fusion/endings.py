"""Why a kernel ends where it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.interfaces import Contraction, Elementwise, Movement, Window
from dlc.dialects.dl.programs.control import Control, PrintOp
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dims import Size
from dlc.ir import Operation, func
from dlc.passes.dl.rewriting import users
from dlc.passes.fusion.candidates import Candidates
from dlc.passes.fusion.spaces import Space, is_long, row_axes

# It ends where the program does.
RETURNED = "the program returns it"


@dataclass(frozen=True)
class End:
    """Where a group ended: the op that would have been next (None: nobody reads it there), and why it did not join."""

    op: Operation | None
    reason: str


def refusal(candidates: Candidates, user: Operation, space: Space) -> str:
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
    if user in candidates.joined:
        return "it is made of what kernels write where it is joined"
    if user not in candidates:
        if not candidates.is_view(user):
            return "it has a kernel already, or is a weight"
        reader = min(users(user.results[0]), key=candidates.place, default=None)
        view = "it is a view of a buffer and costs nothing"
        return view if reader is None else f"{view}; {reader.name} behind it: {refusal(candidates, reader, space)}"
    if isinstance(user, Contraction | Window):
        return "it reads each element many times: what it reads is in memory, and it begins a kernel"
    if isinstance(user, Elementwise):
        if not space.takes_long and is_long(user):
            return "its code is long, and tiles of open sizes are of many kinds, each of which would have it"
        goes = f"it goes over {_shape(shape_of(user.results[0]))}, this kernel over {_shape(space.shape)}"
        return f"{goes}: of one shape they share a kernel"
    if row_axes(user, candidates.longest_row):
        others = "it reduces other axes than this kernel goes along: of the same ones they share a kernel"
        return others if space.takes_rows else "it reduces rows of its own"
    if isinstance(user, Movement):
        return "it moves elements: who reads them reads through it"
    return "it goes over elements in an order of its own"


def _shape(sizes: Sequence[Size]) -> str:
    return "×".join(map(str, sizes)) or "a single number"

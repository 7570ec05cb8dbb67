"""Which rule an op has, and what is active: computed from what is differentiated by."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.programs.control import Control, captured
from dlc.dialects.places import place
from dlc.errors import UnsupportedError
from dlc.ir import (
    Block,
    LocationAttr,
    NameLoc,
    Operation,
    SSAValue,
    StringAttr,
    UnknownLoc,
)
from dlc.passes.autodiff.partials import ELEMENTWISE
from dlc.passes.autodiff.tangents import TANGENTS
from dlc.passes.autodiff.transposes import TRANSPOSES
from dlc.passes.dl.rewriting import decompose_in_place

# The name of a location that has another inside: what the derivative is of.
DERIVATIVE = "derivative"
# Ops whose result does not follow a small step: its derivative is zero by definition.
ZERO: tuple[type[DlOp], ...] = (dl.StopGradientOp, dl.BitcastOp)
_LATER = "the compiler makes it when derivatives are done"
_FACTORS = "dlc.numpy.linalg has the derivatives of what is made of it, but of all columns of Q or U where these are chosen"
# Ops of floats that have no derivative, with the reason.
NO_DERIVATIVE: dict[type[DlOp], str] = {
    dl.UniqueOp: "which values are different is not a matter of small steps; take the places it gives, and gather",
    **dict.fromkeys((dl.NonMaxSuppressionOp, dl.SuppressOp), "it gives places"),
    dl.ForestOp: "its result changes in jumps",
    **dict.fromkeys((dl.HouseholderOp, dl.OrthogonalOp, dl.EighOp, dl.SvdOp), _FACTORS),
    dl.PackOp: _LATER,
    dl.UnpackOp: _LATER,
    dl.ModeProductOp: _LATER,
    dl.MatmulWordsOp: _LATER,
    dl.MatmulDotsOp: _LATER,
    dl.AccumulateOp: _LATER,
    dl.SortColumnsOp: _LATER,
}


def is_ruled(op: Operation) -> bool:
    """Whether an op has a rule of its own, so that it is not decomposed."""
    return (
        isinstance(op, Control | dl.YieldOp | dl.FailOp)
        or type(op) in ELEMENTWISE
        or type(op) in TRANSPOSES
        or type(op) in TANGENTS
    )


def is_differentiable(value: SSAValue) -> bool:
    """Whether a value can have a tangent: it is of floats."""
    return is_float(element_type_of(value))


def read_by(op: Operation) -> Iterable[SSAValue]:
    """What an op reads, that of its bodies included."""
    return [*op.operands, *(v for region in op.regions for v in captured(region.block))]


def activate(block: Block, wrt: Iterable[SSAValue]) -> set[SSAValue]:
    """The values of a block that follow a small step of `wrt`; what has no rule among them is decomposed.

    Raises UnsupportedError, naming the place, for an op that has no derivative.
    """
    active = set(wrt)
    op = block.first_op
    while op is not None:
        following = op.next_op
        floats = [r for r in op.results if is_differentiable(r)]
        if floats and type(op) not in ZERO and not active.isdisjoint(read_by(op)):
            if is_ruled(op):
                active.update(floats if isinstance(op, Control) else floats[:1])
            elif isinstance(op, Composite):
                following = decompose_in_place(op)
            else:
                raise UnsupportedError(_refusal(op))
        op = following
    return active


def _refusal(op: Operation) -> str:
    reason = NO_DERIVATIVE.get(type(op), "it has no rule") if isinstance(op, DlOp) else "it has no rule"
    return (
        f"{place(op.location)}{op.name} has no derivative: {reason}; dlc.stop_gradient around its operand takes it as constant"
    )


def derived(location: LocationAttr) -> LocationAttr:
    """Where an op of a derivative comes from."""
    return location if isinstance(location, UnknownLoc) else NameLoc(StringAttr(DERIVATIVE), location)

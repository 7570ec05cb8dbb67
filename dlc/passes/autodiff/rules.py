"""Activity analysis: which values depend on the differentiated ones, and whether their ops have rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.library_kernels.loops import WITHOUT_DERIVATIVE
from dlc.dialects.dl.programs.control import Control, read_values
from dlc.dialects.location_text import location_prefix
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
from dlc.passes.autodiff.jvp_rules import JVP_RULES
from dlc.passes.autodiff.partials import PARTIALS
from dlc.passes.autodiff.transpose_rules import TRANSPOSE_RULES
from dlc.passes.dl.rewriting import decompose_in_place
from dlc.plugins.tables import ExtensionTable

# The name of the location that wraps the location of the differentiated op.
DERIVATIVE = "derivative"
# Ops whose derivative is zero by definition.
ZERO: tuple[type[DlOp], ...] = (dl.StopGradientOp, dl.BitcastOp, dl.ViewAsOp)
_CREATED_AFTER_AUTODIFF = "the compiler only creates it after differentiation"
_FACTORIZATION_HINT = "differentiate the functions of dlc.numpy.linalg that use it, without the complete columns of Q or U"
# Ops of floats that have no derivative, with the reason.
NO_DERIVATIVE: ExtensionTable[type[DlOp], str] = ExtensionTable(
    "no_derivative",
    {
        dl.UniqueOp: "the set of unique values is discrete; gather at the indices it returns instead",
        **dict.fromkeys((dl.NonMaxSuppressionOp, dl.SuppressOverlapsOp), "it returns indices"),
        dl.TreeEnsembleOp: "it is piecewise constant",
        dl.LoopsOp: "its loops have no automatic derivative, or one that is for reverse mode, or for fewer orders, only",
        dl.ForeignCallOp: "its function is opaque",
        dl.AxisIndexOp: "it returns an index",
        **dict.fromkeys((dl.HouseholderOp, dl.OrthogonalOp, dl.EigOp, dl.EighOp, dl.SvdOp), _FACTORIZATION_HINT),
        dl.PackOp: _CREATED_AFTER_AUTODIFF,
        dl.UnpackOp: _CREATED_AFTER_AUTODIFF,
        dl.ModeProductOp: _CREATED_AFTER_AUTODIFF,
        dl.MatmulWeightOnlyOp: _CREATED_AFTER_AUTODIFF,
        dl.MatmulWeightOnlyDotOp: _CREATED_AFTER_AUTODIFF,
        dl.AccumulateOp: _CREATED_AFTER_AUTODIFF,
        **dict.fromkeys((dl.NetworkSortOp, dl.BitonicSortOp), _CREATED_AFTER_AUTODIFF),
        dl.PartitionOp: "functions that are differentiated sort instead",
    },
)


def has_rule(op: Operation) -> bool:
    """Return whether an op has a derivative rule, so that it is not decomposed."""
    return (
        isinstance(op, Control | dl.YieldOp | dl.FailOp)
        or type(op) in PARTIALS
        or type(op) in TRANSPOSE_RULES
        or type(op) in JVP_RULES
    )


def is_differentiable(value: SSAValue) -> bool:
    """Return whether a value can have a tangent: floats can."""
    return is_float(element_type_of(value))


def mark_active(block: Block, wrt: Iterable[SSAValue]) -> set[SSAValue]:
    """Return the active values of a block, those that depend on `wrt`; active ops without a rule are decomposed.

    Raises UnsupportedError, with the source location, for an op that has no derivative.
    """
    active = set(wrt)
    op = block.first_op
    while op is not None:
        next_op = op.next_op
        floats = [r for r in op.results if is_differentiable(r)]
        if floats and type(op) not in ZERO and not active.isdisjoint(read_values(op)):
            if has_rule(op):
                active.update(floats if isinstance(op, Control) else floats[:1])
            elif isinstance(op, Composite):
                next_op = decompose_in_place(op)
            else:
                raise UnsupportedError(_no_derivative_message(op))
        op = next_op
    return active


def active_states(block: Block, parameters: Sequence[SSAValue], wrt: Iterable[SSAValue], first_state: int = 0) -> list[int]:
    """Return the indices of the states of a loop that are active in any iteration.

    `parameters` are the states that the body takes; it yields the next ones from index `first_state` on. `wrt` are the active
    values, which include the parameters of initially active states.
    """
    active = set(wrt)
    while True:
        body_values = mark_active(block, active)
        assert block.last_op is not None
        next_states = block.last_op.operands[first_state : first_state + len(parameters)]
        new = {p for p, v in zip(parameters, next_states, strict=True) if v in body_values} - active
        if not new:
            return [i for i, p in enumerate(parameters) if p in active]
        active |= new


def _no_derivative_message(op: Operation) -> str:
    name, repair = op.name, "apply dlc.stop_gradient to its operand to treat it as constant"
    if isinstance(op, dl.LoopsOp):
        name = f"the kernel {op.kernel_name}"
        repair = "give the function that calls it a rule by dlc.custom_vjp or dlc.custom_jvp (docs/kernels.md)"
    elif isinstance(op, dl.ForeignCallOp):
        name = op.label
        repair = "give the function that calls it a rule by dlc.custom_vjp or dlc.custom_jvp (docs/ffi.md)"
    reason = NO_DERIVATIVE.get(type(op), "it has no rule") if isinstance(op, DlOp) else "it has no rule"
    if isinstance(cause := op.attributes.get(WITHOUT_DERIVATIVE), StringAttr):
        reason = cause.data
    return f"{location_prefix(op.location)}{name} has no derivative: {reason}; {repair}"


def derivative_location(location: LocationAttr) -> LocationAttr:
    """Return the location of an op of a derivative."""
    return location if isinstance(location, UnknownLoc) else NameLoc(StringAttr(DERIVATIVE), location)

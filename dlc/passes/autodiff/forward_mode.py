"""Forward mode (jvp): computes tangents next to the values of a block."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.control import Control
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.autodiff.bodies import builder_at_end, replace_yield, yielded_values
from dlc.passes.autodiff.control_flow_rules import FORWARD
from dlc.passes.autodiff.jvp_rules import JVP_RULES
from dlc.passes.autodiff.partials import PARTIALS, partial
from dlc.passes.autodiff.rules import derivative_location, is_differentiable, mark_active
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term, where
from dlc.passes.autodiff.transpose_rules import JOINTLY_LINEAR, NONDIFFERENTIABLE_OPERANDS, find_transpose_rule


class ForwardMode:
    """The tangents of the values of a block and its nested blocks; the tangent of any other value is 0."""

    def __init__(self) -> None:
        self.tangents: dict[SSAValue, SSAValue] = {}

    def walk(self, block: Block) -> None:
        """Insert the tangent of each result after its op."""
        active = mark_active(block, self.tangents)
        for op in list(block.ops):
            if not active.isdisjoint(op.results):
                assert op.next_op is not None
                build = DlBuilder(op.next_op, derivative_location(op.location))
                if isinstance(op, Control):
                    FORWARD[type(op)](op, self)
                elif isinstance(op, DlOp):
                    tangent = self._tangent(op, build)
                    if tangent is not None:
                        self.tangents[op.results[0]] = tangent.broadcast(*shape_of(op.results[0])).value

    def tangent(self, value: SSAValue, build: DlBuilder) -> SSAValue:
        """Return the tangent of a value, zeros if it has none."""
        return self.tangents[value] if value in self.tangents else zeros(build, value).value

    def _tangent(self, op: DlOp, build: DlBuilder) -> Term | None:
        tangents = [Term(build, self.tangents[v]) if v in self.tangents else None for v in op.operands]
        if not any(tangents):
            return None
        result, operands = Term(build, op.results[0]), [Term(build, v) for v in op.operands]
        if type(op) in PARTIALS:
            return self._tangent_by_partials(op, [result, *operands], tangents)
        if find_transpose_rule(op, self.tangents) is None:
            return JVP_RULES[type(op)](op, result, operands, tangents)
        if isinstance(op, JOINTLY_LINEAR):
            # Operands that are not differentiable, such as indices, stay as they are.
            tangent_operands = [
                (t or zeros(build, v)).value if is_differentiable(v) else v for t, v in zip(tangents, op.operands, strict=True)
            ]
            return _clone_with(op, build, tangent_operands)
        total: Term | None = None
        for i, tangent in enumerate(tangents):
            if tangent is not None and i not in NONDIFFERENTIABLE_OPERANDS.get(type(op), ()):
                summand = _clone_with(op, build, [*op.operands[:i], tangent.value, *op.operands[i + 1 :]])
                total = summand if total is None else total + summand
        return total

    def _tangent_by_partials(self, op: DlOp, terms: Sequence[Term], tangents: Sequence[Term | None]) -> Term | None:
        """Return Σ ∂r/∂xᵢ·dxᵢ."""
        total: Term | None = None
        for i, tangent in enumerate(tangents):
            if tangent is None:
                continue
            slope = partial(op, i, terms)
            if isinstance(slope, Term):
                summand = where(slope, tangent, 0) if slope.is_bool else slope * tangent
            elif slope == 0:
                continue
            else:
                summand = tangent if slope == 1 else -tangent if slope == -1 else tangent * slope
            total = summand if total is None else total + summand
        return total


def _clone_with(op: Operation, build: DlBuilder, operands: Sequence[SSAValue]) -> Term:
    """Insert the same op on other operands of the same types."""
    copy = type(op).create(operands=operands, result_types=[r.type for r in op.results], properties=dict(op.properties))
    return Term(build, build.insert(copy).results[0])


def add_tangents(block: Block, wrt: Sequence[int]) -> None:
    """Append tangents of the arguments `wrt` to a block's arguments, and tangents of float results to its results."""
    forward = ForwardMode()
    for i in wrt:
        argument = block.args[i]
        forward.tangents[argument] = block.insert_arg(argument.type, len(block.args))
    forward.walk(block)
    results, build = yielded_values(block), builder_at_end(block)
    replace_yield(block, [*results, *(forward.tangent(v, build) for v in results if is_differentiable(v))])

"""Reverse mode (vjp): computes the cotangents of a block's inputs from those of its results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, ints, shape_of, sizes
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import RowComposite
from dlc.dialects.dl.programs.control import Control, read_values
from dlc.dialects.location_text import location_prefix
from dlc.errors import UnsupportedError
from dlc.ir import Block, Operation, SSAValue, erase_op
from dlc.passes.autodiff.bodies import builder_at_end, replace_yield, yielded_values
from dlc.passes.autodiff.control_flow_rules import REVERSE
from dlc.passes.autodiff.cotangents import Cotangent, SliceCotangent, sum_cotangents, sum_slices
from dlc.passes.autodiff.jvp_rules import JVP_RULES
from dlc.passes.autodiff.loop_memory import bound_memory
from dlc.passes.autodiff.partials import PARTIALS, partial
from dlc.passes.autodiff.rules import derivative_location, mark_active
from dlc.passes.autodiff.shapes import unbroadcast, zeros
from dlc.passes.autodiff.term import Term
from dlc.passes.autodiff.transpose_rules import NONDIFFERENTIABLE_OPERANDS, find_transpose_rule
from dlc.shapes.dims import is_static


class ReverseMode:
    """The cotangents of a block's values during the walk from its last op to its first; new ops are appended to the block."""

    def __init__(self, block: Block, active: set[SSAValue]) -> None:
        self.block = block
        self.active = active
        assert block.last_op is not None
        self.build = DlBuilder(block.last_op)
        self._summands: dict[SSAValue, list[Cotangent | SliceCotangent]] = {}

    def add(self, value: SSAValue, cotangent: Cotangent | SliceCotangent | Term | None) -> None:
        """Accumulate into the cotangent of a value, if it is active."""
        if cotangent is not None and value in self.active:
            term = Cotangent(cotangent) if isinstance(cotangent, Term) else cotangent
            self._summands.setdefault(value, []).append(term)

    def take(self, value: SSAValue) -> Term | None:
        """Return the cotangent of a value, None if it is zero."""
        return self._pop_cotangent(value).term() if value in self._summands else None

    def _pop_cotangent(self, value: SSAValue) -> Cotangent:
        """Remove and return the sum of a value's accumulated cotangents."""
        terms = self._summands.pop(value)
        cotangents = [term for term in terms if isinstance(term, Cotangent)]
        slices = [term for term in terms if isinstance(term, SliceCotangent)]
        if slices:
            cotangents.append(Cotangent(sum_slices(slices, cast("tuple[int, ...]", shape_of(value)))))
        return sum_cotangents(cotangents)

    def pull_back_block(self, block: Block, wrt: Sequence[SSAValue], seeds: Mapping[int, SSAValue]) -> list[SSAValue | None]:
        """Run `pull_back` on another block."""
        return pull_back(block, wrt, seeds)

    def walk(self, ops: Sequence[Operation]) -> None:
        """Pull cotangents back through ops, the last one first."""
        for op in reversed(ops):
            if not self.active.isdisjoint(op.results) and any(r in self._summands for r in op.results):
                with self.build.at_location(derivative_location(op.location)):
                    if isinstance(op, Control):
                        REVERSE[type(op)](op, self)
                    elif isinstance(op, DlOp):
                        self._pull(op, self._pop_cotangent(op.results[0]))

    def _pull(self, op: DlOp, cotangent: Cotangent) -> None:
        if type(op) in PARTIALS:
            self._pull_through_partials(op, cotangent)
        elif isinstance(op, dl.SelectOp):
            condition = Term(self.build, op.condition)
            self._add_broadcast(op.x, cotangent.masked(condition), op)
            self._add_broadcast(op.y, cotangent.masked(~condition), op)
        elif isinstance(op, dl.SliceOp) and all(step == 1 for step in ints(op.strides)) and is_static(shape_of(op.x)):
            self.add(op.x, SliceCotangent(cotangent.term(), cast("tuple[int, ...]", sizes(op.starts))))
        elif isinstance(op, dl.CastOp):
            self.add(op.x, Cotangent(cotangent.value.op(dl.CastOp, to=element_type_of(op.x)), cotangent.mask))
        elif isinstance(op, dl.MaxPoolOp):
            window = {"kernel": op.kernel, "strides": op.strides, "dilations": op.dilations}
            self.add(
                op.x, Term(self.build, op.x).op(dl.MaxPoolGradientOp, Term(self.build, op.result), cotangent.term(), **window)
            )
        elif (transpose := find_transpose_rule(op, self.active)) is not None:
            term = cotangent.term()
            for i, operand in enumerate(op.operands):
                if operand in self.active and i not in NONDIFFERENTIABLE_OPERANDS.get(type(op), ()):
                    self.add(operand, transpose(op, term, i))
        else:
            self._pull_through_jvp(op, cotangent)

    def _pull_through_partials(self, op: DlOp, cotangent: Cotangent) -> None:
        """Add x̄ᵢ = r̄·∂r/∂xᵢ, summed over broadcast axes."""
        terms = [Term(self.build, v) for v in (op.results[0], *op.operands)]
        for i, operand in enumerate(op.operands):
            if operand not in self.active:
                continue
            slope = partial(op, i, terms)
            if isinstance(slope, Term):
                pulled = cotangent.masked(slope) if slope.is_bool else Cotangent(cotangent.value * slope, cotangent.mask)
            elif slope == 0:
                continue
            else:
                scaled = cotangent.value if slope == 1 else -cotangent.value if slope == -1 else cotangent.value * slope
                pulled = Cotangent(scaled, cotangent.mask)
            self._add_broadcast(operand, pulled, op)

    def _add_broadcast(self, operand: SSAValue, pulled: Cotangent, op: DlOp) -> None:
        if operand in self.active:
            has_same_shape = shape_of(operand) == shape_of(op.results[0])
            self.add(operand, pulled if has_same_shape else unbroadcast(pulled.term(), shape_of(operand)))

    def _pull_through_jvp(self, op: DlOp, cotangent: Cotangent) -> None:
        """Emit the jvp rule into a scratch block, and transpose that. Rows that are masked completely stay masked."""
        differentiated = [v for v in op.operands if v in self.active]
        scratch = Block(arg_types=[v.type for v in differentiated])
        build = DlBuilder(scratch)
        arguments = iter(scratch.args)
        tangents = [Term(build, next(arguments)) if v in self.active else None for v in op.operands]
        tangent = JVP_RULES[type(op)](op, Term(build, op.results[0]), [Term(build, v) for v in op.operands], tangents)
        masks = {op.operands[0]: cotangent.row_mask(op.row_axes)} if isinstance(op, RowComposite) else {}
        self.transpose(scratch, differentiated, {tangent.value: cotangent.term()}, masks)

    def transpose(
        self,
        scratch: Block,
        values: Sequence[SSAValue],
        cotangents: Mapping[SSAValue, Term],
        masks: Mapping[SSAValue, Term | None] = MappingProxyType({}),
    ) -> None:
        """Pull cotangents back through a block that computes tangents from those of `values`, its arguments.

        `masks` are the masks of the resulting cotangents of `values`. Ops of the block that do not depend on a tangent move
        into the program; the rest is linear, see Note [Loops in rules].

        Raises UnsupportedError for a rule that is not linear.
        """
        active = mark_active(scratch, scratch.args)
        linear: list[Operation] = []
        stand_ins: dict[Operation, dict[SSAValue, SSAValue]] = {}
        for op in list(scratch.ops):
            differentiated = [v for v in dict.fromkeys(read_values(op)) if v in active]
            if differentiated:
                linear.append(op)
            if isinstance(op, Control):
                stand_ins[op] = self._replace_tangents(op, differentiated)
            if op in stand_ins or not differentiated:
                op.detach()
                self.build.insert(op)
        # The coefficients of the tangents are constants here.
        outer_active, self.active = self.active, active.union(*stand_ins.values())
        for value, cotangent in cotangents.items():
            self.add(value, cotangent)
        for op in reversed(linear):
            self.walk([op])
            for stand_in, tangent in stand_ins.get(op, {}).items():
                self.add(tangent, self.take(stand_in))
        pulled = [self.take(a) for a in scratch.args]
        self.active = outer_active
        for value, term in zip(values, pulled, strict=True):
            self.add(value, None if term is None else Cotangent(term, masks.get(value)))
        linear_only = [op for op in linear if op not in stand_ins]
        for use in (use for v in (*scratch.args, *(r for op in linear_only for r in op.results)) for use in v.uses):
            if use.operation not in linear_only:
                prefix = location_prefix(use.operation.location)
                raise UnsupportedError(f"{prefix}the jvp rule is not linear in the tangents")
        for op in reversed(linear_only):
            erase_op(op, is_unused=False)

    def _replace_tangents(self, op: Control, tangents: Sequence[SSAValue]) -> dict[SSAValue, SSAValue]:
        """Replace the tangents that an op with bodies uses by stand-ins; return a map from stand-ins to tangents."""
        stand_ins = {v: (zeros(self.build, v) + math.nan).value for v in tangents}
        for inner in op.walk():
            inner.operands = [stand_ins.get(v, v) for v in inner.operands]
        return {stand_in: v for v, stand_in in stand_ins.items()}


# Note [Loops in rules]
#
# The reverse of a loop begins with the loop itself, which saves the residuals. Where a jvp rule computes tangents by a loop,
# that forward loop runs with NaN stand-ins for the tangents: if the rule is linear nothing reads them, otherwise its results
# become NaN.


def pull_back(block: Block, wrt: Sequence[SSAValue], seeds: Mapping[int, SSAValue]) -> list[SSAValue | None]:
    """Append the cotangents of `wrt` to a block, before its terminator; return them in order, None for zero.

    `seeds` are the cotangents of the values that it yields, by index.
    """
    last = block.last_op
    assert isinstance(last, dl.YieldOp)
    for op in list(block.ops):
        if isinstance(op, dl.CheckpointOp) and op.memory_bytes is not None:
            bound_memory(op)
    reverse = ReverseMode(block, mark_active(block, wrt))
    for i, seed in seeds.items():
        reverse.add(last.values[i], Term(reverse.build, seed))
    reverse.walk([op for op in block.ops if op is not last])
    cotangents = [reverse.take(v) for v in wrt]
    return [None if cotangent is None else cotangent.value for cotangent in cotangents]


def add_cotangents(block: Block, wrt: Sequence[int], of: Sequence[int]) -> None:
    """Append cotangents of the results `of` to a block's arguments, and cotangents of the arguments `wrt` to its results."""
    last = block.last_op
    assert isinstance(last, dl.YieldOp)
    arguments = [block.args[i] for i in wrt]
    seeds = {i: block.insert_arg(last.values[i].type, len(block.args)) for i in of}
    pulled, build = pull_back(block, arguments, seeds), builder_at_end(block)
    cotangents = [
        zeros(build, v).value if cotangent is None else cotangent for v, cotangent in zip(arguments, pulled, strict=True)
    ]
    replace_yield(block, [*yielded_values(block), *cotangents])

"""Reverse mode: the cotangents of what a block was computed from, from those of its results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, ints, shape_of, sizes
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.programs.control import Control
from dlc.dialects.places import place
from dlc.dims import is_static
from dlc.errors import UnsupportedError
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.autodiff.bodies import at_end, end, yielded
from dlc.passes.autodiff.control import REVERSE
from dlc.passes.autodiff.cotangents import Cotangent, Piece, added, joined
from dlc.passes.autodiff.partials import ELEMENTWISE, partial
from dlc.passes.autodiff.rules import activate, derived, read_by
from dlc.passes.autodiff.shapes import unbroadcast, zeros
from dlc.passes.autodiff.tangents import TANGENTS
from dlc.passes.autodiff.term import Term
from dlc.passes.autodiff.transposes import DECIDING, transpose_of


class Reverse:
    """The cotangents of a block's values while it is walked from its end to its begin; new ops go to the block's end."""

    def __init__(self, block: Block, active: set[SSAValue]) -> None:
        self.block = block
        self.active = active
        assert block.last_op is not None
        self.b = Build(block.last_op)
        self._parts: dict[SSAValue, list[Cotangent | Piece]] = {}

    def add(self, value: SSAValue, cotangent: Cotangent | Piece | Term | None) -> None:
        """One more part of a value's cotangent, unless it is not active."""
        if cotangent is not None and value in self.active:
            part = Cotangent(cotangent) if isinstance(cotangent, Term) else cotangent
            self._parts.setdefault(value, []).append(part)

    def take(self, value: SSAValue) -> Term | None:
        """The cotangent of a value, None where it is zero."""
        return self._taken(value).term() if value in self._parts else None

    def _taken(self, value: SSAValue) -> Cotangent:
        """The sum of the parts of a cotangent that has some."""
        parts = self._parts.pop(value)
        whole = [part for part in parts if isinstance(part, Cotangent)]
        pieces = [part for part in parts if isinstance(part, Piece)]
        if pieces:
            whole.append(Cotangent(joined(pieces, cast("tuple[int, ...]", shape_of(value)))))
        return added(whole)

    def inside(self, block: Block, wrt: Sequence[SSAValue], seeds: Mapping[int, SSAValue]) -> list[SSAValue | None]:
        """`pull_back` in another block."""
        return pull_back(block, wrt, seeds)

    def walk(self, ops: Sequence[Operation]) -> None:
        """Pulls cotangents through ops, the last first."""
        for op in reversed(ops):
            if not self.active.isdisjoint(op.results) and any(r in self._parts for r in op.results):
                with self.b.at(derived(op.location)):
                    if isinstance(op, Control):
                        REVERSE[type(op)](op, self)
                    elif isinstance(op, DlOp):
                        self._pull(op, self._taken(op.results[0]))

    def _pull(self, op: DlOp, ct: Cotangent) -> None:
        if type(op) in ELEMENTWISE:
            self._through_partials(op, ct)
        elif isinstance(op, dl.SelectOp):
            condition = Term(self.b, op.condition)
            self._add_broadcast(op.x, ct.masked(condition), op)
            self._add_broadcast(op.y, ct.masked(~condition), op)
        elif isinstance(op, dl.SliceOp) and all(step == 1 for step in ints(op.strides)) and is_static(shape_of(op.x)):
            self.add(op.x, Piece(ct.term(), cast("tuple[int, ...]", sizes(op.starts))))
        elif isinstance(op, dl.CastOp):
            self.add(op.x, Cotangent(ct.value.op(dl.CastOp, to=element_type_of(op.x)), ct.mask))
        elif isinstance(op, dl.MaxPoolOp):
            window = {"kernel": op.kernel, "strides": op.strides, "dilations": op.dilations}
            self.add(op.x, Term(self.b, op.x).op(dl.MaxPoolGradientOp, Term(self.b, op.result), ct.term(), **window))
        elif (transpose := transpose_of(op, self.active)) is not None:
            whole = ct.term()
            for i, operand in enumerate(op.operands):
                if operand in self.active and i not in DECIDING.get(type(op), ()):
                    self.add(operand, transpose(op, whole, i))
        else:
            self._through_tangent(op, ct.term())

    def _through_partials(self, op: DlOp, ct: Cotangent) -> None:
        """x̄ᵢ = r̄·∂r/∂xᵢ, summed over what was broadcast."""
        terms = [Term(self.b, v) for v in (op.results[0], *op.operands)]
        for i, operand in enumerate(op.operands):
            if operand not in self.active:
                continue
            slope = partial(op, i, terms)
            if isinstance(slope, Term):
                pulled = ct.masked(slope) if slope.is_bool else Cotangent(ct.value * slope, ct.mask)
            elif slope == 0:
                continue
            else:
                scaled = ct.value if slope == 1 else -ct.value if slope == -1 else ct.value * slope
                pulled = Cotangent(scaled, ct.mask)
            self._add_broadcast(operand, pulled, op)

    def _add_broadcast(self, operand: SSAValue, pulled: Cotangent, op: DlOp) -> None:
        if operand in self.active:
            same = shape_of(operand) == shape_of(op.results[0])
            self.add(operand, pulled if same else unbroadcast(pulled.term(), shape_of(operand)))

    def _through_tangent(self, op: DlOp, ct: Term) -> None:
        """By the tangent of the result, written into a scratch block and transposed."""
        moving = [v for v in op.operands if v in self.active]
        scratch = Block(arg_types=[v.type for v in moving])
        b = Build(scratch)
        arguments = iter(scratch.args)
        tangents = [Term(b, next(arguments)) if v in self.active else None for v in op.operands]
        tangent = TANGENTS[type(op)](op, Term(b, op.results[0]), [Term(b, v) for v in op.operands], tangents)
        self.transpose(scratch, moving, {tangent.value: ct})

    def transpose(self, scratch: Block, values: Sequence[SSAValue], cotangents: Mapping[SSAValue, Term]) -> None:
        """Pulls cotangents through a block that computes tangents from those of `values`, its arguments.

        What of it does not follow from a tangent goes into the program, the rest is linear; see Note [Loops in rules]. Raises
        UnsupportedError where it is not.
        """
        active = activate(scratch, scratch.args)
        linear: list[Operation] = []
        undefined: dict[Operation, dict[SSAValue, SSAValue]] = {}
        for op in list(scratch.ops):
            moving = [v for v in dict.fromkeys(read_by(op)) if v in active]
            if moving:
                linear.append(op)
            if isinstance(op, Control):
                undefined[op] = self._without(op, moving)
            if op in undefined or not moving:
                op.detach()
                self.b.insert(op)
        # What the tangents are multiplied with is constant to them.
        outside, self.active = self.active, active.union(*undefined.values())
        for value, ct in cotangents.items():
            self.add(value, ct)
        for op in reversed(linear):
            self.walk([op])
            for stand_in, tangent in undefined.get(op, {}).items():
                self.add(tangent, self.take(stand_in))
        pulled = [self.take(a) for a in scratch.args]
        self.active = outside
        for value, part in zip(values, pulled, strict=True):
            self.add(value, part)
        plain = [op for op in linear if op not in undefined]
        for use in (use for v in (*scratch.args, *(r for op in plain for r in op.results)) for use in v.uses):
            if use.operation not in plain:
                where = place(use.operation.location)
                raise UnsupportedError(f"{where}the rule of a derivative is not linear in the tangents")
        for op in reversed(plain):
            op.detach()
            op.erase(safe_erase=False)

    def _without(self, op: Control, tangents: Sequence[SSAValue]) -> dict[SSAValue, SSAValue]:
        """Makes an op with bodies read something else in the place of tangents: which stands for which."""
        made = {v: (zeros(self.b, v) + math.nan).value for v in tangents}
        for inner in op.walk():
            inner.operands = [made.get(v, v) for v in inner.operands]
        return {stand_in: v for v, stand_in in made.items()}


# Note [Loops in rules]
#
# The reverse of a loop begins with the loop itself, which keeps what its reverse reads; where a rule computes tangents by a
# loop, that runs without any. If they are linear nothing reads them, and they are NaN, which shows if they are not.


def pull_back(block: Block, wrt: Sequence[SSAValue], seeds: Mapping[int, SSAValue]) -> list[SSAValue | None]:
    """Appends to a block, before what ends it, the cotangents of values it computes with; in order, None where one is zero.

    `seeds` are cotangents of what it yields, by place.
    """
    last = block.last_op
    assert isinstance(last, dl.YieldOp)
    reverse = Reverse(block, activate(block, wrt))
    for i, seed in seeds.items():
        reverse.add(last.values[i], Term(reverse.b, seed))
    reverse.walk([op for op in block.ops if op is not last])
    taken = [reverse.take(v) for v in wrt]
    return [None if ct is None else ct.value for ct in taken]


def add_cotangents(block: Block, wrt: Sequence[int], of: Sequence[int]) -> None:
    """Makes a block take cotangents of its results `of`, last, and yield those of its arguments `wrt`, last."""
    last = block.last_op
    assert isinstance(last, dl.YieldOp)
    arguments = [block.args[i] for i in wrt]
    seeds = {i: block.insert_arg(last.values[i].type, len(block.args)) for i in of}
    pulled, b = pull_back(block, arguments, seeds), at_end(block)
    cotangents = [zeros(b, v).value if ct is None else ct for v, ct in zip(arguments, pulled, strict=True)]
    end(block, [*yielded(block), *cotangents])

"""A step of a loop and its reverse in one body, and its split into a forward and a backward body."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.control import captured_values, has_effect, read_values
from dlc.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from dlc.passes.autodiff.bodies import (
    ReverseModeContext,
    builder_at_end,
    clone_body,
    insert_before,
    yielded_values,
)
from dlc.passes.autodiff.recomputation import choose_saved_values
from dlc.passes.autodiff.rules import active_states, is_differentiable
from dlc.passes.autodiff.shapes import num_bytes, zeros
from dlc.passes.autodiff.term import Term

# Note [Reverse of a scan]
#
# One step and its reverse are derived in one body: it takes the cotangents of the next states and of the step's outputs, and
# computes those of the previous states, of the sequence elements, and of captured values. The ops that the step's results
# need form the forward loop, the others the backward loop, which runs from the last step to the first. The forward loop stacks
# the residuals: values that the backward loop reads, or from which it recomputes them (Note [Recomputation by a minimum cut]).
# Loop-invariant ops are hoisted before both. The cotangent of a captured value is a sum over the steps, a state of the backward
# loop. Where a step adds a product of two factors (the cotangent of a weight matrix), both factors are stacked, and a single
# contraction over all steps and rows follows the loop.


def active_scan_states(op: dl.ScanOp, active: Collection[SSAValue]) -> list[int]:
    """Return the indices of the states of a scan that depend on active values."""
    parameters = op.block.args
    active_parameters = [p for p, v in zip(parameters, op.arguments, strict=True) if v in active]
    return active_states(op.block, parameters[: op.state_count], [*active, *active_parameters])


@dataclass(frozen=True)
class _LinearOp:
    """An op that is applied once, to a sum over all steps. The operand None stands for the sum."""

    kind: type[Operation]
    operands: Sequence[SSAValue | None]
    type: Attribute
    properties: Mapping[str, Attribute]

    def apply(self, build: DlBuilder, value: SSAValue) -> SSAValue:
        operands = [value if v is None else v for v in self.operands]
        op = self.kind.create(operands=operands, result_types=[self.type], properties=dict(self.properties))
        return build.insert(op).results[0]


@dataclass
class _Sum:
    """Values that the steps add up, and the ops that are applied to the sum, in order."""

    summands: list[SSAValue]
    linear_ops: Sequence[_LinearOp] = ()

    @classmethod
    def of(cls, summand: SSAValue, body_values: Collection[SSAValue], max_bytes: float) -> _Sum:
        """Return the sum of a value of a step: of the elements that it adds up along the first axis, if they fit in a limit."""
        value, ops, best = summand, list[_LinearOp](), cls([summand])
        while isinstance(op := value.owner, dl.NegOp | dl.ReshapeOp | dl.ReduceSumOp | dl.MulOp) and value in body_values:
            varying = [v for v in op.operands if v in body_values]
            if len(varying) != 1 or (isinstance(op, dl.MulOp) and varying[0].type != value.type):
                break
            operands = [None if v in body_values else v for v in op.operands]
            ops.insert(0, _LinearOp(type(op), operands, value.type, op.properties))
            (value,) = varying
            if isinstance(op, dl.ReduceSumOp) and 0 in op.reduction_axes and num_bytes(value) <= max_bytes:
                best = cls([value], list(ops))
        return best


@dataclass
class _CapturedCotangent:
    """The cotangent that the steps add to a captured value: products of two factors, and sums of the remaining summands."""

    products: list[dl.DotGeneralOp] = field(default_factory=list[dl.DotGeneralOp])
    sums: list[_Sum] = field(default_factory=list[_Sum])

    @classmethod
    def of(
        cls, total: SSAValue, body: Block, backward: Sequence[Operation], max_bytes: float, splits_products: bool
    ) -> _CapturedCotangent:
        """Split a sum of the backward ops into summands, and products of two values that vary from step to step.

        `max_bytes` limits the size of a summand that is summed along its first axis after the loop.
        """
        cotangent, pending, summands = cls(), [total], list[SSAValue]()
        body_values = {*body.args, *(r for o in body.ops for r in o.results)}
        while pending:
            value = pending.pop()
            match value.owner:
                case dl.AddOp() as op if op in backward and op.x.type == op.y.type:
                    pending += op.operands
                case dl.DotGeneralOp() as op if splits_products and op in backward and body_values.issuperset(op.operands):
                    cotangent.products.append(op)
                case _:
                    sum_ = _Sum.of(value, body_values, max_bytes)
                    if sum_.linear_ops:
                        cotangent.sums.append(sum_)
                    else:
                        summands.append(value)
        if summands:
            cotangent.sums.append(_Sum(summands))
        return cotangent


@dataclass
class DifferentiatedStep:
    """A step and its reverse in one body.

    `states`, `sequences` and `outputs` are the indices of the states, sequences and outputs that have cotangents.
    """

    op: dl.ScanOp
    body: Block
    states: list[int]
    sequences: list[int]
    outputs: list[int]
    # The cotangents of captured values.
    captured_cotangents: dict[SSAValue, _CapturedCotangent]
    # The cotangents that the body takes, of next states and outputs; and those that it computes, of states and elements.
    seeds: list[SSAValue]
    state_cotangents: list[SSAValue]
    element_cotangents: list[SSAValue]

    @classmethod
    def of(cls, op: dl.ScanOp, context: ReverseModeContext, *, splits_products: bool = True) -> DifferentiatedStep:
        """Clone the body of a scan and append its reverse. Without `splits_products`, all products are summands."""
        count, results = op.state_count, op.results
        states = active_scan_states(op, context.active)
        sequences = [i for i in range(count, len(op.arguments)) if op.arguments[i] in context.active]
        outputs = [i for i in range(count, len(results)) if is_differentiable(results[i])]
        active_captures = [v for v in captured_values(op.block) if v in context.active]
        body = clone_body(op.block)
        seeded_indices = [*states, *outputs]
        seeds: list[SSAValue] = [body.insert_arg(yielded_values(body)[i].type, len(body.args)) for i in seeded_indices]
        wrt = [*(body.args[i] for i in (*states, *sequences)), *active_captures]
        gradients = context.pull_back_block(body, wrt, dict(zip(seeded_indices, seeds, strict=True)))
        build = builder_at_end(body)
        total = len(states) + len(sequences)
        argument_cotangents = [
            g if g is not None else zeros(build, v).value for v, g in zip(wrt[:total], gradients, strict=False)
        ]
        _hoist(body, op)
        backward = _backward_ops(body, seeds)
        max_bytes = sum(num_bytes(body.args[i]) for i in states)
        captured_cotangents = {
            v: _CapturedCotangent.of(g, body, backward, max_bytes, splits_products)
            for v, g in zip(active_captures, gradients[total:], strict=True)
            if g is not None
        }
        state_cotangents, element_cotangents = argument_cotangents[: len(states)], argument_cotangents[len(states) :]
        return cls(op, body, states, sequences, outputs, captured_cotangents, seeds, state_cotangents, element_cotangents)

    @property
    def factors(self) -> list[SSAValue]:
        """The operands of all products, without duplicates."""
        return list(
            dict.fromkeys(v for s in self.captured_cotangents.values() for product in s.products for v in product.operands)
        )

    @property
    def summand_lists(self) -> list[list[SSAValue]]:
        """The summands that are accumulated from step to step."""
        return [sum_.summands for s in self.captured_cotangents.values() for sum_ in s.sums]

    def initial_sums(self, build: DlBuilder) -> list[SSAValue]:
        """Build the zeros with which the sums over the steps begin."""
        return [zeros(build, summands[0]).value for summands in self.summand_lists]

    def add_sums(self, context: ReverseModeContext, totals: Sequence[SSAValue]) -> None:
        """Add the sums over the steps to the cotangents of captured values."""
        remaining = iter(totals)
        for value, cotangent in self.captured_cotangents.items():
            for sum_ in cotangent.sums:
                total = next(remaining)
                for linear_op in sum_.linear_ops:
                    total = linear_op.apply(context.build, total)
                context.add(value, Term(context.build, total))

    def split(self) -> tuple[Block, list[SSAValue], list[SSAValue]]:
        """Detach the backward body; return it, its residuals (the saved forward values that it reads), and its outputs.

        `body` keeps the forward ops. The backward body takes the cotangents of states, partial sums, the residuals, and the
        cotangents of the scan's outputs. It yields the updated cotangents and sums, then its own outputs: cotangents of
        sequence elements, and factors, without duplicates.
        """
        backward_results = [
            *self.state_cotangents,
            *(v for summands in self.summand_lists for v in summands),
            *self.element_cotangents,
        ]
        forward = _required_ops(yielded_values(self.body), list(self.body.ops))
        backward = [o for o in self.body.ops if o not in forward and not isinstance(o, dl.YieldOp)]
        backward_values = {*self.seeds, *(v for o in backward for v in o.results)}
        forward_values = set[SSAValue]((*self.body.args, *(v for o in forward for v in o.results))) - backward_values
        backward_ops = _required_ops([*backward_results, *self.factors], backward)
        needed_values = dict.fromkeys([*(v for o in backward_ops for v in read_values(o)), *backward_results])
        # Elements of sequences are stacked, as are values of the step that are read after the loop.
        after_loop = [v for v in (*self.element_cotangents, *self.factors) if v in forward_values]
        stacked: set[SSAValue] = {*self.body.args[self.op.state_count :], *after_loop}
        required = [v for v in needed_values if v in forward_values - stacked]
        saved, repeated = choose_saved_values(required, forward_values - stacked, forward, self.op.steps)
        needed_values = dict.fromkeys([*needed_values, *self.factors, *(v for o in repeated for v in o.operands), *saved])
        residuals = [v for v in needed_values if v in saved or (v in stacked and v in forward_values)]
        outputs = list(dict.fromkeys([*self.element_cotangents, *(v for v in self.factors if v in backward_values)]))
        count = len(self.states)
        state_cotangents, output_cotangents = self.seeds[:count], self.seeds[count:]
        block = Block(
            arg_types=[
                v.type
                for v in (*state_cotangents, *(summands[0] for summands in self.summand_lists), *residuals, *output_cotangents)
            ]
        )
        partial_sums = block.args[count : count + len(self.summand_lists)]
        block_arguments = [*block.args[:count], *block.args[count + len(self.summand_lists) :]]
        mapped = [*state_cotangents, *residuals, *output_cotangents]
        value_map: dict[SSAValue, SSAValue] = dict(zip(mapped, block_arguments, strict=True))
        for o in backward:
            o.detach()
        for o in repeated:
            block.add_op(o.clone(value_map))
        for o in backward_ops:
            block.add_op(o)
            for inner in o.walk():
                inner.operands = [value_map.get(v, v) for v in inner.operands]
        # Erase the sums that were split into products and summands.
        for o in reversed(backward):
            if o.parent is None:
                o.erase(safe_erase=False)
        build, sums = DlBuilder(block), list[SSAValue]()
        for total, summands in zip(partial_sums, self.summand_lists, strict=True):
            for summand in summands:
                total = build(dl.AddOp, total, value_map.get(summand, summand))
            sums.append(total)
        state_cotangents, values = ([value_map.get(v, v) for v in vs] for vs in (self.state_cotangents, outputs))
        block.add_op(dl.YieldOp([*state_cotangents, *sums, *values]))
        for seed in reversed(self.seeds):
            self.body.erase_arg(cast("BlockArgument", seed))
        return block, residuals, outputs


def _backward_ops(body: Block, seeds: Sequence[SSAValue]) -> list[Operation]:
    """Return the ops of a body that depend on these values, in order."""
    backward_values, ops = set(seeds), list[Operation]()
    for op in body.ops:
        if not isinstance(op, dl.YieldOp) and not backward_values.isdisjoint(read_values(op)):
            backward_values.update(op.results)
            ops.append(op)
    return ops


def _required_ops(values: Sequence[SSAValue], ops: Sequence[Operation]) -> list[Operation]:
    """Return the ops that the values depend on, in order, and those with side effects."""
    required_values, required_ops = set(values), list[Operation]()
    for op in reversed(ops):
        if not required_values.isdisjoint(op.results) or has_effect(op):
            required_values.update(read_values(op))
            required_ops.insert(0, op)
    return required_ops


def _hoist(body: Block, anchor: Operation) -> None:
    """Move ops that read nothing of a body before the op that owns it."""
    body_values = {*body.args, *(r for o in body.ops for r in o.results)}
    for op in list(body.ops):
        if isinstance(op, DlOp) and body_values.isdisjoint(op.operands):
            op.detach()
            insert_before(anchor, op)
            body_values.difference_update(op.results)

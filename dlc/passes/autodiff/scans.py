"""Derivatives of scans, which are scans too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, ints, number
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.control import captured_values, has_effect
from dlc.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from dlc.passes.autodiff.binomial_checkpoints import reverse_segments
from dlc.passes.autodiff.bodies import (
    ForwardModeContext,
    ReverseModeContext,
    builder_at_end,
    clone_body,
    clone_body_without_prints,
    detach_bodies,
    insert_before,
    replace_and_erase,
    replace_yield,
    yielded_values,
)
from dlc.passes.autodiff.loop_building import (
    build_while,
    element_at,
    i64_constant,
    inline_copy,
    pull_back_body,
)
from dlc.passes.autodiff.recomputation import choose_saved_values
from dlc.passes.autodiff.rules import active_states, is_differentiable, values_read
from dlc.passes.autodiff.shapes import num_bytes, zeros
from dlc.passes.autodiff.term import Term


def scan_forward(op: dl.ScanOp, context: ForwardModeContext) -> None:
    """Build the forward-mode scan: its additional states and sequences are the tangents of states and sequences."""
    build, count, arguments = DlBuilder(op), op.state_count, list(op.arguments)
    states = _active_states(op, context.tangents)
    sequences = [i for i in range(count, len(arguments)) if arguments[i] in context.tangents]
    outputs = [i for i in range(count, len(op.results)) if is_differentiable(op.results[i])]
    initial_tangents = [context.tangent(arguments[i], build) for i in states]
    sequence_tangents = [context.tangents[arguments[i]] for i in sequences]
    (body,) = detach_bodies(op)
    parameters = list(body.args)
    for k, i in enumerate(states):
        context.tangents[parameters[i]] = body.insert_arg(parameters[i].type, count + k)
    for i in sequences:
        context.tangents[parameters[i]] = body.insert_arg(parameters[i].type, len(body.args))
    context.walk(body)
    last, build = yielded_values(body), builder_at_end(body)
    state_tangents, output_tangents = ([context.tangent(last[i], build) for i in indices] for indices in (states, outputs))
    replace_yield(body, [*last[:count], *state_tangents, *last[count:], *output_tangents])
    total = count + len(states)
    new_arguments = [*arguments[:count], *initial_tangents, *arguments[count:], *sequence_tangents]
    new = dl.ScanOp.of(new_arguments, body, total, op.steps, op.is_reverse)
    insert_before(op, new)
    values = [*new.results[:count], *new.results[total : len(op.results) + len(states)]]
    tangents = [*new.results[count:total], *new.results[len(op.results) + len(states) :]]
    replace_and_erase(op, values)
    context.tangents |= {values[i]: tangent for i, tangent in zip((*states, *outputs), tangents, strict=True)}


def _active_states(op: dl.ScanOp, active: Collection[SSAValue]) -> list[int]:
    """Return the indices of the states that depend on active values."""
    parameters = op.block.args
    active_parameters = [p for p, v in zip(parameters, op.arguments, strict=True) if v in active]
    return active_states(op.block, parameters[: op.state_count], [*active, *active_parameters])


# Note [Reverse of a scan]
#
# One step and its reverse are derived in one body: it takes the cotangents of the next states and of the step's outputs, and
# computes those of the previous states, of the sequence elements, and of captured values. The ops that the step's results
# need form the forward loop, the others the backward loop, which runs from the last step to the first. The forward loop stacks
# the residuals: values that the backward loop reads, or from which it recomputes them (Note [Recomputation by a minimum cut]).
# Loop-invariant ops are hoisted before both. The cotangent of a captured value is a sum over the steps, a state of the backward
# loop. Where a step adds a product of two factors (the cotangent of a weight matrix), both factors are stacked, and a single
# contraction over all steps and rows follows the loop.


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
    def of(cls, total: SSAValue, body: Block, backward: Sequence[Operation], max_bytes: float) -> _CapturedCotangent:
        """Split a sum of the backward ops into products of two values that vary from step to step, and the other summands.

        `max_bytes` limits the size of a summand that is summed along its first axis after the loop.
        """
        cotangent, pending, summands = cls(), [total], list[SSAValue]()
        body_values = {*body.args, *(r for o in body.ops for r in o.results)}
        while pending:
            value = pending.pop()
            match value.owner:
                case dl.AddOp() as op if op in backward and op.x.type == op.y.type:
                    pending += op.operands
                case dl.DotGeneralOp() as op if op in backward and body_values.issuperset(op.operands):
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
class _DifferentiatedStep:
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
    def of(cls, op: dl.ScanOp, context: ReverseModeContext) -> _DifferentiatedStep:
        """Clone the body of a scan and append its reverse."""
        count, results = op.state_count, op.results
        states = _active_states(op, context.active)
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
            v: _CapturedCotangent.of(g, body, backward, max_bytes)
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

    def split(self) -> tuple[Block, list[SSAValue], list[SSAValue]]:
        """Detach the backward body; return it, its residuals (the saved forward values that it reads), and its outputs.

        The backward body takes the cotangents of states, partial sums, the residuals, and the cotangents of the scan's
        outputs. It yields the updated cotangents and sums, then its own outputs: cotangents of sequence elements, and factors,
        without duplicates.
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
        read_values = dict.fromkeys([*(v for o in backward_ops for v in values_read(o)), *backward_results])
        # Elements of sequences are stacked, as are values of the step that are read after the loop.
        after_loop = [v for v in (*self.element_cotangents, *self.factors) if v in forward_values]
        stacked: set[SSAValue] = {*self.body.args[self.op.state_count :], *after_loop}
        required = [v for v in read_values if v in forward_values - stacked]
        saved, repeated = choose_saved_values(required, forward_values - stacked, forward, self.op.steps)
        read_values = dict.fromkeys([*read_values, *self.factors, *(v for o in repeated for v in o.operands), *saved])
        residuals = [v for v in read_values if v in saved or (v in stacked and v in forward_values)]
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
        return block, residuals, outputs


def _backward_ops(body: Block, seeds: Sequence[SSAValue]) -> list[Operation]:
    """Return the ops of a body that depend on these values, in order."""
    backward_values, ops = set(seeds), list[Operation]()
    for op in body.ops:
        if not isinstance(op, dl.YieldOp) and not backward_values.isdisjoint(values_read(op)):
            backward_values.update(op.results)
            ops.append(op)
    return ops


def _required_ops(values: Sequence[SSAValue], ops: Sequence[Operation]) -> list[Operation]:
    """Return the ops that the values depend on, in order, and those with side effects."""
    required_values, required_ops = set(values), list[Operation]()
    for op in reversed(ops):
        if not required_values.isdisjoint(op.results) or has_effect(op):
            required_values.update(values_read(op))
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


def scan_reverse(op: dl.ScanOp, context: ReverseModeContext) -> None:
    """Build the forward and the backward loop of a scan; see Note [Reverse of a scan]."""
    if op.snapshots is not None:
        _scan_reverse_from_snapshots(op, int(number(op.snapshots)), context)
        return
    step, build, arguments, count = _DifferentiatedStep.of(op, context), context.build, list(op.arguments), len(op.results)
    cotangents = [(context.take(op.results[i]) or zeros(build, op.results[i])).value for i in (*step.states, *step.outputs)]
    products = {v: [(_axes(p), *p.operands) for p in s.products] for v, s in step.captured_cotangents.items()}
    backward, residuals, outputs = step.split()
    for seed in reversed(step.seeds):
        step.body.erase_arg(cast("BlockArgument", seed))
    # The sequence elements that the scan reads are stacked already.
    stacked: dict[SSAValue, SSAValue] = dict(zip(step.body.args[op.state_count :], arguments[op.state_count :], strict=True))
    new_residuals = [v for v in residuals if v not in stacked]
    replace_yield(step.body, [*yielded_values(step.body), *new_residuals])
    forward = dl.ScanOp.of(arguments, step.body, op.state_count, op.steps, op.is_reverse)
    insert_before(op, forward)

    stacked |= zip(new_residuals, forward.results[count:], strict=True)
    states = [*cotangents[: len(step.states)], *(zeros(build, summands[0]).value for summands in step.summand_lists)]
    sequences = [*(stacked[v] for v in residuals), *cotangents[len(step.states) :]]
    backward_results = list(
        build.insert(dl.ScanOp.of([*states, *sequences], backward, len(states), op.steps, not op.is_reverse)).results
    )
    replace_and_erase(op, forward.results[:count])

    state_cotangents, sums = backward_results[: len(step.states)], iter(backward_results[len(step.states) : len(states)])
    stacked_values = dict(zip(outputs, backward_results[len(states) :], strict=True)) | stacked
    for i, cotangent in zip(step.states, state_cotangents, strict=True):
        context.add(arguments[i], Term(build, cotangent))
    for i, value in zip(step.sequences, step.element_cotangents, strict=True):
        context.add(arguments[i], Term(build, stacked_values[value]))
    for value, s in step.captured_cotangents.items():
        for sum_ in s.sums:
            total = next(sums)
            for linear_op in sum_.linear_ops:
                total = linear_op.apply(build, total)
            context.add(value, Term(build, total))
        for axes, lhs, rhs in products[value]:
            context.add(value, _contract_over_steps(build, axes, stacked_values[lhs], stacked_values[rhs]))


def _scan_reverse_from_snapshots(op: dl.ScanOp, num_snapshots: int, context: ReverseModeContext) -> None:
    """Keep a scan, and pull cotangents back through its steps; see Note [Binomial checkpoints]."""
    build, count, steps, block, arguments = context.build, op.state_count, op.steps, op.block, list(op.arguments)
    assert isinstance(steps, int)
    states = _active_states(op, context.active)
    sequences = [i for i in range(count, len(arguments)) if arguments[i] in context.active]
    captures = [v for v in captured_values(block) if v in context.active]
    outputs = {i: c.value for i in range(count, len(op.results)) if (c := context.take(op.results[i])) is not None}
    final = {i: context.take(op.results[i]) for i in states}
    cotangents = [(c or zeros(build, arguments[i])).value for i, c in final.items()]
    cotangents += [zeros(build, v).value for v in captures]
    silent_region = Region(clone_body_without_prints(block))
    silent_step = silent_region.block

    def elements(build: DlBuilder, sequences: Sequence[SSAValue], step: SSAValue) -> list[SSAValue]:
        return [element_at(build, v, index(build, step)) for v in sequences]

    def index(build: DlBuilder, step: SSAValue) -> SSAValue:
        return build(dl.SubOp, i64_constant(build, steps - 1), step) if op.is_reverse else step

    def advance(build: DlBuilder, states: Sequence[SSAValue], first: SSAValue, end: SSAValue) -> Sequence[SSAValue]:
        def repeat(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            *states, k = args
            values = inline_copy(build, silent_step, [*states, *elements(build, arguments[count:], k)])
            next_k = build(dl.AddOp, k, i64_constant(build, 1))
            return [build(dl.LessOp, next_k, end), *values[:count], next_k]

        return build_while(build, build(dl.LessOp, first, end), [*states, first], repeat)[:-1]

    def pull_back(
        build: DlBuilder, values: Sequence[SSAValue], step: SSAValue, cotangents: Sequence[SSAValue]
    ) -> Sequence[SSAValue]:
        seeds = dict(zip(states, cotangents, strict=False))
        seeds |= zip(outputs, elements(build, list(outputs.values()), step), strict=True)
        inputs = [*values, *elements(build, arguments[count:], step)]
        previous = pull_back_body(build, silent_step, inputs, [*states, *sequences], captures, seeds, context)
        kept, total = len(states), len(states) + len(sequences)
        sums = [build(dl.AddOp, x, y) for x, y in zip(cotangents[kept:], previous[total:], strict=True)]
        return [*previous[:kept], *sums, *previous[kept:total]]

    num_steps, read = i64_constant(build, steps), [arguments[i] for i in sequences]
    results = reverse_segments(build, num_steps, num_snapshots, arguments[:count], cotangents, advance, pull_back, read)
    silent_region.detach_block(silent_step).erase(safe_erase=False)
    del op.properties["snapshots"]
    for value, cotangent in zip([*(arguments[i] for i in states), *captures], results, strict=False):
        context.add(value, Term(build, cotangent))
    for value, cotangent in zip(read, results[len(cotangents) :], strict=True):
        context.add(value, Term(build, build(dl.ReverseOp, cotangent, axes=(0,)) if op.is_reverse else cotangent))


def _axes(product: dl.DotGeneralOp) -> tuple[tuple[int, ...], ...]:
    """Return the batch axes of both factors, then the contracted ones."""
    return tuple(map(ints, (product.lhs_batch, product.rhs_batch, product.lhs_contract, product.rhs_contract)))


def _contract_over_steps(build: DlBuilder, factor_axes: tuple[tuple[int, ...], ...], lhs: SSAValue, rhs: SSAValue) -> Term:
    """Sum a product over all steps, by one contraction of the stacked factors."""
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = (tuple(a + 1 for a in axes) for axes in factor_axes)
    product = build(
        dl.DotGeneralOp,
        lhs,
        rhs,
        lhs_batch=lhs_batch,
        rhs_batch=rhs_batch,
        lhs_contract=(0, *lhs_contract),
        rhs_contract=(0, *rhs_contract),
    )
    return Term(build, product)

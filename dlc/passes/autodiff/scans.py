"""Derivatives of scans, which are scans too."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import ints, number
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.control import captured_values
from dlc.ir import Region, SSAValue
from dlc.passes.autodiff.binomial_checkpoints import SnapshotStack, reverse_segments
from dlc.passes.autodiff.bodies import (
    ForwardModeContext,
    ReverseModeContext,
    builder_at_end,
    clone_body_without_prints,
    detach_bodies,
    insert_before,
    replace_and_erase,
    replace_yield,
    yielded_values,
)
from dlc.passes.autodiff.differentiated_step import DifferentiatedStep, active_scan_states
from dlc.passes.autodiff.loop_building import (
    build_while,
    element_at,
    i64_constant,
    inline_copy,
    pull_back_body,
)
from dlc.passes.autodiff.rules import is_differentiable
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term


def scan_forward(op: dl.ScanOp, context: ForwardModeContext) -> None:
    """Build the forward-mode scan: its additional states and sequences are the tangents of states and sequences."""
    build, count, arguments = DlBuilder(op), op.state_count, list(op.arguments)
    states = active_scan_states(op, context.tangents)
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


def scan_reverse(op: dl.ScanOp, context: ReverseModeContext) -> None:
    """Build the forward and the backward loop of a scan; see Note [Reverse of a scan]."""
    if op.snapshots is not None:
        _scan_reverse_from_snapshots(op, int(number(op.snapshots)), context)
        return
    step, build, arguments, count = DifferentiatedStep.of(op, context), context.build, list(op.arguments), len(op.results)
    cotangents = [(context.take(op.results[i]) or zeros(build, op.results[i])).value for i in (*step.states, *step.outputs)]
    products = {v: [(_axes(p), *p.operands) for p in s.products] for v, s in step.captured_cotangents.items()}
    backward, residuals, outputs = step.split()
    # The sequence elements that the scan reads are stacked already.
    stacked: dict[SSAValue, SSAValue] = dict(zip(step.body.args[op.state_count :], arguments[op.state_count :], strict=True))
    new_residuals = [v for v in residuals if v not in stacked]
    replace_yield(step.body, [*yielded_values(step.body), *new_residuals])
    forward = dl.ScanOp.of(arguments, step.body, op.state_count, op.steps, op.is_reverse)
    insert_before(op, forward)

    stacked |= zip(new_residuals, forward.results[count:], strict=True)
    states = [*cotangents[: len(step.states)], *step.initial_sums(build)]
    sequences = [*(stacked[v] for v in residuals), *cotangents[len(step.states) :]]
    backward_results = list(
        build.insert(dl.ScanOp.of([*states, *sequences], backward, len(states), op.steps, not op.is_reverse)).results
    )
    replace_and_erase(op, forward.results[:count])

    state_cotangents = backward_results[: len(step.states)]
    stacked_values = dict(zip(outputs, backward_results[len(states) :], strict=True)) | stacked
    for i, cotangent in zip(step.states, state_cotangents, strict=True):
        context.add(arguments[i], Term(build, cotangent))
    for i, value in zip(step.sequences, step.element_cotangents, strict=True):
        context.add(arguments[i], Term(build, stacked_values[value]))
    step.add_sums(context, backward_results[len(step.states) : len(states)])
    for value in step.captured_cotangents:
        for axes, lhs, rhs in products[value]:
            context.add(value, _contract_over_steps(build, axes, stacked_values[lhs], stacked_values[rhs]))


def _scan_reverse_from_snapshots(op: dl.ScanOp, num_snapshots: int, context: ReverseModeContext) -> None:
    """Keep a scan, and pull cotangents back through its steps; see Note [Binomial checkpoints]."""
    build, count, steps, block, arguments = context.build, op.state_count, op.steps, op.block, list(op.arguments)
    assert isinstance(steps, int)
    states = active_scan_states(op, context.active)
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
    stack = SnapshotStack.of(build, arguments[:count], num_snapshots)
    results = reverse_segments(build, num_steps, stack, cotangents, advance, pull_back, read)
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

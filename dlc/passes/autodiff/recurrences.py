"""Recurrences: the derivative of a scan is a scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, ints
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.programs.control import captured, has_effect
from dlc.ir import Block, BlockArgument, Operation, SSAValue
from dlc.passes.autodiff.bodies import (
    ForwardWalk,
    ReverseWalk,
    at_end,
    bodies_of,
    copy_of,
    end,
    put_before,
    substitute,
    yielded,
)
from dlc.passes.autodiff.rules import is_differentiable, read_by
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term


def scan_forward(op: dl.ScanOp, walk: ForwardWalk) -> None:
    """The tangents of states are states, those of sequences are sequences."""
    b, count, arguments = Build(op), op.state_count, list(op.arguments)
    states = [i for i in range(count) if is_differentiable(arguments[i])]
    sequences = [i for i in range(count, len(arguments)) if arguments[i] in walk.tangents]
    made = [i for i in range(count, len(op.results)) if is_differentiable(op.results[i])]
    first = [walk.tangent(arguments[i], b) for i in states]
    elements = [walk.tangents[arguments[i]] for i in sequences]
    (body,) = bodies_of(op)
    parameters = list(body.args)
    for k, i in enumerate(states):
        walk.tangents[parameters[i]] = body.insert_arg(parameters[i].type, count + k)
    for i in sequences:
        walk.tangents[parameters[i]] = body.insert_arg(parameters[i].type, len(body.args))
    walk.walk(body)
    last, b = yielded(body), at_end(body)
    of_states, of_made = ([walk.tangent(last[i], b) for i in chosen] for chosen in (states, made))
    end(body, [*last[:count], *of_states, *last[count:], *of_made])
    total = count + len(states)
    new = dl.ScanOp.of([*arguments[:count], *first, *arguments[count:], *elements], body, total, op.steps, op.goes_back)
    put_before(op, new)
    values = [*new.results[:count], *new.results[total : len(op.results) + len(states)]]
    tangents = [*new.results[count:total], *new.results[len(op.results) + len(states) :]]
    substitute(op, values)
    walk.tangents |= {values[i]: tangent for i, tangent in zip((*states, *made), tangents, strict=True)}


# Note [Reverse of a recurrence]
#
# One step and its reverse are derived as one body: it takes the cotangents of the next states and of what the step makes, and
# computes those of the states before, of the elements it was given, and of what it reads from above. Ops that its results
# need are the forward loop, which keeps in sequences what the others read of it: they are the backward loop, which runs from
# the last step to the first. What does not change from step to step is computed before both. The cotangent
# of what is read from above is a sum over the steps, a state of the backward loop; but where a step adds a product of two
# factors (the cotangent of a matrix of weights), both are kept, and one contraction over all steps and rows follows the loop.


@dataclass
class _Sum:
    """The cotangent, in one step, of a value read from above: products of factors, and what is left of the sum."""

    products: list[dl.DotGeneralOp] = field(default_factory=list[dl.DotGeneralOp])
    rest: list[SSAValue] = field(default_factory=list[SSAValue])

    @classmethod
    def of(cls, total: SSAValue, body: Block, backward: Sequence[Operation]) -> _Sum:
        """The parts of a sum as the backward ops compute it; factors are what changes from step to step."""
        made, pending = cls(), [total]
        inside = {*body.args, *(r for o in body.ops for r in o.results)}
        while pending:
            value = pending.pop()
            match value.owner:
                case dl.AddOp() as op if op in backward and op.x.type == op.y.type:
                    pending += op.operands
                case dl.DotGeneralOp() as op if op in backward and inside.issuperset(op.operands):
                    made.products.append(op)
                case _:
                    made.rest.append(value)
        return made


@dataclass
class _Step:
    """A step and its reverse in one body. `states`, `sequences` and `made` are the places of what has cotangents."""

    op: dl.ScanOp
    body: Block
    states: list[int]
    sequences: list[int]
    made: list[int]
    # Values read from above that have cotangents, and these.
    read: dict[SSAValue, _Sum]
    # Cotangents that the body takes, of next states and of what it makes; and that it computes, of states and of elements.
    seeds: list[SSAValue]
    of_states: list[SSAValue]
    of_elements: list[SSAValue]

    @classmethod
    def of(cls, op: dl.ScanOp, walk: ReverseWalk) -> _Step:
        """The body of a scan, with its reverse appended."""
        count, results = op.state_count, op.results
        states = [i for i in range(count) if is_differentiable(results[i])]
        sequences = [i for i in range(count, len(op.arguments)) if op.arguments[i] in walk.active]
        made = [i for i in range(count, len(results)) if is_differentiable(results[i])]
        read = [v for v in captured(op.block) if v in walk.active]
        body = copy_of(op.block)
        seeded = [*states, *made]
        seeds: list[SSAValue] = [body.insert_arg(yielded(body)[i].type, len(body.args)) for i in seeded]
        wrt = [*(body.args[i] for i in (*states, *sequences)), *read]
        gradients = walk.inside(body, wrt, dict(zip(seeded, seeds, strict=True)))
        b = at_end(body)
        total = len(states) + len(sequences)
        given = [g if g is not None else zeros(b, v).value for v, g in zip(wrt[:total], gradients, strict=False)]
        _hoist(body, op)
        backward = _backward_ops(body, seeds)
        sums = {v: _Sum.of(g, body, backward) for v, g in zip(read, gradients[total:], strict=True) if g is not None}
        return cls(op, body, states, sequences, made, sums, seeds, given[: len(states)], given[len(states) :])

    @property
    def factors(self) -> list[SSAValue]:
        """The operands of all products, each once."""
        return list(dict.fromkeys(v for s in self.read.values() for product in s.products for v in product.operands))

    @property
    def rests(self) -> list[list[SSAValue]]:
        """What is summed up from step to step."""
        return [s.rest for s in self.read.values() if s.rest]

    def split(self) -> tuple[Block, list[SSAValue], list[SSAValue]]:
        """Takes the backward body out: it, what it reads of the forward one, and what it makes.

        It takes cotangents of states, sums so far, what it reads, and cotangents of what is made; it yields the first two,
        then what it makes: cotangents of elements, and factors, each once.
        """
        outputs = [*self.of_states, *(v for rest in self.rests for v in rest), *self.of_elements]
        forward = _needed(yielded(self.body), list(self.body.ops))
        backward = [o for o in self.body.ops if o not in forward and not isinstance(o, dl.YieldOp)]
        late = {*self.seeds, *(v for o in backward for v in o.results)}
        early = {*self.body.args, *(v for o in forward for v in o.results)} - late
        needed = _needed([*outputs, *self.factors], backward)
        used = dict.fromkeys([*(v for o in needed for v in read_by(o)), *outputs, *self.factors])
        residuals = [v for v in used if v in early]
        made = list(dict.fromkeys([*self.of_elements, *(v for v in self.factors if v in late)]))
        count = len(self.states)
        of_states, of_made = self.seeds[:count], self.seeds[count:]
        block = Block(arg_types=[v.type for v in (*of_states, *(rest[0] for rest in self.rests), *residuals, *of_made)])
        before = block.args[count : count + len(self.rests)]
        given = [*block.args[:count], *block.args[count + len(self.rests) :]]
        renamed = dict(zip([*of_states, *residuals, *of_made], given, strict=True))
        for o in backward:
            o.detach()
        for o in needed:
            block.add_op(o)
            for inner in o.walk():
                inner.operands = [renamed.get(v, v) for v in inner.operands]
        # Sums that are taken apart.
        for o in reversed(backward):
            if o.parent is None:
                o.erase(safe_erase=False)
        b, sums = Build(block), list[SSAValue]()
        for total, rest in zip(before, self.rests, strict=True):
            for part in rest:
                total = b(dl.AddOp, total, renamed.get(part, part))
            sums.append(total)
        of_states, values = ([renamed.get(v, v) for v in vs] for vs in (self.of_states, made))
        block.add_op(dl.YieldOp([*of_states, *sums, *values]))
        return block, residuals, made


def _backward_ops(body: Block, seeds: Sequence[SSAValue]) -> list[Operation]:
    """The ops of a body that follow from these values, in order."""
    late, found = set(seeds), list[Operation]()
    for op in body.ops:
        if not isinstance(op, dl.YieldOp) and not late.isdisjoint(read_by(op)):
            late.update(op.results)
            found.append(op)
    return found


def _needed(values: Sequence[SSAValue], ops: Sequence[Operation]) -> list[Operation]:
    """Those of the ops that the values are computed by, in order, and those that are seen without their results."""
    wanted, found = set(values), list[Operation]()
    for op in reversed(ops):
        if not wanted.isdisjoint(op.results) or has_effect(op):
            wanted.update(read_by(op))
            found.insert(0, op)
    return found


def _hoist(body: Block, place: Operation) -> None:
    """Moves what reads nothing of a body before the op that has it."""
    inside = {*body.args, *(r for o in body.ops for r in o.results)}
    for op in list(body.ops):
        if isinstance(op, DlOp) and inside.isdisjoint(op.operands):
            op.detach()
            put_before(place, op)
            inside.difference_update(op.results)


def scan_reverse(op: dl.ScanOp, walk: ReverseWalk) -> None:
    """See Note [Reverse of a recurrence]."""
    step, b, arguments, count = _Step.of(op, walk), walk.b, list(op.arguments), len(op.results)
    cotangents = [(walk.take(op.results[i]) or zeros(b, op.results[i])).value for i in (*step.states, *step.made)]
    products = {v: [(_axes(p), *p.operands) for p in s.products] for v, s in step.read.items()}
    backward, residuals, made = step.split()
    for seed in reversed(step.seeds):
        step.body.erase_arg(cast("BlockArgument", seed))
    # Elements that the scan is given are in sequences already.
    kept: dict[SSAValue, SSAValue] = dict(zip(step.body.args[op.state_count :], arguments[op.state_count :], strict=True))
    new = [v for v in residuals if v not in kept]
    end(step.body, [*yielded(step.body), *new])
    forward = dl.ScanOp.of(arguments, step.body, op.state_count, op.steps, op.goes_back)
    put_before(op, forward)

    kept |= zip(new, forward.results[count:], strict=True)
    states = [*cotangents[: len(step.states)], *(zeros(b, rest[0]).value for rest in step.rests)]
    along = [*(kept[v] for v in residuals), *cotangents[len(step.states) :]]
    loop = list(b.insert(dl.ScanOp.of([*states, *along], backward, len(states), op.steps, not op.goes_back)).results)
    substitute(op, forward.results[:count])

    first, sums = loop[: len(step.states)], iter(loop[len(step.states) : len(states)])
    steps = dict(zip(made, loop[len(states) :], strict=True)) | kept
    for i, ct in zip(step.states, first, strict=True):
        walk.add(arguments[i], Term(b, ct))
    for i, value in zip(step.sequences, step.of_elements, strict=True):
        walk.add(arguments[i], Term(b, steps[value]))
    for value, s in step.read.items():
        if s.rest:
            walk.add(value, Term(b, next(sums)))
        for axes, lhs, rhs in products[value]:
            walk.add(value, _over_steps(b, axes, steps[lhs], steps[rhs]))


def _axes(product: dl.DotGeneralOp) -> tuple[tuple[int, ...], ...]:
    """Batch axes of both factors, then contracted ones."""
    return tuple(map(ints, (product.lhs_batch, product.rhs_batch, product.lhs_contract, product.rhs_contract)))


def _over_steps(b: Build, contractions: tuple[tuple[int, ...], ...], lhs: SSAValue, rhs: SSAValue) -> Term:
    """The sum over all steps of a product whose factors are sequences: one contraction."""
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = (tuple(a + 1 for a in axes) for axes in contractions)
    made = b(
        dl.DotGeneralOp,
        lhs,
        rhs,
        lhs_batch=lhs_batch,
        rhs_batch=rhs_batch,
        lhs_contract=(0, *lhs_contract),
        rhs_contract=(0, *rhs_contract),
    )
    return Term(b, made)

"""Derivatives of branches: the derivative of an if op is an if op."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.programs.control import read_values
from dlc.ir import Block
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
from dlc.passes.autodiff.rules import is_differentiable
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term


def if_forward(op: dl.IfOp, context: ForwardModeContext) -> None:
    """Add tangents to the results of both bodies."""
    count = len(op.results)
    differentiated = [i for i, r in enumerate(op.results) if is_differentiable(r)]
    bodies, types = detach_bodies(op), [r.type for r in op.results]
    for body in bodies:
        if not isinstance(body.last_op, dl.FailOp):
            context.walk(body)
            results, build = yielded_values(body), builder_at_end(body)
            replace_yield(body, [*results, *(context.tangent(results[i], build) for i in differentiated)])
    new_op = dl.IfOp.of(op.condition, bodies[0], bodies[1], [*types, *(types[i] for i in differentiated)])
    insert_before(op, new_op)
    replace_and_erase(op, new_op.results[:count])
    context.tangents |= {new_op.results[i]: tangent for i, tangent in zip(differentiated, new_op.results[count:], strict=True)}


def if_reverse(op: dl.IfOp, context: ReverseModeContext) -> None:
    """Append an if op that computes the cotangents of the captured values; its bodies recompute the residuals."""
    seeds = {i: cotangent.value for i, r in enumerate(op.results) if (cotangent := context.take(r)) is not None}
    captures = list(dict.fromkeys(v for v in read_values(op) if v in context.active))
    bodies: list[Block] = []
    for body in op.blocks:
        copy = clone_body_without_prints(body)
        if not isinstance(copy.last_op, dl.FailOp):
            cotangents, build = context.pull_back_block(copy, captures, seeds), builder_at_end(copy)
            replace_yield(
                copy,
                [
                    zeros(build, v).value if cotangent is None else cotangent
                    for v, cotangent in zip(captures, cotangents, strict=True)
                ],
            )
        bodies.append(copy)
    new_op = context.build.insert(dl.IfOp.of(op.condition, bodies[0], bodies[1], [v.type for v in captures]))
    for value, result in zip(captures, new_op.results, strict=True):
        context.add(value, Term(context.build, result))

"""Branches: one of two bodies runs, and so does its derivative."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.ir import Block
from dlc.passes.autodiff.bodies import (
    ForwardWalk,
    ReverseWalk,
    at_end,
    bodies_of,
    end,
    put_before,
    silent_copy_of,
    substitute,
    yielded,
)
from dlc.passes.autodiff.rules import is_differentiable, read_by
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term


def if_forward(op: dl.IfOp, walk: ForwardWalk) -> None:
    """Each body computes tangents beside its results."""
    count = len(op.results)
    moving = [i for i, r in enumerate(op.results) if is_differentiable(r)]
    bodies, types = bodies_of(op), [r.type for r in op.results]
    for body in bodies:
        if not isinstance(body.last_op, dl.FailOp):
            walk.walk(body)
            last, b = yielded(body), at_end(body)
            end(body, [*last, *(walk.tangent(last[i], b) for i in moving)])
    new = dl.IfOp.of(op.condition, bodies[0], bodies[1], [*types, *(types[i] for i in moving)])
    put_before(op, new)
    substitute(op, new.results[:count])
    walk.tangents |= {new.results[i]: tangent for i, tangent in zip(moving, new.results[count:], strict=True)}


def if_reverse(op: dl.IfOp, walk: ReverseWalk) -> None:
    """A branch of its own for the cotangents of what the bodies read, which computes again what it needs of them."""
    seeds = {i: ct.value for i, r in enumerate(op.results) if (ct := walk.take(r)) is not None}
    read = list(dict.fromkeys(v for v in read_by(op) if v in walk.active))
    bodies: list[Block] = []
    for body in op.blocks:
        copy = silent_copy_of(body)
        if not isinstance(copy.last_op, dl.FailOp):
            pulled, b = walk.inside(copy, read, seeds), at_end(copy)
            end(copy, [zeros(b, v).value if ct is None else ct for v, ct in zip(read, pulled, strict=True)])
        bodies.append(copy)
    new = walk.b.insert(dl.IfOp.of(op.condition, bodies[0], bodies[1], [v.type for v in read]))
    for value, result in zip(read, new.results, strict=True):
        walk.add(value, Term(walk.b, result))

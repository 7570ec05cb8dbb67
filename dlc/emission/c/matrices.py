"""Matrices that items multiply together: sums are variables, which a function of the dialect's adds to."""

from __future__ import annotations

from dlc.dialects.matrices import MultiplyWordsOp
from dlc.emission.c.core import Writer
from dlc.emission.c.text import code
from dlc.emission.visit.visit import Handlers
from dlc.ir import Operation, vector


def multiply_words(e: Writer, op: Operation) -> None:
    assert isinstance(op, MultiplyWordsOp)
    sums = (op.upper_sums, op.lower_sums)
    names = [e.name(hint) for result in op.results for hint in e.hints(result, "sums")]
    kinds = [t for v in sums for t in e.layout(v.type)]
    for name, t, before in zip(names, kinds, (register for v in sums for register in e.regs(v)), strict=True):
        e.assign(name, before, e.type(t))
    factors = [register for v in (op.rows, op.words) for register in e.regs(v)]
    operands = [*(code("&", name) for name in names), *factors]
    (t,), (s,) = set(kinds), {r for v in (op.rows, op.words) for r in e.layout(v.type)}
    e.emit(e.expression(f"multiply_words.{op.dot.data}", t, *operands, s=s), ";")
    half = len(names) // 2
    e.bind(op.upper_result, names[:half])
    e.bind(op.lower_result, names[half:])


def shuffle(e: Writer, op: Operation) -> None:
    """vector.shuffle of two rows."""
    assert isinstance(op, vector.ShuffleOp)
    lanes: list[str] = []
    for value in (op.v1, op.v2):
        for t, name in zip(e.layout(value.type), e.regs(value), strict=True):
            lanes += [e.lane(t, name, i) for i in range(t.used)]
    chosen, names = [lanes[i] for i in op.mask.get_values()], list[str]()
    for t, hint in zip(e.layout(op.result.type), e.hints(op.result, "shuffle"), strict=True):
        own, chosen = chosen[: t.width], chosen[t.width :]
        names.append(e.compute(t, e.from_lanes(t, own), hint, movable=True))
    e.bind(op.result, names)


HANDLERS: Handlers = {MultiplyWordsOp.name: multiply_words, "vector.shuffle": shuffle}

"""Vectors as such: broadcasts, extraction, insertion, shuffles and horizontal reductions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from dlc.emission.c.arith import expression
from dlc.emission.c.convert import float_to_float, lane, splat
from dlc.emission.c.core import Emitter, Handlers
from dlc.emission.c.vocabulary import Register, vector_shape
from dlc.ir import Operation, vector


def _hint(op: Operation) -> str:
    return op.results[0].name_hint or op.name.partition(".")[2]


def broadcast(e: Emitter, op: Operation) -> None:
    """vector.broadcast; equal rows are the same registers, not copies."""
    source, result = op.operands[0], op.results[0]
    names, types, target = e.regs(source), e.layout(result.type), vector_shape(result.type)
    shape = (1,) * (len(target) - len(vector_shape(source.type))) + vector_shape(source.type)
    pieces = len(e.pieces(target[-1]))
    # A stretched row is one scalar in every lane; else piece i of a row comes from piece i.
    stretched = shape[-1] == 1 != target[-1]
    row_strides = [0 if n == 1 else prod(shape[d + 1 : -1]) for d, n in enumerate(shape[:-1])]
    done: dict[object, str] = {}
    registers: list[str] = []
    for index in product(*map(range, target[:-1])):
        row = sum(i * s for i, s in zip(index, row_strides, strict=True))
        for piece in range(pieces):
            if not stretched:
                registers.append(names[row * pieces + piece])
                continue
            key = (names[row], types[piece])
            if key not in done:
                done[key] = e.define(e.type(types[piece]), splat(e, types[piece], names[row]), _hint(op), movable=True)
            registers.append(done[key])
    e.registers[result] = tuple(registers)


# Reductions


def reduction(e: Emitter, op: Operation) -> None:
    """vector.reduction: registers of one width pairwise, then the halves of the widest; halves of precision in f32."""
    assert isinstance(op, vector.ReductionOp)
    kind, hint = op.kind.data.value, _hint(op)
    level = list(zip(e.layout(op.vector.type), e.regs(op.vector), strict=True))
    narrow = level[0][0].kind
    if narrow in ("f16", "bf16"):
        level = [
            (t.of("f32"), e.define(e.type(t.of("f32")), float_to_float(e, t.of("f32"), t, (name,)), hint)) for t, name in level
        ]
    name_of = kind if kind[:3] in ("max", "min") else f"{kind}{'f' if level[0][0].kind.startswith('f') else 'i'}"
    combine = expression(name_of)

    def join(t: Register, a: str, b: str) -> str:
        return e.define(e.type(t), combine(e, t, t, (a, b)), hint)

    while len(level) > 1 or level[0][0].width > 1:
        width = max(t.width for t, _ in level)
        widest = [name for t, name in level if t.width == width]
        rest = [(t, name) for t, name in level if t.width < width]
        t = level[0][0]._replace(width=width)
        if len(widest) > 1:
            joined = [join(t, a, b) for a, b in zip(widest[::2], widest[1::2], strict=False)]
            level = [*((t, name) for name in [*joined, *widest[len(joined) * 2 :]]), *rest]
        else:
            level = [*((_half(t), name) for name in _halves(e, t, widest[0], hint)), *rest]
    t, result = level[0]
    single = Register(narrow, 1)
    if op.acc is not None:
        acc = e.scalar(op.acc)
        result = join(t, float_to_float(e, t, single, (acc,)) if narrow != t.kind else acc, result)
    if narrow != t.kind:
        result = e.define(e.type(single), float_to_float(e, single, t, (result,)), hint)
    e.bind(op.dest, [result])


def _half(t: Register) -> Register:
    return t._replace(width=t.width // 2)


def _halves(e: Emitter, t: Register, name: str, hint: str) -> Sequence[str]:
    half = _half(t)
    if half.width == 1:
        return [e.define(e.type(half), lane(e, t, name, i), hint, movable=True) for i in range(2)]
    held = t.of(e.computed(t.kind))
    texts = [e.expression(which, _half(held), name, s=held) for which in ("low", "high")]
    return [e.define(e.type(half), text, hint, movable=True) for text in texts]


HANDLERS: Handlers = {
    "vector.broadcast": broadcast,
    "vector.reduction": reduction,
}

"""Vectors as such: broadcasts, extraction, insertion, shuffles and horizontal reductions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from dlc.emission.c.arith import expression
from dlc.emission.c.convert import bitcast, float_to_float, from_lanes, lane, splat
from dlc.emission.c.core import Emitter, Handlers, Registers
from dlc.emission.c.vocabulary import Register, vector_shape
from dlc.errors import UnsupportedError
from dlc.ir import DenseArrayBase, IndexType, Operation, SSAValue, vector

_DYNAMIC = -(1 << 63)


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


# Extraction and insertion


def _position(e: Emitter, op: vector.ExtractOp | vector.InsertOp) -> list[int | str]:
    """The position: constants, or expressions."""
    static = op.properties["static_position"]
    assert isinstance(static, DenseArrayBase)
    dynamic = iter(op.dynamic_position)
    position: list[int | str] = []
    for v in static.get_values():
        form = e.linear(next(dynamic)) if v == _DYNAMIC else None
        position.append(int(v) if form is None else e.index(form) if form.terms else form.constant)
    return position


def _part(e: Emitter, op: vector.ExtractOp | vector.InsertOp, whole: SSAValue) -> tuple[range, int | str | None]:
    """The registers that a position selects, and the lane in the only one of them if it is an element."""
    shape, position = vector_shape(whole.type), _position(e, op)
    pieces = e.pieces(shape[-1]) if shape else [1]
    row, lanes = position[: len(shape) - 1], position[len(shape) - 1 :]
    start = 0
    for d, p in enumerate(row):
        if isinstance(p, str):
            raise UnsupportedError(f"kernel @{e.kernel}: {op.name} at a dynamic row of {whole.type}; index a memref instead")
        start += p * prod(shape[d + 1 : -1]) * len(pieces)
    if not lanes:
        return range(start, start + prod(shape[len(position) : -1]) * len(pieces)), None
    place = lanes[0]
    if isinstance(place, str):
        if len(pieces) > 1:
            raise UnsupportedError(f"kernel @{e.kernel}: {op.name} at a dynamic lane of {whole.type}; index a memref instead")
        return range(start, start + 1), place
    for piece, width in enumerate(pieces):
        if place < width:
            return range(start + piece, start + piece + 1), place
        place -= width
    raise UnsupportedError(f"kernel @{e.kernel}: {op.name} outside {whole.type}")


def extract(e: Emitter, op: Operation) -> None:
    assert isinstance(op, vector.ExtractOp)
    names, (part, place) = e.regs(op.vector), _part(e, op, op.vector)
    if place is None:
        e.registers[op.result] = names[part.start : part.stop]
        return
    t, name = e.layout(op.vector.type)[part.start], names[part.start]
    single = t._replace(width=1)
    if t.width == 1 and not isinstance(op.result.type, IndexType):
        e.registers[op.result] = (name,)
        return
    if isinstance(place, str):
        text = e.expression("lane.dynamic", single.of(e.computed(t.kind)), name, place, s=t.of(e.computed(t.kind)))
        text = f"({text} & 1)" if t.kind == "i1" else text
    else:
        text = lane(e, t, name, place)
    e.bind(op.result, [e.define(e.type(single), text, _hint(op), movable=not isinstance(op.result.type, IndexType))])


def insert(e: Emitter, op: Operation) -> None:
    assert isinstance(op, vector.InsertOp)
    names, source, (part, place) = list(e.regs(op.dest)), e.regs(op.source), _part(e, op, op.dest)
    t = e.layout(op.dest.type)[part.start]
    if place is not None and t.width > 1:
        old = names[part.start]
        if isinstance(place, str):
            held = t.of(e.computed(t.kind))
            value = source[0] if t.kind != "i1" else f"-({source[0]})"
            text = e.expression("insert.dynamic", held, old, value, place)
        else:
            text = from_lanes(e, t, [source[0] if i == place else lane(e, t, old, i) for i in range(t.width)])
        source = (e.define(e.type(t), text, _hint(op)),)
    names[part.start : part.stop] = source
    e.registers[op.result] = tuple(names)


# Shuffles


def shuffle(e: Emitter, op: Operation) -> None:
    assert isinstance(op, vector.ShuffleOp)
    mask = op.properties["mask"]
    assert isinstance(mask, DenseArrayBase)
    chosen = [int(i) for i in mask.get_values()]
    if len(vector_shape(op.v1.type)) > 1:
        rows = [*_rows(e, op.v1), *_rows(e, op.v2)]
        e.registers[op.result] = tuple(name for i in chosen for name in rows[i])
        return
    lanes = [
        (t, name, i)
        for v in (op.v1, op.v2)
        for t, name in zip(e.layout(v.type), e.regs(v), strict=True)
        for i in range(t.width)
    ]
    registers: list[str] = []
    start = 0
    for t, suffix in zip(e.layout(op.result.type), e.suffixes(op.result.type), strict=True):
        sources = [lanes[i] for i in chosen[start : start + t.width]]
        start += t.width
        whole, name, _ = sources[0]
        if sources == [(whole, name, i) for i in range(whole.width)]:
            registers.append(name)
        else:
            text = from_lanes(e, t, [lane(e, *source) for source in sources])
            registers.append(e.define(e.type(t), text, _hint(op) + suffix))
    e.registers[op.result] = tuple(registers)


def _rows(e: Emitter, value: SSAValue) -> list[Registers]:
    """The registers of each index of the leading dimension."""
    names, count = e.regs(value), vector_shape(value.type)[0]
    size = len(names) // count
    return [names[i * size : (i + 1) * size] for i in range(count)]


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


def cast(e: Emitter, op: Operation) -> None:
    source, result = op.operands[0], op.results[0]
    if vector_shape(source.type) != vector_shape(result.type):
        raise UnsupportedError(f"kernel @{e.kernel}: vector.bitcast {source.type} to {result.type} changes the lanes")
    places = zip(e.layout(source.type), e.layout(result.type), e.regs(source), e.suffixes(result.type), strict=True)
    names = [e.define(e.type(t), bitcast(e, t, s, (name,)), _hint(op) + suffix) for s, t, name, suffix in places]
    e.registers[result] = tuple(names)


HANDLERS: Handlers = {
    "vector.broadcast": broadcast,
    "vector.extract": extract,
    "vector.insert": insert,
    "vector.shuffle": shuffle,
    "vector.reduction": reduction,
    "vector.bitcast": cast,
}

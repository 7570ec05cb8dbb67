"""Vectors as such: broadcasts, extraction, insertion, shuffles and horizontal reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import inf, prod

from dlc.emission.llvm.arith import Primitive, extremum, extremum_of_numbers, in_float, instruction, intrinsic, select
from dlc.emission.llvm.constants import mask_literal, splat
from dlc.emission.llvm.convert import float_to_float
from dlc.emission.llvm.core import Emitter, Registers, RegisterType, is_half, register_type, splat_register, vector_shape
from dlc.errors import UnsupportedError
from dlc.ir import DenseArrayBase, Operation, SSAValue, f32, vector

_DYNAMIC = -(1 << 63)


def broadcast(e: Emitter, op: Operation) -> None:
    """vector.broadcast; equal rows are the same registers, not copies."""
    source, result = op.operands[0], op.results[0]
    names, types, target = e.regs(source), e.layout(result.type), vector_shape(result.type)
    shape = (1,) * (len(target) - len(vector_shape(source.type))) + vector_shape(source.type)
    pieces = len(e.pieces(target[-1]))
    # A stretched row is one scalar in every lane; else piece i of a row comes from piece i.
    stretched = shape[-1] == 1 != target[-1]
    row_strides = [0 if n == 1 else prod(shape[d + 1 : -1]) for d, n in enumerate(shape[:-1])]
    registers: list[str] = []
    for index in product(*map(range, target[:-1])):
        row = sum(i * s for i, s in zip(index, row_strides, strict=True))
        for piece in range(pieces):
            if stretched:
                registers.append(splat_register(e, types[piece], names[row]))
            else:
                registers.append(names[row * pieces + piece])
    e.registers[result] = tuple(registers)


# Extraction and insertion


def _position(e: Emitter, op: vector.ExtractOp | vector.InsertOp) -> list[int | str]:
    """The position: constants, or names of i64 values."""
    static = op.properties["static_position"]
    assert isinstance(static, DenseArrayBase)
    dynamic = iter(op.dynamic_position)
    position = [e.materialize(e.linear(next(dynamic))) if v == _DYNAMIC else int(v) for v in static.get_values()]
    return [int(p) if isinstance(p, str) and not p.startswith("%") else p for p in position]


def _part(e: Emitter, op: vector.ExtractOp | vector.InsertOp, whole: SSAValue) -> tuple[range, int | str | None]:
    """The registers that a position selects, and the lane in the only one of them if it is an element."""
    shape, position = vector_shape(whole.type), _position(e, op)
    pieces = len(e.pieces(shape[-1])) if shape else 1
    row, lane = position[: len(shape) - 1], position[len(shape) - 1 :]
    start = 0
    for d, p in enumerate(row):
        if isinstance(p, str):
            raise UnsupportedError(f"kernel @{e.kernel}: {op.name} at a dynamic row of {whole.type}; index a memref instead")
        start += p * prod(shape[d + 1 : -1]) * pieces
    if not lane:
        return range(start, start + prod(shape[len(position) : -1]) * pieces), None
    if isinstance(lane[0], str):
        if pieces > 1:
            raise UnsupportedError(f"kernel @{e.kernel}: {op.name} at a dynamic lane of {whole.type}; index a memref instead")
        return range(start, start + 1), lane[0]
    piece, lane_in_piece = divmod(lane[0], e.lanes)
    return range(start + piece, start + piece + 1), lane_in_piece


def extract(e: Emitter, op: Operation) -> None:
    assert isinstance(op, vector.ExtractOp)
    names, (part, lane) = e.regs(op.vector), _part(e, op, op.vector)
    if lane is None:
        e.bind(op.result, names[part.start : part.stop])
        return
    t, name = e.layout(op.vector.type)[part.start], names[part.start]
    e.bind(op.result, [name if t.width == 1 else e.define(f"extractelement {t.text} {name}, i64 {lane}")])


def insert(e: Emitter, op: Operation) -> None:
    assert isinstance(op, vector.InsertOp)
    names, source, (part, lane) = list(e.regs(op.dest)), e.regs(op.source), _part(e, op, op.dest)
    t = e.layout(op.dest.type)[part.start]
    if lane is not None and t.width > 1:
        source = (e.define(f"insertelement {t.text} {names[part.start]}, {t.scalar} {source[0]}, i64 {lane}"),)
    names[part.start : part.stop] = source
    e.registers[op.result] = tuple(names)


# Shuffles


def shuffle_lanes(e: Emitter, t: RegisterType, a: str, b: str, lanes: Sequence[int | None]) -> str:
    """Lanes of `a` and `b`, both of type `t`, numbered through; None is any value."""
    mask = ", ".join("i32 poison" if i is None else f"i32 {i}" for i in lanes)
    return e.define(f"shufflevector {t.text} {a}, {t.text} {b}, <{len(lanes)} x i32> <{mask}>")


def gather_lanes(e: Emitter, t: RegisterType, sources: Sequence[tuple[RegisterType, str, int]]) -> str:
    """The register of type `t` whose lane i is lane `sources[i][2]` of the register `sources[i][1]`."""
    # No lane may be undefined: an integer division by it would be.
    sources = [*sources, *([sources[0]] * (t.width - len(sources)))]
    order = list(dict.fromkeys((s, name) for s, name, _ in sources))
    if t.width == 1:
        s, name, lane = sources[0]
        return name if s.width == 1 else e.define(f"extractelement {s.text} {name}, i64 {lane}")
    common = register_type(t.element, max(t.width, *(s.width for s, _ in order)))
    wide: list[str] = []
    for s, name in order:
        if s.width == 1:
            name = e.define(f"insertelement {common.text} poison, {s.text} {name}, i64 0")
        elif s.width < common.width:
            name = shuffle_lanes(e, s, name, "poison", [*range(s.width), *[None] * (common.width - s.width)])
        wide.append(name)
    # One register at a time joins those whose lanes are in place.
    lanes: list[int | None] = [lane if (s, name) == order[0] else None for s, name, lane in sources]
    result = wide[0]
    if len(order) == 1:
        return shuffle_lanes(e, common, result, "poison", lanes)
    pad: list[int | None] = [None] * (common.width - t.width)
    for i, key in enumerate(order[1:], 1):
        joined = [common.width + lane if (s, name) == key else old for (s, name, lane), old in zip(sources, lanes, strict=True)]
        last = i == len(order) - 1
        result = shuffle_lanes(e, common, result, wide[i], joined if last else joined + pad)
        lanes = [None if lane is None else place for place, lane in enumerate(joined)]
    return result


def _lanes_of(e: Emitter, value: SSAValue) -> Iterator[tuple[RegisterType, str, int]]:
    for t, name in zip(e.layout(value.type), e.regs(value), strict=True):
        for lane in range(t.used):
            yield t, name, lane


def shuffle(e: Emitter, op: Operation) -> None:
    assert isinstance(op, vector.ShuffleOp)
    mask = op.properties["mask"]
    assert isinstance(mask, DenseArrayBase)
    chosen = [int(i) for i in mask.get_values()]
    if len(vector_shape(op.v1.type)) > 1:
        rows = [*_rows(e, op.v1), *_rows(e, op.v2)]
        e.registers[op.result] = tuple(name for i in chosen for name in rows[i])
        return
    lanes = [*_lanes_of(e, op.v1), *_lanes_of(e, op.v2)]
    registers: list[str] = []
    for piece, t in enumerate(e.layout(op.result.type)):
        start = piece * e.lanes
        registers.append(gather_lanes(e, t, [lanes[i] for i in chosen[start : start + t.used]]))
    e.registers[op.result] = tuple(registers)


def _rows(e: Emitter, value: SSAValue) -> list[Registers]:
    """The registers of each index of the leading dimension."""
    names, count = e.regs(value), vector_shape(value.type)[0]
    size = len(names) // count
    return [names[i * size : (i + 1) * size] for i in range(count)]


# Reductions


def _combiner(kind: str, t: RegisterType) -> tuple[Primitive, float]:
    """The combining primitive of a `vector.kind` and its neutral element."""
    if t.scalar in ("float", "double") or is_half(t.element):
        primitive, neutral = {
            "add": (instruction("fadd"), -0.0),
            "mul": (instruction("fmul"), 1.0),
            "maximumf": (extremum("maximum"), -inf),
            "minimumf": (extremum("minimum"), inf),
            "maxnumf": (extremum_of_numbers("ogt"), -inf),
            "minnumf": (extremum_of_numbers("olt"), inf),
        }[kind]
        return in_float(primitive), neutral
    bits = int(t.scalar[1:])
    return {
        "add": (instruction("add"), 0),
        "mul": (instruction("mul"), 1),
        "and": (instruction("and"), -1),
        "or": (instruction("or"), 0),
        "xor": (instruction("xor"), 0),
        "maxsi": (intrinsic("smax"), -(1 << bits - 1)),
        "minsi": (intrinsic("smin"), (1 << bits - 1) - 1),
        "maxui": (intrinsic("umax"), 0),
        "minui": (intrinsic("umin"), (1 << bits) - 1),
    }[kind]


def reduction(e: Emitter, op: Operation) -> None:
    """vector.reduction: registers pairwise, then the halves of the last one; halves of precision in f32, rounded once."""
    assert isinstance(op, vector.ReductionOp)
    registers = list(zip(e.layout(op.vector.type), e.regs(op.vector), strict=True))
    element = registers[0][0].element
    if is_half(element):
        registers = [(t.of(f32), float_to_float(e, t.of(f32), t, (name,))) for t, name in registers]
    primitive, neutral = _combiner(op.kind.data.value, registers[0][0])
    level: list[tuple[RegisterType, str]] = []
    for t, name in registers:
        if t.used < t.width:
            name = select(e, t, mask_literal(t), name, splat(t, neutral))
        level.append((register_type(t.element, t.width), name))
    while len(level) > 1 or level[0][0].width > 1:
        width = max(t.width for t, _ in level)
        widest = [name for t, name in level if t.width == width]
        rest = [(t, name) for t, name in level if t.width < width]
        t = register_type(level[0][0].element, width)
        if len(widest) > 1:
            pairs = zip(widest[::2], widest[1::2], strict=False)
            combined = [primitive(e, t, t, pair) for pair in pairs] + (widest[-1:] if len(widest) % 2 else [])
            level = [(t, name) for name in combined] + rest
        else:
            level = [(half, name) for half, name in _halves(e, t, widest[0])] + rest
    t, result = level[0]
    scalar = register_type(element, 1)
    if op.acc is not None:
        acc = e.scalar(op.acc)
        result = primitive(e, t, t, (float_to_float(e, t, scalar, (acc,)) if is_half(element) else acc, result))
    e.bind(op.dest, [float_to_float(e, scalar, t, (result,)) if is_half(element) else result])


def _halves(e: Emitter, t: RegisterType, name: str) -> list[tuple[RegisterType, str]]:
    half = register_type(t.element, t.width // 2)
    if half.width == 1:
        return [(half, e.define(f"extractelement {t.text} {name}, i64 {i}")) for i in range(2)]
    ranges = (range(half.width), range(half.width, t.width))
    return [(half, shuffle_lanes(e, t, name, "poison", list(lanes))) for lanes in ranges]


def bitcast(e: Emitter, op: Operation) -> None:
    source, result = op.operands[0], op.results[0]
    if vector_shape(source.type) != vector_shape(result.type):
        raise UnsupportedError(f"kernel @{e.kernel}: vector.bitcast {source.type} to {result.type} changes the lanes")
    registers: list[str] = []
    for s, t, name in zip(e.layout(source.type), e.layout(result.type), e.regs(source), strict=True):
        registers.append(name if s.text == t.text else e.define(f"bitcast {s.text} {name} to {t.text}"))
    e.registers[result] = tuple(registers)


HANDLERS: dict[str, Callable[[Emitter, Operation], None]] = {
    "vector.broadcast": broadcast,
    "vector.extract": extract,
    "vector.insert": insert,
    "vector.shuffle": shuffle,
    "vector.reduction": reduction,
    "vector.bitcast": bitcast,
}

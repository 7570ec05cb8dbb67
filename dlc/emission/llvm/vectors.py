"""Vectors as such: broadcasts, extraction, insertion, shuffles and horizontal reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import inf, prod

from dlc.emission.llvm.arith import Primitive, extremum, in_float, instruction, intrinsic, select
from dlc.emission.llvm.constants import mask_literal, splat
from dlc.emission.llvm.convert import float_to_float
from dlc.emission.llvm.core import Emitter, RegisterType, is_half, register_type, splat_register, vector_shape
from dlc.ir import Operation, f32, vector


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


# Shuffles


def shuffle_lanes(e: Emitter, t: RegisterType, a: str, b: str, lanes: Sequence[int | None]) -> str:
    """Lanes of `a` and `b`, both of type `t`, numbered through; None is any value."""
    mask = ", ".join("i32 poison" if i is None else f"i32 {i}" for i in lanes)
    return e.define(f"shufflevector {t.text} {a}, {t.text} {b}, <{len(lanes)} x i32> <{mask}>")


# Reductions


def _combiner(kind: str, t: RegisterType) -> tuple[Primitive, float]:
    """The combining primitive of a `vector.kind` and its neutral element."""
    if t.scalar in ("float", "double") or is_half(t.element):
        primitive, neutral = {
            "add": (instruction("fadd"), -0.0),
            "mul": (instruction("fmul"), 1.0),
            "maximumf": (extremum("maximum"), -inf),
            "minimumf": (extremum("minimum"), inf),
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


HANDLERS: dict[str, Callable[[Emitter, Operation], None]] = {
    "vector.broadcast": broadcast,
    "vector.reduction": reduction,
}

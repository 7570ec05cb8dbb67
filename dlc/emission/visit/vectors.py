"""Constants, broadcasts and horizontal reductions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import Any, cast

from dlc.emission.visit.linear import Linear
from dlc.emission.visit.registers import Register, is_half, vector_shape
from dlc.emission.visit.visit import Handlers, Visit
from dlc.errors import UnsupportedError
from dlc.ir import DenseIntOrFPElementsAttr, FloatAttr, IndexType, IntegerAttr, Operation, SSAValue, vector


def constant(e: Visit, op: Operation) -> None:
    """arith.constant: literals written where they are used."""
    result, value = op.results[0], op.properties["value"]
    types = e.layout(result.type)
    if isinstance(value, IntegerAttr) and isinstance(result.type, IndexType):
        e.linears[result] = Linear(value.value.data)
    elif isinstance(value, IntegerAttr | FloatAttr):
        e.registers[result] = (e.literal(types[0].kind, value.value.data),)
    elif isinstance(value, DenseIntOrFPElementsAttr):
        values = cast(Sequence[float], cast(Any, value).get_values())
        if value.is_splat():
            text = e.literal(types[0].kind, values[0])
            e.registers[result] = tuple(e.splat_literal(t, text) for t in types)
        else:
            literals = (e.literal(types[0].kind, v) for v in values)
            places = zip(types, e.hints(result, "table"), strict=False)
            e.registers[result] = tuple(e.table(t, list(islice(literals, t.used)), hint) for t, hint in places)
    else:
        raise UnsupportedError(f"kernel @{e.kernel}: a constant of the form {value.name} cannot be emitted; use dense<…>")


def _hint(result: SSAValue, default: str) -> str:
    return result.name_hint or default


def broadcast(e: Visit, op: Operation) -> None:
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
    for index in e.rows(result.type):
        row = sum(i * s for i, s in zip(index, row_strides, strict=True))
        for piece in range(pieces):
            if not stretched:
                registers.append(names[row * pieces + piece])
                continue
            key = (names[row], types[piece])
            if key not in done:
                done[key] = e.splat(types[piece], names[row], _hint(result, "broadcast"))
            registers.append(done[key])
    e.registers[result] = tuple(registers)


def reduction(e: Visit, op: Operation) -> None:
    """vector.reduction: registers of one width pairwise, then the halves of the widest; halves of precision in f32, rounded
    once."""
    assert isinstance(op, vector.ReductionOp)
    kind, hint = op.kind.data.value, _hint(op.dest, "reduction")
    (narrow,) = e.layout(op.dest.type)
    computed = narrow.of("f32") if is_half(narrow.kind) else narrow
    level: list[tuple[Register, str]] = []
    for s, name in zip(e.layout(op.vector.type), e.regs(op.vector), strict=True):
        t = s.of(computed.kind)
        name = e.resize(t, s, name, hint) if t != s else name
        level.append((t.wide(t.width), e.without_tail(kind, t, name) if t.used < t.width else name))
    while len(level) > 1 or level[0][0].width > 1:
        widest = max(level, key=lambda place: place[0].width)[0]
        whole = [name for t, name in level if t == widest]
        rest = [place for place in level if place[0] != widest]
        if len(whole) > 1:
            pairs = zip(whole[::2], whole[1::2], strict=False)
            joined = [e.combine(kind, widest, a, b, hint) for a, b in pairs]
            level = [(widest, name) for name in [*joined, *whole[2 * len(joined) :]]] + rest
        else:
            half = widest.wide(widest.width // 2)
            level = [(half, name) for name in e.halves(widest, whole[0], hint)] + rest
    result = level[0][1]
    if op.acc is not None:
        first = e.scalar(op.acc)
        first = e.resize(computed, narrow, first, hint, inline=True) if computed != narrow else first
        result = e.combine(kind, computed, first, result, hint)
    e.bind(op.dest, [e.resize(narrow, computed, result, hint) if computed != narrow else result])


def extract(e: Visit, op: Operation) -> None:
    """vector.extract of a row: its registers."""
    assert isinstance(op, vector.ExtractOp)
    names, shape = e.regs(op.vector), vector_shape(op.vector.type)
    index = [int(i) for i in op.static_position.get_values()]
    if op.dynamic_position or len(index) != len(shape) - 1:
        raise UnsupportedError(f"kernel @{e.kernel}: only whole rows are extracted, at places that are known")
    row = sum(i * prod(shape[d + 1 : -1]) for d, i in enumerate(index))
    pieces = len(e.layout(op.result.type))
    e.registers[op.result] = names[row * pieces : (row + 1) * pieces]


HANDLERS: Handlers = {
    "arith.constant": constant,
    "vector.broadcast": broadcast,
    "vector.extract": extract,
    "vector.reduction": reduction,
}

"""Constants, broadcasts, row extraction and horizontal reductions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import Any, cast

from dlc.emission.common.emitter import Handlers, KernelEmitter
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.registers import Register, is_half, vector_shape
from dlc.errors import UnsupportedError
from dlc.ir import DenseIntOrFPElementsAttr, FloatAttr, IndexType, IntegerAttr, Operation, SSAValue, vector


def constant(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `arith.constant`: literals at their uses."""
    result, value = op.results[0], op.properties["value"]
    types = emitter.layout(result.type)
    if isinstance(value, IntegerAttr) and isinstance(result.type, IndexType):
        emitter.linear_expressions[result] = LinearExpression(value.value.data)
    elif isinstance(value, IntegerAttr | FloatAttr):
        emitter.registers[result] = (emitter.literal(types[0].kind, value.value.data),)
    elif isinstance(value, DenseIntOrFPElementsAttr):
        values = cast(Sequence[float], cast(Any, value).get_values())
        if value.is_splat():
            text = emitter.literal(types[0].kind, values[0])
            emitter.registers[result] = tuple(emitter.splat_literal(t, text) for t in types)
        else:
            literals = (emitter.literal(types[0].kind, v) for v in values)
            registers = zip(types, emitter.hints(result, "table"), strict=False)
            emitter.registers[result] = tuple(emitter.table(t, list(islice(literals, t.used)), hint) for t, hint in registers)
    else:
        raise UnsupportedError(f"kernel @{emitter.kernel}: arith.constant with {value.name} cannot be emitted; use dense<…>")


def _hint(result: SSAValue, default: str) -> str:
    return result.name_hint or default


def broadcast(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `vector.broadcast`; equal rows share registers instead of being copied."""
    source, result = op.operands[0], op.results[0]
    names, types, target = emitter.regs(source), emitter.layout(result.type), vector_shape(result.type)
    shape = (1,) * (len(target) - len(vector_shape(source.type))) + vector_shape(source.type)
    registers_per_row = len(emitter.row_registers(target[-1]))
    # A row of size 1 becomes a splat of its scalar; otherwise register i of a row is register i of the source row.
    is_splat = shape[-1] == 1 != target[-1]
    row_strides = [0 if n == 1 else prod(shape[d + 1 : -1]) for d, n in enumerate(shape[:-1])]
    splats: dict[object, str] = {}
    registers: list[str] = []
    for index in emitter.rows(result.type):
        row = sum(i * s for i, s in zip(index, row_strides, strict=True))
        for column in range(registers_per_row):
            if not is_splat:
                registers.append(names[row * registers_per_row + column])
                continue
            key = (names[row], types[column])
            if key not in splats:
                splats[key] = emitter.splat(types[column], names[row], _hint(result, "broadcast"))
            registers.append(splats[key])
    emitter.registers[result] = tuple(registers)


def reduction(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `vector.reduction` as a tree.

    Registers of equal width are combined pairwise, then the halves of the widest register. Half-precision elements are combined
    in f32 and rounded once.
    """
    assert isinstance(op, vector.ReductionOp)
    kind, hint = op.kind.data.value, _hint(op.dest, "reduction")
    (narrow,) = emitter.layout(op.dest.type)
    compute_type = narrow.with_kind("f32") if is_half(narrow.kind) else narrow
    level: list[tuple[Register, str]] = []
    for s, name in zip(emitter.layout(op.vector.type), emitter.regs(op.vector), strict=True):
        t = s.with_kind(compute_type.kind)
        name = emitter.resize(t, s, name, hint) if t != s else name
        level.append((t.with_width(t.width), emitter.mask_unused_lanes(kind, t, name) if t.used < t.width else name))
    while len(level) > 1 or level[0][0].width > 1:
        widest = max(level, key=lambda entry: entry[0].width)[0]
        widest_names = [name for t, name in level if t == widest]
        remaining = [entry for entry in level if entry[0] != widest]
        if len(widest_names) > 1:
            pairs = zip(widest_names[::2], widest_names[1::2], strict=False)
            joined = [emitter.combine(kind, widest, a, b, hint) for a, b in pairs]
            level = [(widest, name) for name in [*joined, *widest_names[2 * len(joined) :]]] + remaining
        else:
            half = widest.with_width(widest.width // 2)
            level = [(half, name) for name in emitter.halves(widest, widest_names[0], hint)] + remaining
    result = level[0][1]
    if op.acc is not None:
        first = emitter.scalar(op.acc)
        first = emitter.resize(compute_type, narrow, first, hint, inline=True) if compute_type != narrow else first
        result = emitter.combine(kind, compute_type, first, result, hint)
    emitter.bind(op.dest, [emitter.resize(narrow, compute_type, result, hint) if compute_type != narrow else result])


def extract(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `vector.extract` of whole rows: the result shares their registers."""
    assert isinstance(op, vector.ExtractOp)
    names, shape = emitter.regs(op.vector), vector_shape(op.vector.type)
    index = [int(i) for i in op.static_position.get_values()]
    if op.dynamic_position or len(index) >= len(shape):
        raise UnsupportedError(f"kernel @{emitter.kernel}: vector.extract supports only whole rows at static positions")
    position = sum(i * prod(shape[d + 1 : len(index)]) for d, i in enumerate(index))
    count = len(emitter.layout(op.result.type))
    emitter.registers[op.result] = names[position * count : (position + 1) * count]


HANDLERS: Handlers = {
    "arith.constant": constant,
    "vector.broadcast": broadcast,
    "vector.extract": extract,
    "vector.reduction": reduction,
}

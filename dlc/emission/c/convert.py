"""Constants, and conversions between element types."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import isinf, isnan
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.emission.c.arith import Primitive, apply, elementwise, rounded, truth
from dlc.emission.c.core import Emitter, Handlers
from dlc.emission.c.vocabulary import Register, is_float
from dlc.emission.visit.linear import Linear
from dlc.errors import UnsupportedError
from dlc.ir import DenseIntOrFPElementsAttr, FloatAttr, IndexType, IntegerAttr, Operation

_NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
_RANGES = {"i8": (-(1 << 7), (1 << 7) - 1), "i16": (-(1 << 15), (1 << 15) - 1), "i32": (-(1 << 31), (1 << 31) - 1)}

# Literals


def literal(e: Emitter, kind: str, value: float) -> str:
    """One element in the dialect's words."""
    held = Register(e.computed(kind), 1)
    if not is_float(kind):
        integer = int(value) & 1 if kind == "i1" else int(value)
        if kind in ("i32", "i64") and integer == -(1 << held.bits - 1):
            # C has no negative literals, and the positive one would not fit.
            return f"({e.expression(f'literal.{kind}', held, str(integer + 1))} - 1)"
        return e.expression(f"literal.{held.kind}", held, str(integer))
    with np.errstate(over="ignore"):
        value = float(np.array(value, _NUMPY[kind]))
    if isnan(value):
        return e.expression("nan", held)
    if isinf(value):
        name = f"infinity.{held.kind}" if e.has(f"infinity.{held.kind}") else "infinity"
        return ("-" if value < 0 else "") + e.expression(name, held)
    # The shortest decimal that reads back as this float.
    digits = repr(value) if held.kind == "f64" else repr(float(str(np.float32(value))))
    return e.expression(f"literal.{held.kind}", held, digits)


def splat(e: Emitter, t: Register, scalar: str) -> str:
    """An expression with `scalar` in all lanes."""
    if t.width == 1:
        return scalar
    if t.kind == "i1":
        scalar = {"0": "0", "1": "-1"}.get(scalar, f"-({scalar})")
    return e.expression("splat", t.of(e.computed(t.kind)), scalar)


def from_lanes(e: Emitter, t: Register, lanes: Sequence[str]) -> str:
    """An expression of these elements, each an expression; truth values are 1 or 0."""
    if t.width == 1:
        return lanes[0]
    if t.kind == "i1":
        lanes = [{"0": "0", "1": "-1"}.get(lane, f"-({lane})") for lane in lanes]
    if len(set(lanes)) == 1:
        return e.expression("splat", t.of(e.computed(t.kind)), lanes[0])
    return e.expression("lanes", t.of(e.computed(t.kind)), words={"lanes": ", ".join(lanes)})


def lane(e: Emitter, t: Register, name: str, place: int) -> str:
    """One element of a register; a truth value is 1 or 0."""
    if t.width == 1:
        return name
    name = name if name.isidentifier() else f"({name})"
    text = e.expression("lane", t, name, words={"i": place, "x": f"{place:x}"})
    return f"({text} & 1)" if t.kind == "i1" else text


def constant(e: Emitter, op: Operation) -> None:
    """arith.constant"""
    result, value = op.results[0], op.properties["value"]
    types = e.layout(result.type)
    if isinstance(value, IntegerAttr) and isinstance(result.type, IndexType):
        e.linears[result] = Linear(value.value.data)
    elif isinstance(value, IntegerAttr | FloatAttr):
        e.registers[result] = (literal(e, types[0].kind, value.value.data),)
    elif isinstance(value, DenseIntOrFPElementsAttr):
        values = cast(Sequence[float], cast(Any, value).get_values())
        if value.is_splat():
            text = literal(e, types[0].kind, values[0])
            e.registers[result] = tuple(splat(e, t, text) for t in types)
        else:
            rest, names = iter(values), list[str]()
            for t, suffix in zip(types, e.suffixes(result.type), strict=True):
                text = from_lanes(e, t, [literal(e, t.kind, v) for v in islice(rest, t.width)])
                names.append(e.define(e.type(t), text, (result.name_hint or "table") + suffix, movable=True))
            e.registers[result] = tuple(names)
    else:
        raise UnsupportedError(f"kernel @{e.kernel}: a constant of the form {value.name} cannot be emitted; use dense<…>")


# Conversions


def _convert(e: Emitter, t: Register, s: Register, text: str) -> str:
    """Between two kinds that the dialect computes with."""
    return text if t == s else e.expression("convert", t, text, s=s)


def float_to_float(e: Emitter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    """arith.extf, arith.truncf"""
    held, held_by = t.of(e.computed(t.kind)), s.of(e.computed(s.kind))
    if held.kind == t.kind:
        return _convert(e, held, held_by, xs[0])
    # A double is rounded to odd first: the second rounding, to a half, is correct then.
    text = e.expression("odd", held, xs[0], s=held_by) if s.kind == "f64" else xs[0]
    return text if e.computed(s.kind) != s.kind and t.kind == s.kind else rounded(e, t, text)


def float_to_integer(sign: str) -> Primitive:
    """Truncation that saturates, NaN to zero."""

    def convert(e: Emitter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        result = t.of(f"{sign}{t.bits}")
        text = e.expression("saturate", result, xs[0], s=s.of(e.computed(s.kind)))
        return text if sign == "i" else e.expression("bits", t, text, s=result)

    return convert


def integer_to_float(sign: str) -> Primitive:
    def convert(e: Emitter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        held, text = t.of(e.computed(t.kind)), xs[0]
        if s.kind == "i1":
            # A truth value is -1 where signed, in a vector it is already.
            if (sign == "i") != (s.width > 1):
                text = f"-({text})"
            source = s.of("i32")
        else:
            source = s.of(f"{sign}{s.bits}")
            text = text if sign == "i" else e.expression("bits", source, text, s=s)
        if held.kind == t.kind or s.bits <= 24 or not e.target.doubles:
            return rounded(e, t, _convert(e, held, source, text))
        # Through a type that holds the integer exactly (up to 2⁵³), so that it rounds once.
        wide = _convert(e, t.of("f64"), source, text)
        return rounded(e, t, e.expression("odd", held, wide, s=t.of("f64")))

    return convert


def integer_to_integer(sign: str) -> Primitive:
    """Widening with or without the sign, and narrowing."""

    def convert(e: Emitter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        (text,) = xs
        if t.kind == s.kind:
            return text
        if t.kind == "i1":
            low = e.expression("andi", s, text, splat(e, s, "1"))
            return low if s.width == 1 else truth(e, s, f"({low}) != {splat(e, s, '0')}")
        if s.kind == "i1":
            if (sign == "i") != (s.width > 1):
                text = f"-({text})"
            return _convert(e, t, s.of("i32"), text)
        if sign == "i" or t.bits < s.bits:
            return _convert(e, t, s, text)
        return _convert(e, t, s.of(f"u{s.bits}"), e.expression("bits", s.of(f"u{s.bits}"), text, s=s))

    return convert


def index_cast(e: Emitter, op: Operation) -> None:
    source, result = op.operands[0], op.results[0]
    if isinstance(result.type, IndexType):
        (s,) = e.layout(source.type)
        value = e.scalar(source) if s.kind != "i1" else f"-({e.scalar(source)})"
        e.linears[result] = e.define_index(value, result.name_hint or "index", _RANGES.get(s.kind))
    else:
        apply(e, op, integer_to_integer("i"), "cast")


def bitcast(e: Emitter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    if t.kind == s.kind:
        return xs[0]
    # A half that is held as a float goes through its bits.
    if e.computed(s.kind) != s.kind:
        text = e.expression(f"to_memory.{s.kind}", s.of("u16"), xs[0], s=s.of("f32"))
        return e.expression("bits", t, text, s=s.of("u16"))
    if e.computed(t.kind) != t.kind:
        return e.expression(f"from_memory.{t.kind}", t.of("f32"), e.expression("bits", t.of("u16"), xs[0], s=s), s=t.of("u16"))
    return e.expression("bits", t, xs[0], s=s)


HANDLERS: Handlers = {
    "arith.constant": constant,
    "arith.extf": elementwise(float_to_float),
    "arith.truncf": elementwise(float_to_float),
    "arith.fptosi": elementwise(float_to_integer("i")),
    "arith.fptoui": elementwise(float_to_integer("u")),
    "arith.sitofp": elementwise(integer_to_float("i")),
    "arith.uitofp": elementwise(integer_to_float("u")),
    "arith.extsi": elementwise(integer_to_integer("i")),
    "arith.extui": elementwise(integer_to_integer("u")),
    "arith.trunci": elementwise(integer_to_integer("i")),
    "arith.index_cast": index_cast,
    "arith.bitcast": elementwise(bitcast),
}

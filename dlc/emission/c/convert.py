"""Conversions between element types."""

from __future__ import annotations

from dlc.emission.c.arith import Primitive, apply, elementwise, rounded, truth
from dlc.emission.c.core import Writer
from dlc.emission.c.text import code
from dlc.emission.c.vocabulary import bits_of
from dlc.emission.visit.registers import Register
from dlc.emission.visit.visit import Handlers
from dlc.ir import IndexType, Operation

_RANGES = {"i8": (-(1 << 7), (1 << 7) - 1), "i16": (-(1 << 15), (1 << 15) - 1), "i32": (-(1 << 31), (1 << 31) - 1)}


def _convert(e: Writer, t: Register, s: Register, text: str) -> str:
    """Between two kinds that the dialect computes with."""
    return text if t == s else e.expression("convert", t, text, s=s)


def float_to_float(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    """arith.extf, arith.truncf"""
    held, held_by = e.held(t), e.held(s)
    if held.kind == t.kind:
        return _convert(e, held, held_by, xs[0])
    # A double is rounded to odd first: the second rounding, to a half, is correct then.
    text = e.expression("odd", held, xs[0], s=held_by) if s.kind == "f64" else xs[0]
    return text if e.computed(s.kind) != s.kind and t.kind == s.kind else rounded(e, t, text)


def float_to_integer(sign: str) -> Primitive:
    """Truncation that saturates, NaN to zero."""

    def convert(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        result = t.of(f"{sign}{bits_of(t)}")
        text = e.expression("saturate", result, xs[0], s=e.held(s))
        return text if sign == "i" else e.expression("bits", t, text, s=result)

    return convert


def integer_to_float(sign: str) -> Primitive:
    def convert(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        held, text = e.held(t), xs[0]
        if s.kind == "i1":
            # A truth value is -1 where signed, in a vector it is already.
            if (sign == "i") != (s.width > 1):
                text = code("-(", text, ")")
            source = s.of("i32")
        else:
            source = s.of(f"{sign}{bits_of(s)}")
            text = text if sign == "i" else e.expression("bits", source, text, s=s)
        if held.kind == t.kind or bits_of(s) <= 24 or not e.target.doubles:
            return rounded(e, t, _convert(e, held, source, text))
        # Through a type that holds the integer exactly (up to 2⁵³), so that it rounds once.
        wide = _convert(e, t.of("f64"), source, text)
        return rounded(e, t, e.expression("odd", held, wide, s=t.of("f64")))

    return convert


def integer_to_integer(sign: str) -> Primitive:
    """Widening with or without the sign, and narrowing."""

    def convert(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        (text,) = xs
        if t.kind == s.kind:
            return text
        if t.kind == "i1":
            low = e.expression("andi", s, text, e.splat_literal(s, "1"))
            return low if s.width == 1 else truth(e, s, code("(", low, ") != ", e.splat_literal(s, "0")))
        if s.kind == "i1":
            if (sign == "i") != (s.width > 1):
                text = code("-(", text, ")")
            return _convert(e, t, s.of("i32"), text)
        if sign == "i" or bits_of(t) < bits_of(s):
            return _convert(e, t, s, text)
        return _convert(e, t, s.of(f"u{bits_of(s)}"), e.expression("bits", s.of(f"u{bits_of(s)}"), text, s=s))

    return convert


def index_cast(e: Writer, op: Operation) -> None:
    source, result = op.operands[0], op.results[0]
    if isinstance(result.type, IndexType):
        (s,) = e.layout(source.type)
        value = e.scalar(source) if s.kind != "i1" else code("-(", e.scalar(source), ")")
        e.linears[result] = e.define_index(value, result.name_hint or "index", _RANGES.get(s.kind))
    else:
        apply(e, op, integer_to_integer("i"), "cast")


def bitcast(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
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

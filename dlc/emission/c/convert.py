"""Conversions between element types."""

from __future__ import annotations

from dlc.emission.c.arith import Primitive, apply, comparison_to_bool, elementwise, rounded
from dlc.emission.c.core import CWriter
from dlc.emission.c.statements import concat
from dlc.emission.c.templates import bits_of
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.registers import Register
from dlc.ir import IndexType, Operation

_RANGES = {"i8": (-(1 << 7), (1 << 7) - 1), "i16": (-(1 << 15), (1 << 15) - 1), "i32": (-(1 << 31), (1 << 31) - 1)}


def _convert(e: CWriter, t: Register, s: Register, text: str) -> str:
    """Convert between two kinds that the dialect computes with."""
    return text if t == s else e.expression("convert", t, text, s=s)


def float_to_float(e: CWriter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    """Emit `arith.extf` or `arith.truncf`."""
    compute_type, source_type = e.computed_register(t), e.computed_register(s)
    if compute_type.kind == t.kind:
        return _convert(e, compute_type, source_type, xs[0])
    # A double is rounded to odd first, so that the second rounding, to half precision, is correct.
    text = e.expression("odd", compute_type, xs[0], s=source_type) if s.kind == "f64" else xs[0]
    return text if e.computed_kind(s.kind) != s.kind and t.kind == s.kind else rounded(e, t, text)


def float_to_integer(sign: str) -> Primitive:
    """Return the primitive of a saturating truncation; NaN becomes zero."""

    def convert(e: CWriter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        result = t.with_kind(f"{sign}{bits_of(t)}")
        text = e.expression("saturate", result, xs[0], s=e.computed_register(s))
        return text if sign == "i" else e.expression("bits", t, text, s=result)

    return convert


def integer_to_float(sign: str) -> Primitive:
    """Return the primitive of a conversion from a signed ("i") or unsigned ("u") integer."""

    def convert(e: CWriter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        compute_type, text = e.computed_register(t), xs[0]
        if s.kind == "i1":
            # A signed boolean is -1; in a vector it is represented that way already.
            if (sign == "i") != (s.width > 1):
                text = concat("-(", text, ")")
            source = s.with_kind("i32")
        else:
            source = s.with_kind(f"{sign}{bits_of(s)}")
            text = text if sign == "i" else e.expression("bits", source, text, s=s)
        if compute_type.kind == t.kind or bits_of(s) <= 24 or not e.target.has_f64:
            return rounded(e, t, _convert(e, compute_type, source, text))
        # Convert through a type that represents the integer exactly (up to 2⁵³), so that it is rounded once.
        wide = _convert(e, t.with_kind("f64"), source, text)
        return rounded(e, t, e.expression("odd", compute_type, wide, s=t.with_kind("f64")))

    return convert


def integer_to_integer(sign: str) -> Primitive:
    """Return the primitive of a sign- or zero-extension, or a truncation."""

    def convert(e: CWriter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        (text,) = xs
        if t.kind == s.kind:
            return text
        if t.kind == "i1":
            low = e.expression("andi", s, text, e.splat_literal(s, "1"))
            return low if s.width == 1 else comparison_to_bool(e, s, concat("(", low, ") != ", e.splat_literal(s, "0")))
        if s.kind == "i1":
            if (sign == "i") != (s.width > 1):
                text = concat("-(", text, ")")
            return _convert(e, t, s.with_kind("i32"), text)
        if sign == "i" or bits_of(t) < bits_of(s):
            return _convert(e, t, s, text)
        return _convert(e, t, s.with_kind(f"u{bits_of(s)}"), e.expression("bits", s.with_kind(f"u{bits_of(s)}"), text, s=s))

    return convert


def index_cast(e: CWriter, op: Operation) -> None:
    """Emit `arith.index_cast`."""
    source, result = op.operands[0], op.results[0]
    if isinstance(result.type, IndexType):
        (s,) = e.layout(source.type)
        value = e.scalar(source) if s.kind != "i1" else concat("-(", e.scalar(source), ")")
        e.linear_expressions[result] = e.define_index(value, result.name_hint or "index", _RANGES.get(s.kind))
    else:
        apply(e, op, integer_to_integer("i"), "cast")


def bitcast(e: CWriter, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    """Emit `arith.bitcast`."""
    if t.kind == s.kind:
        return xs[0]
    # Half precision that is computed in float is converted through its 16-bit storage.
    if e.computed_kind(s.kind) != s.kind:
        text = e.expression(f"to_memory.{s.kind}", s.with_kind("u16"), xs[0], s=s.with_kind("f32"))
        return e.expression("bits", t, text, s=s.with_kind("u16"))
    if e.computed_kind(t.kind) != t.kind:
        return e.expression(
            f"from_memory.{t.kind}",
            t.with_kind("f32"),
            e.expression("bits", t.with_kind("u16"), xs[0], s=s),
            s=t.with_kind("u16"),
        )
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

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


def _convert(writer: CWriter, type: Register, source_type: Register, text: str) -> str:
    """Convert between two kinds that the dialect computes with."""
    return text if type == source_type else writer.expression("convert", type, text, source_type=source_type)


def float_to_float(writer: CWriter, type: Register, from_type: Register, xs: tuple[str, ...]) -> str:
    """Emit `arith.extf` or `arith.truncf`."""
    compute_type, source_type = writer.computed_register(type), writer.computed_register(from_type)
    if compute_type.kind == type.kind:
        return _convert(writer, compute_type, source_type, xs[0])
    # A double is rounded to odd first, so that the second rounding, to half precision, is correct.
    text = writer.expression("odd", compute_type, xs[0], source_type=source_type) if from_type.kind == "f64" else xs[0]
    return (
        text
        if writer.computed_kind(from_type.kind) != from_type.kind and type.kind == from_type.kind
        else rounded(writer, type, text)
    )


def float_to_integer(sign: str) -> Primitive:
    """Return the primitive of a saturating truncation; NaN becomes zero."""

    def convert(writer: CWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        result = type.with_kind(f"{sign}{bits_of(type)}")
        text = writer.expression("saturate", result, xs[0], source_type=writer.computed_register(source_type))
        return text if sign == "i" else writer.expression("bits", type, text, source_type=result)

    return convert


def integer_to_float(sign: str) -> Primitive:
    """Return the primitive of a conversion from a signed ("i") or unsigned ("u") integer."""

    def convert(writer: CWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        compute_type, text = writer.computed_register(type), xs[0]
        if source_type.kind == "i1":
            # A signed boolean is -1; in a vector it is represented that way already.
            if (sign == "i") != (source_type.width > 1):
                text = concat("-(", text, ")")
            source = source_type.with_kind("i32")
        else:
            source = source_type.with_kind(f"{sign}{bits_of(source_type)}")
            text = text if sign == "i" else writer.expression("bits", source, text, source_type=source_type)
        if compute_type.kind == type.kind or bits_of(source_type) <= 24 or not writer.target.has_f64:
            return rounded(writer, type, _convert(writer, compute_type, source, text))
        # Convert through a type that represents the integer exactly (up to 2⁵³), so that it is rounded once.
        wide = _convert(writer, type.with_kind("f64"), source, text)
        return rounded(writer, type, writer.expression("odd", compute_type, wide, source_type=type.with_kind("f64")))

    return convert


def integer_to_integer(sign: str) -> Primitive:
    """Return the primitive of a sign- or zero-extension, or a truncation."""

    def convert(writer: CWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        (text,) = xs
        if type.kind == source_type.kind:
            return text
        if type.kind == "i1":
            low = writer.expression("andi", source_type, text, writer.splat_literal(source_type, "1"))
            return (
                low
                if source_type.width == 1
                else comparison_to_bool(writer, source_type, concat("(", low, ") != ", writer.splat_literal(source_type, "0")))
            )
        if source_type.kind == "i1":
            if (sign == "i") != (source_type.width > 1):
                text = concat("-(", text, ")")
            return _convert(writer, type, source_type.with_kind("i32"), text)
        if sign == "i" or bits_of(type) < bits_of(source_type):
            return _convert(writer, type, source_type, text)
        return _convert(
            writer,
            type,
            source_type.with_kind(f"u{bits_of(source_type)}"),
            writer.expression("bits", source_type.with_kind(f"u{bits_of(source_type)}"), text, source_type=source_type),
        )

    return convert


def index_cast(writer: CWriter, op: Operation) -> None:
    """Emit `arith.index_cast`."""
    source, result = op.operands[0], op.results[0]
    if isinstance(result.type, IndexType):
        (s,) = writer.layout(source.type)
        value = writer.scalar(source) if s.kind != "i1" else concat("-(", writer.scalar(source), ")")
        writer.linear_expressions[result] = writer.define_index(value, result.name_hint or "index", _RANGES.get(s.kind))
    else:
        apply(writer, op, integer_to_integer("i"), "cast")


def bitcast(writer: CWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
    """Emit `arith.bitcast`."""
    if type.kind == source_type.kind:
        return xs[0]
    # Half precision that is computed in float is converted through its 16-bit storage.
    if writer.computed_kind(source_type.kind) != source_type.kind:
        text = writer.expression(
            f"to_memory.{source_type.kind}", source_type.with_kind("u16"), xs[0], source_type=source_type.with_kind("f32")
        )
        return writer.expression("bits", type, text, source_type=source_type.with_kind("u16"))
    if writer.computed_kind(type.kind) != type.kind:
        return writer.expression(
            f"from_memory.{type.kind}",
            type.with_kind("f32"),
            writer.expression("bits", type.with_kind("u16"), xs[0], source_type=source_type),
            source_type=type.with_kind("u16"),
        )
    return writer.expression("bits", type, xs[0], source_type=source_type)


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

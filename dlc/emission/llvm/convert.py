"""Conversions between element types; f16 and bf16 are represented as their bits.

LLVM's own half-precision types call library functions where the processor has no instruction. So the conversions are emitted
in integer arithmetic, except for f16 where the processor has an instruction. Both directions follow IEEE 754: widening is
exact; narrowing rounds to nearest, ties to even; NaN stays NaN.
"""

from __future__ import annotations

from dlc.emission.common.registers import Register, is_half
from dlc.emission.llvm.core import LlvmWriter, bits_of, llvm_type, splat, splat_literal

_F16_INF = 0x7C00  # The bits of f16 infinity, and of its largest exponent.


class _IntegerBuilder:
    """A builder of integer instructions on registers of one type."""

    def __init__(self, writer: LlvmWriter, type: Register) -> None:
        self.writer, self.type = writer, type

    def __call__(self, opcode: str, a: str, b: int | str) -> str:
        return self.writer.compute(opcode, self.type, a, self._operand(b))

    def _operand(self, b: int | str) -> str:
        return b if isinstance(b, str) else splat_literal(self.type, str(b))

    def compare(self, predicate: str, a: str, b: int) -> str:
        return self(f"icmp {predicate}", a, b)

    def select(self, condition: str, a: str | int, b: str | int) -> str:
        return self.writer.select(self.type, condition, self._operand(a), self._operand(b))


def extend_half(writer: LlvmWriter, type: Register, x: str) -> str:
    """Convert f16 or bf16 to f32."""
    wide, bits = type.with_kind("f32"), type.with_kind("i32")
    b = _IntegerBuilder(writer, bits)
    if type.kind == "f16" and writer.target.has_f16_conversion:
        half = type.with_kind("half")
        return writer.cast("fpext", half, writer.cast("bitcast", type, x, half), wide)
    u = writer.cast("zext", type.with_kind("i16"), x, bits)
    if type.kind != "f16":
        return writer.cast("bitcast", bits, b("shl", u, 16), wide)
    # Shift the f16's exponent and mantissa to their positions in f32, times 2¹¹², which also normalizes denormals.
    magnitude = b("and", u, 0x7FFF)
    shifted = b("shl", magnitude, 13)
    scaled = writer.compute("fmul", wide, writer.cast("bitcast", bits, shifted, wide), splat(wide, 2.0**112))
    finite = writer.cast("bitcast", wide, scaled, bits)
    f32_bits = b.select(b.compare("uge", magnitude, _F16_INF), b("or", shifted, 0x7F800000), finite)
    sign = b("shl", b("and", u, 0x8000), 16)
    return writer.cast("bitcast", bits, b("or", f32_bits, sign), wide)


def truncate_half(writer: LlvmWriter, type: Register, x: str) -> str:
    """Convert f32 to f16 or bf16; `type` is the narrow type."""
    wide, bits, half_bits = type.with_kind("f32"), type.with_kind("i32"), type.with_kind("i16")
    if type.kind == "f16" and writer.target.has_f16_conversion:
        half = type.with_kind("half")
        return writer.cast("bitcast", half, writer.cast("fptrunc", wide, x, half), type)
    b = _IntegerBuilder(writer, bits)
    u = writer.cast("bitcast", wide, x, bits)
    if type.kind != "f16":
        odd = b("and", b("lshr", u, 16), 1)
        rounded = b("lshr", b("add", b("add", u, 0x7FFF), odd), 16)
        quiet = b("or", b("lshr", u, 16), 0x40)
        nan = writer.compute("fcmp uno", wide, x, x)
        return writer.cast("trunc", bits, b.select(nan, quiet, rounded), half_bits)
    sign = b("and", b("lshr", u, 16), 0x8000)
    magnitude = b("and", u, 0x7FFFFFFF)
    # Below 2⁻¹⁴, adding 0.5 leaves the rounded bits of the denormal at the end of the mantissa.
    shifted = writer.compute("fadd", wide, writer.cast("bitcast", bits, magnitude, wide), splat(wide, 0.5))
    denormal = b("sub", writer.cast("bitcast", wide, shifted, bits), 0x3F000000)
    odd = b("and", b("lshr", magnitude, 13), 1)
    normal = b("lshr", b("add", b("add", magnitude, 0xFFF - (112 << 23)), odd), 13)
    special = b.select(b.compare("ugt", magnitude, 0x7F800000), 0x7E00, _F16_INF)
    finite = b.select(b.compare("ult", magnitude, 0x38800000), denormal, normal)
    f16_bits = b.select(b.compare("uge", magnitude, 0x47800000), special, finite)
    return writer.cast("trunc", bits, b("or", f16_bits, sign), half_bits)


def _round_f64_to_odd(writer: LlvmWriter, source: Register, x: str) -> str:
    """Convert f64 to f32 with rounding to odd, so that a second rounding, to half precision, is correct.

    An inexact result is rounded towards zero, and its last bit is set (S. Boldo and G. Melquiond, "Emulation of FMA
    and correctly rounded sums", 2008).
    """
    narrow, bits = source.with_kind("f32"), source.with_kind("i32")
    b = _IntegerBuilder(writer, bits)
    nearest = writer.cast("fptrunc", source, x, narrow)
    widened = writer.cast("fpext", narrow, nearest, source)
    u = writer.cast("bitcast", narrow, nearest, bits)
    inexact = writer.compute("fcmp one", source, widened, x)
    too_large = writer.compute("fcmp ogt", source, writer.call("fabs", source, widened), writer.call("fabs", source, x))
    towards_zero = b.select(too_large, b("sub", u, 1), u)
    odd = b.select(inexact, b("or", towards_zero, 1), u)
    return writer.cast("bitcast", bits, odd, narrow)


def float_to_float(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
    """Emit `arith.extf` or `arith.truncf`."""
    (x,) = xs
    if is_half(source_type.kind):
        source_type, x = source_type.with_kind("f32"), extend_half(writer, source_type, x)
    if is_half(type.kind):
        return truncate_half(writer, type, _round_f64_to_odd(writer, source_type, x) if source_type.kind == "f64" else x)
    if source_type.kind == type.kind:
        return x
    return writer.cast("fpext" if type.kind == "f64" else "fptrunc", source_type, x, type)


def float_to_integer(signed: bool):
    """Return an emitter of saturating float-to-integer conversions (NaN becomes zero): clamps around the native instruction.

    llvm.fptosi.sat is equivalent, but becomes one scalar conversion per lane on x86.
    """

    def convert(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        (x,) = xs
        if is_half(source_type.kind):
            source_type, x = source_type.with_kind("f32"), extend_half(writer, source_type, x)
        bits, mantissa = bits_of(type), 53 if source_type.kind == "f64" else 24
        magnitude = bits - 1 if signed else bits
        low = -(2.0**magnitude) if signed else 0.0
        # The largest integer, or the largest float that is smaller.
        high = 2.0**magnitude - (1 if magnitude <= mantissa else 2.0 ** (magnitude - mantissa))

        without_nan = writer.select(source_type, writer.compute("fcmp ord", source_type, x, x), x, splat(source_type, 0.0))
        clamped = writer.select_by_comparison(
            source_type,
            "olt",
            writer.select_by_comparison(source_type, "ogt", without_nan, splat(source_type, low)),
            splat(source_type, high),
        )
        integer = writer.cast("fptosi" if signed else "fptoui", source_type, clamped, type)
        if magnitude <= mantissa:
            return integer
        too_large = writer.compute("fcmp oge", source_type, without_nan, splat(source_type, 2.0**magnitude))
        largest = splat(type, 2**magnitude - 1)
        return writer.select(type, too_large, largest, integer)

    return convert


def integer_to_float(opcode: str):
    """Return an emitter of integer-to-float conversions."""

    def convert(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        wide = type
        if is_half(type.kind):
            # Convert through a type that represents the integer exactly (up to 2⁵³), so that it is rounded once.
            wide = type.with_kind("f64") if bits_of(source_type) > 24 else type.with_kind("f32")
        x = writer.cast(opcode, source_type, xs[0], wide)
        return float_to_float(writer, type, wide, (x,)) if wide is not type else x

    return convert


def integer_to_integer(opcode: str):
    """Return an emitter of integer extensions or truncations."""

    def convert(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        return writer.cast(opcode, source_type, xs[0], type) if llvm_type(type) != llvm_type(source_type) else xs[0]

    return convert


def index_cast(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
    """Emit `arith.index_cast`."""
    opcode = "sext" if bits_of(type) > bits_of(source_type) else "trunc"
    return integer_to_integer(opcode)(writer, type, source_type, xs)


CONVERSIONS = {
    "arith.extf": float_to_float,
    "arith.truncf": float_to_float,
    "arith.fptosi": float_to_integer(signed=True),
    "arith.fptoui": float_to_integer(signed=False),
    "arith.sitofp": integer_to_float("sitofp"),
    "arith.uitofp": integer_to_float("uitofp"),
    "arith.extsi": integer_to_integer("sext"),
    "arith.extui": integer_to_integer("zext"),
    "arith.trunci": integer_to_integer("trunc"),
    "arith.index_cast": index_cast,
    "arith.bitcast": integer_to_integer("bitcast"),
}

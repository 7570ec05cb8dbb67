"""Conversions between element types, with f16 and bf16 held as their bits.

LLVM's own types for the halves call library functions where the processor has no instruction; so the conversions are
written in integer arithmetic, except f16 where the processor has one. Both ways follow IEEE 754: exact when widening, round to
nearest, ties to even, when narrowing; NaN stays NaN.
"""

from __future__ import annotations

from dlc.emission.llvm.core import Writer, bits_of, splat, splat_literal, text_of
from dlc.emission.visit.registers import Register, is_half

_F16_INF = 0x7C00  # bits of the infinity of f16, and of its largest exponent


class _Bits:
    """Writes a formula over registers of one integer type."""

    def __init__(self, e: Writer, type: Register) -> None:
        self.e, self.type = e, type

    def __call__(self, opcode: str, a: str, b: int | str) -> str:
        return self.e.compute(opcode, self.type, a, self._operand(b))

    def _operand(self, b: int | str) -> str:
        return b if isinstance(b, str) else splat_literal(self.type, str(b))

    def test(self, predicate: str, a: str, b: int) -> str:
        return self(f"icmp {predicate}", a, b)

    def select(self, condition: str, a: str | int, b: str | int) -> str:
        return self.e.select(self.type, condition, self._operand(a), self._operand(b))


def extend_half(e: Writer, type: Register, x: str) -> str:
    """f16 or bf16 → f32."""
    wide, bits = type.of("f32"), type.of("i32")
    b = _Bits(e, bits)
    if type.kind == "f16" and e.target.converts_halves:
        half = type.of("half")
        return e.cast("fpext", half, e.cast("bitcast", type, x, half), wide)
    u = e.cast("zext", type.of("i16"), x, bits)
    if type.kind != "f16":
        return e.cast("bitcast", bits, b("shl", u, 16), wide)
    # The f16's exponent and mantissa at the place of f32's, times 2¹¹², which also normalises denormals.
    magnitude = b("and", u, 0x7FFF)
    placed = b("shl", magnitude, 13)
    scaled = e.compute("fmul", wide, e.cast("bitcast", bits, placed, wide), splat(wide, 2.0**112))
    finite = e.cast("bitcast", wide, scaled, bits)
    number = b.select(b.test("uge", magnitude, _F16_INF), b("or", placed, 0x7F800000), finite)
    sign = b("shl", b("and", u, 0x8000), 16)
    return e.cast("bitcast", bits, b("or", number, sign), wide)


def truncate_half(e: Writer, type: Register, x: str) -> str:
    """f32 → f16 or bf16, `type` being the narrow one."""
    wide, bits, half_bits = type.of("f32"), type.of("i32"), type.of("i16")
    if type.kind == "f16" and e.target.converts_halves:
        half = type.of("half")
        return e.cast("bitcast", half, e.cast("fptrunc", wide, x, half), type)
    b = _Bits(e, bits)
    u = e.cast("bitcast", wide, x, bits)
    if type.kind != "f16":
        odd = b("and", b("lshr", u, 16), 1)
        rounded = b("lshr", b("add", b("add", u, 0x7FFF), odd), 16)
        quiet = b("or", b("lshr", u, 16), 0x40)
        nan = e.compute("fcmp uno", wide, x, x)
        return e.cast("trunc", bits, b.select(nan, quiet, rounded), half_bits)
    sign = b("and", b("lshr", u, 16), 0x8000)
    magnitude = b("and", u, 0x7FFFFFFF)
    # Below 2⁻¹⁴: adding 0.5 leaves the denormal's bits, rounded, at the end of the mantissa.
    shifted = e.compute("fadd", wide, e.cast("bitcast", bits, magnitude, wide), splat(wide, 0.5))
    denormal = b("sub", e.cast("bitcast", wide, shifted, bits), 0x3F000000)
    odd = b("and", b("lshr", magnitude, 13), 1)
    normal = b("lshr", b("add", b("add", magnitude, 0xFFF - (112 << 23)), odd), 13)
    special = b.select(b.test("ugt", magnitude, 0x7F800000), 0x7E00, _F16_INF)
    finite = b.select(b.test("ult", magnitude, 0x38800000), denormal, normal)
    number = b.select(b.test("uge", magnitude, 0x47800000), special, finite)
    return e.cast("trunc", bits, b("or", number, sign), half_bits)


def _double_to_odd(e: Writer, source: Register, x: str) -> str:
    """f64 → f32, with an inexact result's last bit set: a second rounding, to a half, is then correct.

    The nearest f32 is replaced by its odd neighbour on the other side of x (S. Boldo and G. Melquiond, "Emulation of FMA
    and correctly rounded sums", 2008).
    """
    narrow, bits = source.of("f32"), source.of("i32")
    b = _Bits(e, bits)
    nearest = e.cast("fptrunc", source, x, narrow)
    back = e.cast("fpext", narrow, nearest, source)
    u = e.cast("bitcast", narrow, nearest, bits)
    inexact = e.compute("fcmp one", source, back, x)
    too_large = e.compute("fcmp ogt", source, e.call("fabs", source, back), e.call("fabs", source, x))
    towards_zero = b.select(too_large, b("sub", u, 1), u)
    odd = b.select(inexact, b("or", towards_zero, 1), u)
    return e.cast("bitcast", bits, odd, narrow)


def float_to_float(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    """arith.extf, arith.truncf"""
    (x,) = xs
    if is_half(s.kind):
        s, x = s.of("f32"), extend_half(e, s, x)
    if is_half(t.kind):
        return truncate_half(e, t, _double_to_odd(e, s, x) if s.kind == "f64" else x)
    if s.kind == t.kind:
        return x
    return e.cast("fpext" if t.kind == "f64" else "fptrunc", s, x, t)


def float_to_integer(signed: bool):
    """Truncation that saturates, NaN to zero, as clamps around the machine's instruction.

    (llvm.fptosi.sat means the same, but becomes one scalar conversion per lane on x86.)
    """

    def convert(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        (x,) = xs
        if is_half(s.kind):
            s, x = s.of("f32"), extend_half(e, s, x)
        bits, mantissa = bits_of(t), 53 if s.kind == "f64" else 24
        magnitude = bits - 1 if signed else bits
        low = -(2.0**magnitude) if signed else 0.0
        # The largest integer, or the largest float below it.
        high = 2.0**magnitude - (1 if magnitude <= mantissa else 2.0 ** (magnitude - mantissa))

        number = e.select(s, e.compute("fcmp ord", s, x, x), x, splat(s, 0.0))
        clamped = e.keep(s, "olt", e.keep(s, "ogt", number, splat(s, low)), splat(s, high))
        integer = e.cast("fptosi" if signed else "fptoui", s, clamped, t)
        if magnitude <= mantissa:
            return integer
        too_large = e.compute("fcmp oge", s, number, splat(s, 2.0**magnitude))
        largest = splat(t, 2**magnitude - 1)
        return e.select(t, too_large, largest, integer)

    return convert


def integer_to_float(opcode: str):
    def convert(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        wide = t
        if is_half(t.kind):
            # Through a type that holds the integer exactly (up to 2⁵³), so that it rounds once.
            wide = t.of("f64") if bits_of(s) > 24 else t.of("f32")
        x = e.cast(opcode, s, xs[0], wide)
        return float_to_float(e, t, wide, (x,)) if wide is not t else x

    return convert


def integer_to_integer(opcode: str):
    def convert(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        return e.cast(opcode, s, xs[0], t) if text_of(t) != text_of(s) else xs[0]

    return convert


def index_cast(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    opcode = "sext" if bits_of(t) > bits_of(s) else "trunc"
    return integer_to_integer(opcode)(e, t, s, xs)


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

"""Conversions between element types, with f16 and bf16 held as their bits.

LLVM's own types for the halves call library functions where the processor has no instruction; so the conversions are
written in integer arithmetic, except f16 where F16C has it. Both ways follow IEEE 754: exact when widening, round to
nearest, ties to even, when narrowing; NaN stays NaN.
"""

from __future__ import annotations

from dlc.emission.llvm.constants import splat
from dlc.emission.llvm.core import Emitter, RegisterType, is_half, splat_literal
from dlc.ir import Float16Type, Float64Type, f32, f64, i1, i16, i32

_F16_INF = 0x7C00  # bits of the infinity of f16, and of its largest exponent


class _Bits:
    """Writes a formula over registers of one integer type."""

    def __init__(self, e: Emitter, type: RegisterType) -> None:
        self.e, self.type = e, type

    def __call__(self, opcode: str, a: str, b: int | str) -> str:
        return self.e.define(f"{opcode} {self.type.text} {a}, {b if isinstance(b, str) else splat_literal(self.type, str(b))}")

    def test(self, predicate: str, a: str, b: int) -> str:
        return self(f"icmp {predicate}", a, b)

    def select(self, condition: str, a: str | int, b: str | int) -> str:
        a, b = (x if isinstance(x, str) else splat_literal(self.type, str(x)) for x in (a, b))
        return self.e.define(f"select {self.type.of(i1).text} {condition}, {self.type.text} {a}, {self.type.text} {b}")

    def cast(self, opcode: str, x: str, source: RegisterType, target: RegisterType) -> str:
        return self.e.define(f"{opcode} {source.text} {x} to {target.text}")


def extend_half(e: Emitter, type: RegisterType, x: str) -> str:
    """f16 or bf16 → f32."""
    wide, bits = type.of(f32), type.of(i32)
    b = _Bits(e, bits)
    if isinstance(type.element, Float16Type) and "f16c" in e.target.features:
        half = type.text.replace("i16", "half")
        return e.define(f"fpext {half} {e.define(f'bitcast {type.text} {x} to {half}')} to {wide.text}")
    u = b.cast("zext", x, type.of(i16), bits)
    if not isinstance(type.element, Float16Type):
        return b.cast("bitcast", b("shl", u, 16), bits, wide)
    # The f16's exponent and mantissa at the place of f32's, times 2¹¹², which also normalises denormals.
    magnitude = b("and", u, 0x7FFF)
    placed = b("shl", magnitude, 13)
    scaled = e.define(f"fmul {wide.text} {b.cast('bitcast', placed, bits, wide)}, {splat(wide, 2.0**112)}")
    finite = b.cast("bitcast", scaled, wide, bits)
    number = b.select(b.test("uge", magnitude, _F16_INF), b("or", placed, 0x7F800000), finite)
    sign = b("shl", b("and", u, 0x8000), 16)
    return b.cast("bitcast", b("or", number, sign), bits, wide)


def truncate_half(e: Emitter, type: RegisterType, x: str) -> str:
    """f32 → f16 or bf16, `type` being the narrow one."""
    wide, bits, half_bits = type.of(f32), type.of(i32), type.of(i16)
    if isinstance(type.element, Float16Type) and "f16c" in e.target.features:
        half = type.text.replace("i16", "half")
        return e.define(f"bitcast {half} {e.define(f'fptrunc {wide.text} {x} to {half}')} to {type.text}")
    b = _Bits(e, bits)
    u = b.cast("bitcast", x, wide, bits)
    if not isinstance(type.element, Float16Type):
        odd = b("and", b("lshr", u, 16), 1)
        rounded = b("lshr", b("add", b("add", u, 0x7FFF), odd), 16)
        quiet = b("or", b("lshr", u, 16), 0x40)
        nan = e.define(f"fcmp uno {wide.text} {x}, {x}")
        return b.cast("trunc", b.select(nan, quiet, rounded), bits, half_bits)
    sign = b("and", b("lshr", u, 16), 0x8000)
    magnitude = b("and", u, 0x7FFFFFFF)
    # Below 2⁻¹⁴: adding 0.5 leaves the denormal's bits, rounded, at the end of the mantissa.
    shifted = e.define(f"fadd {wide.text} {b.cast('bitcast', magnitude, bits, wide)}, {splat(wide, 0.5)}")
    denormal = b("sub", b.cast("bitcast", shifted, wide, bits), 0x3F000000)
    odd = b("and", b("lshr", magnitude, 13), 1)
    normal = b("lshr", b("add", b("add", magnitude, 0xFFF - (112 << 23)), odd), 13)
    special = b.select(b.test("ugt", magnitude, 0x7F800000), 0x7E00, _F16_INF)
    finite = b.select(b.test("ult", magnitude, 0x38800000), denormal, normal)
    number = b.select(b.test("uge", magnitude, 0x47800000), special, finite)
    return b.cast("trunc", b("or", number, sign), bits, half_bits)


def _double_to_odd(e: Emitter, source: RegisterType, x: str) -> str:
    """f64 → f32, with an inexact result's last bit set: a second rounding, to a half, is then correct.

    The nearest f32 is replaced by its odd neighbour on the other side of x (S. Boldo and G. Melquiond, "Emulation of FMA
    and correctly rounded sums", 2008).
    """
    narrow, bits = source.of(f32), source.of(i32)
    b = _Bits(e, bits)
    nearest = e.define(f"fptrunc {source.text} {x} to {narrow.text}")
    back = e.define(f"fpext {narrow.text} {nearest} to {source.text}")
    u = b.cast("bitcast", nearest, narrow, bits)
    inexact = e.define(f"fcmp one {source.text} {back}, {x}")
    size_back = e.define(f"call {source.text} @llvm.fabs.{source.suffix}({source.text} {back})")
    size_x = e.define(f"call {source.text} @llvm.fabs.{source.suffix}({source.text} {x})")
    too_large = e.define(f"fcmp ogt {source.text} {size_back}, {size_x}")
    towards_zero = b.select(too_large, b("sub", u, 1), u)
    odd = b.select(inexact, b("or", towards_zero, 1), u)
    return b.cast("bitcast", odd, bits, narrow)


def float_to_float(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
    """arith.extf, arith.truncf"""
    (x,) = xs
    if is_half(s.element):
        s, x = s.of(f32), extend_half(e, s, x)
    if is_half(t.element):
        return truncate_half(e, t, _double_to_odd(e, s, x) if isinstance(s.element, Float64Type) else x)
    if s.text == t.text:
        return x
    return e.define(f"{'fpext' if isinstance(t.element, Float64Type) else 'fptrunc'} {s.text} {x} to {t.text}")


def _bits_of(type: RegisterType) -> int:
    return int(type.scalar[1:])


def float_to_integer(signed: bool):
    """Truncation that saturates, NaN to zero, as clamps around the machine's instruction.

    (llvm.fptosi.sat means the same, but becomes one scalar conversion per lane on x86.)
    """

    def convert(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
        (x,) = xs
        if is_half(s.element):
            s, x = s.of(f32), extend_half(e, s, x)
        bits, mantissa = _bits_of(t), 53 if isinstance(s.element, Float64Type) else 24
        magnitude = bits - 1 if signed else bits
        low = -(2.0**magnitude) if signed else 0.0
        # The largest integer, or the largest float below it.
        high = 2.0**magnitude - (1 if magnitude <= mantissa else 2.0 ** (magnitude - mantissa))
        condition = s.of(i1).text

        def keep(test: str, a: str, b: str, otherwise: str) -> str:
            return e.define(
                f"select {condition} {e.define(f'fcmp {test} {s.text} {a}, {b}')}, {s.text} {a}, {s.text} {otherwise}"
            )

        number = keep("ord", x, x, splat(s, 0.0))
        clamped = keep("olt", keep("ogt", number, splat(s, low), splat(s, low)), splat(s, high), splat(s, high))
        integer = e.define(f"{'fptosi' if signed else 'fptoui'} {s.text} {clamped} to {t.text}")
        if magnitude <= mantissa:
            return integer
        too_large = e.define(f"fcmp oge {s.text} {number}, {splat(s, 2.0**magnitude)}")
        largest = splat(t, 2**magnitude - 1)
        return e.define(f"select {condition} {too_large}, {t.text} {largest}, {t.text} {integer}")

    return convert


def integer_to_float(opcode: str):
    def convert(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
        wide = t
        if is_half(t.element):
            # Through a type that holds the integer exactly (up to 2⁵³), so that it rounds once.
            wide = t.of(f64) if _bits_of(s) > 24 else t.of(f32)
        x = e.define(f"{opcode} {s.text} {xs[0]} to {wide.text}")
        return float_to_float(e, t, wide, (x,)) if wide is not t else x

    return convert


def integer_to_integer(opcode: str):
    def convert(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
        return e.define(f"{opcode} {s.text} {xs[0]} to {t.text}") if t.text != s.text else xs[0]

    return convert


def index_cast(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
    opcode = "sext" if _bits_of(t) > _bits_of(s) else "trunc"
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

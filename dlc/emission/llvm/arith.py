"""Arithmetic: one primitive per op and register, and the loop that applies it to all registers of a value.

A primitive is `(writer, result's register, operand's register, operands) → name`. The same primitives combine registers in
reductions (vectors.py). Undefined results of LLVM are defined here: a shift by the width or more gives zero (or the sign). The
scalar bodies of `dl` ops guarantee that no lane of a divisor is zero (dialects/dl/scalar.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from dlc.emission.common.emitter import Handlers
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.registers import Register, is_half
from dlc.emission.llvm.clamped_conversions import deferrable_rounding, is_clamped_conversion, is_rounded_by_conversion
from dlc.emission.llvm.convert import CONVERSIONS, extend_half, truncate_half
from dlc.emission.llvm.core import LlvmWriter, bits_of, intrinsic_suffix, llvm_type, splat_literal
from dlc.emission.llvm.packing import convert_clamped, is_exact_conversion
from dlc.ir import IndexType, IntegerAttr, Operation, VectorType, arith, math

Primitive = Callable[[LlvmWriter, Register, Register, tuple[str, ...]], str]
Handler = Callable[[LlvmWriter, Operation], None]

_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")


def apply(writer: LlvmWriter, op: Operation, primitive: Primitive, order: Sequence[int] | None = None) -> None:
    """Apply a primitive to each register, in `order` if given; registers with equal operands share one result."""
    result = op.results[0]
    types, sources = writer.layout(result.type), writer.layout(op.operands[0].type)
    registers = list(zip(types, sources, *map(writer.regs, op.operands), strict=True))
    names_by_operands: dict[object, str] = {}
    names = [""] * len(registers)
    for k in order or range(len(registers)):
        t, s, *operands = registers[k]
        key = (t.width, *operands)
        if (name := names_by_operands.get(key)) is None:
            name = names_by_operands[key] = primitive(writer, t, s, tuple(operands))
        names[k] = name
    writer.bind(result, names)


def elementwise(primitive: Primitive) -> Handler:
    """Return a handler that applies a primitive to each register."""
    return lambda writer, op: apply(writer, op, primitive)


@cache
def instruction(opcode: str) -> Primitive:
    """Return the primitive `opcode type a, b, …`."""
    return lambda writer, type, source_type, xs: writer.compute(opcode, type, *xs)


@cache
def intrinsic(name: str, flags: str = "") -> Primitive:
    """Return a call of an LLVM intrinsic that is overloaded on its result type."""
    return lambda writer, type, source_type, xs: writer.call(name, type, *xs, flags=flags)


@cache
def in_float(primitive: Primitive) -> Primitive:
    """Return a primitive that computes half precision in f32 and rounds once; other floats are computed in their own type."""

    def compute(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        if not is_half(source_type.kind):
            return primitive(writer, type, source_type, xs)
        wide = source_type.with_kind("f32")
        result = primitive(
            writer, wide if is_half(type.kind) else type, wide, tuple(extend_half(writer, source_type, x) for x in xs)
        )
        return truncate_half(writer, type, result) if is_half(type.kind) else result

    return compute


# Floats


def flags_of(op: Operation) -> str:
    """Return the fast-math flags of an op in LLVM syntax."""
    flags = op.properties.get("fastmath")
    return "".join(f" {f}" for f in sorted(flags.data)) if isinstance(flags, arith.FastMathFlagsAttr) else ""


def float_op(opcode: str) -> Handler:
    """Return the handler of a float instruction, with the op's fast-math flags."""
    return lambda writer, op: apply(writer, op, in_float(instruction(opcode + flags_of(op))))


def extremum(name: str) -> Primitive:
    """Return llvm.maximum or llvm.minimum, which propagate NaN.

    With nsz (the order of +0 and -0 is unspecified, as in the ops) they take one instruction and a NaN test; one instruction if
    an operand is a constant.
    """
    return intrinsic(name, flags=" nsz")


def nan_ignoring_extremum(predicate: str) -> Primitive:
    """Return the extremum of two values that ignores a NaN; the first of its two selects is a single instruction on x86.

    llvm.maxnum is not used: for 16-bit floats, to which LLVM narrows it, it is a library call.
    """

    def compute(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        a, b = xs
        without_nan_check = writer.select_by_comparison(type, predicate, a, b)
        return writer.select(type, writer.compute("fcmp uno", type, b, b), a, without_nan_check)

    return compute


def fused_multiply_add(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
    """Emit a multiply-add; it is not fused on targets without the instruction."""
    if writer.target.has_fma:
        return writer.call("fma", type, *xs)
    # Without the instruction llvm.fma is a library call.
    return writer.compute("fadd", type, writer.compute("fmul", type, xs[0], xs[1]), xs[2])


# Integers


def shift(opcode: str) -> Primitive:
    """Return a shift by any amount: an amount of the width or more gives zero (or the sign)."""

    def compute(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        a, amount = xs
        if amount in _in_range_amounts(type):
            return writer.compute(opcode, type, a, amount)
        last = splat_literal(type, str(bits_of(type) - 1))
        fits = writer.compute("icmp ule", type, amount, last)
        shifted = writer.compute(opcode, type, a, writer.select(type, fits, amount, last))
        return shifted if opcode == "ashr" else writer.select(type, fits, shifted, splat_literal(type, "0"))

    return compute


@cache
def _in_range_amounts(type: Register) -> frozenset[str]:
    """Return the literals that are smaller than the element's bit width."""
    return frozenset(splat_literal(type, str(amount)) for amount in range(bits_of(type)))


# Conversions


def to_signed(writer: LlvmWriter, op: Operation) -> None:
    """Emit `arith.fptosi`, which saturates; no clamps are emitted for values that are provably in range."""
    if not is_clamped_conversion(op):
        apply(writer, op, CONVERSIONS[op.name])
        return
    rounding = deferrable_rounding(op.operands[0])
    apply(
        writer,
        op,
        _convert_to_nearest
        if rounding is not None and _converts_to_nearest(writer, rounding)
        else in_float(_convert_truncating),
    )


def convert_integers(writer: LlvmWriter, op: Operation) -> None:
    """Emit a conversion of integers to another width or to floats."""
    if is_exact_conversion(op):
        convert_clamped(writer, op)
    else:
        apply(writer, op, CONVERSIONS[op.name])


def round_even(writer: LlvmWriter, op: Operation) -> None:
    """Emit `math.roundeven`; nothing if the conversion that follows rounds as well."""
    assert isinstance(op, math.RoundEvenOp)
    if _converts_to_nearest(writer, op) and is_rounded_by_conversion(op):
        writer.bind(op.result, writer.regs(op.operand))
        return
    apply(writer, op, in_float(intrinsic("roundeven")))


def _converts_to_nearest(writer: LlvmWriter, op: math.RoundEvenOp) -> bool:
    """Return whether the target has an instruction that converts these floats to integers with rounding to nearest."""
    return writer.target.architecture == "x86_64" and all(t.kind == "f32" for t in writer.layout(op.result.type))


def _convert_truncating(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
    """Convert with truncation, without saturation."""
    return writer.cast("fptosi", source_type, xs[0], type)


def _convert_to_nearest(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
    """Convert with rounding to nearest, in one x86 instruction."""
    function = f"llvm.lrint.{intrinsic_suffix(type)}.{intrinsic_suffix(source_type)}"
    return writer.define(f"call {llvm_type(type)} @{function}({llvm_type(source_type)} {xs[0]})", xs[0])


# Comparison and selection


def compare(opcode: str, predicates: tuple[str, ...]) -> Handler:
    """Return the handler of a comparison op with these predicate names."""

    def handle(writer: LlvmWriter, op: Operation) -> None:
        predicate = _predicate(op, predicates)

        def primitive(writer: LlvmWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
            if is_half(source_type.kind):
                source_type, xs = source_type.with_kind("f32"), tuple(extend_half(writer, source_type, x) for x in xs)
            return writer.compute(f"{opcode} {predicate}", source_type, *xs)

        apply(writer, op, primitive)

    return handle


def emit_select(writer: LlvmWriter, op: Operation) -> None:
    """Emit `arith.select`; a scalar condition selects a whole value."""
    condition, result = op.operands[0], op.results[0]
    by_lane = isinstance(condition.type, VectorType)
    types, conditions, test = writer.layout(result.type), writer.regs(condition), _match_comparison(op)
    names: list[str] = []
    for t, mask, a, b in zip(
        types, conditions if by_lane else conditions * len(types), *map(writer.regs, op.operands[1:]), strict=True
    ):
        if a == b:
            names.append(a)
        elif test is not None and writer.splits_zero_comparison(t, a, b):
            first = test.lhs is op.operands[1]
            names.append(
                writer.select_by_comparison(t, _predicate(test, _CMPF), *((a, b) if first else (b, a)), swapped=not first)
            )
        else:
            names.append(writer.select(t, mask, a, b, by_lane=by_lane))
    writer.bind(result, names)


def _match_comparison(select: Operation) -> arith.CmpfOp | None:
    """Return the float comparison of the two values that a select chooses between, or None."""
    condition, a, b = select.operands
    test = condition.owner
    return test if isinstance(test, arith.CmpfOp) and (test.lhs, test.rhs) in ((a, b), (b, a)) else None


def _predicate(op: Operation, predicates: Sequence[str]) -> str:
    """Return the LLVM name of a comparison's predicate."""
    attribute = op.properties["predicate"]
    assert isinstance(attribute, IntegerAttr)
    return predicates[attribute.value.data]


# Index arithmetic remains symbolic, see Note [Linear indices]


def linear_or(opcode: str, symbolic: Callable[[LinearExpression, LinearExpression], LinearExpression | None]) -> Handler:
    """Return a handler that keeps index arithmetic symbolic where `symbolic` can, and otherwise emits `opcode`."""

    def handle(writer: LlvmWriter, op: Operation) -> None:
        if isinstance(op.results[0].type, IndexType):
            expr = symbolic(writer.linear(op.operands[0]), writer.linear(op.operands[1]))
            if expr is not None:
                writer.linear_expressions[op.results[0]] = expr
                return
        apply(writer, op, instruction(opcode))

    return handle


def add_products(writer: LlvmWriter, op: Operation) -> None:
    """Emit `vector.fma`; the shorter side of a register tile varies fastest, so that its operands stay in registers."""
    factor_registers = [writer.regs(operand) for operand in op.operands[:2]]
    longer = max(factor_registers, key=lambda names: len(set(names)))
    order = sorted(range(len(longer)), key=lambda k: longer.index(longer[k]))
    apply(writer, op, in_float(fused_multiply_add), order)


def _unary(primitive: Primitive) -> Handler:
    return elementwise(in_float(primitive))


HANDLERS: Handlers = {
    **{f"arith.{name}": float_op(f"f{name[:3]}") for name in ("addf", "subf", "mulf", "divf")},
    "arith.negf": _unary(instruction("fneg")),
    "arith.maximumf": _unary(extremum("maximum")),
    "arith.minimumf": _unary(extremum("minimum")),
    "arith.maxnumf": _unary(nan_ignoring_extremum("ogt")),
    "arith.minnumf": _unary(nan_ignoring_extremum("olt")),
    "arith.addi": linear_or("add", LinearExpression.plus),
    "arith.subi": linear_or("sub", lambda a, b: a.plus(b, -1)),
    "arith.muli": linear_or("mul", LinearExpression.times),
    **{f"arith.{name}": elementwise(instruction(op)) for name, op in (("divui", "udiv"), ("divsi", "sdiv"), ("remui", "urem"))},
    **{f"arith.{name}i": elementwise(instruction(name)) for name in ("and", "or", "xor")},
    **{f"arith.{name}": elementwise(shift(op)) for name, op in (("shli", "shl"), ("shrui", "lshr"), ("shrsi", "ashr"))},
    **{f"arith.{m}{s}i": elementwise(intrinsic(f"{s}{m}")) for m in ("min", "max") for s in "us"},
    "arith.cmpi": compare("icmp", _CMPI),
    "arith.cmpf": compare("fcmp", _CMPF),
    "arith.select": emit_select,
    **{name: elementwise(primitive) for name, primitive in CONVERSIONS.items()},
    "arith.fptosi": to_signed,
    **{f"arith.{name}": convert_integers for name in ("trunci", "extsi", "extui", "sitofp", "uitofp")},
    **{f"math.{name}": _unary(intrinsic(name)) for name in ("sqrt", "floor", "ceil", "trunc", "copysign")},
    "math.roundeven": round_even,
    "math.absf": _unary(intrinsic("fabs")),
    "math.fma": _unary(fused_multiply_add),
    "vector.fma": add_products,
}

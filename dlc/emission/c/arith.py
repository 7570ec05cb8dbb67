"""Arithmetic: one expression per op and register, and the loop that applies it to all registers of a value.

Undefined behavior of C is defined here, identically on every target: a shift by the width or more gives zero (or the sign);
conversions to integers saturate, and NaN becomes zero. Divisors are safe already (dialects/dl/scalar.py). A half-precision
type without arithmetic on the device is computed in float and rounded after each op.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import gcd
from typing import Any, cast

from dlc.emission.c.core import CWriter, Interval, fits_int
from dlc.emission.c.statements import concat
from dlc.emission.c.templates import bits_of
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.registers import Register, is_float
from dlc.ir import Block, DenseIntOrFPElementsAttr, IndexType, IntegerAttr, Operation, SSAValue, VectorType

# (emitter, result's register, first operand's register, operands) → expression
Primitive = Callable[[CWriter, Register, Register, tuple[str, ...]], str]
_EXTREMA = ("maximumf", "minimumf", "maxnumf", "minnumf")
# Ops whose result is exact in half precision if their operands are half precision: no rounding is needed.
_EXACT = frozenset({"negf", "absf", "floor", "ceil", "trunc", "roundeven", "copysign", *_EXTREMA})
_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")
# Integer ops on booleans: arithmetic modulo two.
_BOOLEAN_OPS = {
    "addi": "xori", "subi": "xori", "muli": "andi", "maxui": "ori", "minui": "andi", "maxsi": "andi", "minsi": "ori",
}  # fmt: skip


def apply(writer: CWriter, op: Operation, primitive: Primitive, hint: str = "") -> None:
    """Apply a primitive to each register; registers with equal operands share one result."""
    result = op.results[0]
    names_by_operands: dict[object, str] = {}
    names: list[str] = []
    hints = writer.hints(result, hint or op.name.partition(".")[2])
    register_types = zip(writer.layout(result.type), writer.layout(op.operands[0].type), hints, strict=True)
    for (t, s, hint), *operands in zip(register_types, *map(writer.regs, op.operands), strict=True):
        key = (t, *operands)
        if (name := names_by_operands.get(key)) is None:
            name = names_by_operands[key] = writer.compute(t, primitive(writer, t, s, tuple(operands)), hint)
        names.append(name)
    writer.bind(result, names)


@cache
def expression(op: str) -> Primitive:
    """Return the primitive that instantiates the dialect's template of `op`; half precision computed in float is rounded."""

    def compute(writer: CWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
        name = _BOOLEAN_OPS.get(op, op) if type.kind == "i1" else op
        text = writer.expression(name, writer.computed_register(type), *xs, source_type=writer.computed_register(source_type))
        return rounded(writer, type, text) if is_float(type.kind) and op not in _EXACT else text

    return compute


def rounded(writer: CWriter, type: Register, text: str) -> str:
    """Round a float expression to the half-precision kind that it represents."""
    return (
        text
        if writer.computed_kind(type.kind) == type.kind
        else writer.expression(f"round.{type.kind}", type.with_kind("f32"), text)
    )


def elementwise(primitive: Primitive) -> Callable[[CWriter, Operation], None]:
    """Return a handler that applies a primitive to each register."""
    return lambda writer, op: apply(writer, op, primitive)


def fused_multiply_add(writer: CWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
    """Emit a multiply-add; it is not fused on targets without the instruction."""
    # Without the instruction, fma would be a library call.
    text = (
        writer.expression("fma", writer.computed_register(type), *xs)
        if writer.target.has_fma
        else concat(xs[0], " * ", xs[1], " + ", xs[2])
    )
    return rounded(writer, type, text)


def shift(name: str) -> Callable[[CWriter, Operation], None]:
    """Return the handler of a shift; a constant amount within the width uses the C operator."""
    variable_shift = expression(name)

    def handle(writer: CWriter, op: Operation) -> None:
        amount = _splat_of(op.operands[1])
        (t, *_) = writer.layout(op.results[0].type)
        if amount is None or not 0 <= amount < bits_of(t):
            apply(writer, op, variable_shift)
        else:
            apply(
                writer,
                op,
                lambda writer, type, source_type, xs: writer.expression(f"{name}.constant", type, xs[0], str(amount)),
            )

    return handle


def _splat_of(value: SSAValue) -> int | None:
    """Return the integer that all elements of a constant have, or None."""
    owner = value.owner
    constant = owner.properties.get("value") if not isinstance(owner, Block) and owner.name == "arith.constant" else None
    if isinstance(constant, IntegerAttr):
        return constant.value.data
    if isinstance(constant, DenseIntOrFPElementsAttr) and constant.is_splat():
        return int(cast(Any, constant).get_values()[0])
    return None


# Comparison and selection


def comparison_to_bool(writer: CWriter, source_type: Register, text: str) -> str:
    """Convert the result of a comparison of `source_type` to a boolean register."""
    bits = bits_of(writer.computed_register(source_type))
    if source_type.width == 1 or bits == 32:
        return text
    return writer.expression("convert", source_type.with_kind("i32"), text, source_type=source_type.with_kind(f"i{bits}"))


def compare(prefix: str, predicates: tuple[str, ...]) -> Callable[[CWriter, Operation], None]:
    """Return the handler of a comparison op with these predicate names."""

    def handle(writer: CWriter, op: Operation) -> None:
        attribute = op.properties["predicate"]
        assert isinstance(attribute, IntegerAttr)
        predicate = predicates[attribute.value.data]

        def primitive(writer: CWriter, type: Register, source_type: Register, xs: tuple[str, ...]) -> str:
            if predicate in ("true", "false"):
                return str((-1 if type.width > 1 else 1) if predicate == "true" else 0)
            return comparison_to_bool(
                writer, source_type, writer.expression(f"{prefix}.{predicate}", writer.computed_register(source_type), *xs)
            )

        if isinstance(op.operands[0].type, IndexType):
            # C compares ints and longs as signed; for non-negative operands, unsigned predicates are equivalent to signed ones.
            is_nonnegative = all(_is_nonnegative(writer, writer.linear(v)) for v in op.operands)
            name = f"s{predicate[1:]}" if is_nonnegative and predicate.startswith("u") else predicate
            texts = (
                map(writer.scalar, op.operands)
                if name.startswith("u")
                else (writer.index(writer.linear(v)) for v in op.operands)
            )
            value = writer.expression(f"{prefix}.{name}", Register("i64"), *texts)
            hint = op.results[0].name_hint or "test"
            writer.bind(
                op.results[0], [writer.define(writer.type(Register("i1")), value, hint, movable=True, needs_parentheses=True)]
            )
            return
        apply(writer, op, primitive)

    return handle


def select(writer: CWriter, type: Register, mask: str, a: str, b: str, *, by_lane: bool) -> str:
    """Return lanes of `a` where `mask` is true and of `b` elsewhere; a scalar mask selects a whole register."""
    if type.width == 1 or not by_lane:
        return concat(mask, " ? ", a, " : ", b)
    bits = bits_of(writer.computed_register(type))
    if bits != 32:
        mask = writer.expression("convert", type.with_kind(f"i{bits}"), mask, source_type=type.with_kind("i32"))
    return writer.expression("select", writer.computed_register(type), mask, a, b)


def emit_select(writer: CWriter, op: Operation) -> None:
    """Emit `arith.select`."""
    condition, result = op.operands[0], op.results[0]
    by_lane = isinstance(condition.type, VectorType)
    conditions = writer.regs(condition)
    if isinstance(result.type, IndexType):
        a, b = (writer.linear(v) for v in op.operands[1:])
        value = concat(conditions[0], " ? ", writer.index(a), " : ", writer.index(b))
        writer.linear_expressions[result] = writer.define_index(
            value, result.name_hint or "select", _hull(writer.range(a), writer.range(b))
        )
        return
    names: list[str] = []
    registers = zip(writer.layout(result.type), writer.hints(result, "select"), *map(writer.regs, op.operands[1:]), strict=True)
    for i, (t, hint, a, b) in enumerate(registers):
        value = select(writer, t, conditions[i if by_lane else 0], a, b, by_lane=by_lane)
        names.append(a if a == b else writer.compute(t, value, hint))
    writer.bind(result, names)


# Indices, see Note [Indices in C]


def _is_nonnegative(writer: CWriter, expr: LinearExpression) -> bool:
    """Return whether an index expression is provably nonnegative."""
    interval = writer.range(expr)
    return interval is not None and interval[0] >= 0


def _hull(a: Interval | None, b: Interval | None) -> Interval | None:
    """Return the smallest interval that contains both intervals."""
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def linear_or(
    primitive: Primitive, symbolic: Callable[[LinearExpression, LinearExpression], LinearExpression | None]
) -> Callable[[CWriter, Operation], None]:
    """Return a handler that keeps index arithmetic symbolic where `symbolic` can, and otherwise applies `primitive`."""

    def handle(writer: CWriter, op: Operation) -> None:
        if isinstance(op.results[0].type, IndexType):
            a, b = (writer.linear(v) for v in op.operands)
            if (expr := symbolic(a, b)) is not None:
                writer.linear_expressions[op.results[0]] = expr
                return
        apply(writer, op, primitive)

    return handle


def _divide(writer: CWriter, expr: LinearExpression, divisor: int) -> tuple[LinearExpression | None, LinearExpression | None]:
    """Return quotient and remainder of a non-negative index where they are linear: (8·x + y) / 8 = x if 0 ≤ y < 8."""
    remainder = LinearExpression(
        expr.constant % divisor, tuple((d, n, c) for d, n, c in expr.terms if writer.constant_divisor(n, c) % divisor)
    )
    interval = writer.range(remainder)
    if interval is None or interval[0] < 0 or interval[1] >= divisor:
        return None, None
    divisible_terms = [(d, n, c) for d, n, c in expr.terms if not writer.constant_divisor(n, c) % divisor]
    linear = all(c % divisor == 0 for _, _, c in divisible_terms)
    quotient = LinearExpression(expr.constant // divisor, tuple((d, n, c // divisor) for d, n, c in divisible_terms))
    return quotient if linear else None, remainder


def division(name: str) -> Callable[[CWriter, Operation], None]:
    """Return the handler of a division or remainder."""
    primitive, remainder = expression(name), name == "remui"

    def handle(writer: CWriter, op: Operation) -> None:
        result = op.results[0]
        if isinstance(result.type, IndexType):
            a, b = (writer.linear(v) for v in op.operands)
            interval = writer.range(a)
            if not b.terms and b.constant > 0 and interval is not None and interval[0] >= 0:
                if (exact := _divide(writer, a, b.constant)[remainder]) is not None:
                    writer.linear_expressions[result] = exact
                    return
                sign = "%" if remainder else "/"
                ends = (
                    (0, min(interval[1], b.constant - 1))
                    if remainder
                    else (interval[0] // b.constant, interval[1] // b.constant)
                )
                value = concat(writer.index_operand(a), f" {sign} {b.constant}")
                writer.linear_expressions[result] = writer.define_index(value, result.name_hint or name, ends)
                return
        apply(writer, op, primitive)

    return handle


def extremum(name: str, choice: Callable[[int, int], int]) -> Callable[[CWriter, Operation], None]:
    """Return the handler of an integer minimum or maximum; `choice` is the Python equivalent."""

    def handle(writer: CWriter, op: Operation) -> None:
        result = op.results[0]
        if not isinstance(result.type, IndexType):
            apply(writer, op, expression(name))
            return
        exprs = [writer.linear(v) for v in op.operands]
        a, b = (writer.range(expr) for expr in exprs)
        signed = name.endswith("si") or all(_is_nonnegative(writer, expr) for expr in exprs)
        interval = None if a is None or b is None else (choice(a[0], b[0]), choice(a[1], b[1]))
        if interval is not None and not signed:
            # The unsigned minimum is at most any operand that is provably non-negative.
            nonnegative_bounds = [high for low, high in filter(None, (a, b)) if low >= 0]
            interval = (0, min(nonnegative_bounds)) if nonnegative_bounds and name == "minui" else None
        fits_in_int = signed and all(interval is not None and fits_int(interval) for interval in (a, b))
        operands = map(writer.index, exprs) if fits_in_int else map(writer.scalar, op.operands)
        value = writer.expression(f"{name[:3]}si" if signed else name, Register("i32" if fits_in_int else "i64"), *operands)
        divisors = [n for expr in exprs for n in (expr.constant, *(writer.constant_divisor(t, c) for _, t, c in expr.terms))]
        writer.linear_expressions[result] = writer.define_index(value, result.name_hint or name, interval, gcd(*divisors))

    return handle


HANDLERS: Handlers = {
    **{f"arith.{name}": elementwise(expression(name)) for name in ("addf", "subf", "mulf", "divf", "negf")},
    **{f"arith.{name}": elementwise(expression(name)) for name in _EXTREMA},
    "arith.addi": linear_or(expression("addi"), LinearExpression.plus),
    "arith.subi": linear_or(expression("subi"), lambda a, b: a.plus(b, -1)),
    "arith.muli": linear_or(expression("muli"), LinearExpression.times),
    **{f"arith.{name}": division(name) for name in ("divui", "divsi", "remui")},
    **{f"arith.{name}": elementwise(expression(name)) for name in ("andi", "ori", "xori")},
    **{f"arith.{name}": shift(name) for name in ("shli", "shrui", "shrsi")},
    **{f"arith.{m}{s}i": extremum(f"{m}{s}i", {"min": min, "max": max}[m]) for m in ("min", "max") for s in "us"},
    "arith.cmpi": compare("cmpi", _CMPI),
    "arith.cmpf": compare("cmpf", _CMPF),
    "arith.select": emit_select,
    **{
        f"math.{name}": elementwise(expression(name))
        for name in (
            "sqrt",
            "floor",
            "ceil",
            "trunc",
            "roundeven",
            "copysign",
            "absf",
        )
    },
    "math.fma": elementwise(fused_multiply_add),
    "vector.fma": elementwise(fused_multiply_add),
}

"""Arithmetic: one primitive per op on one register, and the loop that applies it to all registers of a value.

A primitive is `(emitter, result type, operand type, operands) → name`. The same primitives combine registers in
reductions (vectors.py). What is undefined in LLVM is defined here: shifts beyond the width give zero (or the sign). No
lane of a divisor may be unsafe, which the scalar bodies of `dl` see to (dialects/dl/scalar.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from dlc.emission.llvm.convert import CONVERSIONS, extend_half, truncate_half
from dlc.emission.llvm.core import Emitter, RegisterType, is_half, splat_literal
from dlc.emission.visit.linear import Linear
from dlc.ir import IntegerAttr, Operation, VectorType, arith, f32, i1, index

Primitive = Callable[[Emitter, RegisterType, RegisterType, tuple[str, ...]], str]

_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")


def apply(e: Emitter, op: Operation, primitive: Primitive) -> None:
    """Applies a primitive register by register; registers that share their operands share the result."""
    result = op.results[0]
    types, sources = e.layout(result.type), e.layout(op.operands[0].type)
    done: dict[object, str] = {}
    names: list[str] = []
    for type, source, *operands in zip(types, sources, *map(e.regs, op.operands), strict=True):
        key = (type.text, *operands)
        if (name := done.get(key)) is None:
            name = done[key] = primitive(e, type, source, tuple(operands))
        names.append(name)
    e.bind(result, names)


def elementwise(primitive: Primitive) -> Callable[[Emitter, Operation], None]:
    return lambda e, op: apply(e, op, primitive)


@cache
def instruction(opcode: str) -> Primitive:
    """`opcode type a, b, …`"""
    return lambda e, t, s, xs: e.define(f"{opcode} {t.text} {', '.join(xs)}")


@cache
def intrinsic(name: str, flags: str = "") -> Primitive:
    """A call of an LLVM intrinsic overloaded on its result's type."""

    def call(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
        arguments = ", ".join(f"{t.text} {x}" for x in xs)
        return e.define(f"call{flags} {t.text} @llvm.{name}.{t.suffix}({arguments})")

    return call


@cache
def in_float(primitive: Primitive) -> Primitive:
    """The primitive on floats of any width: on halves it computes in f32 and rounds once."""

    def compute(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
        if not is_half(s.element):
            return primitive(e, t, s, xs)
        wide = s.of(f32)
        result = primitive(e, wide if is_half(t.element) else t, wide, tuple(extend_half(e, s, x) for x in xs))
        return truncate_half(e, t, result) if is_half(t.element) else result

    return compute


# Floats


def flags_of(op: Operation) -> str:
    """The fast-math flags of an op, as LLVM writes them."""
    flags = op.properties.get("fastmath")
    return "".join(f" {f}" for f in sorted(flags.data)) if isinstance(flags, arith.FastMathFlagsAttr) else ""


def float_op(opcode: str) -> Callable[[Emitter, Operation], None]:
    return lambda e, op: apply(e, op, in_float(instruction(opcode + flags_of(op))))


def extremum(name: str) -> Primitive:
    """llvm.maximum or llvm.minimum: a NaN wins.

    Without an order of +0 and -0 (nsz), which no one may ask for, they are one instruction and a test for NaN; one
    instruction if an operand is a constant.
    """
    return intrinsic(name, flags=" nsz")


def select(e: Emitter, t: RegisterType, condition: str, a: str, b: str) -> str:
    """`condition` has as many lanes as `t`."""
    return e.define(f"select {t.of(i1).text} {condition}, {t.text} {a}, {t.text} {b}")


def fused_multiply_add(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
    if e.target.has_fma:
        return intrinsic("fma")(e, t, s, xs)
    # Without the instruction llvm.fma is a library call.
    product = e.define(f"fmul {t.text} {xs[0]}, {xs[1]}")
    return e.define(f"fadd {t.text} {product}, {xs[2]}")


def negate(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
    return e.define(f"fneg {t.text} {xs[0]}")


# Integers


def shift(opcode: str) -> Primitive:
    def compute(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
        a, amount = xs
        bits = int(t.scalar[1:])
        if amount.isdecimal() and int(amount) < bits:
            return e.define(f"{opcode} {t.text} {a}, {amount}")
        last = splat_literal(t, str(bits - 1))
        fits = e.define(f"icmp ule {t.text} {amount}, {last}")
        shifted = e.define(f"{opcode} {t.text} {a}, {select(e, t, fits, amount, last)}")
        return shifted if opcode == "ashr" else select(e, t, fits, shifted, splat_literal(t, "0"))

    return compute


# Comparison and selection


def compare(opcode: str, predicates: tuple[str, ...]) -> Callable[[Emitter, Operation], None]:
    def handle(e: Emitter, op: Operation) -> None:
        attribute = op.properties["predicate"]
        assert isinstance(attribute, IntegerAttr)
        predicate = predicates[attribute.value.data]

        def primitive(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
            return e.define(f"{opcode} {predicate} {s.text} {xs[0]}, {xs[1]}")

        def on_floats(e: Emitter, t: RegisterType, s: RegisterType, xs: tuple[str, ...]) -> str:
            if is_half(s.element):
                s, xs = s.of(f32), tuple(extend_half(e, s, x) for x in xs)
            return primitive(e, t, s, xs)

        apply(e, op, on_floats if opcode == "fcmp" else primitive)

    return handle


def choose(e: Emitter, op: Operation) -> None:
    """arith.select; a scalar condition chooses between whole values."""
    condition, result = op.operands[0], op.results[0]
    by_lane = isinstance(condition.type, VectorType)
    conditions = e.regs(condition)
    names: list[str] = []
    for i, (t, a, b) in enumerate(zip(e.layout(result.type), *map(e.regs, op.operands[1:]), strict=True)):
        mask = f"{t.of(i1).text} {conditions[i]}" if by_lane else f"i1 {conditions[0]}"
        names.append(a if a == b else e.define(f"select {mask}, {t.text} {a}, {t.text} {b}"))
    e.bind(result, names)


# Index arithmetic stays symbolic, see Note [Linear indices]


def linear_or(opcode: str, symbolic: Callable[[Linear, Linear], Linear | None]) -> Callable[[Emitter, Operation], None]:
    def handle(e: Emitter, op: Operation) -> None:
        if op.results[0].type == index:
            form = symbolic(e.linear(op.operands[0]), e.linear(op.operands[1]))
            if form is not None:
                e.linears[op.results[0]] = form
                return
        apply(e, op, instruction(opcode))

    return handle


def _unary(primitive: Primitive) -> Callable[[Emitter, Operation], None]:
    return elementwise(in_float(primitive))


HANDLERS: dict[str, Callable[[Emitter, Operation], None]] = {
    **{f"arith.{name}": float_op(f"f{name[:3]}") for name in ("addf", "subf", "mulf", "divf")},
    "arith.negf": _unary(negate),
    "arith.maximumf": _unary(extremum("maximum")),
    "arith.minimumf": _unary(extremum("minimum")),
    "arith.addi": linear_or("add", Linear.plus),
    "arith.subi": linear_or("sub", lambda a, b: a.plus(b, -1)),
    "arith.muli": linear_or("mul", Linear.times),
    **{f"arith.{name}": elementwise(instruction(op)) for name, op in (("divui", "udiv"), ("divsi", "sdiv"), ("remui", "urem"))},
    **{f"arith.{name}i": elementwise(instruction(name)) for name in ("and", "or", "xor")},
    **{f"arith.{name}": elementwise(shift(op)) for name, op in (("shli", "shl"), ("shrui", "lshr"), ("shrsi", "ashr"))},
    **{f"arith.{m}{s}i": elementwise(intrinsic(f"{s}{m}")) for m in ("min", "max") for s in "us"},
    "arith.cmpi": compare("icmp", _CMPI),
    "arith.cmpf": compare("fcmp", _CMPF),
    "arith.select": choose,
    **{name: elementwise(primitive) for name, primitive in CONVERSIONS.items()},
    **{f"math.{name}": _unary(intrinsic(name)) for name in ("sqrt", "floor", "ceil", "trunc", "roundeven", "copysign")},
    "math.absf": _unary(intrinsic("fabs")),
    "math.fma": _unary(fused_multiply_add),
    "vector.fma": _unary(fused_multiply_add),
}

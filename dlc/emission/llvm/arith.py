"""Arithmetic: one primitive per op on one register, and the loop that applies it to all registers of a value.

A primitive is `(writer, result's register, operand's register, operands) → name`. The same primitives combine registers in
reductions (vectors.py). What is undefined in LLVM is defined here: shifts beyond the width give zero (or the sign). No lane
of a divisor may be unsafe, which the scalar bodies of `dl` see to (dialects/dl/scalar.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from dlc.emission.llvm.clamped import converts_within, rounding_of, rounds_at_conversion
from dlc.emission.llvm.convert import CONVERSIONS, extend_half, truncate_half
from dlc.emission.llvm.core import Writer, bits_of, splat_literal, suffix_of, text_of
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.registers import Register, is_half
from dlc.emission.visit.visit import Handlers
from dlc.ir import IndexType, IntegerAttr, Operation, VectorType, arith, math

Primitive = Callable[[Writer, Register, Register, tuple[str, ...]], str]
Handler = Callable[[Writer, Operation], None]

_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")


def apply(e: Writer, op: Operation, primitive: Primitive, order: Sequence[int] | None = None) -> None:
    """Applies a primitive register by register, in an order if one is given; those that share operands share the result."""
    result = op.results[0]
    types, sources = e.layout(result.type), e.layout(op.operands[0].type)
    registers = list(zip(types, sources, *map(e.regs, op.operands), strict=True))
    done: dict[object, str] = {}
    names = [""] * len(registers)
    for k in order or range(len(registers)):
        t, s, *operands = registers[k]
        key = (t.width, *operands)
        if (name := done.get(key)) is None:
            name = done[key] = primitive(e, t, s, tuple(operands))
        names[k] = name
    e.bind(result, names)


def elementwise(primitive: Primitive) -> Handler:
    return lambda e, op: apply(e, op, primitive)


@cache
def instruction(opcode: str) -> Primitive:
    """`opcode type a, b, …`"""
    return lambda e, t, s, xs: e.compute(opcode, t, *xs)


@cache
def intrinsic(name: str, flags: str = "") -> Primitive:
    """A call of an LLVM intrinsic overloaded on its result's type."""
    return lambda e, t, s, xs: e.call(name, t, *xs, flags=flags)


@cache
def in_float(primitive: Primitive) -> Primitive:
    """The primitive on floats of any width: on halves it computes in f32 and rounds once."""

    def compute(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        if not is_half(s.kind):
            return primitive(e, t, s, xs)
        wide = s.of("f32")
        result = primitive(e, wide if is_half(t.kind) else t, wide, tuple(extend_half(e, s, x) for x in xs))
        return truncate_half(e, t, result) if is_half(t.kind) else result

    return compute


# Floats


def flags_of(op: Operation) -> str:
    """The fast-math flags of an op, as LLVM writes them."""
    flags = op.properties.get("fastmath")
    return "".join(f" {f}" for f in sorted(flags.data)) if isinstance(flags, arith.FastMathFlagsAttr) else ""


def float_op(opcode: str) -> Handler:
    return lambda e, op: apply(e, op, in_float(instruction(opcode + flags_of(op))))


def extremum(name: str) -> Primitive:
    """llvm.maximum or llvm.minimum, where a NaN wins.

    Without an order of +0 and -0 (nsz), which no one may ask for, they are one instruction and a test for NaN; one
    instruction if an operand is a constant.
    """
    return intrinsic(name, flags=" nsz")


def number_extremum(predicate: str) -> Primitive:
    """The extremum of two, where a NaN loses; an x86 processor's instruction is the first of the two selections.

    llvm.maxnum of floats of 16 bits, to which LLVM narrows that of wider ones, is a library call.
    """

    def compute(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        a, b = xs
        either = e.keep(t, predicate, a, b)
        return e.select(t, e.compute("fcmp uno", t, b, b), a, either)

    return compute


def fused_multiply_add(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    if e.target.has_fma:
        return e.call("fma", t, *xs)
    # Without the instruction llvm.fma is a library call.
    return e.compute("fadd", t, e.compute("fmul", t, xs[0], xs[1]), xs[2])


# Integers


def shift(opcode: str) -> Primitive:
    def compute(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        a, amount = xs
        if amount in _within(t):
            return e.compute(opcode, t, a, amount)
        last = splat_literal(t, str(bits_of(t) - 1))
        fits = e.compute("icmp ule", t, amount, last)
        shifted = e.compute(opcode, t, a, e.select(t, fits, amount, last))
        return shifted if opcode == "ashr" else e.select(t, fits, shifted, splat_literal(t, "0"))

    return compute


@cache
def _within(t: Register) -> frozenset[str]:
    """The literals that are less than the bits of an element."""
    return frozenset(splat_literal(t, str(amount)) for amount in range(bits_of(t)))


# Conversion


def to_signed(e: Writer, op: Operation) -> None:
    """arith.fptosi, which saturates; what is seen to be within the limits is converted as it stands."""
    if not converts_within(op):
        apply(e, op, CONVERSIONS[op.name])
        return
    rounding = rounding_of(op.operands[0])
    apply(e, op, _nearest if rounding is not None and _converts_to_nearest(e, rounding) else in_float(_truncated))


def round_even(e: Writer, op: Operation) -> None:
    """math.roundeven, nothing where the conversion that follows rounds as well."""
    assert isinstance(op, math.RoundEvenOp)
    if _converts_to_nearest(e, op) and rounds_at_conversion(op):
        e.bind(op.result, e.regs(op.operand))
        return
    apply(e, op, in_float(intrinsic("roundeven")))


def _converts_to_nearest(e: Writer, op: math.RoundEvenOp) -> bool:
    """Whether the target has an instruction that makes integers of floats such as this one and rounds to the nearest."""
    return e.target.architecture == "x86_64" and all(t.kind == "f32" for t in e.layout(op.result.type))


def _truncated(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    return e.cast("fptosi", s, xs[0], t)


def _nearest(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    """One instruction of x86, which rounds to the nearest by itself."""
    function = f"llvm.lrint.{suffix_of(t)}.{suffix_of(s)}"
    return e.define(f"call {text_of(t)} @{function}({text_of(s)} {xs[0]})", xs[0])


# Comparison and selection


def compare(opcode: str, predicates: tuple[str, ...]) -> Handler:
    def handle(e: Writer, op: Operation) -> None:
        predicate = _predicate(op, predicates)

        def primitive(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
            if is_half(s.kind):
                s, xs = s.of("f32"), tuple(extend_half(e, s, x) for x in xs)
            return e.compute(f"{opcode} {predicate}", s, *xs)

        apply(e, op, primitive)

    return handle


def choose(e: Writer, op: Operation) -> None:
    """arith.select; a scalar condition chooses between whole values."""
    condition, result = op.operands[0], op.results[0]
    by_lane = isinstance(condition.type, VectorType)
    types, conditions, test = e.layout(result.type), e.regs(condition), _of_same(op)
    names: list[str] = []
    for t, mask, a, b in zip(
        types, conditions if by_lane else conditions * len(types), *map(e.regs, op.operands[1:]), strict=True
    ):
        if a == b:
            names.append(a)
        elif test is not None and e.compares_with_zero(t, a, b):
            first = test.lhs is op.operands[1]
            names.append(e.keep(t, _predicate(test, _CMPF), *((a, b) if first else (b, a)), second=not first))
        else:
            names.append(e.select(t, mask, a, b, by_lane=by_lane))
    e.bind(result, names)


def _of_same(select: Operation) -> arith.CmpfOp | None:
    """The comparison of the two floats that a selection chooses one of."""
    condition, a, b = select.operands
    test = condition.owner
    return test if isinstance(test, arith.CmpfOp) and (test.lhs, test.rhs) in ((a, b), (b, a)) else None


def _predicate(op: Operation, predicates: Sequence[str]) -> str:
    attribute = op.properties["predicate"]
    assert isinstance(attribute, IntegerAttr)
    return predicates[attribute.value.data]


# Index arithmetic stays symbolic, see Note [Linear indices]


def linear_or(opcode: str, symbolic: Callable[[Linear, Linear], Linear | None]) -> Handler:
    def handle(e: Writer, op: Operation) -> None:
        if isinstance(op.results[0].type, IndexType):
            form = symbolic(e.linear(op.operands[0]), e.linear(op.operands[1]))
            if form is not None:
                e.linears[op.results[0]] = form
                return
        apply(e, op, instruction(opcode))

    return handle


def add_products(e: Writer, op: Operation) -> None:
    """`vector.fma`, along the shorter side of a register tile first: its operands are held, those of the other pass by."""
    sides = [e.regs(operand) for operand in op.operands[:2]]
    longer = max(sides, key=lambda names: len(set(names)))
    order = sorted(range(len(longer)), key=lambda k: longer.index(longer[k]))
    apply(e, op, in_float(fused_multiply_add), order)


def _unary(primitive: Primitive) -> Handler:
    return elementwise(in_float(primitive))


HANDLERS: Handlers = {
    **{f"arith.{name}": float_op(f"f{name[:3]}") for name in ("addf", "subf", "mulf", "divf")},
    "arith.negf": _unary(instruction("fneg")),
    "arith.maximumf": _unary(extremum("maximum")),
    "arith.minimumf": _unary(extremum("minimum")),
    "arith.maxnumf": _unary(number_extremum("ogt")),
    "arith.minnumf": _unary(number_extremum("olt")),
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
    "arith.fptosi": to_signed,
    **{f"math.{name}": _unary(intrinsic(name)) for name in ("sqrt", "floor", "ceil", "trunc", "copysign")},
    "math.roundeven": round_even,
    "math.absf": _unary(intrinsic("fabs")),
    "math.fma": _unary(fused_multiply_add),
    "vector.fma": add_products,
}

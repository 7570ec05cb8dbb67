"""Arithmetic: one expression per op on one register, and the loop that applies it to all registers of a value.

What is undefined in C is defined here as it is on every target: shifts beyond the width give zero (or the sign);
conversions to integers saturate, and NaN becomes zero. Divisors are safe already (dialects/dl/scalar.py). A half that the
device does not compute with is a float that is rounded after each op.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import gcd
from typing import Any, cast

from dlc.emission.c.core import Range, Writer, fits_int
from dlc.emission.c.text import code
from dlc.emission.c.vocabulary import bits_of
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.registers import Register, is_float
from dlc.emission.visit.visit import Handlers
from dlc.ir import Block, DenseIntOrFPElementsAttr, IndexType, IntegerAttr, Operation, SSAValue, VectorType

# (emitter, result's register, first operand's register, operands) → expression
Primitive = Callable[[Writer, Register, Register, tuple[str, ...]], str]
_EXTREMA = ("maximumf", "minimumf", "maxnumf", "minnumf")
# Results of these are halves if their operands are.
_EXACT = frozenset({"negf", "absf", "floor", "ceil", "trunc", "roundeven", "copysign", *_EXTREMA})
_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")
# Arithmetic modulo two.
_ON_TRUTHS = {
    "addi": "xori", "subi": "xori", "muli": "andi", "maxui": "ori", "minui": "andi", "maxsi": "andi", "minsi": "ori",
}  # fmt: skip


def apply(e: Writer, op: Operation, primitive: Primitive, hint: str = "") -> None:
    """Applies a primitive register by register; registers that share their operands share the result."""
    result = op.results[0]
    done: dict[object, str] = {}
    names: list[str] = []
    hints = e.hints(result, hint or op.name.partition(".")[2])
    places = zip(e.layout(result.type), e.layout(op.operands[0].type), hints, strict=True)
    for (t, s, hint), *operands in zip(places, *map(e.regs, op.operands), strict=True):
        key = (t, *operands)
        if (name := done.get(key)) is None:
            name = done[key] = e.compute(t, primitive(e, t, s, tuple(operands)), hint)
        names.append(name)
    e.bind(result, names)


@cache
def expression(op: str) -> Primitive:
    """The dialect's expression; rounded where it computes halves as floats."""

    def compute(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
        name = _ON_TRUTHS.get(op, op) if t.kind == "i1" else op
        text = e.expression(name, e.held(t), *xs, s=e.held(s))
        return rounded(e, t, text) if is_float(t.kind) and op not in _EXACT else text

    return compute


def rounded(e: Writer, t: Register, text: str) -> str:
    """A float rounded to the half that it stands for."""
    return text if e.computed(t.kind) == t.kind else e.expression(f"round.{t.kind}", t.of("f32"), text)


def elementwise(primitive: Primitive) -> Callable[[Writer, Operation], None]:
    return lambda e, op: apply(e, op, primitive)


def fused_multiply_add(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
    # Without the instruction it would be a library call.
    text = e.expression("fma", e.held(t), *xs) if e.target.has_fma else code(xs[0], " * ", xs[1], " + ", xs[2])
    return rounded(e, t, text)


def shift(name: str) -> Callable[[Writer, Operation], None]:
    """A shift; by a constant within the width it is C's own."""
    by_any = expression(name)

    def handle(e: Writer, op: Operation) -> None:
        amount = _splat_of(op.operands[1])
        (t, *_) = e.layout(op.results[0].type)
        if amount is None or not 0 <= amount < bits_of(t):
            apply(e, op, by_any)
        else:
            apply(e, op, lambda e, t, s, xs: e.expression(f"{name}.constant", t, xs[0], str(amount)))

    return handle


def _splat_of(value: SSAValue) -> int | None:
    """The integer that a constant is in all places."""
    owner = value.owner
    constant = owner.properties.get("value") if not isinstance(owner, Block) and owner.name == "arith.constant" else None
    if isinstance(constant, IntegerAttr):
        return constant.value.data
    if isinstance(constant, DenseIntOrFPElementsAttr) and constant.is_splat():
        return int(cast(Any, constant).get_values()[0])
    return None


# Comparison and selection


def truth(e: Writer, s: Register, text: str) -> str:
    """What a comparison of `s` gives, as a truth value."""
    bits = bits_of(e.held(s))
    if s.width == 1 or bits == 32:
        return text
    return e.expression("convert", s.of("i32"), text, s=s.of(f"i{bits}"))


def compare(prefix: str, predicates: tuple[str, ...]) -> Callable[[Writer, Operation], None]:
    def handle(e: Writer, op: Operation) -> None:
        attribute = op.properties["predicate"]
        assert isinstance(attribute, IntegerAttr)
        predicate = predicates[attribute.value.data]

        def primitive(e: Writer, t: Register, s: Register, xs: tuple[str, ...]) -> str:
            if predicate in ("true", "false"):
                return str((-1 if t.width > 1 else 1) if predicate == "true" else 0)
            return truth(e, s, e.expression(f"{prefix}.{predicate}", e.held(s), *xs))

        if isinstance(op.operands[0].type, IndexType):
            # C compares ints and longs as they are; of natural numbers the sign does not matter.
            natural = all(_natural(e, e.linear(v)) for v in op.operands)
            name = f"s{predicate[1:]}" if natural and predicate.startswith("u") else predicate
            texts = map(e.scalar, op.operands) if name.startswith("u") else (e.index(e.linear(v)) for v in op.operands)
            value = e.expression(f"{prefix}.{name}", Register("i64"), *texts)
            hint = op.results[0].name_hint or "test"
            e.bind(op.results[0], [e.define(e.type(Register("i1")), value, hint, movable=True, loose=True)])
            return
        apply(e, op, primitive)

    return handle


def select(e: Writer, t: Register, mask: str, a: str, b: str, *, by_lane: bool) -> str:
    """Lanes of `a` where `mask` holds, else of `b`; a scalar mask chooses between whole registers."""
    if t.width == 1 or not by_lane:
        return code(mask, " ? ", a, " : ", b)
    bits = bits_of(e.held(t))
    if bits != 32:
        mask = e.expression("convert", t.of(f"i{bits}"), mask, s=t.of("i32"))
    return e.expression("select", e.held(t), mask, a, b)


def choose(e: Writer, op: Operation) -> None:
    """arith.select"""
    condition, result = op.operands[0], op.results[0]
    by_lane = isinstance(condition.type, VectorType)
    conditions = e.regs(condition)
    if isinstance(result.type, IndexType):
        a, b = (e.linear(v) for v in op.operands[1:])
        value = code(conditions[0], " ? ", e.index(a), " : ", e.index(b))
        e.linears[result] = e.define_index(value, result.name_hint or "select", _hull(e.range(a), e.range(b)))
        return
    names: list[str] = []
    places = zip(e.layout(result.type), e.hints(result, "select"), *map(e.regs, op.operands[1:]), strict=True)
    for i, (t, hint, a, b) in enumerate(places):
        value = select(e, t, conditions[i if by_lane else 0], a, b, by_lane=by_lane)
        names.append(a if a == b else e.compute(t, value, hint))
    e.bind(result, names)


# Indices, see Note [Indices in C]


def _natural(e: Writer, form: Linear) -> bool:
    known = e.range(form)
    return known is not None and known[0] >= 0


def _hull(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def linear_or(primitive: Primitive, symbolic: Callable[[Linear, Linear], Linear | None]) -> Callable[[Writer, Operation], None]:
    def handle(e: Writer, op: Operation) -> None:
        if isinstance(op.results[0].type, IndexType):
            a, b = (e.linear(v) for v in op.operands)
            if (form := symbolic(a, b)) is not None:
                e.linears[op.results[0]] = form
                return
        apply(e, op, primitive)

    return handle


def _divide(e: Writer, form: Linear, divisor: int) -> tuple[Linear | None, Linear | None]:
    """Quotient and remainder of a natural number, where they are linear forms: x·8 + y = 8·x + y if y < 8."""
    rest = Linear(form.constant % divisor, tuple((d, n, c) for d, n, c in form.terms if e.multiple(n, c) % divisor))
    known = e.range(rest)
    if known is None or known[0] < 0 or known[1] >= divisor:
        return None, None
    whole = [(d, n, c) for d, n, c in form.terms if not e.multiple(n, c) % divisor]
    linear = all(c % divisor == 0 for _, _, c in whole)
    quotient = Linear(form.constant // divisor, tuple((d, n, c // divisor) for d, n, c in whole))
    return quotient if linear else None, rest


def division(name: str) -> Callable[[Writer, Operation], None]:
    primitive, remainder = expression(name), name == "remui"

    def handle(e: Writer, op: Operation) -> None:
        result = op.results[0]
        if isinstance(result.type, IndexType):
            a, b = (e.linear(v) for v in op.operands)
            known = e.range(a)
            if not b.terms and b.constant > 0 and known is not None and known[0] >= 0:
                if (exact := _divide(e, a, b.constant)[remainder]) is not None:
                    e.linears[result] = exact
                    return
                sign = "%" if remainder else "/"
                ends = (0, min(known[1], b.constant - 1)) if remainder else (known[0] // b.constant, known[1] // b.constant)
                value = code(e.atom(a), f" {sign} {b.constant}")
                e.linears[result] = e.define_index(value, result.name_hint or name, ends)
                return
        apply(e, op, primitive)

    return handle


def extremum(name: str, choice: Callable[[int, int], int]) -> Callable[[Writer, Operation], None]:
    def handle(e: Writer, op: Operation) -> None:
        result = op.results[0]
        if not isinstance(result.type, IndexType):
            apply(e, op, expression(name))
            return
        forms = [e.linear(v) for v in op.operands]
        a, b = (e.range(form) for form in forms)
        signed = name.endswith("si") or all(_natural(e, form) for form in forms)
        known = None if a is None or b is None else (choice(a[0], b[0]), choice(a[1], b[1]))
        if known is not None and not signed:
            # As naturals the smaller of two is no larger than the one that surely is natural.
            naturals = [high for low, high in filter(None, (a, b)) if low >= 0]
            known = (0, min(naturals)) if naturals and name == "minui" else None
        short = signed and all(known is not None and fits_int(known) for known in (a, b))
        operands = map(e.index, forms) if short else map(e.scalar, op.operands)
        value = e.expression(f"{name[:3]}si" if signed else name, Register("i32" if short else "i64"), *operands)
        divisors = [n for form in forms for n in (form.constant, *(e.multiple(t, c) for _, t, c in form.terms))]
        e.linears[result] = e.define_index(value, result.name_hint or name, known, gcd(*divisors))

    return handle


HANDLERS: Handlers = {
    **{f"arith.{name}": elementwise(expression(name)) for name in ("addf", "subf", "mulf", "divf", "negf")},
    **{f"arith.{name}": elementwise(expression(name)) for name in _EXTREMA},
    "arith.addi": linear_or(expression("addi"), Linear.plus),
    "arith.subi": linear_or(expression("subi"), lambda a, b: a.plus(b, -1)),
    "arith.muli": linear_or(expression("muli"), Linear.times),
    **{f"arith.{name}": division(name) for name in ("divui", "divsi", "remui")},
    **{f"arith.{name}": elementwise(expression(name)) for name in ("andi", "ori", "xori")},
    **{f"arith.{name}": shift(name) for name in ("shli", "shrui", "shrsi")},
    **{f"arith.{m}{s}i": extremum(f"{m}{s}i", {"min": min, "max": max}[m]) for m in ("min", "max") for s in "us"},
    "arith.cmpi": compare("cmpi", _CMPI),
    "arith.cmpf": compare("cmpf", _CMPF),
    "arith.select": choose,
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

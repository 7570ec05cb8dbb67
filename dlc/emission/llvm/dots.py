"""Products of words (`dl.words`): one instruction instead of the arithmetic that says what they are.

Kernels say a product as it is defined, in shifts, multiplications and sums, so that every stage can be run and every language
written:

    Σⱼ ((a << up) >> down) · ((b << up) >> down) + c                    of integers, and
    f32(a << 16) · f32(b << 16) + (f32(a & upper) · f32(b & upper) + c)    of pairs of bf16, by their bits

Where the target has an instruction for it, it is written for the last sum, and the rest is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.narrow_numbers.words import DOTS, shifts
from dlc.emission.llvm.core import Writer, text_of
from dlc.emission.llvm.order import Place
from dlc.emission.llvm.widths import Widths
from dlc.emission.visit.constants import number_in
from dlc.emission.visit.registers import Register
from dlc.emission.visit.visit import Handlers
from dlc.ir import Attribute, Operation, SSAValue, VectorType, arith, func, vector
from dlc.target import Target

# What intrinsics are called on an architecture, by the width of a register in words; but for those of i16, they add to what
# is there.
_NAMES = {
    ("x86_64", "i16"): {4: "x86.sse2.pmadd.wd", 8: "x86.avx2.pmadd.wd", 16: "x86.avx512.pmaddw.d.512"},
    ("x86_64", "u8i8"): {4: "x86.avx512.vpdpbusd.128", 8: "x86.avx512.vpdpbusd.256", 16: "x86.avx512.vpdpbusd.512"},
    ("x86_64", "bf16"): {w: f"x86.avx512bf16.dpbf16ps.{32 * w}" for w in (4, 8, 16)},
    ("aarch64", "i16"): {4: "aarch64.neon.smull.v4i32"},
    ("aarch64", "u8i8"): {4: "aarch64.neon.usdot.v4i32.v16i8"},
}
# What they call the numbers of words.
_PARTS = {"i16": "i16", "u8i8": "i8", "bf16": "bfloat"}


@dataclass(frozen=True)
class Product:
    """`dot(a, b) + c` as an op of a kernel, and the ops that say the product."""

    dot: str
    a: SSAValue
    b: SSAValue
    c: SSAValue
    inner: frozenset[Operation]


@dataclass(frozen=True)
class Facts:
    """What each grid wants to know of all of its kernel: how wide its values are, and the sums that are products."""

    widths: Widths
    products: Mapping[Operation, Product]

    @staticmethod
    def of(kernel: func.FuncOp, target: Target) -> Facts:
        products = _products(kernel, target)
        return Facts(Widths.of(kernel, target, has_dots=bool(products)), products)


def _products(kernel: func.FuncOp, target: Target) -> dict[Operation, Product]:
    """The sums in a kernel that end a product for which the target has an instruction."""
    found: dict[Operation, Product] = {}
    for op in kernel.walk() if target.dots else ():
        if isinstance(op, arith.AddiOp | vector.FMAOp) and isinstance(kind := op.results[0].type, VectorType):
            names = [name for name in target.dots if DOTS[name].total == kind.element_type]
            if (product := next((p for p in (_product(op, name) for name in names) if p is not None), None)) is not None:
                found[op] = product
    return found


def _product(op: arith.AddiOp | vector.FMAOp, name: str) -> Product | None:
    if isinstance(op, vector.FMAOp):
        return _of_floats(op, name)
    return _of_integers(op, op.lhs, op.rhs, name) or _of_integers(op, op.rhs, op.lhs, name)


def _of_integers(op: Operation, total: SSAValue, c: SSAValue, name: str) -> Product | None:
    """`total + c` with `total = Σⱼ aⱼ · bⱼ`"""
    dot, inner, terms = DOTS[name], list[Operation](), list[SSAValue]()
    for _ in range(dot.count - 1):
        if not isinstance(total.owner, arith.AddiOp):
            return None
        inner.append(total.owner)
        terms.insert(0, total.owner.rhs)
        total = total.owner.lhs
    terms.insert(0, total)
    factors: list[Sequence[SSAValue]] = []
    for term in terms:
        if not isinstance(term.owner, arith.MuliOp):
            return None
        inner.append(term.owner)
        factors.append(term.owner.operands)
    return _of_words(op, factors, c, inner, name)


def _of_floats(op: vector.FMAOp, name: str) -> Product | None:
    """`a₀ · b₀ + (a₁ · b₁ + c)`"""
    inner, factors, last = list[Operation](), [op.operands[:2]], op
    for _ in range(DOTS[name].count - 1):
        if not isinstance(last.acc.owner, vector.FMAOp):
            return None
        last = last.acc.owner
        inner.append(last)
        factors.append(last.operands[:2])
    return _of_words(op, factors, last.acc, inner, name)


def _of_words(
    op: Operation, factors: Sequence[Sequence[SSAValue]], c: SSAValue, inner: list[Operation], name: str
) -> Product | None:
    """The product that `op` ends, of numbers 0, 1, … of two words, if it is one; `inner` are the ops before it."""
    dot, pairs = DOTS[name], set[tuple[SSAValue | None, SSAValue | None]]()
    for j, (x, y) in enumerate(factors):
        pairs.add((_word(x, dot.data, j, inner), _word(y, dot.weights, j, inner)))
    (a, b), ops = pairs.pop(), frozenset(inner)
    if pairs or a is None or b is None:
        return None
    # What others read of it has to be there.
    if any(use.operation not in ops and use.operation is not op for o in ops for use in o.results[0].uses):
        return None
    return Product(name, a, b, c, ops)


def _word(part: SSAValue, kind: Attribute, j: int, inner: list[Operation]) -> SSAValue | None:
    """The word whose number `j` this is."""
    up, down = shifts(kind, j)
    if is_float(kind):
        # Nothing has to move down: what is below a float's bits is zero.
        if not isinstance(part.owner, arith.BitcastOp):
            return None
        inner.append(part.owner)
        return _shifted(part.owner.input, arith.ShLIOp, up, inner) if up else _masked(part.owner.input, -1 << down, inner)
    word = _shifted(part, arith.ShRUIOp if is_unsigned(kind) else arith.ShRSIOp, down, inner)
    return _shifted(word, arith.ShLIOp, up, inner) if up and word is not None else word


def _shifted(x: SSAValue, shift: type[Operation], by: int, inner: list[Operation]) -> SSAValue | None:
    """What `x` is, moved by so many bits."""
    if not isinstance(x.owner, shift) or number_in(x.owner.operands[1]) != by:
        return None
    inner.append(x.owner)
    return x.owner.operands[0]


def _masked(x: SSAValue, mask: int, inner: list[Operation]) -> SSAValue | None:
    """What `x` has these bits of."""
    if not isinstance(x.owner, arith.AndIOp) or number_in(x.owner.rhs) != mask:
        return None
    inner.append(x.owner)
    return x.owner.lhs


class DotWriter(Writer):
    """Writes products of words."""

    def __init__(self, kernel: func.FuncOp, target: Target, facts: Facts, handlers: Handlers) -> None:
        super().__init__(kernel, target, facts.widths, handlers)
        found = facts.products.items()
        self.names = {dot: _NAMES[target.architecture, dot] for dot in target.dots}
        self.products = {op: p for op, p in found if all(t.width in self.names[p.dot] for t in self.layout(op.results[0].type))}
        self.unwritten = {op for p in self.products.values() for op in p.inner}

    def visit(self, op: Operation) -> None:
        if op in self.unwritten:
            return
        if (product := self.products.get(op)) is None:
            super().visit(op)
            return
        words = map(self.regs, (product.a, product.b, product.c))
        registers = zip(self.layout(op.results[0].type), *words, strict=True)
        self.bind(op.results[0], [self.dot(product.dot, *register) for register in registers])

    def dot(self, name: str, t: Register, a: str, b: str, c: str) -> str:
        """`dot(a, b) + c`"""
        words, count = text_of(t.of("i32")), DOTS[name].count * t.width
        whole, split = text_of(t), f"<{count} x {_PARTS[name]}>"
        a, b = (self.once(f"bitcast {words} {x} to {split}", x, place=Place.MOVABLE) for x in (a, b))
        function = f"call {whole} @llvm.{self.names[name][t.width]}"
        if name != "i16":
            return self.define(f"{function}({whole} {c}, {split} {a}, {split} {b})", c, a, b)
        if self.target.architecture == "aarch64":
            return self.compute("add", t, self._added_pairs(function, Register("i16", count), a, b), c)
        return self.compute("add", t, self.define(f"{function}({split} {a}, {split} {b})", a, b), c)

    def _added_pairs(self, multiply: str, parts: Register, a: str, b: str) -> str:
        """Each half of the integers multiplied, and sums of neighbours."""
        width, split = parts.width // 2, text_of(parts)
        half = text_of(parts.wide(width))
        products: list[str] = []
        for start in (0, width):
            lanes = ", ".join(f"i32 {lane}" for lane in range(start, start + width))
            x, y = (self.once(f"shufflevector {split} {v}, {split} poison, <{width} x i32> <{lanes}>", v) for v in (a, b))
            products.append(self.define(f"{multiply}({half} {x}, {half} {y})", x, y))
        whole = f"<{width} x i32>"
        first, second = products
        call = f"call {whole} @llvm.aarch64.neon.addp.v{width}i32({whole} {first}, {whole} {second})"
        return self.define(call, first, second)

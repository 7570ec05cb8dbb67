"""Products of words (`dl.words`): one instruction instead of the arithmetic that says what they are.

Kernels say a product as it is defined, in shifts, multiplications and sums of i32, so that every stage can be run and every
language written:

    Σⱼ ((a << up) >> down) · ((b << up) >> down) + c

Where the target has an instruction for it, it is written for the last sum, and the rest is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.words import DOTS, Dot, shifts
from dlc.emission.llvm.core import Writer, text_of
from dlc.emission.llvm.order import Place
from dlc.emission.visit.constants import number_in
from dlc.emission.visit.registers import Register
from dlc.emission.visit.visit import Handlers
from dlc.ir import Attribute, Operation, SSAValue, VectorType, arith, func, i32
from dlc.target import Target

# What intrinsics are called on an architecture, by the width of a register in words; those of u8i8 add to what is there.
_NAMES = {
    ("x86_64", "i16"): {4: "x86.sse2.pmadd.wd", 8: "x86.avx2.pmadd.wd", 16: "x86.avx512.pmaddw.d.512"},
    ("x86_64", "u8i8"): {4: "x86.avx512.vpdpbusd.128", 8: "x86.avx512.vpdpbusd.256", 16: "x86.avx512.vpdpbusd.512"},
    ("aarch64", "i16"): {4: "aarch64.neon.smull.v4i32"},
    ("aarch64", "u8i8"): {4: "aarch64.neon.usdot.v4i32.v16i8"},
}


@dataclass(frozen=True)
class Product:
    """`dot(a, b) + c` as an op of a kernel, and the ops that say the product."""

    dot: str
    a: SSAValue
    b: SSAValue
    c: SSAValue
    inner: frozenset[Operation]


def products(kernel: func.FuncOp, target: Target) -> dict[Operation, Product]:
    """The sums of i32 in a kernel that end a product for which the target has an instruction."""
    found: dict[Operation, Product] = {}
    for op in kernel.walk() if target.dots else ():
        if isinstance(op, arith.AddiOp) and isinstance(op.result.type, VectorType) and op.result.type.element_type == i32:
            product = next((p for p in (_product(op, dot) for dot in target.dots) if p is not None), None)
            if product is not None:
                found[op] = product
    return found


def _product(op: arith.AddiOp, name: str) -> Product | None:
    for total, c in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        inner: list[Operation] = []
        words = _words(total, DOTS[name], inner)
        ops = frozenset(inner)
        # What others read of it has to be there.
        if words is not None and all(use.operation in ops or use.operation is op for o in ops for use in o.results[0].uses):
            return Product(name, *words, c, ops)
    return None


def _words(total: SSAValue, dot: Dot, inner: list[Operation]) -> tuple[SSAValue, SSAValue] | None:
    """The words a and b of `Σⱼ aⱼ · bⱼ`, or None; adds the ops in between to `inner`."""
    terms: list[SSAValue] = []
    for _ in range(dot.count - 1):
        if not isinstance(total.owner, arith.AddiOp):
            return None
        inner.append(total.owner)
        terms.insert(0, total.owner.rhs)
        total = total.owner.lhs
    terms.insert(0, total)
    pairs: set[tuple[SSAValue, SSAValue]] = set()
    for j, term in enumerate(terms):
        if not isinstance(term.owner, arith.MuliOp):
            return None
        inner.append(term.owner)
        a, b = (_word(v, kind, j, inner) for v, kind in zip(term.owner.operands, (dot.data, dot.weights), strict=True))
        if a is None or b is None:
            return None
        pairs.add((a, b))
    return pairs.pop() if len(pairs) == 1 else None


def _word(part: SSAValue, kind: Attribute, j: int, inner: list[Operation]) -> SSAValue | None:
    """The word whose integer `j` this is."""
    up, down = shifts(kind, j)
    if not isinstance(part.owner, arith.ShRUIOp if is_unsigned(kind) else arith.ShRSIOp) or number_in(part.owner.rhs) != down:
        return None
    inner.append(part.owner)
    word = part.owner.lhs
    if not up:
        return word
    if not isinstance(word.owner, arith.ShLIOp) or number_in(word.owner.rhs) != up:
        return None
    inner.append(word.owner)
    return word.owner.lhs


class DotWriter(Writer):
    """Writes products of words."""

    def __init__(self, kernel: func.FuncOp, target: Target, handlers: Handlers) -> None:
        super().__init__(kernel, target, handlers)
        found = products(kernel, target).items()
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
        parts = Register("i16" if name == "i16" else "i8", DOTS[name].count * t.width)
        whole, split = text_of(t), text_of(parts)
        a, b = (self.once(f"bitcast {whole} {x} to {split}", x, place=Place.MOVABLE) for x in (a, b))
        function = f"call {whole} @llvm.{self.names[name][t.width]}"
        if name == "u8i8":
            return self.define(f"{function}({whole} {c}, {split} {a}, {split} {b})", c, a, b)
        if self.target.architecture == "aarch64":
            return self.compute("add", t, self._added_pairs(function, parts, a, b), c)
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

"""Dot products of packed operands (VNNI layout): one instruction instead of the arithmetic that defines them.

A kernel expresses the product by its definition, in shifts, multiplications and additions, so that every stage can be
evaluated and every language can emit it:

    Σⱼ ((a << up) >> down) · ((b << up) >> down) + c                    for integers, and
    f32(a << 16) · f32(b << 16) + (f32(a & upper) · f32(b & upper) + c)    for pairs of bf16, by their bits

In `u8i7`, the sums of two adjacent products are packed to words of two i16, in which they wrap, and multiplied by factors as
in `i16`. Such sums of several words may be added before they are packed, to sums `s` in a word:

    ((s + Σᵢ (aᵢ₀ · bᵢ₀ + aᵢ₁ · bᵢ₁)) & 0xffff) | ((s >> 16) + Σᵢ (aᵢ₂ · bᵢ₂ + aᵢ₃ · bᵢ₃)) << 16

If the target has an instruction for it, the instruction replaces the last op and the other ops are not emitted.

On x86-64, if a separate instruction adds a product to a sum, the sum passes through empty inline assembly, which keeps
additions in the order of the text. Otherwise LLVM's machine combiner reassociates them, and its scheduler moves products before
them: a tile that needs all 16 registers then spills most products.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS, WORD_BITS, unpack_shifts
from dlc.emission.common.constants import splat_constant
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.registers import Register
from dlc.emission.llvm.byte_tables import LlvmByteTableWriter, TableLookup, find_lookups
from dlc.emission.llvm.core import llvm_type
from dlc.emission.llvm.instruction_order import InsertionPoint
from dlc.emission.llvm.unused_ops import PatternMatch, unused_ops
from dlc.emission.llvm.value_widths import ValueWidths
from dlc.ir import Attribute, Operation, SSAValue, VectorType, arith, func, vector
from dlc.target import Target

# The intrinsics of an architecture by the register width in 32-bit words. All but those of i16 and u8i7 also add an
# accumulator; those of u8i7 return sums of pairs.
_INTRINSICS = {
    ("x86_64", "i16"): {4: "x86.sse2.pmadd.wd", 8: "x86.avx2.pmadd.wd", 16: "x86.avx512.pmaddw.d.512"},
    ("x86_64", "u8i8"): {4: "x86.avx512.vpdpbusd.128", 8: "x86.avx512.vpdpbusd.256", 16: "x86.avx512.vpdpbusd.512"},
    ("x86_64", "u8i7"): {4: "x86.ssse3.pmadd.ub.sw.128", 8: "x86.avx2.pmadd.ub.sw", 16: "x86.avx512.pmaddubs.w.512"},
    ("x86_64", "bf16"): {w: f"x86.avx512bf16.dpbf16ps.{32 * w}" for w in (4, 8, 16)},
    ("aarch64", "i16"): {4: "aarch64.neon.smull.v4i32"},
    ("aarch64", "u8i8"): {4: "aarch64.neon.usdot.v4i32.v16i8"},
}
# The constraints of inline assembly whose result is the vector register of its operand.
_SAME_REGISTER = {"x86_64": "=v,0"}
# The LLVM type of the elements that are packed in a word.
_ELEMENT_TYPES = {"i16": "i16", "u8i8": "i8", "u8i7": "i8", "bf16": "bfloat"}


@dataclass(frozen=True, eq=False)
class DotProduct:
    """`dot(a, b) + c` at an op of a kernel, and the ops that define the products."""

    dot: str
    a: SSAValue
    b: SSAValue
    c: SSAValue
    inner_ops: frozenset[Operation]

    @property
    def operands(self) -> Sequence[SSAValue]:
        return self.a, self.b, self.c


@dataclass(frozen=True, eq=False)
class PairSums:
    """The packed sums of pairs of products over the words of `factors`, plus `start`, and the ops that define them.

    `steps` are the ops that add the last pair of each word.
    """

    dot: str
    factors: Sequence[tuple[SSAValue, SSAValue]]
    start: SSAValue | None
    inner_ops: frozenset[Operation]
    steps: Sequence[Operation]

    @property
    def operands(self) -> Sequence[SSAValue]:
        return [*chain(*self.factors), *([] if self.start is None else [self.start])]


@dataclass(frozen=True)
class KernelAnalysis:
    """The analysis of a kernel, which its grids share: the widths of its values, and the ops that end a matched pattern."""

    widths: ValueWidths
    products: Mapping[Operation, DotProduct | PairSums]
    lookups: Mapping[Operation, TableLookup]

    @staticmethod
    def of(kernel: func.FuncOp, target: Target) -> KernelAnalysis:
        """Analyze a kernel for a target."""
        products = _products(kernel, target)
        widths = ValueWidths.of(kernel, target, has_dots=bool(products))
        return KernelAnalysis(widths, products, find_lookups(kernel, target))


def _products(kernel: func.FuncOp, target: Target) -> dict[Operation, DotProduct | PairSums]:
    """Find the ops that end a dot product, or sums of pairs, for which the target has an instruction."""
    products: dict[Operation, DotProduct | PairSums] = {}
    dots = {name: PACKED_DOTS[name] for name in target.dot_products}
    pair_sums = [name for name, dot in dots.items() if dot.pair_sums is not None]
    for op in kernel.walk() if target.dot_products else ():
        if not isinstance(op, arith.AddiOp | arith.OrIOp | vector.FMAOp) or not isinstance(op.results[0].type, VectorType):
            continue
        if isinstance(op, arith.OrIOp):
            matches = (_match_pair_sums(op, name) for name in pair_sums)
        else:
            element = cast("VectorType[Attribute]", op.results[0].type).element_type
            matches = (_match_product(op, n) for n, dot in dots.items() if dot.pair_sums is None and dot.total == element)
        if (product := next((p for p in matches if p is not None), None)) is not None:
            products[op] = product
    return products


def _match_product(op: arith.AddiOp | vector.FMAOp, name: str) -> DotProduct | None:
    """Match the dot product `name` that ends at `op`."""
    if isinstance(op, vector.FMAOp):
        return _match_float_product(op, name)
    return _match_integer_product(op.lhs, op.rhs, name) or _match_integer_product(op.rhs, op.lhs, name)


def _match_integer_product(total: SSAValue, c: SSAValue, name: str) -> DotProduct | None:
    """Match `total + c` with `total = Σⱼ aⱼ · bⱼ`."""
    inner_ops = list[Operation]()
    factors = _match_word(_match_terms(total, PACKED_DOTS[name].count, inner_ops), inner_ops, name)
    return None if factors is None else DotProduct(name, *factors, c, frozenset(inner_ops))


def _match_pair_sums(op: arith.OrIOp, name: str) -> PairSums | None:
    """Match `(total₀ & 0xffff) | (total₁ << 16)` with sums of pairs over several words."""
    inner_ops = list[Operation]()
    half = WORD_BITS // 2
    low = _match_mask(op.lhs, (1 << half) - 1, inner_ops)
    high = _match_shift(op.rhs, arith.ShLIOp, half, inner_ops)
    if low is None or high is None:
        return None
    steps = list[Operation]()
    pairs, start = _match_pairs(low, inner_ops, list[Operation]())
    upper_pairs, upper_start = _match_pairs(high, inner_ops, steps)
    if (start is None) != (upper_start is None) or len(pairs) != len(upper_pairs):
        return None
    if upper_start is not None and _match_shift(upper_start, arith.ShRUIOp, half, inner_ops) is not start:
        return None
    words = [[*low_pair, *high_pair] for low_pair, high_pair in zip(pairs, upper_pairs, strict=True)]
    factors = [_match_word(terms, inner_ops, name) for terms in words]
    found = [x for x in factors if x is not None]
    return PairSums(name, found, start, frozenset(inner_ops), steps) if found and len(found) == len(factors) else None


def _match_word(terms: Sequence[SSAValue], inner_ops: list[Operation], name: str) -> tuple[SSAValue, SSAValue] | None:
    """Match products that are those of the elements 0, 1, … of two packed words."""
    if len(terms) != PACKED_DOTS[name].count:
        return None
    factors: list[Sequence[SSAValue]] = []
    for term in terms:
        if not isinstance(term.owner, arith.MuliOp):
            return None
        inner_ops.append(term.owner)
        factors.append(term.owner.operands)
    return _match_packed_operands(factors, inner_ops, name)


def _match_pairs(
    total: SSAValue, inner_ops: list[Operation], steps: list[Operation]
) -> tuple[list[list[SSAValue]], SSAValue | None]:
    """Return the pairs of `((s + (p₀ + q₀)) + (p₁ + q₁)) + …`, products p and q, and s; `steps` are the ops that end with each.

    Without s, the first pair is `p₀ + q₀`.
    """
    pairs: list[list[SSAValue]] = []
    while isinstance(total.owner, arith.AddiOp):
        steps.insert(0, total.owner)
        if isinstance(total.owner.rhs.owner, arith.MuliOp):
            return [_match_terms(total, 2, inner_ops), *pairs], None
        inner_ops.append(total.owner)
        pairs.insert(0, _match_terms(total.owner.rhs, 2, inner_ops))
        total = total.owner.lhs
    return pairs, total


def _match_terms(total: SSAValue, count: int, inner_ops: list[Operation]) -> list[SSAValue]:
    """Return the terms of `((t₀ + t₁) + t₂) + …`, or an empty list if there are fewer than `count`."""
    terms: list[SSAValue] = []
    for _ in range(count - 1):
        if not isinstance(total.owner, arith.AddiOp):
            return []
        inner_ops.append(total.owner)
        terms.insert(0, total.owner.rhs)
        total = total.owner.lhs
    return [total, *terms]


def _match_float_product(op: vector.FMAOp, name: str) -> DotProduct | None:
    """Match `a₀ · b₀ + (a₁ · b₁ + c)`."""
    inner_ops, factors, last = list[Operation](), [op.operands[:2]], op
    for _ in range(PACKED_DOTS[name].count - 1):
        if not isinstance(last.acc.owner, vector.FMAOp):
            return None
        last = last.acc.owner
        inner_ops.append(last)
        factors.append(last.operands[:2])
    operands = _match_packed_operands(factors, inner_ops, name)
    return None if operands is None else DotProduct(name, *operands, last.acc, frozenset(inner_ops))


def _match_packed_operands(
    factors: Sequence[Sequence[SSAValue]], inner_ops: list[Operation], name: str
) -> tuple[SSAValue, SSAValue] | None:
    """Match factors that are the elements 0, 1, … of two packed words; `inner_ops` are the ops that define the product."""
    dot, pairs = PACKED_DOTS[name], set[tuple[SSAValue | None, SSAValue | None]]()
    for j, (x, y) in enumerate(factors):
        pairs.add((_match_packed_operand(x, dot.data, j, inner_ops), _match_packed_operand(y, dot.weights, j, inner_ops)))
    a, b = pairs.pop()
    return None if pairs or a is None or b is None else (a, b)


def _match_packed_operand(element: SSAValue, kind: Attribute, j: int, inner_ops: list[Operation]) -> SSAValue | None:
    """Return the packed word whose element `j` this is, or None."""
    left_shift, right_shift = unpack_shifts(kind, j)
    if is_float(kind):
        # No shift down is needed: the bits below a bf16 in an f32 are zero.
        if not isinstance(element.owner, arith.BitcastOp):
            return None
        inner_ops.append(element.owner)
        return (
            _match_shift(element.owner.input, arith.ShLIOp, left_shift, inner_ops)
            if left_shift
            else _match_mask(element.owner.input, -1 << right_shift, inner_ops)
        )
    word = _match_shift(element, arith.ShRUIOp if is_unsigned(kind) else arith.ShRSIOp, right_shift, inner_ops)
    return _match_shift(word, arith.ShLIOp, left_shift, inner_ops) if left_shift and word is not None else word


def _match_shift(x: SSAValue, shift: type[Operation], amount: int, inner_ops: list[Operation]) -> SSAValue | None:
    """Return the value that `x` shifts by `amount` bits, or None."""
    if not isinstance(x.owner, shift) or splat_constant(x.owner.operands[1]) != amount:
        return None
    inner_ops.append(x.owner)
    return x.owner.operands[0]


def _match_mask(x: SSAValue, mask: int, inner_ops: list[Operation]) -> SSAValue | None:
    """Return the value that `x` masks with `mask`, or None."""
    if not isinstance(x.owner, arith.AndIOp) or splat_constant(x.owner.rhs) != mask:
        return None
    inner_ops.append(x.owner)
    return x.owner.lhs


class LlvmDotProductWriter(LlvmByteTableWriter):
    """Emit dot products of packed operands."""

    def __init__(self, kernel: func.FuncOp, target: Target, analysis: KernelAnalysis, handlers: Handlers) -> None:
        super().__init__(kernel, target, analysis.widths, analysis.lookups, handlers)
        products = analysis.products.items()
        self.names = {dot: _INTRINSICS[target.architecture, dot] for dot in target.dot_products}
        self.products = {
            op: p for op, p in products if all(t.width in self.names[p.dot] for t in self.layout(op.results[0].type))
        }
        matches = {op: PatternMatch(p.inner_ops, p.operands) for op, p in self.products.items()}
        self.skipped_ops = unused_ops(matches)
        pair_sums = [(op, p) for op, p in self.products.items() if isinstance(p, PairSums)]
        # Sums of one word are computed register by register where a dot product reads them, so that they need one register.
        self.deferred = {
            op: p
            for op, p in pair_sums
            if len(p.factors) == 1 and p.start is None and all(use.operation in self.skipped_ops for use in op.results[0].uses)
        }
        # The factors of each word of other sums of pairs, which are multiplied where the last pair is added.
        steps = ((p, zip(p.steps, p.factors, strict=True)) for op, p in pair_sums if op not in self.deferred)
        self.words = {step: (p, *factors) for p, words in steps for step, factors in words}
        self.pair_sums: dict[PairSums, list[str]] = {}

    def visit(self, op: Operation) -> None:
        if (word := self.words.get(op)) is not None:
            self._multiply_word(*word)
        if op in self.skipped_ops or op in self.deferred:
            return
        if (product := self.products.get(op)) is None:
            super().visit(op)
            return
        registers = self.layout(op.results[0].type)
        if isinstance(product, PairSums):
            sums = zip(registers, self.pair_sums.pop(product), strict=True)
            self.bind(op.results[0], [self._bitcast(_pairs(type), x, llvm_type(type)) for type, x in sums])
            return
        words = zip(registers, self._words(product.a), self.regs(product.b), self.regs(product.c), strict=True)
        self.bind(op.results[0], [self.dot(product.dot, *register) for register in words])

    def _words(self, value: SSAValue) -> Iterable[str]:
        """Return the registers of the first operand of a dot product; those of deferred sums are computed when read."""
        product = self.deferred.get(value.owner) if isinstance(value.owner, Operation) else None
        if product is None:
            return self.regs(value)
        ((a, b),) = product.factors
        words = zip(self.layout(value.type), self.regs(a), self.regs(b), strict=True)
        return (self._bitcast(_pairs(r), self._multiply_pairs(product.dot, r, x, y), llvm_type(r)) for r, x, y in words)

    def _multiply_word(self, product: PairSums, a: SSAValue, b: SSAValue) -> None:
        """Emit the sums of pairs of products of a word, and add them to those of the words before."""
        registers = self.layout(a.type)
        words = zip(registers, self.regs(a), self.regs(b), strict=True)
        sums = [self._multiply_pairs(product.dot, *register) for register in words]
        totals = self.pair_sums.get(product)
        if totals is None and product.start is not None:
            starts = zip(registers, self.regs(product.start), strict=True)
            totals = [self._bitcast(type, x, llvm_type(_pairs(type))) for type, x in starts]
        if totals is not None:
            pairs = map(_pairs, registers)
            sums = [self._add_in_order(*operands) for operands in zip(pairs, totals, sums, strict=True)]
        self.pair_sums[product] = sums

    def _add_in_order(self, type: Register, a: str, b: str) -> str:
        """Emit `a + b` so that the code generator computes it before any later product."""
        total, constraints = self.compute("add", type, a, b), _SAME_REGISTER.get(self.target.architecture)
        if constraints is None:
            return total
        return self.define(f'call {llvm_type(type)} asm sideeffect "", "{constraints}"({llvm_type(type)} {total})', total)

    def _multiply_pairs(self, name: str, type: Register, a: str, b: str) -> str:
        """Emit the sums of pairs of products, in 16 bits."""
        elements = f"<{PACKED_DOTS[name].count * type.width} x {_ELEMENT_TYPES[name]}>"
        a, b = (self._bitcast(type.with_kind("i32"), x, elements) for x in (a, b))
        function = f"call <{2 * type.width} x i16> @llvm.{self.names[name][type.width]}"
        return self.define(f"{function}({elements} {a}, {elements} {b})", a, b)

    def _bitcast(self, type: Register, x: str, elements: str) -> str:
        """Emit the bits of a register as another type."""
        return self.define_once(f"bitcast {llvm_type(type)} {x} to {elements}", x, insertion_point=InsertionPoint.MOVABLE)

    def dot(self, name: str, type: Register, a: str, b: str, c: str) -> str:
        """Emit `dot(a, b) + c`."""
        count = PACKED_DOTS[name].count * type.width
        vector_type, element_vector_type = llvm_type(type), f"<{count} x {_ELEMENT_TYPES[name]}>"
        a, b = (self._bitcast(type.with_kind("i32"), x, element_vector_type) for x in (a, b))
        function = f"call {vector_type} @llvm.{self.names[name][type.width]}"
        if name != "i16":
            return self.define(f"{function}({vector_type} {c}, {element_vector_type} {a}, {element_vector_type} {b})", c, a, b)
        if self.target.architecture == "aarch64":
            return self.compute("add", type, self._added_pairs(function, Register("i16", count), a, b), c)
        product = self.define(f"{function}({element_vector_type} {a}, {element_vector_type} {b})", a, b)
        return self._add_in_order(type, product, c)

    def _added_pairs(self, multiply: str, register: Register, a: str, b: str) -> str:
        """Multiply each half of the integers and add neighboring products."""
        width, vector_text = register.width // 2, llvm_type(register)
        half = llvm_type(register.with_width(width))
        products: list[str] = []
        for start in (0, width):
            lanes = ", ".join(f"i32 {lane}" for lane in range(start, start + width))
            x, y = (
                self.define_once(f"shufflevector {vector_text} {v}, {vector_text} poison, <{width} x i32> <{lanes}>", v)
                for v in (a, b)
            )
            products.append(self.define(f"{multiply}({half} {x}, {half} {y})", x, y))
        vector_type = f"<{width} x i32>"
        first, second = products
        call = f"call {vector_type} @llvm.aarch64.neon.addp.v{width}i32({vector_type} {first}, {vector_type} {second})"
        return self.define(call, first, second)


def _pairs(type: Register) -> Register:
    """Return the register of two i16 for each word."""
    return type.with_kind("i16").with_width(2 * type.width)

"""LLVM's words for registers and instructions, and what a visit needs of them everywhere: definitions, literals, indices."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat

import ml_dtypes
import numpy as np

from dlc.emission.llvm.order import Line, Place
from dlc.emission.llvm.widths import Widths
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.registers import Register, View, element_bytes, is_half, kind_of
from dlc.emission.visit.visit import Handlers, Visit
from dlc.errors import UnsupportedError
from dlc.ir import Attribute, SSAValue, func
from dlc.target import Target

# The halves live in integer registers: LLVM's own types for them bring library calls where the processor has no
# instruction for an operation (convert.py).
_SCALARS = {"f32": "float", "f64": "double", "f16": "i16", "bf16": "i16"}


def scalar_text(kind: str) -> str:
    """The LLVM type of one element in a register."""
    return _SCALARS.get(kind, kind)


def memory_kind(kind: str) -> str:
    """The kind of an element in memory: a truth value takes a byte, as in NumPy."""
    return "i8" if kind == "i1" else kind


@cache
def text_of(t: Register) -> str:
    """The LLVM type of a register."""
    scalar = scalar_text(t.kind)
    return scalar if t.width == 1 else f"<{t.width} x {scalar}>"


def suffix_of(t: Register) -> str:
    """How the names of overloaded intrinsics end for a register."""
    scalar = "i16" if is_half(t.kind) else t.kind
    return scalar if t.width == 1 else f"v{t.width}{scalar}"


def bits_of(t: Register) -> int:
    """Of one element of integers."""
    return int(t.kind[1:])


def splat_literal(t: Register, literal: str) -> str:
    """A literal in all lanes of a register."""
    return literal if t.width == 1 else f"splat ({scalar_text(t.kind)} {literal})"


def literal(kind: str, value: float) -> str:
    """One element, as LLVM writes it."""
    if kind in ("f32", "f64"):
        if kind == "f32":
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        # Floats are given by the bits of the double that has their value.
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if is_half(kind):
        with np.errstate(over="ignore"):
            half = np.array(value, np.float16 if kind == "f16" else ml_dtypes.bfloat16)
        return str(int(half.view(np.uint16)))
    return str(int(value) & 1 if kind == "i1" else int(value))


def splat(t: Register, value: float) -> str:
    """A number in all lanes of a register."""
    return splat_literal(t, literal(t.kind, value))


def lane_literals(t: Register, texts: list[str]) -> str:
    """A register of literals; unused lanes are zero."""
    if t.width == 1:
        return texts[0]
    scalar = scalar_text(t.kind)
    zero = "0x0000000000000000" if scalar in ("float", "double") else "0"
    texts = texts + [zero] * (t.width - len(texts))
    return f"<{', '.join(f'{scalar} {text}' for text in texts)}>"


def mask_literal(t: Register) -> str:
    """The lanes of a register that mean something."""
    return lane_literals(t.of("i1"), ["1"] * t.used)


class Writer(Visit):
    """Instructions, literals and indices; what it lacks is in the other files of this folder."""

    language = "LLVM IR"

    def __init__(self, kernel: func.FuncOp, target: Target, widths: Widths, handlers: Handlers) -> None:
        super().__init__(kernel, target, widths.lanes, handlers)
        self._widths = widths
        self._counter = 0

    # Instructions

    def fresh(self, hint: str = "v") -> str:
        self._counter += 1
        return f"{hint}{self._counter}"

    def emit(self, text: str) -> None:
        """An instruction with effects, or the end of a block."""
        self.scopes[-1].lines.append(Line(f"  {text}", place=Place.BARRIER))

    def define(self, text: str, *operands: str, place: Place = Place.FIXED) -> str:
        """Appends an instruction that uses these operands, in the order of its text; returns the name of its result."""
        self._counter += 1
        name = f"%v{self._counter}"
        self.scopes[-1].lines.append(Line(f"  {name} = {text}", name, operands, place))
        return name

    def once(self, text: str, *operands: str, place: Place = Place.FIXED) -> str:
        """As `define`, for an instruction without effects that this scope or one around it may have already."""
        for scope in reversed(self.scopes):
            if (name := scope.known.get(text)) is not None:
                return name
        name = self.scopes[-1].known[text] = self.define(text, *operands, place=place)
        return name

    def start_block(self, label: str) -> None:
        self.scopes[-1].lines.append(Line(f"{label}:"))
        self.scopes[-1].label = label

    def compute(self, opcode: str, t: Register, *operands: str) -> str:
        """`opcode type a, b, …`"""
        return self.define(f"{opcode} {text_of(t)} {', '.join(operands)}", *operands)

    def cast(self, opcode: str, s: Register, x: str, t: Register) -> str:
        """`opcode type x to type`"""
        return self.define(f"{opcode} {text_of(s)} {x} to {text_of(t)}", x)

    def call(self, name: str, t: Register, *operands: str, flags: str = "") -> str:
        """A call of an intrinsic that is overloaded on its result's type."""
        arguments = ", ".join(f"{text_of(t)} {x}" for x in operands)
        return self.define(f"call{flags} {text_of(t)} @llvm.{name}.{suffix_of(t)}({arguments})", *operands)

    def select(self, t: Register, condition: str, a: str, b: str, *, by_lane: bool = True) -> str:
        """`condition` has as many lanes as `t`, or is one for all of them."""
        mask = text_of(t.of("i1")) if by_lane else "i1"
        return self.define(f"select {mask} {condition}, {text_of(t)} {a}, {text_of(t)} {b}", condition, a, b)

    def keep(self, t: Register, predicate: str, a: str, b: str, *, second: bool = False) -> str:
        """`a` if it compares so with `b`, else `b`; the other way round if `second`. Mostly one instruction."""

        def chosen(t: Register, a: str, b: str) -> str:
            condition = self.compute(f"fcmp {predicate}", t, a, b)
            return self.select(t, condition, b, a) if second else self.select(t, condition, a, b)

        if not self.compares_with_zero(t, a, b):
            return chosen(t, a, b)
        one = t.wide(self._one(t))
        parts = zip(self.parts(t, a, one.width), self.parts(t, b, one.width), strict=True)
        return self.joined(one, [chosen(one, *operands) for operands in parts], t.width)[0]

    def compares_with_zero(self, t: Register, a: str, b: str) -> bool:
        """Whether `keep` goes register by register: of several, LLVM does not see its instruction if one of the two is zero."""
        return t.width > self._one(t) and not is_half(t.kind) and splat(t, 0.0) in (a, b)

    def _one(self, t: Register) -> int:
        """How many elements of a value are in one of the processor's registers."""
        return min(t.width, self.target.lanes(element_bytes(t.kind)))

    def parts(self, t: Register, x: str, width: int) -> Sequence[str]:
        """The values of `width` elements that make up another."""
        starts = range(0, t.width, width)
        return [x if x.startswith("splat") else self.shuffled(t, x, "poison", range(k, k + width)) for k in starts]

    def joined(self, t: Register, pieces: Sequence[str], width: int) -> list[str]:
        """Registers of `width` elements, of pieces in a row."""
        while t.width < width:
            pairs = zip(pieces[::2], pieces[1::2], strict=True)
            pieces, t = [self.shuffled(t, x, y, range(2 * t.width)) for x, y in pairs], t.wide(2 * t.width)
        return list(pieces)

    def shuffled(self, t: Register, x: str, y: str, lanes: Sequence[int]) -> str:
        places = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {text_of(t)} {x}, {text_of(t)} {y}, <{len(lanes)} x i32> <{places}>"
        return self.define(text, *(name for name in (x, y) if name != "poison"), place=Place.MOVABLE)

    def extract(self, t: Register, x: str, lane: int) -> str:
        return self.define(f"extractelement {text_of(t)} {x}, i64 {lane}", x)

    def insert(self, t: Register, x: str, element: str, lane: int) -> str:
        text = f"insertelement {text_of(t)} {x}, {scalar_text(t.kind)} {element}, i64 {lane}"
        return self.define(text, x, element, place=Place.MOVABLE)

    # Values

    def times(self, a: str, b: str) -> str:
        return self.compute("mul", Register("i64"), a, b)

    def kind(self, element: Attribute) -> str:
        if (kind := kind_of(element)) is None:
            raise UnsupportedError(f"LLVM IR has no element type {element}; cast to one of f16, bf16, f32, f64, i1..i64")
        return kind

    def pieces(self, size: int) -> list[tuple[int, int]]:
        return self._widths.cut(size)

    def hints(self, value: SSAValue, default: str) -> Iterable[str]:
        return repeat("")

    def literal(self, kind: str, value: float) -> str:
        return literal(kind, value)

    def splat_literal(self, t: Register, literal: str) -> str:
        return splat_literal(t, literal)

    def table(self, t: Register, literals: list[str], hint: str) -> str:
        return lane_literals(t, literals)

    def splat(self, t: Register, scalar: str, hint: str = "") -> str:
        if t.width == 1:
            return scalar
        if not scalar.startswith("%"):
            return splat_literal(t, scalar)
        text = f"insertelement {text_of(t)} poison, {scalar_text(t.kind)} {scalar}, i64 0"
        first = self.once(text, scalar, place=Place.MOVABLE)
        text = f"shufflevector {text_of(t)} {first}, {text_of(t)} poison, <{t.width} x i32> zeroinitializer"
        return self.once(text, first, place=Place.MOVABLE)

    # Indices, see Note [Linear indices]

    def term(self, name: str) -> Linear:
        """The linear form of a name defined in the current scope, or of a literal."""
        return super().term(name) if name.startswith("%") else Linear(int(name))

    def materialize(self, form: Linear) -> str:
        if not form.terms:
            return str(form.constant)
        if not form.constant and len(form.terms) == 1 and form.terms[0][2] == 1:
            return form.terms[0][1]
        # In the scope of the innermost name: as far out as the value exists.
        return self.at_depth(form.terms[-1][0], form, lambda: self._sum(form.terms, form.constant))

    def _sum(self, terms: Sequence[tuple[int, str, int]], constant: int) -> str:
        total, wide = "", Register("i64")
        for _, name, coefficient in terms:
            product = name if coefficient == 1 else self.compute("mul", wide, name, str(coefficient))
            total = self.compute("add", wide, total, product) if total else product
        return self.compute("add", wide, total, str(constant)) if constant else total

    def advance(self, view: View, pointer: str, form: Linear) -> str:
        return self.move(self.define, view.kind, pointer, self._sum(form.terms, form.constant))

    def displace(self, kind: str, pointer: str, constant: int) -> str:
        """A pointer `constant` elements further."""
        return self.move(self.once, kind, pointer, str(constant)) if constant else pointer

    def move(self, define: Callable[..., str], kind: str, pointer: str, count: str) -> str:
        """A pointer `count` elements further."""
        text = f"getelementptr {scalar_text(memory_kind(kind))}, ptr {pointer}, i64 {count}"
        return define(text, pointer, count, place=Place.MOVABLE)

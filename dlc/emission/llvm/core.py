"""LLVM's words for registers and instructions, and what a visit needs of them everywhere: definitions, literals, indices."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from typing import cast

import ml_dtypes
import numpy as np

from dlc.emission.llvm.order import Line, Place
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.registers import Register, View, element_bytes, is_half, kind_of
from dlc.emission.visit.visit import Handlers, Visit
from dlc.errors import UnsupportedError
from dlc.ir import Attribute, SSAValue, VectorType, func
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


def lanes_of(kernel: func.FuncOp, target: Target) -> int:
    """How many elements a register is full of: of four bytes, or of fewer where a kernel has narrow integers alone."""
    types = [result.type for op in kernel.walk() for result in op.results]
    elements = {cast("VectorType[Attribute]", t).element_type for t in types if isinstance(t, VectorType)}
    kinds = {kind_of(element) or "" for element in elements} - {"i1"}
    are_integers = kinds and all(kind.startswith("i") for kind in kinds)
    return target.lanes(min(4, max(map(element_bytes, kinds))) if are_integers else 4)


class Writer(Visit):
    """Instructions, literals and indices; what it lacks is in the other files of this folder."""

    language = "LLVM IR"

    def __init__(self, kernel: func.FuncOp, target: Target, lanes: int, handlers: Handlers) -> None:
        super().__init__(kernel, target, lanes, handlers)
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
        """What is left over rounds up to a power of two: vector<7x20xf32> with 16 lanes is seven rows of <16 x float>,
        <4 x float>. LLVM splits the registers of wider elements and uses parts of registers for narrower ones."""
        full, rest = divmod(size, self.lanes)
        pieces = [(self.lanes, self.lanes)] * full
        if rest:
            pieces.append((1 << (rest - 1).bit_length(), rest))
        return pieces

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

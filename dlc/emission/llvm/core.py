"""LLVM types, instructions, literals and index expressions."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat

import ml_dtypes
import numpy as np

from dlc.emission.common.emitter import Handlers, KernelEmitter
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.registers import MemrefAddress, Register, element_bytes, is_half, kind_of
from dlc.emission.llvm.instruction_order import InsertionPoint, Line
from dlc.emission.llvm.value_widths import ValueWidths
from dlc.errors import UnsupportedError
from dlc.ir import Attribute, SSAValue, func
from dlc.target import Target

# Half-precision values are held in integer registers: LLVM's own half types cause library calls where the processor has no
# instruction for an operation (convert.py).
_SCALARS = {"f32": "float", "f64": "double", "f16": "i16", "bf16": "i16"}


def scalar_type(kind: str) -> str:
    """Return the LLVM type of one element in a register."""
    return _SCALARS.get(kind, kind)


def memory_kind(kind: str) -> str:
    """Return the kind of an element in memory: a boolean takes one byte, as in NumPy."""
    return "i8" if kind == "i1" else kind


@cache
def llvm_type(type: Register) -> str:
    """Return the LLVM type of a register."""
    scalar = scalar_type(type.kind)
    return scalar if type.width == 1 else f"<{type.width} x {scalar}>"


def intrinsic_suffix(type: Register) -> str:
    """Return the suffix of overloaded intrinsics for a register."""
    scalar = "i16" if is_half(type.kind) else type.kind
    return scalar if type.width == 1 else f"v{type.width}{scalar}"


def bits_of(type: Register) -> int:
    """Return the bit width of one element of an integer register."""
    return int(type.kind[1:])


def splat_literal(type: Register, literal: str) -> str:
    """Return a literal in all lanes of a register."""
    return literal if type.width == 1 else f"splat ({scalar_type(type.kind)} {literal})"


def literal(kind: str, value: float) -> str:
    """Return the LLVM text of one element."""
    if kind in ("f32", "f64"):
        if kind == "f32":
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        # LLVM writes a float as the bits of the double with the same value.
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if is_half(kind):
        with np.errstate(over="ignore"):
            half = np.array(value, np.float16 if kind == "f16" else ml_dtypes.bfloat16)
        return str(int(half.view(np.uint16)))
    return str(int(value) & 1 if kind == "i1" else int(value))


def splat(type: Register, value: float) -> str:
    """Return a constant in all lanes of a register."""
    return splat_literal(type, literal(type.kind, value))


def lane_literals(type: Register, texts: list[str]) -> str:
    """Return a register of literals; unused lanes are zero."""
    if type.width == 1:
        return texts[0]
    scalar = scalar_type(type.kind)
    zero = "0x0000000000000000" if scalar in ("float", "double") else "0"
    texts = texts + [zero] * (type.width - len(texts))
    return f"<{', '.join(f'{scalar} {text}' for text in texts)}>"


def global_name(name: str) -> str:
    """Return the name of a global, quoted if necessary."""
    return f"@{name}" if re.fullmatch(r"[\w$.-]+", name) and not name[0].isdigit() else '@"' + name.replace('"', "\\22") + '"'


def mask_literal(type: Register) -> str:
    """Return the mask of the used lanes of a register."""
    return lane_literals(type.with_kind("i1"), ["1"] * type.used)


class LlvmWriter(KernelEmitter):
    """Instructions, literals and index expressions; the mixins in the other files of this folder add the rest."""

    language = "LLVM IR"
    function_name = ""

    def __init__(self, kernel: func.FuncOp, target: Target, widths: ValueWidths, handlers: Handlers) -> None:
        super().__init__(kernel, target, widths.lanes, handlers)
        self._widths = widths
        self._counter = 0
        # The definitions of constants in memory, by name.
        self.global_constants: dict[str, str] = {}

    # Instructions

    def fresh(self, hint: str = "v") -> str:
        """Return a new name."""
        self._counter += 1
        return f"{hint}{self._counter}"

    def global_constant(self, suffix: str, definition: str) -> str:
        """Return the name of a constant in memory that belongs to this function."""
        name = global_name(f"{self.function_name}.{suffix}")
        self.global_constants[name] = definition
        return name

    def emit(self, text: str) -> None:
        """Append an instruction with side effects, or a terminator."""
        self.scopes[-1].lines.append(Line(f"  {text}", insertion_point=InsertionPoint.BARRIER))

    def define(self, text: str, *operands: str, insertion_point: InsertionPoint = InsertionPoint.FIXED) -> str:
        """Append an instruction and return the name of its result; `operands` are in the order of the text."""
        self._counter += 1
        name = f"%v{self._counter}"
        self.scopes[-1].lines.append(Line(f"  {name} = {text}", name, operands, insertion_point))
        return name

    def define_once(self, text: str, *operands: str, insertion_point: InsertionPoint = InsertionPoint.FIXED) -> str:
        """Return the result of an instruction without side effects that an enclosing scope has defined, or define it."""
        for scope in reversed(self.scopes):
            if (name := scope.cached_names.get(text)) is not None:
                return name
        name = self.scopes[-1].cached_names[text] = self.define(text, *operands, insertion_point=insertion_point)
        return name

    def start_block(self, label: str) -> None:
        """Start a basic block."""
        self.scopes[-1].lines.append(Line(f"{label}:"))
        self.scopes[-1].label = label

    def compute(self, opcode: str, type: Register, *operands: str) -> str:
        """Emit `opcode type a, b, …`."""
        return self.define(f"{opcode} {llvm_type(type)} {', '.join(operands)}", *operands)

    def cast(self, opcode: str, source_type: Register, x: str, type: Register) -> str:
        """Emit `opcode type x to type`."""
        return self.define(f"{opcode} {llvm_type(source_type)} {x} to {llvm_type(type)}", x)

    def call(self, name: str, type: Register, *operands: str, flags: str = "") -> str:
        """Emit a call of an intrinsic that is overloaded on its result type."""
        arguments = ", ".join(f"{llvm_type(type)} {x}" for x in operands)
        return self.define(f"call{flags} {llvm_type(type)} @llvm.{name}.{intrinsic_suffix(type)}({arguments})", *operands)

    def select(self, type: Register, condition: str, a: str, b: str, *, by_lane: bool = True) -> str:
        """Emit a select; `condition` has the lanes of `type`, or is one scalar for all lanes."""
        mask = llvm_type(type.with_kind("i1")) if by_lane else "i1"
        return self.define(f"select {mask} {condition}, {llvm_type(type)} {a}, {llvm_type(type)} {b}", condition, a, b)

    def select_by_comparison(self, type: Register, predicate: str, a: str, b: str, *, swapped: bool = False) -> str:
        """Emit `a <predicate> b ? a : b`, or `a <predicate> b ? b : a` if `swapped`; usually one instruction."""

        def compare_and_select(type: Register, a: str, b: str) -> str:
            condition = self.compute(f"fcmp {predicate}", type, a, b)
            return self.select(type, condition, b, a) if swapped else self.select(type, condition, a, b)

        if not self.splits_zero_comparison(type, a, b):
            return compare_and_select(type, a, b)
        register = type.with_width(self._lanes_per_register(type))
        pairs = zip(self.split_vector(type, a, register.width), self.split_vector(type, b, register.width), strict=True)
        return self.concat_vectors(register, [compare_and_select(register, *operands) for operands in pairs], type.width)[0]

    def splits_zero_comparison(self, type: Register, a: str, b: str) -> bool:
        """Return whether `select_by_comparison` works register by register.

        If one operand is zero, LLVM does not match its minimum or maximum instruction on values of several registers.
        """
        return type.width > self._lanes_per_register(type) and not is_half(type.kind) and splat(type, 0.0) in (a, b)

    def _lanes_per_register(self, type: Register) -> int:
        """Return the number of elements of a value in one machine register."""
        return min(type.width, self.target.lanes(element_bytes(type.kind)))

    def split_vector(self, type: Register, x: str, width: int) -> Sequence[str]:
        """Split a value into values of `width` elements."""
        starts = range(0, type.width, width)
        return [x if x.startswith("splat") else self.shuffle_vector(type, x, "poison", range(k, k + width)) for k in starts]

    def concat_vectors(self, type: Register, vectors: Sequence[str], width: int) -> list[str]:
        """Concatenate consecutive vectors into values of `width` elements."""
        while type.width < width:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors, type = (
                [self.shuffle_vector(type, x, y, range(2 * type.width)) for x, y in pairs],
                type.with_width(2 * type.width),
            )
        return list(vectors)

    def shuffle_vector(self, type: Register, x: str, y: str, lanes: Sequence[int]) -> str:
        """Emit a shufflevector of two values."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {llvm_type(type)} {x}, {llvm_type(type)} {y}, <{len(lanes)} x i32> <{mask}>"
        return self.define(text, *(name for name in (x, y) if name != "poison"), insertion_point=InsertionPoint.MOVABLE)

    def extract(self, type: Register, x: str, lane: int) -> str:
        """Emit an extractelement."""
        return self.define(f"extractelement {llvm_type(type)} {x}, i64 {lane}", x)

    def insert(self, type: Register, x: str, element: str, lane: int) -> str:
        """Emit an insertelement."""
        text = f"insertelement {llvm_type(type)} {x}, {scalar_type(type.kind)} {element}, i64 {lane}"
        return self.define(text, x, element, insertion_point=InsertionPoint.MOVABLE)

    # Values

    def times(self, a: str, b: str) -> str:
        return self.compute("mul", Register("i64"), a, b)

    def kind(self, element: Attribute) -> str:
        if (kind := kind_of(element)) is None:
            raise UnsupportedError(f"LLVM IR has no element type {element}; cast to one of f16, bf16, f32, f64, i1..i64")
        return kind

    def row_registers(self, size: int) -> list[tuple[int, int]]:
        return self._widths.split(size)

    def hints(self, value: SSAValue, default: str) -> Iterable[str]:
        return repeat("")

    def literal(self, kind: str, value: float) -> str:
        return literal(kind, value)

    def splat_literal(self, type: Register, literal: str) -> str:
        return splat_literal(type, literal)

    def table(self, type: Register, literals: list[str], hint: str) -> str:
        return lane_literals(type, literals)

    def splat(self, type: Register, scalar: str, hint: str = "") -> str:
        if type.width == 1:
            return scalar
        if not scalar.startswith("%"):
            return splat_literal(type, scalar)
        text = f"insertelement {llvm_type(type)} poison, {scalar_type(type.kind)} {scalar}, i64 0"
        first = self.define_once(text, scalar, insertion_point=InsertionPoint.MOVABLE)
        text = f"shufflevector {llvm_type(type)} {first}, {llvm_type(type)} poison, <{type.width} x i32> zeroinitializer"
        return self.define_once(text, first, insertion_point=InsertionPoint.MOVABLE)

    # Indices, see Note [Linear indices]

    def term(self, name: str) -> LinearExpression:
        """Return the linear expression of a name that is defined in the current scope, or of a literal."""
        return super().term(name) if name.startswith("%") else LinearExpression(int(name))

    def materialize(self, expr: LinearExpression) -> str:
        if not expr.terms:
            return str(expr.constant)
        if not expr.constant and len(expr.terms) == 1 and expr.terms[0][2] == 1:
            return expr.terms[0][1]
        # Compute it in the scope of the innermost name, the outermost scope in which it is defined.
        return self.compute_at_depth(expr.terms[-1][0], expr, lambda: self._sum(expr.terms, expr.constant))

    def _sum(self, terms: Sequence[tuple[int, str, int]], constant: int) -> str:
        """Emit the sum of terms and a constant."""
        total, wide = "", Register("i64")
        for _, name, coefficient in terms:
            product = name if coefficient == 1 else self.compute("mul", wide, name, str(coefficient))
            total = self.compute("add", wide, total, product) if total else product
        return self.compute("add", wide, total, str(constant)) if constant else total

    def advance(self, view: MemrefAddress, pointer: str, expr: LinearExpression) -> str:
        return self.advance_pointer(self.define, view.kind, pointer, self._sum(expr.terms, expr.constant))

    def offset_pointer(self, kind: str, pointer: str, constant: int) -> str:
        """Return `pointer` advanced by `constant` elements."""
        return self.advance_pointer(self.define_once, kind, pointer, str(constant)) if constant else pointer

    def advance_pointer(self, define: Callable[..., str], kind: str, pointer: str, count: str) -> str:
        """Emit `pointer` advanced by `count` elements."""
        text = f"getelementptr {scalar_type(memory_kind(kind))}, ptr {pointer}, i64 {count}"
        return define(text, pointer, count, insertion_point=InsertionPoint.MOVABLE)

"""The state of one visit from loops to LLVM IR text: names, scopes, and what each SSA value has become.

Note [Registers of a vector]
An n-D vector value is a list of LLVM values ("registers"), row-major over its leading dimensions; each row of the last
dimension is cut into pieces of `lanes` elements, and what is left over rounds up to a power of two: vector<7x20xf32>
with 16 lanes is seven rows of <16 x float>, <4 x float>. A piece of one element is a scalar, and a scalar value is one
piece, so that one loop over registers serves both. `lanes` is the same for all element types (a register of f32): lists
stay aligned across conversions; LLVM splits the registers of wider elements and uses parts of registers for narrower ones.

Note [Linear indices]
Values of type index are kept as linear forms over the names that are not (loop variables, loaded indices), and become
LLVM values only where something needs them. An address is `base + constants·names + constant`: the names' part is
computed once, in the outermost scope that has all of them, and registers of one tile differ only by the constant.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import NamedTuple, cast

from dlc.emission.visit.linear import Linear
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import (
    Attribute,
    BFloat16Type,
    Block,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    Operation,
    SSAValue,
    VectorType,
    index,
)
from dlc.target import Target

Registers = tuple[str, ...]
# The halves live in integer registers: LLVM's own types for them bring library calls where the processor has no
# instruction for an operation (convert.py).
_ELEMENT: dict[type[Attribute], str] = {
    Float32Type: "float",
    Float64Type: "double",
    Float16Type: "i16",
    BFloat16Type: "i16",
    IndexType: "i64",
}


class RegisterType(NamedTuple):
    """One register: `width` elements, of which the first `used` mean something; a scalar if `width` is 1."""

    element: Attribute
    width: int
    used: int
    text: str

    @property
    def scalar(self) -> str:
        return llvm_element(self.element)

    @property
    def suffix(self) -> str:
        """How the names of overloaded intrinsics end for this type."""
        scalar = {"float": "f32", "double": "f64"}.get(self.scalar, self.scalar)
        return scalar if self.width == 1 else f"v{self.width}{scalar}"

    def of(self, element: Attribute) -> RegisterType:
        """As many elements of another type."""
        return register_type(element, self.width, self.used)


class View(NamedTuple):
    """A memref: elements of `element` at `base[offset + Σ index · stride]`; `base` is a multiple of `align` bytes."""

    base: str
    align: int
    element: Attribute
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: Linear


class Scope:
    """A region being written: its text so far, the block it is in, and what it has computed already."""

    __slots__ = ("known", "label", "lines")

    def __init__(self, label: str) -> None:
        self.lines: list[str] = []
        self.label = label
        self.known: dict[Hashable, str] = {}


def llvm_element(element: Attribute) -> str:
    """The LLVM type of one element in a register."""
    if isinstance(element, IntegerType):
        return f"i{element.width.data}"
    if (text := _ELEMENT.get(type(element))) is None:
        raise UnsupportedError(f"the CPU backend has no element type {element}; cast to one of f16, bf16, f32, f64, i1..i64")
    return text


def llvm_memory_element(element: Attribute) -> str:
    """The LLVM type of one element in memory: a bool takes a byte, as in NumPy."""
    text = llvm_element(element)
    return "i8" if text == "i1" else text


def element_bytes(element: Attribute) -> int:
    text = llvm_memory_element(element)
    return {"float": 4, "double": 8}.get(text) or int(text[1:]) // 8


def register_type(element: Attribute, width: int, used: int | None = None) -> RegisterType:
    text = llvm_element(element)
    return RegisterType(element, width, width if used is None else used, text if width == 1 else f"<{width} x {text}>")


def vector_shape(type: Attribute) -> tuple[int, ...]:
    """The shape of a vector, () for a scalar."""
    return type.get_shape() if isinstance(type, VectorType) else ()


def is_half(element: Attribute) -> bool:
    return isinstance(element, Float16Type | BFloat16Type)


class Emitter:
    """Writes the body of one function; `handlers` maps an op's name to the function that writes it."""

    def __init__(self, target: Target, handlers: dict[str, Callable[[Emitter, Operation], None]], kernel: str) -> None:
        self.target = target
        self.lanes = target.lanes(4)
        self.handlers = handlers
        self.kernel = kernel
        self.registers: dict[SSAValue, Registers] = {}
        self.linears: dict[SSAValue, Linear] = {}
        self.views: dict[SSAValue, View] = {}
        self.scopes = [Scope("entry")]
        self.allocas: list[str] = []
        self.alloca_bytes = 0
        self.stored: set[str] = set()
        self.shared: Callable[[SSAValue], None] = self.undefined
        self._counter = 0
        # The IR keeps the types alive while it is visited, so their identity is a sound key, and a quick one.
        self._layouts: dict[int, tuple[RegisterType, ...]] = {}

    # Text

    def fresh(self, hint: str = "v") -> str:
        self._counter += 1
        return f"{hint}{self._counter}"

    def emit(self, text: str) -> None:
        self.scopes[-1].lines.append(text)

    def define(self, text: str) -> str:
        """Appends an instruction; returns the name of its result."""
        self._counter += 1
        name = f"%v{self._counter}"
        self.scopes[-1].lines.append(f"  {name} = {text}")
        return name

    def define_once(self, text: str) -> str:
        """As `define`, for an instruction without effects that this scope or one around it may have already."""
        for scope in reversed(self.scopes):
            if (name := scope.known.get(text)) is not None:
                return name
        name = self.scopes[-1].known[text] = self.define(text)
        return name

    def start_block(self, label: str) -> None:
        self.scopes[-1].lines.append(f"{label}:")
        self.scopes[-1].label = label

    # Ops

    def visit(self, op: Operation) -> None:
        handler = self.handlers.get(op.name)
        if handler is None:
            raise UnsupportedError(
                f"kernel @{self.kernel}: the CPU backend cannot emit {op.name!r}; expand it before the end of the loops "
                "stage, or add a handler in dlc/backends/cpu"
            )
        handler(self, op)

    def visit_block(self, block: Block) -> Operation | None:
        """Emits the ops of a block except its terminator, which it returns."""
        last = block.last_op
        for op in block.ops:
            if op is last:
                return op
            self.visit(op)
        return None

    def undefined(self, value: SSAValue) -> None:
        raise CompileError(f"kernel @{self.kernel}: a value of type {value.type} is used where it is not defined")

    # Values

    def layout(self, type: Attribute) -> tuple[RegisterType, ...]:
        """The registers of a value of this type; see Note [Registers of a vector]."""
        found = self._layouts.get(id(type))
        if found is None:
            found = self._layouts[id(type)] = self._layout(type)
        return found

    def _layout(self, type: Attribute) -> tuple[RegisterType, ...]:
        if not isinstance(type, VectorType):
            return (register_type(type, 1),)
        vector = cast("VectorType[Attribute]", type)
        shape = vector.get_shape()
        row = [register_type(vector.element_type, w, u) for w, u in self.pieces(shape[-1] if shape else 1)]
        return tuple(row) * prod(shape[:-1])

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """(width, used) of each register of a row of `size` elements."""
        full, rest = divmod(size, self.lanes)
        pieces = [(self.lanes, self.lanes)] * full
        if rest:
            pieces.append((1 << (rest - 1).bit_length(), rest))
        return pieces

    def regs(self, value: SSAValue) -> Registers:
        """The registers that hold a scalar or vector."""
        if (found := self.registers.get(value)) is None:
            if isinstance(value.type, IndexType):
                return (self.materialize(self.linear(value)),)
            self.shared(value)
            found = self.registers[value]
        return found

    def scalar(self, value: SSAValue) -> str:
        return self.regs(value)[0]

    def linear(self, value: SSAValue) -> Linear:
        """The linear form of a scalar of type index."""
        if (found := self.linears.get(value)) is None:
            self.shared(value)
            found = self.linears[value]
        return found

    def view(self, value: SSAValue) -> View:
        if (found := self.views.get(value)) is None:
            self.shared(value)
            found = self.views[value]
        return found

    def bind(self, value: SSAValue, registers: Sequence[str]) -> None:
        """Says that `value` lives in these registers."""
        if value.type == index:
            self.linears[value] = self.term(registers[0])
        else:
            self.registers[value] = tuple(registers)

    def term(self, name: str) -> Linear:
        """The linear form of a name defined in the current scope, or of a literal."""
        return Linear(0, ((len(self.scopes) - 1, name, 1),)) if name.startswith("%") else Linear(int(name))

    def materialize(self, form: Linear) -> str:
        """An i64 with the value of a linear form."""
        if not form.terms:
            return str(form.constant)
        if not form.constant and len(form.terms) == 1 and form.terms[0][2] == 1:
            return form.terms[0][1]
        # In the scope of the innermost name: as far out as the value exists.
        return self.at_depth(form.terms[-1][0], form, lambda: self._sum(form.terms, form.constant))

    def address(self, base: str, element: str, form: Linear) -> str:
        """A pointer to `base[form]` but for the form's constant part; see Note [Linear indices]."""
        pointer, start, terms = base, 0, form.terms
        for i in range(1, len(terms) + 1):
            if i == len(terms) or terms[i][0] != terms[start][0]:
                group, source = terms[start:i], pointer
                pointer = self.at_depth(
                    group[0][0], (base, element, terms[:i]),
                    lambda g=group, p=source: self.define(f"getelementptr {element}, ptr {p}, i64 {self._sum(g, 0)}"),
                )  # fmt: skip
                start = i
        return pointer

    def displace(self, pointer: str, element: str, constant: int) -> str:
        """A pointer `constant` elements further."""
        return self.define_once(f"getelementptr {element}, ptr {pointer}, i64 {constant}") if constant else pointer

    def at_depth(self, depth: int, key: Hashable, compute: Callable[[], str]) -> str:
        """What `compute` defines, once per scope, in the scope at `depth`."""
        known = self.scopes[depth].known
        if (name := known.get(key)) is None:
            inner = self.scopes[depth + 1 :]
            del self.scopes[depth + 1 :]
            name = known[key] = compute()
            self.scopes.extend(inner)
        return name

    def _sum(self, terms: Sequence[tuple[int, str, int]], constant: int) -> str:
        total = ""
        for _, name, coefficient in terms:
            product = name if coefficient == 1 else self.define(f"mul i64 {name}, {coefficient}")
            total = self.define(f"add i64 {total}, {product}") if total else product
        return self.define(f"add i64 {total}, {constant}") if constant else total


def splat_literal(type: RegisterType, text: str) -> str:
    """A literal in all lanes of a register."""
    return text if type.width == 1 else f"splat ({type.scalar} {text})"


def splat_register(e: Emitter, type: RegisterType, scalar: str) -> str:
    """A register with `scalar` in all lanes."""
    if type.width == 1:
        return scalar
    if not scalar.startswith("%"):
        return splat_literal(type, scalar) if scalar != "poison" else "zeroinitializer"
    first = e.define_once(f"insertelement {type.text} poison, {type.scalar} {scalar}, i64 0")
    return e.define_once(f"shufflevector {type.text} {first}, {type.text} poison, <{type.width} x i32> zeroinitializer")

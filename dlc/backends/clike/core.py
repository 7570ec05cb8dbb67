"""The state of one visit from loops to C: names, scopes, and what each SSA value has become.

Note [Registers of a vector in C]
An n-D vector value is a list of C values ("registers"), row-major over its leading dimensions; each row of the last
dimension is cut into pieces of `lanes` elements, and what is left over into halves, quarters… of that: vector<7x20xf32>
with 16 lanes is seven rows of float16, float4. A piece of one element is a scalar, and a scalar value is one piece. The
pieces depend on the number of elements alone, so that lists stay aligned across conversions.

Note [Indices in C]
Values of type index are linear forms over names, with the range of each name where it is known: an index is an int where
it surely fits, else a long. The part of an address that is known outside a region is a pointer defined there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple, cast

from dlc.backends.clike.syntax import Syntax
from dlc.backends.clike.text import Assign, Comment, Define, Effect, Line
from dlc.backends.linear import Linear
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import (
    ArrayAttr,
    Attribute,
    BFloat16Type,
    Block,
    Float16Type,
    Float32Type,
    Float64Type,
    FusedLoc,
    IndexType,
    IntegerType,
    NameLoc,
    Operation,
    SSAValue,
    VectorType,
)
from dlc.target import Target

Registers = tuple[str, ...]
Range = tuple[int, int]
Handlers = dict[str, Callable[["Emitter", Operation], None]]
_KINDS: dict[type[Attribute], str] = {
    Float32Type: "f32",
    Float64Type: "f64",
    Float16Type: "f16",
    BFloat16Type: "bf16",
    IndexType: "i64",
}
_BYTES = {"i1": 1, "bf16": 2}
_INT = (-(1 << 31), (1 << 31) - 1)


class Register(NamedTuple):
    """One C value: `width` elements of a kind (f32 f64 f16 bf16 i1 i8 i16 i32 i64, and u8…u64 in expressions)."""

    kind: str
    width: int

    def of(self, kind: str) -> Register:
        return Register(kind, self.width)

    @property
    def bits(self) -> int:
        """Of one element as it is computed with."""
        return 32 if self.kind == "i1" else int(self.kind.lstrip("bfiu"))


class View(NamedTuple):
    """A memref: elements at `base[offset + Σ index · stride]`; `base` is a multiple of `align` bytes."""

    base: str
    pointer: str  # the type of pointers to it
    align: int
    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: Linear


class Scope:
    """A region being written: its lines so far, and what it has computed already."""

    __slots__ = ("known", "lines")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.known: dict[Hashable, str] = {}


def is_float(kind: str) -> bool:
    return kind.lstrip("b").startswith("f")


def element_bytes(kind: str) -> int:
    """In memory."""
    return _BYTES.get(kind) or int(kind[1:]) // 8


def vector_shape(type: Attribute) -> tuple[int, ...]:
    """The shape of a vector, () for a scalar."""
    return type.get_shape() if isinstance(type, VectorType) else ()


class Emitter:
    """Writes the body of one function; `handlers` maps an op's name to the function that writes it.

    `definitions` collects what the text needs before it: a program's types and functions.
    """

    def __init__(self, syntax: Syntax, target: Target, handlers: Handlers, kernel: str, definitions: dict[str, None]) -> None:
        self.syntax, self.target, self.handlers, self.kernel = syntax, target, handlers, kernel
        self.definitions = definitions
        self.lanes = min(16, target.lanes(4))
        self.registers: dict[SSAValue, Registers] = {}
        self.linears: dict[SSAValue, Linear] = {}
        self.views: dict[SSAValue, View] = {}
        self.ranges: dict[str, Range] = {}
        self.scopes = [Scope()]
        self.variables = set[SSAValue]()  # values that live in variables of their own
        self.declarations: list[str] = []
        self.private_bytes = 0
        self.items = 1
        self.shared: Callable[[SSAValue], None] = self.undefined
        self._taken = set[str]()
        self._layouts: dict[int, tuple[Register, ...]] = {}
        self._templates: dict[tuple[str, Register, Register], str] = {}
        self._place = ""

    # Text

    def name(self, hint: str) -> str:
        """A new name like `hint`."""
        hint = re.sub(r"\W", "_", hint)
        hint = hint if hint[:1].isalpha() else f"v{hint}"
        name, count = hint, 0
        while name in self._taken or name in self.syntax.reserved:
            count += 1
            name = f"{hint}_{count}"
        self._taken.add(name)
        return name

    def emit(self, text: str) -> None:
        """A statement with effects."""
        self.scopes[-1].lines.append(Effect(text))

    def define(self, type: str, value: str, hint: str, *, movable: bool = False) -> str:
        """Computes a value; returns its name."""
        name = self.name(hint)
        self.scopes[-1].lines.append(Define(name, type, value, movable))
        return name

    def assign(self, name: str, value: str, type: str = "") -> None:
        """Gives a variable its value, its first one with its type."""
        self.scopes[-1].lines.append(Assign(name, value, type))

    def declare(self, type: str, name: str) -> None:
        """A variable without a value yet."""
        self.scopes[-1].lines.append(Effect(f"{type} {name};"))

    def at_depth(self, depth: int, key: Hashable, compute: Callable[[], str]) -> str:
        """What `compute` defines, once per scope, in the scope at `depth`."""
        known = self.scopes[depth].known
        if (name := known.get(key)) is None:
            inner = self.scopes[depth + 1 :]
            del self.scopes[depth + 1 :]
            name = known[key] = compute()
            self.scopes.extend(inner)
        return name

    # Ops

    def visit(self, op: Operation) -> None:
        handler = self.handlers.get(op.name)
        if handler is None:
            raise UnsupportedError(
                f"kernel @{self.kernel}: {op.name!r} cannot be written in {self.syntax.name}; expand it before the end of the "
                "loops stage, or add a handler in dlc/backends/clike"
            )
        if (place := ", ".join(_places(op.location))) and place != self._place:
            self._place = place
            self.scopes[-1].lines.append(Comment(place))
        handler(self, op)

    def visit_block(self, block: Block) -> Operation | None:
        """Writes the ops of a block except its terminator, which it returns."""
        last = block.last_op
        for op in block.ops:
            if op is last:
                return op
            self.visit(op)
        return None

    def undefined(self, value: SSAValue) -> None:
        raise CompileError(f"kernel @{self.kernel}: a value of type {value.type} is used where it is not defined")

    # Types

    def kind(self, element: Attribute) -> str:
        """The kind of an element type.

        Raises UnsupportedError for one that the dialect or the device lacks.
        """
        kind = f"i{element.width.data}" if isinstance(element, IntegerType) else _KINDS.get(type(element), str(element))
        if kind not in ("i1", "f16", "bf16") and kind not in self.syntax.types:
            raise UnsupportedError(f"kernel @{self.kernel}: {self.syntax.name} has no element type {element}; cast to another")
        if kind == "f64" and not self.target.doubles:
            raise UnsupportedError(f"kernel @{self.kernel}: target {self.target.name} does not compute in f64; cast to f32")
        return kind

    def computed(self, kind: str) -> str:
        """The kind that values of this one are held in: halves that the device does not compute with are floats."""
        if kind == "bf16" or (kind == "f16" and not self.target.halves):
            return "f32"
        return "i32" if kind == "i1" else kind

    def stored(self, kind: str) -> str:
        """The kind of an element in memory: a truth value takes a byte, as in NumPy; other halves are their bits."""
        if kind == "i1":
            return "u8"
        return kind if self.computed(kind) == kind else "u16"

    def memory_type(self, kind: str) -> str:
        """C's name of it."""
        return self.syntax.types[self.stored(kind)]

    def type(self, register: Register) -> str:
        """C's name of a register's type."""
        kind = self.computed(register.kind)
        if extension := self.syntax.extensions.get(kind):
            self.definitions.setdefault(extension)
        scalar = self.syntax.types[kind]
        if register.width == 1:
            return scalar
        words = {"t": scalar, "n": register.width}
        name = self.syntax.vector.format(**words)
        if self.syntax.vector_definition:
            self.definitions.setdefault(self.syntax.vector_definition.format(T=name, **words))
        return name

    def layout(self, type: Attribute) -> tuple[Register, ...]:
        """The registers of a value of this type; see Note [Registers of a vector in C]."""
        # The IR keeps the types alive while it is visited, so their identity is a sound key, and a quick one.
        if (found := self._layouts.get(id(type))) is None:
            found = self._layouts[id(type)] = self._layout(type)
        return found

    def _layout(self, type: Attribute) -> tuple[Register, ...]:
        if not isinstance(type, VectorType):
            return (Register(self.kind(type), 1),)
        vector = cast("VectorType[Attribute]", type)
        shape, kind = vector.get_shape(), self.kind(vector.element_type)
        return tuple(Register(kind, width) for width in self.pieces(shape[-1] if shape else 1)) * prod(shape[:-1])

    def pieces(self, size: int) -> list[int]:
        """The lanes of each register of a row of `size` elements."""
        widths, width = [self.lanes] * (size // self.lanes), self.lanes
        rest = size % self.lanes
        while rest:
            width //= 2
            if rest >= width:
                widths.append(width)
                rest -= width
        return widths

    # Expressions

    def has(self, op: str) -> bool:
        return op in self.syntax.expressions

    def _template(self, op: str, vector: bool) -> str | None:
        table = self.syntax.expressions
        return table.get(f"{op}.{'vector' if vector else 'scalar'}") or table.get(op)

    def expression(
        self, op: str, t: Register, *operands: str, s: Register | None = None, words: Mapping[str, object] | None = None
    ) -> str:
        """`op` on the operands in the dialect's words; `t` is the result's register, `s` that of the first operand."""
        s = s or t
        if (template := self._templates.get((op, t, s))) is None:
            template = self._templates[op, t, s] = self._instantiate(op, t, s)
        return template.format(*operands, **(words or {}))

    def _instantiate(self, op: str, t: Register, s: Register) -> str:
        template = self._template(op, max(t.width, s.width) > 1)
        if template is None:
            raise UnsupportedError(f"kernel @{self.kernel}: {self.syntax.name} has no expression for {op!r}")
        words = {
            "T": self.type(t), "t": self.type(t._replace(width=1)), "n": t.width,
            "S": self.type(s), "s": self.type(s._replace(width=1)), "m": s.width,
            "U": self.type(t.of(f"u{t.bits}")), "V": self.type(s.of(f"u{s.bits}")), "M": self.type(t.of(f"i{t.bits}")),
            "u": self.syntax.types[f"u{t.bits}"], "W": self.syntax.types[f"u{max(32, t.bits)}"],
        }  # fmt: skip
        suffix = "vector" if max(t.width, s.width) > 1 else "scalar"
        if definition := self.syntax.definitions.get(f"{op}.{suffix}") or self.syntax.definitions.get(op):
            self.definitions.setdefault(_fill(definition, words))
        return _fill(template, words)

    # Values

    def suffixes(self, type: Attribute) -> Iterator[str]:
        """What tells the names of a value's registers apart."""
        shape = vector_shape(type)
        rows, pieces = prod(shape[:-1]), len(self.pieces(shape[-1] if shape else 1))
        for row in range(rows):
            for piece in range(pieces):
                yield (f"_{row}" if rows > 1 else "") + (f"_{piece}" if pieces > 1 else "")

    def regs(self, value: SSAValue) -> Registers:
        """The registers that hold a scalar or vector."""
        if (found := self.registers.get(value)) is None:
            if isinstance(value.type, IndexType):
                return (self.wide(self.linear(value)),)
            self.shared(value)
            found = self.registers[value]
        return found

    def scalar(self, value: SSAValue) -> str:
        return self.regs(value)[0]

    def bind(self, value: SSAValue, registers: Sequence[str]) -> None:
        """Says that `value` lives in these registers."""
        if isinstance(value.type, IndexType):
            self.linears[value] = self.term(registers[0])
        else:
            self.registers[value] = tuple(registers)

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

    # Indices

    def term(self, name: str) -> Linear:
        """The linear form of a name defined in the current scope."""
        return Linear(0, ((len(self.scopes) - 1, name, 1),))

    def define_index(self, value: str, hint: str, range: Range | None) -> Linear:
        """Computes an index that lies in `range`, both ends included."""
        fits = range is not None and _INT[0] <= range[0] and range[1] <= _INT[1]
        name = self.define(self.syntax.types["i32" if fits else "i64"], value, hint)
        if range is not None:
            self.ranges[name] = range
        return self.term(name)

    def range(self, form: Linear) -> Range | None:
        """Between which two numbers an index lies."""
        low = high = form.constant
        for _, name, coefficient in form.terms:
            if (known := self.ranges.get(name)) is None:
                return None
            ends = sorted(end * coefficient for end in known)
            low, high = low + ends[0], high + ends[1]
        return low, high

    def index(self, form: Linear) -> str:
        """An index as an expression of ints or longs."""
        parts = [*((c, self._scaled(name, abs(c))) for _, name, c in form.terms), (form.constant, str(abs(form.constant)))]
        plus = [text for sign, text in parts if sign > 0]
        minus = [text for sign, text in parts if sign < 0]
        return " - ".join([" + ".join(plus), *minus]).strip() or "0"

    def atom(self, form: Linear) -> str:
        """An index as an operand."""
        text = self.index(form)
        return text if text.isalnum() or text.isidentifier() else f"({text})"

    def _scaled(self, name: str, coefficient: int) -> str:
        known = self.ranges.get(name)
        fits = known is None or max(map(abs, known)) * coefficient <= _INT[1]
        text = name if fits else f"({self.syntax.types['i64']}){name}"
        return text if coefficient == 1 else f"{text} * {coefficient}"

    def wide(self, form: Linear) -> str:
        """An index as one value of 64 bits."""
        if form.terms:
            return f"({self.syntax.types['i64']}){self.atom(form)}"
        return self.expression("literal.i64", Register("i64", 1), str(form.constant))


def _fill(template: str, words: Mapping[str, object]) -> str:
    """The template with these words in it; its other fields stay."""
    return re.sub(r"\{(\w+)\}", lambda m: str(words[m[1]]) if m[1] in words else m[0], template)


def _places(location: Attribute) -> tuple[str, ...]:
    """The places in the list of origins of a kernel's runs that an op comes from, as `#2`."""
    match location:
        case NameLoc(desc=name):
            return (name.data,)
        case FusedLoc(locations=parts):
            return tuple(name for part in cast("ArrayAttr[Attribute]", parts) for name in _places(part))
        case _:
            return ()

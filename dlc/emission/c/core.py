"""The state of one visit from loops to C: names, scopes, and what each SSA value has become.

Note [Indices in C]
Values of type index are linear forms over names, with the range of each name where it is known: an index is an int where
it surely fits, else a long. The part of an address that is known outside a region is a pointer defined there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, cast

from dlc.emission.c.syntax import Syntax
from dlc.emission.c.text import Assign, Comment, Define, Effect, Line
from dlc.emission.c.vocabulary import Register, Vocabulary
from dlc.emission.visit.linear import Linear
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import (
    ArrayAttr,
    Attribute,
    Block,
    FusedLoc,
    IndexType,
    NameLoc,
    Operation,
    SSAValue,
)
from dlc.target import Target

Registers = tuple[str, ...]
Range = tuple[int, int]
Handlers = dict[str, Callable[["Emitter", Operation], None]]
_INT = (-(1 << 31), (1 << 31) - 1)


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


class Emitter(Vocabulary):
    """Writes the body of one function; `handlers` maps an op's name to the function that writes it."""

    def __init__(self, syntax: Syntax, target: Target, handlers: Handlers, kernel: str, definitions: dict[str, None]) -> None:
        super().__init__(syntax, target, kernel, definitions)
        self.handlers = handlers
        self.registers: dict[SSAValue, Registers] = {}
        self.linears: dict[SSAValue, Linear] = {}
        self.views: dict[SSAValue, View] = {}
        self.ranges: dict[str, Range] = {}
        self.multiples: dict[str, int] = {}
        self.scopes = [Scope()]
        self.variables = set[SSAValue]()  # values that live in variables of their own
        self.declarations: list[str] = []
        self.private_bytes = 0
        self.items = 1
        self.shared: Callable[[SSAValue], None] = self.undefined
        self._taken = set[str]()
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
                "loops stage, or add a handler in dlc/emission/c"
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

    # Values

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

    def multiple(self, name: str, coefficient: int) -> int:
        """A number that `coefficient · name` is surely a multiple of."""
        return coefficient * self.multiples.get(name, 1)

    def index(self, form: Linear) -> str:
        """An index as an expression of ints, or of longs where it, or a part of it, might not fit."""
        reach = abs(form.constant) + sum(abs(c) * max(map(abs, self.ranges.get(name, (0,)))) for _, name, c in form.terms)
        start = "" if reach <= _INT[1] else f"({self.syntax.types['i64']})"
        parts = [(c, f"{start}{name}" + (f" * {abs(c)}" if abs(c) != 1 else "")) for _, name, c in form.terms]
        parts.append((form.constant, str(abs(form.constant))))
        plus = [text for sign, text in parts if sign > 0]
        minus = [text for sign, text in parts if sign < 0]
        return " - ".join([" + ".join(plus), *minus]).strip() or "0"

    def atom(self, form: Linear) -> str:
        """An index as an operand."""
        text = self.index(form)
        return text if text.isalnum() or text.isidentifier() else f"({text})"

    def wide(self, form: Linear) -> str:
        """An index as one value of 64 bits."""
        if form.terms:
            return f"({self.syntax.types['i64']}){self.atom(form)}"
        return self.expression("literal.i64", Register("i64", 1), str(form.constant))


def _places(location: Attribute) -> tuple[str, ...]:
    """The places in the list of origins of a kernel's runs that an op comes from, as `#2`."""
    match location:
        case NameLoc(desc=name):
            return (name.data,)
        case FusedLoc(locations=parts):
            return tuple(name for part in cast("ArrayAttr[Attribute]", parts) for name in _places(part))
        case _:
            return ()

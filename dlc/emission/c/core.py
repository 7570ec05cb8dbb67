"""Names, definitions and index expressions in C.

Note [Indices in C] An index is an int if it provably fits, else a long: the interval of each name is tracked where possible.
The terms of an address that are defined outside a region become a pointer there; the other terms are added at the use.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import cast

from dlc.emission.c.statements import Assign, Comment, Define, Effect, Name, concat, join
from dlc.emission.c.syntax import Syntax
from dlc.emission.c.templates import TemplateEmitter
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.registers import MemrefAddress, Register
from dlc.ir import ArrayAttr, Attribute, FusedLoc, NameLoc, Operation, SSAValue, func
from dlc.target import Target

Interval = tuple[int, int]
_INT = (-(1 << 31), (1 << 31) - 1)


def fits_int(range: Interval) -> bool:
    """Return whether all values of an interval fit in an int."""
    return _INT[0] <= range[0] and range[1] <= _INT[1]


class CWriter(TemplateEmitter):
    """Definitions and indices; the mixins in the other files of this folder add memory, vectors and control flow."""

    hoists_innermost_addresses = False

    def __init__(
        self, kernel: func.FuncOp, target: Target, handlers: Handlers, syntax: Syntax, definitions: dict[str, None]
    ) -> None:
        super().__init__(kernel, target, handlers, syntax, definitions)
        self.pointers: dict[str, str] = {}  # pointer type of each buffer
        self.ranges: dict[str, Interval] = {}
        self.constant_divisors: dict[str, int] = {}
        self.variables = set[SSAValue]()  # values that are held in mutable variables
        self.declarations: list[str] = []
        self.items = 1
        self.group_bytes: int = 0  # local memory of a work-group
        self.synchronizes_globally = False  # True if barriers must order accesses to global memory
        self._taken = set[str]()
        self._origin = ""

    # Text

    def name(self, hint: str) -> Name:
        """Return a new name that resembles `hint`."""
        hint = re.sub(r"\W", "_", hint)
        hint = hint if hint[:1].isalpha() else f"v{hint}"
        name, count = hint, 0
        while name in self._taken or name in self.syntax.reserved:
            count += 1
            name = f"{hint}_{count}"
        self._taken.add(name)
        return Name(name)

    def emit(self, *parts: str) -> None:
        """Emit a statement with side effects."""
        self.scopes[-1].lines.append(Effect(concat(*parts)))

    def define(self, type: str, value: str, hint: str, *, movable: bool = False, needs_parentheses: bool = False) -> Name:
        """Emit the definition of a constant and return its name."""
        name = self.name(hint)
        self.scopes[-1].lines.append(Define(name, type, value, movable, needs_parentheses))
        return name

    def compute(self, type: Register, value: str, hint: str, *, movable: bool = False) -> Name:
        """Emit the definition of a register."""
        return self.define(self.type(type), value, hint, movable=movable)

    def define_once(self, key: Hashable, type: Register, value: str, hint: str) -> str:
        """Return the register of `key` in this scope or an enclosing one; define it as `compute` does if there is none."""
        for scope in reversed(self.scopes):
            if (name := scope.cached_names.get(key)) is not None:
                return name
        name = self.scopes[-1].cached_names[key] = self.compute(type, value, hint, movable=True)
        return name

    def assign(self, name: Name, value: str, type: str = "") -> None:
        """Assign a variable; the first assignment declares it with its type."""
        self.scopes[-1].lines.append(Assign(name, value, type))

    def visit(self, op: Operation) -> None:
        if (origin := ", ".join(_origin_names(op.location))) and origin != self._origin:
            self._origin = origin
            self.scopes[-1].lines.append(Comment(origin))
        super().visit(op)

    # Indices

    def define_index(self, value: str, hint: str, range: Interval | None, constant_divisor: int = 1) -> LinearExpression:
        """Define an index in the closed interval `range`, a multiple of `constant_divisor`."""
        fits = range is not None and fits_int(range)
        name = self.define(self.syntax.types["i32" if fits else "i64"], value, hint)
        if range is not None:
            self.ranges[name] = range
        if constant_divisor > 1:
            self.constant_divisors[name] = constant_divisor
        return self.term(name)

    def range(self, expr: LinearExpression) -> Interval | None:
        """Return the closed interval of an index, or None if it is unknown."""
        low = high = expr.constant
        for _, name, coefficient in expr.terms:
            if (interval := self.ranges.get(name)) is None:
                return None
            ends = sorted(end * coefficient for end in interval)
            low, high = low + ends[0], high + ends[1]
        return low, high

    def constant_divisor(self, name: str, coefficient: int) -> int:
        return coefficient * self.constant_divisors.get(name, 1)

    def index(self, expr: LinearExpression) -> str:
        """Return an index as an expression of ints, or of longs if an intermediate result might not fit in an int."""
        reach = abs(expr.constant) + sum(abs(c) * max(map(abs, self.ranges.get(name, (0,)))) for _, name, c in expr.terms)
        start = "" if reach <= _INT[1] else f"({self.syntax.types['i64']})"
        signed_terms: list[tuple[int, str]] = []
        for _, name, c in expr.terms:
            signed_terms.append((c, concat(start, name, f" * {abs(c)}") if abs(c) != 1 else concat(start, name)))
        signed_terms.append((expr.constant, str(abs(expr.constant))))
        plus = [text for sign, text in signed_terms if sign > 0]
        minus = [concat(" - " if plus else "- ", text) for sign, text in signed_terms if sign < 0]
        return concat(join(" + ", plus), *minus) or "0"

    def index_operand(self, expr: LinearExpression) -> str:
        """Return an index as an operand, parenthesized if necessary."""
        text = self.index(expr)
        return text if text.isalnum() or text.isidentifier() else concat("(", text, ")")

    def times(self, a: str, b: str) -> str:
        return self.compute(Register("i64"), concat(a, " * ", b), "product")

    def materialize(self, expr: LinearExpression) -> str:
        if expr.terms:
            return concat(f"({self.syntax.types['i64']})", self.index_operand(expr))
        return self.expression("literal.i64", Register("i64"), str(expr.constant))

    def advance(self, view: MemrefAddress, pointer: str, expr: LinearExpression) -> str:
        name = self.define(self.pointers[view.base], self.offset_pointer(pointer, expr), view.base, movable=True)
        self.pointers[name] = self.pointers[view.base]
        return name

    def offset_pointer(self, pointer: str, expr: LinearExpression) -> str:
        """Return `pointer` advanced by `expr` elements.

        The offset is a single sum: compilers trace a pointer to its buffer through few steps only, and adding ints takes fewer
        instructions than adding pointers.
        """
        index = self.index(expr)
        if index == "0":
            return pointer
        is_one = len(expr.terms) + (expr.constant != 0) == 1 and not index.startswith("-")
        return concat(pointer, " + ", index) if is_one else concat(pointer, " + (", index, ")")

    # Registers and lanes

    def computed_register(self, type: Register) -> Register:
        """Return the register type in which values of type `type` are computed."""
        kind = self.computed_kind(type.kind)
        return type if kind == type.kind else type.with_kind(kind)

    def lane(self, type: Register, name: str, index: int) -> str:
        """Return one lane of a register; a boolean is 1 or 0."""
        if type.width == 1:
            return name
        name = name if name.isidentifier() else concat("(", name, ")")
        text = self.expression("lane", type, name, fields={"i": str(index), "x": f"{index:x}"})
        return concat("(", text, " & 1)") if type.kind == "i1" else text

    def from_lanes(self, type: Register, lanes: list[str]) -> str:
        """Return an expression of a register with these lanes, each an expression; booleans are 1 or 0."""
        if type.width == 1:
            return lanes[0]
        if type.kind == "i1":
            lanes = [_boolean_lane(lane) for lane in lanes]
        if len(set(lanes)) == 1:
            return self.expression("splat", self.computed_register(type), lanes[0])
        return self.expression("lanes", self.computed_register(type), fields={"lanes": join(", ", lanes)})

    def splat_literal(self, type: Register, literal: str) -> str:
        """Return an expression of a register with an element (any expression) in all lanes."""
        if type.width == 1:
            return literal
        return self.expression("splat", self.computed_register(type), _boolean_lane(literal) if type.kind == "i1" else literal)


def _boolean_lane(value: str) -> str:
    """Convert a boolean 1 or 0 to a vector lane -1 or 0."""
    return {"0": "0", "1": "-1"}.get(value) or concat("-(", value, ")")


def _origin_names(location: Attribute) -> tuple[str, ...]:
    """Return the indices, as `#2`, of an op's origins into the list of origins of the kernel's launches."""
    match location:
        case NameLoc(desc=name):
            return (name.data,)
        case FusedLoc(locations=locations):
            return tuple(
                name for location_part in cast("ArrayAttr[Attribute]", locations) for name in _origin_names(location_part)
            )
        case _:
            return ()

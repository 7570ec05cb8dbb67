"""C's names and indices.

Note [Indices in C]
An index is an int where it surely fits, else a long: the range of each name is known where it can be. Only the part of an
address that is known outside a region is a pointer defined there; the rest is written where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import cast

from dlc.emission.c.syntax import Syntax
from dlc.emission.c.text import Assign, Comment, Define, Effect, Name, code, join
from dlc.emission.c.vocabulary import Vocabulary
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.registers import Register, View
from dlc.emission.visit.visit import Handlers
from dlc.ir import ArrayAttr, Attribute, FusedLoc, NameLoc, Operation, SSAValue, func
from dlc.target import Target

Range = tuple[int, int]
_INT = (-(1 << 31), (1 << 31) - 1)


def fits_int(range: Range) -> bool:
    """Whether all of a range is ints."""
    return _INT[0] <= range[0] and range[1] <= _INT[1]


class Writer(Vocabulary):
    """Definitions and indices; what it lacks is in the other files of this folder."""

    points_to_all = False

    def __init__(
        self, kernel: func.FuncOp, target: Target, handlers: Handlers, syntax: Syntax, definitions: dict[str, None]
    ) -> None:
        super().__init__(kernel, target, handlers, syntax, definitions)
        self.pointers: dict[str, str] = {}  # the type of pointers to each buffer
        self.ranges: dict[str, Range] = {}
        self.multiples: dict[str, int] = {}
        self.variables = set[SSAValue]()  # values that live in variables of their own
        self.declarations: list[str] = []
        self.items = 1
        self.group_bytes: int = 0  # that the items of a group share
        self.meets_globally = False  # whether they write and read a buffer of all groups
        self._taken = set[str]()
        self._place = ""

    # Text

    def name(self, hint: str) -> Name:
        """A new name like `hint`."""
        hint = re.sub(r"\W", "_", hint)
        hint = hint if hint[:1].isalpha() else f"v{hint}"
        name, count = hint, 0
        while name in self._taken or name in self.syntax.reserved:
            count += 1
            name = f"{hint}_{count}"
        self._taken.add(name)
        return Name(name)

    def emit(self, *parts: str) -> None:
        """A statement with effects."""
        self.scopes[-1].lines.append(Effect(code(*parts)))

    def define(self, type: str, value: str, hint: str, *, movable: bool = False, loose: bool = False) -> Name:
        """Computes a value; returns its name."""
        name = self.name(hint)
        self.scopes[-1].lines.append(Define(name, type, value, movable, loose))
        return name

    def compute(self, t: Register, value: str, hint: str, *, movable: bool = False) -> Name:
        """Computes a register."""
        return self.define(self.type(t), value, hint, movable=movable)

    def once(self, key: Hashable, t: Register, value: str, hint: str) -> str:
        """As `compute`, for what this scope or one around it may have already."""
        for scope in reversed(self.scopes):
            if (name := scope.known.get(key)) is not None:
                return name
        name = self.scopes[-1].known[key] = self.compute(t, value, hint, movable=True)
        return name

    def assign(self, name: Name, value: str, type: str = "") -> None:
        """Gives a variable its value, its first one with its type."""
        self.scopes[-1].lines.append(Assign(name, value, type))

    def visit(self, op: Operation) -> None:
        if (place := ", ".join(_places(op.location))) and place != self._place:
            self._place = place
            self.scopes[-1].lines.append(Comment(place))
        super().visit(op)

    # Indices

    def define_index(self, value: str, hint: str, range: Range | None, multiple: int = 1) -> Linear:
        """Computes an index that lies in `range`, both ends included, and is a multiple of some number."""
        fits = range is not None and fits_int(range)
        name = self.define(self.syntax.types["i32" if fits else "i64"], value, hint)
        if range is not None:
            self.ranges[name] = range
        if multiple > 1:
            self.multiples[name] = multiple
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
        return coefficient * self.multiples.get(name, 1)

    def index(self, form: Linear) -> str:
        """An index as an expression of ints, or of longs where it, or a part of it, might not fit."""
        reach = abs(form.constant) + sum(abs(c) * max(map(abs, self.ranges.get(name, (0,)))) for _, name, c in form.terms)
        start = "" if reach <= _INT[1] else f"({self.syntax.types['i64']})"
        parts: list[tuple[int, str]] = []
        for _, name, c in form.terms:
            parts.append((c, code(start, name, f" * {abs(c)}") if abs(c) != 1 else code(start, name)))
        parts.append((form.constant, str(abs(form.constant))))
        plus = [text for sign, text in parts if sign > 0]
        minus = [code(" - " if plus else "- ", text) for sign, text in parts if sign < 0]
        return code(join(" + ", plus), *minus) or "0"

    def atom(self, form: Linear) -> str:
        """An index as an operand."""
        text = self.index(form)
        return text if text.isalnum() or text.isidentifier() else code("(", text, ")")

    def times(self, a: str, b: str) -> str:
        return self.compute(Register("i64"), code(a, " * ", b), "product")

    def materialize(self, form: Linear) -> str:
        if form.terms:
            return code(f"({self.syntax.types['i64']})", self.atom(form))
        return self.expression("literal.i64", Register("i64"), str(form.constant))

    def advance(self, view: View, pointer: str, form: Linear) -> str:
        name = self.define(self.pointers[view.base], self.displaced(pointer, form), view.base, movable=True)
        self.pointers[name] = self.pointers[view.base]
        return name

    def displaced(self, pointer: str, form: Linear) -> str:
        """A pointer so many elements further: by one number, since compilers follow few steps back to the buffer that it is of,
        and add ints in fewer instructions than pointers."""
        index = self.index(form)
        if index == "0":
            return pointer
        is_one = len(form.terms) + (form.constant != 0) == 1 and not index.startswith("-")
        return code(pointer, " + ", index) if is_one else code(pointer, " + (", index, ")")

    # Shared by what follows

    def held(self, t: Register) -> Register:
        """The register that values of this one are held in."""
        kind = self.computed(t.kind)
        return t if kind == t.kind else t.of(kind)

    def lane(self, t: Register, name: str, place: int) -> str:
        """One element of a register; a truth value is 1 or 0."""
        if t.width == 1:
            return name
        name = name if name.isidentifier() else code("(", name, ")")
        text = self.expression("lane", t, name, words={"i": str(place), "x": f"{place:x}"})
        return code("(", text, " & 1)") if t.kind == "i1" else text

    def from_lanes(self, t: Register, lanes: list[str]) -> str:
        """An expression of these elements, each an expression; truth values are 1 or 0."""
        if t.width == 1:
            return lanes[0]
        if t.kind == "i1":
            lanes = [_lane_of_truths(lane) for lane in lanes]
        if len(set(lanes)) == 1:
            return self.expression("splat", self.held(t), lanes[0])
        return self.expression("lanes", self.held(t), words={"lanes": join(", ", lanes)})

    def splat_literal(self, t: Register, literal: str) -> str:
        """An expression with an element, any expression, in all lanes."""
        if t.width == 1:
            return literal
        return self.expression("splat", self.held(t), _lane_of_truths(literal) if t.kind == "i1" else literal)


def _lane_of_truths(value: str) -> str:
    """A truth value, which is 1 or 0, as the lane of a vector, which is -1 or 0."""
    return {"0": "0", "1": "-1"}.get(value) or code("-(", value, ")")


def _places(location: Attribute) -> tuple[str, ...]:
    """The places in the list of origins of a kernel's runs that an op comes from, as `#2`."""
    match location:
        case NameLoc(desc=name):
            return (name.data,)
        case FusedLoc(locations=parts):
            return tuple(name for part in cast("ArrayAttr[Attribute]", parts) for name in _places(part))
        case _:
            return ()

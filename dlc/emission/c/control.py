"""Loops and branches: a carried value is a variable per register, assigned at the end of the region.

A loop whose carried value enters nothing but another loop shares its variables with it: nested loops over a tile's
reduction accumulate into one set of variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import gcd
from typing import NamedTuple

from dlc.dims import Size, product
from dlc.emission.c.core import Range, Writer
from dlc.emission.c.text import Line, Name, Nest, code
from dlc.emission.visit import control
from dlc.emission.visit.control import Axis, axes_of, bind_all, region, registers_of, types_of
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.records import Loop, Values
from dlc.emission.visit.registers import Register
from dlc.emission.visit.visit import Handlers
from dlc.errors import CompileError
from dlc.ir import Block, IndexType, Operation, SSAValue, StringAttr, arith, scf

# Points of a grid, of which each has a number that is an int.
_MOST_POINTS = (1 << 31) - 1
# arith.cmpi ult
_ULT = 6


class Variables(NamedTuple):
    """The variables of values that a region carries, and their types."""

    names: list[Name]
    types: list[Register]


class ControlWriter(Writer):
    # Variables

    def _declare(self, values: Values, initial: Values | None = None) -> Variables:
        """New variables for values, with first values if there are any."""
        names: list[Name] = []
        for k, value in enumerate(values):
            first = self.regs(initial[k]) if initial is not None else ()
            if initial is not None and self._is_free(initial[k], value):
                names += map(Name, first)
                continue
            for i, (t, hint) in enumerate(zip(self.layout(value.type), self.hints(value, "carried"), strict=True)):
                name = self.name(hint)
                if initial is not None:
                    self.assign(name, first[i], self.type(t))
                else:
                    self.emit(self.type(t), " ", name, ";")
                names.append(name)
        return Variables(names, types_of(self, values))

    def _is_free(self, initial: SSAValue, inside: SSAValue) -> bool:
        """Whether a loop may go on with the variables of its initial value, because nobody else reads them."""
        if isinstance(initial.type, IndexType) or initial not in self.variables or len(list(initial.uses)) != 1:
            return False
        user = next(iter(initial.uses)).operation
        owner = initial.owner
        home = owner if isinstance(owner, Block) else owner.parent
        return user.parent is home and inside.type == initial.type

    def _carry(self, values: Values, names: Sequence[str]) -> None:
        """Binds values to variables, and remembers that they are."""
        bind_all(self, values, names)
        self.variables.update(values)

    def _assign(self, variables: Variables, results: Sequence[str]) -> None:
        """All variables get their next values at once."""
        changed = [(n, r, t) for n, r, t in zip(variables.names, results, variables.types, strict=True) if n != r]
        targets = {name for name, _, _ in changed}
        sources: list[str] = []
        for _, result, t in changed:
            # A variable that is assigned to as well is read first.
            sources.append(self.compute(t, result, f"{result}_before") if result in targets else result)
        for (name, _, _), source in zip(changed, sources, strict=True):
            self.assign(name, source)

    def _lines(self, variables: Variables, visit: Callable[[], Values]) -> list[Line]:
        """What `visit` writes, as a region that ends by giving variables its results."""

        def write() -> list[str]:
            self._assign(variables, registers_of(self, visit()))
            return []

        return region(self, write)[0].lines

    # Loops and branches

    def write_loop(self, loop: Loop) -> None:
        low, high, step = loop.low, loop.high, loop.step
        variables = self._declare(loop.inside, loop.before)
        first, last, stride = self.range(low), self.range(high), self.range(step)
        extent = (first[0], last[1] - 1) if first is not None and last is not None else None
        fits = extent is not None and stride is not None and extent[0] >= -(1 << 31) and extent[1] + stride[1] < 1 << 31
        counter = self.name(loop.induction.name_hint or "i")

        def body() -> Values:
            self.linears[loop.induction] = self.term(counter)
            if extent is not None:
                self.ranges[counter] = extent
            if not low.terms and not step.terms:
                self.multiples[counter] = gcd(low.constant, step.constant)
            self._carry(loop.inside, variables.names)
            return loop.visit()

        lines = self._lines(variables, body)
        start = (self.syntax.types["i32" if fits else "i64"], " ", counter, " = ", self.index(low))
        by = ("++", counter) if step == Linear(1) else (counter, " += ", self.index(step))
        head = code("for (", *start, "; ", counter, " < ", self.index(high), "; ", *by, ") {")
        if hint := self.syntax.unrolled if loop.unrolled else self.syntax.rolled if loop.rolled else "":
            head = code(hint, "\n", head)
        self.scopes[-1].lines.append(Nest([(head, lines)]))
        self._carry(loop.after, variables.names)

    def write_if(self, op: scf.IfOp, condition: str) -> None:
        results = self._declare(op.output)
        regions = [part for part in (op.true_region, op.false_region) if part.blocks]
        branches: list[list[Line]] = []
        for part, known in zip(regions, self._where(op.cond), strict=False):
            ranges, self.ranges = self.ranges, {**self.ranges, **known}
            branches.append(self._lines(results, lambda p=part: self.visit_block(p.block)))
            self.ranges = {**self.ranges, **ranges}
        heads = [code("if (", condition, ") {"), "} else {"]
        self.scopes[-1].lines.append(Nest([(h, b) for h, b in zip(heads, branches, strict=False) if b or h == heads[0]]))
        self._carry(op.output, results.names)

    def _where(self, condition: SSAValue) -> tuple[dict[str, Range], dict[str, Range]]:
        """What is known of a name where it is less than a number, and where it is not."""
        owner = condition.owner
        if isinstance(owner, arith.CmpiOp) and owner.predicate.value.data == _ULT and isinstance(owner.lhs.type, IndexType):
            less, limit = self.linear(owner.lhs), self.linear(owner.rhs)
            names = [name for _, name, coefficient in less.terms if coefficient == 1 and not less.constant]
            known = self.ranges.get(names[0]) if len(names) == len(less.terms) == 1 and not limit.terms else None
            if known is not None and known[0] >= 0:
                name, (low, high) = names[0], known
                return {name: (low, min(high, limit.constant - 1))}, {name: (max(low, limit.constant), high)}
        return {}, {}

    # Points of a grid, items of a group

    def number(self, which: str) -> str:
        """The number of the group, or of the item in it."""
        text = {"group": self.syntax.group, "item": self.syntax.item}[which]
        return self.define(self.syntax.types["i32"], text, which) if text else Name(which)

    def positions(self, op: Operation, number: str) -> Size:
        """Binds the induction variables of a parallel loop to point `number` of it, row-major; returns how many there are."""
        assert isinstance(op, scf.ParallelOp)
        axes = axes_of(self, op)
        count = product(axis.size for axis in axes)
        if count == 0:
            return count
        cut = [k for k, axis in enumerate(axes) if axis.size != 1]
        sizes = {k: self._points(axes[k], op.upperBound[k]) for k in cut[1:]}
        for k, (induction, start, step, size) in enumerate(axes):
            if k not in cut:
                self.linears[induction] = Linear(start)
                continue
            most = size if isinstance(size, int) else _MOST_POINTS
            if cut == [k]:
                self.ranges[number] = (0, most - 1)
                self.linears[induction] = Linear(start).plus(self.term(number), step)
                continue
            inner = reduce(self.scaled, (sizes[i] for i in cut if i > k), Linear(1))
            text = number if inner == Linear(1) else code(number, " / ", self.atom(inner))
            text = text if k == cut[0] else code(text, " % ", self.atom(sizes[k]))
            hint = induction.name_hint or "i"
            position = self.define_index(text, hint if step == 1 else f"{hint}_tile", (0, most - 1))
            self.linears[induction] = Linear(start).plus(position, step)
        return count

    def _points(self, axis: Axis, high: SSAValue) -> Linear:
        """How many points a parallel loop has along an axis."""
        if isinstance(axis.size, int):
            return Linear(axis.size)
        total = self.linear(high).plus(Linear(axis.step - 1 - axis.start))
        value = self.index(total) if axis.step == 1 else code(self.atom(total), f" / {axis.step}")
        return self.define_index(value, f"{axis.induction.name_hint or 'i'}_count", (0, _MOST_POINTS))


def parallel(e: ControlWriter, op: Operation) -> None:
    """scf.parallel inside a grid point: a loop nest, or the items of a group."""
    assert isinstance(op, scf.ParallelOp)
    if op.attributes.get("level") == StringAttr("item"):
        items = int(e.positions(op, e.number("item")))
        if e.items not in (1, items):
            raise CompileError(f"kernel @{e.kernel}: a group of {e.items} items and one of {items} in a grid")
        e.items = items
        e.visit_block(op.body.block)
    else:
        control.sequential(e, op)


HANDLERS: Handlers = {**control.HANDLERS, "scf.parallel": parallel}

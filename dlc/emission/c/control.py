"""Loops and branches: a loop-carried value is one variable per register, assigned at the end of the region.

If the only use of a carried value is to initialize another loop, the two loops share its variables: nested loops over a
tile's reduction accumulate into one set of variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import gcd
from typing import NamedTuple

from dlc.emission.c.core import CWriter, Interval
from dlc.emission.c.statements import Name, NestedRegions, Statement, concat
from dlc.emission.common import control
from dlc.emission.common.control import bind_values, emit_region, register_types, value_registers
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.grids import GridAxis, grid_axes
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.records import LoopRecord, Values
from dlc.emission.common.registers import Register
from dlc.errors import CompileError
from dlc.ir import Block, IndexType, Operation, SSAValue, StringAttr, arith, scf
from dlc.shapes.dims import Size, product

# Each grid point has an index that must fit in an int.
_MAX_GRID_POINTS = (1 << 31) - 1
# The predicate number of `arith.cmpi ult`.
_ULT = 6


class Variables(NamedTuple):
    """The names and types of the variables for the carried values of a region."""

    names: list[Name]
    types: list[Register]


class CControlWriter(CWriter):
    """Emit structured control flow as C statements."""

    # Variables

    def _declare(self, values: Values, initial: Values | None = None) -> Variables:
        """Declare variables for values, initialized with `initial` if given."""
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
        return Variables(names, register_types(self, values))

    def _is_free(self, initial: SSAValue, carried: SSAValue) -> bool:
        """Return whether a loop may reuse the variables of its initial value, because it is their only user."""
        if isinstance(initial.type, IndexType) or initial not in self.variables or len(list(initial.uses)) != 1:
            return False
        user = next(iter(initial.uses)).operation
        owner = initial.owner
        defining_block = owner if isinstance(owner, Block) else owner.parent
        return user.parent is defining_block and carried.type == initial.type

    def _bind_variables(self, values: Values, names: Sequence[str]) -> None:
        """Bind values to variables and record that they are variables."""
        bind_values(self, values, names)
        self.variables.update(values)

    def _assign(self, variables: Variables, results: Sequence[str]) -> None:
        """Assign all variables their next values simultaneously."""
        assignments = [(n, r, t) for n, r, t in zip(variables.names, results, variables.types, strict=True) if n != r]
        assigned_names = {name for name, _, _ in assignments}
        sources: list[str] = []
        for _, result, t in assignments:
            # A source that is also assigned is copied before it is overwritten.
            sources.append(self.compute(t, result, f"{result}_before") if result in assigned_names else result)
        for (name, _, _), source in zip(assignments, sources, strict=True):
            self.assign(name, source)

    def _lines(self, variables: Variables, visit: Callable[[], Values]) -> list[Statement]:
        """Return the statements that `visit` emits, followed by the assignment of its results to the variables."""

        def write() -> list[str]:
            self._assign(variables, value_registers(self, visit()))
            return []

        return emit_region(self, write)[0].lines

    # Loops and branches

    def write_loop(self, loop: LoopRecord) -> None:
        low, high, step = loop.low, loop.high, loop.step
        variables = self._declare(loop.body_arguments, loop.initial_values)
        first, last, stride = self.range(low), self.range(high), self.range(step)
        extent = (first[0], last[1] - 1) if first is not None and last is not None else None
        fits = extent is not None and stride is not None and extent[0] >= -(1 << 31) and extent[1] + stride[1] < 1 << 31
        counter = self.name(loop.induction.name_hint or "i")

        def body() -> Values:
            self.linear_expressions[loop.induction] = self.term(counter)
            if extent is not None:
                self.ranges[counter] = extent
            if not low.terms and not step.terms:
                self.constant_divisors[counter] = gcd(low.constant, step.constant)
            self._bind_variables(loop.body_arguments, variables.names)
            return loop.visit()

        lines = self._lines(variables, body)
        start = (self.syntax.types["i32" if fits else "i64"], " ", counter, " = ", self.index(low))
        increment = ("++", counter) if step == LinearExpression(1) else (counter, " += ", self.index(step))
        head = concat("for (", *start, "; ", counter, " < ", self.index(high), "; ", *increment, ") {")
        if hint := self.syntax.unrolled if loop.unrolled else self.syntax.rolled if loop.rolled else "":
            head = concat(hint, "\n", head)
        self.scopes[-1].lines.append(NestedRegions([(head, lines)]))
        self._bind_variables(loop.results, variables.names)

    def write_while(self, op: scf.WhileOp, condition: int, forwarded: Sequence[int]) -> None:
        carried, block = op.before_region.block.args, op.after_region.block
        variables = self._declare(carried, op.arguments)
        self._bind_variables(carried, variables.names)

        def body() -> Values:
            for argument, k in zip(block.args, forwarded, strict=True):
                self._bind_variables([argument], self.regs(carried[k]))
            return self.visit_block(block)

        lines = self._lines(variables, body)
        (flag,) = self.regs(carried[condition])
        self.scopes[-1].lines.append(NestedRegions([(concat("while (", flag, ") {"), lines)]))
        for result, k in zip(op.res, forwarded, strict=True):
            self._bind_variables([result], self.regs(carried[k]))

    def write_if(self, op: scf.IfOp, condition: str) -> None:
        results = self._declare(op.output)
        regions = [branch for branch in (op.true_region, op.false_region) if branch.blocks]
        branches: list[list[Statement]] = []
        for branch, branch_ranges in zip(regions, self._branch_ranges(op.cond), strict=False):
            outer_ranges, self.ranges = self.ranges, {**self.ranges, **branch_ranges}
            branches.append(self._lines(results, lambda branch=branch: self.visit_block(branch.block)))
            self.ranges = {**self.ranges, **outer_ranges}
        heads = [concat("if (", condition, ") {"), "} else {"]
        self.scopes[-1].lines.append(
            NestedRegions([(h, b) for h, b in zip(heads, branches, strict=False) if b or h == heads[0]])
        )
        self._bind_variables(op.output, results.names)

    def _branch_ranges(self, condition: SSAValue) -> tuple[dict[str, Interval], dict[str, Interval]]:
        """Return the interval of an index inside the `then` and the `else` branch of a comparison with a constant."""
        owner = condition.owner
        if isinstance(owner, arith.CmpiOp) and owner.predicate.value.data == _ULT and isinstance(owner.lhs.type, IndexType):
            less, limit = self.linear(owner.lhs), self.linear(owner.rhs)
            names = [name for _, name, coefficient in less.terms if coefficient == 1 and not less.constant]
            interval = self.ranges.get(names[0]) if len(names) == len(less.terms) == 1 and not limit.terms else None
            if interval is not None and interval[0] >= 0:
                name, (low, high) = names[0], interval
                return {name: (low, min(high, limit.constant - 1))}, {name: (max(low, limit.constant), high)}
        return {}, {}

    # Grid points and work-items

    def work_id(self, level: str) -> str:
        """Return the index of the work-group, or of the work-item in its group."""
        text = {"group": self.syntax.group, "item": self.syntax.item}[level]
        return self.define(self.syntax.types["i32"], text, level) if text else Name(level)

    def bind_grid_point(self, op: Operation, linear_index: str) -> Size:
        """Bind the induction variables of a parallel loop to its point `linear_index` (row-major); return the point count."""
        assert isinstance(op, scf.ParallelOp)
        axes = grid_axes(op)
        count = product(axis.size for axis in axes)
        if count == 0:
            return count
        varying_axes = [k for k, axis in enumerate(axes) if axis.size != 1]
        sizes = {k: self._axis_size(axes[k], op.upperBound[k]) for k in varying_axes[1:]}
        for k, (induction, start, step, size) in enumerate(axes):
            if k not in varying_axes:
                self.linear_expressions[induction] = LinearExpression(start)
                continue
            count_bound = size if isinstance(size, int) else _MAX_GRID_POINTS
            if varying_axes == [k]:
                self.ranges[linear_index] = (0, count_bound - 1)
                self.linear_expressions[induction] = LinearExpression(start).plus(self.term(linear_index), step)
                continue
            inner = reduce(self.scale_expression, (sizes[i] for i in varying_axes if i > k), LinearExpression(1))
            text = linear_index if inner == LinearExpression(1) else concat(linear_index, " / ", self.index_operand(inner))
            text = text if k == varying_axes[0] else concat(text, " % ", self.index_operand(sizes[k]))
            hint = induction.name_hint or "i"
            position = self.define_index(text, hint if step == 1 else f"{hint}_tile", (0, count_bound - 1))
            self.linear_expressions[induction] = LinearExpression(start).plus(position, step)
        return count

    def _axis_size(self, axis: GridAxis, high: SSAValue) -> LinearExpression:
        """Return the number of points of a parallel loop along an axis."""
        if isinstance(axis.size, int):
            return LinearExpression(axis.size)
        total = self.linear(high).plus(LinearExpression(axis.step - 1 - axis.start))
        value = self.index(total) if axis.step == 1 else concat(self.index_operand(total), f" / {axis.step}")
        return self.define_index(value, f"{axis.induction.name_hint or 'i'}_count", (0, _MAX_GRID_POINTS))


def parallel(writer: CControlWriter, op: Operation) -> None:
    """Emit `scf.parallel` inside a grid point: a sequential loop nest, or the work-items of a group."""
    assert isinstance(op, scf.ParallelOp)
    if op.attributes.get("level") == StringAttr("item"):
        items = int(writer.bind_grid_point(op, writer.work_id("item")))
        if writer.items not in (1, items):
            raise CompileError(f"kernel @{writer.kernel}: a grid has work-groups of {writer.items} and of {items} work-items")
        writer.items = items
        writer.visit_block(op.body.block)
    else:
        control.emit_sequential_parallel(writer, op)


HANDLERS: Handlers = {**control.HANDLERS, "scf.parallel": parallel}

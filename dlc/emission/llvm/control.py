"""Loops and branches as blocks and phis: one phi per register of a carried value."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.emission.llvm.core import Writer, text_of
from dlc.emission.llvm.order import Line
from dlc.emission.visit.control import bind_all, region, registers_of, types_of
from dlc.emission.visit.records import Loop
from dlc.emission.visit.registers import Register
from dlc.emission.visit.visit import Scope
from dlc.ir import Region, scf

# The registers that arrive at a block, and the block that they come from.
_Edge = tuple[Sequence[str], str]


class ControlWriter(Writer):
    def _names(self, types: Sequence[Register]) -> list[str]:
        return [f"%{self.fresh()}" for _ in types]

    def _phis(self, names: Sequence[str], types: Sequence[Register], *edges: _Edge) -> None:
        for i, (name, t) in enumerate(zip(names, types, strict=True)):
            arriving = ", ".join(f"[ {values[i]}, %{label} ]" for values, label in edges)
            line = Line(f"  {name} = phi {text_of(t)} {arriving}", name, tuple(values[i] for values, _ in edges))
            self.scopes[-1].lines.append(line)

    def write_loop(self, loop: Loop) -> None:
        types, initial, wide = types_of(self, loop.before), registers_of(self, loop.before), [Register("i64")]
        start, end, by = map(self.materialize, (loop.low, loop.high, loop.step))
        head, exit = self.fresh("loop"), self.fresh("done")
        counter, following = f"%{self.fresh('i')}", f"%{self.fresh('i')}"
        arguments = self._names(types)

        def body() -> list[str]:
            self.bind(loop.induction, [counter])
            bind_all(self, loop.inside, arguments)
            return registers_of(self, loop.visit())

        inner, results = region(self, body, head)
        outer = self.scopes[-1]
        before_guard = outer.label
        if not loop.is_known:  # The loop tests at its end, so an empty range must go round it.
            enter = self.fresh("enter")
            self.emit(f"br i1 {self.define(f'icmp slt i64 {start}, {end}', start, end)}, label %{enter}, label %{exit}")
            self.start_block(enter)
        origin = outer.label
        self.emit(f"br label %{head}")
        outer.lines.append(Line(f"{head}:"))
        self._phis([counter], wide, ([start], origin), ([following], inner.label))
        self._phis(arguments, types, (initial, origin), (results, inner.label))
        outer.lines += inner.lines
        outer.lines.append(Line(f"  {following} = add nsw i64 {counter}, {by}", following, (counter, by)))
        again = self.define(f"icmp slt i64 {following}, {end}", following, end)
        self.emit(f"br i1 {again}, label %{head}, label %{exit}")
        self.start_block(exit)
        if not loop.is_known and types:
            merged = self._names(types)
            self._phis(merged, types, (initial, before_guard), (results, inner.label))
            results = merged
        bind_all(self, loop.after, results)

    def write_if(self, op: scf.IfOp, condition: str) -> None:
        types, join = types_of(self, op.output), self.fresh("join")
        labels = [self.fresh("then"), self.fresh("else")]

        def taken(part: Region) -> list[str]:
            return registers_of(self, self.visit_block(part.block) if part.blocks else ())

        branches: list[tuple[Scope, list[str]]] = []
        for part, label in zip((op.true_region, op.false_region), labels, strict=True):
            branches.append(region(self, lambda p=part: taken(p), label))
        self.emit(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        for (scope, _), label in zip(branches, labels, strict=True):
            self.scopes[-1].lines += [Line(f"{label}:"), *scope.lines]
            self.emit(f"br label %{join}")
        self.start_block(join)
        merged = self._names(types)
        self._phis(merged, types, *((values, scope.label) for scope, values in branches))
        bind_all(self, op.output, merged)

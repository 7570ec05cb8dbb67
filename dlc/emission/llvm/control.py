"""Loops and branches as basic blocks and phis: one phi per register of a carried value."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.emission.common.control import bind_values, emit_region, register_types, value_registers
from dlc.emission.common.emitter import EmissionScope
from dlc.emission.common.records import LoopRecord
from dlc.emission.common.registers import Register
from dlc.emission.llvm.core import LlvmWriter, llvm_type
from dlc.emission.llvm.instruction_order import Line
from dlc.ir import Region, scf

# An incoming edge of a phi: the registers and the label of the predecessor block.
_Edge = tuple[Sequence[str], str]


def _branch_weights(num_iterations: int | None) -> str:
    """Return the metadata of a loop's last branch with its probability, if the number of iterations is static.

    Without it LLVM takes deeper loops for more frequent ones, so that constants of an epilogue would stay in registers while
    accumulators of the loop before it are spilled.
    """
    if num_iterations is None:
        return ""
    return f', !prof !{{!"branch_weights", i32 {max(1, num_iterations - 1)}, i32 1}}'


class LlvmControlWriter(LlvmWriter):
    """Emit structured control flow as basic blocks."""

    def _names(self, types: Sequence[Register]) -> list[str]:
        return [f"%{self.fresh()}" for _ in types]

    def _phis(self, names: Sequence[str], types: Sequence[Register], *edges: _Edge) -> None:
        for i, (name, t) in enumerate(zip(names, types, strict=True)):
            incoming = ", ".join(f"[ {values[i]}, %{label} ]" for values, label in edges)
            line = Line(f"  {name} = phi {llvm_type(t)} {incoming}", name, tuple(values[i] for values, _ in edges))
            self.scopes[-1].lines.append(line)

    def write_loop(self, loop: LoopRecord) -> None:
        types, initial, wide = (
            register_types(self, loop.initial_values),
            value_registers(self, loop.initial_values),
            [Register("i64")],
        )
        start, end, step = map(self.materialize, (loop.low, loop.high, loop.step))
        head, exit = self.fresh("loop"), self.fresh("done")
        counter, next_counter = f"%{self.fresh('i')}", f"%{self.fresh('i')}"
        arguments = self._names(types)

        def body() -> list[str]:
            self.bind(loop.induction, [counter])
            bind_values(self, loop.body_arguments, arguments)
            return value_registers(self, loop.visit())

        inner, results = emit_region(self, body, head)
        outer = self.scopes[-1]
        before_guard = outer.label
        if not loop.has_static_bounds:  # The loop tests its condition at the end, so an empty range must skip it.
            enter = self.fresh("enter")
            self.emit(f"br i1 {self.define(f'icmp slt i64 {start}, {end}', start, end)}, label %{enter}, label %{exit}")
            self.start_block(enter)
        entry_label = outer.label
        self.emit(f"br label %{head}")
        outer.lines.append(Line(f"{head}:"))
        self._phis([counter], wide, ([start], entry_label), ([next_counter], inner.label))
        self._phis(arguments, types, (initial, entry_label), (results, inner.label))
        outer.lines += inner.lines
        outer.lines.append(Line(f"  {next_counter} = add nsw i64 {counter}, {step}", next_counter, (counter, step)))
        loop_condition = self.define(f"icmp slt i64 {next_counter}, {end}", next_counter, end)
        self.emit(f"br i1 {loop_condition}, label %{head}, label %{exit}{_branch_weights(loop.num_iterations)}")
        self.start_block(exit)
        if not loop.has_static_bounds and types:
            phi_names = self._names(types)
            self._phis(phi_names, types, (initial, before_guard), (results, inner.label))
            results = phi_names
        bind_values(self, loop.results, results)

    def write_while(self, op: scf.WhileOp, condition: int, forwarded: Sequence[int]) -> None:
        types, initial = register_types(self, op.arguments), value_registers(self, op.arguments)
        head, exit = self.fresh("loop"), self.fresh("done")
        block = op.after_region.block
        arguments = self._names(types)

        def body() -> list[str]:
            bind_values(self, op.before_region.block.args, arguments)
            for argument, k in zip(block.args, forwarded, strict=True):
                self.bind(argument, self.regs(op.before_region.block.args[k]))
            return value_registers(self, self.visit_block(block))

        inner, results = emit_region(self, body, head)
        # Registers of the carried values before `condition`, which itself has one.
        position = len(register_types(self, op.arguments[:condition]))
        outer = self.scopes[-1]
        entry = outer.label
        self.emit(f"br i1 {initial[position]}, label %{head}, label %{exit}")
        outer.lines.append(Line(f"{head}:"))
        self._phis(arguments, types, (initial, entry), (results, inner.label))
        outer.lines += inner.lines
        self.emit(f"br i1 {results[position]}, label %{head}, label %{exit}")
        self.start_block(exit)
        finals = self._names(types)
        self._phis(finals, types, (initial, entry), (results, inner.label))
        bind_values(self, op.before_region.block.args, finals)
        for result, k in zip(op.res, forwarded, strict=True):
            self.bind(result, self.regs(op.before_region.block.args[k]))

    def write_if(self, op: scf.IfOp, condition: str) -> None:
        types, join = register_types(self, op.output), self.fresh("join")
        labels = [self.fresh("then"), self.fresh("else")]

        def emit_branch(region: Region) -> list[str]:
            return value_registers(self, self.visit_block(region.block) if region.blocks else ())

        branches: list[tuple[EmissionScope, list[str]]] = []
        for region, label in zip((op.true_region, op.false_region), labels, strict=True):
            branches.append(emit_region(self, lambda p=region: emit_branch(p), label))
        self.emit(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        for (scope, _), label in zip(branches, labels, strict=True):
            self.scopes[-1].lines += [Line(f"{label}:"), *scope.lines]
            self.emit(f"br label %{join}")
        self.start_block(join)
        phi_names = self._names(types)
        self._phis(phi_names, types, *((values, scope.label) for scope, values in branches))
        bind_values(self, op.output, phi_names)

"""LLVM IR text of a kernel, from its function at the end of the loops stage, in one visit.

    func.func @k(%x: memref<…>, %y: memref<…>) attributes {kernel} {
      scf.parallel (%i, %j) = … {level = "grid"} { … }        →   define void @k.0(ptr %args, i64 %task)
      scf.parallel (%i) = … {level = "grid"} { … }            →   define void @k.1(ptr %args, i64 %task)
    }

Each top-level parallel loop becomes one function that computes the point number `task` of its grid, row-major; `args`
points to the buffers' addresses in the order of the arguments. Top-level code between grids is a grid of one point.
Constants, casts and views at the top level are written again in each function that uses them. The body is an inner
function, because only arguments can be `noalias`.

The text has no module header and no numbered attribute groups, so texts of kernels can be joined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from dlc.backends.cpu import emit_arith, emit_constants, emit_control, emit_memory, emit_vector
from dlc.backends.cpu.emit_core import Emitter, element_bytes
from dlc.backends.cpu.emit_order import sink_to_uses
from dlc.backends.grids import grids_of, is_grid
from dlc.backends.linear import Linear
from dlc.dialects.sizes import size_arguments, size_of, symbol
from dlc.dims import Size, product
from dlc.errors import CompileError
from dlc.ir import DYNAMIC_INDEX, IndexType, Operation, OpResult, SSAValue, func, scf
from dlc.target import Target

HANDLERS: dict[str, Callable[[Emitter, Operation], None]] = {
    **emit_constants.HANDLERS,
    **emit_arith.HANDLERS,
    **emit_memory.HANDLERS,
    **emit_vector.HANDLERS,
    **emit_control.HANDLERS,
}


@dataclass(frozen=True)
class KernelText:
    """LLVM IR text that defines `@<name>.<g>(ptr %args, i64 %task)` for each grid g, and each grid's number of tasks, which
    the kernel's sizes may decide."""

    text: str
    grids: tuple[Size, ...]


def emit_kernel(kernel: func.FuncOp, target: Target) -> KernelText:
    """The LLVM IR of a kernel function at the end of the loops stage.

    Raises UnsupportedError for an op or type that the CPU backend does not emit.
    """
    name = kernel.sym_name.data
    texts: list[str] = []
    counts: list[Size] = []
    for ops in grids_of(kernel):
        grid = _Grid(kernel, target, f"{name}.{len(counts)}")
        counts.append(grid.emit(ops))
        texts.append(grid.text)
    return KernelText("\n".join(texts), tuple(counts))


class _Grid:
    """Writes the function of one grid."""

    def __init__(self, kernel: func.FuncOp, target: Target, name: str) -> None:
        self.block, self.name, self.target = kernel.body.block, _global(name), target
        self.body_name = _global(f"{name}.body")
        self.emitter = Emitter(target, HANDLERS, kernel.sym_name.data)
        self.emitter.shared = self.define_shared
        self.emitter.sizes = {symbol(k): a for k, a in enumerate(size_arguments(self.block))}
        self.used: list[int] = []  # arguments
        self.text = ""

    def emit(self, ops: Sequence[Operation]) -> Size:
        """Writes `text`; returns the number of tasks."""
        tasks = self.enter_grid(ops[0]) if is_grid(ops[0]) else 1
        if tasks != 0:
            if is_grid(ops[0]):
                self.emitter.visit_block(ops[0].regions[0].block)
            else:
                for op in ops:
                    self.emitter.visit(op)
        self.text = self.body_function() + self.task_function()
        return tasks

    def enter_grid(self, op: Operation) -> Size:
        """Binds the induction variables to the point number %task; returns the number of points."""
        assert isinstance(op, scf.ParallelOp)
        e = self.emitter
        sizes: list[Size] = []
        starts_and_steps: list[tuple[int, int]] = []
        for low, high, step in zip(*(map(size_of, vs) for vs in (op.lowerBound, op.upperBound, op.step)), strict=True):
            if not isinstance(low, int) or not isinstance(step, int):
                raise CompileError(f"kernel @{e.kernel}: a grid needs a constant lower bound and step")
            sizes.append(max(0, -(-(high - low) // step)) if isinstance(high, int) else -(-(high - low) // step))
            starts_and_steps.append((low, step))
        points = product(sizes)
        rest = "%task"
        for d in reversed(range(len(sizes))) if points != 0 else ():
            start, step = starts_and_steps[d]
            position = rest
            if d and sizes[d] == 1:
                position = "0"
            elif d:
                count = self.count(sizes[d], op.upperBound[d], start, step)
                position, rest = (e.define(f"{opcode} i64 {rest}, {count}") for opcode in ("urem", "udiv"))
            e.linears[op.body.block.args[d]] = Linear(start).plus(e.term(position), step)
        return points

    def count(self, points: Size, high: SSAValue, start: int, step: int) -> str:
        """How many points a grid has along a dimension."""
        if isinstance(points, int):
            return str(points)
        e = self.emitter
        total = e.materialize(e.linear(high).plus(Linear(step - 1 - start)))
        return total if step == 1 else e.define(f"udiv i64 {total}, {step}")

    def define_shared(self, value: SSAValue) -> None:
        """A value of the kernel's top level, written at the start of this function."""
        e = self.emitter
        if value.owner is self.block:
            argument = self.block.args.index(value)
            self.used.append(argument)
            if isinstance(value.type, IndexType):
                e.linears[value] = Linear(0, ((0, f"%a{argument}", 1),))
                return
            align = element_bytes(emit_memory.memref_type(value).element_type)
            e.views[value] = emit_memory.view_of(e, f"%a{argument}", align, value, Linear(0))
        elif isinstance(value, OpResult) and value.op.parent is self.block and not value.op.regions:
            inner = e.scopes[1:]
            del e.scopes[1:]
            e.visit(value.op)
            e.scopes.extend(inner)
        else:
            e.undefined(value)

    def body_function(self) -> str:
        e = self.emitter
        parameters = "".join(f"{self.parameter(i)}, " for i in self.used)
        lines = [*e.allocas, *sink_to_uses([*e.scopes[0].lines, "  ret void"])]
        return (
            f"define internal void {self.body_name}({parameters}i64 %task) {attributes(self.target)} {{\nentry:\n"
            + "\n".join(lines)
            + "\n}\n"
        )

    def parameter(self, argument: int) -> str:
        name = f"%a{argument}"
        if self.is_size(argument):
            return f"i64 {name}"
        type = emit_memory.memref_type(self.block.args[argument])
        align = element_bytes(type.element_type)
        # What is as large as the kernel's sizes say may be empty.
        size = prod(type.get_shape()) * align if DYNAMIC_INDEX not in type.get_shape() else 0
        access = "" if name in self.emitter.stored else "readonly "
        # A caller's array is read and written where it is, and NumPy's are rarely more aligned than their elements.
        sized = f"dereferenceable({size}) " if size else ""
        return f"ptr noalias nonnull align {align} {sized}{access}{name}"

    def is_size(self, argument: int) -> bool:
        """Whether an argument is a number, in place of an address."""
        return isinstance(self.block.args[argument].type, IndexType)

    def task_function(self) -> str:
        lines: list[str] = []
        for i in self.used:
            kind = "i64" if self.is_size(i) else "ptr"
            lines.append(f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}\n  %a{i} = load {kind}, ptr %p{i}, align 8\n")
        passed = "".join(f"{'i64' if self.is_size(i) else 'ptr'} %a{i}, " for i in self.used)
        return (
            f"define void {self.name}(ptr %args, i64 %task) {attributes(self.target)} {{\n{''.join(lines)}"
            f"  tail call void {self.body_name}({passed}i64 %task)\n  ret void\n}}\n"
        )


def attributes(target: Target) -> str:
    """What the code generator must know of the processor, and that it may call no library."""
    features = ",".join(f"+{f}" for f in target.features)
    return (
        f'nounwind "no-builtins" "target-cpu"="{target.cpu}" "target-features"="{features}" '
        f'"prefer-vector-width"="{8 * target.vector_bytes}"'
    )


def _global(name: str) -> str:
    return f"@{name}" if re.fullmatch(r"[\w$.-]+", name) and not name[0].isdigit() else '@"' + name.replace('"', "\\22") + '"'

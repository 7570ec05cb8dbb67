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

from dlc.emission.llvm import arith, constants, control, memory, vectors
from dlc.emission.llvm.core import Emitter, element_bytes
from dlc.emission.llvm.order import sink_to_uses
from dlc.emission.visit.grids import grids_of, is_grid
from dlc.emission.visit.linear import Linear
from dlc.errors import CompileError
from dlc.ir import Operation, OpResult, SSAValue, func, scf
from dlc.target import Target

HANDLERS: dict[str, Callable[[Emitter, Operation], None]] = {
    **constants.HANDLERS,
    **arith.HANDLERS,
    **memory.HANDLERS,
    **vectors.HANDLERS,
    **control.HANDLERS,
}


@dataclass(frozen=True)
class KernelText:
    """LLVM IR text that defines `@<name>.<g>(ptr %args, i64 %task)` for each grid g, and each grid's number of tasks."""

    text: str
    grids: tuple[int, ...]


def emit_kernel(kernel: func.FuncOp, target: Target) -> KernelText:
    """The LLVM IR of a kernel function at the end of the loops stage.

    Raises UnsupportedError for an op or type that the CPU backend does not emit.
    """
    name = kernel.sym_name.data
    texts: list[str] = []
    counts: list[int] = []
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
        self.used: list[int] = []  # arguments
        self.text = ""

    def emit(self, ops: Sequence[Operation]) -> int:
        """Writes `text`; returns the number of tasks."""
        tasks = self.enter_grid(ops[0]) if is_grid(ops[0]) else 1
        if tasks:
            if is_grid(ops[0]):
                self.emitter.visit_block(ops[0].regions[0].block)
            else:
                for op in ops:
                    self.emitter.visit(op)
        self.text = self.body_function() + self.task_function()
        return tasks

    def enter_grid(self, op: Operation) -> int:
        """Binds the induction variables to the point number %task; returns the number of points."""
        assert isinstance(op, scf.ParallelOp)
        e = self.emitter
        sizes: list[int] = []
        ranges = zip(*([e.linear(v) for v in vs] for vs in (op.lowerBound, op.upperBound, op.step)), strict=True)
        starts_and_steps: list[tuple[int, int]] = []
        for low, high, step in ranges:
            if low.terms or high.terms or step.terms:
                raise CompileError(f"kernel @{e.kernel}: a grid needs constant bounds and steps")
            sizes.append(max(0, -(-(high.constant - low.constant) // step.constant)))
            starts_and_steps.append((low.constant, step.constant))
        rest = "%task"
        for d in reversed(range(len(sizes))) if prod(sizes) else ():
            position = rest
            if d:
                position = e.define(f"urem i64 {rest}, {sizes[d]}") if sizes[d] > 1 else "0"
                rest = e.define(f"udiv i64 {rest}, {sizes[d]}") if sizes[d] > 1 else rest
            start, step = starts_and_steps[d]
            e.linears[op.body.block.args[d]] = Linear(start).plus(e.term(position), step)
        return prod(sizes)

    def define_shared(self, value: SSAValue) -> None:
        """A value of the kernel's top level, written at the start of this function."""
        e = self.emitter
        if value.owner is self.block:
            argument = self.block.args.index(value)
            self.used.append(argument)
            align = element_bytes(memory.memref_type(value).element_type)
            e.views[value] = memory.view_of(f"%a{argument}", align, value, Linear(0))
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
        name, type = f"%a{argument}", memory.memref_type(self.block.args[argument])
        align = element_bytes(type.element_type)
        size = prod(type.get_shape()) * align
        access = "" if name in self.emitter.stored else "readonly "
        # A caller's array is read and written where it is, and NumPy's are rarely more aligned than their elements.
        sized = f"dereferenceable({size}) " if size else ""
        return f"ptr noalias nonnull align {align} {sized}{access}{name}"

    def task_function(self) -> str:
        lines: list[str] = []
        for i in self.used:
            lines.append(f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}\n  %a{i} = load ptr, ptr %p{i}, align 8\n")
        passed = "".join(f"ptr %a{i}, " for i in self.used)
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

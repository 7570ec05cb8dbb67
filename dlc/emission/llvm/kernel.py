"""LLVM IR text of a kernel, from its function at the end of the loops stage, in one visit.

    func.func @k(%x: memref<…>, %y: memref<…>) attributes {kernel} {
      scf.parallel (%i, %j) = … {level = "grid"} { … }        →   define void @k.0(ptr %args, i64 %task)
      scf.parallel (%i) = … {level = "grid"} { … }            →   define void @k.1(ptr %args, i64 %task)
    }

Each top-level parallel loop becomes one function that computes the point number `task` of its grid, row-major; `args`
points to the buffers' addresses in the order of the arguments. Top-level code between grids is a grid of one point.
Constants, casts and views at the top level are written again in each function that uses them. That buffers do not overlap
is said of each access (aliases.py).

The text has no module header and no numbered attribute groups, so texts of kernels can be joined (`aliases.joined`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects.sizes import size_arguments
from dlc.dims import Size, product
from dlc.emission.llvm import arith
from dlc.emission.llvm.aliases import Aliases
from dlc.emission.llvm.control import ControlWriter
from dlc.emission.llvm.dots import DotWriter, Facts
from dlc.emission.llvm.memory import MemoryWriter, prefetch
from dlc.emission.llvm.order import ordered
from dlc.emission.llvm.vectors import VectorWriter
from dlc.emission.visit import control, memory, vectors
from dlc.emission.visit.grids import buffer_bytes, grids_of, is_grid
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.registers import Register, element_bytes, memref_type
from dlc.emission.visit.visit import Handlers
from dlc.ir import IndexType, Operation, SSAValue, func, scf
from dlc.target import Target

HANDLERS: Handlers = {
    **vectors.HANDLERS,
    **memory.HANDLERS,
    **control.HANDLERS,
    **arith.HANDLERS,
    "memref.prefetch": prefetch,
}


@dataclass(frozen=True)
class KernelText:
    """LLVM IR text that defines `@<name>.<g>(ptr %args, i64 %task)` for each grid g, and each grid's number of tasks.

    `sizes`: how many the kernel takes as arguments, behind its buffers; `bytes`: what its buffers have.
    """

    text: str
    grids: tuple[Size, ...]
    sizes: int
    bytes: tuple[Size, ...]


def emit_kernel(kernel: func.FuncOp, target: Target, grid_writer: GridWriter | None = None) -> KernelText:
    """The LLVM IR of a kernel function at the end of the loops stage; `grid_writer` makes what writes each of its grids.

    Raises UnsupportedError for an op or type that cannot be emitted.
    """
    texts: list[str] = []
    counts: list[Size] = []
    facts = Facts.of(kernel, target)
    for ops in grids_of(kernel):
        grid = (grid_writer or Grid)(kernel, target, facts, len(counts))
        counts.append(grid.write(ops))
        texts.append(grid.function())
    texts.append(Aliases(kernel).text())
    return KernelText("\n".join(texts), tuple(counts), len(size_arguments(kernel.body.block)), buffer_bytes(kernel))


class Grid(DotWriter, MemoryWriter, VectorWriter, ControlWriter):
    """Writes the function of one grid; `debug` stands behind its attributes, for debuggers."""

    debug = ""

    def __init__(self, kernel: func.FuncOp, target: Target, facts: Facts, number: int) -> None:
        super().__init__(kernel, target, facts, HANDLERS)
        self.name = _global(f"{self.kernel}.{number}")
        self.used: list[int] = []  # arguments

    def write(self, ops: Sequence[Operation]) -> Size:
        """Visits the grid's ops; returns the number of tasks."""
        if not is_grid(ops[0]):
            for op in ops:
                self.visit(op)
            return 1
        axes = control.axes_of(self, ops[0])
        tasks = product(axis.size for axis in axes)
        if tasks != 0:
            self._enter(ops[0], axes)
            self.visit_block(ops[0].regions[0].block)
        return tasks

    def _count(self, axis: control.Axis, high: SSAValue) -> str:
        """How many points a grid has along an axis whose end is known only when the kernel runs."""
        total = self.materialize(self.linear(high).plus(Linear(axis.step - 1 - axis.start)))
        return total if axis.step == 1 else self.compute("udiv", Register("i64"), total, str(axis.step))

    def _enter(self, op: Operation, axes: Sequence[control.Axis]) -> None:
        """Binds the induction variables to the point number %task."""
        assert isinstance(op, scf.ParallelOp)
        rest, wide = "%task", Register("i64")
        for d, axis in reversed(list(enumerate(axes))):
            position = rest
            if d and axis.size == 1:
                position = "0"
            elif d:
                size = str(axis.size) if isinstance(axis.size, int) else self._count(axis, op.upperBound[d])
                position, rest = (self.compute(opcode, wide, rest, size) for opcode in ("urem", "udiv"))
            self.linears[axis.induction] = Linear(axis.start).plus(self.term(position), axis.step)

    def shared(self, value: SSAValue) -> None:
        if value.owner is not self.block:
            super().shared(value)
            return
        argument = self.block.args.index(value)
        self.used.append(argument)
        if self.is_size(argument):
            self.linears[value] = Linear(0, ((0, f"%a{argument}", 1),))
            return
        align = element_bytes(self.kind(memref_type(value).element_type))
        self.views[value] = memory.view_of(self, f"%a{argument}", align, value)

    def function(self) -> str:
        self.emit("ret void")
        lines = [*self.allocas]
        for i in self.used:
            kind = "i64" if self.is_size(i) else "ptr"
            lines += [f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}", f"  %a{i} = load {kind}, ptr %p{i}, align 8"]
        lines += ordered(self.scopes[0].lines)
        return (
            f"define void {self.name}(ptr %args, i64 %task) {attributes(self.target)}{self.debug} {{\nentry:\n"
            + "\n".join(lines)
            + "\n}\n"
        )

    def is_size(self, argument: int) -> bool:
        """Whether an argument is a number, in place of an address."""
        return isinstance(self.block.args[argument].type, IndexType)


# Of a kernel, for a target, with what is known of it, its grid of a number.
GridWriter = Callable[[func.FuncOp, Target, Facts, int], Grid]


def attributes(target: Target) -> str:
    """What the code generator must know of the processor, and that it may call no library."""
    features = ",".join(f"+{f}" for f in target.features)
    return (
        f'nounwind "no-builtins" "target-cpu"="{target.cpu}" "target-features"="{features}" '
        f'"prefer-vector-width"="{8 * target.vector_bytes}"'
    )


def _global(name: str) -> str:
    return f"@{name}" if re.fullmatch(r"[\w$.-]+", name) and not name[0].isdigit() else '@"' + name.replace('"', "\\22") + '"'

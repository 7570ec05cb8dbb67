"""LLVM IR text of a kernel, from its function at the end of the loops stage, in one traversal.

    func.func @k(%x: memref<…>, %y: memref<…>) attributes {kernel} {
      scf.parallel (%i, %j) = … {level = "grid"} { … }        →   define void @k.0(ptr %args, i64 %task)
      scf.parallel (%i) = … {level = "grid"} { … }            →   define void @k.1(ptr %args, i64 %task)
    }

Each top-level parallel loop becomes one function that computes the point with the row-major index `task` of its grid; `args`
points to the buffers' addresses in the order of the arguments. Top-level code between grids becomes a grid of one point, and
adjacent grids of one point become one function.
Constants, casts and views at the top level are emitted again in each function that uses them. Metadata on each access states
that buffers do not overlap (alias_scopes.py).

The text has no module header and no numbered attribute groups, so that texts of kernels can be joined
(`alias_scopes.join_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects.compress import CompressOp
from dlc.dialects.ldexp import MathLdexpOp
from dlc.dialects.sizes import size_arguments
from dlc.emission.common import control, memory, vectors
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.grids import GridAxis, buffer_bytes, grid_axes, is_grid, join_single_tasks, split_grids
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.registers import Register, element_bytes, memref_type
from dlc.emission.llvm import arith
from dlc.emission.llvm.alias_scopes import AliasScopes
from dlc.emission.llvm.compress import compress
from dlc.emission.llvm.control import LlvmControlWriter
from dlc.emission.llvm.core import global_name
from dlc.emission.llvm.dot_products import KernelAnalysis, LlvmDotProductWriter
from dlc.emission.llvm.instruction_order import schedule_lines
from dlc.emission.llvm.ldexp import ldexp
from dlc.emission.llvm.memory import LlvmMemoryWriter, prefetch
from dlc.emission.llvm.vectors import LlvmVectorWriter, shuffle
from dlc.ir import IndexType, Operation, SSAValue, func, scf
from dlc.shapes.dims import Size, product
from dlc.target import Target

HANDLERS: Handlers = {
    **vectors.HANDLERS,
    **memory.HANDLERS,
    **control.HANDLERS,
    **arith.HANDLERS,
    "memref.prefetch": prefetch,
    CompressOp.name: compress,
    MathLdexpOp.name: arith.elementwise(ldexp),
    "vector.shuffle": shuffle,
}


@dataclass(frozen=True)
class LlvmKernel:
    """The LLVM IR of a kernel.

    Attributes:
        text: Defines `@<name>.<g>(ptr %args, i64 %task)` for each grid g.
        grids: The number of tasks of each grid.
        sizes: The number of size arguments, which follow the buffers.
        bytes: The size in bytes of each buffer.
    """

    text: str
    grids: tuple[Size, ...]
    sizes: int
    bytes: tuple[Size, ...]


def emit_kernel(kernel: func.FuncOp, target: Target, grid_writer: GridWriterFactory | None = None) -> LlvmKernel:
    """Emit the LLVM IR of a kernel at the end of the loops stage; `grid_writer` constructs the writer of each grid.

    Raises UnsupportedError for an op or type that cannot be emitted.
    """
    texts: list[str] = []
    counts: list[Size] = []
    analysis = KernelAnalysis.of(kernel, target)
    for ops in join_single_tasks(split_grids(kernel)):
        grid = (grid_writer or GridWriter)(kernel, target, analysis, len(counts))
        counts.append(grid.write(ops))
        texts.append(grid.function())
    texts.append(AliasScopes(kernel).text())
    return LlvmKernel("\n".join(texts), tuple(counts), len(size_arguments(kernel.body.block)), buffer_bytes(kernel))


class GridWriter(LlvmDotProductWriter, LlvmMemoryWriter, LlvmVectorWriter, LlvmControlWriter):
    """Emit the function of one grid; `debug` is appended to its attributes, for debug information."""

    debug = ""

    def __init__(self, kernel: func.FuncOp, target: Target, analysis: KernelAnalysis, grid_index: int) -> None:
        super().__init__(kernel, target, analysis, HANDLERS)
        self.function_name = f"{self.kernel}.{grid_index}"
        self.used: list[int] = []  # The indices of the arguments that the function uses.

    def write(self, ops: Sequence[Operation]) -> Size:
        """Emit the ops of the grid and return the number of tasks; several ops have one task."""
        tasks: Size = 1
        for op in ops:
            if not isinstance(op, scf.ParallelOp) or not is_grid(op):
                self.visit(op)
                continue
            axes = grid_axes(op)
            tasks = product(axis.size for axis in axes)
            if tasks != 0:
                self._enter(op, axes)
                self.visit_block(op.body.block)
        return tasks

    def _count(self, axis: GridAxis, high: SSAValue) -> str:
        """Emit the number of points of a grid along an axis whose upper bound is dynamic."""
        count = self.materialize(self.linear(high).plus(LinearExpression(axis.step - 1 - axis.start)))
        return count if axis.step == 1 else self.compute("udiv", Register("i64"), count, str(axis.step))

    def _enter(self, op: scf.ParallelOp, axes: Sequence[GridAxis]) -> None:
        """Bind the induction variables to the point with index %task."""
        remaining, i64 = "%task", Register("i64")
        for d, axis in reversed(list(enumerate(axes))):
            if axis.size == 1:
                self.linear_expressions[axis.induction] = LinearExpression(axis.start)
                continue
            position = remaining
            if d:
                size = str(axis.size) if isinstance(axis.size, int) else self._count(axis, op.upperBound[d])
                position, remaining = (self.compute(opcode, i64, remaining, size) for opcode in ("urem", "udiv"))
            self.linear_expressions[axis.induction] = LinearExpression(axis.start).plus(self.term(position), axis.step)

    def emit_top_level_value(self, value: SSAValue) -> None:
        if value.owner is not self.block:
            super().emit_top_level_value(value)
            return
        argument = self.block.args.index(value)
        self.used.append(argument)
        if self.is_size(argument):
            self.linear_expressions[value] = LinearExpression(0, ((0, f"%a{argument}", 1),))
            return
        align = element_bytes(self.kind(memref_type(value).element_type))
        self.views[value] = memory.memref_address(self, f"%a{argument}", align, value)

    def function(self) -> str:
        """Return the text of the function."""
        self.emit("ret void")
        lines = [*self.allocas]
        for i in self.used:
            kind = "i64" if self.is_size(i) else "ptr"
            lines += [f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}", f"  %a{i} = load {kind}, ptr %p{i}, align 8"]
        lines += schedule_lines(self.scopes[0].lines)
        constants = [f"{name} = private unnamed_addr {text}\n" for name, text in self.global_constants.items()]
        signature = f"define void {global_name(self.function_name)}(ptr %args, i64 %task)"
        head = f"{signature} {function_attributes(self.target)}{self.debug} {{\nentry:\n"
        return "".join(constants) + head + "\n".join(lines) + "\n}\n"

    def is_size(self, argument: int) -> bool:
        """Return whether an argument is an integer size instead of an address."""
        return isinstance(self.block.args[argument].type, IndexType)


# (kernel, target, analysis, grid index) → writer
GridWriterFactory = Callable[[func.FuncOp, Target, KernelAnalysis, int], GridWriter]


def function_attributes(target: Target) -> str:
    """Return the function attributes: processor and features for the code generator, and no calls of library functions."""
    features = ",".join(f"+{f}" for f in target.features)
    return (
        f'nounwind "no-builtins" "target-cpu"="{target.cpu}" "target-features"="{features}" '
        f'"prefer-vector-width"="{8 * target.vector_bytes}"'
    )

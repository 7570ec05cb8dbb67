"""A kernel's functions in a dialect of C, from its function at the end of the loops stage, in one traversal.

    func.func @k(%x: memref<…>, %y: memref<…>) attributes {kernel} {
      scf.parallel (%i, %j) = … {level = "grid"} { … }        →   k_0(x, y)
      scf.parallel (%i) = … {level = "grid"} { … }            →   k_1(x, y)
    }

Each top-level parallel loop becomes one function of all arguments that computes one point of its grid (row-major). Inside it,
an `scf.parallel {level = "item"}` is one work-item of a work-group. Top-level code between grids becomes a grid of one point.
Constants, casts and views at the top level are emitted again in each function that uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.sizes import size_arguments, symbol
from dlc.emission.c import arith, control, convert, matrices, memory
from dlc.emission.c.control import CControlWriter
from dlc.emission.c.memory import CMemoryWriter, read_buffers, written_buffers
from dlc.emission.c.statements import render, reorder_statements
from dlc.emission.c.syntax import Syntax
from dlc.emission.c.vectors import CVectorWriter
from dlc.emission.common import vectors
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.grids import buffer_bytes, is_grid, split_grids
from dlc.ir import Operation, SSAValue, func
from dlc.runtime.program.kernel_text import Grid, program_text
from dlc.shapes.dims import Size
from dlc.target import Target

HANDLERS: Handlers = {
    **vectors.HANDLERS,
    **memory.HANDLERS,
    **control.HANDLERS,
    **arith.HANDLERS,
    **convert.HANDLERS,
    **matrices.HANDLERS,
}


@dataclass(frozen=True)
class KernelSource:
    """A kernel as functions `<name>_<g>`, one for each of its grids.

    Attributes:
        grids: The launch configuration of each function; a grid of zero groups is empty.
        sizes: The number of size arguments, which follow the buffers.
        bytes: The size in bytes of each buffer.
        definitions: The types and helper functions that the functions use.
        header: The first lines of the program.
    """

    name: str
    functions: str
    grids: tuple[Grid, ...]
    sizes: int
    bytes: tuple[Size, ...]
    definitions: tuple[str, ...] = ()
    header: str = ""

    @property
    def chunks(self) -> tuple[str, ...]:
        """The source text in chunks; chunks that kernels may share are first."""
        return (*filter(None, [self.header]), *self.definitions, self.functions)

    @property
    def text(self) -> str:
        """The source of a program that contains only this kernel."""
        return program_text([self])


def emit(kernel: func.FuncOp, target: Target, syntax: Syntax) -> KernelSource:
    """Emit the functions of a kernel at the end of the loops stage.

    Raises UnsupportedError for an op or type that the dialect or the device does not support.
    """
    name = kernel.sym_name.data
    texts: list[str] = []
    grids: list[Grid] = []
    definitions: dict[str, None] = {}
    written_values = written_buffers(kernel)
    for ops in split_grids(kernel):
        function = _GridFunction(kernel, target, syntax, definitions, written_values)
        grids.append(function.write(ops))
        texts.append(function.text(f"{name}_{len(texts)}", grids[-1]))
    sizes, bytes = len(size_arguments(kernel.body.block)), buffer_bytes(kernel)
    return KernelSource(name, "\n".join(texts), tuple(grids), sizes, bytes, tuple(definitions), syntax.header)


class _GridFunction(CMemoryWriter, CVectorWriter, CControlWriter):
    """Emit the function of one grid."""

    def __init__(
        self, kernel: func.FuncOp, target: Target, syntax: Syntax, definitions: dict[str, None], written: set[SSAValue]
    ) -> None:
        super().__init__(kernel, target, HANDLERS, syntax, definitions)
        # Declare the sizes first although they are the last parameters: the strides of buffers depend on them.
        sizes = [self.size_argument(argument, symbol(k)) for k, argument in enumerate(size_arguments(self.block))]
        buffers = self.block.args[: len(self.block.args) - len(sizes)]
        self.parameters = [
            *(self.array_argument(a, a.name_hint or f"a{k}", written=a in written) for k, a in enumerate(buffers)),
            *sizes,
        ]

    def write(self, ops: Sequence[Operation]) -> Grid:
        """Emit the body: one parallel loop, or the ops between two of them."""
        if not is_grid(ops[0]):
            for op in ops:
                self.visit(op)
            return Grid(1, 1)
        groups = self.bind_grid_point(ops[0], self.work_id("group"))
        shared_buffers = read_buffers(ops[0]) & written_buffers(ops[0])
        self.synchronizes_globally = any(buffer in shared_buffers for buffer in self.block.args)
        if groups != 0:
            self.visit_block(ops[0].regions[0].block)
        return Grid(groups, self.items, self.group_bytes)

    def text(self, name: str, grid: Grid) -> str:
        """Return the text of the function."""
        parameters = ",".join(f"\n    {parameter}" for parameter in self.parameters)
        lines = [
            f"// {grid.groups} group{'s' * (grid.groups != 1)} of {grid.items}",
            self.syntax.function.format(name=name, parameters=parameters, items=grid.items),
            "{",
            *(f"    {line}" for line in self.declarations),
            *render(reorder_statements(self.scopes[0].lines)),
            "}",
            "",
        ]
        return "\n".join(lines)

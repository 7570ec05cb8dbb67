"""A kernel's functions in a dialect of C, from its function at the end of the loops stage, in one visit.

    func.func @k(%x: memref<…>, %y: memref<…>) attributes {kernel} {
      scf.parallel (%i, %j) = … {level = "grid"} { … }        →   k_0(x, y)
      scf.parallel (%i) = … {level = "grid"} { … }            →   k_1(x, y)
    }

Each top-level parallel loop becomes one function of all arguments that computes one point of its grid, row-major; inside it,
an `scf.parallel {level = "item"}` is one item of a group. Top-level code between grids is a grid of one point. Constants,
casts and views at the top level are written again in each function that uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.sizes import size_arguments, symbol
from dlc.dims import Size
from dlc.emission.c import arith, control, convert, matrices, memory
from dlc.emission.c.control import ControlWriter
from dlc.emission.c.memory import MemoryWriter, read_by, written_by
from dlc.emission.c.syntax import Syntax
from dlc.emission.c.text import render, tidy
from dlc.emission.c.vectors import VectorWriter
from dlc.emission.visit import vectors
from dlc.emission.visit.grids import buffer_bytes, grids_of, is_grid
from dlc.emission.visit.visit import Handlers
from dlc.ir import Operation, SSAValue, func
from dlc.runtime.program.kernel_text import Grid, program_text
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

    `sizes`: how many the kernel takes as arguments, behind its buffers; `bytes`: what these have. `definitions` are the types
    and functions that they use; `header` comes before everything. A grid of no groups has nothing to do.
    """

    name: str
    functions: str
    grids: tuple[Grid, ...]
    sizes: int
    bytes: tuple[Size, ...]
    definitions: tuple[str, ...] = ()
    header: str = ""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text, what several kernels may have in common first."""
        return (*filter(None, [self.header]), *self.definitions, self.functions)

    @property
    def text(self) -> str:
        """A program of this kernel alone."""
        return program_text([self])


def emit(kernel: func.FuncOp, target: Target, syntax: Syntax) -> KernelSource:
    """The functions of a kernel at the end of the loops stage.

    Raises UnsupportedError for an op or type that the dialect or the device lacks.
    """
    name = kernel.sym_name.data
    texts: list[str] = []
    grids: list[Grid] = []
    definitions: dict[str, None] = {}
    written = written_by(kernel)
    for ops in grids_of(kernel):
        function = _Function(kernel, target, syntax, definitions, written)
        grids.append(function.write(ops))
        texts.append(function.text(f"{name}_{len(texts)}", grids[-1]))
    sizes, bytes = len(size_arguments(kernel.body.block)), buffer_bytes(kernel)
    return KernelSource(name, "\n".join(texts), tuple(grids), sizes, bytes, tuple(definitions), syntax.header)


class _Function(MemoryWriter, VectorWriter, ControlWriter):
    """The function of one grid."""

    def __init__(
        self, kernel: func.FuncOp, target: Target, syntax: Syntax, definitions: dict[str, None], written: set[SSAValue]
    ) -> None:
        super().__init__(kernel, target, HANDLERS, syntax, definitions)
        # Sizes, which come last, are what strides of buffers are made of.
        sizes = [self.size_argument(argument, symbol(k)) for k, argument in enumerate(size_arguments(self.block))]
        buffers = self.block.args[: len(self.block.args) - len(sizes)]
        self.parameters = [
            *(self.array_argument(a, a.name_hint or f"a{k}", written=a in written) for k, a in enumerate(buffers)),
            *sizes,
        ]

    def write(self, ops: Sequence[Operation]) -> Grid:
        """Writes the body, of one parallel loop or of other ops."""
        if not is_grid(ops[0]):
            for op in ops:
                self.visit(op)
            return Grid(1, 1)
        groups = self.positions(ops[0], self.number("group"))
        shared = read_by(ops[0]) & written_by(ops[0])
        self.meets_globally = any(buffer in shared for buffer in self.block.args)
        if groups != 0:
            self.visit_block(ops[0].regions[0].block)
        return Grid(groups, self.items, self.group_bytes)

    def text(self, name: str, grid: Grid) -> str:
        parameters = ",".join(f"\n    {parameter}" for parameter in self.parameters)
        lines = [
            f"// {grid.groups} group{'s' * (grid.groups != 1)} of {grid.items}",
            self.syntax.function.format(name=name, parameters=parameters, items=grid.items),
            "{",
            *(f"    {line}" for line in self.declarations),
            *render(tidy(self.scopes[0].lines)),
            "}",
            "",
        ]
        return "\n".join(lines)

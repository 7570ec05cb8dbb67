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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.emission.c import arith, control, convert, memory, vectors, views
from dlc.emission.c.core import Emitter, Handlers
from dlc.emission.c.syntax import Syntax
from dlc.emission.c.text import render, tidy
from dlc.emission.visit.grids import grids_of, is_grid
from dlc.ir import Operation, OpResult, SSAValue, func, memref, vector
from dlc.target import Target

HANDLERS: Handlers = {
    **arith.HANDLERS,
    **convert.HANDLERS,
    **views.HANDLERS,
    **memory.HANDLERS,
    **vectors.HANDLERS,
    **control.HANDLERS,
}


@dataclass(frozen=True)
class Grid:
    """Runs of one function: `groups` of them, each by `items` at once."""

    groups: int
    items: int


@dataclass(frozen=True)
class KernelSource:
    """A kernel as functions `<name>_<g>`, one for each of its grids.

    `definitions` are the types and functions that they use; `header` comes before everything. A grid of no groups has
    nothing to do.
    """

    name: str
    functions: str
    grids: tuple[Grid, ...]
    definitions: tuple[str, ...] = ()
    header: str = ""

    @property
    def text(self) -> str:
        """A program of this kernel alone."""
        return program_text([self])


def program_text(kernels: Sequence[KernelSource]) -> str:
    """The text of a program of several kernels; what they share is written once."""
    headers = dict.fromkeys(k.header for k in kernels if k.header)
    definitions = dict.fromkeys(d for k in kernels for d in k.definitions)
    return "\n".join([*headers, *definitions, *(k.functions for k in kernels)])


def emit(kernel: func.FuncOp, target: Target, syntax: Syntax) -> KernelSource:
    """The functions of a kernel at the end of the loops stage.

    Raises UnsupportedError for an op or type that the dialect or the device lacks.
    """
    name = kernel.sym_name.data
    texts: list[str] = []
    grids: list[Grid] = []
    definitions: dict[str, None] = {}
    written = _written(kernel)
    for ops in grids_of(kernel):
        function = _Function(kernel, Emitter(syntax, target, HANDLERS, name, definitions), written)
        grids.append(function.visit(ops))
        texts.append(function.text(f"{name}_{len(texts)}", grids[-1]))
    return KernelSource(name, "\n".join(texts), tuple(grids), tuple(definitions), syntax.header)


def _written(kernel: func.FuncOp) -> set[SSAValue]:
    """The buffers that a kernel writes to."""
    written = set[SSAValue]()
    for op in kernel.walk():
        match op:
            case memref.StoreOp():
                buffer = op.memref
            case vector.TransferWriteOp():
                buffer = op.source
            case _:
                continue
        while isinstance(buffer, OpResult) and isinstance(buffer.op, memref.SubviewOp | memref.ReinterpretCastOp):
            buffer = buffer.op.source
        written.add(buffer)
    return written


class _Function:
    """The function of one grid."""

    def __init__(self, kernel: func.FuncOp, emitter: Emitter, written: Iterable[SSAValue]) -> None:
        self.block, self.emitter = kernel.body.block, emitter
        emitter.shared = self.define_shared
        for k, argument in enumerate(self.block.args):
            name = emitter.name(argument.name_hint or f"a{k}")
            emitter.views[argument] = views.argument_view(emitter, name, argument, argument in written)

    def visit(self, ops: Sequence[Operation]) -> Grid:
        """Writes the body, of one parallel loop or of other ops."""
        e = self.emitter
        if not is_grid(ops[0]):
            for op in ops:
                e.visit(op)
            return Grid(1, 1)
        groups = control.positions(e, ops[0], control.number(e, "group"))
        if groups:
            e.visit_block(ops[0].regions[0].block)
        return Grid(groups, e.items)

    def define_shared(self, value: SSAValue) -> None:
        """A value of the kernel's top level, written at the start of this function."""
        e = self.emitter
        if isinstance(value, OpResult) and value.op.parent is self.block and not value.op.regions:
            inner = e.scopes[1:]
            del e.scopes[1:]
            e.visit(value.op)
            e.scopes.extend(inner)
        else:
            e.undefined(value)

    def text(self, name: str, grid: Grid) -> str:
        e, syntax = self.emitter, self.emitter.syntax
        buffers = [e.views[a] for a in self.block.args]
        shapes = ["x".join(map(str, b.shape)) or "scalar" for b in buffers]
        parameters = ",".join(
            f"\n    {b.pointer}{syntax.restrict}{b.base} /* {shape} */" for b, shape in zip(buffers, shapes, strict=True)
        )
        lines = [
            f"// {grid.groups} group{'s' * (grid.groups != 1)} of {grid.items}",
            syntax.function.format(name=name, parameters=parameters, items=grid.items),
            "{",
            *(f"    {line}" for line in e.declarations),
            *render(tidy(e.scopes[0].lines)),
            "}",
            "",
        ]
        return "\n".join(lines)

"""LLVM IR that says for each instruction which line of the kernel's own text it comes from, as debuggers want it.

    %v70 = call <8 x float> @llvm.fma.v8f32(…), !dbg !DILocation(line: 27, scope: !3)

Lines count from 1 there, as debuggers have them. LLVM carries them through to the assembly code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dlc.emission.llvm.aliases import Aliases
from dlc.emission.llvm.dots import Facts
from dlc.emission.llvm.kernel import Grid, KernelText, emit_kernel
from dlc.emission.llvm.order import Line, Place
from dlc.ir import Operation, func
from dlc.target import Target

_COMMON = """
!llvm.dbg.cu = !{{!{0}}}
!llvm.module.flags = !{{!{2}}}
!{0} = distinct !DICompileUnit(language: DW_LANG_C, file: !{1}, producer: "dlc", isOptimized: true, runtimeVersion: 0, \
emissionKind: LineTablesOnly)
!{1} = !DIFile(filename: "loops", directory: "")
!{2} = !{{i32 2, !"Debug Info Version", i32 3}}
!{3} = !DISubroutineType(types: !{4})
!{4} = !{{null}}
"""
_NODES = 5


def traced_text(kernel: func.FuncOp, target: Target, lines: Mapping[Operation, int]) -> KernelText:
    """What `emit_kernel` gives; each instruction has the line of its op."""
    first = Aliases(kernel).nodes
    unit, file, _, type, _ = common = range(first, first + _NODES)
    functions: list[str] = []

    def grid(kernel: func.FuncOp, target: Target, facts: Facts, number: int) -> Grid:
        scope = f"!{first + _NODES + number}"
        functions.append(
            f'{scope} = distinct !DISubprogram(name: "{kernel.sym_name.data}.{number}", scope: !{file}, file: !{file}, '
            f"line: 1, type: !{type}, unit: !{unit}, spFlags: DISPFlagDefinition | DISPFlagOptimized)\n"
        )
        return _TracedGrid(kernel, target, facts, number, scope, lines)

    plain = emit_kernel(kernel, target, grid)
    return replace(plain, text=plain.text + _COMMON.format(*common) + "".join(functions))


class _TracedGrid(Grid):
    def __init__(
        self, kernel: func.FuncOp, target: Target, facts: Facts, number: int, scope: str, places: Mapping[Operation, int]
    ) -> None:
        super().__init__(kernel, target, facts, number)
        self.places, self.line = places, places[kernel]
        self.scope, self.debug = scope, f" !dbg {scope}"

    def visit(self, op: Operation) -> None:
        outer, self.line = self.line, self.places[op]
        super().visit(op)
        self.line = outer

    def emit(self, text: str) -> None:
        super().emit(text)
        self.locate()

    def define(self, text: str, *operands: str, place: Place = Place.FIXED) -> str:
        name = super().define(text, *operands, place=place)
        self.locate()
        return name

    def locate(self) -> None:
        """Says of the last instruction where it comes from."""
        lines: list[Line] = self.scopes[-1].lines
        lines[-1] = lines[-1]._replace(location=f", !dbg !DILocation(line: {self.line + 1}, scope: {self.scope})")

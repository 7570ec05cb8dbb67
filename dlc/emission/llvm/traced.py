"""LLVM IR that says for each instruction which line of the kernel's own text it comes from, as debuggers want it.

    %v70 = call <8 x float> @llvm.fma.v8f32(…), !dbg !DILocation(line: 27, scope: !3)

Lines count from 1 there, as debuggers have them. LLVM carries them through to the assembly code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dlc.emission.llvm.dots import Facts
from dlc.emission.llvm.kernel import Grid, KernelText, emit_kernel
from dlc.emission.llvm.order import Line, Place
from dlc.ir import Operation, func
from dlc.target import Target

_COMMON = """
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, producer: "dlc", isOptimized: true, runtimeVersion: 0, \
emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "loops", directory: "")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !DISubroutineType(types: !4)
!4 = !{null}
"""
# Of the first grid's body, then of the function that it is inlined into; those of the others follow.
_FIRST = 5


def traced_text(kernel: func.FuncOp, target: Target, lines: Mapping[Operation, int]) -> KernelText:
    """What `emit_kernel` gives; each instruction has the line of its op."""
    numbers: list[int] = []

    def grid(kernel: func.FuncOp, target: Target, facts: Facts, number: int) -> Grid:
        numbers.append(number)
        return _TracedGrid(kernel, target, facts, number, lines)

    plain = emit_kernel(kernel, target, grid)
    functions = [
        f'!{_FIRST + 2 * k + j} = distinct !DISubprogram(name: "{kernel.sym_name.data}.{k}{part}", scope: !1, file: !1, '
        "line: 1, type: !3, unit: !0, spFlags: DISPFlagDefinition | DISPFlagOptimized)\n"
        for k in numbers
        for j, part in enumerate((".body", ""))
    ]
    return replace(plain, text=plain.text + _COMMON + "".join(functions))


class _TracedGrid(Grid):
    def __init__(self, kernel: func.FuncOp, target: Target, facts: Facts, number: int, places: Mapping[Operation, int]) -> None:
        super().__init__(kernel, target, facts, number)
        self.places, self.line = places, places[kernel]
        self.scope, task = (f"!{_FIRST + 2 * number + j}" for j in range(2))
        self.body_debug, self.task_debug = f" !dbg {self.scope}", f" !dbg {task}"
        self.call_debug = f", !dbg !DILocation(line: {self.line + 1}, scope: {task})"

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

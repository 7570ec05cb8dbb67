"""LLVM IR with debug locations: each instruction refers to a line of the kernel's own text.

    %v70 = call <8 x float> @llvm.fma.v8f32(…), !dbg !DILocation(line: 27, scope: !3)

Debug locations count lines from 1. LLVM propagates them to the assembly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dlc.emission.llvm.alias_scopes import AliasScopes
from dlc.emission.llvm.dot_products import KernelAnalysis
from dlc.emission.llvm.instruction_order import InsertionPoint, Line
from dlc.emission.llvm.kernel import GridWriter, LlvmKernel, emit_kernel
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
_NUM_FILE_METADATA_NODES = 5


def emit_kernel_with_locations(kernel: func.FuncOp, target: Target, lines: Mapping[Operation, int]) -> LlvmKernel:
    """Emit a kernel as `emit_kernel` does, with the line of its op as debug location of each instruction."""
    first = AliasScopes(kernel).nodes
    unit, file, _, type, _ = common = range(first, first + _NUM_FILE_METADATA_NODES)
    functions: list[str] = []

    def make_writer(kernel: func.FuncOp, target: Target, analysis: KernelAnalysis, grid_index: int) -> GridWriter:
        scope = f"!{first + _NUM_FILE_METADATA_NODES + grid_index}"
        functions.append(
            f'{scope} = distinct !DISubprogram(name: "{kernel.sym_name.data}.{grid_index}", scope: !{file}, file: !{file}, '
            f"line: 1, type: !{type}, unit: !{unit}, spFlags: DISPFlagDefinition | DISPFlagOptimized)\n"
        )
        return _LocatedGridWriter(kernel, target, analysis, grid_index, scope, lines)

    kernel_text = emit_kernel(kernel, target, make_writer)
    return replace(kernel_text, text=kernel_text.text + _COMMON.format(*common) + "".join(functions))


class _LocatedGridWriter(GridWriter):
    """Emit the function of one grid with debug locations."""

    def __init__(
        self,
        kernel: func.FuncOp,
        target: Target,
        analysis: KernelAnalysis,
        grid_index: int,
        scope: str,
        lines: Mapping[Operation, int],
    ) -> None:
        super().__init__(kernel, target, analysis, grid_index)
        self.lines, self.line = lines, lines[kernel]
        self.scope, self.debug = scope, f" !dbg {scope}"

    def visit(self, op: Operation) -> None:
        outer, self.line = self.line, self.lines[op]
        super().visit(op)
        self.line = outer

    def emit(self, text: str) -> None:
        super().emit(text)
        self.locate()

    def define(self, text: str, *operands: str, insertion_point: InsertionPoint = InsertionPoint.FIXED) -> str:
        name = super().define(text, *operands, insertion_point=insertion_point)
        self.locate()
        return name

    def locate(self) -> None:
        """Attach a debug location to the last instruction."""
        lines: list[Line] = self.scopes[-1].lines
        lines[-1] = lines[-1]._replace(location=f", !dbg !DILocation(line: {self.line + 1}, scope: {self.scope})")

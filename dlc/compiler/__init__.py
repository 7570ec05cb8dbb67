"""The compiler driver: `compile(program, target, options)` returns a model.

    Program ─ dl, fusion ─┬─ each kernel: linalg, tiling, loops ─ LLVM IR ─ object ─┬─ Model
                          └─ host: weight expressions, buffers, arena ─ launches ───┘

program.py            programs, and how to load them from files
compilation.py        a program with its backend and options
driver.py             all steps from a program to a model
lowering.py           run the stages of the pipeline
kernels.py            compile kernels, in parallel
program_builder.py    compile all kernels of a program and build the executable program
specializer.py        choose the specializations of a function or model that are compiled for the sizes of its calls
size_domains.py       the sizes for which one dynamic-shape program is valid
segments.py           split programs at data-dependent sizes; segment_linker.py joins the lowered segments
numerical_checks.py   verify every step numerically on given inputs; segment_checks.py with data-dependent sizes
tuning.py             choose tile plans by measurement
kernel_plans.py       write and read edited tile plans; replaced_kernels.py: kernels that were edited by hand
sharding.py           partition programs over a mesh; sharding_report.py: report on it
"""

from dlc.compiler.driver import compile, compile_recorded, compile_specialization, emit, specializer_for
from dlc.compiler.numerical_checks import check
from dlc.compiler.program import Program, import_for, load_program

__all__ = [
    "Program", "check", "compile", "compile_recorded", "compile_specialization", "emit", "import_for", "load_program",
    "specializer_for",
]  # fmt: skip

"""The spine: `compile(program, target, options)` makes a model.

    Program ─ dl, fusion ─┬─ each kernel: linalg, tiling, loops ─ LLVM IR ─ object ─┬─ Model
                          └─ host: weight expressions, buffers, arena ─ launches ───┘

`program.py` says what a program is and where it comes from; a program, its backend and options are a `Compilation`.
`lowering.py` takes it through the stages, `kernels.py` makes code of kernels, `assembling.py` puts them together,
`spine.py` is all of it; `segments.py` cuts programs where data decides a size, `joining.py` puts them together again;
`checking.py` checks all of it on given inputs, `checking_parts.py` where data decides sizes.
"""

from dlc.compiler.checking import check
from dlc.compiler.program import Program, load_program
from dlc.compiler.spine import compile, emit, recorded

__all__ = ["Program", "check", "compile", "emit", "load_program", "recorded"]

"""LLVM IR text to objects and assembly, through llvmlite."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from dlc.errors import CompileError
from dlc.runtime.cpu.loader import undefined_symbols
from dlc.target import Target

_TRIPLE = "x86_64-unknown-linux-gnu"


@lru_cache
def _machine(target: Target) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = ",".join(f"+{f}" for f in target.features)
    # Small, position-independent code needs only distances as relocations (loader.py).
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(
        cpu=target.cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )
    machine.set_asm_verbosity(True)
    return machine


def _optimized(text: str, target: Target) -> Any:
    """The module that `text` holds, after a short pipeline.

    The text is tiled, vectorised and free of common subexpressions, so what is left to do is local. Passes that vectorise
    or unroll would only cost time, and those that look for idioms would insert calls of memset and memcpy.
    """
    machine = _machine(target)
    header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{_TRIPLE}"\n'
    try:
        module = llvm.parse_assembly(header + text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM rejects the emitted text: {error}") from error
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)
    return module


def compile_text(text: str, target: Target) -> bytes:
    """The object of LLVM IR text.

    Raises CompileError if LLVM rejects the text, or if the object would call a function that it does not define.
    """
    return _object(_optimized(text, target), target)


def compile_listed(text: str, target: Target) -> tuple[bytes, str]:
    """The object of LLVM IR text, and the assembly code that it is made of: what is read is what runs."""
    llvm.initialize_native_asmparser()
    machine = _machine(target)
    code = str(machine.emit_assembly(_optimized(text, target)))
    escaped = code.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A").replace("\t", "\\09")
    module = llvm.parse_assembly(f'target triple = "{_TRIPLE}"\nmodule asm "{escaped}"\n')
    return _object(module, target), code


def _object(module: Any, target: Target) -> bytes:
    data: bytes = _machine(target).emit_object(module)
    if missing := undefined_symbols(data):
        raise CompileError(
            f"the code generator inserted calls of {', '.join(missing)}; an object must be freestanding: expand the op "
            "that LLVM has no instruction for"
        )
    return data


def assembly(text: str, target: Target) -> str:
    """The assembly code of LLVM IR text."""
    return str(_machine(target).emit_assembly(_optimized(text, target)))

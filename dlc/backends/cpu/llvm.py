"""Compile LLVM IR text to objects and assembly with llvmlite."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from dlc.errors import CompileError
from dlc.runtime.cpu.code.loader import undefined_symbols
from dlc.target import Target, architecture_of

# Debug directives in the code section.
_DEBUG = re.compile(r"\t\.(?:loc|file)\t.*\n|\.Ltmp\d+:\n")


@lru_cache
def _machine(target: Target) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    architecture = architecture_of(target)
    features = ",".join(f"+{f}" for f in target.features)
    # Small, position-independent code has only PC-relative relocations (relocations.py).
    machine = llvm.Target.from_triple(architecture.triple).create_target_machine(
        cpu=target.cpu, features=features, opt=2, reloc="pic", codemodel="small", abiname=architecture.abi
    )
    machine.set_asm_verbosity(True)
    return machine


def _optimized(text: str, target: Target) -> Any:
    """Parse and verify `text`, and run a short optimization pipeline.

    The text is tiled, vectorized and free of common subexpressions, so only local optimization is left. Passes that vectorize
    or unroll would only cost time, and idiom recognition would insert calls of memset and memcpy.
    """
    machine = _machine(target)
    header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{architecture_of(target).triple}"\n'
    try:
        module = llvm.parse_assembly(header + text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM rejects the emitted text: {error}") from error
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)
    return module


def compile_text(text: str, target: Target) -> bytes:
    """Compile LLVM IR text to an object.

    Raises CompileError if LLVM rejects the text, or if the object would call a function that it does not define.
    """
    return _object(_optimized(text, target), target)


def compile_with_listing(text: str, target: Target) -> tuple[bytes, str]:
    """Compile LLVM IR text; return the object and its assembly.

    For the host's architecture the object is assembled from exactly that listing.
    """
    machine, module, triple = _machine(target), _optimized(text, target), architecture_of(target).triple
    code = str(machine.emit_assembly(module.clone()))
    if triple.partition("-")[0] != llvm.get_default_triple().partition("-")[0]:
        # The LLVM binding can parse assembly for the host's architecture only.
        return _object(module, target), code
    llvm.initialize_native_asmparser()
    instructions = _DEBUG.sub("", code.partition("\t.section\t.debug")[0])
    escaped = instructions.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A").replace("\t", "\\09")
    return _object(llvm.parse_assembly(f'target triple = "{triple}"\nmodule asm "{escaped}"\n'), target), code


def _object(module: Any, target: Target) -> bytes:
    data: bytes = _machine(target).emit_object(module)
    if missing := undefined_symbols(data):
        raise CompileError(
            f"the code generator inserted calls of {', '.join(missing)}; an object must be freestanding: expand the op "
            "that LLVM has no instruction for"
        )
    return data


def assembly(text: str, target: Target) -> str:
    """Return the assembly of LLVM IR text."""
    return str(_machine(target).emit_assembly(_optimized(text, target)))

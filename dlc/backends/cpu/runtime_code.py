"""The native runtime: LLVM IR texts in this folder, including one per architecture, compiled to an object."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from dlc.backends.cpu.llvm import compile_text
from dlc.machine.architectures import HOST
from dlc.target import CPU_LEVELS


@lru_cache
def runtime_object(architecture: str = HOST) -> bytes:
    """Return the object for any processor of an architecture that dlc supports."""
    names = f"{architecture}.ll", "runtime.ll", "call.ll", "program_selection.ll", "data_dependent_sizes.ll", "python_call.ll"
    source_texts = [Path(__file__).with_name(name).read_text("utf-8") for name in names]
    return compile_text("\n".join(source_texts), next(t for t in CPU_LEVELS.values() if t.architecture == architecture))

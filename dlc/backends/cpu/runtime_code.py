"""The run-time's code (texts beside this, `runtime.ll` first), with what is an architecture's own, as an object."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from dlc.backends.cpu.llvm import compile_text
from dlc.machine.architectures import HOST
from dlc.target import CPU_LEVELS


@lru_cache
def runtime_object(architecture: str = HOST) -> bytes:
    """One object for any processor of an architecture that dlc generates code for."""
    names = f"{architecture}.ll", "runtime.ll", "call.ll", "picking.ll", "deciding.ll", "from_python.ll"
    parts = [Path(__file__).with_name(name).read_text("utf-8") for name in names]
    return compile_text("\n".join(parts), next(t for t in CPU_LEVELS.values() if t.architecture == architecture))

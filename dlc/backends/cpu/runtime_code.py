"""The run-time's code: `runtime.ll` and `call.ll` as an object."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from dlc.backends.cpu.llvm import compile_text
from dlc.target import CPU_LEVELS


@lru_cache(maxsize=1)
def runtime_object() -> bytes:
    """One object for any processor that dlc generates code for."""
    parts = [Path(__file__).with_name(name).read_text() for name in ("runtime.ll", "call.ll")]
    return compile_text("\n".join(parts), CPU_LEVELS["cpu:generic"])

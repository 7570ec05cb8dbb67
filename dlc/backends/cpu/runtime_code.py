"""The run-time's code: `runtime.ll` as an object."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from dlc.backends.cpu.llvm import compile_text
from dlc.target import CPU_LEVELS


@lru_cache(maxsize=1)
def runtime_object() -> bytes:
    """`runtime.ll` as an object for any processor that dlc generates code for."""
    return compile_text(Path(__file__).with_name("runtime.ll").read_text(), CPU_LEVELS["cpu:generic"])

"""Processor architectures: their names in LLVM, ELF and Linux."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Architecture:
    """A processor architecture.

    Attributes:
        name: The output of `uname -m`.
        triple: LLVM's target triple for Linux.
        machine: The machine number in ELF files.
        flags: The ABI flags in ELF files.
        abi: The calling convention, if there are several.
        page_bytes: The maximum page size.
        spellings: A map from LLVM's names of features to Linux's, where they differ.
    """

    name: str
    triple: str
    machine: int
    flags: int = 0
    page_bytes: int = 4096
    abi: str = ""
    spellings: Mapping[str, str] = field(default_factory=dict[str, str])


# The architecture that dlc itself runs on.
HOST = "x86_64"
ARCHITECTURES = {
    a.name: a
    for a in (
        Architecture(
            HOST,
            "x86_64-unknown-linux-gnu",
            62,
            spellings={
                "sse3": "pni",
                "sse4.1": "sse4_1",
                "sse4.2": "sse4_2",
                "bmi": "bmi1",
                "lzcnt": "abm",
                "avxvnni": "avx_vnni",
                "avx512vnni": "avx512_vnni",
                "avx512bf16": "avx512_bf16",
                "avx512fp16": "avx512_fp16",
            },
        ),
        Architecture(
            "aarch64",
            "aarch64-unknown-linux-gnu",
            183,
            page_bytes=1 << 16,
            spellings={"neon": "asimd", "crc": "crc32", "dotprod": "asimddp"},
        ),
        # Flags: compressed instructions, and the calling convention with 64-bit float registers.
        Architecture("riscv64", "riscv64-unknown-linux-gnu", 243, flags=5, abi="lp64d"),
    )
}

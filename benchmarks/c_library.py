"""Compile C functions to compare with."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path


def compile_c(source: Path, *options: str) -> ctypes.CDLL:
    """Return the library of a C file, compiled by `gcc -O3 -march=native`, or for AVX2 if `DLC_CPU=avx2`."""
    library = Path(tempfile.mkdtemp()) / f"{source.stem}.so"
    architecture = "haswell" if os.environ.get("DLC_CPU") == "avx2" else "native"
    command = ["gcc", "-O3", f"-march={architecture}", "-fPIC", "-shared", *options, "-o", str(library), str(source), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))

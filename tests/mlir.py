"""Check dlc's modules with MLIR's own tool, if it is installed (`pip install -e '.[mlir]'`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dlc.ir import ModuleOp, print_module

TOOL = shutil.which("iree-opt", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
# Skips a test where MLIR is not installed.
needs_mlir = pytest.mark.skipif(TOOL is None, reason="iree-opt is not installed (pip install iree-base-compiler)")


def accepted_by_mlir(modules: Sequence[ModuleOp], *, unregistered: bool = False) -> None:
    """Assert that MLIR parses and verifies the modules; `unregistered` allows ops of unknown dialects."""
    assert TOOL is not None
    flags = ["--allow-unregistered-dialect"] if unregistered else []
    text = "\n// -----\n".join(print_module(m, generic=True) for m in modules)
    command = [TOOL, *flags, "--split-input-file", "-o", os.devnull, "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]

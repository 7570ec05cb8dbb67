"""MLIR's own tool as a judge of dlc's modules, where it is installed (`pip install -e '.[mlir]'`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dlc.ir import ModuleOp, print_module


def accepted_by_mlir(modules: Sequence[ModuleOp], *, unregistered: bool = False) -> None:
    """Asserts that MLIR reads and verifies the modules; `unregistered` allows ops of dialects that are not its own.

    Skips the test where `iree-opt` is neither beside this interpreter nor on the path.
    """
    tool = shutil.which("iree-opt", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if tool is None:
        pytest.skip("iree-opt is not installed (pip install iree-base-compiler)")
    flags = ["--allow-unregistered-dialect"] if unregistered else []
    text = "\n// -----\n".join(print_module(m, generic=True) for m in modules)
    command = [tool, *flags, "--split-input-file", "-o", os.devnull, "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]

"""Run a program in Oclgrind, which detects races between work-items and out-of-bounds accesses.

    python -m tests.backends.opencl.gpu_simulator blazeface_front opencl:gpu --quick

prints Oclgrind's reports for a model on its recorded inputs, or for a file with a kernel of the loops stage. `--quick`
simulates only the first and the last work-group of each kernel, about a million multiply-adds per second.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dlc.compiler import compile, load_program
from dlc.dialects.registry import make_context
from dlc.ir import MemRefType, parse_module
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.target import resolve
from tests.backends.opencl.kernels import run
from tests.models.skeletons import path_of, recordings

TOOL = shutil.which("oclgrind")


def reports(what: str | Path, profile: str, *, quick: bool = False) -> str:
    """Return Oclgrind's reports for a model or a kernel; empty if it found nothing."""
    assert TOOL is not None
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        flags = ["--data-races", "--max-errors", "20", "--log", str(log), *(["--quick"] if quick else [])]
        command = [TOOL, *flags, sys.executable, "-m", "tests.backends.opencl.gpu_simulator", "--inside", str(what), profile]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
        assert done.returncode == 0, done.stderr[-4000:]
        return log.read_text() if log.exists() else ""


def inside(what: str, profile: str) -> None:
    """Run the program on the only device under Oclgrind."""
    if what.endswith(".mlir"):
        (kernel,) = kernels_of(parse_module(make_context(), Path(what).read_text(), what))
        shapes = [a.type.get_shape() for a in kernel.body.block.args if isinstance(a.type, MemRefType)]
        run(kernel, [np.ones(shape, np.float32) for shape in shapes], resolve(profile), alone=True)
        return
    feeds, _ = next(recordings(what))
    # Symbolic sizes stay symbolic.
    model = compile(load_program(path_of(what)), profile.replace("opencl:", "opencl:0:0:"), Options(cache=False, workers=1))
    for result in model(**feeds).values():
        np.asarray(result)


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        inside(*sys.argv[2:])
    else:
        print(reports(*sys.argv[1:3], quick="--quick" in sys.argv) or "nothing")

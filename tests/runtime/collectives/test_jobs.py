"""Jobs of MPI on two ranks: the distributed tests, and failures, which end the job with a message."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

from dlc.cli import main
from tests.training.models import perceptron

ROOT = Path(__file__).parents[3]
_MAX_JOB_SECONDS = 120  # of a hanging job, on a busy machine
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

pytestmark = pytest.mark.skipif(
    find_spec("mpi4py") is None or MPIEXEC is None, reason="needs mpi4py and mpiexec: pip install -e '.[dist]'"
)

SCRIPT = """\
import os, sys, time
import numpy as np
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.program_check import require_equal_programs
from dlc.runtime.collectives.start import start

transport = start(Mesh.of({"data": 2}))
def total():
    transport.all_reduce(np.ones(4), ["data"], "sum", "dl.all_reduce at script.py:9")
total()
if transport.rank == 1:
    FAILURE
total()
"""


def launch(*command: str, timeout: float) -> subprocess.CompletedProcess[str]:
    assert MPIEXEC is not None
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DLC_COLLECTIVE_TIMEOUT": "3"}
    return subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_distributed_tests() -> None:
    job = launch(
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "tests/distributed",
        timeout=_MAX_JOB_SECONDS,
    )
    assert job.returncode == 0 and "passed" in job.stdout and "skipped" not in job.stdout, job.stdout + job.stderr


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ('raise ValueError("no data")', "dlc: rank 1 of 2 failed: script.py:12: ValueError: no data"),
        (
            "time.sleep(0.5), os.kill(os.getpid(), 9)",
            "was killed or crashed at script.py:12; its last collective: dl.all_reduce",
        ),
        ("sys.exit()", "dl.all_reduce at script.py:9: rank 0 waited 2 s for rank 1: rank 1 has exited"),
        ("time.sleep(60)", "dl.all_reduce at script.py:9: rank 0 waited 3 s for rank 1: rank 1 is at script.py:12"),
        ('transport.all_gather(np.ones(4), ["data"], "dl.all_gather")', "rank 1: rank 1 is in dl.all_gather"),
    ],
    ids=["exception", "kill", "missing", "timeout", "order"],
)
def test_failure_ends_the_job(failure: str, message: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("FAILURE", failure))
    job = launch("-m", "mpi4py", str(script), timeout=_MAX_JOB_SECONDS)
    assert job.returncode != 0 and message in job.stderr, job.stderr


def test_different_programs_end_the_job(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    check = 'require_equal_programs(transport, "", f"%0 = dl.iota {transport.rank}")'
    script.write_text(SCRIPT.replace("if transport.rank == 1:\n    FAILURE", check))
    job = launch("-m", "mpi4py", str(script), timeout=_MAX_JOB_SECONDS)
    assert job.returncode != 0 and "line 1 of the module:\n  rank 0: %0 = dl.iota 0\n  rank 1: %0 = dl.iota 1" in job.stderr


def test_train_on_a_mesh(tmp_path: Path) -> None:
    """Two ranks with half of each batch train the weights that one process trains."""
    perceptron(tmp_path / "m.onnx")
    draw = np.random.default_rng(3)
    np.savez(tmp_path / "data.npz", x=draw.standard_normal((16, 2)), labels=draw.integers(0, 3, 16, np.int32))
    command = ["train", "m.onnx", "--data", "data.npz", "--loss", "cross_entropy", "--batch-size", "8", "--target", "reference"]
    arguments = [str(tmp_path / a) if a.endswith((".onnx", ".npz")) else a for a in command]
    job = launch("-m", "dlc", *arguments, "-o", str(tmp_path / "mesh.onnx"), "--mesh", "data=2", timeout=_MAX_JOB_SECONDS)
    assert job.returncode == 0 and job.stdout.count("Saved as") == 1, job.stdout + job.stderr
    assert CliRunner().invoke(main, [*arguments, "-o", str(tmp_path / "one.onnx")]).exit_code == 0
    weights = [onnx.load(tmp_path / name).graph.initializer for name in ("mesh.onnx", "one.onnx")]
    for ours, expected in zip(*weights, strict=True):
        np.testing.assert_allclose(numpy_helper.to_array(ours), numpy_helper.to_array(expected), rtol=1e-5, atol=1e-7)

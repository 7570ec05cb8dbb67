"""The examples of examples/deploy, run as a user would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dlc
import dlc.numpy as dnp
from dlc import P
from dlc.cli import main
from dlc.deploy import HEADER, write_library
from dlc.language_models.language_model import LanguageModel
from dlc.language_models.sampling import Sampling
from dlc.runtime.models.model import Model
from tests.language_models.models import use_cache, write_llama
from tests.models import skeletons

EXAMPLES = Path(__file__).parents[2] / "examples" / "deploy"


@pytest.fixture(scope="module")
def mnist() -> Model:
    return dlc.compile_model(skeletons.path_of("mnist_cnn"), num_threads=1)


@pytest.fixture(scope="module")
def first(mnist: Model) -> str:
    """Return the beginning of the first score for an image of zeros."""
    (probabilities,) = mnist(np.zeros((1, 1, 28, 28), np.float32)).values()
    return f"{np.asarray(probabilities)[0, 0]:.4f}"


@pytest.mark.parametrize(("compiler", "source"), [("cc -std=c99", "run_model.c"), ("c++ -std=c++17", "run_model.cpp")])
def test_c_and_cpp(mnist: Model, first: str, tmp_path: Path, compiler: str, source: str) -> None:
    if shutil.which(compiler.split()[0]) is None:
        pytest.skip(f"no {compiler}")
    flags = ["-pthread", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}", "-o", str(tmp_path / "run_model")]
    mnist.save(tmp_path / "mnist.dlc")
    subprocess.run([*compiler.split(), *flags, str(EXAMPLES / source)], check=True)
    done = subprocess.run([tmp_path / "run_model", tmp_path / "mnist.dlc"], capture_output=True, text=True, check=True)
    assert first in done.stdout
    refused = subprocess.run([tmp_path / "run_model", EXAMPLES / source], capture_output=True, text=True)
    assert refused.returncode == 1 and "not a model" in refused.stderr


def test_c_on_a_mesh(tmp_path: Path) -> None:
    """A training step, as a file and as a library, runs on the ranks of a job, which print their shards; other jobs are refused."""
    prefix = Path(sys.executable).parents[1]
    if not (prefix / "include" / "mpi.h").exists() or shutil.which("cc") is None:
        pytest.skip("no MPI library with headers, or no C compiler")
    mesh, one = dlc.make_mesh({"data": 2, "model": 2}), np.ones

    @dlc.jit(mesh=mesh, in_shardings=(P(None, "model"), P("model"), P("data")), out_shardings=(P(), P(None, "model"), None))
    def step(up: Any, down: Any, x: Any) -> Any:
        loss, gradients = dlc.value_and_grad(lambda up, down: dnp.mean((dnp.tanh(x @ up / 8) @ down) ** 2), (0, 1))(up, down)
        return loss, up - gradients[0], down - gradients[1]

    arguments = one((6, 8), np.float32), one((8, 4), np.float32), one((4, 6), np.float32)
    step.save(tmp_path / "step.dlc", *arguments)
    flags = [f"-I{HEADER.parent}", f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", "-lmpi", "-pthread"]
    step.save(tmp_path / "step.so", *arguments)
    assert "of the mesh data=2,model=2: its arrays are shards" in (tmp_path / "step.h").read_text()
    program, linked = tmp_path / "run_on_mesh", tmp_path / "run_linked"
    compiler = ["cc", "-Wall", "-Wextra", "-Werror", EXAMPLES / "run_on_mesh.c", *flags]
    subprocess.run([*compiler, "-o", program], check=True)
    subprocess.run(
        [*compiler, "-DSTEP=dlc_model_step", tmp_path / "step.so", f"-Wl,-rpath,{tmp_path}", "-o", linked], check=True
    )
    loss, up, down = map(np.asarray, dlc.jit(step.__wrapped__)(*arguments))
    for command in ([program, tmp_path / "step.dlc"], [linked]):
        done = subprocess.run([prefix / "bin" / "mpiexec", "-n", "4", *command], capture_output=True, text=True, check=True)
        for rank in range(4):
            part = slice(rank % 2 * 4, rank % 2 * 4 + 4)
            sums = [float(line.split()[-1]) for line in sorted(done.stdout.splitlines()) if line.startswith(f"rank {rank}:")]
            np.testing.assert_allclose(sums, [loss, up[:, part].sum(), down[part].sum()], rtol=1e-4)
    assert "for each rank of the mesh data=2,model=2" in CliRunner().invoke(main, ["info", str(tmp_path / "step.dlc")]).output
    for command in ([program, tmp_path / "step.dlc"], [linked]):
        refused = subprocess.run(command, capture_output=True, text=True)
        assert refused.returncode and "rank 0 of 1 in `collectives`: the mesh data=2,model=2 has 4 ranks" in refused.stderr


def test_rust(mnist: Model, first: str, tmp_path: Path) -> None:
    _require("rustc", "--version")
    write_library(mnist, tmp_path / "mnist.o")
    command = ["rustc", "-C", "link-arg=mnist.o", str(EXAMPLES / "run_mnist.rs"), "-o", "run_mnist"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["./run_mnist"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert first in done.stdout


def test_go(mnist: Model, first: str, tmp_path: Path) -> None:
    _require("go", "version")
    write_library(mnist, tmp_path / "mnist.a")
    shutil.copy(EXAMPLES / "run_mnist.go", tmp_path)
    command, kept = ["go", "run", "run_mnist.go"], os.environ | {"GOCACHE": str(tmp_path / "go")}
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=True)
    assert first in done.stdout


def test_java(mnist: Model, first: str, tmp_path: Path) -> None:
    homes = sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    java = next((home for home in homes if _java_version(home) >= 22), None)
    if java is None:
        pytest.skip("no Java that calls C (22 or newer)")
    _require(str(java), "-version")
    write_library(mnist, tmp_path / "mnist.so")
    command = [java, "--enable-native-access=ALL-UNNAMED", EXAMPLES / "RunMnist.java"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert first in done.stdout


def _require(compiler: str, version: str) -> None:
    """Skip the test if the compiler is missing or does not run, for lack of a home directory or memory."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    if (done := subprocess.run([compiler, version], capture_output=True, text=True)).returncode:
        said = " ".join((done.stderr + done.stdout).split("\n")[:2])
        pytest.skip(f"{compiler} does not run here: {said}")


def _java_version(java: Path) -> int:
    """Return the major version of a Java from its release file; 0 if there is none."""
    release = java.parents[1] / "release"
    said = re.search(r'JAVA_VERSION="(\d+)', release.read_text()) if release.exists() else None
    return int(said[1]) if said else 0


def test_c_generates_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A language model runs in C: the same tokens as in Python, from caches that are written in place."""
    if shutil.which("cc") is None:
        pytest.skip("no cc")
    use_cache(monkeypatch, tmp_path / "cache")
    path, artifact = write_llama(tmp_path / "small.gguf"), tmp_path / "small.dlc"
    result = CliRunner().invoke(main, ["compile", str(path), "-o", str(artifact), "--num-threads", "1"])
    assert result.exit_code == 0, result.output
    flags = [
        "-std=c99",
        "-pthread",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{HEADER.parent}",
        "-o",
        str(tmp_path / "generate_tokens"),
    ]
    subprocess.run(["cc", *flags, str(EXAMPLES / "generate_tokens.c")], check=True)
    prompt = [1, 270, 264, 265, 280]
    command = [tmp_path / "generate_tokens", artifact, "8", *map(str, prompt)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    session = LanguageModel.load(path, num_threads=1).session()
    tokens = [[session.advance([token], Sampling()) for token in prompt][-1]]
    while len(tokens) < 8:
        tokens.append(session.advance(tokens[-1:], Sampling()))
    assert [int(line) for line in done.stdout.split()] == tokens


def test_options_that_language_models_do_not_take(tmp_path: Path) -> None:
    path = str(write_llama(tmp_path / "small.gguf"))
    result = CliRunner().invoke(main, ["compile", path, "-o", str(tmp_path / "m.dlc"), "--weights", "int8"])
    assert result.exit_code == 2 and "--weights" in result.output
    result = CliRunner().invoke(main, ["compile", path])
    assert result.exit_code == 2 and "-o NAME.dlc" in result.output


@pytest.mark.parametrize(
    ("compiler", "source"),
    [("c++ -std=c++17 -Wall -Wextra -Werror", "minimize_energy.cpp"), ("gfortran", "minimize_energy.f90")],
)
def test_python_function_in_other_languages(tmp_path: Path, compiler: str, source: str) -> None:
    if shutil.which(compiler.split()[0]) is None:
        pytest.skip(f"no {compiler}")
    library, model = tmp_path / "energy.so", f"{EXAMPLES / 'energy.py'}:value_and_gradient"
    options = ["--shape", "x=8", "--dtype", "x=float64", "-o", str(library)]
    assert CliRunner().invoke(main, ["compile", model, *options]).exit_code == 0
    command = [
        *compiler.split(),
        f"-I{tmp_path}",
        str(EXAMPLES / source),
        str(library),
        "-Wl,-rpath,.",
        "-o",
        "minimize_energy",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./minimize_energy"], cwd=tmp_path, capture_output=True, text=True, check=True)
    # All particles in one well.
    assert "energy -8.000000" in done.stdout

"""Asynchronous calls of dlc.h: results, callbacks, cancellation and deadlines, also under ThreadSanitizer and valgrind."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.deploy import HEADER

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler of C is there")
SOURCE = Path(__file__).with_name("submissions.c")


def build(folder: Path, *flags: str) -> Path:
    program = folder / f"submissions{len(flags)}"
    command = ["cc", "-std=gnu11", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}", *flags]
    done = subprocess.run([*command, str(SOURCE), "-o", str(program)], capture_output=True, text=True)
    if done.returncode and flags:
        pytest.skip(f"no {flags[0]}")
    assert not done.returncode, done.stderr
    return program


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("submissions")
    for target, name in (("cpu", "double"), ("cpu:generic", "generic")):
        # Tools do not know the instructions of the newest processors.
        dlc.jit(lambda x: x * 2, target=target).lower(np.zeros(4096, np.float32)).compile().save(folder / f"{name}.dlc")
    return folder


def run(program: Path, mode: str, model: Path, *arguments: str, tool: Sequence[str] = (), is_tool: bool = False) -> str:
    environment = {**os.environ, **({"TOOL": "1"} if tool or is_tool else {})}
    command = [*tool, str(program), mode, str(model), str(model), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("mode", ["results", "chains", "callbacks", "closing", "stress", "overhead"])
@pytest.mark.parametrize("threads", [("1", "2"), ("2", "1"), ("3", "2")], ids="x".join)
def test_submitted_calls(folder: Path, mode: str, threads: tuple[str, str]) -> None:
    run(build(folder), mode, folder / "double.dlc", *threads)


def test_placement_of_a_model(folder: Path) -> None:
    run(build(folder), "placement", folder / "double.dlc")


@pytest.mark.parametrize("mode", ["results", "chains", "callbacks", "closing", "stress"])
def test_no_data_races(folder: Path, mode: str) -> None:
    run(build(folder, "-fsanitize=thread"), mode, folder / "double.dlc", "1", "2", is_tool=True)


def test_no_memory_errors_or_leaks(folder: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind")
    tool = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full"]
    run(build(folder, "-DROUNDS=20"), "stress", folder / "generic.dlc", "1", "2", tool=tool)

"""Failing programs are reduced to small ones that fail in the same way."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dlc.cli import main
from dlc.compiler import Program, load_program
from dlc.debug.outcome import WRONG_RESULTS, in_child, outcome_on
from dlc.debug.reduce import reduce
from dlc.debug.subprogram import ProgramCase, ops_of, resize_program, sizes_of
from dlc.dialects import dl
from dlc.errors import DlcError
from dlc.instrument.verify import verify
from dlc.ir import ModuleOp
from dlc.options import Options
from dlc.passes.dl.simplification.cse import CsePass
from tests.debug.miscompiles import PLANTED
from tests.models.skeletons import path_of, recordings

MODEL = path_of("mnist_cnn")
ON_CPU = outcome_on("cpu", Options(cache=False))


@pytest.fixture(scope="module")
def mnist() -> ProgramCase:
    return ProgramCase(load_program(MODEL), tuple(next(recordings("mnist_cnn"))[0].values()))


def small(case: ProgramCase) -> tuple[list[str], int]:
    """Return the ops of a program and the number of elements of its inputs."""
    return [op.name for op in ops_of(case.program)], sum(a.size for a in case.arrays)


def test_wrong_results(mnist: ProgramCase) -> None:
    with PLANTED["cse"]():
        case, wrong = reduce(mnist.program, mnist.arrays, ON_CPU)
    assert wrong == WRONG_RESULTS
    assert small(case) == (["dl.add"], 1)
    verify(case.program.module)


def test_a_crash_of_a_pass(mnist: ProgramCase, monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(self: CsePass, context: object, module: ModuleOp) -> None:
        assert not any(isinstance(op, dl.MaxPoolOp) for op in module.walk())

    monkeypatch.setattr(CsePass, "apply", apply)
    case, wrong = reduce(mnist.program, mnist.arrays, ON_CPU)
    assert wrong.startswith("CompileError: pass cse")
    assert small(case)[0] == ["dl.max_pool"]


def test_a_process_that_dies(mnist: ProgramCase) -> None:
    def dies(program: Program, arrays: object) -> str:
        if any(isinstance(op, dl.SoftmaxOp) for op in program.module.walk()):
            os._exit(7)
        return ""

    def outcome(program: Program, arrays: object) -> str:
        return in_child(lambda: dies(program, arrays), 20)

    case, wrong = reduce(mnist.program, mnist.arrays, outcome)
    assert "ends with status 7" in wrong
    assert small(case)[0] == ["dl.softmax"]


def test_nothing_is_wrong(mnist: ProgramCase) -> None:
    with pytest.raises(DlcError, match="nothing to reduce"):
        reduce(mnist.program, mnist.arrays, ON_CPU)


def test_a_command_that_succeeds_leaves_nothing_to_reduce(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["reduce", str(MODEL), "--check", "true", "-o", str(tmp_path)])
    assert result.exit_code == 1
    assert "the command exits with status 0" in result.stderr


def test_sizes_change_together(mnist: ProgramCase) -> None:
    assert 28 in sizes_of(mnist)
    smaller = resize_program(mnist, 28, 14)
    assert smaller is None or smaller.arrays[0].shape == (1, 1, 14, 14)


def test_the_command_writes_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a folder").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a folder"))
    line = ["reduce", str(MODEL), "--check", "! grep -q dl.softmax {}", "-o", str(tmp_path / "small one"), "--seconds", "30"]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 0, result.output
    assert "to 1 ops: the command fails" in result.stdout
    (again,) = re.findall("^To reproduce: (.*)$", result.stdout, re.MULTILINE)
    assert subprocess.run(again, shell=True).returncode == 1
    case = load_program(tmp_path / "small one" / "reduced.mlir")
    assert [op.name for op in ops_of(case)] == ["dl.softmax"]
    assert np.load(tmp_path / "small one" / "x0.npy").size == 1

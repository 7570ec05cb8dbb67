"""Bisection names the step that makes results wrong, with the op or kernel, its origins, and a reproducer."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import dlc
from dlc.cli import main
from dlc.compiler import Program, load_program
from dlc.debug.bisect import bisect
from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.registry import make_context
from dlc.frontend.onnx.operators import OPERATORS
from dlc.instrument.check import WEIGHT_EXPRESSIONS, WrongResultsError
from dlc.ir import parse_module
from dlc.weights import WeightStore
from tests.debug.miscompiles import PLANTED
from tests.models.skeletons import path_of, recordings

MODEL = path_of("mnist_cnn")
# Two runs of one kernel with different weights.
TWICE = """
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %v = dl.weight {symbol = @v, type = tensor<8x8xf32>} : () -> tensor<8x8xf32>
  %w = dl.weight {symbol = @w, type = tensor<8x8xf32>} : () -> tensor<8x8xf32>
  %a = dl.matmul %x, %v : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = dl.matmul %a, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  func.return %b : tensor<4x8xf32>
}
"""


@pytest.fixture(scope="module")
def mnist() -> tuple[Program, list[Array]]:
    return load_program(MODEL), list(next(recordings("mnist_cnn"))[0].values())


def twice() -> tuple[Program, list[Array]]:
    draw, weights = np.random.default_rng(0), WeightStore()
    for name in ("v", "w"):
        weights.add(draw.standard_normal((8, 8), dtype=np.float32), name)
    return Program(parse_module(make_context(), TWICE), weights), [draw.standard_normal((4, 8), dtype=np.float32)]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_correct_steps_preserve_results(mnist: tuple[Program, list[Array]]) -> None:
    verdict = bisect(*mnist)
    assert verdict.fault is None
    assert {"dl", "fusion", "host", "emission", "execution"} <= {c.step.stage for c in verdict.checks}
    assert max(c.deviation for c in verdict.checks) < 1e-5


@pytest.mark.parametrize("name", ["scan_rnn", "gru_stream"])
def test_recurrence_steps_preserve_results(name: str) -> None:
    verdict = bisect(load_program(path_of(name)), list(next(recordings(name))[0].values()))
    assert verdict.fault is None
    assert "bufferize-host" in {c.step.name for c in verdict.checks}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_miscompile_is_named(name: str, mnist: tuple[Program, list[Array]], tmp_path: Path) -> None:
    program, arrays = twice() if name == "dedupe-kernels" else mnist
    with PLANTED[name]():
        fault = bisect(program, arrays, folder=tmp_path).fault
    assert fault is not None
    assert fault.step.name.partition("{")[0] == name
    assert fault.origins or name == "dedupe-kernels"
    assert (tmp_path / "before.mlir").exists()


def test_faults_are_reported_with_kernel_and_nodes(mnist: tuple[Program, list[Array]], tmp_path: Path) -> None:
    with PLANTED["tile-kernels"]():
        verdict = bisect(*mnist, folder=tmp_path)
    assert verdict.fault is not None
    assert (verdict.fault.kernel, verdict.fault.origins) == ("pad", ("node_Conv_12",))
    assert "register {" in verdict.advice and "the results are correct" in verdict.advice


@pytest.mark.parametrize("name", ["cse", "vectorize", "plan-arena", "native code"])
def test_the_reproducer_shows_the_fault(name: str, mnist: tuple[Program, list[Array]], tmp_path: Path) -> None:
    with PLANTED[name]():
        fault = bisect(*mnist, folder=tmp_path / "a folder").fault
        assert fault is not None
        command, *line = [word for word in shlex.split(fault.reproducer.line) if not word.startswith("DLC_")]
        again = run(*line, "-o", tmp_path / "again")
    assert command == "dlc"
    assert again.exit_code == 1
    assert f"{name}" in again.stderr
    assert run(*line).exit_code == 0


def test_the_reproducer_has_the_settings(
    mnist: tuple[Program, list[Array]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLC_CPU", "generic")
    with PLANTED["vectorize"]():
        fault = bisect(*mnist, "cpu:generic", tolerance=1e-3, folder=tmp_path).fault
    assert fault is not None
    assert fault.reproducer.line.startswith("DLC_CPU=generic dlc bisect ")
    assert fault.reproducer.line.endswith("--target cpu:generic --tolerance 0.001")


def test_the_import_is_at_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    feeds, expected = next(recordings("mnist_cnn"))
    np.savez(tmp_path / "expected.npz", **expected)
    np.save(tmp_path / "input.npy", feeds["input"])
    line = ("bisect", MODEL, "--input", tmp_path, "--against", tmp_path / "expected.npz")
    assert run(*line).exit_code == 0
    wrong = [replace(entry, convert=lambda node: node.emit(dl.AbsOp, node[0])) for entry in OPERATORS["Relu"]]
    monkeypatch.setitem(OPERATORS, "Relu", wrong)
    result = run(*line)
    assert result.exit_code == 1
    assert "the fault is in the import or the recording" in result.stderr and "node node_relu (Relu)" in result.stderr


def test_a_recording_of_something_else_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", y=np.zeros(3))
    result = run("bisect", MODEL, "--against", tmp_path / "other.npz")
    assert result.exit_code == 1
    assert "no recorded array is an output: recorded y; outputs probs" in result.stderr


def test_another_target_is_checked_too() -> None:
    result = run("bisect", MODEL, "--against", "cpu:generic")
    assert result.exit_code == 0, result.output
    assert "cpu:generic: results after each step" in result.stdout


def test_each_pass_of_a_model_is_checked_at_its_first_call() -> None:
    feeds, _ = next(recordings("mnist_cnn"))
    dlc.compile_model(MODEL, check_each_pass=True)(feeds)
    with PLANTED["fuse-generics"]():
        model = dlc.compile_model(MODEL, check_each_pass=True)
        with pytest.raises(WrongResultsError, match=r"fuse-generics .* kernel @conv_add_relu wrong") as error:
            model(feeds)
    assert error.value.fault.origins == ("node_Conv_12", "node_relu")


def test_each_pass_of_a_function_is_checked() -> None:
    @dlc.jit(check_each_pass=True)
    def f(x: Array, y: Array) -> Array:
        return x * y + 1

    x = np.ones((4, 8), np.float32)
    with PLANTED["lower-kernels-to-linalg"](), pytest.raises(WrongResultsError) as error:
        f(x, 2 * x)
    assert [Path(o.partition(":")[0]).name for o in error.value.fault.origins] == ["test_bisect.py"]


@pytest.mark.parametrize("command", ["compile", "run"])
def test_commands_check_each_pass(command: str) -> None:
    with PLANTED[WEIGHT_EXPRESSIONS]():
        result = run(command, MODEL, "--check-each-pass")
    assert result.exit_code == 1
    assert f"{WEIGHT_EXPRESSIONS} (stage host) makes the run of kernel @matmul_add wrong: operand 1" in result.stderr

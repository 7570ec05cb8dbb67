"""The example of a custom target, plain C in less than 150 lines, supports everything that built-in targets do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import dlc
from dlc.backends.base import ModuleBackend
from dlc.backends.reference.backend import Reference
from dlc.backends.registry import backend_of
from dlc.cli import main
from dlc.compiler import emit as emit_program
from dlc.compiler import load_program
from dlc.debug.bisect import bisect
from dlc.errors import DeviceError, UnsupportedError
from dlc.runtime.load import program_in
from tests.backends.cpu.native import grid, parse_kernel
from tests.models.skeletons import path_of, recordings

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "c_target.py"
NAME = f"{EXAMPLE}:C"
C: Any = backend_of(NAME)
compiles = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments), "--target", NAME])


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 150


@compiles
@pytest.mark.parametrize("name", ["mnist_cnn", "mnist_cnn_int8_qdq", "gru_stream"])
def test_a_model_runs(name: str) -> None:
    model = dlc.compile_model(path_of(name), target=C)
    for inputs, outputs in recordings(name):
        got = model(inputs)
        for key, expected in outputs.items():
            np.testing.assert_allclose(np.asarray(got[key]), expected, atol=0.02 if "qdq" in name else 1e-5)


@compiles
def test_a_model_is_cached_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_VERIFY", "0")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    x = np.ones((1, 1, 28, 28), np.float32)
    first = dlc.compile_model(path_of("mnist_cnn"), target=C)
    monkeypatch.setattr(type(C), "compile_kernel", None)
    again = dlc.compile_model(path_of("mnist_cnn"), target=C)
    again.save(tmp_path / "mnist.dlc")
    assert program_in(tmp_path / "mnist.dlc").target == C.target.without_costs
    for model in (again, dlc.load(tmp_path / "mnist.dlc")):
        np.testing.assert_array_equal(model(x)["probs"], first(x)["probs"])


@compiles
def test_functions_with_symbolic_sizes(tmp_path: Path) -> None:
    @dlc.jit(target=C, dynamic={"x": {0: "n", 1: "m"}})
    def grown(x: Any) -> Any:
        return (x + x).sum(axis=1), x.swapaxes(0, 1) * x.shape[0]

    function = grown.lower(np.zeros((2, 3), np.float32)).compile()
    function.save(tmp_path / "grown.dlc")
    for model in (function, dlc.load(tmp_path / "grown.dlc")):
        for shape in ((2, 3), (0, 5), (37, 19)):
            x = np.random.default_rng(0).standard_normal(shape, np.float32)
            sums, turned = model.run_unchecked([x])
            np.testing.assert_allclose(sums, (x + x).sum(axis=1), rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(turned, x.T * np.float32(shape[0]))
    program = load_program(path_of("gpt2_tiny_decode_kv_dyn"))
    assert "restrict" in emit_program(program, "c", C)


@compiles
def test_each_pass_is_checked_and_a_fault_found(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((1, 1, 28, 28), np.float32)
    dlc.compile_model(path_of("mnist_cnn"), target=C, check_each_pass=True)(x)
    right = type(C).emit

    def wrong(self: Any, kernel: Any) -> Any:
        source = right(self, kernel)
        return replace(source, functions=source.functions.replace(" * ", " + "))

    monkeypatch.setattr(type(C), "emit", wrong)
    fault = bisect(load_program(path_of("mnist_cnn")), [x], C).fault
    assert fault is not None and fault.step.name == "native code"


@compiles
def test_the_command_line(tmp_path: Path) -> None:
    model = path_of("mnist_cnn")
    assert "probs: float32[1, 10]" in run("run", model).stdout
    assert "every step from the import to the native results is correct" in run("bisect", model).stdout
    assert "void conv_add_relu_0(" in run("compile", model, "--emit", "c").stdout
    assert 'tile-kernels{target="c"}' in run("compile", model, "--print-pipeline").stdout
    assert run("compile", model, "--dump-ir", tmp_path).exit_code == 0
    assert "run_conv_add_relu_0" in (tmp_path / "kernels" / "conv_add_relu.c").read_text()
    assert run("run", tmp_path / "stage-linalg.mlir").exit_code == 0
    passes = 'bufferize-kernels,tile-kernels{target="c"}'
    assert "scf.parallel" in run("opt", tmp_path / "stage-linalg.mlir", "-p", passes).stdout


def test_custom_targets_need_their_file() -> None:
    made = CliRunner().invoke(main, ["opt", "-p", 'tile-kernels{target="c"}'], input="")
    assert made.exit_code == 1 and "FILE.py:NAME" in made.stderr
    for name, message in ((f"{EXAMPLE}:D", "it defines C"), ("nowhere.py:C", "cannot be read")):
        with pytest.raises(DeviceError, match=message):
            backend_of(name)


def test_targets_without_a_version_are_not_cached() -> None:
    class Own(Reference):
        """Another evaluator."""

    assert isinstance(Own(), ModuleBackend)
    x = np.ones((1, 1, 28, 28), np.float32)
    model = dlc.compile_model(path_of("mnist_cnn"), target=Own(), cache=True)
    np.testing.assert_allclose(model(x)["probs"], dlc.compile_model(path_of("mnist_cnn"))(x)["probs"], rtol=1e-5)
    with pytest.raises(UnsupportedError, match="has no code to save"):
        model.save("nothing.dlc")


def test_missing_expressions_are_named() -> None:
    body = "%v = memref.load %x[%p] : memref<4xbf16>\n memref.store %v, %y[%p] : memref<4xbf16>"
    kernel = parse_kernel(grid(body, "%x: memref<4xbf16>, %y: memref<4xbf16>"))
    with pytest.raises(UnsupportedError, match=r"@k: C has no expression for 'from_memory.bf16'"):
        C.emit(kernel)

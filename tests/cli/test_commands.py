"""The commands as a user types them: output, exit status, and errors without a traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

from dlc import DlcError, compile_model, jit
from dlc.cli import COMMANDS, main

MNIST = Path(__file__).parents[1] / "models" / "small" / "mnist_cnn.onnx"


def dlc(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    """y = relu(x) with a dynamic batch."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="act")], "g", [x], [y])
    path = tmp_path / "relu.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.skipif(sys.flags.optimize > 1, reason="python -OO takes docstrings away")
def test_help_lists_the_commands() -> None:
    result = dlc("--help")
    assert result.exit_code == 0
    assert set(re.findall(r"^  ([a-z][a-z-]*)  ", result.stdout, re.M)) == set(COMMANDS)
    # The help of each command fits one line and is the first line of the command's own help.
    assert not [name for name, entry in COMMANDS.items() if entry.short_help(62).endswith("...")]
    own = dict(commands())
    assert {name: own[name].get_short_help_str(200) for name in COMMANDS} == {n: entry.help for n, entry in COMMANDS.items()}


@pytest.mark.parametrize("given", [("--help",), ("--version",), ("completed", "")], ids=" ".join)
def test_listing_commands_imports_no_command(given: tuple[str, ...]) -> None:
    """Completion must not delay the shell's prompt."""
    environment = dict(os.environ)
    if given[0] == "completed":
        environment |= {"_DLC_COMPLETE": "bash_complete", "COMP_WORDS": "dlc b", "COMP_CWORD": "1"}
        given = ()
    made = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dlc", *given], capture_output=True, text=True, check=True, env=environment
    )
    assert "bench" in made.stdout or "version" in made.stdout
    imported = {line.rsplit("|", 1)[1].strip() for line in made.stderr.splitlines() if line.startswith("import time:")}
    assert "dlc.cli" in imported and not imported & {"dlc.cli.common", "numpy", "rich", "xdsl"}


def test_the_package_is_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["-m", "doctr"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("dlc", run_name="__main__")
    assert stopped.value.code == 2 and "Usage: dlc [OPTIONS]" in capsys.readouterr().err


def test_run_saves_outputs(relu: Path, tmp_path: Path) -> None:
    x = np.array([[-1, 2, -3, 4]], np.float32)
    np.save(tmp_path / "x.npy", x)
    result = dlc("run", relu, "--target", "reference", "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "out.npz")
    assert result.exit_code == 0, result.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], np.maximum(x, 0))


def test_run_prints_json(relu: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[-1, 2, -3, 4]], np.float32))
    result = dlc("run", relu, "--target", "reference", "--input", f"x={tmp_path / 'x.npy'}", "--json")
    assert json.loads(result.stdout) == {"y": [[0, 2, 0, 4]]}


def test_out_of_bounds_loops_are_not_run(relu: Path, tmp_path: Path) -> None:
    dumped = tmp_path / "ir"
    assert dlc("compile", relu, "--shape", "x=64,4", "--dump-ir", dumped, "-o", tmp_path / "m.dlc").exit_code == 0
    for name in ("stage-loops.mlir", "stage-host.mlir"):
        path, text = dumped / name, (dumped / name).read_text()
        assert dlc("run", path).exit_code == dlc("run", path, "--unchecked").exit_code == 0
        (dumped / name).write_text(text.replace("arith.constant 256 : index", "arith.constant 2560000 : index"))
        result = dlc("run", path)
        assert result.exit_code == 1
        assert f"{path.stem}: " in result.stderr and "outside" in result.stderr


def test_dumps_keep_symbolic_dimensions(relu: Path, tmp_path: Path) -> None:
    dumped = tmp_path / "ir"
    assert dlc("compile", relu, "--dump-ir", dumped, "-o", tmp_path / "m.dlc").exit_code == 0
    for stage, target in (("dl", "reference"), ("loops", "cpu"), ("host", "cpu"), ("host", "reference")):
        result = dlc("run", dumped / f"stage-{stage}.mlir", "--target", target, "--shape", "x=3,4")
        assert result.exit_code == 0 and "y: float32[3, 4]" in result.stdout, (stage, target, result.output)
    host = dumped / "stage-host.mlir"
    assert dlc("diff", dumped / "stage-loops.mlir", host, "--shape", "x=3,4").exit_code == 0
    for file in (host, tmp_path / "m.dlc"):
        for shape, expected in (
            ("x=3", "input 'x': expected shape (n, 4), got (3,)"),
            ("y=3", "the model has no input 'y'; inputs: x, nor a symbolic dimension of this name: n"),
        ):
            result = dlc("run", file, "--shape", shape)
            assert result.exit_code != 0 and expected in " ".join(result.stderr.split()), result.stderr


def test_random_inputs_need_static_shapes(relu: Path) -> None:
    result = dlc("run", relu, "--target", "reference")
    assert result.exit_code == 1
    assert "--shape" in result.stderr
    assert dlc("run", relu, "--target", "reference", "--shape", "x=2,4").exit_code == 0


def test_sizes_of_random_inputs_follow_from_given_arrays(tmp_path: Path) -> None:
    x, k, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xky")
    graph = helper.make_graph([helper.make_node("Add", ["x", "k"], ["y"])], "g", [x, k], [y])
    path = tmp_path / "add.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))
    result = dlc("run", path, "--target", "reference", "--input", f"x={tmp_path / 'x.npy'}")
    assert result.exit_code == 0 and "y: float32[3, 4]" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "nowhere.onnx"], "does not exist"),
        (["run", MNIST, "--target", "gpu"], "unknown target"),
        (["run", MNIST, "--shape", "x"], "NAME=SIZE"),
        (["run", MNIST, "--target", "reference", "--input", "z=random"], "no input is named z"),
        (["compile", MNIST, "-o", "x.txt"], "--emit"),
        (["fly"], "No such command"),
    ],
)
def test_usage_errors_end_with_2(arguments: list[object], text: str) -> None:
    result = dlc(*arguments)
    assert result.exit_code == 2
    assert text in result.stderr


def test_a_model_with_python_ops_needs_python(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [None])
    y = helper.make_tensor_value_info("y", TensorProto.UINT8, [None, None, 3])
    graph = helper.make_graph([helper.make_node("ImageDecoder", ["x"], ["y"])], "g", [x], [y])
    path, saved = tmp_path / "image.onnx", tmp_path / "image.dlc"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    result = dlc("compile", path, "-o", saved)
    assert result.exit_code == 0 and saved.exists()
    assert "image.dlc, which needs Python (dlc.load); dlc.h cannot run it." in " ".join(result.stdout.replace("\n", "").split())


def test_a_wrong_input_is_named(relu: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 5), np.float64))
    result = dlc("run", relu, "--target", "reference", "--input", f"x={tmp_path / 'x.npy'}")
    assert result.exit_code == 1
    assert "x: float32[n, 4]" in result.stderr


def test_a_folder_without_inputs(relu: Path, tmp_path: Path) -> None:
    result = dlc("run", relu, "--target", "reference", "--shape", "x=2,4", "--input", tmp_path)
    assert result.exit_code == 2
    assert "none of the inputs: x.npy" in result.stderr


def test_an_npz_file_of_one_input(relu: Path, tmp_path: Path) -> None:
    archive = tmp_path / "x.npz"
    np.savez(archive, x=np.zeros((2, 4), np.float32))
    result = dlc("run", relu, "--target", "reference", "--input", f"x={archive}")
    assert result.exit_code == 2 and "--input" in result.stderr and "by name" in result.stderr
    archive.rename(tmp_path / "x.npy")
    result = dlc("run", relu, "--target", "reference", "--input", f"x={tmp_path / 'x.npy'}")
    assert result.exit_code == 1 and "it contains arrays by name" in result.stderr
    np.save(tmp_path / "y.npy", np.zeros((2, 4), np.float32))
    (tmp_path / "y.npy").rename(tmp_path / "y.npz")
    result = dlc("bisect", relu, "--shape", "n=2", "--against", tmp_path / "y.npz")
    assert result.exit_code == 1 and "one array" in result.stderr


def test_a_symbolic_dimension_of_a_compiled_model(relu: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "m.dlc"
    assert dlc("compile", relu, "-o", compiled).exit_code == 0
    for model in (relu, compiled):
        result = dlc("run", model, "--shape", "n=3")
        assert result.exit_code == 0 and "y: float32[3, 4]" in result.stdout, result.output
    result = dlc("run", compiled, "--shape", "n=3,4")
    assert result.exit_code == 2 and "the symbolic dimension 'n': expected one integer" in result.stderr


def test_a_model_does_not_replace_its_source(relu: Path) -> None:
    source, model = relu.read_bytes(), compile_model(relu)
    with pytest.raises(DlcError, match=r"not a compiled model; save to another path, such as .*\.dlc"):
        model.save(relu)
    assert relu.read_bytes() == source
    for _ in range(2):
        model.save(relu.with_suffix(".dlc"))


def test_opt_of_a_binary_file() -> None:
    result = dlc("opt", MNIST)
    assert result.exit_code == 1 and "not valid IR: it is a binary file; `dlc run MODEL --dump-ir" in result.stderr


def test_an_input_that_is_no_array(relu: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_text("dear diary")
    result = dlc("run", relu, "--target", "reference", "--input", tmp_path)
    assert result.exit_code == 1
    assert "not an .npy file of numbers" in result.stderr and "allow_pickle" not in result.stderr


def test_a_compiled_model_is_not_compiled_again(tmp_path: Path) -> None:
    compiled = tmp_path / "m.dlc"
    compiled.write_bytes(b"dlcmodel")
    for command in ("compile", "bisect", "reduce"):
        result = dlc(command, compiled)
        assert result.exit_code == 1
        assert "already compiled" in result.stderr
    for command in ("run", "bench"):
        result = dlc(command, compiled, "--target", "opencl", "--precision", "bf16", "--num-threads", "1")
        assert result.exit_code == 2
        assert "already compiled: remove --target and --precision, or give the ONNX model" in result.stderr


def test_a_closed_pipe_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("dlc.cli.run.compile_file", closed)
    assert "error" not in CliRunner().invoke(main, ["run", str(MNIST)]).stderr


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    text = tmp_path / "notes.onnx"
    text.write_text("dear diary")
    truncated = tmp_path / "half.onnx"
    truncated.write_bytes(MNIST.read_bytes()[:5000])
    for path in (text, truncated):
        for command in ("compile", "run", "check", "bench"):
            result = dlc(command, path)
            assert result.exit_code == 1
            assert str(path) in result.stderr
            assert "Traceback" not in result.stderr


def test_check_lists_every_problem(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    nodes = [helper.make_node("Frobnicate", ["x"], ["a"], name="one"), helper.make_node("Bend", ["a"], ["y"], name="two")]
    path = tmp_path / "odd.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)]), path)
    result = dlc("check", path)
    assert result.exit_code == 1
    assert "one" in result.stderr and "two" in result.stderr
    problems = json.loads(dlc("check", path, "--json").stdout)
    assert len(problems) == 2
    supported = dlc("check", MNIST)
    assert supported.exit_code == 0
    assert re.search(r"input .* input .* float32\[1, 1, 28, 28\]", supported.stdout)
    assert re.search(r"output .* probs .* float32\[1, 10\]", supported.stdout)
    artifact = tmp_path / "model.dlc"
    artifact.touch()
    compiled = dlc("check", artifact)
    assert compiled.exit_code == 1 and "`dlc info` describes it" in compiled.output


def test_opt_runs_passes_on_text(tmp_path: Path) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %a = dl.exp %x : (tensor<4xf32>) -> tensor<4xf32>\n"
        "  %b = dl.exp %x : (tensor<4xf32>) -> tensor<4xf32>\n"
        "  %c = dl.add %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>\n"
        "  func.return %c : tensor<4xf32>\n}\n"
    )
    result = dlc("opt", file, "-p", "cse")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("dl.exp") == 1
    assert '"dl.exp"' in dlc("opt", file, "--generic").stdout
    output = json.loads(dlc("opt", file, "-p", "cse", "--json").stdout)
    assert output["module"] == result.stdout and output["passes"][0].items() >= {"stage": "dl", "spec": "cse"}.items()


@pytest.mark.parametrize(
    ("spec", "text"), [("simplyfy", "did you mean simplify?"), ("cse{", "argument name"), ("cse{depth=2}", "depth")]
)
def test_opt_explains_a_wrong_pipeline(tmp_path: Path, spec: str, text: str) -> None:
    file = tmp_path / "f.mlir"
    file.write_text("builtin.module {}")
    result = dlc("opt", file, "-p", spec)
    assert result.exit_code == 1
    assert text in result.stderr


def test_opt_refuses_passes_of_another_stage(tmp_path: Path) -> None:
    file, formed = tmp_path / "f.mlir", tmp_path / "kernels.mlir"
    file.write_text(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %a = dl.exp %x : (tensor<4xf32>) -> tensor<4xf32>\n"
        "  func.return %a : tensor<4xf32>\n}\n"
    )
    for name, stage in (("tile-kernels", "tiling"), ("vectorize", "loops"), ("plan-arena", "host")):
        result = dlc("opt", file, "-p", name)
        message = " ".join(result.stderr.split())
        assert result.exit_code == 1 and f"{name} is of stage {stage}, but the module is at stage dl; run" in message
    lower = "form-kernels{target=cpu},lower-kernels-to-linalg"
    assert dlc("opt", file, "-p", lower, "-o", formed).exit_code == 0
    message = " ".join(dlc("opt", formed, "-p", "simplify").stderr.split())
    assert "simplify is of stage dl, but the module is at stage linalg; take an earlier file of a dump" in message
    loops = 'fuse-generics,bufferize-kernels,tile-kernels{target="cpu:avx2"},vectorize'
    assert dlc("opt", formed, "-p", loops, "-o", file).exit_code == 0
    message = " ".join(dlc("opt", file, "-p", "bufferize-kernels").stderr.split())
    assert "bufferize-kernels is of stage tiling, but the module is at stage loops" in message


def test_opt_refuses_text_that_is_no_ir(tmp_path: Path) -> None:
    file = tmp_path / "f.mlir"
    for text in (b"func.func @f( {", b"\x08\x8f"):
        file.write_bytes(text)
        result = dlc("opt", file)
        assert result.exit_code == 1
        assert "not valid IR" in result.stderr


def test_info_describes_a_compiled_model(tmp_path: Path) -> None:
    @jit(target="cpu:generic", dynamic={"x": {0: "N"}})
    def pairs(x: Any) -> Any:
        return x.reshape(-1, 8) @ np.ones((8, 2), np.float32)

    path = tmp_path / "pairs.dlc"
    pairs.lower(np.ones((6, 4), np.float32)).compile().save(path)
    described = json.loads(dlc("info", path, "--json").stdout)
    assert described["inputs"] == {"x": "float32[N, 4]"} and described["target"] == "cpu:generic"
    (guard,) = described["programs"][0]["guards"]
    assert "N" in guard and described["weight_bytes"] >= 64
    assert described["file_bytes"] == path.stat().st_size
    assert "pairs for cpu:generic" in dlc("info", path).stdout


@pytest.mark.skipif(sys.flags.optimize > 1, reason="python -OO takes docstrings away")
def test_passes_and_targets_as_json() -> None:
    passes = json.loads(dlc("passes", "--json").stdout)
    assert {"form-kernels", "tile-kernels"} <= {p["name"] for p in passes}
    assert all(p["summary"] for p in passes)
    targets = json.loads(dlc("targets", "--json").stdout)
    assert [t["default"] for t in targets].count(True) == 1


# Commands without --json, and their output.
PRINTS = {"header": "a file", "completion": "a script", "serve": "its address"}


def commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        yield name, command
        yield from ((f"{name} {n}", c) for n, c in getattr(command, "commands", {}).items())


def test_every_command_prints_json() -> None:
    without = {name for name, command in commands() if all(p.name != "as_json" for p in command.params)}
    assert without == set(PRINTS)


def test_run_each_set_of_inputs_in_a_folder(relu: Path, tmp_path: Path) -> None:
    cases, made = tmp_path / "cases", tmp_path / "made"
    (cases / "first").mkdir(parents=True)
    np.save(cases / "first" / "x.npy", np.array([[-1, 2, -3, 4]], np.float32))
    np.savez(cases / "second.npz", x=np.array([[1, -2, 3, -4]] * 2, np.float32))
    line = ("run", relu, "--target", "reference", "--each", cases)
    expected = {"first": {"y": [[0, 2, 0, 4]]}, "second.npz": {"y": [[1, 0, 3, 0]] * 2}}
    assert json.loads(dlc(*line, "--json").stdout) == expected
    assert dlc(*line, "-o", made).exit_code == 0
    assert np.load(made / "second.npz")["y"].tolist() == expected["second.npz"]["y"]
    assert np.load(made / "first.npz")["y"].tolist() == expected["first"]["y"]
    np.savez(cases / "third.npz", wrong=np.zeros(4, np.float32))
    refused = dlc(*line)
    assert refused.exit_code == 2 and "third.npz: no input is named wrong" in " ".join(refused.stderr.split())
    assert "found neither" in dlc("run", relu, "--each", made.parent / "cases" / "first").stderr


def test_shells_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = dlc("completion", "bash").stdout
    assert "_DLC_COMPLETE=bash_complete" in script and "_COMPILE_MODEL_COMPLETE=bash_complete" in script
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").write_bytes(b"# caf\xe9")
    for _ in range(2):
        assert dlc("completion", "bash", "--install").exit_code == 0
    assert (tmp_path / ".bashrc").read_bytes() == b'# caf\xe9\neval "$(dlc completion bash)"\n'

    def completed(line: str) -> list[str]:
        complete = ShellComplete(main, {}, "dlc", "_DLC_COMPLETE")
        *before, last = line.split(" ")
        return [item.value for item in complete.get_completions(before, last)]

    assert completed("b") == ["bench", "bisect"]
    assert completed("run --target opencl") == ["opencl"]
    assert "--each" in completed("run --e")


def test_print_pipeline() -> None:
    result = dlc("compile", MNIST, "--print-pipeline")
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [
        "dl",
        "fusion",
        "linalg",
        "tiling",
        "loops",
        "host",
    ]
    assert dlc("compile", MNIST, "--print-pipeline", "--pipeline", "cse,dce").stdout.startswith("dl: cse,dce\n")


def test_an_unwritable_output_is_named(tmp_path: Path) -> None:
    module = tmp_path / "m.mlir"
    module.write_text("builtin.module {}")
    for arguments in (["compile", MNIST, "--emit", "dl"], ["opt", module]):
        result = dlc(*arguments, "-o", "/dev/full")
        assert result.exit_code == 1
        assert "/dev/full: cannot be written: No space left" in result.stderr


def test_output_to_a_device_file() -> None:
    result = dlc("run", MNIST, "--target", "reference", "-o", "/dev/null")
    assert result.exit_code == 0, result.stderr


def test_a_python_bug_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("dlc.cli.run.compile_file", broken)
    result = dlc("run", MNIST)
    assert result.exit_code == 1
    assert "bug of dlc" in result.stderr and "Traceback" not in result.stderr


def test_console_scripts_exist() -> None:
    scripts = Path(sys.executable).parent
    run = subprocess.run([scripts / "dlc", "opt", "-"], input="builtin.module {}", capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "builtin.module {\n}\n", "")
    run = subprocess.run([scripts / "compile-model", "-h"], capture_output=True, text=True)
    assert run.returncode == 0 and "compile-model" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{f}", "--shape", "x=3"], r"name a function of the file: .*f\.py:FUNCTION"),
        (["{f}:absent", "--shape", "x=3"], "no function is named absent"),
        (["{f}:twice"], "twice needs the argument x: add --shape x=SIZE"),
        (["{f}:twice", "--shape", "y=3"], "twice has no parameter y; its parameters are x"),
        (["{f}:twice", "--shape", "x=N"], "a function needs static shapes"),
        (["{f}:twice", "--shape", "x=3", "--dtype", "x=complex"], "expected NAME=DTYPE, such as x=float64"),
        (["{f}:twice", "--shape", "x=3", "--dtype", "y=int32"], "--dtype y: add --shape y=SIZE"),
        (["{f}:twice", "--shape", "x=3", "--vjp", "result", "--wrt", "x"], "no derivatives or training steps"),
        (["{f}:fails", "--shape", "x=3"], r"f\.py:5: ZeroDivisionError"),
        ([str(MNIST), "--dtype", "x=int32"], "--dtype applies to functions of Python files"),
    ],
)
def test_functions_that_cannot_be_compiled(tmp_path: Path, arguments: list[str], message: str) -> None:
    file = tmp_path / "f.py"
    file.write_text("def twice(x):\n    return 2 * x\n\ndef fails(x):\n    return x / (1 // 0)\n")
    result = dlc("compile", *(a.format(f=file) for a in arguments))
    assert result.exit_code in (1, 2) and re.search(message, " ".join(result.stderr.split())), result.stderr

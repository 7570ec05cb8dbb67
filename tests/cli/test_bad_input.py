"""Invalid files and inputs on the command line: one message that names the file, status 1, nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import ModelProto, TensorProto, helper

from dlc.cli import main
from tests.frontend.onnx.build import INT64, model
from tests.models.skeletons import path_of

COMMANDS = ("run", "compile")
HUGE = 1 << 62


class Folder:
    """A folder of inputs, and commands that run on them with every option that writes files."""

    def __init__(self, inputs: Path, written: Path) -> None:
        self.inputs = inputs
        self.written = written

    def file(self, content: bytes | ModelProto, name: str = "model.onnx") -> Path:
        path = self.inputs / name
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        return path

    def array(self, name: str, array: np.ndarray) -> Path:
        np.save(self.inputs / f"{name}.npy", array)
        return self.inputs / f"{name}.npy"

    def dlc(self, command: str, *arguments: object) -> Result:
        output = ["-o", self.written / "out.npz"] if command == "run" else []
        words = [command, *arguments, "--dump-ir", self.written / "ir", *output]
        return CliRunner().invoke(main, [str(w) for w in words], catch_exceptions=False)

    def refuses(self, command: str, *arguments: object, words: tuple[str, ...]) -> None:
        result = self.dlc(command, *arguments)
        assert result.exit_code == 1, result.output
        assert result.stdout == ""
        assert result.stderr.count("error:") == 1 and result.stderr.startswith("error:")
        assert "Traceback" not in result.stderr and "bug" not in result.stderr
        assert all(word in result.stderr for word in words), result.stderr
        assert not list(self.written.iterdir())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    inputs, written = tmp_path / "inputs", tmp_path / "written"
    inputs.mkdir()
    written.mkdir()
    # Stray files would be written to the current or the temporary folder.
    monkeypatch.chdir(written)
    monkeypatch.setattr(tempfile, "tempdir", str(written))
    return Folder(inputs, written)


def relu(shape: tuple[int, ...] = (2, 3)) -> ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"], name="act")], {"x": shape}, ["y"])


def with_weight(tensor: TensorProto) -> ModelProto:
    """Return y = x + w for a weight as a file may store it."""
    tensor.name = "w"
    made = model([helper.make_node("Add", ["x", "w"], ["y"], name="sum")], {"x": (2,)}, ["y"], weights={})
    made.graph.initializer.append(tensor)
    return made


def external(location: str) -> TensorProto:
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("part", [0, 0.01, 0.5, 0.99])
def test_a_truncated_file(folder: Folder, command: str, part: float) -> None:
    whole = path_of("mnist_cnn").read_bytes()
    folder.refuses(command, folder.file(whole[: int(part * len(whole))]), words=("model.onnx",))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_in_place_of_a_file(folder: Folder, command: str) -> None:
    """An endless device."""
    folder.refuses(command, Path("/dev/zero"), words=("/dev/zero", "a device"))


def test_a_seed_below_zero(folder: Folder) -> None:
    result = CliRunner().invoke(main, ["run", str(folder.file(relu())), "--seed", "-1"])
    assert result.exit_code == 2 and "'--seed'" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("text", ["dear diary", "builtin.module {}", "\n" * 500, '{"ir_version": 8}'])
def test_a_text_file(folder: Folder, command: str, text: str) -> None:
    folder.refuses(command, folder.file(text.encode()), words=("model.onnx", "not an ONNX model"))


@pytest.mark.parametrize("command", COMMANDS)
def test_invalid_ir(folder: Folder, command: str) -> None:
    folder.refuses(command, folder.file(b"func.func @main(%x: ", "model.mlir"), words=("model.mlir", "not valid IR"))
    folder.refuses(command, folder.file(bytes(range(256)), "model.mlir"), words=("model.mlir", "not valid IR"))
    folder.refuses(command, folder.file(b"builtin.module {}", "model.mlir"), words=("model.mlir", "@main"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("blocks", [0, 2])
def test_a_function_without_or_with_several_blocks(folder: Folder, command: str, blocks: int) -> None:
    block = "%c = dl.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32> func.return %c : tensor<f32>"
    body = f"func.func @main() -> tensor<f32> {{ {block} ^next: {block.replace('%c', '%d')} }}"
    text = body if blocks else "func.func private @main(tensor<2xf32>) -> tensor<2xf32>"
    folder.refuses(command, folder.file(text.encode(), "model.mlir"), words=("@main", f"{blocks or 'no'} blocks"))


@pytest.mark.parametrize("command", COMMANDS)
def test_an_op_outside_of_every_function(folder: Folder, command: str) -> None:
    text = b"""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { func.return %x : tensor<2xf32> }
    %c = dl.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>"""
    folder.refuses(command, folder.file(text, "model.mlir"), words=("model.mlir", "dl.constant", "outside"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_module_without_its_weights(folder: Folder, command: str) -> None:
    text = b"""func.func @main() -> tensor<2xf32> {
      %w = dl.weight {symbol = @w0, type = tensor<2xf32>} : () -> tensor<2xf32>
      func.return %w : tensor<2xf32>
    }"""
    folder.refuses(command, folder.file(text, "model.mlir"), words=("model.mlir", "weight w0"))


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_operators(folder: Folder, command: str) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="known"),
        helper.make_node("Bend", ["b"], ["y"], name="second", domain="com.example"),
    ]
    words = ("2 features", "first", "Frobnicate", "second", "com.example")
    folder.refuses(command, folder.file(model(nodes, {"x": (2,)}, ["y"])), words=words)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cycle(folder: Folder, command: str) -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    words = ("depends on itself", "first", "second")
    folder.refuses(command, folder.file(model(nodes, {"x": (2,)}, ["a"])), words=words)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 4), np.float32), ("x: float32[2, 3]", "float32[2, 4]")),
        (np.zeros(6, np.float32), ("x: float32[2, 3]", "float32[6]")),
        (np.zeros((2, 3), np.float64), ("x: float32[2, 3]", "float64[2, 3]", "astype")),
        (np.zeros((2, 3), np.int8), ("x: float32[2, 3]", "int8[2, 3]")),
        (np.array([["a", "b", "c"]] * 2), ("x: float32[2, 3]",)),
        (np.zeros((2, 3), np.complex64), ("x: float32[2, 3]", "complex64")),
    ],
)
def test_an_input_of_a_wrong_shape_or_dtype(folder: Folder, array: np.ndarray, words: tuple[str, ...]) -> None:
    folder.refuses("run", folder.file(relu()), "--input", f"x={folder.array('x', array)}", words=words)


def test_inputs_with_contradictory_sizes(folder: Folder) -> None:
    path = folder.file(model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ("n",), "b": ("n",)}, ["y"]))
    given = [f"{name}={folder.array(name, np.zeros(size, np.float32))}" for name, size in (("a", 3), ("b", 4))]
    folder.refuses("run", path, "--input", given[0], "--input", given[1], words=("n = 3", "float32[4]"))


def test_an_input_file_that_is_no_array(folder: Folder) -> None:
    path = folder.file(relu())
    for content in (b"dear diary", b"", b"\x93NUMPY\x01\x00v\x00{'descr'"):
        text = folder.file(content, "x.npy")
        folder.refuses("run", path, "--input", f"x={text}", words=("x.npy",))
    np.save(folder.inputs / "pickled.npy", np.array([{}], object), allow_pickle=True)
    folder.refuses("run", path, "--input", f"x={folder.inputs / 'pickled.npy'}", words=("pickled.npy",))
    folder.refuses("run", path, "--input", f"x={folder.inputs / 'nowhere.npy'}", words=("nowhere.npy",))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("shape", ["x=2,4", "x=6", "z=1"])
def test_a_shape_that_contradicts_the_model(folder: Folder, command: str, shape: str) -> None:
    folder.refuses(command, folder.file(relu()), "--shape", shape, words=(f"'{shape[0]}'",))


def _constant_of(count: int) -> ModelProto:
    nodes = [helper.make_node("ConstantOfShape", ["n"], ["c"], name="make"), helper.make_node("Add", ["x", "c"], ["y"])]
    return model(nodes, {"x": (1,)}, ["y"], weights={"n": np.array([count])})


def _expanded(count: int) -> ModelProto:
    nodes = [helper.make_node("Expand", ["x", "n"], ["y"], name="make")]
    return model(nodes, {"x": (1,)}, ["y"], weights={"n": np.array([count])})


def _range(count: int) -> ModelProto:
    nodes = [helper.make_node("Range", ["zero", "n", "one"], ["y"], name="make")]
    values = {"zero": np.array(0), "n": np.array(count), "one": np.array(1)}
    return model(nodes, {"x": (1,)}, ["y"], weights=values, dtypes={"y": INT64})


def _padded(count: int) -> ModelProto:
    nodes = [helper.make_node("Pad", ["x", "n"], ["y"], name="make")]
    return model(nodes, {"x": (1,)}, ["y"], weights={"n": np.array([0, count])})


CLAIMS: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "raw": (lambda: with_weight(TensorProto(data_type=1, dims=[HUGE], raw_data=bytes(8))), "'w'"),
    "product": (lambda: with_weight(TensorProto(data_type=1, dims=[1 << 31, 1 << 31], raw_data=bytes(8))), "'w'"),
    "overflowing": (lambda: with_weight(TensorProto(data_type=1, dims=[1 << 62, 4], raw_data=b"")), "'w'"),
    "typed": (lambda: with_weight(TensorProto(data_type=1, dims=[HUGE], float_data=[1, 2])), "'w'"),
    "empty": (lambda: with_weight(TensorProto(data_type=1, dims=[HUGE])), "'w'"),
    "input": (lambda: relu((1 << 31, 1 << 31)), "x"),
    "constant_of_shape": (lambda: _constant_of(HUGE), "make"),
    "expand": (lambda: _expanded(HUGE), "make"),
    "range": (lambda: _range(HUGE), "make"),
    "pad": (lambda: _padded(HUGE), "make"),
}


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_tensor_of_too_many_elements(folder: Folder, command: str, claim: str, target: str) -> None:
    make, place = CLAIMS[claim]
    folder.refuses(command, folder.file(make()), "--target", target, words=(place,))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "link", "links/secret", "", ".", "absent", "a\0b", "l" * 300])
def test_external_data_outside_the_folder(folder: Folder, command: str, location: str) -> None:
    secret = folder.inputs.parent / "secret"
    secret.write_bytes(bytes(8))
    (folder.inputs / "link").symlink_to(secret)
    (folder.inputs / "links").symlink_to(folder.inputs.parent)
    folder.refuses(command, folder.file(with_weight(external(location))), words=("'w'", "folder"))


@pytest.mark.parametrize("command", COMMANDS)
def test_external_data_that_ends_early(folder: Folder, command: str) -> None:
    (folder.inputs / "data").write_bytes(bytes(7))
    folder.refuses(command, folder.file(with_weight(external("data"))), words=("'w'", "bytes 0 to 8", "has 7"))


@pytest.mark.parametrize("script", [["dlc", "run"], ["compile-model"]])
def test_as_a_program(folder: Folder, script: list[str]) -> None:
    program = [Path(sys.executable).parent / script[0], *script[1:], folder.file(b"dear diary")]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("error:") and run.stderr.count("\n") == 1
    assert not list(folder.written.iterdir())


def test_valid_inputs_are_written(folder: Folder) -> None:
    result = folder.dlc("run", folder.file(relu()))
    assert result.exit_code == 0, result.output
    assert {p.name for p in folder.written.iterdir()} == {"ir", "out.npz"}
    assert onnx.load(folder.inputs / "model.onnx").graph.node[0].name == "act"


def test_an_invalid_environment_variable_is_one_message() -> None:
    program = [sys.executable, "-m", "dlc", "run", __file__]
    run = subprocess.run(program, capture_output=True, text=True, check=False, env={**os.environ, "DLC_WORKERS": "x"})
    assert (run.returncode, run.stderr.strip()) == (1, "error: DLC_WORKERS=x: expected an integer >= 1")


def test_a_process_without_a_standard_output() -> None:
    command = f"{sys.executable} -m dlc targets >&-"
    run = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("bench", "--seconds"), ("compile", "--tune"), ("diff", "--tolerance"), ("bisect", "--tolerance"), ("reduce", "--tolerance"),
        ("reduce", "--seconds"), ("quantize", "--max-error"), ("train", "--learning-rate"),
    ],
)  # fmt: skip
def test_nan_is_rejected_by_numeric_options(command: str, option: str) -> None:
    files = [__file__] * (1 + (command == "diff"))
    result = CliRunner().invoke(main, [command, *files, option, "nan"])
    assert result.exit_code == 2 and "nan is not a number" in result.output

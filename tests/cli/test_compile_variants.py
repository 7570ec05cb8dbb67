"""`dlc compile` with several values or shapes of an input: a model of several programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import dlc
from dlc.cli import main
from dlc.errors import UnsupportedError

SUMS = """<ir_version: 10, opset_import: ["" : 21]>
    sums (float[n, 4] x, int64[1] axes) => (float[m, k] y) { y = ReduceSum(x, axes) }"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    onnx.save(onnx.parser.parse_model(SUMS), folder / "sums.onnx")
    for axis in (0, 1):
        np.save(folder / f"{axis}.npy", np.int64([axis]))
    return folder


def compiled(folder: Path, *arguments: str) -> Result:
    given = [argument.replace("=@", f"={folder}/") for argument in arguments]
    return CliRunner().invoke(main, ["compile", str(folder / "sums.onnx"), *given])


def test_one_program_per_value_and_shape(folder: Path) -> None:
    values = ["--value", "axes=@0.npy", "--value", "axes=@1.npy"]
    done = compiled(folder, *values, "--shape", "n=2", "--shape", "n=3", "-o", str(folder / "sums.dlc"))
    assert done.exit_code == 0 and "Compiled to 4 programs" in done.output and "needs Python" not in done.output, done.output
    model = dlc.load(folder / "sums.dlc")
    for rows in (2, 3):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        for axis in (0, 1):
            np.testing.assert_array_equal(model(x=x, axes=np.int64([axis]))["y"], x.sum(axis, keepdims=True))
    with pytest.raises(UnsupportedError, match=r"not compiled for x_0 = 4; .*holds x_0 = 2; x_0 = 3\."):
        model(x=np.ones((4, 4), np.float32), axes=np.int64([0]))


def test_duplicates_are_one_program(folder: Path) -> None:
    values = ["--value", "axes=@0.npy", "--value", "axes=@1.npy", "--value", "axes=@0.npy"]
    done = compiled(folder, *values, "--shape", "n=2", "--shape", "x=2,4")
    assert done.exit_code == 0 and "Compiled to 2 programs" in done.output, done.output


def test_input_names_that_are_no_identifiers(folder: Path) -> None:
    """Symbolic dimensions are named after inputs, and files store them as text."""
    proto = onnx.parser.parse_model(SUMS)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "1"
    onnx.save(proto, folder / "named.onnx")
    shapes = ["--shape", "n=2", "--shape", "n=3", "--value", f"axes={folder / '0.npy'}"]
    done = CliRunner().invoke(main, ["compile", str(folder / "named.onnx"), *shapes, "-o", str(folder / "named.dlc")])
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(dlc.load(folder / "named.dlc")(np.ones((3, 4), np.float32))["y"], [[3, 3, 3, 3]])


def test_a_library_of_variants_has_dynamic_shapes(folder: Path) -> None:
    done = compiled(folder, "--value", "axes=@0.npy", "--value", "axes=@1.npy", "-o", str(folder / "sums.so"))
    assert done.exit_code == 0, done.output
    header = (folder / "sums.h").read_text()
    assert " * for axes = [1]:\n *     size 0    n\n *     input 0   x: float32[n, 4]\n" in header


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--value", "axes=@0.npy", "--shape", "x=N,4", "--shape", "x=3,4"],
            "x: float32[N, 4]: programs selected by shape need static shapes",
        ),
        (["--shape", "n=2", "--shape", "n=3", "--emit", "dl"], "take one program; give one --shape and --value per input"),
    ],
)
def test_invalid_variants(folder: Path, arguments: list[str], told: str) -> None:
    done = compiled(folder, *arguments)
    assert done.exit_code in (1, 2) and told in " ".join(done.output.split())


def test_equal_bytes_of_different_shapes(folder: Path) -> None:
    onnx.save(onnx.parser.parse_model(SUMS.replace("float[n, 4] x", "float[n, h] x")), folder / "open.onnx")
    for name, shape in (("wide", (2, 3)), ("long", (3, 2))):
        np.save(folder / f"{name}.npy", np.zeros(shape, np.float32))
    values = [part for name in ("wide", "long") for part in ("--value", f"x={folder / name}.npy")]
    done = CliRunner().invoke(main, ["compile", str(folder / "open.onnx"), *values, "--value", f"axes={folder / '0.npy'}"])
    assert done.exit_code == 1 and "input 'x': expected values of one dtype and shape" in " ".join(done.output.split())


def test_other_commands_take_one_shape(folder: Path) -> None:
    done = CliRunner().invoke(main, ["run", str(folder / "sums.onnx"), "--shape", "n=2", "--shape", "n=3"])
    assert done.exit_code == 2 and "'n' is given 2 times" in done.output

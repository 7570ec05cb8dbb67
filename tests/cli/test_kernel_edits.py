"""Edited kernels and tile plans from files, in a whole model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from dlc.cli import main
from tests.targets import NATIVE

RNG = np.random.default_rng(0)
KERNEL = "matmul_relu"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, the IR of its compilation, and the plans of its kernels."""
    path = tmp_path_factory.mktemp("edits")
    weights = numpy_helper.from_array(RNG.normal(size=(24, 20)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "first"), helper.make_node("Relu", ["h"], ["y"], "rectified")]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", (6, 24)), ("y", (6, 20))))
    graph = helper.make_graph(nodes, "small", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path / "model.onnx")
    result = run(path, "run", "--dump-ir", str(path / "ir"), "--write-plan", str(path / "plan.toml"))
    assert result.exit_code == 0, result.output
    return path


def run(folder: Path, command: str, *options: str) -> Result:
    return CliRunner().invoke(main, [command, str(folder / "model.onnx"), *options], catch_exceptions=False)


def dumped(folder: Path, stage: str) -> Path:
    return folder / "ir" / "kernels" / f"{KERNEL}.{stage}.mlir"


def edited(folder: Path, stage: str, old: str, new: str) -> Path:
    text = dumped(folder, stage).read_text()
    assert old in text
    file = folder / "edited.mlir"
    file.write_text(text.replace(old, new, 1))
    return file


def replacing(file: Path) -> tuple[str, str]:
    return "--replace-kernel", f"{KERNEL}={file}"


@pytest.mark.parametrize("stage", ["linalg", "tiling", "loops"])
def test_unchanged_kernels(folder: Path, stage: str) -> None:
    result = run(folder, "diff", *replacing(dumped(folder, stage)))
    assert result.exit_code == 0 and "agrees" in result.output, result.output


@pytest.mark.parametrize("target", NATIVE)
def test_unchanged_linalg_on_targets(folder: Path, target: str) -> None:
    result = run(folder, "diff", *replacing(dumped(folder, "linalg")), "--target", target)
    assert result.exit_code == 0 and "agrees" in result.output, result.output


@pytest.mark.parametrize("stage", ["linalg", "loops"])
def test_edited_kernels_run(folder: Path, stage: str) -> None:
    file = edited(folder, stage, "arith.maximumf", "arith.minimumf")
    result = run(folder, "diff", *replacing(file))
    assert result.exit_code == 1 and f"kernel @{KERNEL}" in result.output, result.output
    output = folder / "outputs.npz"
    assert run(folder, "run", *replacing(file), "-o", str(output)).exit_code == 0
    assert np.load(output)["y"].max() <= 0


def test_edited_kernels_with_a_dump(folder: Path) -> None:
    file = edited(folder, "loops", "arith.maximumf", "arith.minimumf")
    output = folder / "outputs.npz"
    assert run(folder, "run", *replacing(file), "-o", str(output), "--dump-ir", str(folder / "ir2")).exit_code == 0
    assert np.load(output)["y"].max() <= 0


def test_bench_measures_the_original(folder: Path) -> None:
    result = run(folder, "bench", *replacing(dumped(folder, "loops")), "--seconds", "0.01")
    assert result.exit_code == 0 and "original" in result.output


def test_errors_of_kernels(folder: Path) -> None:
    for old, new, message in (
        ("// stage: loops", "", "expected the line `// stage: loops`"),
        ("// stage: loops", "// stage: dl", "stage 'dl': expected one of linalg, tiling, loops"),
        ("func.return", "func.retur", "is not valid IR"),
        ("memref<6x24xf32>", "memref<6x25xf32>", "edited.mlir"),
        ("func.func", "// ", "is not valid IR"),
    ):
        result = run(folder, "run", *replacing(edited(folder, "loops", old, new)))
        assert result.exit_code == 1 and message in result.output, (message, result.output)
    result = run(folder, "run", "--replace-kernel", f"other={dumped(folder, 'loops')}")
    assert result.exit_code == 1 and f"the program has no such kernel; it has {KERNEL}" in result.output
    result = run(folder, "run", "--replace-kernel", "other")
    assert result.exit_code == 2 and "expected NAME=FILE with an existing file" in result.output
    result = run(folder, "run", *replacing(dumped(folder, "loops")), "--target", "reference")
    assert result.exit_code == 1 and "it has no kernels to replace" in result.output


def test_arguments_of_another_type(folder: Path) -> None:
    file = folder / "edited.mlir"
    file.write_text(dumped(folder, "loops").read_text().replace("memref<6x24xf32>", "memref<6x25xf32>"))
    result = run(folder, "run", *replacing(file))
    assert result.exit_code == 1 and "is memref<6x25xf32>; expected memref<6x24xf32>" in result.output, result.output


def test_accesses_out_of_bounds(folder: Path) -> None:
    file = folder / "edited.mlir"
    text = dumped(folder, "loops").read_text()
    file.write_text(text.replace("%c24 = arith.constant 24", "%c24 = arith.constant 25"))
    result = run(folder, "run", *replacing(file))
    assert result.exit_code == 1 and "outside 0..23" in result.output, result.output


def test_plans(folder: Path) -> None:
    text = (folder / "plan.toml").read_text()
    assert f"[{KERNEL}.0]" in text
    header, *entries = text[text.index(f"[{KERNEL}.0]") :].splitlines()
    table = {line.split(" = ")[0]: line for line in entries}
    file = folder / "edited.toml"

    def with_entry(entry: str) -> Result:
        file.write_text(f"# A comment.\n{header}\n{entry}\n")
        return run(folder, "diff", "--plan", str(file))

    assert with_entry(table["order"]).exit_code == 0
    result = with_entry("register = {d1 = 4}")
    assert result.exit_code == 0 and "agrees" in result.output, result.output
    for entry, message in (
        ("register = {d1 = 99}", "edited.toml:3: kernel matmul_relu, loop nest 0: register[d1] = 99"),
        ("register = {x = 99}", "edited.toml:3: kernel matmul_relu, loop nest 0: register = {'x': 99}: expected sizes"),
        ("order = 3", "edited.toml:3: kernel matmul_relu, loop nest 0: order = 3: expected a list of integers"),
        ("tile = 3", "edited.toml:3: kernel matmul_relu, loop nest 0: tile: "),
        ('kind = "Tiles"', "edited.toml:3: kernel matmul_relu, loop nest 0: kind Tiles"),
        ("order =", "edited.toml: "),
        ("[matmul_relu.7]", "edited.toml:3: kernel matmul_relu, loop nest 7: kernel matmul_relu has 1 loop nests"),
        ("[other.0]", "edited.toml:3: the program has no kernel other; it has matmul_relu"),
    ):
        result = with_entry(entry)
        assert result.exit_code == 1 and message in result.output, (message, result.output)


def test_written_plans_are_dlcs_choice(folder: Path) -> None:
    again = folder / "again.toml"
    result = run(
        folder, "compile", "--plan", str(folder / "plan.toml"), "--write-plan", str(again), "-o", str(folder / "m.dlc")
    )
    assert result.exit_code == 0, result.output
    assert again.read_text() == (folder / "plan.toml").read_text()


def test_a_program_to_compare_with_is_required(folder: Path) -> None:
    result = run(folder, "diff")
    assert result.exit_code == 2 and "give a second program B, or --replace-kernel or --plan" in result.output

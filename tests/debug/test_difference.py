"""Two programs on the same inputs: the first value that only one of them has, at every stage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import dlc
import dlc.numpy as dnp
from dlc.backends.registry import backend_of
from dlc.cli import main
from dlc.compiler import Program, compile
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.debug.difference import difference
from dlc.dialects.registry import make_context
from dlc.ir import parse_module, print_module
from dlc.runtime.opencl.devices import all_devices
from dlc.weights import WeightStore
from tests.shapes.test_data_dependent_sizes import BRANCHES, FEW
from tests.targets import NATIVE, SHORT

TEXT = """
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = dl.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("product")
  %1 = dl.add %0, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("sum")
  %2 = dl.relu %1 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("positive")
  %3 = dl.mul %2, %2 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("square")
  %4 = dl.mul %x, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("other")
  func.return %3, %4 : tensor<4x8xf32>, tensor<4x8xf32>
}
"""


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the original program, and the program at the end of each stage."""
    folder = tmp_path_factory.mktemp("stages")
    (folder / "start.mlir").write_text(TEXT)
    lowering = Lowering(Compilation(Program(parse_module(make_context(), TEXT), WeightStore()), backend_of(SHORT)))
    for stage in lowering.plan:
        if stage.name == "host":
            lowering.host()
        else:
            lowering.run((stage,))
        (folder / f"{stage.name}.mlir").write_text(print_module(lowering.module))
    return folder


def diff(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["diff", *map(str, arguments)], catch_exceptions=False)


def edited(file: Path, old: str, new: str, count: int = 1) -> Path:
    text = file.read_text()
    assert old in text
    result = file.with_name(f"edited-{file.name}")
    result.write_text(text.replace(old, new, count))
    return result


@pytest.mark.parametrize("stage", ["dl", "fusion", "linalg", "tiling", "loops", "host"])
def test_stages_agree(stages: Path, stage: str) -> None:
    result = diff(stages / "start.mlir", stages / f"{stage}.mlir")
    assert result.exit_code == 0 and result.stdout.count("agrees") == 2, result.output


@pytest.mark.parametrize(
    "stage, old, new, expected",
    [
        ("start", "dl.add", "dl.sub", ["= dl.sub %", "from sum"]),
        ("fusion", "dl.relu", "dl.neg", ["= dl.neg %", "in kernel @", "from positive"]),
        ("linalg", "arith.addf", "arith.subf", ["= arith.subf %", "in kernel @"]),
        ("loops", "arith.maximumf", "arith.minimumf", ["= arith.minimumf %", "in kernel @", "positive"]),
    ],
)
def test_the_op_that_was_edited_is_named(stages: Path, stage: str, old: str, new: str, expected: list[str]) -> None:
    file = stages / f"{stage}.mlir"
    result = diff(file, edited(file, old, new))
    assert result.exit_code == 1 and all(text in result.stderr for text in expected), result.stderr
    assert "output1" not in result.stderr


def test_kernels_missing_in_another_stage_are_named(stages: Path) -> None:
    result = diff(stages / "start.mlir", edited(stages / "loops.mlir", "arith.maximumf", "arith.minimumf"))
    assert result.exit_code == 1 and "kernel @matmul_add_relu_mul, as a whole" in result.stderr
    assert "from product, sum, positive" in result.stderr


VIEWED = """
func.func @main(%x: tensor<8xf32>) -> tensor<4x2xf32> {
  %0 = dl.relu %x : (tensor<8xf32>) -> tensor<8xf32> loc("positive")
  %1 = dl.reshape %0 {shape = array<i64: 4, 2>} : (tensor<8xf32>) -> tensor<4x2xf32> loc("view")
  func.return %1 : tensor<4x2xf32>
}
"""


def test_values_inside_kernels_need_no_counterpart(stages: Path) -> None:
    result = diff(edited(stages / "loops.mlir", "arith.maximumf", "arith.minimumf"), stages / "start.mlir")
    assert result.exit_code == 1 and "= dl.mul %" in result.stderr and "from square" in result.stderr
    assert "in kernel @matmul_add_relu_mul" in result.stderr


def test_kernels_are_named_instead_of_views(stages: Path) -> None:
    lowering = Lowering(Compilation(Program(parse_module(make_context(), VIEWED), WeightStore()), backend_of(SHORT)))
    lowering.until("linalg")
    (stages / "viewed.mlir").write_text(print_module(lowering.module))
    file = stages / "viewed.mlir"
    result = diff(file, edited(file, "arith.maximumf", "arith.minimumf"))
    assert result.exit_code == 1 and "arith.minimumf" in result.stderr and "in kernel @relu" in result.stderr, result.stderr


@pytest.fixture(scope="module")
def compiled(stages: Path) -> dict[str, Path]:
    """Return the program, and one with a modified op, as files and compiled."""
    files = {"right": stages / "start.mlir", "wrong": edited(stages / "start.mlir", "dl.add", "dl.sub")}
    artifacts = {f"compiled {name}": stages / f"{name}.dlc" for name in files}
    for file, artifact in zip(files.values(), artifacts.values(), strict=True):
        dlc.compile_model(file, target=SHORT).save(artifact)
    return {**files, **artifacts}


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ("compiled right", "compiled wrong", ["kernel @matmul_sub_relu_mul, as a whole", "from product, sum, positive"]),
        ("right", "compiled wrong", ["kernel @matmul_sub_relu_mul, as a whole", "from product, sum, positive"]),
        ("compiled wrong", "right", ["= dl.mul %", "in kernel @matmul_sub_relu_mul", "from square"]),
        ("right", "compiled right", []),
    ],
)
def test_the_kernel_of_a_compiled_program_is_named(
    compiled: dict[str, Path], one: str, other: str, expected: list[str]
) -> None:
    result = diff(compiled[one], compiled[other])
    assert result.exit_code == bool(expected) and all(text in result.stderr for text in expected), result.stderr


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_the_kernel_of_a_program_on_a_device_is_named(compiled: dict[str, Path], tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.dlc" for name in ("right", "wrong")}
    for name, file in files.items():
        dlc.compile_model(compiled[name], target="opencl").save(file)
    for one in (compiled["right"], compiled["compiled right"], files["right"]):
        result = diff(one, files["wrong"])
        expected = ["kernel @matmul_sub_relu_mul, as a whole", "from product, sum, positive"]
        assert result.exit_code == 1 and all(text in result.stderr for text in expected), result.stderr
    assert diff(compiled["compiled right"], files["right"]).exit_code == 0


MASKED = """
func.func @main(%x: tensor<2x3xf32> {dl.name = "x"}) -> tensor<2x3xf32> {
  %0 = dl.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %1 = dl.greater %x, %0 : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xi1> loc("mask")
  %2 = dl.exp %x : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("shown")
  %3 = dl.select %1, %2, %x : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32> loc("chosen")
  func.return %3 : tensor<2x3xf32>
}
"""


@pytest.mark.parametrize("stages", [("start", "start"), ("start", "fusion"), ("fusion", "fusion")])
def test_masks_are_compared_by_position(tmp_path: Path, stages: tuple[str, str]) -> None:
    """Both masks have the same number of true elements at different positions."""
    for name, text in {"right": MASKED, "wrong": MASKED.replace("dl.greater", "dl.less")}.items():
        lowering = Lowering(Compilation(Program(parse_module(make_context(), text), WeightStore()), backend_of(SHORT)))
        (tmp_path / f"{name}-start.mlir").write_text(print_module(lowering.module))
        lowering.until("fusion")
        (tmp_path / f"{name}-fusion.mlir").write_text(print_module(lowering.module))
    given = tmp_path / "x.npy"
    np.save(given, np.array([[0, 1, 0.25], [0.75, 0.3, 0.8]], np.float32))
    result = diff(tmp_path / f"right-{stages[0]}.mlir", tmp_path / f"wrong-{stages[1]}.mlir", "--input", f"x={given}")
    assert result.exit_code == 1 and "= dl.less %" in result.stderr and "from mask" in result.stderr, result.stderr


FLAT = """
func.func @main(%x: tensor<2x3xf32> {dl.name = "x"}) -> tensor<6xi64> {
  %0 = dl.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %1 = dl.greater %x, %0 : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xi1> loc("mask")
  %2 = dl.cast %1 {to = i64} : (tensor<2x3xi1>) -> tensor<2x3xi64> loc("mask")
  %3 = dl.reshape %2 {shape = array<i64: 6>} : (tensor<2x3xi64>) -> tensor<6xi64> loc("flat")
  %4 = dl.cumsum %3 {axis = 0 : i64} : (tensor<6xi64>) -> tensor<6xi64> loc("sums")
  func.return %4 : tensor<6xi64>
}
"""


def test_masks_in_machine_code_are_compared_by_position(tmp_path: Path) -> None:
    """Arrays of compiled kernels are flat."""
    right, wrong = (
        Program(parse_module(make_context(), text), WeightStore()) for text in (FLAT, FLAT.replace("greater", "less"))
    )
    x = np.array([[0, 1, 0.25], [0.75, 0.3, 0.8]], np.float32)
    found = difference(right, compile(wrong, SHORT), [x])
    assert found.first is not None and found.first.origins == ("mask",)
    assert difference(right, compile(right, SHORT), [x]).agrees


SELECTED = """
func.func @main(%x: tensor<6xf32> {dl.name = "x"}) -> tensor<?xi64, #dl.dims<"k">> {
  %0 = dl.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %1 = dl.greater %x, %0 : (tensor<6xf32>, tensor<f32>) -> tensor<6xi1> loc("choice")
  %2 = dl.nonzero %1 {size = #dl.dims<"k">} : (tensor<6xi1>) -> tensor<1x?xi64, #dl.dims<1, "k">> loc("kept")
  %3 = dl.reshape %2 {shape = #dl.dims<"k">} : (tensor<1x?xi64, #dl.dims<1, "k">>) -> tensor<?xi64, #dl.dims<"k">>
  %4 = dl.mul %3, %3 : (tensor<?xi64, #dl.dims<"k">>, tensor<?xi64, #dl.dims<"k">>) -> tensor<?xi64, #dl.dims<"k">> loc("grown")
  func.return %4 : tensor<?xi64, #dl.dims<"k">>
}
"""


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("dense<0.5>", "dense<0.75>", ["differs in shape", "dl.greater", "from choice"]),
        ("dl.mul %3, %3", "dl.add %3, %3", ["dl.add", "from grown"]),
    ],
)
def test_data_dependent_sizes(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    file, given = tmp_path / "selected.mlir", tmp_path / "x.npy"
    file.write_text(SELECTED)
    np.save(given, np.array([0, 0.6, 1, 0.6, 0, 1], np.float32))
    assert diff(file, file, "--input", f"x={given}").exit_code == 0
    result = diff(file, edited(file, old, new), "--input", f"x={given}")
    assert result.exit_code == 1 and all(text in result.stderr for text in expected), result.stderr


def test_stages_with_data_dependent_sizes(tmp_path: Path) -> None:
    start, dump, given = tmp_path / "selected.mlir", tmp_path / "ir", tmp_path / "x.npy"
    start.write_text(SELECTED)
    np.save(given, np.array([0, 0.6, 1, 0.6, 0, 1], np.float32))
    dlc.compile_model(start, target=SHORT, dump_ir=dump)
    files = [dump / f"stage-{stage}.mlir" for stage in ("fusion", "linalg", "loops", "host")]
    for file in files:
        assert diff(start, file, "--input", f"x={given}").exit_code == 0, file
    changed = edited(files[2], "arith.muli %x_", "arith.addi %x_", count=-1)
    for file, expected in ((start, "as a whole"), (files[1], "in kernel @mul"), (files[2], "= arith.addi %")):
        result = diff(file, changed, "--input", f"x={given}")
        assert result.exit_code == 1 and expected in result.stderr, result.stderr


@pytest.mark.parametrize("target", NATIVE)
def test_counted_sizes_without_compilation(target: str) -> None:
    x = np.array([0, 0.6, 1, 0.6, 0, 1], np.float32)
    right, wrong = (
        Program(parse_module(make_context(), text), WeightStore())
        for text in (SELECTED, SELECTED.replace("dl.mul %3, %3", "dl.add %3, %3"))
    )
    found = difference(right, compile(wrong, target), [x])
    assert found.first is not None and "grown" in found.first.origins and "choice" not in found.first.origins


@pytest.mark.parametrize("target", NATIVE)
def test_values_that_depend_only_on_a_size(target: str) -> None:
    def places(least):
        return dlc.jit(target=target)(lambda x: dnp.arange(x[x > least].shape[0]) * 2)

    x = np.linspace(0, 1, 12, dtype=np.float32)
    models = [places(least).lower(x).compile() for least in (0.3, 0.6)]
    found = difference(*models, [x])
    assert found.first is not None and found.first.kernel == "greater_cast_reduce_sum" and not found.agrees


def test_bufferized_programs_compare_outputs_only(stages: Path) -> None:
    wrong = edited(stages / "start.mlir", "dl.mul %x, %x", "dl.add %x, %x")
    result = diff(stages / "host.mlir", wrong, "--json")
    assert result.exit_code == 1
    first, second = json.loads(result.stdout)["outputs"]
    assert first["deviation"] <= first["tolerance"] and second["deviation"] > second["tolerance"]
    assert "there are no intermediate values to compare" in diff(stages / "host.mlir", wrong).stderr


def test_other_outputs_or_inputs_are_refused(stages: Path, tmp_path: Path) -> None:
    one = "func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {\n  func.return %x : tensor<4x8xf32>\n}\n"
    (tmp_path / "one.mlir").write_text(one)
    result = diff(stages / "start.mlir", tmp_path / "one.mlir")
    assert result.exit_code == 1 and "takes 1 inputs, the other program 2" in " ".join(result.stderr.split())
    (tmp_path / "two.mlir").write_text(one.replace("(%x: tensor<4x8xf32>)", "(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>)"))
    result = diff(stages / "start.mlir", tmp_path / "two.mlir")
    assert result.exit_code == 1 and "have different outputs" in " ".join(result.stderr.split())


def test_bisect_against_an_edited_module(stages: Path) -> None:
    start = stages / "start.mlir"
    result = CliRunner().invoke(main, ["bisect", str(start), "--against", str(edited(start, "dl.add", "dl.sub"))])
    assert result.exit_code == 1 and "the programs differ before any pass" in result.stderr
    assert "= dl.add %" in result.stderr and "from sum" in result.stderr
    result = CliRunner().invoke(main, ["bisect", str(start), "--against", str(stages / "fusion.mlir"), "--target", SHORT])
    assert result.exit_code == 0 and "every step from the import to the native results is correct" in " ".join(
        result.stdout.split()
    )


def test_outputs_of_data_dependent_sizes_are_compared(tmp_path: Path) -> None:
    other = FEW.replace("y = Gather(x, places)", "e = Exp(x) y = Gather(e, places)")
    for name, text in {"few": FEW, "other": other, "branches": BRANCHES}.items():
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    dlc.compile_model(tmp_path / "few.onnx", target=SHORT).save(tmp_path / "few.dlc")
    assert diff(tmp_path / "few.onnx", tmp_path / "few.dlc", "--shape", "x=6").exit_code == 0
    assert diff(tmp_path / "branches.onnx", tmp_path / "branches.onnx", "--shape", "x=6").exit_code == 0
    result = diff(tmp_path / "few.dlc", tmp_path / "other.onnx", "--shape", "x=6")
    assert result.exit_code == 1 and "there are no intermediate values to compare" in result.stderr, result.stderr
    bisected = CliRunner().invoke(main, ["bisect", str(tmp_path / "few.onnx"), "--shape", "x=6"])
    assert bisected.exit_code == 0 and "every step from the import to the native results is correct" in " ".join(
        bisected.stdout.split()
    ), bisected.output

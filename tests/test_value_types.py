"""Lists and None as inputs and outputs: models are specialized for the values of calls and saved with them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import NodeProto, TensorProto, helper

import dlc
from dlc.cli import main
from dlc.deploy import write_library
from dlc.errors import DlcError, DTypeError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.onnx import check_model

FLOAT, STRING = TensorProto.FLOAT, TensorProto.STRING
A, B, BIAS = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([[7, 8, 9]]), np.float32([10, 20, 30])


def tensor(name: str, kind: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, [output], **attributes)


def framed() -> onnx.ModelProto:
    """y = the concatenated frames plus the bias if there is one; all = the frames and y; other inputs are passed through."""
    plus = [node("OptionalGetElement", ["bias"], "b"), node("Add", ["joined", "b"], "sum")]
    branches = {
        "then_branch": helper.make_graph(plus, "with", [], [tensor("sum")]),
        "else_branch": helper.make_graph([node("Identity", ["joined"], "same")], "without", [], [tensor("same")]),
    }
    nodes = [
        node("ConcatFromSequence", ["frames"], "joined", axis=0),
        node("OptionalHasElement", ["bias"], "has"),
        node("If", ["has"], "y", **branches),
        node("SequenceInsert", ["frames", "y"], "all"),
        node("Identity", ["bias"], "back"),
        node("SequenceConstruct", ["names", "names"], "twice"),
    ]
    bias = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [3]))
    inputs = [helper.make_tensor_sequence_value_info("frames", FLOAT, ["h", 3]), helper.make_value_info("bias", bias)]
    outputs = [
        tensor("y", shape=["rows", 3]),
        helper.make_tensor_sequence_value_info("all", FLOAT, None),
        helper.make_value_info("back", bias),
        helper.make_tensor_sequence_value_info("twice", STRING, None),
    ]
    graph = helper.make_graph(nodes, "framed", [*inputs, tensor("names", STRING, ["k"])], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("borders") / "framed.onnx"
    onnx.save(framed(), path)
    return path


@pytest.fixture(scope="module")
def compiled(path: Path) -> dlc.Model:
    """The model after calls with and without a bias."""
    made = dlc.compile_model(path)
    made([A, B], names=["u"])
    made([A], BIAS, ["u", "v"])
    return made


def plain(outputs: dict[str, Any]) -> dict[str, Any]:
    def listed(value: Any) -> Any:
        return [listed(part) for part in value] if isinstance(value, list) else None if value is None else value.tolist()

    return {name: listed(value) for name, value in outputs.items()}


def test_results_of_calls(compiled: dlc.Model) -> None:
    both = np.concatenate([A, B])
    without = {"y": both, "all": [A, B, both], "back": None, "twice": [["u"], ["u"]]}
    expected = {name: value if name in ("back", "twice") else plain({"": value})[""] for name, value in without.items()}
    assert plain(compiled((A, B), None, ["u"])) == plain(compiled({"frames": [A, B], "names": np.array(["u"])})) == expected
    given = compiled([A], BIAS, ["u", "v"])
    np.testing.assert_array_equal(given["y"], A + BIAS)
    np.testing.assert_array_equal(given["back"], BIAS)


def test_descriptions(path: Path, compiled: dlc.Model) -> None:
    assert list(map(str, compiled.inputs)) == ["frames: list of float32[h, 3]", "bias: float32[3], or None", "names: string[k]"]
    assert list(map(str, compiled.outputs))[:3] == [
        "y: float32[rows, 3]",
        "all: list of float32[…]",
        "back: float32[3], or None",
    ]
    shapes = {"frames": [(2, 3), (1, 3)], "bias": None}
    known = dlc.compile_model(path, target="reference", input_shapes=shapes)
    assert str(known.inputs[0]) == "frames: list of 2: float32[2, 3], float32[1, 3]"
    assert [str(info) for info in (known.inputs[1], known.outputs[2])] == ["bias: None", "back: None"]
    assert plain(known([A, B], names=["u"])) == plain(compiled([A, B], names=["u"]))
    with pytest.raises(ShapeError, match=r"input frames: expected a list of 2: .*; got 1 elements"):
        known([A], names=["u"])
    with pytest.raises(DTypeError, match=r"input bias: expected None; got an array, float32\[3\]"):
        known([A, B], BIAS, ["u"])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((A, None, ["u"]), DTypeError, r"input frames: expected list of float32\[h, 3\]; got an array, float32\[2, 3\]"),
        (([A, B.astype(float)], None, ["u"]), DTypeError, r"input frames\[1\]: float32\[1, 3\]; got float64.* convert it"),
        (([A, None], None, ["u"]), DTypeError, r"input frames\[1\]: expected float32\[h, 3\]; got None"),
        (([BIAS], None, ["u"]), ShapeError, r"input frames\[0\]: float32\[h, 3\]; got float32\[3\]"),
        (([A] * 10_001, None, ["u"]), ShapeError, r"up to 10000 elements; got 10001"),
        (([], None, ["u"]), ModelError, r"node 'joined' \(ConcatFromSequence\): its sequence is empty"),
        (([A], [BIAS, B], ["u"]), ShapeError, r"input bias: .*not an array"),
        (([A], None, [1]), DTypeError, r"input names: string\[k\]: expected an array of strings"),
        (([A], None, ["u", 1]), DTypeError, r"input names: string\[k\]: a list of strings and numbers"),
        (([A], None, np.ma.array(["u"], mask=[True])), DTypeError, r"input names: string\[k\] is a masked array"),
        (([A], None, [["u"]]), ShapeError, r"input names: string\[k\]; got string\[1, 1\]"),
        (([A],), DlcError, r"input 'names' is missing; its inputs are frames: list of"),
    ],
)
def test_invalid_inputs(compiled: dlc.Model, given: Any, error: type[DlcError], message: str) -> None:
    with pytest.raises(error, match=message):
        compiled(*given)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"frames": (2, 3)}, r"input 'frames': shape \(2, 3\) does not match list of float32\[h, 3\]"),
        ({"frames": [(2, 4)], "bias": None}, r"input 'frames'\[0\]: shape \(2, 4\) does not match"),
        ({"names": [(2,)]}, r"input 'names': expected the shape of a tensor"),
    ],
)
def test_invalid_shapes(path: Path, shapes: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        dlc.compile_model(path, input_shapes=shapes)


def test_saved_with_its_specializations(compiled: dlc.Model, tmp_path: Path) -> None:
    compiled.save(tmp_path / "m.dlc")
    script = (
        "import sys, numpy as np, dlc\n"
        f"m = dlc.load({str(tmp_path / 'm.dlc')!r})\n"
        "print(m.inputs[0], '/', m([np.ones((2, 3), np.float32)], np.float32([1, 2, 3]), ['w'])['y'].tolist())\n"
        "print([name for name in ('xdsl', 'onnx', 'llvmlite') if name in sys.modules])\n"
        "try: m([np.ones((5, 3), np.float32)], names=['w'])\n"
        "except dlc.UnsupportedError as error: print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.splitlines()
    assert told[:2] == ["frames: list of float32[h, 3] / [[2.0, 3.0, 4.0], [2.0, 3.0, 4.0]]", "[]"]
    assert "not compiled for frames: [[5, 3]], bias: None; inputs: frames: list of float32[h, 3]" in told[2]
    assert "the file holds frames: [[2, 3], [1, 3]], bias: None; frames: [[2, 3]], bias: [3]" in told[2]
    again = pickle.loads(pickle.dumps(compiled))
    assert plain(again([A, B], names=["u"])) == plain(compiled([A, B], names=["u"]))


def test_unsupported_models_in_c(path: Path, tmp_path: Path) -> None:
    known = dlc.compile_model(path, input_shapes={"frames": [(2, 3), (1, 3)], "bias": None})
    with pytest.raises(UnsupportedError, match="strings, lists or None as inputs or outputs, which need Python"):
        write_library(known, tmp_path / "m.so")


def test_nested_specialization_by_shape_and_value() -> None:
    """It is specialized for the number of elements first, and then for the index into them."""
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, None)
    place = tensor("place", TensorProto.INT64, [])
    graph = helper.make_graph([node("SequenceAt", ["s", "place"], "y")], "g", [sequence, place], [tensor("y")])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert [(p.kind, p.needs_specialization) for p in check_model(source)] == [("value", True)]
    made = dlc.compile_model(source, target="reference")
    for k in (1, 0, -1):
        np.testing.assert_array_equal(made([A, B], np.int64(k))["y"], [A, B][k])


def test_on_the_command_line(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **{"frames[0]": A, "frames[1]": B, "names": np.array(["ä"])})

    def run(*arguments: Any) -> str:
        result = CliRunner().invoke(main, [*map(str, arguments)])
        return result.output if result.exit_code == 0 else f"{result.exit_code}: {result.output}"

    told = json.loads(run("run", path, "--input", tmp_path / "in.npz", "--json"))
    assert (told["all"], told["back"]) == ([A.tolist(), B.tolist(), np.concatenate([A, B]).tolist()], None)
    assert "Saved" in run("run", path, "--input", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert sorted(np.load(tmp_path / "out.npz")) == ["all[0]", "all[1]", "all[2]", "twice[0]", "twice[1]", "y"]
    shapes = ["--shape", "frames=2,3;1,3;", "--shape", "bias=3"]
    printed = run("compile", path, *shapes, "-o", tmp_path / "m.dlc")
    assert "input   frames: list of 2: float32[2, 3], float32[1, 3]" in printed
    np.save(tmp_path / "names.npy", np.array(["ä"]))
    assert "twice: 2 elements" in run("run", tmp_path / "m.dlc", "--input", f"names={tmp_path / 'names.npy'}")
    assert "pass the elements: --input frames[0]=FILE.npy" in run("run", path)
    assert "set them with input_shapes" in run("compile", path, "-o", tmp_path / "n.dlc")
    assert "None: x=none" in run("compile", path, "--shape", "frames=2,;3,x y")

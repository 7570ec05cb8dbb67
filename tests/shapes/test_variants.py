"""Models that are specialized when they are called, for the values of inputs that determine shapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import NodeProto, TensorProto, helper

import dlc
from dlc.arrays import TensorInfo
from dlc.cli import main
from dlc.errors import DlcError, DTypeError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.emitter import MAX_FOLDED_ELEMENTS, MAX_LITERAL_ELEMENTS
from dlc.frontend.onnx import check_model
from dlc.runtime.models import specializations
from dlc.runtime.models.model import Model
from dlc.runtime.models.specializations import Specialization
from dlc.runtime.models.specialized_model import ModelCall, SpecializedModel
from dlc.shapes.dims import Dim
from dlc.shapes.domain import SizeDomain
from tests.frontend.onnx.build import INT64, model

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
Write = Callable[..., Path]


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, [output], name=f"the_{output}", **attributes)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a model with the output y to a file."""

    def write(nodes: Sequence[NodeProto], inputs: Mapping[str, Any], **more: Any) -> Path:
        path = tmp_path / "m.onnx"
        onnx.save(model(nodes, inputs, ["y"], **more), path)
        return path

    return write


@pytest.fixture
def reduced(write: Write) -> Path:
    """y = the sum of x along the axes, which are an input."""
    return write([node("ReduceSum", ["x", "axes"], "y")], {"x": X.shape, "axes": [1]}, dtypes={"axes": INT64})


def run(path: Path, *inputs: Any, target: str = "reference", **options: Any) -> Any:
    return np.asarray(dlc.compile_model(path, target=target, **options)(*inputs)["y"])


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_each_call_is_specialized_by_values(reduced: Path, target: str) -> None:
    compiled = dlc.compile_model(reduced, target=target)
    assert compiled.values == ("axes",)
    for axes in ([0], [1], [0], [-1]):
        got = compiled(X, np.int64(axes))["y"]
        np.testing.assert_allclose(got, X.sum(tuple(axes), keepdims=True), 1e-5)


def test_computed_values(write: Write) -> None:
    nodes = [
        node("Cast", ["rows"], "wide", to=INT64),
        node("Mul", ["wide", "two"], "twice"),
        node("Concat", ["twice", "rest"], "shape", axis=0),
        node("Reshape", ["x", "shape"], "y"),
    ]
    path = write(
        nodes,
        {"x": X.shape, "rows": [1]},
        dtypes={"rows": TensorProto.INT32},
        weights={"two": np.int64([2]), "rest": np.int64([-1])},
    )
    assert run(path, X, np.int32([3])).shape == (6, 4)
    assert run(path, X, np.int32([6])).shape == (12, 2)


def test_value_specializations_keep_symbolic_dimensions(write: Write) -> None:
    path = write([node("ReduceSum", ["x", "axes"], "y")], {"x": ["n", 3, 4], "axes": [1]}, dtypes={"axes": INT64})
    compiled = dlc.compile_model(path, target="reference")
    for x in (X, X[:1]):
        np.testing.assert_allclose(compiled(x, np.int64([0]))["y"], x.sum(0, keepdims=True), 1e-5)


def test_shapes_and_values(write: Write) -> None:
    # Resize depends on both: the scales, and the size that they scale.
    path = write([node("Resize", ["x", "", "scales"], "y", mode="nearest")], {"x": [1, 1, "n"], "scales": [3]})
    compiled = dlc.compile_model(path, target="reference")
    for n, scale in ((2, 2), (3, 2), (2, 3)):
        x = np.arange(n, dtype=np.float32).reshape(1, 1, n)
        np.testing.assert_array_equal(compiled(x, np.float32([1, 1, scale]))["y"], x.repeat(scale, 2))


def test_a_value_that_requires_another_one(write: Write) -> None:
    def branch(*nodes: NodeProto) -> Any:
        name = nodes[-1].output[0]
        return helper.make_graph(list(nodes), "branch", [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])

    then, otherwise = branch(node("Reshape", ["x", "shape"], "a")), branch(node("Neg", ["x"], "b"))
    path = write(
        [node("Tile", ["x", "repeats"], "tiled"), node("If", ["flat"], "y", then_branch=then, else_branch=otherwise)],
        {"x": X.shape, "flat": [], "shape": [1], "repeats": [3]},
        dtypes={"flat": TensorProto.BOOL, "shape": INT64, "repeats": INT64},
    )
    compiled = dlc.compile_model(path, target="reference")
    ones = np.int64([1, 1, 1])
    assert compiled(X, np.bool_(True), np.int64([24]), ones)["y"].shape == (24,)
    assert compiled(X, np.bool_(True), np.int64([-1]), ones)["y"].shape == (24,)
    assert compiled(X, np.bool_(False), np.int64([24]), ones)["y"].shape == X.shape


# Caching of specializations


class Counted:
    """A model with inputs that determine shapes, and the shapes and values of its specializations."""

    def __init__(self, by_value: Sequence[str]) -> None:
        self.made: list[tuple[Any, Any]] = []
        infos = [TensorInfo(name, (Dim.symbol("n"),), np.dtype(np.int64)) for name in "a"]
        infos.append(TensorInfo("b", (1,), np.dtype(np.int64)))
        self.model = SpecializedModel("m", tuple(infos), tuple(infos[:1]), self.build, tuple(by_value))

    def build(self, call: ModelCall) -> Specialization[Model]:
        self.made.append((dict(call.shapes), {name: value.tolist() for name, value in call.values.items()}))
        left = [info for info in self.model.inputs if info.name not in call.values]
        return Specialization(Model(left, left, lambda arrays: [sum(a.sum() for a in arrays)]), SizeDomain.of_sizes(call.sizes))

    def __call__(self, a: list[int], b: list[int]) -> int:
        return self.model.run([np.array(a, np.int64), np.array(b, np.int64)])[0]


def test_specializations_are_found_by_values() -> None:
    counted = Counted(["b"])
    assert [counted([1, 2], [7]), counted([3], [7]), counted([1], [8]), counted([1], [7])] == [3, 3, 1, 1]
    assert counted.made == [({}, {"b": [7]}), ({}, {"b": [8]})]


def test_specializations_are_found_by_shapes() -> None:
    counted = Counted([])
    assert [counted([1, 2], [7]), counted([3, 4], [8]), counted([1], [7])] == [10, 15, 8]
    assert counted.made == [({"a": (2,)}, {}), ({"a": (1,)}, {})]


def test_the_number_of_cached_specializations_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specializations, "MAX_CACHED_PROGRAMS", 2)
    counted = Counted(["b"])
    for value in (1, 2, 1, 3, 1, 2):
        counted([0], [value])
    assert [values["b"] for _, values in counted.made] == [[1], [2], [3], [2]]


# Argument validation


def test_invalid_inputs(reduced: Path) -> None:
    compiled = dlc.compile_model(reduced, target="reference")
    with pytest.raises(DTypeError, match="expected input axes: int64"):
        compiled(X, np.int32([0]))
    with pytest.raises(ShapeError, match="expected input axes"):
        compiled(X, np.int64([[0]]))
    with pytest.raises(ShapeError, match=r"'the_y' .*axes \(3,\)"):
        compiled(X, np.int64([3]))


@pytest.mark.parametrize(("dtype", "limit"), [(np.int64, MAX_FOLDED_ELEMENTS), (np.float32, MAX_LITERAL_ELEMENTS)])
def test_a_large_input_is_data(write: Write, dtype: Any, limit: int) -> None:
    """Reported when the model is compiled, or for symbolic sizes when it is called."""
    nodes = [node("Cast", ["s"], "whole", to=INT64), node("ReduceSum", ["whole"], "n"), node("Reshape", ["ones", "n"], "y")]
    more: dict[str, Any] = {"dtypes": {"s": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}, "weights": {"ones": np.ones(6)}}
    message = rf"it depends on input s: {np.dtype(dtype)}\[{limit + 1}\]; .* values of at most {limit} elements"
    with pytest.raises(UnsupportedError, match=message):
        dlc.compile_model(write(nodes, {"s": [limit + 1]}, **more), target="reference")
    compiled = dlc.compile_model(write(nodes, {"s": ["n"]}, **more), target="reference")
    assert compiled(np.full(2, 3, dtype))["y"].shape == (6,)
    with pytest.raises(UnsupportedError, match=message):
        compiled(np.ones(limit + 1, dtype))


def test_loop_carried_values_are_unsupported(write: Write) -> None:
    inside = [node("Reshape", ["row", "shape"], "made"), node("Neg", ["shape"], "next")]
    infos = [helper.make_tensor_value_info(*i) for i in (("shape", INT64, [1]), ("row", 1, [12]))]
    outs = [helper.make_tensor_value_info(*i) for i in (("next", INT64, [1]), ("made", 1, None))]
    body = helper.make_graph(inside, "body", infos, outs)
    scan = helper.make_node("Scan", ["first", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    path = write([scan], {"first": [1], "x": [2, 12]}, dtypes={"first": INT64})
    with pytest.raises(UnsupportedError, match=r"its shape \(input 'shape'\)"):
        dlc.compile_model(path, target="reference")


def test_saving(reduced: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.dlc"
    with pytest.raises(UnsupportedError, match=r"the values of 'axes' at run time, and was not called.*input_values"):
        dlc.compile_model(reduced).save(file)
    compiled = dlc.compile_model(reduced, input_values={"axes": [1]})
    assert [info.name for info in compiled.inputs] == ["x"] and compiled.values == ()
    compiled.save(file)
    np.testing.assert_allclose(dlc.load(file)(X)["y"], X.sum(1, keepdims=True), 1e-5)


def test_a_value_of_another_dtype(reduced: Path) -> None:
    with pytest.raises(DTypeError, match="input 'axes': expected dtype int64, got a value of dtype float64"):
        dlc.compile_model(reduced, input_values={"axes": [1.0]})
    for values, message in (
        ({"axes": [[0], [0, 1]]}, "input_values: 'axes': not an array"),
        ({"axes": np.ma.array([1], mask=True)}, "'axes' is a masked array"),
        ([1], r"input_values = \[1\]; expected a dict or None"),
    ):
        with pytest.raises(DlcError, match=message):
            dlc.compile_model(reduced, input_values=cast(Any, values))


# Messages


def test_problems_name_the_inputs(reduced: Path, write: Write) -> None:
    (problem,) = check_model(reduced)
    assert (problem.inputs, problem.needs_specialization) == (("axes",), True)
    unsupported = node("Resize", ["x", "", "s"], "y", coordinate_transformation_mode="half_pixel_symmetric")
    (problem,) = check_model(write([unsupported], {"x": [1, "n"]}, weights={"s": np.float32([1, 2])}))
    assert (problem.inputs, problem.needs_specialization) == ((), True)


def test_a_corrupted_model_is_reported_at_compile_time(write: Write) -> None:
    path = write([node("ReduceSum", ["x", "axes"], "s"), node("Neg", ["gone"], "y")], {"x": [2], "axes": [1]})
    with pytest.raises(ModelError, match="'gone'"):
        dlc.compile_model(path)


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


def test_the_command_line(reduced: Path, tmp_path: Path) -> None:
    output = command("check", reduced)
    assert output.exit_code == 0
    assert "specialized at run time for the value of input 'axes', needed by node 'the_y' (ReduceSum)" in output.stdout
    (problem,) = json.loads(command("check", reduced, "--json").stdout)
    assert problem["inputs"] == ["axes"]
    assert "specialized at run time for the values of axes" in command("compile", reduced).stdout
    np.save(tmp_path / "axes.npy", np.int64([1]))
    text = command("compile", reduced, "--value", f"axes={tmp_path / 'axes.npy'}", "--emit", "dl").stdout
    assert "axes = array<i64: 1>" in text
    compared = command("bisect", reduced, "--value", f"axes={tmp_path / 'axes.npy'}")
    assert compared.exit_code == 0, compared.output
    ran = command("run", reduced, "--target", "reference", "--input", f"axes={tmp_path / 'axes.npy'}")
    assert "y: float32[2, 1, 4]" in ran.stdout

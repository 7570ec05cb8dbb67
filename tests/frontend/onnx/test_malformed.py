"""Malformed and hostile files raise a ModelError that names the location, and nothing is allocated for them."""

from __future__ import annotations

import tracemalloc
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from dlc.errors import DlcError, ModelError
from dlc.frontend.onnx import check_model, import_model
from dlc.runtime.saving.container import MAGIC
from tests.frontend.onnx.build import FLOAT, model, run
from tests.frontend.tflite.recorded_models import recorded
from tests.models.skeletons import path_of

RELU = helper.make_node("Relu", ["x"], ["y"], name="relu")


def raises(source: str | Path | bytes | ModelProto, *words: str) -> None:
    for function in (import_model, check_model):
        with pytest.raises(ModelError) as caught:
            function(source)
        for word in words:
            assert word in str(caught.value)


def test_truncated_file(tmp_path: Path) -> None:
    data = path_of("mnist_cnn").read_bytes()
    for size in (0, 1, 100, len(data) // 2, len(data) - 1):
        path = tmp_path / f"{size}.onnx"
        path.write_bytes(data[:size])
        raises(path, f"{size}.onnx", "ONNX model")


def test_text_file(tmp_path: Path) -> None:
    path = tmp_path / "readme.onnx"
    path.write_text("# This is no model\n" * 10)
    raises(path, "readme.onnx", "ONNX model")
    raises(b"hello world", "ONNX model")


def archive() -> bytes:
    with BytesIO() as file:
        np.savez(file, x=np.zeros(3))
        return file.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (bytes(recorded()["dynamic_image_float"].file), "a TFLite model; rename it"),
        (MAGIC + bytes(100), "a compiled model"),
        (archive(), "a zip archive"),
        (b"builtin.module {\n}\n", "a module as text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page"),
    ],
    ids=["tflite", "dlc", "zip", "module", "lfs", "page"],
)
def test_other_formats_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    raises(path, "not an ONNX model, but", words)


def test_missing_file(tmp_path: Path) -> None:
    raises(tmp_path / "absent.onnx", "absent.onnx", "No such file")
    raises(tmp_path, "directory")


def test_cycle() -> None:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Relu", ["b"], ["c"], name="third"),
    ]
    raises(model(nodes, {"x": [1]}, ["b"]), "'first'", "first reads third reads second reads first")


def test_two_producers() -> None:
    raises(model([RELU, helper.make_node("Neg", ["x"], ["y"], name="neg")], {"x": [1]}, ["y"]), "'y'", "'relu'", "'neg'")
    raises(model([RELU], {"x": [1]}, ["y"], weights={"y": np.zeros(1)}), "initializer 'y'", "'relu'")


def test_missing_producer() -> None:
    raises(model([helper.make_node("Relu", ["z"], ["y"], name="relu")], {"x": [1]}, ["y"]), "'relu'", "'z'")
    raises(model([RELU], {"x": [1]}, ["w"]), "output 'w'")


def test_nodes_may_come_in_any_order() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    got = run(import_model(model(nodes, {"x": [2]}, ["y"])), {"x": np.float32([-1, 2])})
    np.testing.assert_array_equal(got["y"], [0, -2])


def weight(**fields: object) -> ModelProto:
    """Build a model that adds the initializer 'w' with these fields."""
    broken = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [1]}, ["y"])
    tensor = TensorProto(name="w", data_type=fields.pop("data_type", FLOAT))  # pyright: ignore[reportArgumentType]
    tensor.dims.extend(fields.pop("dims"))  # pyright: ignore[reportArgumentType]
    for name, value in fields.items():
        setattr(tensor, name, value) if isinstance(value, bytes) else getattr(tensor, name).extend(value)
    broken.graph.initializer.append(tensor)
    return broken


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dims": [2**62]}, ["initializer 'w'", str(2**62)]),
        ({"dims": [2**40, 2**40], "raw_data": b"1234"}, ["initializer 'w'", "4"]),
        ({"dims": [3], "raw_data": b"12345678"}, ["12 bytes", "8"]),
        ({"dims": [3], "float_data": [1.0]}, ["3 elements", "1"]),
        ({"dims": [-2], "raw_data": b""}, ["negative size"]),
        ({"dims": [0, 2**62, 2**62], "raw_data": b""}, ["no array has the shape"]),
    ],
)
def test_sizes_are_checked_before_memory_is_taken(fields: dict[str, object], words: list[str]) -> None:
    broken = weight(**fields)
    tracemalloc.start()
    try:
        raises(broken, *words)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_negative_sizes_of_inputs() -> None:
    raises(model([RELU], {"x": [-3]}, ["y"]), "'x'", "negative size -3")


def test_no_opset() -> None:
    broken = model([RELU], {"x": [1]}, ["y"])
    del broken.opset_import[:]
    raises(broken, "opset")


def test_shapes_that_contradict() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    source = model([node], {"x": [2, 3]}, ["y"], weights={"w": np.zeros((4, 5), np.float32)})
    with pytest.raises(ModelError, match=r"node 'product' \(MatMul\): .*3.*4"):
        import_model(source)
    assert [p.kind for p in check_model(source)] == ["shape"]
    raises(
        model([helper.make_node("Conv", ["x", "w"], ["y"], name="c")], {"x": [1, 3, 8, 8], "w": [4, 3]}, ["y"]), "'c'", "rank"
    )
    many = helper.make_node("Gather", ["x", "k"], ["y"], name="pick")
    raises(model([many], {"x": [3]}, ["y"], weights={"k": np.int64(7)}), "'pick'", "7", "size 3")


@pytest.mark.parametrize("operator", ["Softmax", "Gather", "Unsqueeze", "Squeeze", "Expand", "ReduceSum", "Flatten"])
def test_a_node_is_named_once(operator: str) -> None:
    inputs = ["x"] if operator in ("Softmax", "Flatten") else ["x", "i"]
    axis = {"axis": 5} if operator in ("Softmax", "Flatten", "Gather") else {}
    node = helper.make_node(operator, inputs, ["y"], name="only", **axis)
    with pytest.raises(ModelError, match="node 'only'") as caught:
        import_model(model([node], {"x": [3, 4]}, ["y"], weights={"i": np.int64([5, 7])}))
    assert str(caught.value).count("'only'") == 1


@pytest.mark.parametrize(
    ("bounds", "word"),
    [
        ((np.float32(0), np.int64(3), np.float32(1)), "one type"),
        ((np.int64(0), np.int64(3), np.int64(0)), "delta is 0"),
        ((np.float32(0), np.float32(np.inf), np.float32(1)), "not finite"),
    ],
)
def test_ranges_without_end(bounds: tuple[np.generic, ...], word: str) -> None:
    weights = dict(zip("abc", bounds, strict=True))
    nodes = [helper.make_node("Range", ["a", "b", "c"], ["r"], name="range"), helper.make_node("Size", ["r"], ["y"])]
    raises(model(nodes, {"x": [1]}, ["y"], weights=weights), "'range'", word)


def test_wrong_attribute_type() -> None:
    raises(model([helper.make_node("Softmax", ["x"], ["y"], name="s", axis="last")], {"x": [3]}, ["y"]), "'s'", "axis", "INT")


def external(folder: Path, location: str, **entries: str) -> Path:
    """Write a model file whose initializer 'w' of two floats is in another file."""
    broken = weight(dims=[2])
    tensor = broken.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    onnx.save(broken, path)
    return path


def test_external_data(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"pad" + np.float32([1, 2]).tobytes())
    imported = import_model(external(tmp_path, "weights.bin", offset="3", length="8"), {"x": [1]})
    np.testing.assert_array_equal(run(imported, {"x": np.float32([10])})["y"], [11, 12])


def test_external_data_stays_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside.bin").write_bytes(bytes(8))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    for location in ("../outside.bin", str(tmp_path / "outside.bin"), "link.bin", ""):
        raises(external(folder, location), "outside the model's folder")
    (folder / "fine.bin").write_bytes(bytes(8))
    raises(external(folder, "."), "not a file")
    raises(external(folder, "absent.bin"), "not a file")
    raises(external(folder, "fine.bin").read_bytes(), "path")


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        ({"offset": "4"}, "has 8"),
        ({"offset": "-4"}, "has 8"),
        ({"length": "4"}, "8 bytes"),
        ({"length": str(2**62)}, "8 bytes"),
        ({"offset": "many"}, "integers"),
    ],
)
def test_external_data_has_the_size_it_claims(tmp_path: Path, entries: dict[str, str], word: str) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(8))
    raises(external(tmp_path, "weights.bin", **entries), "'w'", word)


def test_invalid_utf8() -> None:
    data = model([RELU], {"x": [1]}, ["y"]).SerializeToString()
    assert data.count(b"Relu") == 1
    raises(data.replace(b"Relu", b"Re\xff\xfe"), "damaged", "UTF-8")


@pytest.mark.parametrize("opset", [2**31, 2**62, -(2**63)])
def test_an_unknown_opset(opset: int) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"])
    for nodes in ([node], [RELU, helper.make_node("Frobnicate", ["y"], ["z"])]):
        with pytest.raises(DlcError):
            import_model(model(nodes, {"x": [1]}, ["y"], opset=opset))


def test_inputs_of_another_rank() -> None:
    node = helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"], name="attention")
    q, mask = [1, 2, 3, 4], []
    made = model([node], {"q": q, "k": q, "v": q, "mask": mask}, ["y"], opset=23)
    raises(made, "'attention'", "do not fit together")

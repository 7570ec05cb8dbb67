"""What is at the edge of an operator's or a file's meaning: nothing to reduce, sizes without bounds, links in a circle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dlc
from dlc.frontend.onnx import import_model
from tests.frontend.onnx.build import model, run

X = np.float32([[1, 2], [3, 4]])
WITHOUT_AXES = {
    "ReduceL1": lambda x: np.abs(x), "ReduceL2": lambda x: np.abs(x), "ReduceLogSum": np.log, "ReduceSumSquare": np.square,
    "ReduceLogSumExp": lambda x: x, "ReduceSum": lambda x: x, "ReduceMean": lambda x: x, "ReduceProd": lambda x: x,
    "ReduceMax": lambda x: x, "ReduceMin": lambda x: x,
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_AXES)
def test_without_axes_what_is_done_to_an_element_is_done(name: str) -> None:
    node = helper.make_node(name, ["x"], ["y"], noop_with_empty_axes=1)
    x = X if name == "ReduceLogSum" else X - 2.5
    got = run(import_model(model([node], {"x": [2, 2]}, ["y"])), {"x": x})["y"]
    np.testing.assert_allclose(got, WITHOUT_AXES[name](x), rtol=1e-6)


@pytest.mark.parametrize("scale", [np.inf, np.nan])
def test_scales_that_are_not_finite_are_refused(scale: float) -> None:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], name="zoom", mode="nearest")
    source = model([node], {"x": [1, 1, 2, 2]}, ["y"], weights={"s": np.float32([1, 1, scale, 2])})
    with pytest.raises(dlc.ModelError, match=r"zoom.*not finite"):
        import_model(source)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_results_beyond_the_memory_are_refused(target: str, tmp_path: Path) -> None:
    node = helper.make_node("Range", ["a", "b", "c"], ["y"])
    weights = {"a": np.int64(0), "b": np.int64(1 << 44), "c": np.int64(1)}
    path = tmp_path / "model.onnx"
    onnx.save(model([node], {"x": [1]}, ["y"], weights=weights, dtypes={"y": TensorProto.INT64}), path)
    with pytest.raises(dlc.DeviceError, match=r"dl.iota: no memory"):
        dlc.compile_model(path, target=target)(x=np.zeros(1, np.float32))


def test_external_data_behind_links_in_a_circle_is_refused(tmp_path: Path) -> None:
    source = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2, 2]}, ["y"], weights={"w": X})
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to("v.bin")
    (tmp_path / "v.bin").symlink_to("w.bin")
    with pytest.raises(dlc.ModelError, match=r"w\.bin"):
        dlc.compile_model(tmp_path / "m.onnx", target="reference")


def test_an_opset_of_the_future_is_warned_of() -> None:
    source = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 2]}, ["y"], opset=99)
    with pytest.warns(UserWarning, match="opset 99 is newer"):
        import_model(source)

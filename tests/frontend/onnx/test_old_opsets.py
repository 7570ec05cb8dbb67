"""Operators before opset 11, against their later definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from dlc.frontend.onnx import import_model
from tests.frontend.onnx.build import model, run

X = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)

CASES: list[tuple[int, str, dict[str, Any], dict[str, Any], Any]] = [
    (7, "Slice", {}, {"starts": [1, -3], "ends": [9, -1], "axes": [2, 3]}, X[:, :, 1:, -3:-1]),
    (7, "Pad", {}, {"pads": [0, 0, 1, 0, 0, 0, 0, 2], "value": 3.0}, np.pad(X, [(0, 0)] * 2 + [(1, 0), (0, 2)], constant_values=3)),
    (7, "Pad", {}, {"pads": [0, 0, 1, 0, 0, 0, 0, 2], "mode": "reflect"}, np.pad(X, [(0, 0)] * 2 + [(1, 0), (0, 2)], "reflect")),
    (7, "Clip", {}, {"min": -0.5, "max": 0.5}, X.clip(-0.5, 0.5)),
    (7, "Clip", {}, {"max": 0.5}, np.minimum(X, np.float32(0.5))),
    (7, "Upsample", {}, {"scales": [1.0, 1.0, 2.0, 3.0]}, X.repeat(2, 2).repeat(3, 3)),
    (9, "Upsample", {"s": np.float32([1, 1, 2, 1])}, {}, X.repeat(2, 2)),
    (10, "Resize", {"s": np.float32([1, 1, 1, 0.5])}, {}, X[..., ::2]),
    (10, "Resize", {"s": np.float32([1, 1, 1, 0.6])}, {}, X[..., [0, 2]]),
    (10, "Resize", {"s": np.float32([1, 1, 1, 2])}, {"mode": "linear"},
     np.stack([X, (X + np.concatenate([X[..., 1:], X[..., -1:]], -1)) / 2], -1).reshape(1, 2, 3, 8)),
    (7, "BatchNormalization", {"s": X[0], "b": X[0] + 1, "m": X[0] - 1, "v": X[0] ** 2}, {"spatial": 0, "epsilon": 0.5},
     X[0] / np.sqrt(X[0] ** 2 + 0.5) + X + 1),
    (7, "TopK", {}, {"k": 2}, -np.sort(-X, -1)[..., :2]),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "op", "weights", "attributes", "expected"), CASES, ids=[f"{c[1]}-{c[0]}" for c in CASES])
def test_old_form(opset: int, op: str, weights: dict[str, Any], attributes: dict[str, Any], expected: Any) -> None:
    outputs = ["y", "places"] if op == "TopK" else ["y"]
    node = helper.make_node(op, ["x", *weights], outputs, **attributes)
    source = model([node], {"x": X.shape}, outputs, weights=weights, opset=opset)
    np.testing.assert_allclose(run(import_model(source), {"x": X})["y"], expected, 1e-6)


def test_default_bounds_of_clip_are_those_of_f32() -> None:
    x = np.array([-np.inf, np.nan, 1, np.inf], np.float32)
    source = model([helper.make_node("Clip", ["x"], ["y"], max=2.0)], {"x": x.shape}, ["y"], opset=7)
    least = np.finfo(np.float32).min
    np.testing.assert_array_equal(run(import_model(source), {"x": x})["y"], np.float32([least, np.nan, 1, 2]))


@pytest.mark.parametrize(("opset", "dtype"), [(7, np.float32), (10, np.bool_)])
def test_dropout_masks_before_opset_10(opset: int, dtype: type) -> None:
    source = model([helper.make_node("Dropout", ["x"], ["y", "mask"])], {"x": X.shape}, ["y", "mask"], opset=opset)
    mask = run(import_model(source), {"x": X})["mask"]
    assert mask.dtype == dtype and mask.shape == X.shape and mask.all()


@pytest.mark.parametrize("backward", [False, True])
def test_a_batched_scan_with_sequence_lengths(backward: bool) -> None:
    lengths, rows = np.int64([3, 1]), X.reshape(2, 3, 4)
    f32 = TensorProto.FLOAT
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "row"], ["next"]), helper.make_node("Neg", ["next"], ["made"])],
        "body",
        [helper.make_tensor_value_info(name, f32, [4]) for name in ("s", "row")],
        [helper.make_tensor_value_info(name, f32, [4]) for name in ("next", "made")],
    )
    node = helper.make_node("Scan", ["n", "s0", "x"], ["last", "all"], body=body, num_scan_inputs=1, directions=[int(backward)])
    shapes = {"n": [2], "s0": [2, 4], "x": rows.shape}
    source = model([node], shapes, ["last", "all"], dtypes={"n": TensorProto.INT64}, opset=8)
    got = run(import_model(source), {"n": lengths, "s0": np.ones((2, 4), np.float32), "x": rows})
    for k, n in enumerate(lengths):
        sums = 1 + np.cumsum(rows[k, :n][::-1] if backward else rows[k, :n], 0)
        np.testing.assert_allclose(got["last"][k], sums[-1], atol=1e-6)
        np.testing.assert_allclose(got["all"][k], np.concatenate([-sums, np.zeros((3 - n, 4))]), atol=1e-6)

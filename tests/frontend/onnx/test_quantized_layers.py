"""Quantized layers of `com.microsoft` against their definitions in NumPy and the float operators of `onnx.reference`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dlc.frontend.onnx import import_model
from dlc.frontend.onnx.operators.microsoft import DOMAIN
from dlc.frontend.onnx.operators.quantized_layers import table
from tests.frontend.onnx.build import model, run

RNG = np.random.default_rng(0)
BATCH, LENGTH, WIDTH, HEADS, HIDDEN = 2, 3, 8, 2, 4


def integers(*shape: int, dtype: type = np.int8) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def call(op: str, inputs: Mapping[str, Any], runtime: set[str], **attributes: Any) -> np.ndarray:
    """Return the first output of a node; the inputs named in `runtime` are inputs of the model, the others weights."""
    node = helper.make_node(
        op, ["" if value is None else name for name, value in inputs.items()], ["y"], domain=DOMAIN, **attributes
    )
    given = {name: inputs[name] for name in runtime}
    weights = {name: value for name, value in inputs.items() if name not in runtime and value is not None}
    dtypes = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in given.items()}
    proto = model([node], {name: x.shape for name, x in given.items()}, ["y"], weights=weights, dtypes=dtypes)
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return run(import_model(proto), given)["y"]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("per_channel", [False, True])
def test_attention(per_channel: bool) -> None:
    inputs = {
        "x": integers(BATCH, LENGTH, WIDTH, dtype=np.uint8), "w": integers(WIDTH, 3 * WIDTH),
        "bias": RNG.standard_normal(3 * WIDTH).astype(np.float32), "x_scale": np.float32(0.02),
        "w_scale": RNG.uniform(0.01, 0.02, 3 * WIDTH if per_channel else ()).astype(np.float32),
        "mask": np.array([[1, 1, 1], [1, 1, 0]], np.int32), "x_zero": np.uint8(120),
        "w_zero": np.zeros(3 * WIDTH if per_channel else (), np.int8),
    }  # fmt: skip
    y = call("QAttention", inputs, {"x", "mask"}, num_heads=HEADS)
    x = (inputs["x"].astype(np.float32) - 120) * inputs["x_scale"]
    projected = x @ (inputs["w"] * inputs["w_scale"]) + inputs["bias"]
    q, k, v = (
        part.reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3) for part in np.split(projected, 3, axis=2)
    )
    scores = q @ k.swapaxes(2, 3) / np.sqrt(WIDTH // HEADS) + np.where(inputs["mask"], 0, -10000)[:, None, None]
    expected = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(y.shape)
    np.testing.assert_allclose(y, expected, 1e-4, 1e-5)


def test_embedding() -> None:
    tables = {"words": integers(9, WIDTH), "positions": integers(5, WIDTH), "segments": integers(2, WIDTH)}
    factors = {"gamma": integers(WIDTH), "beta": integers(WIDTH)}
    scales = {f"{name}_scale": np.float32(0.01 * (k + 1)) for k, name in enumerate((*tables, *factors))}
    zeros = {f"{name}_zero": np.int8(k - 2) for k, name in enumerate((*tables, *factors))}
    ids, segment_ids = integers(BATCH, LENGTH) % 9, integers(BATCH, LENGTH) % 2
    inputs = {"ids": ids.astype(np.int32), "segment_ids": segment_ids.astype(np.int32), **tables, **factors, "mask": None}
    y = call("QEmbedLayerNormalization", {**inputs, **scales, **zeros}, {"ids", "segment_ids"}, epsilon=1e-5)

    def real(name: str) -> np.ndarray:
        return ({**tables, **factors}[name].astype(np.float32) - zeros[f"{name}_zero"]) * scales[f"{name}_scale"]

    total = real("words")[ids] + real("positions")[:LENGTH] + real("segments")[segment_ids]
    centered = total - total.mean(-1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * real("gamma") + real("beta")
    np.testing.assert_allclose(y, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("per_gate", [False, True])
def test_lstm(per_gate: bool) -> None:
    directions, gates = 2, 4 * HIDDEN
    scale_shape = (directions, gates) if per_gate else (directions,)
    x, w, r = (
        RNG.standard_normal((LENGTH, BATCH, WIDTH)),
        integers(directions, WIDTH, gates),
        integers(directions, HIDDEN, gates),
    )
    bias = RNG.standard_normal((directions, 2 * gates)).astype(np.float32)
    w_scale, r_scale = (RNG.uniform(0.005, 0.01, scale_shape).astype(np.float32) for _ in range(2))
    w_zero, r_zero = (integers(*scale_shape) // 8 for _ in range(2))
    inputs = {"x": x.astype(np.float32), "w": w, "r": r, "b": bias, "length": None, "h": None, "c": None, "p": None}
    inputs |= {"w_scale": w_scale, "w_zero": w_zero, "r_scale": r_scale, "r_zero": r_zero}
    y = call("DynamicQuantizeLSTM", inputs, {"x"}, hidden_size=HIDDEN, direction="bidirectional")

    def real(integer: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
        broadcast = (directions, 1, -1)
        return ((integer.astype(np.float32) - zero.reshape(broadcast)) * scale.reshape(broadcast)).swapaxes(1, 2)

    layer = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=HIDDEN, direction="bidirectional")
    weights = {"w": real(w, w_scale, w_zero), "r": real(r, r_scale, r_zero), "b": bias}
    reference = model([layer], {"x": x.shape}, ["y"], weights=weights)
    (expected,) = ReferenceEvaluator(reference).run(None, {"x": inputs["x"]})
    np.testing.assert_allclose(y, expected, 1e-4, 1e-5)


def test_every_layer_is_tested() -> None:
    assert table.entries.keys() == {"QAttention", "QEmbedLayerNormalization", "DynamicQuantizeLSTM"}

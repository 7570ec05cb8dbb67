"""Operators of `com.microsoft` against their definitions in NumPy; ONNX Runtime itself saturates intermediate results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from dlc.errors import UnsupportedError
from dlc.frontend.onnx import import_model
from dlc.frontend.onnx.operators.microsoft import DOMAIN, table
from tests.frontend.onnx.build import model, run

RNG = np.random.default_rng(0)
A, B = (RNG.integers(0, 256, (2, 3, 4, 5)).astype(np.uint8) for _ in range(2))
ROWS = RNG.integers(0, 256, (4, 10)).astype(np.uint8)
W = RNG.integers(-127, 128, (10, 6)).astype(np.int8)
X = RNG.standard_normal((4, 48)).astype(np.float32)
COLUMNS = RNG.uniform(0.01, 0.02, 6).astype(np.float32)
PACKED = RNG.integers(0, 256, (6, 2, 16)).astype(np.uint8)
BIAS, STEPS = RNG.standard_normal(6).astype(np.float32), RNG.integers(-99, 99, 6).astype(np.int32)
PLACES_OF_ROWS = np.array([[5, 0, 2], [3, 3, 1]])
TABLE, HALVES = PACKED[:, 0], RNG.uniform(0.01, 0.02, (6, 2)).astype(np.float32)
NIBBLES = np.stack([TABLE & 15, TABLE >> 4], -1).reshape(6, 32)
PARAMETERS: Mapping[str, Any] = {
    "sa": np.float32(0.02), "za": np.uint8(120), "sb": np.float32(0.03), "zb": np.uint8(100),
    "sy": np.float32(0.06), "zy": np.uint8(128), "sw": COLUMNS, "zw": np.arange(6, dtype=np.int8), "w": W, "wt": W.T, "kernel": W.T.reshape(6, 10, 1, 1),
    "c": STEPS, "bias": BIAS, "packed": PACKED, "scales": np.tile(COLUMNS, 2), "zeros": PACKED[:, 0, 0],
    "places": np.arange(12, dtype=np.float32) / 2, "bytes": PACKED,
    "table": TABLE, "halves": HALVES, "packed_zeros": np.full((6, 1), 3 + 16 * 12, np.uint8),
}  # fmt: skip


def real(x: np.ndarray, name: str) -> np.ndarray:
    return (x.astype(np.float32) - PARAMETERS[f"z{name}"]) * PARAMETERS[f"s{name}"]


def quantized(y: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(y / PARAMETERS["sy"]) + PARAMETERS["zy"], 0, 255).astype(np.uint8)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def dynamically(x: np.ndarray) -> np.ndarray:
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale


def unpacked(zeros: np.ndarray | float) -> np.ndarray:
    numbers = np.stack([PACKED & 15, PACKED >> 4], -1).reshape(6, 2, 32).astype(np.float32)
    return ((numbers - zeros) * PARAMETERS["scales"].reshape(6, 2, 1)).reshape(6, 64)[:, :48]


ZEROS = np.stack([PARAMETERS["zeros"] & 15, PARAMETERS["zeros"] >> 4], -1)[..., np.newaxis].astype(np.float32)
PLACES = np.arange(12, dtype=np.float32).reshape(6, 2, 1) / 2
PAIR = "a sa za b sb zb sy zy"
NARROW = {"K": 48, "N": 6, "bits": 4, "block_size": 32}
CASES: list[tuple[str, str, Mapping[str, Any], Mapping[str, np.ndarray], Callable[[], np.ndarray]]] = [
    ("QLinearAdd", PAIR, {}, {"a": A, "b": B}, lambda: quantized(real(A, "a") + real(B, "b"))),
    ("QLinearMul", PAIR, {}, {"a": A, "b": B}, lambda: quantized(real(A, "a") * real(B, "b"))),
    ("QLinearSigmoid", "a sa za sy zy", {}, {"a": A}, lambda: quantized(1 / (1 + np.exp(-real(A, "a"))))),
    (
        "QLinearLeakyRelu", "a sa za sy zy", {"alpha": 0.1}, {"a": A},
        lambda: quantized(np.where(real(A, "a") < 0, 0.1 * real(A, "a"), real(A, "a"))),
    ),
    ("QLinearSoftmax", "a sa za sy zy", {"opset": 13, "axis": -1}, {"a": A}, lambda: quantized(softmax(real(A, "a")))),
    (
        "QLinearGlobalAveragePool", "a sa za sy zy", {}, {"a": A},
        lambda: quantized(real(A, "a").mean((2, 3), keepdims=True)),
    ),
    (
        "QLinearGlobalAveragePool", "a sa za sy zy", {"channels_last": 1}, {"a": A},
        lambda: quantized(real(A, "a").mean((1, 2), keepdims=True)),
    ),
    (
        "QLinearSoftmax", "a sa za sy zy", {"opset": 12, "axis": 2}, {"a": A},
        lambda: quantized(softmax(real(A, "a").reshape(2, 3, 20)).reshape(A.shape)),
    ),
    (
        "QLinearWhere", "condition a sa za b sb zb sy zy", {}, {"condition": A > B, "a": A, "b": B},
        lambda: quantized(np.where(A > B, real(A, "a"), real(B, "b"))),
    ),
    (
        "QLinearReduceMean", "a sa za sy zy", {"axes": [1, -1], "keepdims": 0}, {"a": A},
        lambda: quantized(real(A, "a").mean((1, 3))),
    ),
    (
        "QLinearAveragePool", "a sa za sy zy", {"kernel_shape": [2, 3], "strides": [2, 1]}, {"a": A},
        lambda: quantized(np.lib.stride_tricks.sliding_window_view(real(A, "a"), (2, 3), (2, 3))[:, :, ::2].mean((4, 5))),
    ),
    (
        "QLinearAveragePool", "a sa za sy zy", {"kernel_shape": [2, 2], "channels_last": 1}, {"a": A},
        lambda: quantized(np.lib.stride_tricks.sliding_window_view(real(A, "a"), (2, 2), (1, 2)).mean((4, 5))),
    ),
    (
        "NhwcMaxPool", "a", {"kernel_shape": [2, 2]}, {"a": A},
        lambda: np.lib.stride_tricks.sliding_window_view(A, (2, 2), (1, 2)).max((4, 5)),
    ),
    (
        "QLinearConv", "rows4 sa za kernel sw zw sy zy", {"channels_last": 1}, {"rows4": ROWS.reshape(1, 2, 2, 10)},
        lambda: quantized(real(ROWS, "a") @ real(W, "w")).reshape(1, 2, 2, 6),
    ),
    ("QuantizeLinear", "x sy zy", {}, {"x": X}, lambda: quantized(X)),
    ("DequantizeLinear", "a sa za", {}, {"a": A}, lambda: real(A, "a")),
    (
        "QLinearConcat", "sy zy a sa za b sb zb", {"axis": 1}, {"a": A, "b": B},
        lambda: quantized(np.concatenate([real(A, "a"), real(B, "b")], 1)),
    ),
    (
        "QGemm", "a sa za w sw zw c sy zy", {"alpha": 0.5}, {"a": ROWS},
        lambda: quantized(0.5 * (real(ROWS, "a") @ real(W, "w") + PARAMETERS["sa"] * COLUMNS * STEPS)),
    ),
    ("QGemm", "a sa za wt sw zw", {"transB": 1}, {"a": ROWS}, lambda: real(ROWS, "a") @ real(W, "w")),
    ("MatMulIntegerToFloat", "a w sa sw za zw bias", {}, {"a": ROWS}, lambda: real(ROWS, "a") @ real(W, "w") + BIAS),
    (
        "DynamicQuantizeMatMul", "x w sw zw bias", {}, {"x": X[:, :10]},
        lambda: dynamically(X[:, :10]) @ real(W, "w") + BIAS,
    ),
    (
        "GatherBlockQuantized", "table at halves", {"block_size": 16}, {"at": PLACES_OF_ROWS},
        lambda: ((NIBBLES - 8.0) * HALVES.repeat(16, 1))[PLACES_OF_ROWS],
    ),
    (
        "GatherBlockQuantized", "table at halves packed_zeros", {"block_size": 16}, {"at": PLACES_OF_ROWS},
        lambda: ((NIBBLES - np.array([3.0, 12.0]).repeat(16)) * HALVES.repeat(16, 1))[PLACES_OF_ROWS],
    ),
    ("MatMulNBits", "x packed scales", NARROW, {"x": X}, lambda: X @ unpacked(8).T),
    ("MatMulNBits", "x packed scales zeros", {**NARROW, "accuracy_level": 4}, {"x": X}, lambda: X @ unpacked(ZEROS).T),
    ("MatMulNBits", "x packed scales places  bias", NARROW, {"x": X}, lambda: X @ unpacked(PLACES).T + BIAS),
    (
        "MatMulNBits", "x bytes scales", {**NARROW, "bits": 8, "block_size": 16, "K": 32}, {"x": X[:, :32]},
        lambda: X[:, :32] @ ((PACKED - 128.0) * PARAMETERS["scales"].reshape(6, 2, 1)).reshape(6, 32).T,
    ),
]  # fmt: skip


def made(op: str, names: str, attributes: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> ModelProto:
    node = helper.make_node(op, names.split(" "), ["y"], domain=DOMAIN, **attributes)
    weights = {name: PARAMETERS[name] for name in names.split(" ") if name in PARAMETERS}
    dtypes = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in inputs.items()}
    proto = model([node], {name: x.shape for name, x in inputs.items()}, ["y"], weights=weights, dtypes=dtypes)
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return proto


@pytest.mark.parametrize("op, names, attributes, inputs, expected", CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_operator(op: str, names: str, attributes: Any, inputs: Any, expected: Callable[[], np.ndarray]) -> None:
    y, wanted = run(import_model(made(op, names, attributes, inputs)), inputs)["y"], expected()
    if y.dtype == np.uint8:
        assert np.abs(y.astype(int) - wanted).max() <= 1
    else:
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-4)


def test_every_operator_is_tested() -> None:
    assert {case[0] for case in CASES} == table.entries.keys()


def test_unsupported_operators_of_the_domain_are_named() -> None:
    with pytest.raises(UnsupportedError, match=r"Nonesuch.*com\.microsoft"):
        import_model(made("Nonesuch", "x", {}, {"x": X}))

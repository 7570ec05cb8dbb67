"""GPTQ and AWQ: packed matrices are read as the weights that were packed, and multiply like them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import ModelError, UnsupportedError
from dlc.language_models.checkpoints.packed_layouts import PackedLayout
from dlc.language_models.checkpoints.reading import read_checkpoint
from dlc.language_models.families.registry import build_decoder
from dlc.language_models.layers import linear
from dlc.language_models.quantized_matrix import QuantizedMatrix
from tests.language_models.models import weight, write_safetensors
from tests.language_models.test_families import MODELS

OUTPUTS, INPUTS, GROUPS = 16, 64, 2
rng = np.random.default_rng(0)


def pack(integers: np.ndarray, bits: int, order: list[int]) -> np.ndarray:
    """Return words whose bit field i has element order[i] of consecutive ones along the last axis."""
    fields = integers.reshape(*integers.shape[:-1], -1, 32 // bits)[..., order].astype(np.uint64)
    return sum(fields[..., i] << np.uint64(bits * i) for i in range(32 // bits)).astype(np.uint32).view(np.int32)


def pack_matrix(
    method: str, bits: int, shape: tuple[int, int] = (OUTPUTS, INPUTS), **kind: bool
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the tensors of random weights and the weights [N, K]; GPTQ subtracts 1 from zero points."""
    n, k = shape
    integers, groups = rng.integers(0, 1 << bits, (n, k)), np.arange(k) // (k // GROUPS)
    if kind.get("has_activation_order"):
        groups = rng.permutation(groups)
    zero = np.full((n, GROUPS), 1 << (bits - 1)) if kind.get("is_symmetric") else rng.integers(0, 1 << bits, (n, GROUPS))
    scale = rng.uniform(0.01, 0.02, (n, GROUPS)).astype(np.float16)
    expected = (integers - zero[:, groups]) * scale[:, groups].astype(np.float32)
    columns = [0, 2, 4, 6, 1, 3, 5, 7] if method == "awq" else list(range(32 // bits))
    tensors = {"scales": np.ascontiguousarray(scale.T)}
    if method == "awq":
        return tensors | {"qweight": pack(integers.T, bits, columns), "qzeros": pack(zero.T, bits, columns)}, expected
    tensors["qweight"] = np.ascontiguousarray(pack(integers, bits, columns).T)
    return tensors | {"qzeros": pack((zero.T - 1) % (1 << bits), bits, columns), "g_idx": groups.astype(np.int32)}, expected


def read(method: str, bits: int, tensors: dict[str, np.ndarray]) -> QuantizedMatrix:
    layout = PackedLayout.of({"quant_method": method, "bits": bits}, "config.json")
    others, packed = layout.matrices({f"layer.{name}": tensor for name, tensor in tensors.items()})
    assert not others
    shape, read_matrix = packed["layer.weight"]
    assert shape == (OUTPUTS, INPUTS)
    return read_matrix()


@pytest.mark.parametrize(
    "method, bits, kind",
    [
        ("awq", 4, {}),
        ("gptq", 4, {}),
        ("gptq", 4, {"is_symmetric": True}),
        ("gptq", 8, {"is_symmetric": True}),
        ("gptq", 8, {}),
        ("gptq", 4, {"has_activation_order": True}),
    ],
    ids=str,
)
def test_matrices_equal_the_packed_weights(method: str, bits: int, kind: dict[str, bool]) -> None:
    tensors, expected = pack_matrix(method, bits, **kind)
    matrix = read(method, bits, tensors)
    assert (matrix.zero is None) == kind.get("is_symmetric", False)
    np.testing.assert_allclose(matrix.dequantize(), expected, rtol=1e-6)
    np.testing.assert_allclose(matrix.rows(slice(2, 5)).dequantize(), expected[2:5], rtol=1e-6)
    x = rng.standard_normal((3, INPUTS)).astype(np.float32)
    product = dlc.jit(lambda x: linear(x, matrix), target="reference")(x)
    np.testing.assert_allclose(np.asarray(product), x @ expected.T, atol=1e-3)


def test_newer_gptq_stores_zero_points_as_they_are() -> None:
    layout = PackedLayout.of({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, "config.json")
    tensors, expected = pack_matrix("gptq", 4)
    _, packed = layout.matrices({f"layer.{name}": tensor for name, tensor in tensors.items()})
    scale = np.repeat(tensors["scales"].T.astype(np.float32), INPUTS // GROUPS, 1)
    # The zero points are those of the older format less one, except for wrapped ones.
    difference = packed["layer.weight"][1]().dequantize() - expected
    assert np.isclose(difference, scale, rtol=1e-3).mean() > 0.8


@pytest.mark.parametrize(
    "name, change", [("qzeros", (1, 2)), ("scales", (3, 16)), ("qweight", (7, 16)), ("g_idx", (1,))], ids=str
)
def test_contradictory_shapes_are_errors(name: str, change: tuple[int, ...]) -> None:
    tensors, _ = pack_matrix("gptq", 4)
    tensors[name] = np.zeros(change, tensors[name].dtype)
    with pytest.raises(ModelError, match=f"layer: .*{name}"):
        read("gptq", 4, tensors)


def test_groups_of_different_sizes_are_an_error() -> None:
    tensors, _ = pack_matrix("gptq", 4)
    tensors["g_idx"] = np.minimum(np.arange(INPUTS) // 8, 1).astype(np.int32)
    with pytest.raises(UnsupportedError, match=r"layer\.g_idx"):
        read("gptq", 4, tensors)


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_a_smaller_last_group_is_an_error(method: str) -> None:
    """64 inputs in groups of 40 have two scales, as groups of 32 do."""
    tensors, _ = pack_matrix(method, 4)
    tensors.pop("g_idx", None)
    layout = PackedLayout.of({"quant_method": method, "group_size": 40}, "config.json")
    with pytest.raises(UnsupportedError, match="layer: 2 groups of 64 inputs with group_size = 40"):
        layout.matrices({f"layer.{name}": tensor for name, tensor in tensors.items()})
    with pytest.raises(ModelError, match="group_size = '32'"):
        PackedLayout.of({"quant_method": method, "group_size": "32"}, "config.json")


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_folders(method: str, tmp_path: Path) -> None:
    """All matrices of the layers of a model are read, and no tensor is left."""
    recorded = MODELS["llama"]
    config: dict[str, Any] = {
        **recorded["config"],
        "quantization_config": {"quant_method": method, "bits": 4},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors: dict[str, np.ndarray] = {}
    for name, shape in recorded["shapes"].items():
        if name.endswith("_proj.weight"):
            packed, _ = pack_matrix(method, 4, tuple(shape))
            tensors |= {f"{name.removesuffix('weight')}{part}": tensor for part, tensor in packed.items()}
        else:
            tensors[name] = weight(name, shape)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    checkpoint = read_checkpoint(tmp_path)
    assert isinstance(checkpoint.weights.read("model.layers.1.mlp.down_proj.weight"), QuantizedMatrix)
    build_decoder(checkpoint)

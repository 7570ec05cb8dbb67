"""Block formats are decoded as the package gguf decodes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dlc.language_models.checkpoints.block_formats import GGUF_TYPES

FORMATS = {number: kind for number, kind in GGUF_TYPES.items() if kind.decode is not None}
RECORDED = json.loads((Path(__file__).parent / "block_formats.json").read_text())


def blocks(number: int) -> np.ndarray:
    """Return random blocks [2, 1, bytes] whose 16-bit floats are moderate."""
    kind = FORMATS[number]
    data = np.random.default_rng(number).integers(0, 256, (2, 1, kind.bytes), dtype=np.uint8)
    scales = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}
    for start in scales.get(kind.name, (0,)):
        data[..., start + 1] = data[..., start + 1] & 0x83 | 0x2C
    return data


def dequantized(number: int) -> np.ndarray:
    kind = FORMATS[number]
    assert kind.decode is not None
    return kind.decode(blocks(number)).dequantize()


@pytest.mark.parametrize("number", FORMATS, ids=lambda n: FORMATS[n].name)
def test_recorded_weights(number: int) -> None:
    weights, name = dequantized(number), FORMATS[number].name
    tolerance = 1e-6 * np.abs(weights).max()
    # The first weights of each row, and the sum and the alternating sum of all.
    summary = [
        *weights[:, :4].reshape(-1),
        weights.sum(dtype=np.float64),
        (weights[:, ::2] - weights[:, 1::2]).sum(dtype=np.float64),
    ]
    np.testing.assert_allclose(summary, RECORDED[name], atol=300 * tolerance, rtol=1e-6)


@pytest.mark.parametrize("number", FORMATS, ids=lambda n: FORMATS[n].name)
def test_the_package_agrees(number: int) -> None:
    gguf = pytest.importorskip("gguf")
    expected = gguf.dequantize(blocks(number).reshape(2, -1), gguf.GGMLQuantizationType(number))
    np.testing.assert_allclose(dequantized(number), expected, atol=1e-6 * np.abs(expected).max())


def test_groups_of_equal_weights_have_a_minimum_only() -> None:
    data = blocks(3)
    data[..., :2] = 0  # Q4_1 with scale 0
    kind = FORMATS[3]
    assert kind.decode is not None
    weights = kind.decode(data).dequantize()
    minimum = data[..., 2:4].copy().view(np.float16).astype(np.float32).reshape(2, 1)
    np.testing.assert_array_equal(weights, np.broadcast_to(minimum, weights.shape))

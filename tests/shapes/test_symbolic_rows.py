"""Functions of rows of symbolic size, and their gradients: one program for all sizes, without a warning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from tests.shapes.test_specializations import count_compilations

pytestmark = pytest.mark.filterwarnings("error")


def rms_norm(x: Any) -> Any:
    return x / dnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def differences(x: Any) -> Any:
    """Values of which each depends on the two before it, and all are summed: recomputing each value once is linear work."""
    values = [x - x.mean(-1, keepdims=True), x]
    for _ in range(16):
        values.append(values[-1] - values[-2] * 0.5)
    return sum(v - v.mean(-1, keepdims=True) for v in values[-2:])


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda x, s: (nn.softmax(x, axis=-1) ** 2 * s).sum(),
    "log_softmax": lambda x, s: (nn.log_softmax(x, axis=-1) ** 3 * s).sum(),
    "layer_norm": lambda x, s: dnp.tanh(nn.layer_norm(x, s, s)).sum(),
    "softmax of layer_norm": lambda x, s: (nn.softmax(nn.layer_norm(x, s, s), axis=-1) ** 2).sum(),
    "rms_norm": lambda x, s: (rms_norm(x) ** 3 * s).sum(),
    "maximum": lambda x, s: (x / x.max(-1, keepdims=True) * s).sum(),
    "differences": lambda x, s: (differences(x) * s).sum(),
}


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_normalized_rows(name: str, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient, rng = dlc.grad(LOSSES[name], argnums=(0, 1)), np.random.default_rng(0)
    arguments = [
        (rng.standard_normal((*(4,)[: rank - 1], n)).astype(np.float32), rng.standard_normal(n).astype(np.float32))
        for n in (5, 1, 2, 16, 17, 33, 300)
    ]
    reference = dlc.jit(gradient, target="reference", num_threads=1, cache=False)
    expected = [reference(*pair) for pair in arguments]
    compiled = count_compilations(monkeypatch)
    symbolic = dlc.jit(gradient, num_threads=1, cache=False, dynamic={"x": {rank - 1: "N"}, "s": {0: "N"}})
    for pair, wanted in zip(arguments, expected, strict=True):
        for a, b in zip(symbolic(*pair), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)
    assert len(compiled) == 1


@pytest.mark.parametrize("length", [17, 64])
def test_attention_with_heads_of_symbolic_size(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return nn.softmax(q @ dnp.swapaxes(k, -1, -2), axis=-1) @ v

    static, rng = dlc.jit(attention, target="reference", cache=False), np.random.default_rng(0)
    calls = [[rng.standard_normal((4, length, size)).astype(np.float32) for _ in range(3)] for size in (64, 1, 0, 33, 128)]
    expected = [static(*arrays) for arrays in calls]
    compiled = count_compilations(monkeypatch)
    symbolic = dlc.jit(attention, num_threads=1, cache=False, dynamic={name: {2: "D"} for name in "qkv"})
    for arrays, result in zip(calls, expected, strict=True):
        np.testing.assert_allclose(symbolic(*arrays), result, 1e-4, 1e-4)
    assert len(compiled) == 1

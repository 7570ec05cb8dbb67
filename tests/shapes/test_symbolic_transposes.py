"""Transposes and reversals of symbolic sizes: blocks are transposed in registers, and their remainders element by element."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from tests.shapes.test_specializations import count_compilations
from tests.targets import NATIVE, SHORT

SIZES = (0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 33)
BOTH = {0: "N", 1: "M"}


@pytest.mark.parametrize("target", [*NATIVE, SHORT])
def test_transposes(target: str) -> None:
    @dlc.jit(target=target, dynamic={"x": BOTH, "y": BOTH}, cache=False, num_threads=1)
    def transposed(x: Any, y: Any) -> Any:
        return x.T + 1, ~y.T

    for n in SIZES:
        for m in SIZES:
            x = np.arange(n * m, dtype=np.float32).reshape(n, m)
            y = x % 3 == 0
            for got, expected in zip(transposed(x, y), (x.T + 1, ~y.T), strict=True):
                np.testing.assert_array_equal(got, expected, str((n, m)))


def test_blocks_are_transposed_in_registers(tmp_path: Path) -> None:
    transposed = dlc.jit(target=SHORT, dynamic={"x": BOTH}, cache=False, dump_ir=tmp_path)(lambda x: x.T + 1)
    transposed(np.zeros((9, 9), np.float32))
    (vectorized,) = tmp_path.glob("*-vectorize.mlir")
    assert "vector<8x16xf32>" in vectorized.read_text()


REVERSALS: dict[str, Callable[[Any], Any]] = {
    "both axes": lambda x: x[::-1, ::-1],
    "a slice": lambda x: x[::-1, 1:],
    "a strided slice": lambda x: x[::-2, ::3],
    "a flattened array": lambda x: x.reshape(-1)[::-1],
    "a transpose": lambda x: dnp.flip(x.T, 0) + 1,
    "a broadcast": lambda x: dnp.flip(dnp.broadcast_to(x.sum(1, keepdims=True), x.shape), (0, 1)) + x,
    "a repeated array": lambda x: dnp.flip(dnp.repeat(x, 3, 1), 1),
    "an operand of a product": lambda x: dnp.flip(x, 1) @ x.T,
    "an operand of a sum": lambda x: (dnp.flip(x, 1) * x).sum(1),
    "an operand of a concatenation": lambda x: dnp.concatenate([x[::-1], x], 0),
}


@pytest.mark.parametrize("name", REVERSALS)
def test_reversals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((7, 5), (33, 130), (1, 3), (4, 1), (2, 0))]
    expected = [dlc.jit(REVERSALS[name], target="reference", cache=False)(x) for x in arrays]
    compiled = count_compilations(monkeypatch)
    symbolic = dlc.jit(REVERSALS[name], dynamic={"x": {0: "N", 1: "M"}}, cache=False, num_threads=1)
    for x, result in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(symbolic(x), result, 1e-4, 1e-4)
    assert len(compiled) <= 1 + (name == "a slice")

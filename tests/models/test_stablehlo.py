"""Functions of JAX as it prints them, in both forms: results as JAX computed them, on each target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc

MODELS = sorted((Path(__file__).parent / "stablehlo").glob("*.mlir"))
RECORDED = np.load(Path(__file__).parent / "expected" / "stablehlo.npz")


def recorded(name: str, side: str) -> list[np.ndarray]:
    return [RECORDED[f"{name}/{side}/{k}"] for k in range(sum(key.startswith(f"{name}/{side}/") for key in RECORDED.files))]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_it_computes_what_jax_did(path: Path) -> None:
    name = path.name.partition(".")[0]
    # The forms of one function are one program.
    for target in ("reference", "cpu") if path.name == f"{name}.mlir" else ("reference",):
        results = dlc.compile_model(path, target=target, num_threads=1)(*recorded(name, "in")).values()
        for got, wanted in zip(results, recorded(name, "out"), strict=True):
            assert np.asarray(got).dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)

"""Functions of JAX as it prints them, in both forms: results as JAX computed them, on each target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from tests.models.alone import answers_alone

MODELS = sorted((Path(__file__).parent / "stablehlo").glob("*.mlir"))
RECORDED = np.load(Path(__file__).parent / "expected" / "stablehlo.npz")


def recorded(name: str, side: str) -> list[np.ndarray]:
    return [RECORDED[f"{name}/{side}/{k}"] for k in range(sum(key.startswith(f"{name}/{side}/") for key in RECORDED.files))]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_it_computes_what_jax_did(path: Path, tmp_path: Path) -> None:
    name = path.name.partition(".")[0]
    # The forms of one function are one program.
    for target in ("reference", "cpu") if path.name == f"{name}.mlir" else ("reference",):
        model = dlc.compile_model(path, target=target, num_threads=1)
        is_what_jax_computed(name, model(*recorded(name, "in")))
    if target == "cpu":
        model.save(tmp_path / "m.dlc")
        *_, (results,) = answers_alone(tmp_path / "m.dlc", [recorded(name, "in")])
        is_what_jax_computed(name, results)


def is_what_jax_computed(name: str, results: Mapping[str, Any]) -> None:
    for got, wanted in zip(results.values(), recorded(name, "out"), strict=True):
        assert np.asarray(got).dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)

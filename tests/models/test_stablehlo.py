"""StableHLO modules of JAX, in both textual forms, compared with the results of JAX on each target."""

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
def test_results_equal_those_of_jax(path: Path, tmp_path: Path) -> None:
    name = path.name.partition(".")[0]
    # Both forms of a function are the same program.
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

"""Models of scikit-learn, as its exporter wrote them: labels and probabilities as ONNX Runtime computed them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc

MODELS = sorted((Path(__file__).parent / "sklearn").glob("*.onnx"))
RECORDED = np.load(Path(__file__).parent / "expected" / "sklearn.npz")


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_it_decides_as_recorded(path: Path) -> None:
    label, rows = dlc.compile_model(path, num_threads=1)(RECORDED["x"]).values()
    assert np.asarray(label).astype(str).tolist() == RECORDED[f"{path.stem}/label"].tolist()
    assert [list(map(str, row)) for row in rows] == [RECORDED[f"{path.stem}/keys"].tolist()] * len(rows)
    np.testing.assert_allclose([list(row.values()) for row in rows], RECORDED[f"{path.stem}/probability"], 1e-4, 1e-5)

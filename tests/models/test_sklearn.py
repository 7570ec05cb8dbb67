"""Exported scikit-learn models: labels and probabilities compared with ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dlc
from dlc.cli import main
from tests.models.alone import answers_alone

MODELS = sorted((Path(__file__).parent / "sklearn").glob("*.onnx"))
RECORDED = np.load(Path(__file__).parent / "expected" / "sklearn.npz")


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_labels_and_probabilities_match_the_recording(path: Path, tmp_path: Path) -> None:
    model = dlc.compile_model(path, num_threads=1)
    decides_as_recorded(path.stem, *model(RECORDED["x"]).values())
    model.save(tmp_path / "m.dlc")
    *_, (results,) = answers_alone(tmp_path / "m.dlc", [[RECORDED["x"]]])
    decides_as_recorded(path.stem, *results.values())


def decides_as_recorded(name: str, label: Any, rows: Any) -> None:
    assert np.asarray(label).astype(str).tolist() == RECORDED[f"{name}/label"].tolist()
    assert [list(map(str, row)) for row in rows] == [RECORDED[f"{name}/keys"].tolist()] * len(rows)
    np.testing.assert_allclose([list(row.values()) for row in rows], RECORDED[f"{name}/probability"], 1e-4, 1e-5)


def test_the_command_line_shows_and_saves_dicts(tmp_path: Path) -> None:
    path, runner = str(MODELS[1]), CliRunner()
    shown = runner.invoke(main, ["run", path, "--shape", "X=6,4", "--target", "reference"])
    assert "output_probability: 6 elements" in shown.output
    assert "{'setosa': " in shown.output
    told = json.loads(runner.invoke(main, ["run", path, "--shape", "X=2,4", "--target", "reference", "--json"]).stdout)
    assert [list(row) for row in told["output_probability"]] == [["setosa", "versicolor", "virginica"]] * 2
    saved = runner.invoke(main, ["run", path, "--shape", "X=2,4", "--target", "reference", "-o", str(tmp_path / "y.npz")])
    assert saved.exit_code == 0, saved.output
    with np.load(tmp_path / "y.npz") as arrays:
        assert arrays["output_probability[1][keys]"].tolist() == ["setosa", "versicolor", "virginica"]
        assert arrays["output_probability[1][values]"].tolist() == list(told["output_probability"][1].values())

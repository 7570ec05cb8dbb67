"""`dlc quantize` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from dlc.cli import main
from tests.quantization.models import evaluated, images, small_net


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(small_net(), tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "x.npy", images(12)[:, 0])
    return tmp_path


def quantize(folder: Path, *arguments: object) -> Result:
    line = ["quantize", folder / "m.onnx", "-o", folder / "q.onnx", *arguments]
    return CliRunner().invoke(main, [str(a) for a in line], catch_exceptions=False)


def test_model_table_and_page(folder: Path) -> None:
    done = quantize(folder, "--calibrate", folder / "data", "--layers", "--page", folder / "q.html")
    assert done.exit_code == 0, done.stderr
    for text in ("depthwise", "error if quantized alone", "4 of 4 layers quantized", "over 12 samples", "Saved as"):
        assert text in done.stdout
    page = (folder / "q.html").read_text()
    assert page.count("<tr>") == 5 and "pointwise" in page and "range method mse over 12 sets of inputs" in page
    model, (x,) = onnx.load(folder / "q.onnx"), images(1)
    expected = evaluated(small_net(), x)
    assert np.abs(evaluated(model, x) - expected).max() < 0.05 * np.abs(expected).max()
    again = quantize(folder, "--calibrate", folder / "data", "--keep-float", "nothing")
    assert again.exit_code == 1
    assert "no layer matches 'nothing'; the layers are first, depthwise, pointwise, classes" in again.stderr.replace("\n", " ")


def test_output_suffix(folder: Path) -> None:
    done = CliRunner().invoke(main, ["quantize", str(folder / "m.onnx"), "--dynamic", "-o", str(folder / "q.dlc")])
    assert done.exit_code == 2 and "compile the quantized model afterwards" in done.stderr


def test_json(folder: Path) -> None:
    done = quantize(folder, "--dynamic", "--keep-float", "first", "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["error"] is None and report["settings"]["dynamic"]
    assert {layer["name"]: layer["kept_in_float"] for layer in report["layers"]} == {
        "first": True, "depthwise": True, "pointwise": True, "classes": False,
    }  # fmt: skip


def test_errors_are_reported_before_any_work(folder: Path) -> None:
    done = quantize(folder)
    assert done.exit_code == 2 and "expected calibration data: --calibrate" in done.stderr
    (folder / "empty").mkdir()
    done = quantize(folder, "--calibrate", folder / "empty")
    assert done.exit_code == 1 and "no calibration data: the folder is empty" in done.stderr
    done = quantize(folder, "--calibrate", folder / "data", "--page", folder / "none" / "q.html")
    assert done.exit_code == 1 and "there is no folder" in done.stderr
    assert not (folder / "q.onnx").exists()

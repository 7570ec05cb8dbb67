"""The example of a target of one's own: plain C, in less than 150 lines, runs a model."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from dlc.emission.c.kernel import emit
from dlc.errors import UnsupportedError
from tests.backends.cpu.native import grid, parse_kernel

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "c_target.py"
MODELS = ROOT / "tests" / "models"


def test_it_is_an_afternoon() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 150


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", ["mnist_cnn", "mnist_cnn_int8_qdq"])
def test_a_model_runs(name: str, tmp_path: Path) -> None:
    model, _ = runpy.run_path(str(EXAMPLE))["compile_c"](MODELS / "small" / f"{name}.onnx", tmp_path)
    recorded = np.load(MODELS / "expected" / f"{name}.npz")
    got = model({i.name: recorded[f"0/in/{i.name}"] for i in model.inputs})
    for output in model.outputs:
        expected = recorded[f"0/out/{output.name}"]
        np.testing.assert_allclose(np.asarray(got[output.name]), expected, atol=1e-5 if name == "mnist_cnn" else 0.02)


def test_what_a_dialect_lacks_is_named() -> None:
    example = runpy.run_path(str(EXAMPLE))
    body = "%v = memref.load %x[%p] : memref<4xbf16>\n memref.store %v, %y[%p] : memref<4xbf16>"
    kernel = parse_kernel(grid(body, "%x: memref<4xbf16>, %y: memref<4xbf16>"))
    with pytest.raises(UnsupportedError, match=r"@k: C has no expression for 'from_memory.bf16'"):
        emit(kernel, example["TARGET"], example["C"])

"""`numerics="strict"`: operations stay as the model has them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.caching.keys import program_key
from dlc.errors import UnsupportedError
from dlc.options import Options
from dlc.pipelines import stages_of
from dlc.target import CPU_LEVELS, resolve
from dlc.weights import WeightStore

random = np.random.default_rng(0)
W = random.standard_normal((3, 3, 64, 64), np.float32)
S = random.uniform(0.5, 2, 64).astype(np.float32)


def normalised(x):
    return nn.relu(nn.conv(x, W) * S + 1)


def passes(numerics: str) -> set[str]:
    return {p.name for stage in stages_of(CPU_LEVELS["cpu:avx2"], numerics) for p in stage.passes}


def test_what_folds_is_left_out() -> None:
    folds = {
        "expand-sigmoids",
        "merge-pads",
        "trim-padding",
        "weight-only-contractions",
        "fold-quantization",
        "fold-scales",
        "winograd",
        "winograd-gradients",
    }
    assert passes("default") - passes("strict") == folds


def test_default_and_strict_agree_within_what_is_stated() -> None:
    x = random.standard_normal((1, 30, 30, 64), np.float32)
    default, strict = (dlc.jit(numerics=numerics)(normalised) for numerics in ("default", "strict"))
    assert "winograd" in default.lower(x).as_text("fusion")
    assert "winograd" not in strict.lower(x).as_text("fusion")
    a, b = np.asarray(default(x)), np.asarray(strict(x))
    assert not np.array_equal(a, b)
    np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max())


def test_functions_are_rounded_once() -> None:
    x = random.uniform(-5, 5, 10_000).astype(np.float32)
    exact = np.tanh(x.astype(np.float64))
    got = np.asarray(dlc.jit(numerics="strict")(lambda x: dnp.tanh(x))(x))
    assert np.mean(got == exact.astype(np.float32)) > 0.999


def test_a_compiled_model_remembers(tmp_path: Path) -> None:
    model = dlc.jit(numerics="strict")(dnp.exp).lower(np.ones(4, np.float32)).compile()
    model.save(tmp_path / "m.dlc")
    assert dlc.load(tmp_path / "m.dlc").artifact.numerics == "strict"


def test_the_cache_tells_them_apart() -> None:
    keys = [program_key("", WeightStore(), None, resolve("cpu:generic"), Options(numerics=n)) for n in ("default", "strict")]
    assert keys[0].differences(keys[1].fields) == ["numerics"]


def test_others_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="numerics 'fast': expected default or strict"):
        dlc.jit(numerics="fast")(dnp.exp)


def test_the_benchmark_of_errors_lists_every_function(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(sys.modules, "flint", MagicMock())
    assert runpy.run_path(str(folder / "accuracy.py"))["missing_functions"]() == []

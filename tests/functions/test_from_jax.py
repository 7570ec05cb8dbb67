"""Functions of JAX through dlc, where JAX is installed; what JAX prints is recorded in tests/models/stablehlo."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import DlcError, ShapeError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(DlcError, match="install jax"):
        dlc.from_jax(abs, X)


def test_arguments_and_results_are_what_the_function_has() -> None:
    pytest.importorskip("jax")

    def scaled(parameters: dict[str, Any], x: Any) -> dict[str, Any]:
        return {"twice": (x * parameters["by"],), "unused": parameters["none"]}

    compiled = dlc.from_jax(scaled, {"by": np.float32(2), "none": X[0]}, X, target="reference")
    results = compiled({"by": 3.0, "none": X[1]}, X)
    np.testing.assert_array_equal(results["twice"][0], 3 * X)
    np.testing.assert_array_equal(results["unused"], X[1])
    assert [info.name for info in compiled.model.inputs] == ["[0]['by']", "[0]['none']", "[1]"]
    with pytest.raises(ShapeError, match="arguments of the structure"):
        compiled(X, X)


def test_complex_arguments_and_results() -> None:
    jax = pytest.importorskip("jax")
    z = (X + 1j * X[::-1]).astype(np.complex64)
    compiled = dlc.from_jax(lambda z, x: {"spectrum": jax.numpy.fft.fft(z * 1j), "sum": x.sum()}, z, X, target="reference")
    results = compiled(z, X)
    np.testing.assert_allclose(results["spectrum"], np.fft.fft(z * 1j), 1e-5, 1e-5)
    np.testing.assert_array_equal(results["sum"], X.sum())
    assert [info.name for info in compiled.model.inputs] == ["[0].real", "[0].imag", "[1]"]

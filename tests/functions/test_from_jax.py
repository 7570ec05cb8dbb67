"""JAX functions compiled by dlc, where JAX is installed; StableHLO printed by JAX is recorded in tests/models/stablehlo."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import DlcError, ShapeError
from dlc.shapes.dims import Dim

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_missing_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(DlcError, match="install jax"):
        dlc.from_jax(abs, X)


def test_argument_and_result_structure() -> None:
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


def test_random_keys() -> None:
    """Keys are passed as their words."""
    jax = pytest.importorskip("jax")

    def drawn(key: Any, x: Any) -> Any:
        mine, rest = jax.random.split(key)
        return x + jax.random.uniform(mine, x.shape), rest

    key = jax.random.key(7)
    found, rest = dlc.from_jax(drawn, key, X, target="reference")(key, X)
    np.testing.assert_array_equal(found, drawn(key, X)[0])
    assert rest == drawn(key, X)[1]


def test_complex_arguments_and_results() -> None:
    jax = pytest.importorskip("jax")
    z = (X + 1j * X[::-1]).astype(np.complex64)
    compiled = dlc.from_jax(lambda z, x: {"spectrum": jax.numpy.fft.fft(z * 1j), "sum": x.sum()}, z, X, target="reference")
    results = compiled(z, X)
    np.testing.assert_allclose(results["spectrum"], np.fft.fft(z * 1j), 1e-5, 1e-5)
    np.testing.assert_array_equal(results["sum"], X.sum())
    assert [info.name for info in compiled.model.inputs] == ["[0].real", "[0].imag", "[1]"]


@pytest.mark.parametrize(("options", "most"), [({"precision": "bf16"}, 1e-2), ({"weights": "int8"}, 1e-2)])
def test_weight_only_quantization(options: dict[str, Any], most: float) -> None:
    """Arrays that a function closes over are weights; arguments are not."""
    pytest.importorskip("jax")
    x, w = np.random.default_rng(0).standard_normal((2, 128, 128)).astype(np.float32)
    wanted = x @ w

    def off(got: Any) -> float:
        return float(np.abs(got - wanted).max() / np.abs(wanted).max())

    assert 1e-5 < off(dlc.from_jax(lambda x: x @ w, x, **options)(x)) < most
    assert off(dlc.from_jax(lambda x, w: x @ w, x, w, **options)(x, w)) < 1e-5


def test_symbolic_sizes() -> None:
    jax = pytest.importorskip("jax")
    export = pytest.importorskip("jax.export")

    def mean_of(x: Any, w: Any) -> Any:
        rows, words, width = x.shape
        later = jax.numpy.arange(words)[:, None] < jax.numpy.arange(words)
        scores = jax.nn.softmax(jax.numpy.where(later, -1e9, x @ w @ x.mT), -1)
        return (scores @ x).reshape(rows * words, width), x.mean(1) + words

    shape = export.symbolic_shape("rows, words")
    examples = (jax.ShapeDtypeStruct((*shape, 3), np.float32), jax.ShapeDtypeStruct((3, 3), np.float32))
    compiled = dlc.from_jax(mean_of, *examples)
    assert compiled.model.inputs[0].shape == (*map(Dim.symbol, ("rows", "words")), 3)
    draw = np.random.default_rng(0)
    for rows, words in ((2, 3), (1, 1), (3, 5)):
        given = [draw.standard_normal(s).astype(np.float32) for s in ((rows, words, 3), (3, 3))]
        for got, wanted in zip(compiled(*given), mean_of(*map(jax.numpy.asarray, given)), strict=True):
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)

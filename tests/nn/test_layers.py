"""dlc.nn against independent formulas, on plain arrays and traced."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
from dlc import nn
from dlc.errors import DTypeError, ShapeError
from dlc.nn.dot_product_attention import attention_scores
from tests.nn import image_layers, vector_layers

CASES = image_layers.CASES | vector_layers.CASES


def listed() -> list[Any]:
    return [pytest.param(*case, id=f"{name}{k}") for name, cases in CASES.items() for k, case in enumerate(cases)]


def test_every_function_has_a_case() -> None:
    defined = {n for family in nn.FAMILIES for n in family.__all__}
    assert defined == {n for n in nn.__all__ if inspect.isfunction(getattr(nn, n))} == {*CASES, "dropout"}


@pytest.mark.parametrize("target", [None, "reference", "cpu"])
@pytest.mark.parametrize(("function", "expected", "arguments"), listed())
def test_layer(function: Any, expected: Any, arguments: Any, target: str | None) -> None:
    compiled = function if target is None else dlc.jit(target=target, num_threads=1)(function)
    got, want = (dlc.tree.leaves(result) for result in (compiled(*arguments), expected(*arguments)))
    for a, b in zip(map(np.asarray, got), map(np.asarray, want), strict=True):
        assert (a.dtype, a.shape) == (arguments[0].dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_scores_of_half_precision_are_not_rounded(target: str) -> None:
    """Rounded to bf16, scores of 100 would differ by 0.25, and weights by a quarter."""
    q, k, v = (np.random.default_rng(0).normal(0, scale, (3, 8, 64)) for scale in (4, 4, 1))
    half = [x.astype(ml_dtypes.bfloat16) for x in (q, k, v)]
    expected = vector_layers.attention(*(x.astype(np.float64) for x in half))
    got = dlc.jit(nn.attention, target=target, num_threads=1)(*half)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, atol=0.03)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_keep_the_dtype(dtype: Any) -> None:
    """A scale of float64 would widen the scores of float32."""
    query, key = (x.astype(dtype) for x in (vector_layers.QUERY, vector_layers.KEYS))
    assert attention_scores(query, key, None).dtype == dtype


def test_dropout_keeps_the_mean() -> None:
    x, key = np.full((100, 100), 3.0, np.float32), dlc.random.key(0)
    y = np.asarray(dlc.jit(lambda key, x: nn.dropout(key, x, 0.25))(key, x))
    assert set(np.unique(y)) == {0.0, 4.0}
    assert abs((y == 0).mean() - 0.25) < 0.02
    np.testing.assert_array_equal(y, nn.dropout(key, x, 0.25))
    np.testing.assert_array_equal(nn.dropout(key, x, 0), x)


def test_mistakes() -> None:
    key, x = dlc.random.key(0), vector_layers.X
    with pytest.raises(ShapeError, match=r"test_layers.py:\d+: dlc.nn.dropout: rate 1"):
        nn.dropout(key, x, 1)
    with pytest.raises(DTypeError, match="labels of dtype float32; expected integers"):
        nn.softmax_cross_entropy(x, x[:, 0])
    with pytest.raises(DTypeError, match=r"attention: mask of dtype float32; expected bool, .* pass `mask >= 0`"):
        nn.attention(x, x, x, mask=np.zeros((3, 3), np.float32))
    with pytest.raises(ShapeError, match=r"labels of shape \(3, 7\); expected \(3,\)"):
        nn.softmax_cross_entropy(x, x.astype(int))
    with pytest.raises(ShapeError, match="7 channels do not divide into 2 groups"):
        nn.group_norm(x, vector_layers.SCALE, vector_layers.BIAS, 2)
    with pytest.raises(ShapeError, match="padding 'full'"):
        nn.conv(vector_layers.IMAGES, np.ones((1, 1, 6, 1), np.float32), padding="full")
    with pytest.raises(ShapeError, match=r"w has 7 columns; expected 3 \(gates\) for each"):
        nn.gru_cell(x, x, x, x, x[0])


def test_zero_features() -> None:
    q, v = np.zeros((3, 0), np.float32), np.eye(3, dtype=np.float32)
    assert np.allclose(dlc.jit(nn.attention)(q, q, v), np.full((3, 3), 1 / 3))
    assert np.shape(nn.init.glorot(dlc.random.key(0), (0, 0))) == (0, 0)

"""Attention as one kernel, compared with NumPy, for various shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.target import resolve

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = True, bias: Any = 0.0) -> np.ndarray:
    """Compute attention in f64; fully masked rows are zero."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total, total, 1) @ v


def additive(q: Any, k: Any, v: Any, bias: Any) -> Any:
    scores = dnp.matmul(q, dnp.swapaxes(k, -1, -2)) / dnp.sqrt(q.shape[-1]) + bias
    return dnp.matmul(nn.softmax(scores), v)


def grouped(q: Any, k: Any, v: Any) -> Any:
    """Grouped-query attention: each key head serves two query heads."""
    return nn.attention(q, *(dnp.repeat(x, 2, axis=1) for x in (k, v)))


def interleaved(x: Any) -> Any:
    """Queries, keys and values from one projection: [B, T, 3·H·D]."""
    q, k, v = (dnp.swapaxes(part.reshape(2, 23, 4, 16), 1, 2) for part in dnp.split(x, 3, axis=-1))
    return dnp.swapaxes(nn.attention(q, k, v), 1, 2).reshape(2, 23, 64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_ragged_sizes_in_every_type(dtype: Any) -> None:
    q, k, v = (numbers(2, 5, n, 24).astype(dtype) for n in (37, 45, 45))
    tolerance = {2: 0.02, 4: 2e-6, 8: 1e-12}[np.dtype(dtype).itemsize]
    y = np.asarray(dlc.jit(nn.attention)(q, k, v), np.float64)
    np.testing.assert_allclose(y, expected(q, k, v), atol=tolerance)


MASK = np.random.default_rng(1).random((1, 1, 40, 40)) < 0.3
MASK[..., 3, :] = False
QUERIES = tuple(numbers(2, 4, 40, 16) for _ in range(3))
# 300 keys are three blocks: rows that attend to the first, the first two, a few of the last, none, and mixed tiles.
LONG = numbers(1, 5, 60, 8), numbers(1, 5, 300, 8), numbers(1, 5, 300, 8)
SPANS = np.repeat([0, 5, 128, 0, 290, 129], 10)[:, None]
SHOWN = (np.arange(300) < SPANS) & (np.arange(300) >= SPANS - 100)
# 9,001 keys exceed all caches: online softmax over blocks of 512, with a mask of 2,720 in which the first blocks of some rows
# are masked.
RUNNING = numbers(1, 5, 60, 8), numbers(1, 5, 9001, 8), numbers(1, 5, 9001, 8)
FROM = np.repeat([0, 8999, 6000, 9001, 2719, 2720], 10)[:, None]
LATER = (np.arange(9001) >= FROM) & (np.arange(9001) < FROM + 4000)
GROUPED = numbers(2, 4, 33, 16), numbers(2, 2, 35, 16), numbers(2, 2, 35, 40)
BIAS, PROJECTED = numbers(1, 4, 40, 40), numbers(2, 23, 192)
PARTS = [part.reshape(2, 23, 4, 16).swapaxes(1, 2) for part in np.split(PROJECTED, 3, -1)]
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], np.ndarray]] = {
    "causal": (lambda *x: nn.attention(*x, causal=True), QUERIES, expected(*QUERIES, np.tri(40, dtype=bool))),
    "causal, running": (
        lambda *x: nn.attention(*x, causal=True),
        RUNNING,
        expected(*RUNNING, np.tri(60, 9001, 8941, dtype=bool)),
    ),
    "masked": (lambda *x: nn.attention(*x, mask=MASK), QUERIES, expected(*QUERIES, MASK)),
    "spans": (lambda *x: nn.attention(*x, mask=SHOWN), LONG, expected(*LONG, SHOWN)),
    "running": (nn.attention, (2 * RUNNING[0], *RUNNING[1:]), expected(2 * RUNNING[0], *RUNNING[1:])),
    "running, masked": (lambda *x: nn.attention(*x, mask=LATER), RUNNING, expected(*RUNNING, LATER)),
    "additive": (additive, (*QUERIES, BIAS), expected(*QUERIES, bias=BIAS)),
    "grouped": (grouped, GROUPED, expected(GROUPED[0], *(np.repeat(x, 2, 1) for x in GROUPED[1:]))),
    "interleaved": (interleaved, (PROJECTED,), expected(*PARTS).swapaxes(1, 2).reshape(2, 23, 64)),
}


def infinite(xp: Any, scores: Any, shown: Any) -> Any:
    """Unnormalized weights; NaN for fully masked rows."""
    scores = xp.where(shown, scores, -np.inf)
    return xp.exp(scores - xp.max(scores, -1, keepdims=True))


def signed(xp: Any, scores: Any, shown: Any) -> Any:
    """Weights that are mostly negative."""
    weights = xp.where(shown, scores - 2, 0)
    return weights / (xp.sum(xp.abs(weights), -1, keepdims=True) + 1)


def of_integers(xp: Any, scores: Any, shown: Any) -> Any:
    weights = xp.where(shown, scores, 0)
    return weights - xp.max(weights, -1, keepdims=True)


@pytest.mark.parametrize("weights, dtype", [(infinite, np.float32), (signed, np.float32), (of_integers, np.int32)])
def test_custom_weights(weights: Callable[..., Any], dtype: Any) -> None:
    """The first two tasks of rows are fully masked."""
    shown = SHOWN & (np.arange(60) >= 48)[:, None]

    def attend(xp: Any, q: Any, k: Any, v: Any) -> Any:
        return xp.matmul(weights(xp, xp.matmul(q, xp.swapaxes(k, -1, -2)), shown), v)

    inputs = [(2 * x).astype(dtype) for x in LONG]
    with np.errstate(invalid="ignore"):
        wanted = attend(np, *(x.astype(np.float64) for x in inputs))
    np.testing.assert_allclose(dlc.jit(lambda *x: attend(dnp, *x))(*inputs), wanted, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:generic"])
@pytest.mark.parametrize("queries", [64, 37])
def test_rows_with_a_nan_score_are_nan(target: str, queries: int) -> None:
    """Key 40 is unmasked from query 40 on if all rows are queries; else for the last ones."""
    q, k, v = (numbers(1, 3, n, 16) for n in (queries, 64, 64))
    k[..., 40, 3] = q[..., 5, 7] = np.nan
    y = np.asarray(dlc.jit(lambda *x: nn.attention(*x, mask=np.tri(queries, 64, dtype=bool)), target=target)(q, k, v))
    is_nan = np.isnan(y)
    assert (is_nan.any((0, 1, 3)) == is_nan.all((0, 1, 3))).all()
    assert np.flatnonzero(is_nan.all((0, 1, 3))).tolist() == [5, *range(40, queries)]


def test_online_softmax_of_special_scores() -> None:
    """The results equal those of a plain softmax: NaN for rows of -∞ only, a mean for rows of the lowest finite value.

    Leading blocks of -∞ have zero weight.
    """
    q, k, v = RUNNING
    bias = np.zeros((1, 5, 60, 9001), np.float32)
    bias[..., 3, :], bias[..., 5, :5000], bias[..., 7, :] = -np.inf, -np.inf, np.finfo(np.float32).min
    bias[..., 9, 4], bias[..., 11, 9000] = np.inf, np.nan
    y = np.asarray(dlc.jit(additive)(q, k, v, bias))
    nowhere = np.flatnonzero(np.isnan(y).all((0, 1, 3)))
    assert nowhere.tolist() == [3, 9, 11] and np.isnan(y).sum() == 3 * 5 * 8
    wanted = expected(q, k, v, bias=np.where(np.isfinite(bias), bias, -np.inf))
    wanted[..., 7, :] = v.astype(np.float64).mean(2)
    np.testing.assert_allclose(np.delete(y, nowhere, 2), np.delete(wanted, nowhere, 2), atol=3e-6)


@pytest.mark.parametrize("name", CASES)
def test_argument_layouts(name: str) -> None:
    function, inputs, wanted = CASES[name]
    # Without fused multiply-adds, each step is rounded twice.
    np.testing.assert_allclose(dlc.jit(function)(*inputs), wanted, atol=3e-6 if resolve("cpu").has_fma else 6e-6)


def test_masked_blocks_are_skipped_unless_sums_are_exact() -> None:
    """300 keys are three blocks; the first queries attend only to the first, so the contents of the others must not matter."""
    q, k, v = (numbers(1, 2, 300, 8) for _ in range(3))
    v[..., 299, :] = np.inf

    def causal(q: Any, k: Any, v: Any) -> Any:
        return nn.attention(q, k, v, causal=True)

    seen = expected(q, k, v[..., :299, :][..., [*range(299), 0], :], np.tri(300, dtype=bool))
    y = dlc.jit(causal)(q, k, v)
    np.testing.assert_allclose(y[..., :100, :], seen[..., :100, :], atol=3e-6)
    assert np.isinf(y[..., 299, :]).all()
    assert np.isnan(dlc.jit(causal, numerics="strict")(q, k, v)[..., :299, :]).all()


def test_sliding_windows_with_online_softmax() -> None:
    """Query i attends to keys 75 i - 700 … 75 i: later blocks are not computed, whatever they contain."""
    q, k, v = (2 * RUNNING[0], *RUNNING[1:])
    model = onnx.parser.parse_model("""
      <ir_version: 10, opset_import: ["" : 21]>
      window (float[1,5,60,8] q, float[1,5,8,9001] k, float[1,5,9001,8] v) => (float[1,5,60,8] y)
      <int64 zero = {0}, int64 one = {1}, int64 t = {60}, int64 s = {9001}, int64[2] column = {60, 1},
       int64 stride = {75}, int64 width = {700}, float lowest = {-inf}> {
        i = Range(zero, t, one)  rows = Reshape(i, column)  j = Range(zero, s, one)
        last = Mul(rows, stride)  first = Sub(last, width)
        before = LessOrEqual(j, last)  behind = Greater(j, first)  seen = And(before, behind)
        dots = MatMul(q, k)  scores = Where(seen, dots, lowest)  weights = Softmax(scores)  y = MatMul(weights, v)
      }""")
    places, last = np.arange(9001), 75 * np.arange(60)[:, None]
    wanted = expected(np.sqrt(8) * q, k, v, (places <= last) & (places > last - 700))
    v = np.where(places[:, None] < 5000, v, np.nan)
    (y,) = dlc.compile_model(model)(q, k.swapaxes(-1, -2), v).values()
    np.testing.assert_allclose(y, wanted, atol=3e-6)


def test_derivative() -> None:
    """The backward pass reads the weights, so that forward and backward are separate kernels."""

    def loss(q: Any, k: Any, v: Any) -> Any:
        return dnp.sum(nn.attention(q, k, v, causal=True) ** 2)

    q, k, v = QUERIES
    (gradient,) = (np.asarray(g) for g in [dlc.jit(dlc.grad(loss))(q, k, v)])
    step = 1e-2 * np.random.default_rng(2).standard_normal(q.shape).astype(np.float32)
    mask = np.tri(40, dtype=bool)
    change = [(expected(q + sign * step, k, v, mask) ** 2).sum() for sign in (1, -1)]
    np.testing.assert_allclose((gradient * step).sum(), (change[0] - change[1]) / 2, rtol=1e-3)

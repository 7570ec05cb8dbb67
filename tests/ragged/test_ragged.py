"""Ragged batches against Python loops over their sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn, ragged
from dlc.runtime.models.specialized_model import SpecializedModel
from tests.targets import NATIVE

pytestmark = pytest.mark.filterwarnings("error")  # A function that is specialized per shape warns.

SYMBOLIC = {"values": {0: "L"}, "lengths": {0: "B"}}
LENGTHS = np.array([3, 40, 0, 17, 1])


def batch(*row: int, lengths: np.ndarray = LENGTHS, seed: int = 0) -> ragged.Ragged:
    rng = np.random.default_rng(seed)
    return ragged.Ragged(rng.normal(size=(lengths.sum(), *row)).astype(np.float32), lengths)


def first_sequences(x: ragged.Ragged, count: int) -> ragged.Ragged:
    return ragged.Ragged(x.values[: x.lengths[:count].sum()], x.lengths[:count])


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    weights = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return weights / weights.sum(axis, keepdims=True)


def test_one_program_serves_all_sizes() -> None:
    mean = dlc.jit(dynamic={f"x.{name}": sizes for name, sizes in SYMBOLIC.items()}, cache=False)(ragged.mean)
    for lengths in ((5, 6), (7, 3), (3, 0, 3), (9, 2, 4, 8)):
        sequences = [np.full((n, 4), n, np.float32) for n in lengths]
        expected = [[n or np.nan] * 4 for n in lengths]
        np.testing.assert_allclose(mean(ragged.of(sequences)), expected)
    (entry,) = mean._specializations.entries
    assert not isinstance(entry.program.model.artifact, SpecializedModel)


def test_rows_and_reductions() -> None:
    """One program for all numbers of rows and sequences."""

    @dlc.jit(dynamic={f"x.{name}": sizes for name, sizes in SYMBOLIC.items()})
    def f(x: ragged.Ragged, w: Any) -> Any:
        y = ragged.map(lambda rows: dnp.tanh(rows @ w), x)
        y = y * 2 + ragged.expand(ragged.sum(y), y) - np.ones(4, np.float32)
        rows = ragged.softmax(y), ragged.reverse(y)
        return y, rows, (ragged.max(y), ragged.mean(y), ragged.first(y), ragged.last(y))

    x, w = batch(6), np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    for part in (x, first_sequences(x, 2)):
        y, rows, reductions = f(part, w)
        expected = [np.tanh(s @ w) * 2 + np.tanh(s @ w).sum(0) - 1 for s in part]
        for got, function in zip((y, *rows), (lambda s: s, lambda s: softmax(s, 0), lambda s: s[::-1]), strict=True):
            np.testing.assert_allclose(got.values, np.concatenate(list(map(function, expected))), rtol=1e-4, atol=1e-5)
        with np.errstate(invalid="ignore"):
            functions = (
                lambda s: s.max(0, initial=-np.inf),
                lambda s: s.sum(0) / len(s),
                lambda s: s[0] if len(s) else np.zeros(4),
                lambda s: s[-1] if len(s) else np.zeros(4),
            )
            for got, function in zip(reductions, functions, strict=True):
                np.testing.assert_allclose(got, [function(s) for s in expected], rtol=1e-4, atol=1e-5)


def attention_by_loop(q: ragged.Ragged, k: ragged.Ragged, v: ragged.Ragged, causal: bool) -> np.ndarray:
    results = []
    for query, key, value in zip(q, k, v, strict=True):
        heads_per_group = query.shape[1] // key.shape[1]
        key, value = (np.repeat(x, heads_per_group, axis=1) for x in (key, value))
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(query.shape[2])
        scores = np.where(np.tri(len(query), dtype=bool), scores, -np.inf) if causal else scores
        results.append(np.einsum("hqk,khd->qhd", softmax(scores, -1), value))
    return np.concatenate(results)


QUERY, KEY, VALUE = batch(4, 8), batch(2, 8, seed=1), batch(2, 12, seed=2)


def attend(q: Any, k: Any, v: Any, lengths: Any, causal: bool) -> Any:
    return ragged.attention(*(ragged.Ragged(x, lengths) for x in (q, k, v)), causal=causal).values


@pytest.mark.parametrize("target", NATIVE)
def test_attention(target: str) -> None:
    """One program for all sizes; results of a sequence do not depend on the others, of which one is NaN."""
    causal = target == "cpu"
    dynamic = {"q": {0: "L"}, "k": {0: "L"}, "v": {0: "L"}, "lengths": {0: "B"}}

    @dlc.jit(dynamic=dynamic, target=target)
    def f(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        return attend(q, k, v, lengths, causal)

    result = f(QUERY.values, KEY.values, VALUE.values, LENGTHS)
    np.testing.assert_allclose(result, attention_by_loop(QUERY, KEY, VALUE, causal), rtol=1e-4, atol=1e-5)
    last = [x[1][-18:-1].copy() for x in (("q", QUERY.values), ("k", KEY.values), ("v", VALUE.values))]
    nan = [np.concatenate([np.full_like(x[:5], np.nan), x]) for x in last]
    np.testing.assert_array_equal(f(*nan, np.array([5, 17]))[5:], result[-18:-1])


def test_attention_derivatives() -> None:
    lengths = np.array([3, 19])
    q, k, v = (x.values[:22] for x in (QUERY, KEY, VALUE))
    cotangent = batch(4, 12, lengths=lengths).values

    def by_loop(q: Any, k: Any, v: Any) -> Any:
        total = 0.0
        for first, end in ((0, 3), (3, 22)):
            heads = [dnp.swapaxes(dnp.repeat(x[first:end], 4 // x.shape[1], axis=1), 0, 1) for x in (q, k, v)]
            total += (dnp.swapaxes(nn.attention(*heads, causal=True), 0, 1) * cotangent[first:end]).sum()
        return total

    @dlc.jit(dynamic={"q": {0: "L"}, "k": {0: "L"}, "v": {0: "L"}, "lengths": {0: "B"}, "cotangent": {0: "L"}})
    def gradients(q: Any, k: Any, v: Any, lengths: Any, cotangent: Any) -> Any:
        return dlc.grad(lambda *x: (attend(*x, lengths, True) * cotangent).sum(), argnums=(0, 1, 2))(q, k, v)

    got = gradients(q, k, v, lengths, cotangent)
    for a, b in zip(got, dlc.jit(dlc.grad(by_loop, argnums=(0, 1, 2)))(q, k, v), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_scan() -> None:
    """An LSTM over sequences in one program for all sizes, and its derivative."""
    rng = np.random.default_rng(0)
    w, u, b = (rng.normal(size=shape).astype(np.float32) * 0.3 for shape in ((6, 8), (2, 8), (8,)))

    def lstm(x: ragged.Ragged, w: Any) -> Any:
        zeros = dnp.zeros((x.lengths.shape[0], 2), np.float32)

        def step(state: Any, rows: Any) -> Any:
            state = nn.lstm_cell(rows, state, w, u, b)
            return state, state[0]

        return ragged.scan(step, (zeros, zeros), x)

    def by_loop(x: ragged.Ragged, w: Any) -> tuple[list[Any], list[Any]]:
        states, results = [], []
        for sequence in x:
            state = (np.zeros((1, 2), np.float32),) * 2
            for row in sequence:
                state = nn.lstm_cell(row[None], state, w, u, b)
                results.append(state[0])
            states.append(state[0])
        return states, results

    f = dlc.jit(dynamic={f"x.{name}": sizes for name, sizes in SYMBOLIC.items()})(lstm)
    many = batch(6, lengths=np.arange(19))
    for x in (many, batch(6, lengths=LENGTHS)):
        (h, _), y = f(x, w)
        states, results = by_loop(x, w)
        np.testing.assert_allclose(h, np.concatenate(states), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y.values, np.concatenate(results), rtol=1e-5, atol=1e-6)
    x, direction = batch(6, lengths=np.array([2, 5])), rng.normal(size=w.shape).astype(np.float32)
    gradient = dlc.jit(dlc.grad(lambda w: (lstm(x, w)[1].values ** 2).sum()))(w)
    losses = [sum(float((np.float64(y) ** 2).sum()) for y in by_loop(x, w + s * direction)[1]) for s in (0.01, -0.01)]
    np.testing.assert_allclose((gradient * direction).sum(), (losses[0] - losses[1]) / 0.02, rtol=1e-2)


def test_conversions() -> None:
    x = batch(2, 3)
    sequences = list(x)
    assert [s.shape for s in sequences] == [(n, 2, 3) for n in LENGTHS]
    assert len(x) == 5
    assert x.shape == (5, None, 2, 3)
    np.testing.assert_array_equal(ragged.of(sequences).values, x.values)
    np.testing.assert_array_equal(x[-2], sequences[3])

    @dlc.jit(dynamic={f"x.{name}": sizes for name, sizes in SYMBOLIC.items()})
    def f(x: ragged.Ragged) -> Any:
        padded = ragged.to_padded(x, fill=7)
        return padded, ragged.from_padded(padded, x.lengths), x[1]

    padded, unpadded, second = f(x)
    for rows, sequence in zip(padded, sequences, strict=True):
        np.testing.assert_array_equal(rows, np.concatenate([sequence, np.full((40 - len(sequence), 2, 3), 7)]))
    np.testing.assert_array_equal(unpadded.values, x.values)
    np.testing.assert_array_equal(second, sequences[1])
    np.testing.assert_array_equal(ragged.to_padded(x, 2)[1], sequences[1][:2])
    with pytest.raises(IndexError):
        x[5]


def test_nested_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = batch(3)
    nested = ragged.to_torch(x)
    for a, b in zip(nested.unbind(), x, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    back = ragged.from_torch(nested)
    np.testing.assert_array_equal(back.values, x.values)
    np.testing.assert_array_equal(back.lengths, LENGTHS)
    with pytest.raises(dlc.DTypeError, match=r"expected a nested tensor with layout torch.jagged"):
        ragged.from_torch(torch.ones(2))


def test_different_lengths() -> None:
    """The error names both batches: the arguments, or the lines that create them."""
    x, y = batch(3), batch(3, lengths=np.array([61]))
    with pytest.raises(
        dlc.ShapeError, match=r"test_ragged.py:\d+: .*different lengths: argument a_lengths and argument b_lengths"
    ):
        dlc.jit(lambda a, b: a + b)(x, y)
    with pytest.raises(
        dlc.ShapeError, match=r"one created at test_ragged.py:(\d+) and one created at test_ragged.py:(?!\1)\d+"
    ):
        ragged.map(lambda a, b: a, x, ragged.Ragged(x.values, LENGTHS[::-1].copy()))
    same = dlc.jit(lambda a, n: (a + ragged.Ragged(a.values, a.lengths)).values)(x, 0)
    np.testing.assert_array_equal(same, 2 * x.values)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ragged.Ragged(np.ones((3, 2)), np.array([2])), "lengths sum to 2, but there are 3 rows"),
        (lambda: ragged.Ragged(np.ones((3, 2)), np.array([4, -1])), "a length of -1"),
        (lambda: ragged.Ragged(np.ones((3, 2)), np.ones(3)), r"lengths of type float64\[3\]"),
        (
            lambda: ragged.of([np.ones((3, 2)), np.ones((2, 3))]),
            r"sequence 1 has shape \(2, 3\); expected rows of shape \(2,\)",
        ),
        (lambda: ragged.of([]), "no sequences"),
        (lambda: ragged.expand(np.ones((2, 3)), batch(3)), r"an array of shape \(2, 3\) for 5 sequences"),
        (lambda: ragged.map(lambda rows: rows[:1], batch(3)), "expected one row for each"),
        (lambda: ragged.attention(batch(3, 8), batch(2, 8), batch(2, 8)), r"rows of shapes \(3, 8\), \(2, 8\), \(2, 8\)"),
        (lambda: batch(3)[1:2], "expected an integer"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(dlc.DlcError, match=message):
        call()


def test_narrow_types() -> None:
    """Narrow lengths are no indices, sums of narrow elements have a wide type."""

    def cumulative(x: ragged.Ragged) -> Any:
        return ragged.scan(lambda s, row: (s + row, s + row), np.zeros((2, 1), np.float32), x)

    for dtype in (np.int8, np.uint8):
        (last, sums) = cumulative(ragged.Ragged(np.ones((103, 1), np.float32), np.array([3, 100], dtype)))
        np.testing.assert_array_equal(last, [[3], [100]])
        np.testing.assert_array_equal(sums.values[:, 0], [1, 2, 3, *range(1, 101)])
    x = ragged.Ragged(np.full((300, 1), 100, np.int8), np.array([299, 1]))
    np.testing.assert_array_equal(ragged.sum(x), [[29900], [100]])
    np.testing.assert_array_equal(ragged.mean(x), [[100], [100]])
    bools = ragged.Ragged(np.array([False, True, False]), np.array([2, 0, 1]))
    np.testing.assert_array_equal(ragged.max(bools), [True, False, False])
    ones = ragged.Ragged(np.ones((5000, 1), np.float16), np.array([5000]))
    assert float(ragged.sum(ones)[0, 0]) == 5000 and ragged.mean(ones).dtype == np.float16


def test_without_rows() -> None:
    x = ragged.Ragged(np.zeros((0, 2), np.float32), np.array([0, 0]))
    for result in (ragged.first(x), ragged.last(x), ragged.to_padded(x, 3)[:, 0]):
        np.testing.assert_array_equal(result, np.zeros((2, 2)))
    last, sums = ragged.scan(lambda s, row: (s + row, s), np.ones((2, 2), np.float32), x)
    np.testing.assert_array_equal(last, np.ones((2, 2)))
    assert sums.values.shape == (0, 2)
    empty = ragged.Ragged(np.zeros((0, 2), np.float32), np.zeros(0, np.int64))
    last, sums = dlc.jit(lambda x: ragged.scan(lambda s, row: (s + row, s), np.ones((0, 2), np.float32), x))(empty)
    assert last.shape == (0, 2) and sums.values.shape == (0, 2)
    heads = ragged.Ragged(np.zeros((0, 2, 4), np.float32), np.array([0]))
    assert ragged.attention(heads, heads, heads).values.shape == (0, 2, 4)


def test_rows_of_other_sequences() -> None:
    x = batch(2)
    for count in (4, 7, len(x.values)):
        with pytest.raises(dlc.ShapeError, match=rf"dlc.ragged.add: an array of shape \({count}, 2\) for 5 sequences"):
            x + np.ones((count, 2), np.float32)

"""Vector layers, and independent formulas of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dlc import nn

draw = np.random.default_rng(2)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


X, IMAGES = normal(3, 7), normal(2, 4, 3, 6)
SCALE, BIAS = normal(7), normal(7)
STATE, CELL = normal(3, 5), normal(3, 5)
QUERY, KEYS, VALUES = normal(2, 4, 8), normal(2, 6, 8), normal(2, 6, 5)
MASK = draw.random((2, 4, 6)) < 0.6
MASK[1, 2] = False
LABELS, ONES = np.array([3, 0, 6]), (draw.random((3, 7)) < 0.5).astype(np.float32)


def wide(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-wide(x)))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(wide(x)))


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(wide(x) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normalized(x: np.ndarray, axis: Any, epsilon: float = 1e-5) -> np.ndarray:
    d = wide(x) - wide(x).mean(axis, keepdims=True)
    return d / np.sqrt((d * d).mean(axis, keepdims=True) + epsilon)


def group_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    groups = [normalized(x[..., 2 * g : 2 * g + 2], (1, 2, 3)) for g in range(3)]
    return np.concatenate(groups, -1) * scale + bias


def batch_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> tuple:
    of_batch, spread = wide(x).mean((0, 1, 2)), wide(x).var((0, 1, 2))
    return normalized(x, (0, 1, 2)) * scale + bias, 0.9 * mean + 0.1 * of_batch, 0.9 * variance + 0.1 * spread


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    scores = wide(q) @ wide(k).swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True)) * (1 if mask is None else mask)
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0) @ v


def lstm(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray) -> tuple:
    i, f, g, o = np.split(wide(x) @ w + wide(h) @ u + b, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru(x: np.ndarray, h: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray, d: np.ndarray) -> np.ndarray:
    new, old = np.split(wide(x) @ w + b, 3, -1), np.split(wide(h) @ u + d, 3, -1)
    r, z = sigmoid(new[0] + old[0]), sigmoid(new[1] + old[1])
    return (1 - z) * np.tanh(new[2] + r * old[2]) + z * h


def causal(rows: int, columns: int) -> np.ndarray:
    return np.arange(columns) <= np.arange(rows)[:, None] + columns - rows


Case = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, list[Case]] = {
    "relu": [(nn.relu, lambda x: np.maximum(x, 0), (X,)), (nn.relu, lambda x: np.maximum(x, 0), (np.array([-3, 4]),))],
    "leaky_relu": [(nn.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x), (X,))],
    "elu": [(lambda x: nn.elu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)), (X,))],
    "celu": [(lambda x: nn.celu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x / 0.5)), (X,))],
    "relu6": [
        (nn.relu6, lambda x: np.clip(x, 0, 6), (9 * X,)),
        (nn.relu6, lambda x: np.clip(x, 0, 6), (np.array([-3, 4, 9]),)),
    ],
    "hard_tanh": [(nn.hard_tanh, lambda x: np.clip(x, -1, 1), (X,))],
    "squareplus": [(nn.squareplus, lambda x: (x + np.sqrt(x**2 + 4)) / 2, (X,))],
    "glu": [
        (lambda x: nn.glu(x, 0), lambda x: x[: len(x) // 2] * sigmoid(x[len(x) // 2 :]), (X[: len(X) // 2 * 2],)),
        (nn.glu, lambda x: x[..., :3] * sigmoid(x[..., 3:]), (X[..., :6],)),
    ],
    "log_sigmoid": [(nn.log_sigmoid, lambda x: -softplus(-x), (20 * X,))],
    "one_hot": [
        (
            lambda x: nn.one_hot(x, 3, dtype=np.int64),
            lambda x: np.int64(x[..., None] == np.arange(3)),
            (np.array([[2, 0, -1], [1, 3, 1]]),),
        ),
        (
            lambda x: nn.one_hot(x, 300, dtype=np.uint8, axis=0),
            lambda x: np.uint8(x == np.arange(300)[:, None]),
            (np.array([2, 255], np.uint8),),
        ),
    ],
    "selu": [(nn.selu, lambda x: 1.0507010 * np.where(x > 0, x, 1.6732632 * np.expm1(x)), (X,))],
    "softplus": [(nn.softplus, softplus, (20 * X,))],
    "softsign": [(nn.softsign, lambda x: x / (1 + abs(x)), (X,))],
    "mish": [(nn.mish, lambda x: x * np.tanh(softplus(x)), (X,))],
    "hard_sigmoid": [(nn.hard_sigmoid, lambda x: np.clip((x + 3) / 6, 0, 1), (3 * X,))],
    "hard_swish": [(nn.hard_swish, lambda x: x * np.clip((x + 3) / 6, 0, 1), (3 * X,))],
    "sigmoid": [(nn.sigmoid, sigmoid, (20 * X,))],
    "silu": [(nn.silu, lambda x: x * sigmoid(x), (X,))],
    "gelu": [
        (nn.gelu, lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))), (2 * X,)),
        (
            lambda x: nn.gelu(x, approximate=True),
            lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
            (X,),
        ),
    ],
    "softmax": [(nn.softmax, softmax, (50 * X,)), (lambda x: nn.softmax(x, axis=0), lambda x: softmax(x, 0), (X,))],
    "log_softmax": [(nn.log_softmax, lambda x: np.log(softmax(x)), (X,))],
    "layer_norm": [(nn.layer_norm, lambda x, s, b: normalized(x, -1) * s + b, (X, SCALE, BIAS))],
    "rms_norm": [(nn.rms_norm, lambda x, s: x / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-6) * s, (X, SCALE))],
    "group_norm": [(lambda *a: nn.group_norm(*a, 3), group_norm, (x, normal(6), normal(6))) for x in (IMAGES, IMAGES[:0])],
    "batch_norm": [
        (lambda *a: nn.batch_norm(*a, training=True), batch_norm, (IMAGES, *(normal(6) for _ in range(4)))),
        (
            lambda *a: nn.batch_norm(*a, training=False),
            lambda x, s, b, m, v: ((x - m) / np.sqrt(v + 1e-5) * s + b, m, v),
            (IMAGES, normal(6), normal(6), normal(6), abs(normal(6))),
        ),
    ],
    "dense": [
        (nn.dense, lambda x, w: x @ w, (X, normal(7, 4))),
        (nn.dense, lambda x, w, b: x @ w + b, (X, normal(7, 4), normal(4))),
    ],
    "embedding": [(nn.embedding, lambda t, i: t[i], (X, np.array([[2, 0], [1, 1]])))],
    "attention": [
        (nn.attention, attention, (QUERY, KEYS, VALUES)),
        (lambda q, k, v: nn.attention(q, k, v, causal=True), lambda *a: attention(*a, causal(4, 6)), (QUERY, KEYS, VALUES)),
        (lambda q, k, v, m: nn.attention(q, k, v, mask=m), attention, (QUERY, KEYS, VALUES, MASK)),
        (
            lambda q, k, v, m: nn.attention(q, k, v, mask=m, causal=True),
            lambda q, k, v, m: attention(q, k, v, m & causal(4, 6)),
            (QUERY, KEYS, VALUES, MASK),
        ),
        # More queries than keys: the first ones are fully masked.
        (lambda q, k, v: nn.attention(q, k, v, causal=True), lambda *a: attention(*a, causal(6, 4)), (KEYS, QUERY, QUERY)),
        (lambda q, k, v: nn.attention(q, k, v, scale=0.0), lambda q, k, v: attention(0 * q, k, v), (QUERY, KEYS, VALUES)),
    ],
    "lstm_cell": [
        (lambda x, h, c, *w: nn.lstm_cell(x, (h, c), *w), lstm, (X, STATE, CELL, normal(7, 20), normal(5, 20), normal(20)))
    ],
    "gru_cell": [(nn.gru_cell, gru, (X, STATE, normal(7, 15), normal(5, 15), normal(15), normal(15)))],
    "softmax_cross_entropy": [
        (nn.softmax_cross_entropy, lambda x, k: -np.log(softmax(x))[np.arange(3), k], (5 * X, LABELS)),
    ],
    "sigmoid_cross_entropy": [
        (nn.sigmoid_cross_entropy, lambda x, y: -y * np.log(sigmoid(x)) - (1 - y) * np.log(sigmoid(-x)), (5 * X, ONES)),
    ],
    "mse": [(nn.mse, lambda a, b: np.mean((wide(a) - b) ** 2), (X, ONES))],
    "huber": [
        (
            lambda a, b: nn.huber(a, b, 0.5),
            lambda a, b: np.where(abs(a - b) < 0.5, (a - b) ** 2 / 2, 0.5 * (abs(a - b) - 0.25)),
            (X, ONES),
        )
    ],
}

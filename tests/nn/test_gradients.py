"""Derivatives of layers in delicate cases, and a training run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dlc
from dlc import nn, optim
from dlc.frontend.pytree import flatten, unflatten
from tests.differences import wrong_derivative
from tests.nn.test_layers import CASES
from tests.nn.vector_layers import KEYS, LABELS, MASK, QUERY, VALUES, X, softmax


def test_fully_masked_row_has_finite_gradients() -> None:
    def total(q: Any, k: Any, v: Any) -> Any:
        return (nn.attention(q, k, v, mask=MASK) ** 2).sum()

    grads = [np.asarray(g) for g in dlc.jit(lambda *a: dlc.grad(total, argnums=(0, 1, 2))(*a))(QUERY, KEYS, VALUES)]
    assert all(np.isfinite(g).all() for g in grads)
    assert not grads[0][1, 2].any()
    assert grads[0][1, 1].any()


def test_cross_entropy() -> None:
    grad = dlc.jit(dlc.grad(lambda x: nn.softmax_cross_entropy(x, LABELS).sum()))(X)
    np.testing.assert_allclose(grad, softmax(X) - np.eye(7)[LABELS], atol=1e-6)


def test_dropout_drops_the_same_gradients() -> None:
    key, x = dlc.random.key(0), np.ones((20, 20), np.float32)
    y, grad = dlc.jit(lambda x: (nn.dropout(key, x, 0.5), dlc.grad(lambda x: nn.dropout(key, x, 0.5, reuse=True).sum())(x)))(x)
    np.testing.assert_array_equal(y, grad)


def test_gradients_of_truncated_normal_bounds() -> None:
    # d erfinv(u) / du = √π/2 · exp(erfinv(u)²)
    key = dlc.random.key(0)
    value, slope = dlc.jit(dlc.value_and_grad(lambda low: dlc.random.truncated_normal(key, low, 3.0)))(np.float32(-1))
    step = 1e-2
    above, below = (float(dlc.random.truncated_normal(key, -1 + d, 3.0)) for d in (step, -step))
    assert math.isclose(slope, (above - below) / (2 * step), rel_tol=1e-2)
    assert -1 < value < 3


def test_a_network_learns() -> None:
    keys = dlc.random.Stream(0)
    x = dlc.random.normal(next(keys), (64, 4))
    y = (x[:, 0] * x[:, 1] > 0).astype(np.float32)
    params = {"w": nn.init.he(next(keys), (4, 32)), "b": np.zeros(32, np.float32), "out": nn.init.lecun(next(keys), (32, 1))}
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(0.02, weight_decay=0.0))

    def loss_of(params: Any) -> Any:
        logits = nn.dense(nn.relu(nn.dense(x, params["w"], params["b"])), params["out"])[:, 0]
        return nn.sigmoid_cross_entropy(logits, y).mean()

    @dlc.jit
    def step(params: Any, state: Any) -> Any:
        loss, grads = dlc.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss

    state, losses = optimizer.init(params), []
    for _ in range(150):
        params, state, loss = step(params, state)
        losses.append(float(loss))
    assert losses[0] > 0.5
    assert losses[-1] < 0.1


# A one-hot encoding has no derivative.
@pytest.mark.parametrize("name", [name for name in CASES if name != "one_hot"])
def test_layers_against_differences(name: str) -> None:
    function, _, arguments = CASES[name][0]
    leaves, tree = flatten(arguments)
    places = [i for i, x in enumerate(leaves) if getattr(x, "dtype", None) == np.float32]

    def run(*moved: Any) -> list[Any]:
        given = {**dict(enumerate(leaves)), **dict(zip(places, moved, strict=True))}
        return dlc.tree.leaves(function(*unflatten(tree, iter(given[i] for i in range(len(leaves))))))

    assert wrong_derivative(run, [np.asarray(leaves[i], np.float64) for i in places]) is None

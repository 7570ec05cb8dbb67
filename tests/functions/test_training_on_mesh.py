"""Training on a mesh: the losses of 20 steps equal those of one process. Ranks are threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import P, nn, optim
from dlc.runtime.collectives.threads import run_ranks
from dlc.testing.sample import F32, values

STEPS = 20


def transformer(params: Any, x: Any) -> Any:
    """Return the loss of next tokens of one causal block, with tied embeddings."""
    tokens = x[:, :-1]
    h = nn.embedding(params["table"], tokens)
    n = nn.layer_norm(h, params["gain"], params["bias"])
    q, k, v = (dnp.einsum("btd,dhk->bhtk", n, params[w]) for w in "qkv")
    scores = dnp.einsum("bhtk,bhsk->bhts", q, k)
    weights = nn.softmax(dnp.where(dnp.tril(dnp.ones(scores.shape[-2:], bool)), scores, -1e9))
    h = h + dnp.einsum("bhtk,hkd->btd", dnp.einsum("bhts,bhsk->bhtk", weights, v), params["o"])
    h = h + nn.gelu(h @ params["up"]) @ params["down"]
    return nn.softmax_cross_entropy(h @ params["table"].T, x[:, 1:]).mean()


def recurrent(params: Any, x: Any) -> Any:
    """Return the loss of an LSTM that predicts the sum of its sequence."""

    def cell(state: Any, x_t: Any) -> Any:
        h, c = state
        i, f, g, o = dnp.split(x_t @ params["w"] + h @ params["u"] + params["b"], 4, axis=-1)
        c = nn.sigmoid(f + 1) * c + nn.sigmoid(i) * dnp.tanh(g)
        return (nn.sigmoid(o) * dnp.tanh(c), c), None

    zeros = dnp.zeros((x.shape[0], 8), np.float32)
    (h, _), _ = dlc.lax.scan(cell, (zeros, zeros), dnp.moveaxis(x, 1, 0))
    return dnp.mean((h @ params["out"] - dnp.sum(x, axis=1)) ** 2)


def residual(params: Any, x: Any) -> Any:
    """Return the loss of a residual network of convolutions whose normalization reads the whole batch."""
    h = x
    for w, gain in params["blocks"]:
        y = nn.conv(h, w, padding="same")
        mean, variance = dnp.mean(y, (0, 1, 2)), dnp.var(y, (0, 1, 2))
        h = h + nn.relu((y - mean) / dnp.sqrt(variance + 1e-5) * gain)
    return dnp.mean((dnp.mean(h, (1, 2)) @ params["out"] - dnp.sin(x[:, 0, 0])) ** 2)


def normal(*shape: int, seed: int) -> Any:
    return values(F32, *shape, seed=seed, scale=0.3)


IDS = np.random.default_rng(0).integers(0, 16, (4, 9)).astype(np.int32)
# Loss, parameters, batch, and the shardings of the parameters on a mesh with the axes `data` and `model`.
MODELS: dict[str, tuple[Callable[..., Any], Any, Any, Any]] = {
    "transformer": (
        transformer,
        {
            "table": normal(16, 8, seed=1), "gain": np.ones(8, F32), "bias": np.zeros(8, F32),
            **{w: normal(8, 2, 4, seed=k) for k, w in enumerate("qkv")}, "o": normal(2, 4, 8, seed=4),
            "up": normal(8, 16, seed=5), "down": normal(16, 8, seed=6),
        },
        IDS,
        {
            "table": P("model"), "gain": P(), "bias": P(), **dict.fromkeys("qkv", P(None, "model")), "o": P("model"),
            "up": P(None, "model"), "down": P("model"),
        },
    ),
    "recurrent": (
        recurrent,
        {"w": normal(4, 32, seed=1), "u": normal(8, 32, seed=2), "b": np.zeros(32, F32), "out": normal(8, 4, seed=3)},
        values(F32, 4, 5, 4),
        {"w": P(), "u": P(), "b": P("data"), "out": P("data")},
    ),
    "residual": (
        residual,
        {"blocks": [(normal(3, 3, 4, 4, seed=k), np.ones(4, F32)) for k in range(2)], "out": normal(4, 4, seed=3)},
        values(F32, 4, 6, 6, 4),
        {"blocks": P(), "out": P()},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_losses_of_20_steps(name: str) -> None:
    loss, params, batch, specs = MODELS[name]
    optimizer = optim.adam(0.02)

    def step(params: Any, state: Any, batch: Any) -> Any:
        value, gradients = dlc.value_and_grad(loss)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return value, optim.apply_updates(params, updates), state

    def train(compiled: Callable[..., Any]) -> list[float]:
        current, state, losses = params, optimizer.init(params), []
        for _ in range(STEPS):
            value, current, state = compiled(current, state, batch)
            losses.append(float(value))
        return losses

    mesh = dlc.make_mesh({"data": 2, "model": 2 if name == "transformer" else 1})
    on_mesh = dlc.jit(mesh=mesh, in_shardings=(specs, None, P("data")), out_shardings=(P(), specs, None), num_threads=1)(step)
    expected = train(dlc.jit(num_threads=1)(step))
    assert expected[-1] < 0.9 * expected[0]
    for losses in run_ranks(mesh, lambda rank: train(on_mesh), timeout_seconds=300):
        np.testing.assert_allclose(losses, expected, rtol=2e-4)

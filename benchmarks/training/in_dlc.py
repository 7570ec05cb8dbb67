"""Training step in dlc."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import nn
from training.models import Model

relu, gelu, embedding = nn.relu, nn.gelu, nn.embedding


def dense(x: Any, p: Any) -> Any:
    return nn.dense(x, p["w"], p["b"])


def conv(x: Any, p: Any, stride: int) -> Any:
    return nn.conv(x, p["w"], p["b"], strides=stride, padding="same")


def max_pool(x: Any) -> Any:
    return nn.max_pool(x, 2)


def flatten(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def spatial_mean(x: Any) -> Any:
    return x.mean((1, 2))


def layer_norm(x: Any, p: Any) -> Any:
    return nn.layer_norm(x, p["scale"], p["bias"])


def batch_norm(x: Any, p: Any) -> Any:
    return nn.batch_norm(x, p["scale"], p["bias"], p["bias"], p["scale"], training=True)[0]


def attention(q: Any, k: Any, v: Any) -> Any:
    return nn.attention(q, k, v, causal=True)


def split(x: Any, parts: int) -> Any:
    return dnp.split(x, parts, axis=-1)


def swap(x: Any, a: int, b: int) -> Any:
    return dnp.swapaxes(x, a, b)


def lstm(x: Any, p: Any, units: int) -> Any:
    zeros = np.zeros((x.shape[1], units), np.float32)
    # Multiply x of all steps by the weights in one product.
    xs = dnp.matmul(x, p["w"]) + p["b"]

    def step(state: Any, x: Any) -> Any:
        i, f, g, o = split(x + state[0] @ p["u"], 4)
        c = nn.sigmoid(f) * state[1] + nn.sigmoid(i) * dnp.tanh(g)
        return (nn.sigmoid(o) * dnp.tanh(c), c), None

    return dlc.lax.scan(step, (zeros, zeros), xs)[0][0]


def training(
    model: Model, parameters: Any, x: np.ndarray, labels: np.ndarray, *, threads: int, **placement: Any
) -> Callable[[], float]:
    """Return a function that runs one step and returns the loss before it; `placement` are options of dlc.jit for a mesh."""
    from training import in_dlc as functions

    def loss_of(params: Any, x: Any, labels: Any) -> Any:
        return nn.softmax_cross_entropy(model.apply(functions, params, x), labels).mean()

    optimizer = dlc.optim.adamw(1e-3, weight_decay=0.01)

    @dlc.jit(num_threads=threads, cache=False, donate_argnames=("params", "state"), **placement)
    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        loss, grads = dlc.value_and_grad(loss_of)(params, x, labels)
        updates, state = optimizer.update(grads, state, params)
        return dlc.optim.apply_updates(params, updates), state, loss

    params, state = parameters, optimizer.init(parameters)

    def run() -> float:
        nonlocal params, state
        params, state, loss = step(params, state, x, labels)
        return float(loss)

    return run

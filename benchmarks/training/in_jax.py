"""Training step in JAX with optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from training.models import Model

relu = jax.nn.relu


def dense(x: Any, p: Any) -> Any:
    return x @ p["w"] + p["b"]


def conv(x: Any, p: Any, stride: int) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, p["w"], (stride, stride), "SAME", dimension_numbers=dims) + p["b"]


def max_pool(x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def flatten(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def spatial_mean(x: Any) -> Any:
    return x.mean((1, 2))


def gelu(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=False)


def embedding(table: Any, indices: Any) -> Any:
    return table[indices]


def _normalized(x: Any, axes: Any, p: Any) -> Any:
    centred = x - x.mean(axes, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(axes, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def layer_norm(x: Any, p: Any) -> Any:
    return _normalized(x, -1, p)


def batch_norm(x: Any, p: Any) -> Any:
    return _normalized(x, (0, 1, 2), p)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    return jax.nn.softmax(jnp.where(np.tri(q.shape[-2], dtype=bool), scores, -jnp.inf)) @ v


def split(x: Any, parts: int) -> Any:
    return jnp.split(x, parts, axis=-1)


def swap(x: Any, a: int, b: int) -> Any:
    return jnp.swapaxes(x, a, b)


def lstm(x: Any, p: Any, units: int) -> Any:
    zeros = jnp.zeros((x.shape[1], units))
    xs = x @ p["w"] + p["b"]

    def step(state: Any, x: Any) -> Any:
        i, f, g, o = split(x + state[0] @ p["u"], 4)
        c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    return jax.lax.scan(step, (zeros, zeros), xs)[0][0]


def training(model: Model, parameters: Any, x: np.ndarray, labels: np.ndarray, *, threads: int) -> Callable[[], float]:
    """Return a function that runs one step and returns the loss before it.

    The number of threads is that of the processors that the process may use.
    """
    from training import in_jax as functions

    def loss_of(params: Any, x: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(functions, params, x), labels).mean()

    optimizer = optax.adamw(1e-3, weight_decay=0.01)

    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x, labels)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    compiled = jax.jit(step, donate_argnums=(0, 1))
    params = jax.tree.map(jnp.array, parameters)
    state = optimizer.init(params)
    x, labels = jnp.asarray(x), jnp.asarray(labels)

    def run() -> float:
        nonlocal params, state
        params, state, loss = compiled(params, state, x, labels)
        return float(jax.block_until_ready((loss, params))[0])

    return run

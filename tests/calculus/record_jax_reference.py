"""Record results of JAX for the models, in float64: `python -m tests.calculus.record_jax_reference`, where it is installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.calculus.jax_reference import RECORDED, leaves
from tests.calculus.models import MODELS

jax.config.update("jax_enable_x64", True)


def conv(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def batch_norm(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, training: bool) -> Any:
    assert training
    of_batch, spread = x.mean((0, 1, 2)), x.var((0, 1, 2))
    y = (x - of_batch) / jnp.sqrt(spread + 1e-5) * scale + bias
    return y, 0.9 * mean + 0.1 * of_batch, 0.9 * variance + 0.1 * spread


def max_pool(x: Any, size: int) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, size, size, 1), "VALID")


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias


def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = jnp.where(mask, q @ jnp.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -1e30)
    return jnp.where(mask, jax.nn.softmax(scores), 0) @ v


def dropout(key: Any, x: Any, rate: float) -> Any:
    kept = jax.random.bernoulli(jax.random.wrap_key_data(key), np.float32(1 - rate), x.shape)
    return jnp.where(kept, x / (1 - rate), 0)


def softmax_cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]


def lstm_cell(x: Any, state: Any, w: Any, u: Any, b: Any) -> Any:
    h, c = state
    i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def hvp(fun: Any, primals: Any, tangents: Any) -> Any:
    return jax.jvp(jax.grad(fun), primals, tangents)[1]


NN = SimpleNamespace(
    attention=attention,
    batch_norm=batch_norm,
    conv=conv,
    dropout=dropout,
    embedding=lambda table, indices: table[indices],
    gelu=lambda x: jax.nn.gelu(x, approximate=False),
    layer_norm=layer_norm,
    lstm_cell=lstm_cell,
    max_pool=max_pool,
    softmax_cross_entropy=softmax_cross_entropy,
)
JAX = SimpleNamespace(
    np=jnp,
    lax=jax.lax,
    nn=NN,
    hvp=hvp,
    **{
        name: getattr(jax, name)
        for name in ("checkpoint", "custom_vjp", "grad", "hessian", "jacfwd", "jacrev", "value_and_grad", "vmap")
    },
)

if __name__ == "__main__":
    recorded: dict[str, np.ndarray] = {}
    for name, model in MODELS.items():
        function, arguments = model(JAX)
        recorded |= {f"{name}{path}": np.asarray(value) for path, value in leaves(function(*arguments)).items()}
    np.savez_compressed(RECORDED, **recorded)
    print(len(recorded), "arrays,", RECORDED.stat().st_size, "bytes")

"""Derivatives of models, written over a namespace of either dlc or JAX.

`m.np` has array functions, `m.lax` loops and conditionals, `m.nn` layers, and `m` itself derivatives and `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

# A function that computes derivatives, and its arguments.
Model: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"
KEY = np.array([0, 7], np.uint32)


def numbers(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape) * scale


def labels(seed: int, count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, count, shape)


def mlp(m: Any) -> Model:
    """The loss of a perceptron and its gradient."""
    params = {"first": (numbers(1, 5, 7), numbers(2, 7)), "last": (numbers(3, 7, 4), numbers(4, 4))}

    def loss(params: Any, x: Any) -> Any:
        (w, b), (v, c) = params["first"], params["last"]
        return m.np.mean(m.nn.softmax_cross_entropy(m.np.maximum(x @ w + b, 0) @ v + c, labels(5, 4, 6)))

    return m.value_and_grad(loss), (params, numbers(6, 6, 5))


def cnn(m: Any) -> Model:
    """Convolution, batch normalization with updated statistics, and pooling."""
    params = {"w": numbers(1, 3, 3, 2, 4), "scale": numbers(2, 4), "bias": numbers(3, 4), "out": numbers(4, 36, 3)}

    def loss(params: Any, x: Any) -> Any:
        x, old = m.nn.conv(x, params["w"]), m.np.zeros_like(params["scale"])
        x, mean, variance = m.nn.batch_norm(x, params["scale"], params["bias"], old, 1 + old, training=True)
        x = m.nn.max_pool(m.np.maximum(x, 0), 2)
        logits = m.np.reshape(x, (2, 36)) @ params["out"]
        return m.np.mean(m.nn.softmax_cross_entropy(logits, labels(5, 3, 2))), (mean, variance)

    return m.value_and_grad(loss, (0, 1), has_aux=True), (params, numbers(6, 2, 8, 8, 2))


def lstm(m: Any) -> Model:
    """A recurrence over a sequence."""
    params = {"w": numbers(1, 3, 20), "u": numbers(2, 5, 20), "b": numbers(3, 20)}

    def loss(params: Any, x: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            state = m.nn.lstm_cell(x, state, params["w"], params["u"], params["b"])
            return state, state[0]

        zeros = m.np.zeros((2, 5), x.dtype)
        _, hidden = m.lax.scan(step, (zeros, zeros), x)
        return m.np.mean(hidden**2)

    return m.value_and_grad(loss, (0, 1)), (params, numbers(4, 6, 2, 3))


def gpt(m: Any) -> Model:
    """A transformer block with dropout."""
    shapes = {"qkv": (8, 24), "proj": (8, 8), "up": (8, 16), "down": (16, 8), "table": (11, 8)}
    params: dict[str, Any] = {name: numbers(k, *shape, scale=0.5) for k, (name, shape) in enumerate(shapes.items())}
    params |= {"norms": [(1 + numbers(k, 8, scale=0.1), numbers(k + 2, 8, scale=0.1)) for k in (7, 8)]}
    tokens = labels(9, 11, 2, 6)

    def loss(params: Any) -> Any:
        x = m.nn.dropout(KEY, m.nn.embedding(params["table"], tokens[:, :-1]), 0.25)
        (s1, b1), (s2, b2) = params["norms"]
        parts = m.np.split(m.nn.layer_norm(x, s1, b1) @ params["qkv"], 3, axis=-1)
        q, k, v = (m.np.swapaxes(m.np.reshape(p, (2, 5, 2, 4)), 1, 2) for p in parts)
        heads = m.np.swapaxes(m.nn.attention(q, k, v, np.tri(5, dtype=bool)), 1, 2)
        x = x + m.np.reshape(heads, (2, 5, 8)) @ params["proj"]
        x = x + m.nn.gelu(m.nn.layer_norm(x, s2, b2) @ params["up"]) @ params["down"]
        return m.np.mean(m.nn.softmax_cross_entropy(x @ params["table"].T, tokens[:, 1:]))

    return m.value_and_grad(loss), (params,)


def masked_attention(m: Any) -> Model:
    """A query that may be fully masked."""
    mask = np.array([[True, True, False], [False, False, False], [True, True, True]])
    arguments = [numbers(k, 2, 3, 4) for k in range(3)]
    return m.grad(lambda q, k, v: m.np.sum(m.nn.attention(q, k, v, mask) ** 3), (0, 1, 2)), tuple(arguments)


def implicit_layer(m: Any) -> Model:
    """The fixed point x = tanh(w·x + u), whose cotangent is the solution of a linear system; both by iteration."""

    def settled(step: Any, start: Any) -> Any:
        return m.lax.fori_loop(0, 60, lambda _, x: step(x), start)

    @m.custom_vjp
    def equilibrium(w: Any, u: Any) -> Any:
        return settled(lambda x: m.np.tanh(w @ x + u), 0 * u)

    def forward(w: Any, u: Any) -> Any:
        x = equilibrium(w, u)
        return x, (w, x)

    def backward(kept: Any, ct: Any) -> Any:
        w, x = kept
        slope = 1 - x**2
        y = slope * settled(lambda y: ct + w.T @ (slope * y), ct)
        return y[:, None] * x, y

    equilibrium.defvjp(forward, backward)
    w, u = numbers(1, 4, 4, scale=0.2), numbers(2, 4)
    return m.grad(lambda w, u: m.np.sum(equilibrium(w, u) ** 2), (0, 1)), (w, u)


def per_sample(m: Any) -> Model:
    """The gradient of each example."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        return m.np.sum((m.np.tanh(x @ w) - y) ** 2)

    x, y = numbers(2, 5, 3), numbers(3, 5, 4)
    return m.vmap(m.grad(loss), (None, 0, 0)), (numbers(1, 3, 4), x, y)


def branches(m: Any) -> Model:
    """A conditional, with either outcome."""

    def f(x: Any, w: Any) -> Any:
        return m.lax.cond(m.np.sum(x) > 0, lambda: m.np.sum(m.np.sin(x) * w), lambda: m.np.sum(x * x / w))

    x, w = numbers(1, 4), 1.5 + np.arange(4.0)
    return (lambda x, w: [m.grad(f, (0, 1))(sign * m.np.abs(x), w) for sign in (1.0, -1.0)]), (x, w)


def kept_and_again(m: Any) -> Model:
    """A checkpointed part, which reverse mode recomputes."""

    def f(x: Any, w: Any) -> Any:
        return m.np.sum(m.checkpoint(lambda x: m.np.sin(m.np.tanh(x @ w) @ w.T))(x) ** 2)

    return m.grad(f, (0, 1)), (numbers(1, 3, 4), numbers(2, 4, 5))


def _curve(m: Any) -> Callable[[Any], Any]:
    return lambda p: m.np.sum(m.np.log(1 + m.np.exp(p["a"] @ p["b"]))) * m.np.prod(p["b"])


_POINT = {"b": numbers(2, 3), "a": numbers(1, 4, 3)}


def hessian(m: Any) -> Model:
    return m.hessian(_curve(m)), (_POINT,)


def hvp(m: Any) -> Model:
    return (lambda p, t: m.hvp(_curve(m), (p,), (t,))), (_POINT, {"a": numbers(3, 4, 3), "b": numbers(4, 3)})


def jacobians(m: Any) -> Model:
    """Forward and reverse mode, for two arguments and two results."""

    def f(x: Any, y: Any) -> Any:
        return {"cumsum": m.np.cumsum(x * m.np.sum(y)), "outer": m.np.sin(x)[:, None] * y}

    x, y = numbers(1, 3), numbers(2, 2)
    return (lambda x, y: (m.jacfwd(f, (0, 1))(x, y), m.jacrev(f, (0, 1))(x, y))), (x, y)


def linear_algebra(m: Any) -> Model:
    """Linear systems, determinants and decompositions."""
    a, b = numbers(1, 4, 4) + 3 * np.eye(4), numbers(2, 4, 2)

    def f(a: Any, b: Any) -> Any:
        linalg = m.np.linalg
        lower = linalg.cholesky(a @ a.T + m.np.eye(4, dtype=a.dtype))
        parts = (linalg.solve(a, b), linalg.inv(a), linalg.det(a), linalg.slogdet(a)[1], lower, linalg.norm(a))
        return sum(m.np.sum(m.np.sin(p)) for p in parts)

    return m.value_and_grad(f, (0, 1)), (a, b)


MODELS: dict[str, Callable[[Any], Model]] = {
    f.__name__: f
    for f in (
        mlp, cnn, lstm, gpt, masked_attention, implicit_layer, per_sample, branches, kept_and_again, hessian, hvp, jacobians,
        linear_algebra,
    )
}  # fmt: skip

"""Training step in PyTorch, eager or compiled; images are channels-first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from training.models import Model

relu, gelu = F.relu, F.gelu


def dense(x: Any, p: Any) -> Any:
    return torch.addmm(p["b"], x, p["w"]) if x.ndim == 2 else F.linear(x, p["w"].T, p["b"])


def conv(x: Any, p: Any, stride: int) -> Any:
    size = p["w"].shape[-1]
    if stride == 1:
        return F.conv2d(x, p["w"], p["b"], padding=size // 2)
    # "same" padding as in the other libraries: an odd element is added at the end.
    return F.conv2d(F.pad(x, (0, size // 2, 0, size // 2)), p["w"], p["b"], stride=stride)


def max_pool(x: Any) -> Any:
    return F.max_pool2d(x, 2)


def flatten(x: Any) -> Any:
    # Flatten in channels-last order, as the other libraries do, to match the weights of the next layer.
    return x.permute(0, 2, 3, 1).flatten(1)


def spatial_mean(x: Any) -> Any:
    return x.mean((2, 3))


def embedding(table: Any, indices: Any) -> Any:
    return F.embedding(indices, table)


def layer_norm(x: Any, p: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], p["scale"], p["bias"])


def batch_norm(x: Any, p: Any) -> Any:
    return F.batch_norm(x, None, None, p["scale"], p["bias"], training=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def split(x: Any, parts: int) -> Any:
    return x.chunk(parts, -1)


def swap(x: Any, a: int, b: int) -> Any:
    return x.transpose(a, b)


def lstm(x: Any, p: Any, units: int) -> Any:
    zeros = torch.zeros(1, x.shape[1], units)
    weights = [p["w"].T, p["u"].T, p["b"], torch.zeros_like(p["b"])]
    return torch.lstm(x, (zeros, zeros), weights, True, 1, 0.0, True, False, False)[1][0]


def _to_torch(value: Any) -> Any:
    """Convert parameters to PyTorch's layout: convolution weights are [O, I, K, K]."""
    if isinstance(value, dict):
        return {k: _to_torch(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_to_torch(v) for v in value]
    array = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value
    return torch.tensor(np.ascontiguousarray(array), requires_grad=True)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        return [leaf for v in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(v)]
    return [value]


def training(
    model: Model, parameters: Any, x: np.ndarray, labels: np.ndarray, *, threads: int, compiled: bool = False
) -> Callable[[], float]:
    """Return a function that runs one step and returns the loss before it."""
    from training import in_torch as functions

    torch.set_num_threads(threads)
    params = _to_torch(parameters)
    optimizer = torch.optim.AdamW(_leaves(params), lr=1e-3, weight_decay=0.01, fused=True)
    data = torch.tensor(x.transpose(0, 3, 1, 2).copy() if x.ndim == 4 else x)
    targets = torch.tensor(labels).long()

    def loss_of(data: Any, targets: Any) -> Any:
        logits = model.apply(functions, params, data)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    loss_of = torch.compile(loss_of) if compiled else loss_of

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(data, targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    return run

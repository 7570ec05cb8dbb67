"""The models whose training steps are measured; `f` is a module with the functions of a library, `p` the parameters.

Parameters are NumPy arrays: weights are [inputs, outputs], images are channels-last. A library with other layouts converts
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_WIDTH, _HEADS, _BLOCKS, _TOKENS, _VOCABULARY = 128, 4, 4, 128, 256
_UNITS, _STEPS = 256, 100


class Draw:
    """Generator of random parameters."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def weight(self, *shape: int) -> np.ndarray:
        return (self.rng.standard_normal(shape) / np.prod(shape[:-1]) ** 0.5).astype(np.float32)

    def dense(self, inputs: int, outputs: int) -> dict[str, np.ndarray]:
        return {"w": self.weight(inputs, outputs), "b": np.zeros(outputs, np.float32)}

    def conv(self, size: int, inputs: int, outputs: int) -> dict[str, np.ndarray]:
        return {"w": self.weight(size, size, inputs, outputs), "b": np.zeros(outputs, np.float32)}

    def norm(self, channels: int) -> dict[str, np.ndarray]:
        return {"scale": np.ones(channels, np.float32), "bias": np.zeros(channels, np.float32)}


def mlp_parameters(draw: Draw) -> Any:
    return [draw.dense(784, 512), draw.dense(512, 512), draw.dense(512, 10)]


def mlp(f: Any, p: Any, x: Any) -> Any:
    for layer in p[:-1]:
        x = f.relu(f.dense(x, layer))
    return f.dense(x, p[-1])


def cnn_parameters(draw: Draw) -> Any:
    return {"convs": [draw.conv(3, 1, 32), draw.conv(3, 32, 64)], "dense": [draw.dense(7 * 7 * 64, 128), draw.dense(128, 10)]}


def cnn(f: Any, p: Any, x: Any) -> Any:
    for layer in p["convs"]:
        x = f.max_pool(f.relu(f.conv(x, layer, 1)))
    return f.dense(f.relu(f.dense(f.flatten(x), p["dense"][0])), p["dense"][1])


def gpt_parameters(draw: Draw) -> Any:
    def block() -> Any:
        attention = {"qkv": draw.dense(_WIDTH, 3 * _WIDTH), "out": draw.dense(_WIDTH, _WIDTH)}
        mlp = {"up": draw.dense(_WIDTH, 4 * _WIDTH), "down": draw.dense(4 * _WIDTH, _WIDTH)}
        return {**attention, **mlp, "attention_norm": draw.norm(_WIDTH), "mlp_norm": draw.norm(_WIDTH)}

    tables = {"tokens": draw.weight(_VOCABULARY, _WIDTH), "positions": draw.weight(_TOKENS, _WIDTH)}
    blocks = [block() for _ in range(_BLOCKS)]
    return {**tables, "blocks": blocks, "norm": draw.norm(_WIDTH), "head": draw.dense(_WIDTH, _VOCABULARY)}


def gpt(f: Any, p: Any, tokens: Any) -> Any:
    def heads(x: Any) -> Any:
        return f.swap(x.reshape(*x.shape[:-1], _HEADS, _WIDTH // _HEADS), 1, 2)

    x = f.embedding(p["tokens"], tokens) + p["positions"]
    for block in p["blocks"]:
        q, k, v = (
            heads(projection) for projection in f.split(f.dense(f.layer_norm(x, block["attention_norm"]), block["qkv"]), 3)
        )
        x = x + f.dense(f.swap(f.attention(q, k, v), 1, 2).reshape(*x.shape), block["out"])
        x = x + f.dense(f.gelu(f.dense(f.layer_norm(x, block["mlp_norm"]), block["up"])), block["down"])
    return f.dense(f.layer_norm(x, p["norm"]), p["head"])


def resnet_parameters(draw: Draw) -> Any:
    def block(inputs: int, outputs: int) -> Any:
        convolutions = {"first": draw.conv(3, inputs, outputs), "second": draw.conv(3, outputs, outputs)}
        norms = {"norm1": draw.norm(outputs), "norm2": draw.norm(outputs)}
        return {**convolutions, **norms, **({"skip": draw.conv(1, inputs, outputs)} if inputs != outputs else {})}

    stages = [[block(a, b), block(b, b)] for a, b in ((64, 64), (64, 128), (128, 256), (256, 512))]
    return {"stem": draw.conv(3, 3, 64), "norm": draw.norm(64), "stages": stages, "head": draw.dense(512, 10)}


def resnet(f: Any, p: Any, x: Any) -> Any:
    x = f.relu(f.batch_norm(f.conv(x, p["stem"], 1), p["norm"]))
    for stage in p["stages"]:
        for block in stage:
            stride = 2 if "skip" in block else 1
            y = f.relu(f.batch_norm(f.conv(x, block["first"], stride), block["norm1"]))
            y = f.batch_norm(f.conv(y, block["second"], 1), block["norm2"])
            x = f.relu(y + (f.conv(x, block["skip"], 2) if stride == 2 else x))
    return f.dense(f.spatial_mean(x), p["head"])


def lstm_parameters(draw: Draw) -> Any:
    cell = {"w": draw.weight(_UNITS, 4 * _UNITS), "u": draw.weight(_UNITS, 4 * _UNITS), "b": np.zeros(4 * _UNITS, np.float32)}
    return {"cell": cell, "head": draw.dense(_UNITS, 10)}


def lstm(f: Any, p: Any, x: Any) -> Any:
    return f.dense(f.lstm(x, p["cell"], _UNITS), p["head"])


@dataclass(frozen=True)
class Model:
    """A model: its function from a batch to logits, its parameters, and the shape of a batch.

    Inputs are token indices below `tokens`, or floats if it is 0.
    """

    apply: Callable[..., Any]
    parameters: Callable[[Draw], Any]
    shape: tuple[int, ...]
    labels: tuple[int, ...]
    classes: int = 10
    tokens: int = 0

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(1)
        labels = rng.integers(0, self.classes, self.labels).astype(np.int32)
        if self.tokens:
            return rng.integers(0, self.tokens, self.shape).astype(np.int32), labels
        return rng.standard_normal(self.shape).astype(np.float32), labels


MODELS = {
    "mlp": Model(mlp, mlp_parameters, (128, 784), (128,)),
    "cnn": Model(cnn, cnn_parameters, (64, 28, 28, 1), (64,)),
    "gpt": Model(gpt, gpt_parameters, (8, _TOKENS), (8, _TOKENS), _VOCABULARY, _VOCABULARY),
    "resnet18": Model(resnet, resnet_parameters, (32, 32, 32, 3), (32,)),
    # Steps first.
    "lstm": Model(lstm, lstm_parameters, (_STEPS, 32, _UNITS), (32,)),
}

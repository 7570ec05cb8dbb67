"""Compare an encoder on a ragged batch with the same encoder on a batch of equal lengths, and on the padded batch.

    python benchmarks/ragged.py [--sequences 32] [--max-length 128] [--size 256] [--layers 2] [--repetitions 20]

Lengths are drawn from a log-normal distribution with a third of the maximum as its mean, as lengths of sentences are. Times are
processor times on one thread, the minimum of interleaved repetitions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import nn, ragged

HEAD_SIZE = 64


def draw_lengths(rng: np.random.Generator, count: int, maximum: int) -> np.ndarray:
    """Return `count` lengths from 1 to `maximum` with a mean of about a third of it."""
    lengths = np.clip(rng.lognormal(np.log(maximum / 3) - 0.25, 0.7, count).astype(np.int64), 1, maximum)
    lengths[0] = maximum
    return lengths


def init(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Return the parameters of a layer."""
    shapes = {"qkv": (size, 3 * size), "out": (size, size), "up": (size, 4 * size), "down": (4 * size, size)}
    parameters = {name: (rng.normal(size=shape) / shape[0] ** 0.5).astype(np.float32) for name, shape in shapes.items()}
    return parameters | {"scale": np.ones(size, np.float32), "bias": np.zeros(size, np.float32)}


def layer(p: dict[str, Any], x: Any, attend: Callable[..., Any]) -> Any:
    """A transformer layer on rows x [..., size]; `attend` takes rows of queries, keys and values, [..., heads, 64]."""
    normalized = nn.layer_norm(x, p["scale"], p["bias"])
    q, k, v = (dnp.reshape(y, (*y.shape[:-1], -1, HEAD_SIZE)) for y in dnp.split(normalized @ p["qkv"], 3, axis=-1))
    x = x + dnp.reshape(attend(q, k, v), x.shape) @ p["out"]
    return x + nn.gelu(nn.layer_norm(x, p["scale"], p["bias"]) @ p["up"]) @ p["down"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("sequences", 32), ("max-length", 128), ("size", 256), ("layers", 2), ("repetitions", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    layers = [init(rng, options.size) for _ in range(options.layers)]
    lengths = draw_lengths(rng, options.sequences, options.max_length)
    rows = rng.normal(size=(lengths.sum(), options.size)).astype(np.float32)

    @dlc.jit(dynamic={"x.values": {0: "L"}, "x.lengths": {0: "B"}}, num_threads=1)
    def encode_ragged(x: ragged.Ragged) -> Any:
        def attend(*arrays: Any) -> Any:
            return ragged.attention(*(ragged.Ragged(y, x.lengths) for y in arrays)).values

        rows = x.values
        for p in layers:
            rows = layer(p, rows, attend)
        return ragged.mean(ragged.Ragged(rows, x.lengths))

    @dlc.jit(num_threads=1)
    def encode_padded(x: Any, lengths: Any) -> Any:
        mask = dnp.arange(x.shape[1]) < dnp.reshape(lengths, (-1, 1))

        def attend(*arrays: Any) -> Any:
            heads_first = (dnp.swapaxes(y, 1, 2) for y in arrays)
            return dnp.swapaxes(nn.attention(*heads_first, mask=mask[:, None, None, :]), 1, 2)

        for p in layers:
            x = layer(p, x, attend)
        return dnp.sum(dnp.where(mask[..., None], x, 0), axis=1) / dnp.reshape(lengths, (-1, 1)).astype(np.float32)

    @dlc.jit(num_threads=1)
    def encode_equal(x: Any) -> Any:
        def attend(*arrays: Any) -> Any:
            return dnp.swapaxes(nn.attention(*(dnp.swapaxes(y, 1, 2) for y in arrays)), 1, 2)

        for p in layers:
            x = layer(p, x, attend)
        return x.mean(axis=1)

    batch = ragged.Ragged(rows, lengths)
    length = round(lengths.mean())
    equal = rng.normal(size=(options.sequences, length, options.size)).astype(np.float32)
    padded = np.asarray(ragged.to_padded(batch))
    calls: dict[str, Callable[[], Any]] = {
        "ragged": lambda: encode_ragged(batch),
        "equal lengths": lambda: encode_equal(equal),
        "padded": lambda: encode_padded(padded, lengths),
    }
    np.testing.assert_allclose(calls["ragged"](), calls["padded"](), rtol=1e-3, atol=1e-3)
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(options.repetitions):
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    tokens = {"ragged": lengths.sum(), "equal lengths": equal.shape[0] * equal.shape[1], "padded": lengths.sum()}
    print(f"{options.sequences} sequences of 1 to {lengths.max()} rows, mean {lengths.mean():.1f}: {lengths.sum()} rows")
    for name, seconds in best.items():
        print(f"{name:14} {seconds * 1e3:8.2f} ms  {seconds / tokens[name] * 1e6:7.2f} µs per row")
    per_row = {name: seconds / tokens[name] for name, seconds in best.items()}
    print(f"ragged: {per_row['equal lengths'] / per_row['ragged']:.2f} of the speed of equal lengths per row, "
          f"{best['padded'] / best['ragged']:.2f} times the speed of the padded batch")  # fmt: skip


if __name__ == "__main__":
    main()

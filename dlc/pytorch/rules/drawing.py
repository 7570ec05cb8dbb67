"""Random numbers: of a key, which a program has of its input `seed` and the place of the node in the graph.

They are other numbers than PyTorch's, of the same distributions, and the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import random
from dlc.numpy.apply import convert
from dlc.pytorch.rules.table import Table

table = Table()


@table("rand")
def rand(key: Any, size: Sequence[int], dtype: Any = None) -> Any:
    return random.uniform(key, tuple(size), dtype or np.float32)


@table("randn")
def randn(key: Any, size: Sequence[int], dtype: Any = None) -> Any:
    return random.normal(key, tuple(size), dtype or np.float32)


@table("rand_like")
def rand_like(key: Any, x: Any, dtype: Any = None) -> Any:
    return rand(key, x.shape, dtype or x.dtype)


@table("randn_like")
def randn_like(key: Any, x: Any, dtype: Any = None) -> Any:
    return randn(key, x.shape, dtype or x.dtype)


@table("randint.low")
def randint(key: Any, low: int, high: int, size: Sequence[int], dtype: Any = None) -> Any:
    return random.randint(key, tuple(size), low, high, dtype or np.int64)


@table("randint")
def randint_below(key: Any, high: int, size: Sequence[int], dtype: Any = None) -> Any:
    return randint(key, 0, high, size, dtype)


@table("randperm")
def randperm(key: Any, n: int, dtype: Any = None) -> Any:
    return convert(random.permutation(key, n), dtype or np.int64)


@table("bernoulli")
def bernoulli(key: Any, x: Any) -> Any:
    return convert(random.bernoulli(key, x), x.dtype)


@table("bernoulli.p")
def bernoulli_of(key: Any, x: Any, p: float = 0.5) -> Any:
    return convert(random.bernoulli(key, p, x.shape), x.dtype)


@table("native_dropout")
def dropout(key: Any, x: Any, p: float, train: bool | None = None) -> Any:
    if train is False or p == 0:
        return x, dnp.ones_like(x, dtype=np.bool_)
    kept = random.bernoulli(key, 1 - p, x.shape)
    return dnp.multiply(dnp.where(kept, x, convert(0, x.dtype)), 1 / (1 - p) if p < 1 else 0.0), kept

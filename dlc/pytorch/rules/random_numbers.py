"""Random operators. The key is derived from the program's input `seed` and the position of the node in the graph.

The values differ from PyTorch's, but have the same distributions, and are reproducible for the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import random
from dlc.numpy.apply import convert, is_floating
from dlc.pytorch.rules.rule_table import Rule, RuleTable, promoted_floats

table = RuleTable()
# The bit offsets of the bytes of a 32-bit word.
_BYTE_SHIFTS = np.array([0, 8, 16, 24], np.uint32)


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
    result_dtype = np.dtype(dtype or np.int64)
    samples = random.randint(key, tuple(size), low, high, np.int64 if is_floating(result_dtype) else result_dtype)
    return convert(samples, result_dtype)


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


@table("bernoulli.Tensor")
def bernoulli_with(key: Any, x: Any, p: Any) -> Any:
    return convert(random.bernoulli(key, p, x.shape), x.dtype)


@table("randint_like")
def randint_like(key: Any, x: Any, high: int, dtype: Any = None) -> Any:
    return convert(randint(key, 0, high, x.shape), dtype or x.dtype)


@table("randint_like.low_dtype")
def randint_like_from(key: Any, x: Any, low: int, high: int, dtype: Any = None) -> Any:
    return convert(randint(key, low, high, x.shape), dtype or x.dtype)


@table("uniform")
def uniform(key: Any, x: Any, low: float = 0, high: float = 1) -> Any:
    return random.uniform(key, x.shape, x.dtype, low, high)


@table("normal_functional")
def normal(key: Any, x: Any, mean: float = 0, std: float = 1) -> Any:
    return _normal(key, x.shape, x.dtype, mean, std)


def _normal(key: Any, shape: Sequence[int], dtype: Any, mean: Any, std: Any) -> Any:
    return dnp.add(dnp.multiply(random.normal(key, tuple(shape), dtype), std), mean)


@table("normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor")
def normal_around(key: Any, mean: Any, std: Any = 1.0) -> Any:
    mean, std = dnp.broadcast_arrays(*promoted_floats(mean, std))
    return _normal(key, mean.shape, mean.dtype, mean, std)


@table("normal.float_float")
def normal_of(key: Any, mean: float, std: float, size: Sequence[int], dtype: Any = None) -> Any:
    return _normal(key, size, dtype or np.float32, mean, std)


@table("log_normal")
def log_normal(key: Any, x: Any, mean: float = 1, std: float = 2) -> Any:
    return dnp.exp(_normal(key, x.shape, x.dtype, mean, std))


@table("exponential")
def exponential(key: Any, x: Any, lambd: float = 1) -> Any:
    return dnp.divide(dnp.negative(dnp.log1p(dnp.negative(random.uniform(key, x.shape, x.dtype)))), lambd)


@table("cauchy")
def cauchy(key: Any, x: Any, median: float = 0, sigma: float = 1) -> Any:
    return dnp.add(dnp.multiply(random.cauchy(key, x.shape, x.dtype), sigma), median)


@table("geometric")
def geometric(key: Any, x: Any, p: float) -> Any:
    """Sample the number of trials until the first success, by inversion; 1 - u is above 0."""
    dtype = x.dtype if is_floating(x.dtype) else np.dtype(np.float32)
    u = random.uniform(key, x.shape, dtype)
    trials = dnp.ceil(dnp.divide(dnp.log1p(dnp.negative(u)), math.log1p(-p) if p < 1 else -math.inf))
    return convert(dnp.maximum(trials, 1.0), x.dtype)


@table("rrelu_with_noise_functional")
def rrelu_with_noise(key: Any, x: Any, noise: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    """Return `x` with elements of at most 0 multiplied by random slopes, and the slopes, 1 for the others."""
    if not training:
        return dnp.where(dnp.greater(x, 0), x, dnp.multiply(x, (lower + upper) / 2)), noise
    slopes = dnp.where(dnp.less_equal(x, 0), random.uniform(key, x.shape, x.dtype, lower, upper), convert(1, x.dtype))
    return dnp.multiply(x, slopes), slopes


@table("poisson")
def poisson(key: Any, x: Any) -> Any:
    return convert(random.poisson(key, x, dtype=np.int64), x.dtype)


@table("_standard_gamma")
def standard_gamma(key: Any, a: Any) -> Any:
    return random.gamma(key, a, a.shape, a.dtype)


@table("_sample_dirichlet")
def dirichlet(key: Any, alpha: Any) -> Any:
    return random.dirichlet(key, alpha, alpha.shape[:-1], alpha.dtype)


@table("multinomial")
def multinomial(key: Any, weights: Any, num_samples: int, replacement: bool = False) -> Any:
    """Sample indices along the last axis with probabilities proportional to `weights`.

    Sampling without replacement uses the Gumbel top-k trick.
    """
    logits = dnp.log(weights)
    if replacement:
        return dnp.moveaxis(random.categorical(key, logits, -1, (num_samples, *weights.shape[:-1])), 0, -1)
    return dnp.top_k(dnp.add(logits, random.gumbel(key, weights.shape, weights.dtype)), num_samples)[1]


@table("native_dropout")
def dropout(key: Any, x: Any, p: float, train: bool | None = None) -> Any:
    if train is False or p == 0:
        return x, dnp.ones_like(x, dtype=np.bool_)
    keep_mask = random.bernoulli(key, 1 - p, x.shape)
    return dnp.multiply(dnp.where(keep_mask, x, convert(0, x.dtype)), 1 / (1 - p) if p < 1 else 0.0), keep_mask


@table("higher_order.run_and_save_rng_state")
def run_and_save_rng_state(key: Any, rule: Rule, *args: Any, **kwargs: Any) -> Any:
    """Run a random operator, and return its key as bytes in addition, for recomputation in the backward graph."""
    state = convert(dnp.bitwise_right_shift(dnp.expand_dims(key, 1), _BYTE_SHIFTS), np.uint8)
    return dnp.ravel(state), rule(key, *args, **kwargs)


def replay_rng_state(state: Any, rule: Rule, *args: Any, **kwargs: Any) -> Any:
    """Run a random operator with the key that `run_and_save_rng_state` saved."""
    # PyTorch allocates more bytes, for its own generator state.
    words = dnp.reshape(convert(dnp.take(state, np.arange(2 * _BYTE_SHIFTS.size)), np.uint32), (2, _BYTE_SHIFTS.size))
    return rule(dnp.sum(dnp.bitwise_left_shift(words, _BYTE_SHIFTS), 1, dtype=np.uint32), *args, **kwargs)

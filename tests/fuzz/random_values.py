"""Common base of random programs and random ONNX graphs: types, sizes, elements, and the choice of existing values."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import ml_dtypes
import numpy as np

from dlc.dialects.dl.base import Array, is_storage_only
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype
from dlc.errors import DTypeError, ShapeError
from dlc.testing.sample import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, is_float

FLOATS, INTEGERS = (F32, F64, F16, BF16), (I8, I16, I32, I64, U8, U16, U32, U64)
NUMERIC = (*FLOATS, *INTEGERS)
ANY = (*NUMERIC, BOOL)
# Types that can be stored and moved, but not computed with.
STORAGE_ONLY = tuple(numpy_dtype(t) for t in ELEMENT_TYPES.values() if is_storage_only(t))
# 0, 1, small and large primes, and vector widths ± 1.
SIZES = (0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129)
SMALL_SIZES = (1, 2, 3, 4, 5)
MAX_ELEMENTS = 4096
RANKS = (0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5)


class Unsuitable(Exception):
    """Raised if the drawn op does not fit the existing values."""


class SampledValue(Protocol):
    """A value that later ops may read."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def exact(self) -> bool: ...

    @property
    def is_readable(self) -> bool: ...


V = TypeVar("V", bound=SampledValue)


class RandomBuilder(ABC, Generic[V]):
    """Builder of a random program or graph from a seed, with the `values` that exist so far."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.values: list[V] = []
        self.sizes: Sequence[int] = SIZES
        # Most programs use one type and ordinary values; the others have special values.
        self.special = self.random.random() < 0.3
        self.types = self.random.choices(NUMERIC, [12, 3, 3, 3, *[1.5] * 8], k=self.random.choice([1, 1, 2]))

    @property
    @abstractmethod
    def op_results(self) -> list[V]:
        """The values that ops compute."""

    @abstractmethod
    def fresh(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> V:
        """Return a new value that no op computes."""

    def grow(self, step: Callable[[], object], size: int) -> None:
        """Take steps until there are `size` op results; unsuitable steps are skipped."""
        for _ in range(4 * size):
            if len(self.op_results) >= size:
                return
            try:
                step()
            except (Unsuitable, ShapeError, DTypeError):
                continue

    def random_array(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Return random elements: integers, normal values, values of all magnitudes, special values, or one value repeated."""
        rng, shape = self.rng, tuple(shape)
        if shape and self.random.random() < 0.05:
            return np.full(shape, self.random_array(dtype, (), scale))
        if dtype == BOOL:
            return rng.random(shape) < 0.5
        if dtype in STORAGE_ONLY:
            return np.asarray(np.round(rng.standard_normal(shape) * 2 + 1, 1)).astype(np.float32).astype(dtype)
        if not is_float(dtype):
            info = np.iinfo(dtype)
            if not self.special:
                return rng.integers(max(info.min, -9), 10, shape).astype(dtype)
            array = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
            extremes = np.array([info.min, info.max, 0, 1, info.max // 2 + 1], dtype)
            return np.asarray(np.where(rng.random(shape) < 0.4, rng.choice(extremes, shape), array)).astype(dtype)
        kind = self.random.random()
        if kind < 0.35:
            return (rng.integers(-4, 5, shape) * (1 if scale == 1 else 0.25)).astype(dtype)
        if not self.special or kind < 0.5:
            return (rng.standard_normal(shape) * scale).astype(dtype)
        info = ml_dtypes.finfo(dtype)
        array = rng.standard_normal(shape) * np.exp2(rng.integers(-20, 12, shape).astype(np.float64))
        if kind > 0.65:
            large, normal, subnormal = float(info.max), float(info.smallest_normal), float(info.smallest_subnormal)
            values = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 0.5, large, -large, normal, -normal, subnormal, 1e3, -1e3]
            array = np.where(rng.random(shape) < 0.5, rng.choice(values, shape), array)
        with np.errstate(all="ignore"):
            return np.asarray(array).astype(dtype)

    def shape(self, rank: int | None = None, max_elements: int = MAX_ELEMENTS // 4) -> tuple[int, ...]:
        """Return random sizes with at most `max_elements` elements in total."""
        rank = self.random.choice(RANKS) if rank is None else rank
        shape = [self.random.choice(self.sizes) for _ in range(rank)]
        while math.prod(s or 1 for s in shape) > max_elements:
            shape[self.random.randrange(rank)] = self.random.choice(SMALL_SIZES)
        return tuple(shape)

    def dtype(self, dtypes: Sequence[np.dtype] = ANY) -> np.dtype:
        """Choose one of these dtypes, preferably one that the program uses."""
        preferred = [d for d in self.types if d in dtypes]
        if preferred and self.random.random() < 0.8:
            return self.random.choice(preferred)
        return self.random.choice(dtypes)

    def any(
        self,
        dtypes: Sequence[np.dtype] = ANY,
        suits: Callable[[tuple[int, ...]], bool] = lambda shape: True,
        ranks: Sequence[int] = RANKS,
        exact: bool = False,
    ) -> V:
        """Return a value with one of these dtypes and a suitable shape: an existing one, mostly recent, or a new one."""
        candidates = [
            v for v in self.values if v.dtype in dtypes and suits(v.shape) and (v.exact or not exact) and v.is_readable
        ]
        if candidates and self.random.random() < 0.8:
            return candidates[-min(len(candidates), 1 + int(self.random.expovariate(0.8)))]
        for _ in range(20):
            shape = self.shape(self.random.choice(ranks))
            if suits(shape):
                return self.fresh(self.dtype(dtypes), shape)
        raise Unsuitable

    def like(self, dtype: np.dtype, suits: Callable[[tuple[int, ...]], bool], shape: Sequence[int], scale: float = 1.0) -> V:
        """Return a value with this dtype and a suitable shape, or a new one of `shape`."""
        candidates = [v for v in self.values if v.dtype == dtype and suits(v.shape) and v.is_readable]
        if candidates and self.random.random() < 0.5:
            return self.random.choice(candidates)
        return self.fresh(dtype, shape, scale)

    def partner(self, x: V) -> V:
        """Return a value that broadcasts with `x`."""
        shape = [1 if self.random.random() < 0.2 else s for s in x.shape][self.random.choice([0, 0, 0, 1, 5]) :]
        return self.like(x.dtype, lambda s: _within(s, x.shape), shape)

    def axis(self, x: V) -> int:
        """Choose an axis of `x`, sometimes as a negative index."""
        if not x.shape:
            raise Unsuitable
        axis = self.random.randrange(len(x.shape))
        return axis - len(x.shape) if self.random.random() < 0.2 else axis

    def axes(self, x: V) -> tuple[int, ...]:
        """Choose some axes of `x`, often one or all."""
        rank = len(x.shape)
        count = self.random.choice([min(1, rank), rank, self.random.randint(0, rank)])
        return tuple(self.random.sample(range(rank), count))

    def flag(self) -> bool:
        return self.random.random() < 0.5


def _within(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    try:
        return math.prod(np.broadcast_shapes(shape, larger)) <= MAX_ELEMENTS
    except ValueError:
        return False


def is_extreme(array: Array) -> bool:
    """Return whether products of these floats may overflow or underflow, as when passes multiply weights."""
    if not is_float(array.dtype) or array.dtype in STORAGE_ONLY or not array.size:
        return False
    x, info = np.abs(array.astype(np.float64)), ml_dtypes.finfo(array.dtype)
    return bool(((x > float(info.max) ** 0.4) | ((x < float(info.smallest_normal) ** 0.4) & (x > 0)) | np.isnan(x)).any())

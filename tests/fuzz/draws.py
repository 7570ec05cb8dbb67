"""What random programs and random graphs of ONNX are drawn from: types, sizes, numbers, and values that are there."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import ml_dtypes
import numpy as np

from dlc.dialects.dl.base import Array, is_narrow
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype
from dlc.errors import DTypeError, ShapeError
from tests.ops.sample import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, is_float

FLOATS, INTEGERS = (F32, F64, F16, BF16), (I8, I16, I32, I64, U8, U16, U32, U64)
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, BOOL)
# Types that are stored and moved, not computed with.
NARROW = tuple(numpy_dtype(t) for t in ELEMENT_TYPES.values() if is_narrow(t))
# Nothing, one, small and large primes, a vector's lanes and one more or less.
SIZES = (0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129)
SMALL = (1, 2, 3, 4, 5)
LARGEST_ARRAY = 4096
RANKS = (0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5)


class Unsuitable(Exception):
    """The op drawn does not fit the values that there are."""


class Drawn(Protocol):
    """A value that later ones may be computed from."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def exact(self) -> bool: ...

    @property
    def may_be_read(self) -> bool: ...


V = TypeVar("V", bound=Drawn)


class Draws(ABC, Generic[V]):
    """Draws of a seed, among the `values` that there are and new ones."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.values: list[V] = []
        # Most are of one type and tame; what special values do is asked of the others.
        self.special = self.random.random() < 0.3
        self.types = self.random.choices(NUMBERS, [12, 3, 3, 3, *[1.5] * 8], k=self.random.choice([1, 1, 2]))

    @property
    @abstractmethod
    def made(self) -> list[V]:
        """The values that ops compute."""

    @abstractmethod
    def fresh(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> V:
        """A new value that nothing computes."""

    def grow(self, step: Callable[[], object], size: int) -> None:
        """Takes steps until `size` ops are made; a step that does not fit is forgotten."""
        for _ in range(4 * size):
            if len(self.made) >= size:
                return
            try:
                step()
            except (Unsuitable, ShapeError, DTypeError):
                continue

    def numbers_of(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Random elements: whole numbers, normal ones, ones of all magnitudes, or special ones among them; or all one number."""
        rng, shape = self.numbers, tuple(shape)
        if shape and self.random.random() < 0.05:
            return np.full(shape, self.numbers_of(dtype, (), scale))
        if dtype == BOOL:
            return rng.random(shape) < 0.5
        if dtype in NARROW:
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
            large, normal, least = float(info.max), float(info.smallest_normal), float(info.smallest_subnormal)
            values = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 0.5, large, -large, normal, -normal, least, 1e3, -1e3]
            array = np.where(rng.random(shape) < 0.5, rng.choice(values, shape), array)
        with np.errstate(all="ignore"):
            return np.asarray(array).astype(dtype)

    def shape(self, rank: int | None = None, largest: int = LARGEST_ARRAY // 4) -> tuple[int, ...]:
        """Random sizes of at most so many elements."""
        rank = self.random.choice(RANKS) if rank is None else rank
        shape = [self.random.choice(SIZES) for _ in range(rank)]
        while math.prod(s or 1 for s in shape) > largest:
            shape[self.random.randrange(rank)] = self.random.choice(SMALL)
        return tuple(shape)

    def dtype(self, among: Sequence[np.dtype] = ANY) -> np.dtype:
        """A dtype of these, one of the program's own if there is one."""
        own = [d for d in self.types if d in among]
        if own and self.random.random() < 0.8:
            return self.random.choice(own)
        return self.random.choice(among)

    def any(
        self,
        among: Sequence[np.dtype] = ANY,
        suits: Callable[[tuple[int, ...]], bool] = lambda shape: True,
        ranks: Sequence[int] = RANKS,
        exact: bool = False,
    ) -> V:
        """A value of one of these dtypes whose shape suits: one that there is, mostly a late one, or a new one."""
        found = [v for v in self.values if v.dtype in among and suits(v.shape) and (v.exact or not exact) and v.may_be_read]
        if found and self.random.random() < 0.8:
            return found[-min(len(found), 1 + int(self.random.expovariate(0.8)))]
        for _ in range(20):
            shape = self.shape(self.random.choice(ranks))
            if suits(shape):
                return self.fresh(self.dtype(among), shape)
        raise Unsuitable

    def like(self, dtype: np.dtype, suits: Callable[[tuple[int, ...]], bool], shape: Sequence[int], scale: float = 1.0) -> V:
        """A value of this dtype whose shape suits, or a new one of `shape`."""
        found = [v for v in self.values if v.dtype == dtype and suits(v.shape) and v.may_be_read]
        if found and self.random.random() < 0.5:
            return self.random.choice(found)
        return self.fresh(dtype, shape, scale)

    def partner(self, x: V) -> V:
        """A value that broadcasts with `x`."""
        shape = [1 if self.random.random() < 0.2 else s for s in x.shape][self.random.choice([0, 0, 0, 1, 5]) :]
        return self.like(x.dtype, lambda s: _within(s, x.shape), shape)

    def axis(self, x: V) -> int:
        """An axis of `x`, counted from either end."""
        if not x.shape:
            raise Unsuitable
        axis = self.random.randrange(len(x.shape))
        return axis - len(x.shape) if self.random.random() < 0.2 else axis

    def axes(self, x: V) -> tuple[int, ...]:
        """Some axes of `x`, often one or all."""
        rank = len(x.shape)
        count = self.random.choice([min(1, rank), rank, self.random.randint(0, rank)])
        return tuple(self.random.sample(range(rank), count))

    def flag(self) -> bool:
        return self.random.random() < 0.5


def _within(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    try:
        return math.prod(np.broadcast_shapes(shape, larger)) <= LARGEST_ARRAY
    except ValueError:
        return False


def is_extreme(array: Array) -> bool:
    """Whether floats are such that their products may overflow or vanish: passes multiply weights into one another."""
    if not is_float(array.dtype) or array.dtype in NARROW or not array.size:
        return False
    x, info = np.abs(array.astype(np.float64)), ml_dtypes.finfo(array.dtype)
    return bool(((x > float(info.max) ** 0.4) | ((x < float(info.smallest_normal) ** 0.4) & (x > 0)) | np.isnan(x)).any())

"""Creation: plain NumPy arrays, which a traced function holds as constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.numpy.apply import ArrayLike, convert, operand


def asarray(x: ArrayLike, /, dtype: Any = None) -> Any:
    """`x` as an array, with `dtype` if that is given."""
    return operand(x) if dtype is None else convert(x, dtype)


def zeros(shape: int | Sequence[int], dtype: Any = np.float32) -> Array:
    """Zeros; float32 unless told otherwise."""
    return np.zeros(shape, dtype)


def ones(shape: int | Sequence[int], dtype: Any = np.float32) -> Array:
    """Ones; float32 unless told otherwise."""
    return np.ones(shape, dtype)


def full(shape: int | Sequence[int], fill_value: float, dtype: Any = np.float32) -> Array:
    """One value everywhere; float32 unless told otherwise."""
    return np.full(shape, fill_value, dtype)


def zeros_like(x: ArrayLike, /) -> Array:
    """Zeros with the shape and dtype of `x`."""
    return np.zeros(operand(x).shape, operand(x).dtype)


def ones_like(x: ArrayLike, /) -> Array:
    """Ones with the shape and dtype of `x`."""
    return np.ones(operand(x).shape, operand(x).dtype)


def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None) -> Array:
    """start, start + step, … before stop (0, 1, … before `start` if `stop` is None)."""
    return np.arange(start, dtype=dtype) if stop is None else np.arange(start, stop, step, dtype=dtype)


def eye(n: int, m: int | None = None, /, dtype: Any = np.float32) -> Array:
    """Ones on the diagonal of an n × m matrix (n × n if `m` is None)."""
    return np.eye(n, m, dtype=dtype)

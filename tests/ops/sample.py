"""Samples of ops, with independent expected results, and their comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from dlc.dialects.dl.base import DlOp, PropertyValue, Tensor, tensor_type
from dlc.dialects.dl.dtypes import element_type

F32, F64, F16, BF16 = np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)
I8, I16, I32, I64 = (np.dtype(f"i{n}") for n in (1, 2, 4, 8))
U8, U16, U32, U64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
BOOL = np.dtype(bool)


def is_float(dtype: np.dtype) -> bool:
    """Return whether a dtype is a float type, including those of ml_dtypes, all of which f64 represents."""
    return dtype.kind in "fV"


@dataclass(frozen=True)
class Sample:
    """An op with operands, and its results by an independent NumPy expression.

    `expected` takes the operands; its results are cast to the inferred element types. `tolerance` is relative to the largest
    finite magnitude of the expected result; 0 requires equal values (NaN equals NaN).
    """

    op: type[DlOp]
    operands: tuple[np.ndarray, ...]
    expected: Callable[..., Any]
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)
    tolerance: float = 0.0
    label: str = ""

    @property
    def name(self) -> str:
        dtypes = "_".join(dict.fromkeys(o.dtype.name for o in self.operands))
        return "-".join(part for part in (self.op.name.removeprefix("dl."), dtypes, self.label) if part)

    @property
    def operand_types(self) -> list[Tensor]:
        return [tensor_type(o.shape, element_type(o.dtype)) for o in self.operands]

    def expected_results(self, dtypes: list[np.dtype]) -> list[np.ndarray]:
        """Compute the results by the independent expression, in the dtypes that the op infers."""
        with np.errstate(all="ignore"):
            results = self.expected(*self.operands)
            results = results if isinstance(results, tuple) else (results,)
            return [rounded(np.asarray(r), d) for r, d in zip(results, dtypes, strict=True)]


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert values of a wider type to `dtype`: floats round once, Python integers wrap around."""
    if values.dtype == object and dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        return np.array([int(v) % (1 << bits) for v in values.flat], np.uint64).astype(dtype).reshape(values.shape)
    return values.astype(np.float64).astype(dtype) if values.dtype == object else values.astype(dtype)


def exactly(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate a formula on exact operands: floats up to f32 in f64 and f64 in extended precision, integers as Python's own."""

    def widen(x: np.ndarray) -> np.ndarray:
        if is_float(x.dtype):
            return x.astype(np.longdouble if x.dtype == F64 else np.float64)
        return x if x.dtype == BOOL else x.astype(object)

    return lambda *operands: formula(*map(widen, operands))


def assert_close(got: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Assert equal dtype and shape, NaN and infinities at the same indices, other values within the tolerance."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    a, b = (x.astype(np.float64) if is_float(x.dtype) else x for x in (got, expected))
    if not is_float(got.dtype) and tolerance == 0:
        np.testing.assert_array_equal(a, b)
        return
    finite = np.isfinite(a.astype(np.float64)) & np.isfinite(b.astype(np.float64))
    np.testing.assert_array_equal(np.where(finite, 0, a), np.where(finite, 0, b))
    a, b = np.where(finite, a, 0).astype(np.float64), np.where(finite, b, 0).astype(np.float64)
    bound = tolerance * max(np.max(np.abs(b), initial=0.0), 1e-30)
    worst = np.max(np.abs(a - b), initial=0.0)
    assert worst <= bound, f"largest difference {worst:.3g}, allowed {bound:.3g}"


def values(dtype: np.dtype, *shape: int, seed: int = 0, scale: float = 2.0) -> np.ndarray:
    """Return seeded values: floats around 0, small integers of both signs or unsigned, random bools."""
    random = np.random.default_rng(seed)
    if dtype == BOOL:
        return random.random(shape) < 0.5
    if is_float(dtype):
        return (random.standard_normal(shape) * scale).astype(dtype)
    low, high = (-9, 10) if dtype.kind == "i" else (0, 19)
    return random.integers(low, high, shape).astype(dtype)

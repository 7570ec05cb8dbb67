"""Samples of ops, with independent expected results, and their comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dlc.arrays import format_type
from dlc.dialects.dl.base import DlOp, PropertyValue, Tensor, tensor_type
from dlc.dialects.dl.dtypes import element_type

F32, F64, F16, BF16 = np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)
I8, I16, I32, I64 = (np.dtype(f"i{n}") for n in (1, 2, 4, 8))
U8, U16, U32, U64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
BOOL = np.dtype(bool)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is a float type, including those of ml_dtypes, all of which f64 represents."""
    return dtype.kind in "fV"


@dataclass(frozen=True)
class Sample:
    """An op with operands, and its results by an independent NumPy expression.

    `expected` takes the operands; its results are cast to the inferred element types. `tolerance` is relative to the largest
    finite magnitude of the expected result; 0 requires equal values (NaN equals NaN). `static_sizes` marks operands whose sizes
    cannot be symbolic, `smooth_interval` has the operands at which the op is differentiated.
    """

    op: type[DlOp]
    operands: tuple[NDArray[Any], ...]
    expected: Callable[..., Any]
    properties: Mapping[str, PropertyValue] = field(default_factory=dict[str, PropertyValue])
    tolerance: float = 0.0
    label: str = ""
    static_sizes: bool = False
    smooth_interval: tuple[float, float] = (0.2, 0.8)

    def __post_init__(self) -> None:
        # NumPy functions return scalars for arrays of rank 0.
        object.__setattr__(self, "operands", tuple(map(np.asarray, self.operands)))

    @property
    def name(self) -> str:
        dtypes = "_".join(dict.fromkeys(o.dtype.name for o in self.operands))
        return "-".join(part for part in (self.op.name.removeprefix("dl."), dtypes, self.label) if part)

    @property
    def operand_types(self) -> list[Tensor]:
        return [tensor_type(o.shape, element_type(o.dtype)) for o in self.operands]

    def expected_results(self, dtypes: list[np.dtype[Any]]) -> list[NDArray[Any]]:
        """Compute the results by the independent expression, in the dtypes that the op infers."""
        with np.errstate(all="ignore"):
            computed = self.expected(*self.operands)
            results = cast("tuple[Any, ...]", computed if isinstance(computed, tuple) else (computed,))
            return [rounded(np.asarray(r), d) for r, d in zip(results, dtypes, strict=True)]


def rounded(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert values of a wider type to `dtype`: floats round once, Python integers wrap around."""
    if values.dtype == object and dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        return np.array([int(v) % (1 << bits) for v in values.flat], np.uint64).astype(dtype).reshape(values.shape)
    return values.astype(np.float64).astype(dtype) if values.dtype == object else values.astype(dtype)


def exactly(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate a formula on exact operands: floats up to f32 in f64 and f64 in extended precision, integers as Python's own."""

    def widen(x: NDArray[Any]) -> NDArray[Any]:
        if is_float(x.dtype):
            return x.astype(np.longdouble if x.dtype == F64 else np.float64)
        return x if x.dtype == BOOL else x.astype(object)

    return lambda *operands: formula(*map(widen, operands))


def assert_close(got: NDArray[Any], expected: NDArray[Any], tolerance: float) -> None:
    """Assert equal dtype and shape, NaN and infinities at the same indices, other values within the tolerance."""
    types = [format_type(x.dtype, x.shape) for x in (got, expected)]
    require((got.dtype, got.shape) == (expected.dtype, expected.shape), "got {}, expected {}".format(*types))
    a, b = (x.astype(np.float64) if is_float(x.dtype) else x for x in (got, expected))
    if not is_float(got.dtype) and tolerance == 0:
        np.testing.assert_array_equal(a, b)
        return
    finite = np.isfinite(a.astype(np.float64)) & np.isfinite(b.astype(np.float64))
    np.testing.assert_array_equal(np.where(finite, 0, a), np.where(finite, 0, b))
    a, b = np.where(finite, a, 0).astype(np.float64), np.where(finite, b, 0).astype(np.float64)
    bound = tolerance * max(np.max(np.abs(b), initial=0.0), 1e-30)
    worst = np.max(np.abs(a - b), initial=0.0)
    require(bool(worst <= bound), f"largest difference {worst:.3g}, allowed {bound:.3g}")


def require(condition: bool, message: str) -> None:
    """Raise AssertionError unless the condition holds; unlike `assert`, also under `python -O`."""
    if not condition:
        raise AssertionError(message)


def values(dtype: np.dtype[Any], *shape: int, seed: int = 0, scale: float = 2.0) -> NDArray[Any]:
    """Return seeded values: floats around 0, small integers of both signs or unsigned, random bools."""
    random = np.random.default_rng(seed)
    if dtype == BOOL:
        return random.random(shape) < 0.5
    if is_float(dtype):
        return (random.standard_normal(shape) * scale).astype(dtype)
    low, high = (-9, 10) if dtype.kind == "i" else (0, 19)
    return random.integers(low, high, shape).astype(dtype)

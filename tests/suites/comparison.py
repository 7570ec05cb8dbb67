"""Compare results with expected results, within the tolerance of their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

# Relative to each element, and to the largest one: sums in another order differ by an error of the largest summand.
TOLERANCES = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
_PARTS = {"complex64": "float32", "complex128": "float64"}


def check_equal(
    got: Any, expected: Any, label: str, *, tolerance: float | None = None, uncertainty: Any = 0, max_integer_error: int = 0
) -> None:
    """Raise AssertionError unless two arrays have the same dtype, shape and elements; floats may differ by a tolerance.

    `tolerance` replaces the one of the dtype; `uncertainty` is the absolute error of the expected results.
    """
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype, f"{label}: the dtype is {got.dtype}, expected {expected.dtype}"
    assert got.shape == expected.shape, f"{label}: the shape is {got.shape}, expected {expected.shape}"
    is_equal: Any
    name = _PARTS.get(expected.dtype.name, expected.dtype.name)
    if expected.dtype.kind in "iu":
        is_equal = (got == expected) | (np.abs(got.astype(float) - expected.astype(float)) <= max_integer_error)
    elif "float" not in name:
        is_equal = got == expected
    else:
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        got, expected = got.astype(wide), expected.astype(wide)
        relative = TOLERANCES.get(name, 0.0) if tolerance is None else tolerance
        with np.errstate(all="ignore"):
            magnitudes = np.where(np.isfinite(expected), np.abs(expected), 0)
            bound = relative * np.maximum(magnitudes, np.minimum(magnitudes.max(initial=0), 1)) + uncertainty
            is_equal = (np.abs(got - expected) <= bound) | _identical(got, expected)
    if not np.all(is_equal):
        index = tuple(map(int, np.argwhere(~np.atleast_1d(is_equal))[0]))[: got.ndim]
        raise AssertionError(
            f"{label}: {np.count_nonzero(~is_equal)} of {got.size} elements differ; "
            f"at {list(index)} {got[index]}, expected {expected[index]}"
        )


def _identical(got: Any, expected: Any) -> Any:
    """Return which elements are the same, NaN and infinities included; complex numbers by their parts."""
    if got.dtype.kind == "c":
        return _identical(got.real, expected.real) & _identical(got.imag, expected.imag)
    return (got == expected) | (np.isnan(got) & np.isnan(expected))

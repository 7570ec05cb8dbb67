"""Complex arrays as pairs of real arrays.

Programs have real dtypes only. A complex argument or result is two leaves of the program: the real and the imaginary part.
Inside a traced function it is a `Complex`, with the array operators that `dlc.numpy` adds; the caller sees a NumPy array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex array: its real and imaginary parts, of equal shape and dtype."""

    real: Any
    imag: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.real.shape

    @property
    def ndim(self) -> int:
        return self.real.ndim

    @property
    def size(self) -> int:
        return self.real.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.complex128 if self.real.dtype == np.float64 else np.complex64)

    def __len__(self) -> int:
        return len(self.real)

    def __repr__(self) -> str:
        return f"Complex({self.real!r}, {self.imag!r})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a NumPy array; raises DTypeError during tracing."""
        array = _to_complex_array(np.asarray(self.real), np.asarray(self.imag))
        return array if dtype is None else array.astype(dtype)


def is_complex(value: object) -> bool:
    """Return whether a value is a complex number or a complex array."""
    if isinstance(value, Complex | complex):
        return True
    dtype = getattr(value, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind == "c"


def contains_complex(value: object) -> bool:
    """Return whether a value is a complex number or array, or a list or tuple that contains one."""
    return any(map(contains_complex, cast("Sequence[object]", value))) if isinstance(value, list | tuple) else is_complex(value)


def real_and_imaginary(value: Any) -> tuple[Any, Any]:
    """Return the real and imaginary parts of a complex number or array."""
    return value.real, value.imag


def component_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the real and imaginary parts of a complex dtype."""
    return np.dtype(np.float64 if dtype.itemsize == 16 else np.float32)


def from_parts(real: Any, imag: Any) -> Any:
    """Build a complex array from its parts: a NumPy array if both parts are NumPy arrays, else a `Complex`."""
    are_numpy = isinstance(real, np.ndarray) and isinstance(imag, np.ndarray)
    return _to_complex_array(real, imag) if are_numpy else Complex(real, imag)


def _to_complex_array(real: Any, imag: Any) -> Any:
    result = np.empty(real.shape, np.complex128 if real.dtype == np.float64 else np.complex64)
    result.real, result.imag = real, imag
    return result

"""Complex numbers: pairs of arrays of real numbers.

Programs know real numbers only. An array of complex numbers among arguments or results is two leaves, its parts; a traced
function has them as a `Complex`, to which `dlc.numpy` gives the operators of an array, and its caller as NumPy's arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Complex:
    """An array of complex numbers: its real and its imaginary parts, of one shape and dtype."""

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
        """NumPy's array of them; DTypeError while they are traced."""
        joined = _joined(np.asarray(self.real), np.asarray(self.imag))
        return joined if dtype is None else joined.astype(dtype)


def is_complex(value: object) -> bool:
    """Whether it is a complex number, or an array of them."""
    if isinstance(value, Complex | complex):
        return True
    dtype = getattr(value, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind == "c"


def parts_of(value: Any) -> tuple[Any, Any]:
    """The real and the imaginary parts of a complex number, or of an array of them."""
    return value.real, value.imag


def of_parts(real: Any, imag: Any) -> Any:
    """Complex numbers of these parts: NumPy's array if both are, else a `Complex`."""
    plain = isinstance(real, np.ndarray) and isinstance(imag, np.ndarray)
    return _joined(real, imag) if plain else Complex(real, imag)


def _joined(real: Any, imag: Any) -> Any:
    result = np.empty(real.shape, np.complex128 if real.dtype == np.float64 else np.complex64)
    result.real, result.imag = real, imag
    return result

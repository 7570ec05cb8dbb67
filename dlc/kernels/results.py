"""Results of kernels: their shapes, dtypes and initial values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """A result of a kernel.

    Attributes:
        shape: Its sizes: integers, or sizes of the operands.
        dtype: Its dtype.
        fill: The initial value of all elements. It may be None if the kernel writes every element, which must be provable.
    """

    shape: Sequence[int]
    dtype: Any
    fill: float | None = None

"""What a program takes and returns as JSON, and back: what is read is not trusted to be any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from dlc.arrays import TensorInfo
from dlc.runtime.host_format import text
from dlc.runtime.open_format import plain, read_size


def info_to_json(info: TensorInfo) -> list[Any]:
    """Name, shape and dtype."""
    return [info.name, list(map(plain, info.shape)), info.dtype.name]


def info_from_json(written: Sequence[Any]) -> TensorInfo:
    """Raises ValueError or TypeError for what is none."""
    name, shape, dtype = written
    return TensorInfo(text(name), tuple(map(read_size, shape)), _dtype(dtype))


def _dtype(name: Any) -> np.dtype[Any]:
    """The dtype called `name`, one of numbers or bools."""
    dtype = np.dtype(getattr(ml_dtypes, text(name), name))
    if dtype.name != name or dtype.kind not in "biufV":
        raise ValueError(f"{name!r} is no dtype of numbers")
    return dtype

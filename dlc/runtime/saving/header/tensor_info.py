"""What a program takes and returns as JSON, and back: what is read is not trusted to be any."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from dlc.arrays import TensorInfo, named_dtype
from dlc.runtime.saving.header.values import count, plain, read_size, text


def info_to_json(info: TensorInfo) -> list[Any]:
    """Name, shape and dtype."""
    return [info.name, list(map(plain, info.shape)), info.dtype.name]


def info_from_json(written: Sequence[Any]) -> TensorInfo:
    """Raises ValueError or TypeError for what is none."""
    name, shape, dtype = written
    info = TensorInfo(text(name), tuple(map(read_size, shape)), named_dtype(dtype))
    count(prod((*(s for s in info.shape if isinstance(s, int)), info.dtype.itemsize)))
    return info

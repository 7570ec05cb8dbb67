"""Serialization of tensor descriptions. Input is untrusted and validated."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from dlc.arrays import TensorInfo, named_dtype
from dlc.runtime.saving.header.values import count, size_from_json, size_to_json, text


def info_to_json(info: TensorInfo) -> list[Any]:
    """Return name, shape and dtype."""
    return [info.name, list(map(size_to_json, info.shape)), info.dtype.name]


def info_from_json(written: Sequence[Any]) -> TensorInfo:
    """Read a TensorInfo. Raises ValueError or TypeError for invalid input."""
    name, shape, dtype = written
    info = TensorInfo(text(name), tuple(map(size_from_json, shape)), named_dtype(dtype))
    count(prod((*(s for s in info.shape if isinstance(s, int)), info.dtype.itemsize)))
    return info

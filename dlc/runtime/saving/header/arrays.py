"""Serialization of named arrays. Input is untrusted and validated."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.runtime.saving.container import Container, SectionWriter, as_byte_view
from dlc.runtime.saving.header.tensor_info import info_from_json, info_to_json
from dlc.shapes.dims import is_static


def array_to_json(name: str, array: NDArray[Any], writer: SectionWriter) -> list[Any]:
    """Return name, shape, dtype, and the section with the elements."""
    return [*info_to_json(TensorInfo(name, array.shape, array.dtype)), writer.add(as_byte_view(array))]


def array_from_json(fields: Sequence[Any], container: Container) -> tuple[TensorInfo, NDArray[Any]]:
    """Return an array, mapped from the file, with its description.

    Raises what Container.section raises, ValueError or TypeError.
    """
    info, data = info_from_json(fields[:3]), container.section(fields[3])
    if not is_static(info.shape):
        raise ValueError("an array of symbolic size")
    shape = [int(s) for s in info.shape]
    if prod(shape) * info.dtype.itemsize != len(data):
        raise ValueError(f"{info}: its section has {len(data)} bytes")
    return info, np.frombuffer(data, info.dtype).reshape(shape)


def arrays_from_json(entries: Sequence[Any], container: Container) -> tuple[tuple[TensorInfo, ...], dict[str, NDArray[Any]]]:
    """Return the descriptions of arrays, in order, and the arrays by name. Raises what array_from_json raises."""
    arrays = [array_from_json(fields, container) for fields in entries]
    return tuple(info for info, _ in arrays), {info.name: array for info, array in arrays}

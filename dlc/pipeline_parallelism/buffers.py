"""Arrays in flat buffers, one per dtype.

All ranks run one program, so that the buffers of all stages have equal sizes: shorter ones are padded with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

import dlc.numpy as dnp
from dlc.arrays import ALIGNMENT_BYTES
from dlc.traced_functions.leaf_functions import require_trace

# The shape and the dtype of an array.
ArrayType: TypeAlias = tuple[tuple[int, ...], np.dtype[Any]]
# The buffer of each dtype, by its name.
Buffers: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class BufferLayout:
    """The positions of arrays in flat buffers. Each begins at a multiple of the alignment of kernels, so that it is a view.

    Attributes:
        types: The types of the arrays, in their order.
        sizes: The number of elements of each buffer, by dtype.
    """

    types: tuple[ArrayType, ...]
    sizes: dict[str, int]

    def pack(self, arrays: Sequence[Any], leading: tuple[int, ...] = ()) -> Buffers:
        """Return the buffers of arrays; all of them may have the same leading axes."""
        parts: dict[str, list[Any]] = {name: [] for name in self.sizes}
        for array, array_type in zip(arrays, self.types, strict=True):
            shape, dtype = array_type
            flat = dnp.reshape(array, (*leading, prod(shape))).astype(dtype)
            padding = _padded_size(array_type) - prod(shape)
            parts[dtype.name] += [flat, zeros((*leading, padding), dtype)] if padding else [flat]
        return {name: _concatenate_and_pad(parts[name], (*leading, size), np.dtype(name)) for name, size in self.sizes.items()}

    def unpack(self, buffers: Buffers) -> list[Any]:
        """Return the arrays of buffers."""
        ends, arrays = dict.fromkeys(self.sizes, 0), list[Any]()
        for array_type in self.types:
            shape, dtype = array_type
            start = ends[dtype.name]
            ends[dtype.name] += _padded_size(array_type)
            buffer = buffers[dtype.name]
            arrays.append(dnp.reshape(buffer[..., start : start + prod(shape)], (*buffer.shape[:-1], *shape)))
        return arrays

    def zeros(self) -> Buffers:
        """Return buffers of zeros."""
        return {name: zeros((size,), np.dtype(name)) for name, size in self.sizes.items()}


def _padded_size(array_type: ArrayType) -> int:
    """Return the number of elements that an array occupies in a buffer, alignment included."""
    shape, dtype = array_type
    step = max(1, ALIGNMENT_BYTES // dtype.itemsize)
    return -(-prod(shape) // step) * step


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return zeros that the program does not store: a broadcast scalar."""
    return dnp.broadcast_to(require_trace().value(np.zeros((), dtype)), shape)


def common_layouts(types_of_stages: Sequence[Sequence[ArrayType]]) -> list[BufferLayout]:
    """Return layouts with equal sizes for the arrays of each stage."""
    sizes: dict[str, int] = {}
    for types in types_of_stages:
        for name in {dtype.name for _, dtype in types}:
            total = sum(_padded_size(array_type) for array_type in types if array_type[1].name == name)
            sizes[name] = max(sizes.get(name, 0), total)
    ordered = dict(sorted(sizes.items()))
    return [BufferLayout(tuple(types), ordered) for types in types_of_stages]


def _concatenate_and_pad(parts: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    missing = shape[-1] - sum(part.shape[-1] for part in parts)
    padding = [zeros((*shape[:-1], missing), dtype)] if missing else []
    return dnp.concatenate([*parts, *padding], axis=-1)

"""The host program as plain data: what runs in which order on which buffers, whichever device runs it.

A program's buffers are numbered: 0 is nothing (so that an argument can be a number), 1 the arena, then come inputs,
outputs and weights. An argument of a launch is a buffer and an offset in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import TensorInfo, aligned
from dlc.errors import ModelError

NOTHING, ARENA, FIRST_INPUT = 0, 1, 2  # numbers of buffers


@dataclass(frozen=True)
class Launch:
    """A kernel, its arguments as (buffer, offset in bytes), and their sizes in bytes.

    No kernel is a copy: target, source, number of bytes.
    """

    kernel: str | None
    arguments: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The size of all arguments together."""
        return sum(self.sizes)


@dataclass(frozen=True)
class HostProgram:
    """What runs in which order on which buffers: plain data."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    weights: tuple[TensorInfo, ...]
    arena_bytes: int
    launches: tuple[Launch, ...]


def check_launches(host: HostProgram, kernels: Collection[str]) -> None:
    """Raises ModelError unless every launch runs one of `kernels`, or copies, on parts of the program's buffers.

    What a kernel's code does within the parts that it is given is not seen from here.
    """
    buffers = [0, host.arena_bytes, *(_bytes_of(info) for info in (*host.inputs, *host.outputs, *host.weights))]

    def fits(buffer: int, offset: int, size: int) -> bool:
        return NOTHING < buffer < len(buffers) and 0 <= offset <= offset + size <= buffers[buffer]

    for k, launch in enumerate(host.launches):
        parts, sizes = launch.arguments, launch.sizes
        if launch.kernel is None:
            # A copy says how much in place of a third part.
            sizes = (parts[-1][1],) * 2
            known = len(parts) == 3 and parts[-1][0] == NOTHING
            parts = parts[:-1]
        else:
            known = launch.kernel in kernels
        if not known or len(parts) != len(sizes) or not all(fits(*part, size) for part, size in zip(parts, sizes, strict=True)):
            raise ModelError(f"launch {k} of {launch.kernel or 'a copy'}: its arguments {parts} are no parts of the buffers")


def _bytes_of(info: TensorInfo) -> int:
    return prod(int(size) for size in info.shape) * info.dtype.itemsize


def weight_array(info: TensorInfo, weights: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The array of a weight; kernels trust its size, so that a wrong one must not pass.

    Raises ModelError for a weight that the store lacks or has in another shape or dtype.
    """
    array = weights.get(info.name)
    if array is None:
        raise ModelError(f"weight {info.name}: the store does not have it")
    if array.shape != info.shape or array.dtype != info.dtype:
        raise ModelError(f"weight {info.name}: expected {info}, the store has {array.dtype}{list(array.shape)}")
    return aligned(array)

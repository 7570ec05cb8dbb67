"""Files mapped into memory: weights stay in a model's file until they are wanted, and are not in memory twice then."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import address_of, aligned_empty
from dlc.errors import ModelError

Array = NDArray[Any]


class MappedFile(mmap.mmap):
    """What a file holds, whose arrays are views of it. It is not to be changed while it is read; replacing it does no harm."""

    path: Path
    _descriptor: int
    _seen: tuple[int, int]

    @staticmethod
    def of(path: Path) -> MappedFile:
        """Raises OSError when it cannot be read, and ValueError where there is nothing to map."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            file = MappedFile(descriptor, 0, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(descriptor)
            raise
        file.path, file._descriptor, file._seen = path, descriptor, _state(descriptor)
        weakref.finalize(file, os.close, descriptor)
        return file

    def bytes_at(self, start: int, stop: int) -> bytes:
        """What stands in the file between two places. Raises ModelError as `read_at`."""
        array = np.empty(max(stop - start, 0), np.uint8)
        self.read_at(start, array)
        return array.tobytes()

    def read_at(self, offset: int, array: Array) -> None:
        """Fills an array with what stands in the file from a place on, which nothing but the array keeps in memory.

        Raises ModelError if the file is another one by now: what is read through its mapping, once it is shorter, would end
        the process.
        """
        rest = array.reshape(-1).view(np.uint8).data
        while rest:
            count = os.preadv(self._descriptor, [rest], offset)
            if not count:
                break
            rest, offset = rest[count:], offset + count
        if rest or _state(self._descriptor) != self._seen:
            raise ModelError(f"{self.path}: it was changed while it was being compiled; compile it again")


def file_of(array: Array) -> MappedFile | None:
    """The file that an array lies in; None for one that does not."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = cast(Any, base.base if isinstance(base, np.ndarray) else base.obj)
    return base if isinstance(base, MappedFile) else None


def in_memory(array: Array) -> Array:
    """`array`, which is contiguous, or a copy of it if it lies in a file. Raises ModelError if that was changed meanwhile."""
    file = file_of(array)
    if file is None:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    file.read_at(_place(array, file), copy)
    return copy


def pieces_of(array: Array, starts: Iterable[int], size: int) -> Iterator[memoryview]:
    """Pieces of so many bytes, or as many as are left, of an array that is contiguous; of one in a file as `in_memory`."""
    bytes, file = array.reshape(-1).view(np.uint8), file_of(array)
    if file is None:
        yield from (bytes[start : start + size].data for start in starts)
        return
    place = _place(array, file)
    for start in starts:
        piece = np.empty(min(size, len(bytes) - start), np.uint8)
        file.read_at(place + start, piece)
        yield piece.data


def _place(array: Array, file: MappedFile) -> int:
    return address_of(array) - address_of(np.frombuffer(file, np.uint8))


def _state(descriptor: int) -> tuple[int, int]:
    state = os.fstat(descriptor)
    return state.st_size, state.st_mtime_ns

"""Memory-mapped files: weights are read from the model file when they are used, without an intermediate copy."""

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
from dlc.files.regular_files import open_regular_file

Array = NDArray[Any]


class MappedFile(mmap.mmap):
    """The content of a file; arrays are views of it. The file must not be modified while it is mapped, but may be replaced."""

    path: Path
    _descriptor: int
    _expected_state: tuple[int, int]

    @staticmethod
    def of(path: Path) -> MappedFile:
        """Map a regular file. Raises OSError if it cannot be read, and ValueError if it is empty."""
        descriptor = open_regular_file(path)
        try:
            file = MappedFile(descriptor, 0, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(descriptor)
            raise
        file.path, file._descriptor, file._expected_state = path, descriptor, _state(descriptor)
        weakref.finalize(file, os.close, descriptor)
        return file

    @staticmethod
    def of_model(path: Path) -> MappedFile:
        """Map the file of a model. Raises ModelError if it cannot be read or is empty."""
        try:
            return MappedFile.of(path)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ModelError(f"{path}: the file is empty") from error

    def bytes_at(self, start: int, stop: int) -> bytes:
        """Return the bytes between two offsets. Raises ModelError as `read_at` does."""
        array = np.empty(max(stop - start, 0), np.uint8)
        self.read_at(start, array)
        return array.tobytes()

    def read_at(self, offset: int, array: Array) -> None:
        """Read into an array from an offset, without keeping the file's pages in memory.

        Raises ModelError if the file has changed: reading a truncated file through its mapping would kill the process.
        """
        remaining = array.reshape(-1).view(np.uint8).data
        while remaining:
            count = os.preadv(self._descriptor, [remaining], offset)
            if not count:
                break
            remaining, offset = remaining[count:], offset + count
        if remaining or _state(self._descriptor) != self._expected_state:
            raise ModelError(f"{self.path}: the file changed during compilation; compile it again")


def backing_file(array: Array) -> MappedFile | None:
    """Return the mapped file that an array is a view of; None if there is none."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = cast(Any, base.base if isinstance(base, np.ndarray) else base.obj)
    return base if isinstance(base, MappedFile) else None


def release_pages(array: Array) -> None:
    """Remove the pages of an array that is a view of a mapped file from the memory of the process; access maps them again."""
    file = backing_file(array)
    if file is not None and array.nbytes:
        offset = _file_offset(array, file)
        start = offset - offset % mmap.PAGESIZE
        file.madvise(mmap.MADV_DONTNEED, start, offset + array.nbytes - start)


def copy_to_memory(array: Array) -> Array:
    """Return a contiguous array, copied if it is a view of a file. Raises ModelError if the file has changed."""
    file = backing_file(array)
    if file is None:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    file.read_at(_file_offset(array, file), copy)
    return copy


def iter_chunks(array: Array, starts: Iterable[int], size: int) -> Iterator[memoryview]:
    """Yield chunks of up to `size` bytes of a contiguous array, without keeping the pages of a mapped file in memory."""
    bytes, file = array.reshape(-1).view(np.uint8), backing_file(array)
    if file is None:
        yield from (bytes[start : start + size].data for start in starts)
        return
    base = _file_offset(array, file)
    for start in starts:
        chunk = np.empty(min(size, len(bytes) - start), np.uint8)
        file.read_at(base + start, chunk)
        yield chunk.data


def _file_offset(array: Array, file: MappedFile) -> int:
    return address_of(array) - address_of(np.frombuffer(file, np.uint8))


def _state(descriptor: int) -> tuple[int, int]:
    state = os.fstat(descriptor)
    return state.st_size, state.st_mtime_ns

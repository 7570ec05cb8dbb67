"""FlatBuffers, as far as a model file needs them: tables, vectors and strings of an untrusted buffer.

    table:  i32 distance back to its vtable | fields …        vtable:  u16 bytes of it | u16 bytes of the table | u16 offset of
    field 0, 0 if it is absent | …        vector:  u32 count | elements …        offsets: u32, relative to their own position

(Google's format, "FlatBuffer Internals".) The public library trusts offsets and needs generated classes; here a table is read
by the field numbers of the public schema, and every offset is checked against the buffer. Offsets point forward, so that
nothing contains itself; the total size of vectors is limited, because a buffer may reference one vector often.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError

T = TypeVar("T")
# Limit on the bytes read as vector elements, per byte of the file: legitimate files reference few vectors more than once.
_MAX_READS_PER_BYTE = 16
_SCALARS = {"bool": "<?", "i8": "<b", "u8": "<B", "u16": "<H", "i32": "<i", "u32": "<I", "u64": "<Q", "f32": "<f"}


class FileBytes:
    """The bytes of a file, called `name` in messages."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self._remaining_bytes = _MAX_READS_PER_BYTE * len(data)

    def root(self) -> FlatbufferTable:
        return FlatbufferTable(self, self.scalar("u32", 0))

    def scalar(self, kind: str, offset: int) -> Any:
        code = _SCALARS[kind]
        self.require(offset, struct.calcsize(code))
        return struct.unpack_from(code, self.data, offset)[0]

    def forward(self, offset: int) -> int:
        """Return the target of the offset stored at a position."""
        return offset + self.scalar("u32", offset)

    def elements(self, offset: int, size: int) -> tuple[int, int]:
        """Return the position and the number of the elements, of `size` bytes each, of the vector at a position."""
        count = self.scalar("u32", offset)
        self.require(offset + 4, count * size)
        self._remaining_bytes -= count * size
        if self._remaining_bytes < 0:
            raise ModelError(
                f"{self.name}: damaged: its vectors have more than {_MAX_READS_PER_BYTE} times the size of the file"
            )
        return offset + 4, count

    def require(self, offset: int, size: int) -> None:
        """Raise ModelError unless there are `size` bytes at a position."""
        if not 0 <= offset <= len(self.data) - size:
            raise ModelError(
                f"{self.name}: damaged or truncated: {size} bytes at offset {offset} are outside of {len(self.data)} bytes"
            )


class FlatbufferTable:
    """A table: `table.scalar(3, "i32")` is its field 3, 0 if it is absent."""

    def __init__(self, buffer: FileBytes, offset: int) -> None:
        self.buffer, self.offset = buffer, offset
        self._vtable = offset - buffer.scalar("i32", offset)
        self._bytes = buffer.scalar("u16", self._vtable)
        buffer.require(self._vtable, self._bytes)

    def _field(self, number: int) -> int | None:
        """Return the position of a field; None if it is absent."""
        entry = 4 + 2 * number
        if entry + 2 > self._bytes:
            return None
        offset = self.buffer.scalar("u16", self._vtable + entry)
        return self.offset + offset if offset else None

    def scalar(self, number: int, kind: str, default: Any = 0) -> Any:
        offset = self._field(number)
        return default if offset is None else self.buffer.scalar(kind, offset)

    def table(self, number: int) -> FlatbufferTable | None:
        offset = self._field(number)
        return None if offset is None else FlatbufferTable(self.buffer, self.buffer.forward(offset))

    def tables(self, number: int, read: Callable[[FlatbufferTable], T]) -> list[T]:
        """Apply `read` to each table of a vector of tables."""
        offset = self._field(number)
        if offset is None:
            return []
        first, count = self.buffer.elements(self.buffer.forward(offset), 4)
        return [read(FlatbufferTable(self.buffer, self.buffer.forward(first + 4 * k))) for k in range(count)]

    def array(self, number: int, dtype: str) -> NDArray[Any] | None:
        """Return a numeric vector without copying; None if it is absent."""
        offset = self._field(number)
        if offset is None:
            return None
        first, count = self.buffer.elements(self.buffer.forward(offset), np.dtype(dtype).itemsize)
        return np.frombuffer(self.buffer.data, dtype, count, first)

    def integers(self, number: int) -> tuple[int, ...]:
        """Return a vector of i32."""
        array = self.array(number, "<i4")
        return () if array is None else tuple(array.tolist())

    def string(self, number: int) -> str:
        array = self.array(number, "u1")
        return "" if array is None else array.tobytes().decode("utf-8", "replace")

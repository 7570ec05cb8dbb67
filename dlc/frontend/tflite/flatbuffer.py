"""FlatBuffers, as far as a model file needs them: tables, vectors and strings of a buffer that nobody vouches for.

    table:  i32 distance back to its vtable | fields …        vtable:  u16 bytes of it | u16 bytes of the table | u16 place of
    field 0, 0 where it is absent | …        vector:  u32 count | elements …        offsets: u32 forward from where they stand

(Google's format, "FlatBuffer Internals".) The public library trusts offsets, and its accessors are a class for each table;
here a table is read by the numbers that the public schema gives its fields, and every place is checked against the buffer.
Offsets lead forward, so that nothing contains itself; what a buffer repeats by sharing is counted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError

T = TypeVar("T")
# How often, on the average, the bytes of a buffer may be read as elements of vectors; writers share few of them.
_SHARED = 16
_SCALARS = {"bool": "<?", "i8": "<b", "u8": "<B", "u16": "<H", "i32": "<i", "u32": "<I", "u64": "<Q", "f32": "<f"}


class Buffer:
    """The bytes of a file, called `name` in messages."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self._left = _SHARED * len(data)

    def root(self) -> Table:
        return Table(self, self.scalar("u32", 0))

    def scalar(self, kind: str, place: int) -> Any:
        code = _SCALARS[kind]
        self.require(place, struct.calcsize(code))
        return struct.unpack_from(code, self.data, place)[0]

    def forward(self, place: int) -> int:
        """Where the offset at a place leads to."""
        return place + self.scalar("u32", place)

    def elements(self, place: int, size: int) -> tuple[int, int]:
        """Where the elements of the vector at a place begin, and how many there are, each of so many bytes."""
        count = self.scalar("u32", place)
        self.require(place + 4, count * size)
        self._left -= count * size
        if self._left < 0:
            raise ModelError(f"{self.name}: damaged: its vectors hold more than {_SHARED} times what the file has")
        return place + 4, count

    def require(self, place: int, size: int) -> None:
        """Raises ModelError unless there are so many bytes at a place."""
        if not 0 <= place <= len(self.data) - size:
            raise ModelError(
                f"{self.name}: damaged or truncated: {size} bytes at {place} are outside of the {len(self.data)} of the file"
            )


class Table:
    """A table: `table.scalar(3, "i32")` is its field 3, 0 where it is absent."""

    def __init__(self, buffer: Buffer, place: int) -> None:
        self.buffer, self.place = buffer, place
        self._vtable = place - buffer.scalar("i32", place)
        self._bytes = buffer.scalar("u16", self._vtable)
        buffer.require(self._vtable, self._bytes)

    def _field(self, number: int) -> int | None:
        """Where a field stands; None where it is absent."""
        entry = 4 + 2 * number
        if entry + 2 > self._bytes:
            return None
        offset = self.buffer.scalar("u16", self._vtable + entry)
        return self.place + offset if offset else None

    def scalar(self, number: int, kind: str, default: Any = 0) -> Any:
        place = self._field(number)
        return default if place is None else self.buffer.scalar(kind, place)

    def table(self, number: int) -> Table | None:
        place = self._field(number)
        return None if place is None else Table(self.buffer, self.buffer.forward(place))

    def tables(self, number: int, read: Callable[[Table], T]) -> list[T]:
        """What `read` makes of the tables of a vector."""
        place = self._field(number)
        if place is None:
            return []
        first, count = self.buffer.elements(self.buffer.forward(place), 4)
        return [read(Table(self.buffer, self.buffer.forward(first + 4 * k))) for k in range(count)]

    def array(self, number: int, dtype: str) -> NDArray[Any] | None:
        """A vector of numbers, which are not copied; None where it is absent."""
        place = self._field(number)
        if place is None:
            return None
        first, count = self.buffer.elements(self.buffer.forward(place), np.dtype(dtype).itemsize)
        return np.frombuffer(self.buffer.data, dtype, count, first)

    def integers(self, number: int) -> tuple[int, ...]:
        """A vector of i32."""
        array = self.array(number, "<i4")
        return () if array is None else tuple(array.tolist())

    def text(self, number: int) -> str:
        array = self.array(number, "u1")
        return "" if array is None else array.tobytes().decode("utf-8", "replace")

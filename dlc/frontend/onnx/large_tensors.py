"""Model files without their large tensors, which are read from where they lie in the file.

protobuf copies what a message holds, and hands out another copy: with weights of half a gigabyte both are worth avoiding.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, TypeAlias, overload

from onnx import ModelProto, TensorProto

from dlc.files.mapped_files import MappedFile

# What a file holds: in memory, or mapped into it.
Content: TypeAlias = bytes | MappedFile
# From how many bytes on a tensor is large.
LARGE = 1 << 16
# The location of external data that is inside of the model's own file: no file is called so.
INSIDE = "\0"
_RAW = TensorProto.DESCRIPTOR.fields_by_name["raw_data"]
# How the value of a field is written, by the lowest bits of its tag: a number, 8 bytes, so many bytes, 4 bytes.
_NUMBER, _EIGHT, _SO_MANY, _FOUR = 0, 1, 2, 5


def content_of(path: Path) -> Content:
    """What a file holds. Raises OSError when it cannot be read, and for a device, which need not end (/dev/zero)."""
    if path.is_char_device():
        raise OSError(errno.EINVAL, "it is a device, not a file")
    # What is no file, a pipe or a folder say, cannot be mapped.
    return MappedFile.of(path) if path.is_file() and path.stat().st_size >= LARGE else path.read_bytes()


def all_of(content: Content) -> bytes:
    """What a file holds, in memory. Raises ModelError if it is changed meanwhile."""
    return content.bytes_at(0, len(content)) if isinstance(content, MappedFile) else content


class _Read:
    """What a file holds, read in blocks: to look at it through its mapping ends the process if it is cut short meanwhile."""

    def __init__(self, file: MappedFile) -> None:
        self.file, self.block, self.first = file, b"", 0

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice[int, int, None]) -> bytes: ...
    def __getitem__(self, place: int | slice[int, int, None]) -> int | bytes:
        if isinstance(place, slice):
            return self.file.bytes_at(place.start, place.stop)
        if not 0 <= place - self.first < len(self.block):
            self.block, self.first = self.file.bytes_at(place, min(place + LARGE, len(self.file))), place
        return self.block[place - self.first]


def without_large_tensors(content: Content) -> bytes:
    """A model as its file holds it, with each large `raw_data` replaced by where it is: external data that is `INSIDE`.

    What is no message comes back as it is, for protobuf to say so.
    """
    try:
        data = _Read(content) if isinstance(content, MappedFile) else memoryview(content)
        return b"".join(_cut(data, 0, len(content), ModelProto.DESCRIPTOR))
    except (IndexError, ValueError, RecursionError):
        return all_of(content)


def _cut(data: memoryview | _Read, at: int, end: int, message: Any) -> list[bytes | memoryview]:
    """The pieces of the message between two places. Raises IndexError or ValueError for what is none."""
    pieces: list[bytes | memoryview] = []
    # Of a field that is there twice the last one counts: where `raw_data` is comes after all that the file says.
    where = b""
    taken, fields = at, message.fields_by_number
    while at < end:
        start = at
        tag, at = _number(data, at)
        wire = tag & 7
        if wire == _NUMBER:
            _, at = _number(data, at)
        elif wire == _EIGHT:
            at += 8
        elif wire == _FOUR:
            at += 4
        elif wire == _SO_MANY:
            size, at = _number(data, at)
            field = fields.get(tag >> 3) if size >= LARGE else None
            if at + size > end:
                raise ValueError("a field goes beyond its message")
            if field == _RAW:
                pieces.append(data[taken:start])
                taken, where = at + size, _found_at(at, size)
            elif field is not None and field.message_type is not None:
                inner = _cut(data, at, at + size, field.message_type)
                pieces += [data[taken:start], _encoded(tag), _encoded(sum(map(len, inner))), *inner]
                taken = at + size
            at += size
        else:
            raise ValueError(f"no field is written as {wire}")
    if at > end:
        raise ValueError("a field goes beyond its message")
    return [*pieces, data[taken:end], where]


def _found_at(offset: int, size: int) -> bytes:
    """The fields of a tensor that say so."""
    tensor = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, value in (("location", INSIDE), ("offset", str(offset)), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)
    return tensor.SerializeToString()


def _number(data: memoryview | _Read, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    number, shift = 0, 0
    while shift < 70:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
    raise ValueError("a number that does not end")


def _encoded(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes((*digits, number))

"""Strip large tensors from model files before protobuf parses them; they are later read directly from the file.

protobuf copies the data of a message twice, which is expensive for hundreds of megabytes of weights.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, TypeAlias, overload

from onnx import ModelProto, TensorProto

from dlc.files.mapped_files import MappedFile

# The contents of a file: in memory, or memory-mapped.
Content: TypeAlias = bytes | MappedFile
# Minimum size of a large tensor.
LARGE_TENSOR_BYTES = 1 << 16
# The external data location that denotes the model file itself; not a valid file name.
OWN_FILE_LOCATION = "\0"
_RAW = TensorProto.DESCRIPTOR.fields_by_name["raw_data"]
# The wire types of protobuf: the lowest three bits of a tag.
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5


def open_content(path: Path) -> Content:
    """Return the contents of a file. Raises OSError if it cannot be read, or is a device, which may be endless (/dev/zero)."""
    if path.is_char_device():
        raise OSError(errno.EINVAL, "it is a device, not a file")
    # Pipes cannot be mapped; reading a folder raises OSError.
    return MappedFile.of(path) if path.is_file() and path.stat().st_size >= LARGE_TENSOR_BYTES else path.read_bytes()


def read_all(content: Content) -> bytes:
    """Return the contents of a file in memory. Raises ModelError if the file changes meanwhile."""
    return content.bytes_at(0, len(content)) if isinstance(content, MappedFile) else content


class _BlockReader:
    """Read a mapped file in blocks: access to the mapping itself would crash the process if the file is truncated meanwhile."""

    def __init__(self, file: MappedFile) -> None:
        self.file, self.block, self.first = file, b"", 0

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice[int, int, None]) -> bytes: ...
    def __getitem__(self, index: int | slice[int, int, None]) -> int | bytes:
        if isinstance(index, slice):
            return self.file.bytes_at(index.start, index.stop)
        if not 0 <= index - self.first < len(self.block):
            self.block, self.first = self.file.bytes_at(index, min(index + LARGE_TENSOR_BYTES, len(self.file))), index
        return self.block[index - self.first]


def without_large_tensors(content: Content) -> bytes:
    """Return a serialized model with each large `raw_data` replaced by external data at `OWN_FILE_LOCATION`.

    Malformed contents are returned unchanged, for protobuf to reject.
    """
    try:
        data = _BlockReader(content) if isinstance(content, MappedFile) else memoryview(content)
        return b"".join(_strip(data, 0, len(content), ModelProto.DESCRIPTOR))
    except (IndexError, ValueError, RecursionError):
        return read_all(content)


def _strip(data: memoryview | _BlockReader, position: int, end: int, message: Any) -> list[bytes | memoryview]:
    """Return the message in a range of offsets as a list of bytes objects. Raises IndexError or ValueError if malformed."""
    chunks: list[bytes | memoryview] = []
    # The last occurrence of a field wins: the location of `raw_data` is appended after all other fields.
    external_data = b""
    copied_end, fields = position, message.fields_by_number
    while position < end:
        start = position
        tag, position = _read_varint(data, position)
        wire = tag & 7
        if wire == _VARINT:
            _, position = _read_varint(data, position)
        elif wire == _FIXED64:
            position += 8
        elif wire == _FIXED32:
            position += 4
        elif wire == _LENGTH_DELIMITED:
            size, position = _read_varint(data, position)
            field = fields.get(tag >> 3) if size >= LARGE_TENSOR_BYTES else None
            if position + size > end:
                raise ValueError("a field goes beyond its message")
            if field == _RAW:
                chunks.append(data[copied_end:start])
                copied_end, external_data = position + size, _external_data_fields(position, size)
            elif field is not None and field.message_type is not None:
                inner = _strip(data, position, position + size, field.message_type)
                chunks += [data[copied_end:start], _encode_varint(tag), _encode_varint(sum(map(len, inner))), *inner]
                copied_end = position + size
            position += size
        else:
            raise ValueError(f"unknown wire type {wire}")
    if position > end:
        raise ValueError("a field goes beyond its message")
    return [*chunks, data[copied_end:end], external_data]


def _external_data_fields(offset: int, size: int) -> bytes:
    """Return the serialized fields of a tensor that reference external data in the model file."""
    tensor = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, value in (("location", OWN_FILE_LOCATION), ("offset", str(offset)), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)
    return tensor.SerializeToString()


def _read_varint(data: memoryview | _BlockReader, position: int) -> tuple[int, int]:
    """Read a varint: seven bits per byte, the lowest first. Return its value and its end."""
    number, shift = 0, 0
    while shift < 70:
        byte = data[position]
        number |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return number, position
    raise ValueError("a varint of more than ten bytes")


def _encode_varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes((*digits, number))

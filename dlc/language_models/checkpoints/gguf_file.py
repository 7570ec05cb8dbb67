"""Read GGUF files: metadata and tensors as views of the mapped file.

The format is specified in https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every count, length and offset is checked
against the size of the file before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError, UnsupportedError
from dlc.files.mapped_files import MappedFile
from dlc.language_models.checkpoints.block_formats import GGUF_TYPES, GgufType

Metadata: TypeAlias = "Mapping[str, Any]"

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT_BYTES = 32
_MAX_ALIGNMENT_BYTES = 1 << 20
_MAX_RANK = 4
_MAX_ARRAY_DEPTH = 4
# Metadata types by number.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# A string has at least a length, and a tensor a name, a rank, a type and an offset.
_MIN_TENSOR_BYTES = 24


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a file.

    Attributes:
        shape: The shape in row-major order: the reverse of the order in the file.
        type: The element or block format.
        data: Its bytes, a view of the mapped file: [rows, bytes per row], where a row runs along the last axis.
    """

    name: str
    shape: tuple[int, ...]
    type: GgufType
    data: NDArray[np.uint8]


@dataclass(frozen=True)
class GgufFile:
    """The metadata and tensors of a GGUF file, by name."""

    path: Path
    metadata: Metadata
    tensors: Mapping[str, GgufTensor]

    @staticmethod
    def read(path: Path) -> GgufFile:
        """Map a file. Raises ModelError for a file that is truncated, malformed, or not GGUF, UnsupportedError for a type."""
        return _Reader(path, MappedFile.of_model(path)).read()


class _Reader:
    """Reads the header of a mapped file from front to back."""

    def __init__(self, path: Path, file: MappedFile) -> None:
        self.path = path
        self.bytes = np.frombuffer(file, np.uint8)
        self.content = memoryview(file)
        self.position = 0

    def read(self) -> GgufFile:
        if bytes(self.take(4, "magic number")) != _MAGIC:
            raise ModelError(f"{self.path}: not a GGUF file: it does not start with GGUF")
        version = self.number("I", "version")
        if version not in _VERSIONS:
            hint = "; it may be in big-endian byte order" if version & 0xFFFF == 0 else ""
            raise UnsupportedError(f"{self.path}: GGUF version {version}; expected 2 or 3{hint}")
        num_tensors, num_fields = self.number("Q", "number of tensors"), self.number("Q", "number of metadata fields")
        self.require_room(num_tensors, _MIN_TENSOR_BYTES, "tensors")
        self.require_room(num_fields, 12, "metadata fields")
        metadata: dict[str, Any] = {}
        for _ in range(num_fields):
            name = self.string("name of a metadata field")
            metadata[name] = self.value(self.number("I", name), name)
        entries = [self.tensor_entry() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT_BYTES)
        if not isinstance(alignment, int) or not 1 <= alignment <= _MAX_ALIGNMENT_BYTES or alignment & (alignment - 1):
            raise ModelError(f"{self.path}: general.alignment {alignment!r}; expected a power of two")
        start = -(-self.position // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, shape, tensor_type, offset in entries:
            if name in tensors:
                raise ModelError(f"{self.path}: two tensors are called {name!r}")
            tensors[name] = self.tensor(name, shape, tensor_type, start + offset)
        return GgufFile(self.path, metadata, tensors)

    def tensor_entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.string("name of a tensor")
        rank = self.number("I", name)
        if not 1 <= rank <= _MAX_RANK:
            raise ModelError(f"{self.path}: tensor {name!r} has {rank} axes; expected 1 to {_MAX_RANK}")
        shape = tuple(self.number("Q", name) for _ in range(rank))
        return name, shape[::-1], self.number("I", name), self.number("Q", name)

    def tensor(self, name: str, shape: tuple[int, ...], type_number: int, offset: int) -> GgufTensor:
        tensor_type = GGUF_TYPES.get(type_number)
        if tensor_type is None:
            supported = ", ".join(t.name for t in GGUF_TYPES.values())
            raise UnsupportedError(f"{self.path}: tensor {name!r} has type {type_number}; supported: {supported}")
        if 0 in shape:
            raise ModelError(f"{self.path}: tensor {name!r} of shape {shape} has no elements; the file is damaged")
        if shape[-1] % tensor_type.elements:
            raise ModelError(
                f"{self.path}: tensor {name!r} of shape {shape}: its rows are not a multiple of the {tensor_type.elements} "
                f"elements of a {tensor_type.name} block"
            )
        row_bytes, rows = shape[-1] // tensor_type.elements * tensor_type.bytes, prod(shape[:-1])
        available = len(self.bytes) - offset
        if rows * row_bytes > available:
            raise ModelError(
                f"{self.path}: tensor {name!r} of shape {shape} has {rows * row_bytes} bytes at offset {offset}, beyond the "
                f"end of the file ({len(self.bytes)} bytes); the file is truncated or damaged"
            )
        return GgufTensor(name, shape, tensor_type, self.bytes[offset : offset + rows * row_bytes].reshape(rows, row_bytes))

    def value(self, kind: int, name: str, depth: int = 0) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind], name)
        if kind == _STRING:
            return self.string(name)
        if kind != _ARRAY or depth == _MAX_ARRAY_DEPTH:
            raise ModelError(f"{self.path}: metadata field {name!r} has the unknown type {kind}")
        element_kind, count = self.number("I", name), self.number("Q", name)
        if element_kind in _NUMBERS:
            code = _NUMBERS[element_kind]
            data = self.take_elements(count, struct.calcsize(code), name)
            return np.frombuffer(data, np.dtype(code).newbyteorder("<"))
        self.require_room(count, 8, f"elements of {name!r}")
        if element_kind == _STRING:
            return self.strings(count, name)
        return [self.value(element_kind, name, depth + 1) for _ in range(count)]

    def strings(self, count: int, name: str) -> list[str]:
        """Read consecutive strings: vocabularies have hundreds of thousands."""
        content, position, end = self.content, self.position, len(self.content)
        unpack, texts = struct.Struct("<Q").unpack_from, list[str]()
        for _ in range(count):
            if position + 8 > end:
                raise self.truncated(name)
            (size,) = unpack(content, position)
            position += 8
            if size > end - position:
                raise self.truncated(name)
            texts.append(str(content[position : position + size], "utf-8", "replace"))
            position += size
        self.position = position
        return texts

    def string(self, name: str) -> str:
        return str(self.take(self.number("Q", name), name), "utf-8", "replace")

    def number(self, code: str, name: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(code), name))[0]

    def take_elements(self, count: int, element_bytes: int, name: str) -> memoryview:
        self.require_room(count, element_bytes, f"elements of {name!r}")
        return self.take(count * element_bytes, name)

    def take(self, size: int, name: str) -> memoryview:
        if size > len(self.content) - self.position:
            raise self.truncated(name)
        self.position += size
        return self.content[self.position - size : self.position]

    def require_room(self, count: int, min_bytes: int, what: str) -> None:
        """Raise ModelError if the rest of the file cannot hold `count` items."""
        if count * min_bytes > len(self.content) - self.position:
            raise ModelError(f"{self.path}: {count} {what} do not fit the file; it is truncated or damaged")

    def truncated(self, name: str) -> ModelError:
        return ModelError(f"{self.path}: the file ends within its header, in {name!r}; it is truncated or damaged")

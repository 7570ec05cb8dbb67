"""The container format of model files: a header, and sections of bytes that are aligned to 4096 bytes.

    "dlcmodel" · version · size and checksum of the header · position of the program · header (JSON) · sections

The first section is the code of the runtime. The others are program images with their kernels (cpu/program_image.py), tables
that select a program for a call (variant_table.py), and packed weights, each stored once however many programs use it. OpenCL
programs have the source of their kernels instead of code (opencl/artifact.py). The header describes how these form a model. A
model of one program, or of several that are selected by values or shapes, runs without the header. Its prefix has the position
of the program, or of the table, relative to the first section. A negative value is the reason why there is none.

The header and each section have a checksum that is verified when the file is read: CRC-32C for sections of files with native
code, else CRC-32. Sections are memory-mapped, so that processes share them, unless they are requested in memory.
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from dataclasses import fields as parse_fields
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dlc.errors import DlcError, ModelError
from dlc.files.atomic_writes import atomic_write
from dlc.files.mapped_files import MappedFile, release_pages
from dlc.runtime.saving.checksum import Checksum, choose_checksum
from dlc.runtime.saving.header.values import count, text
from dlc.target import Target, WorkGroups, architecture_of, is_opencl

MAGIC = b"dlcmodel"
_ELF_MAGIC = b"\x7fELF"
# Changes with the layout of the file and with the meaning of its contents.
VERSION = 28
PREFIX = struct.Struct("<8sIIQq")  # magic, version, CRC-32 of the header, size of the header, position of the program
# Positions of models that need the header: for OpenCL devices, with converted inputs or outputs, with data-dependent selection.
_ON_DEVICE, _HAS_STRINGS, _DATA_DEPENDENT = -3, -2, -1
PAGE_BYTES = 4096
# Larger headers are rejected as damaged.
_MAX_HEADER_BYTES = 256 << 20
# Pages are released after this number of bytes is verified: rarely, and before they take much memory.
_CHECKSUM_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class SharedFields:
    """Header fields that all programs of a model share: target, object code of the runtime (empty for OpenCL), numerics."""

    target: Target
    runtime: bytes
    numerics: str = "default"

    @property
    def checksum(self) -> Checksum:
        """The checksum function of sections."""
        return choose_checksum(self.target, self.runtime)


class SectionRef(NamedTuple):
    """A reference to a section: its distance from the referring section, its size in bytes, and its CRC-32C."""

    distance: int
    bytes: int
    checksum: int


class Saveable(Protocol):
    """The protocol of objects that can be written to a model file."""

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Add sections for code and weights, and return the header fields; `defaults` are those of its inputs.

        Raises UnsupportedError if there is nothing to save.
        """
        ...


class SectionWriter:
    """Collects the sections of a file, each once."""

    def __init__(self) -> None:
        self._shared_fields: SharedFields | None = None
        self._sections: list[memoryview] = []
        self._checksums: list[int] = []
        self._references: list[SectionRef] = []
        # The sections that have a size and checksum.
        self._sections_by_digest: dict[tuple[int, int], list[int]] = {}
        self._starts = [0]

    def require(self, common: SharedFields) -> None:
        """Set the shared fields. Raises DlcError if a program has different ones."""
        if self._shared_fields is None:
            self._shared_fields = common
            if common.runtime:
                self.add(memoryview(common.runtime))
        elif self._shared_fields != common:
            raise DlcError(
                "programs that were compiled for different targets, or by different versions of dlc, cannot be combined"
            )

    @property
    def _shared(self) -> SharedFields:
        """The shared fields, which the first program has set."""
        assert self._shared_fields is not None, "programs set the shared fields first"
        return self._shared_fields

    def add(self, data: memoryview) -> int:
        """Return the index of the section with this content; add it if it does not exist."""
        # The checksum includes the padding, so that every byte of the file is verified.
        padding = memoryview(bytes(-len(data) % PAGE_BYTES))
        data_checksum = self._shared.checksum(data, 0)
        checksum = self._shared.checksum(padding, data_checksum)
        candidates = self._sections_by_digest.setdefault((len(data), checksum), [])
        for index in candidates:
            if self._sections[index] == data:
                return index
        candidates.append(len(self._sections))
        self._references.append(SectionRef(self._starts[-1], len(data), data_checksum))
        self._starts.append(self._starts[-1] + len(data) + len(padding))
        self._sections.append(data)
        self._checksums.append(checksum)
        return candidates[-1]

    def reference_to(self, section: int) -> SectionRef:
        """Return a reference to a section, relative to the next new one."""
        reference = self._references[section]
        return reference._replace(distance=reference.distance - self._starts[-1])

    def write(self, file: IO[bytes], model: Mapping[str, Any]) -> None:
        """Write the file."""
        starts, common = self._starts, self._shared
        section_table = [
            [offset, len(data), checksum]
            for offset, data, checksum in zip(starts, self._sections, self._checksums, strict=False)
        ]
        program = self._starts[count(model["image"])] if "image" in model else _no_program_code(common, model)
        fields = {**_common_to_json(common), "model": model, "sections": section_table}
        header = json.dumps(fields, separators=(",", ":")).encode()
        start = -(-(PREFIX.size + len(header)) // PAGE_BYTES) * PAGE_BYTES
        file.write(PREFIX.pack(MAGIC, VERSION, zlib.crc32(header), len(header), program) + header)
        for offset, data in zip(starts, self._sections, strict=False):
            file.write(bytes(start + offset - file.tell()))
            file.write(data)
        file.write(bytes(start + starts[-1] - file.tell()))


def save(path: Path, model: Saveable) -> None:
    """Write a model to a file atomically. Raises DlcError if it cannot be written."""
    writer = SectionWriter()
    fields = model.serialize(writer, {})
    with atomic_write(path) as file:
        writer.write(file, fields)


def require_no_other_file(path: Path) -> None:
    """Raise DlcError for a file that is not a compiled model, such as a source model, which saving would replace."""
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb") as existing:
        if existing.read(len(MAGIC)) != MAGIC:
            raise DlcError(f"{path} exists, and is not a compiled model; save to another path, such as {path.stem}.dlc")


def to_bytes(model: Saveable) -> bytes:
    """Return the content of a model's file."""
    writer = SectionWriter()
    fields = model.serialize(writer, {})
    file = BytesIO()
    writer.write(file, fields)
    return file.getvalue()


@dataclass(frozen=True)
class Container:
    """A model file with verified checksums; `model` has the header fields of the model, which are not validated yet."""

    path: Path
    common: SharedFields
    model: Mapping[str, Any]
    data: memoryview
    sections: tuple[tuple[int, int, int], ...]

    @staticmethod
    def read(path: Path, content: memoryview | None = None) -> Container:
        """Read a file, or the page-aligned `content` of one; `path` is used in messages.

        Raises ModelError for an invalid or damaged file, and for one of another version of dlc.
        """
        program, header, data = _read(path, content if content is not None else _mapped(path))
        try:
            sections = tuple(
                (count(program_offset), count(size), count(checksum)) for program_offset, size, checksum in header["sections"]
            )
            common = _read_common(path, header, data, sections)
            container = Container(path, common, header["model"], data, sections)
            model = container.model
            program_offset: int = sections[count(model["image"])][0] if "image" in model else _no_program_code(common, model)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise invalid_header(path, error) from error
        if program != program_offset:
            raise damaged(path, "the position of the program is wrong")
        container.check()
        return container

    def check(self) -> None:
        """Raise ModelError unless all checksums match and there are no other bytes.

        This leaves no pages of a mapped file in memory, since calls may use few of them, such as some rows of embeddings.
        """
        bytes = np.frombuffer(self.data, np.uint8)
        for index, (offset, size, expected) in enumerate(self.sections):
            end, checksum = min(offset + size + -size % PAGE_BYTES, len(bytes)), 0
            for start in range(offset, end, _CHECKSUM_CHUNK_BYTES):
                chunk = bytes[start : min(start + _CHECKSUM_CHUNK_BYTES, end)]
                checksum = self.common.checksum(chunk.data, checksum)
                release_pages(chunk)
            if checksum != expected:
                raise damaged(self.path, f"the checksum of section {index} does not match")
        if sum(size + -size % PAGE_BYTES for _, size, _ in self.sections) != len(self.data):
            raise damaged(self.path, "its size does not match its sections")

    def section(self, index: Any) -> memoryview:
        """Return the bytes of a section. Raises IndexError or ModelError for an invalid index."""
        return _slice(self.path, self.data, self.sections, count(index))


def _no_program_code(common: SharedFields, model: Mapping[str, Any]) -> int:
    if not common.runtime:
        return _ON_DEVICE
    return _HAS_STRINGS if "io_signature" in model else _DATA_DEPENDENT


def _common_to_json(common: SharedFields) -> dict[str, Any]:
    target = {name: value for name, value in asdict(common.target).items() if name != "costs"}
    runtime_fields = {"runtime_crc32": zlib.crc32(common.runtime)} if common.runtime else {}
    return {"target": target, "numerics": common.numerics, **runtime_fields}


def _read_common(
    path: Path, header: Mapping[str, Any], data: memoryview, sections: tuple[tuple[int, int, int], ...]
) -> SharedFields:
    fields: dict[str, Any] = header["target"]
    # JSON has no tuples.
    fields |= {name: tuple(map(text, fields[name])) for name in ("features", "dot_products")}
    fields |= {name: text(fields[name]) for name in ("name", "architecture")}
    fields |= {"groups": _read_groups(fields["groups"]), "alignment": count(fields["alignment"])}
    if not fields["alignment"]:
        raise ValueError("an alignment of 0")
    target = Target(**fields)
    architecture_of(target)
    if is_opencl(target.name):
        return SharedFields(target, b"", text(header["numerics"]))
    code = bytes(_slice(path, data, sections, 0))
    if zlib.crc32(code) != header["runtime_crc32"]:
        # This code computes the other checksums: verify it before it is run.
        raise damaged(path, "section 0")
    return SharedFields(target, code, text(header["numerics"]))


def _read_groups(groups: Any) -> WorkGroups | None:
    return None if groups is None else WorkGroups(*(count(groups[f.name]) for f in parse_fields(WorkGroups)))


def damaged(path: Path, problem: str) -> ModelError:
    return ModelError(f"{path}: damaged: {problem}; copy or compile the model again")


def invalid_header(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path}: damaged: the header does not describe a model ({error!r})")


def as_byte_view(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the elements of an array as contiguous bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _slice(path: Path, data: memoryview, sections: tuple[tuple[int, int, int], ...], index: int) -> memoryview:
    offset, size, _ = sections[index]
    if offset + size > len(data):
        raise damaged(path, f"section {index} is outside of the file")
    return data[offset : offset + size]


def _mapped(path: Path) -> memoryview:
    try:
        return memoryview(MappedFile.of(path))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError:
        # An empty file cannot be mapped.
        return memoryview(b"")


def page_aligned_copy(content: bytes | bytearray | memoryview) -> memoryview:
    """Copy the content of a file to page-aligned memory, since kernels need aligned weights; to huge pages if there are any."""
    # A mapping cannot be empty. Shared memory, the default, has no huge pages.
    mapping = mmap.mmap(-1, max(len(content), 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    memory = memoryview(mapping)[: len(content)]
    memory[:] = content
    return memory.toreadonly()


def _read(path: Path, memory: memoryview) -> tuple[int, dict[str, Any], memoryview]:
    """Return the position of the program, the header, and the sections."""
    size = len(memory)
    if size < PREFIX.size or bytes(memory[: len(MAGIC)]) != MAGIC:
        compiled = path.with_suffix(".dlc").name
        if bytes(memory[: len(_ELF_MAGIC)]) == _ELF_MAGIC:
            hint = f"programs link or open it by dlc.h; for Python save {compiled} instead, by `compile-model` or .save"
            raise ModelError(f"{path}: a library or object file, not a .dlc file; {hint}")
        model = path.name if path.suffix == ".onnx" else "MODEL.onnx"
        raise ModelError(f"{path}: not a compiled model; create one with `compile-model {model} -o {compiled}`")
    _, version, checksum, length, program = PREFIX.unpack_from(memory)
    if version != VERSION:
        raise ModelError(f"{path}: format version {version}, but this version of dlc reads {VERSION}; compile the model again")
    if length > min(size, _MAX_HEADER_BYTES):
        raise ModelError(f"{path}: damaged: a header of {length} bytes in a file of {size}")
    end = PREFIX.size + length
    header = bytes(memory[PREFIX.size : end])
    if zlib.crc32(header) != checksum:
        raise damaged(path, "header")
    start = end + -end % PAGE_BYTES
    if any(memory[end:start]):
        raise damaged(path, "after the header")
    try:
        return program, json.loads(header), memory[start:]
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: damaged: the header is not JSON ({error})") from error

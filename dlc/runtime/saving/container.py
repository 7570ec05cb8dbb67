"""The file that compiled models are saved in: a header, and sections of bytes, each at a multiple of 4096 bytes.

    "dlcmodel" · version · size and checksum of the header · where the program is · header (JSON) · sections

The first section is the run-time's code; the others are programs with their kernels (cpu/image.py), what says which program is
for which call (parts.py), and packed weights, each kept once however many parts of a model have it. Programs for an OpenCL
device have no code, but the text of their kernels (opencl/artifact.py). The header says what is made of all this. A model that
is one program, or several of which the call's values or shapes pick one, runs without it: the prefix says where it is, or what
lists them, counted from the first section, or below 0 why there is none. Every section and the header have a checksum that is
checked when the file is read, CRC-32C for sections where there is code that computes it, else CRC-32; sections are then mapped,
so that processes share them, unless they are asked to be read into memory.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from dataclasses import fields as fields_of
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dlc.errors import DlcError, ModelError
from dlc.files.whole_files import written_whole
from dlc.runtime.saving.checksum import Checksum, checksum_of
from dlc.runtime.saving.header.values import count, text
from dlc.target import Groups, Target, architecture_of, is_opencl

MAGIC = b"dlcmodel"
# Of the file's layout and of what its parts mean to each other; a change of either is a new version.
VERSION = 17
PREFIX = struct.Struct("<8sIIQq")  # magic, version, CRC-32 of the header, its size; where the program is
# Why there is none: it is for another device than a processor, there is text around it, or data decides which one it is.
_ON_DEVICE, _BORDERED, _BY_SIZES = -3, -2, -1
PAGE = 4096
# A header is names and numbers: no model comes near this.
_LARGEST_HEADER = 256 << 20


@dataclass(frozen=True)
class Common:
    """What all parts of a model have in common: the target, the run-time's code (none but on a processor), the numerics."""

    target: Target
    runtime: bytes
    numerics: str = "default"

    @property
    def checksum(self) -> Checksum:
        """What computes the checksums of sections."""
        return checksum_of(self.target, self.runtime)


class Placed(NamedTuple):
    """An array: how far from something its first byte lies, how many it has, and their CRC-32C."""

    distance: int
    bytes: int
    checksum: int


class Saveable(Protocol):
    """What a model is on disk."""

    def written(self, writer: Writer, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Its part of the header; its code and weights become sections. `defaults` are those that its inputs have.

        Raises UnsupportedError for what has none.
        """
        ...


class Writer:
    """Takes the sections of a file, each once."""

    def __init__(self) -> None:
        self._common: Common | None = None
        self._sections: list[memoryview] = []
        self._checksums: list[int] = []
        self._placed: list[Placed] = []
        # By size and checksum: the sections that may be equal to another one.
        self._alike: dict[tuple[int, int], list[int]] = {}
        self._starts = [0]

    def require(self, common: Common) -> None:
        """Notes what the parts have in common. Raises DlcError for a part that differs."""
        if self._common is None:
            self._common = common
            if common.runtime:
                self.add(memoryview(common.runtime))
        elif self._common != common:
            raise DlcError(
                "parts of a model that were compiled for different targets, by different versions of dlc, do not fit"
            )

    @property
    def _known(self) -> Common:
        """What its parts have in common, which the first of them says."""
        assert self._common is not None, "a part says first what it shares with the others"
        return self._common

    def add(self, data: memoryview) -> int:
        """The number of the section with this content."""
        # The zeros up to the next section are checked as well: no byte of the file is left out.
        padding = memoryview(bytes(-len(data) % PAGE))
        own = self._known.checksum(data, 0)
        checksum = self._known.checksum(padding, own)
        alike = self._alike.setdefault((len(data), checksum), [])
        for number in alike:
            if self._sections[number] == data:
                return number
        alike.append(len(self._sections))
        self._placed.append(Placed(self._starts[-1], len(data), own))
        self._starts.append(self._starts[-1] + len(data) + len(padding))
        self._sections.append(data)
        self._checksums.append(checksum)
        return alike[-1]

    def placed(self, section: int) -> Placed:
        """Where a section lies, as the next new one sees it."""
        placed = self._placed[section]
        return placed._replace(distance=placed.distance - self._starts[-1])

    def write(self, file: IO[bytes], model: Mapping[str, Any]) -> None:
        """Writes all there is to a file that is empty."""
        starts, common = self._starts, self._known
        places = [[at, len(d), c] for at, d, c in zip(starts, self._sections, self._checksums, strict=False)]
        program = self._starts[count(model["image"])] if "image" in model else _no_program(common, model)
        fields = {**_common_to_json(common), "model": model, "sections": places}
        header = json.dumps(fields, separators=(",", ":")).encode()
        start = -(-(PREFIX.size + len(header)) // PAGE) * PAGE
        file.write(PREFIX.pack(MAGIC, VERSION, zlib.crc32(header), len(header), program) + header)
        for at, data in zip(starts, self._sections, strict=False):
            file.write(bytes(start + at - file.tell()))
            file.write(data)
        file.write(bytes(start + starts[-1] - file.tell()))


def save(path: Path, model: Saveable) -> None:
    """Writes a model to a file; `path` is either the whole new file or what it was before. Raises DlcError when it cannot."""
    writer = Writer()
    fields = model.written(writer, {})
    with written_whole(path) as file:
        writer.write(file, fields)


def to_bytes(model: Saveable) -> bytes:
    """What the file of a model holds."""
    writer = Writer()
    fields = model.written(writer, {})
    file = BytesIO()
    writer.write(file, fields)
    return file.getvalue()


@dataclass(frozen=True)
class Container:
    """A file that was read and is whole; `model` is what its header says of the model, which is not checked yet."""

    path: Path
    common: Common
    model: Mapping[str, Any]
    data: memoryview
    sections: tuple[tuple[int, int, int], ...]

    @staticmethod
    def read(path: Path, content: memoryview | None = None) -> Container:
        """The model in a file, or in the `content` that messages call `path`, which begins where a page of memory does.

        Raises ModelError for a file that is none, is damaged, or was written by another version of dlc.
        """
        program, header, data = _read(path, content if content is not None else _mapped(path))
        try:
            sections = tuple((count(at), count(size), count(checksum)) for at, size, checksum in header["sections"])
            common = _read_common(path, header, data, sections)
            container = Container(path, common, header["model"], data, sections)
            model = container.model
            at: int = sections[count(model["image"])][0] if "image" in model else _no_program(common, model)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise described_badly(path, error) from error
        if program != at:
            raise damaged(path, "the program is elsewhere")
        container.check()
        return container

    def check(self) -> None:
        """Raises ModelError unless every section is what was written, and they are all there is."""
        for number, (at, size, expected) in enumerate(self.sections):
            if self.common.checksum(self.data[at : at + size + -size % PAGE], 0) != expected:
                raise damaged(self.path, f"section {number}")
        if sum(size + -size % PAGE for _, size, _ in self.sections) != len(self.data):
            raise damaged(self.path, "its size is not that of its sections")

    def section(self, number: Any) -> memoryview:
        """The bytes of a section. Raises IndexError or ModelError for one that is none."""
        return _slice(self.path, self.data, self.sections, count(number))


def _no_program(common: Common, model: Mapping[str, Any]) -> int:
    if not common.runtime:
        return _ON_DEVICE
    return _BORDERED if "border" in model else _BY_SIZES


def _common_to_json(common: Common) -> dict[str, Any]:
    target = {name: value for name, value in asdict(common.target).items() if name != "machine"}
    own = {"runtime_crc32": zlib.crc32(common.runtime)} if common.runtime else {}
    return {"target": target, "numerics": common.numerics, **own}


def _read_common(path: Path, header: Mapping[str, Any], data: memoryview, sections: tuple[tuple[int, int, int], ...]) -> Common:
    fields: dict[str, Any] = header["target"]
    # JSON has no tuples.
    fields |= {name: tuple(map(text, fields[name])) for name in ("features", "dots")}
    fields |= {name: text(fields[name]) for name in ("name", "architecture")}
    fields |= {"groups": _read_groups(fields["groups"]), "alignment": count(fields["alignment"])}
    if not fields["alignment"]:
        raise ValueError("buffers that begin nowhere")
    target = Target(**fields)
    architecture_of(target)
    if is_opencl(target.name):
        return Common(target, b"", text(header["numerics"]))
    code = bytes(_slice(path, data, sections, 0))
    if zlib.crc32(code) != header["runtime_crc32"]:
        # It computes the checksums of the others: not to be run before it is known to be whole.
        raise damaged(path, "section 0")
    return Common(target, code, text(header["numerics"]))


def _read_groups(written: Any) -> Groups | None:
    return None if written is None else Groups(*(count(written[f.name]) for f in fields_of(Groups)))


def damaged(path: Path, what: str) -> ModelError:
    return ModelError(f"{path}: damaged: {what}; copy or compile the model again")


def described_badly(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path}: damaged: the header does not describe a model ({error!r})")


def bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """The elements of an array, one after the other."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _slice(path: Path, data: memoryview, sections: tuple[tuple[int, int, int], ...], number: int) -> memoryview:
    at, size, _ = sections[number]
    if at + size > len(data):
        raise damaged(path, f"section {number} lies outside the file")
    return data[at : at + size]


def _mapped(path: Path) -> memoryview:
    try:
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            empty = os.fstat(file.fileno()).st_size == 0
            return memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error


def in_memory(content: bytes | bytearray | memoryview) -> memoryview:
    """A copy of the content of a file that begins where a page of memory does, as kernels want it of weights."""
    # An empty one has no pages.
    memory = memoryview(mmap.mmap(-1, max(len(content), 1)))[: len(content)]
    memory[:] = content
    return memory.toreadonly()


def _read(path: Path, memory: memoryview) -> tuple[int, dict[str, Any], memoryview]:
    """Where the program is, the header, and the rest."""
    size = len(memory)
    if size < PREFIX.size or bytes(memory[: len(MAGIC)]) != MAGIC:
        made = path.with_suffix(".dlc").name
        raise ModelError(f"{path}: not a model that dlc compiled; `compile-model MODEL.onnx -o {made}` makes one")
    _, version, checksum, length, program = PREFIX.unpack_from(memory)
    if version != VERSION:
        raise ModelError(f"{path}: written in format {version}, this dlc reads {VERSION}; compile the model again")
    if length > min(size, _LARGEST_HEADER):
        raise ModelError(f"{path}: damaged: a header of {length} bytes in a file of {size}")
    end = PREFIX.size + length
    header = bytes(memory[PREFIX.size : end])
    if zlib.crc32(header) != checksum:
        raise damaged(path, "header")
    start = end + -end % PAGE
    if any(memory[end:start]):
        raise damaged(path, "after the header")
    try:
        return program, json.loads(header), memory[start:]
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: damaged: the header is no JSON ({error})") from error

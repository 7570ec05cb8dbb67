"""The artifact: a compiled model as one file that loads in milliseconds, with neither xDSL, onnx nor LLVM.

    "dlcmodel" · version · size and checksum of the header · header (JSON) · sections, each at a multiple of 4096 bytes

The header says what the model takes and returns, what processor it needs, which kernels run in which order on which buffers,
and where each section lies: the run-time's code, each kernel's object, each packed weight. Every section and the header have
a CRC-32C that is checked when the file is loaded; weights are then memory-mapped, so that processes share them.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from time import time
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.dims import Size, is_static
from dlc.errors import CompileError, DeviceError, DlcError, ModelError
from dlc.runtime.cpu.loader import load_object
from dlc.runtime.cpu.native import runtime
from dlc.runtime.cpu.program import KernelImage, NativeProgram, OpenNativeProgram
from dlc.runtime.host_format import count, from_json, text, to_json
from dlc.runtime.host_program import HostProgram, check_program
from dlc.runtime.model import Model
from dlc.runtime.open_format import open_from_json, open_to_json, plain, read_size
from dlc.runtime.open_program import OpenKernel, OpenProgram
from dlc.target import Target, host_supports

MAGIC = b"dlcmodel"
# Of the file's layout and of what its parts mean to each other; a change of either is a new version.
VERSION = 5
_PREFIX = struct.Struct("<8sIIQ")  # magic, version, CRC-32 of the header, its size
_ALIGNMENT = 4096
# The end of the names of files that are being written; whoever still writes one after this long is dead.
_PARTIAL = ".dlc-partial"
_STALE_SECONDS = 3600.0
# A header is names and numbers: no model comes near this.
_LARGEST_HEADER = 256 << 20


@dataclass(frozen=True)
class KernelObject:
    """A kernel's object file; its grid `g` has `tasks[g]` tasks, at the symbol `<name>.<g>`.

    `origins`: the layers in it; `flops`: the floating-point operations of its contractions in one run; `open`: what it makes
    of the sizes that it takes, in a program whose sizes come with a call.
    """

    name: str
    code: bytes
    tasks: tuple[Size, ...]
    origins: tuple[str, ...] = ()
    flops: Size = 0
    open: OpenKernel | None = None

    def image(self) -> KernelImage:
        """The kernel in executable memory. Raises ModelError for an object that is none, or lacks a grid."""
        try:
            loaded = load_object(self.code)
            grids = tuple((loaded.address(f"{self.name}.{g}"), tasks) for g, tasks in enumerate(self.tasks))
        except (CompileError, struct.error, KeyError, IndexError, ValueError, OSError) as error:
            raise ModelError(f"kernel {self.name}: damaged: not the object of its grids ({error!r})") from error
        return KernelImage(grids, loaded)


@dataclass(frozen=True)
class Artifact:
    """All that running a compiled model takes."""

    name: str
    target: Target
    host: HostProgram | OpenProgram
    kernels: tuple[KernelObject, ...]
    weights: Mapping[str, NDArray[Any]]
    runtime: bytes
    numerics: str = "default"

    def program(self, num_threads: int | None = None) -> NativeProgram | OpenNativeProgram:
        """The model in this process."""
        images = {kernel.name: kernel.image() for kernel in self.kernels}
        native = runtime(self.runtime)
        if isinstance(self.host, HostProgram):
            return NativeProgram(self.host, images, self.weights, native, num_threads)
        shapes = {kernel.name: kernel.open for kernel in self.kernels if kernel.open is not None}
        return OpenNativeProgram(self.host, images, shapes, self.weights, native, num_threads)

    def model(self, num_threads: int | None = None) -> Model:
        """The model as users call it."""
        program = self.program(num_threads)
        return Model(program.inputs, program.outputs, program.run, self.name, self)

    def save(self, path: Path) -> None:
        """Writes the artifact; `path` is either the whole new file or what it was before.

        Raises DlcError when it cannot be written.
        """
        sections: list[tuple[str, memoryview]] = [("runtime", memoryview(self.runtime))]
        sections += [(f"kernel/{k.name}", memoryview(k.code)) for k in self.kernels]
        sections += [(f"weight/{w.name}", _bytes_of(self.weights[w.name])) for w in self.host.weights]
        native = runtime(self.runtime)
        places: list[dict[str, Any]] = []
        at = 0
        for name, data in sections:
            # The zeros up to the next section are checked as well: no byte of the file is left out.
            padding = bytes(-len(data) % _ALIGNMENT)
            checksum = native.checksum(_address(data), len(data), 0)
            checksum = native.checksum(_address(memoryview(padding)), len(padding), checksum)
            places.append({"name": name, "offset": at, "size": len(data), "crc32c": checksum})
            at += len(data) + len(padding)
        header = json.dumps(self._header() | {"sections": places}, separators=(",", ":")).encode()
        start = -(-(_PREFIX.size + len(header)) // _ALIGNMENT) * _ALIGNMENT
        try:
            _remove_stale(path)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=_PARTIAL, delete=False) as file:
                try:
                    file.write(_PREFIX.pack(MAGIC, VERSION, zlib.crc32(header), len(header)) + header)
                    for place, (_, data) in zip(places, sections, strict=True):
                        file.seek(start + place["offset"])
                        file.write(data)
                    file.truncate(start + at)
                    file.flush()
                    os.fsync(file.fileno())
                    os.chmod(file.name, 0o644)
                    os.replace(file.name, path)
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            raise DlcError(f"{path}: cannot be written: {error.strerror}") from error

    def _header(self) -> dict[str, Any]:
        host = self.host
        return {
            "name": self.name,
            # What things cost is of no interest to what is compiled.
            "target": {name: value for name, value in asdict(self.target).items() if name != "machine"},
            "numerics": self.numerics,
            "inputs": [_info_to_json(i) for i in host.inputs],
            "outputs": [_info_to_json(i) for i in host.outputs],
            "weights": [_info_to_json(i) for i in host.weights],
            **(_static_to_json(host) if isinstance(host, HostProgram) else open_to_json(host)),
            "runtime_crc32": zlib.crc32(self.runtime),
            "kernels": list(map(_kernel_to_json, self.kernels)),
        }

    @staticmethod
    def load(path: Path) -> Artifact:
        """The artifact in a file, checked.

        Raises ModelError for a file that is none, is damaged, or was written by a newer dlc, and DeviceError for one that was
        compiled for another processor.
        """
        header, data = _read(path)
        try:
            fields: dict[str, Any] = header["target"]
            fields["features"] = tuple(fields["features"])
            target = Target(**fields)
            if not host_supports(target):
                raise DeviceError(
                    f"{path}: compiled for {target.name}, which needs {', '.join(target.features)}; this processor lacks some "
                    "of that: compile the model again on this machine, or for target cpu:generic"
                )
            sections = {s["name"]: (s["offset"], s["size"], s["crc32c"]) for s in header["sections"]}
            return _Reader(path, header, target, data, sections).artifact()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ModelError(f"{path}: damaged: the header does not describe a model ({error!r})") from error


@dataclass(frozen=True)
class _Reader:
    path: Path
    header: dict[str, Any]
    target: Target
    data: memoryview
    sections: dict[str, tuple[int, int, int]]

    def artifact(self) -> Artifact:
        header = self.header
        code = bytes(self.slice("runtime"))
        if zlib.crc32(code) != header["runtime_crc32"]:
            # It computes the checksums of the others: not to be run before it is known to be whole.
            raise self.damaged("section runtime")
        native = runtime(code)
        for name, (offset, size, expected) in self.sections.items():
            part = self.data[offset : offset + size + -size % _ALIGNMENT]
            if native.checksum(_address(part), len(part), 0) != expected:
                raise self.damaged(f"section {name}")
        if sum(size + -size % _ALIGNMENT for _, size, _ in self.sections.values()) != len(self.data):
            raise self.damaged("its size is not that of its sections")
        kernels = tuple(map(self.kernel, header["kernels"]))
        infos = [tuple(map(_info_from_json, header[part])) for part in ("inputs", "outputs", "weights")]
        inputs, outputs, weights = infos
        if not all(is_static(info.shape) for info in weights):
            raise ValueError("a weight of symbolic size")
        if "regions" in header:
            host = OpenProgram(inputs, outputs, weights, *open_from_json(header, {k.name for k in kernels if k.open}))
        else:
            instructions = from_json(header["instructions"])
            host = HostProgram(inputs, outputs, weights, count(header["arena"]), count(header["slots"]), instructions)
            if not all(is_static(info.shape) for info in (*inputs, *outputs)):
                raise ValueError("a symbolic size in a program of known ones")
            check_program(host, {k.name for k in kernels})
        arrays = {info.name: self.weight(info) for info in weights}
        return Artifact(text(header["name"]), self.target, host, kernels, arrays, code, text(header["numerics"]))

    def kernel(self, fields: Mapping[str, Any]) -> KernelObject:
        sizes = fields.get("sizes")
        return KernelObject(
            text(fields["name"]),
            bytes(self.slice(f"kernel/{fields['name']}")),
            tuple(map(_tasks if sizes is None else read_size, fields["tasks"])),
            tuple(map(text, fields["origins"])),
            read_size(fields["flops"]),
            None if sizes is None else OpenKernel(count(sizes), tuple(map(read_size, fields["bytes"]))),
        )

    def slice(self, name: str) -> memoryview:
        offset, size, _ = self.sections[name]
        if not 0 <= offset <= offset + size <= len(self.data):
            raise self.damaged(f"section {name} lies outside the file")
        return self.data[offset : offset + size]

    def weight(self, info: TensorInfo) -> NDArray[Any]:
        part = self.slice(f"weight/{info.name}")
        if prod(int(s) for s in info.shape) * info.dtype.itemsize != len(part):
            raise self.damaged(f"weight {info.name} has {len(part)} bytes, not those of {info}")
        return np.frombuffer(part, info.dtype).reshape([int(s) for s in info.shape])

    def damaged(self, what: str) -> ModelError:
        return ModelError(f"{self.path}: damaged: {what}; copy or compile the model again")


def load(path: str | os.PathLike[str], *, num_threads: int | None = None) -> Model:
    """The model that `Model.save` wrote to `path`; nothing is compiled. `num_threads`: all usable processors if None.

    Raises what Artifact.load raises.
    """
    return Artifact.load(Path(path)).model(num_threads)


def _read(path: Path) -> tuple[dict[str, Any], memoryview]:
    """The header, and the memory-mapped rest of the file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
                made = path.with_suffix(".dlc").name
                raise ModelError(f"{path}: not a model that dlc compiled; `compile-model MODEL.onnx -o {made}` makes one")
            _, version, checksum, length = _PREFIX.unpack(prefix)
            if version != VERSION:
                raise ModelError(f"{path}: written in format {version}, this dlc reads {VERSION}; compile the model again")
            if length > min(size, _LARGEST_HEADER):
                raise ModelError(f"{path}: damaged: a header of {length} bytes in a file of {size}")
            header = file.read(length)
            if zlib.crc32(header) != checksum:
                raise ModelError(f"{path}: damaged: header; copy or compile the model again")
            memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    end = _PREFIX.size + length
    start = end + -end % _ALIGNMENT
    if any(memory[end:start]):
        raise ModelError(f"{path}: damaged: after the header; copy or compile the model again")
    try:
        return json.loads(header), memory[start:]
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: damaged: the header is no JSON ({error})") from error


def _remove_stale(path: Path) -> None:
    """Removes what processes that died left of files that were to become `path`."""
    for other in path.parent.iterdir():
        if other.name.startswith(f".{path.name}.") and other.name.endswith(_PARTIAL):
            with suppress(FileNotFoundError):
                if time() - other.stat().st_mtime > _STALE_SECONDS:
                    other.unlink()


def _static_to_json(host: HostProgram) -> dict[str, Any]:
    return {"arena": host.arena_bytes, "slots": host.slots, "instructions": to_json(host.instructions)}


def _kernel_to_json(kernel: KernelObject) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": kernel.name, "tasks": list(map(plain, kernel.tasks)), "origins": kernel.origins}
    fields["flops"] = plain(kernel.flops)
    if kernel.open is not None:
        fields |= {"sizes": kernel.open.sizes, "bytes": list(map(plain, kernel.open.bytes))}
    return fields


def _info_to_json(info: TensorInfo) -> list[Any]:
    return [info.name, list(map(plain, info.shape)), info.dtype.name]


def _info_from_json(fields: Sequence[Any]) -> TensorInfo:
    name, shape, dtype = fields
    return TensorInfo(text(name), tuple(map(read_size, shape)), _dtype(dtype))


def _tasks(value: Any) -> int:
    if count(value) >= 1 << 31:
        raise ValueError(f"a grid of {value} tasks; the pool counts to {(1 << 31) - 1}")
    return value


def _dtype(name: Any) -> np.dtype[Any]:
    """The dtype called `name`, one of numbers or bools."""
    dtype = np.dtype(getattr(ml_dtypes, text(name), name))
    if dtype.name != name or dtype.kind not in "biufV":
        raise ValueError(f"{name!r} is no dtype of numbers")
    return dtype


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _address(data: memoryview) -> int:
    return np.frombuffer(data, np.uint8).ctypes.data if len(data) else 0

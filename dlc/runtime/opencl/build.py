"""Build kernels for a device from source, with a cache of binaries.

The kernels of a model are built as one program, or as one per process: a driver's compiler takes a while to start (PoCL:
0.1 s per program, 0.03 s per kernel). A cache entry contains the binaries of all programs:

    hash of the following bytes · size of the header · header: the kernels and the size of each program, as JSON · binaries
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dlc.caching.cache import Cache
from dlc.errors import DeviceError, ModelError, TooLargeError
from dlc.machine.cpus import usable_cpus
from dlc.options import Options
from dlc.runtime.opencl.commands import BuiltGrid
from dlc.runtime.opencl.devices import Device, Session, open_device
from dlc.runtime.opencl.driver import opencl
from dlc.runtime.opencl.isolated_build import (
    FunctionRun,
    KernelBatch,
    build_batch,
    build_in_subprocesses,
    program_binary,
    program_from_binary,
)
from dlc.runtime.opencl.kernel import OpenCLKernel
from dlc.runtime.program.host_program import Launch
from dlc.runtime.program.kernel_text import program_text

KIND = "opencl"  # The kind of cache entries.
_DIGEST_BYTES = 32
_SIZE = struct.Struct("<Q")
# Building fewer kernels takes less time than starting another process.
_KERNELS_PER_PROCESS = 8


@dataclass(frozen=True)
class Builder:
    """Builds kernels for a device, with a cache, in up to `processes` processes at once.

    If `guarded`, kernels are built and run for the first time in another process, so that a crash of the driver ends only that
    process.
    """

    device: Device
    cache: Cache
    processes: int
    guarded: bool = False

    @staticmethod
    def of(device: Device, options: Options) -> Builder:
        """Return the builder of a compilation."""
        cache = Cache.standard() if options.cache else Cache(None)
        return Builder(device, cache, options.workers or usable_cpus())

    @property
    def session(self) -> Session:
        """The open device."""
        return open_device(self.device)


@dataclass(frozen=True)
class BuiltProgram:
    """Kernels built for a device, as programs with the names of their kernels."""

    programs: tuple[tuple[tuple[str, ...], Any], ...]

    def kernels(self, sources: Sequence[OpenCLKernel]) -> dict[str, tuple[BuiltGrid, ...]]:
        """Return the built grids of each kernel by name."""
        programs = {name: program for names, program in self.programs for name in names}
        new_kernel = opencl().Kernel
        return {
            s.name: tuple(
                BuiltGrid(partial(new_kernel, programs[s.name], f"{s.name}_{g}"), grid.groups, grid.items)
                for g, grid in enumerate(s.grids)
            )
            for s in sources
        }


def build(name: str, sources: Sequence[OpenCLKernel], launches: Sequence[Launch], builder: Builder) -> BuiltProgram:
    """Build the kernels of the model called `name`, or load them from the cache; `launches` has a launch of each kernel.

    Raises TooLargeError for kernels that need features that the device lacks, that fail to build, or that exceed its resources.
    """
    session, device = builder.session, builder.device
    if not sources:
        # The program consists of copies only, which need no kernel.
        return BuiltProgram(())
    if missing_features := {s.name: features for s in sources if (features := s.missing_features(device))}:
        raise TooLargeError(missing_features)
    options = compiler_options(device.handle)
    key_texts = [*sorted(s.text for s in sources), options, device.name, device.platform, device.driver]
    key = hashlib.blake2b("\0".join(key_texts).encode(), digest_size=16).hexdigest()
    program, _ = builder.cache.fetch(
        KIND,
        key,
        read=lambda path: _load(path, session),
        create=lambda: _compile(sources, launches, options, builder),
        write=_save,
        metadata={"model": name, "target": str(device), "driver": device.driver, "kernels": [s.name for s in sources]},
    )
    return program


def compiler_options(handle: Any) -> str:
    """Return the compiler options for a device; `handle` is PyOpenCL's device."""
    options = ["-cl-std=CL1.2"]
    if handle.single_fp_config & opencl().device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return " ".join(options)


def _compile(sources: Sequence[OpenCLKernel], launches: Sequence[Launch], options: str, builder: Builder) -> BuiltProgram:
    launch_of_kernel = {launch.kernel: launch for launch in launches}

    def batch_of(batch: Sequence[OpenCLKernel]) -> KernelBatch:
        runs = (
            FunctionRun(f"{s.name}_{g}", s.name, launch.evaluate_size(grid.groups), grid.items, launch.static_sizes, sizes)
            for s in batch
            for launch in [launch_of_kernel[s.name]]
            for sizes in [tuple(map(int, launch.size_values))]
            for g, grid in enumerate(s.grids)
        )
        return KernelBatch(program_text(batch), options, tuple(runs))

    batches = _split_evenly(sources, min(builder.processes, -(-len(sources) // _KERNELS_PER_PROCESS)))
    try:
        programs = _build_batches([batch_of(batch) for batch in batches], builder)
    except TooLargeError:
        raise
    except DeviceError:
        # Build the kernels separately to find out which ones the compiler rejects.
        problems = {s.name: problem for s in sources if (problem := _build_error(batch_of([s]), builder))}
        if not problems:
            raise
        raise TooLargeError(problems) from None
    return BuiltProgram(tuple((tuple(s.name for s in batch), p) for batch, p in zip(batches, programs, strict=True)))


def _build_batches(batches: Sequence[KernelBatch], builder: Builder) -> list[Any]:
    if len(batches) > 1 or builder.guarded:
        return [program_from_binary(binary, builder.session) for binary in build_in_subprocesses(batches, builder.device)]
    return [build_batch(batch, builder.session) for batch in batches]


def _split_evenly(sources: Sequence[OpenCLKernel], count: int) -> list[list[OpenCLKernel]]:
    """Split kernels into `count` batches with about the same amount of source text."""
    batches: list[list[OpenCLKernel]] = [[] for _ in range(count)]
    lengths = [0] * count
    for source in sorted(sources, key=lambda s: -len(s.chunks[-1])):
        shortest = lengths.index(min(lengths))
        batches[shortest].append(source)
        lengths[shortest] += len(source.chunks[-1])
    return batches


def _build_error(batch: KernelBatch, builder: Builder) -> str:
    try:
        _build_batches([batch], builder)
    except DeviceError as error:
        return str(error)
    return ""


def _save(program: BuiltProgram, path: Path) -> None:
    binaries = [program_binary(handle) for _, handle in program.programs]
    header = json.dumps([[names, len(binary)] for (names, _), binary in zip(program.programs, binaries, strict=True)]).encode()
    data = b"".join([_SIZE.pack(len(header)), header, *binaries])
    path.write_bytes(_digest(data) + data)


def _load(path: Path, session: Session) -> BuiltProgram:
    """Load the programs of a cache entry.

    Raises ModelError for a damaged one, since drivers do not validate binaries, and DeviceError if the driver rejects it.
    """
    content = path.read_bytes()
    data = content[_DIGEST_BYTES:]
    if _digest(data) != content[:_DIGEST_BYTES]:
        raise ModelError(f"{path}: damaged: its checksum does not match")
    offset = _SIZE.size + _SIZE.unpack_from(data)[0]
    programs: list[tuple[tuple[str, ...], Any]] = []
    for names, size in json.loads(data[_SIZE.size : offset]):
        programs.append((tuple(names), program_from_binary(data[offset : offset + size], session)))
        offset += size
    return BuiltProgram(tuple(programs))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()

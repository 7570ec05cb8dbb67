"""From the text of kernels to their code on a device, through the cache of binaries.

The kernels of a model are one program, or one for each process that compiles: a driver's compiler takes a while to start
(PoCL: 0.1 s a program, 0.03 s for each kernel in it). An entry of the cache holds the binaries of all of them:

    digest of the rest · size of the header · header: for each program its kernels and its size, as JSON · binaries
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
from dlc.runtime.opencl.build_apart import FunctionRun, Part, binary_of, built, built_apart, from_binary
from dlc.runtime.opencl.devices import Device, Session, open_device
from dlc.runtime.opencl.driver import opencl
from dlc.runtime.opencl.kernel import KernelText
from dlc.runtime.opencl.program import GridCode
from dlc.runtime.program.host_program import Launch
from dlc.runtime.program.kernel_text import program_text

KIND = "opencl"  # of entries in the cache
_DIGEST_BYTES = 32
_SIZE = struct.Struct("<Q")
# Fewer kernels than this are compiled before another process has started.
_KERNELS_PER_PROCESS = 8


@dataclass(frozen=True)
class Builder:
    """Who makes code of kernels: for a device, through a cache, in so many processes at once.

    What is `guarded` is built and run for the first time in another process, so that a driver that crashes ends that one.
    """

    device: Device
    cache: Cache
    processes: int
    guarded: bool = False

    @staticmethod
    def of(device: Device, options: Options) -> Builder:
        """Who does it for a compilation."""
        cache = Cache.standard() if options.cache else Cache(None)
        return Builder(device, cache, options.workers or usable_cpus())

    @property
    def session(self) -> Session:
        """The device in use."""
        return open_device(self.device)


@dataclass(frozen=True)
class BuiltProgram:
    """Kernels as programs on a device: each with the names of the kernels that it holds."""

    parts: tuple[tuple[tuple[str, ...], Any], ...]

    def kernels(self, sources: Sequence[KernelText]) -> dict[str, tuple[GridCode, ...]]:
        """The code of every kernel by name."""
        programs = {name: program for names, program in self.parts for name in names}
        make = opencl().Kernel
        return {
            s.name: tuple(
                GridCode(partial(make, programs[s.name], f"{s.name}_{g}"), grid.groups, grid.items)
                for g, grid in enumerate(s.grids)
            )
            for s in sources
        }


def build(name: str, sources: Sequence[KernelText], launches: Sequence[Launch], builder: Builder) -> BuiltProgram:
    """The kernels of the model called `name`, out of the cache or built now; `launches` has one of each.

    Raises TooLargeError for kernels that need what the device does not have, do not build, or are too large for it.
    """
    session, device = builder.session, builder.device
    if not sources:
        # What only copies is commands of the queue.
        return BuiltProgram(())
    if lacking := {s.name: what for s in sources if (what := s.lacking(device))}:
        raise TooLargeError(lacking)
    options = compiler_options(device.handle)
    described = [*sorted(s.text for s in sources), options, device.name, device.platform, device.driver]
    key = hashlib.blake2b("\0".join(described).encode(), digest_size=16).hexdigest()
    program, _ = builder.cache.fetch(
        KIND,
        key,
        read=lambda path: _load(path, session),
        make=lambda: _compiled(sources, launches, options, builder),
        write=_save,
        about={"model": name, "target": str(device), "driver": device.driver, "kernels": [s.name for s in sources]},
    )
    return program


def compiler_options(handle: Any) -> str:
    """What a device's compiler is told; `handle` is PyOpenCL's of the device."""
    options = ["-cl-std=CL1.2"]
    if handle.single_fp_config & opencl().device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return " ".join(options)


def _compiled(sources: Sequence[KernelText], launches: Sequence[Launch], options: str, builder: Builder) -> BuiltProgram:
    launched = {launch.kernel: launch for launch in launches}

    def part(share: Sequence[KernelText]) -> Part:
        runs = (
            FunctionRun(f"{s.name}_{g}", s.name, launch.number(grid.groups), grid.items, launch.sizes, launch.numbers)
            for s in share
            for launch in [launched[s.name]]
            for g, grid in enumerate(s.grids)
        )
        return Part(program_text(share), options, tuple(runs))

    shares = _shared_out(sources, min(builder.processes, -(-len(sources) // _KERNELS_PER_PROCESS)))
    try:
        programs = _programs([part(share) for share in shares], builder)
    except TooLargeError:
        raise
    except DeviceError:
        # Which of them it is that the compiler does not take.
        problems = {s.name: problem for s in sources if (problem := _problem(part([s]), builder))}
        if not problems:
            raise
        raise TooLargeError(problems) from None
    return BuiltProgram(tuple((tuple(s.name for s in share), p) for share, p in zip(shares, programs, strict=True)))


def _programs(parts: Sequence[Part], builder: Builder) -> list[Any]:
    if len(parts) > 1 or builder.guarded:
        return [from_binary(binary, builder.session) for binary in built_apart(parts, builder.device)]
    return [built(part, builder.session) for part in parts]


def _shared_out(sources: Sequence[KernelText], count: int) -> list[list[KernelText]]:
    """The kernels in `count` shares of about the same length of text."""
    shares: list[list[KernelText]] = [[] for _ in range(count)]
    lengths = [0] * count
    for source in sorted(sources, key=lambda s: -len(s.pieces[-1])):
        shortest = lengths.index(min(lengths))
        shares[shortest].append(source)
        lengths[shortest] += len(source.pieces[-1])
    return shares


def _problem(part: Part, builder: Builder) -> str:
    try:
        _programs([part], builder)
    except DeviceError as error:
        return str(error)
    return ""


def _save(program: BuiltProgram, path: Path) -> None:
    binaries = [binary_of(handle) for _, handle in program.parts]
    header = json.dumps([[names, len(binary)] for (names, _), binary in zip(program.parts, binaries, strict=True)]).encode()
    data = b"".join([_SIZE.pack(len(header)), header, *binaries])
    path.write_bytes(_digest(data) + data)


def _load(path: Path, session: Session) -> BuiltProgram:
    """The programs in an entry of the cache.

    Raises ModelError for a damaged one, since drivers trust what they are given, and DeviceError when the driver refuses it.
    """
    content = path.read_bytes()
    data = content[_DIGEST_BYTES:]
    if _digest(data) != content[:_DIGEST_BYTES]:
        raise ModelError(f"{path}: damaged")
    at = _SIZE.size + _SIZE.unpack_from(data)[0]
    parts: list[tuple[tuple[str, ...], Any]] = []
    for names, size in json.loads(data[_SIZE.size : at]):
        parts.append((tuple(names), from_binary(data[at : at + size], session)))
        at += size
    return BuiltProgram(tuple(parts))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()

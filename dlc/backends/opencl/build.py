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

from dlc.backends.opencl.build_apart import FunctionRun, Part, binary_of, built, built_apart, from_binary, from_text
from dlc.backends.opencl.emit import KernelSource, program_text
from dlc.caching.cache import Cache
from dlc.errors import DeviceError, ModelError, TooLargeError
from dlc.runtime.host_program import Launch
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import opencl
from dlc.runtime.opencl.program import GridCode

KIND = "opencl"  # of entries in the cache
_DIGEST_BYTES = 32
_SIZE = struct.Struct("<Q")
# Fewer kernels than this are compiled before another process has started.
_KERNELS_PER_PROCESS = 8


@dataclass(frozen=True)
class BuiltProgram:
    """Kernels as programs on a device: each with the names of the kernels that it holds."""

    parts: tuple[tuple[tuple[str, ...], Any], ...]

    def kernels(self, sources: Sequence[KernelSource]) -> dict[str, tuple[GridCode, ...]]:
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


def build(
    name: str,
    sources: Sequence[KernelSource],
    launches: Sequence[Launch],
    session: Session,
    cache: Cache,
    processes: int,
) -> BuiltProgram:
    """The kernels of the model called `name`, out of the cache or built now; `launches` has one of each.

    Raises TooLargeError for kernels that do not build, or are too large for the device.
    """
    options, device = _options(session), session.device
    described = [*sorted(s.text for s in sources), options, device.name, device.platform, device.driver]
    key = hashlib.blake2b("\0".join(described).encode(), digest_size=16).hexdigest()
    program, _ = cache.fetch(
        KIND,
        key,
        read=lambda path: _load(path, session),
        make=lambda: _compiled(sources, launches, options, session, processes),
        write=_save,
        about={"model": name, "target": str(device), "driver": device.driver, "kernels": [s.name for s in sources]},
    )
    return program


def _options(session: Session) -> str:
    options = ["-cl-std=CL1.2"]
    if session.device.handle.single_fp_config & opencl().device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return " ".join(options)


def _compiled(
    sources: Sequence[KernelSource], launches: Sequence[Launch], options: str, session: Session, processes: int
) -> BuiltProgram:
    launched = {launch.kernel: launch for launch in launches}
    shares = _shared_out(sources, min(processes, -(-len(sources) // _KERNELS_PER_PROCESS)))
    parts = [
        Part(
            program_text(share),
            options,
            tuple(
                FunctionRun(f"{s.name}_{g}", s.name, launch.number(grid.groups), grid.items, launch.sizes, launch.numbers)
                for s in share
                for launch in [launched[s.name]]
                for g, grid in enumerate(s.grids)
            ),
        )
        for share in shares
    ]
    try:
        if len(parts) > 1:
            programs = [from_binary(binary, session) for binary in built_apart(parts, session.device)]
        else:
            programs = [built(part, session) for part in parts]
    except TooLargeError:
        raise
    except DeviceError:
        # Which of them it is that the compiler does not take.
        problems = {s.name: problem for s in sources if (problem := _problem(s, options, session))}
        if not problems:
            raise
        raise TooLargeError(problems) from None
    return BuiltProgram(tuple((tuple(s.name for s in share), p) for share, p in zip(shares, programs, strict=True)))


def _shared_out(sources: Sequence[KernelSource], count: int) -> list[list[KernelSource]]:
    """The kernels in `count` shares of about the same length of text."""
    shares: list[list[KernelSource]] = [[] for _ in range(count)]
    lengths = [0] * count
    for source in sorted(sources, key=lambda s: -len(s.functions)):
        shortest = lengths.index(min(lengths))
        shares[shortest].append(source)
        lengths[shortest] += len(source.functions)
    return shares


def _problem(source: KernelSource, options: str, session: Session) -> str:
    try:
        from_text(source.text, options, session)
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

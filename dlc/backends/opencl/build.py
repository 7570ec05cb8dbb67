"""From the text of kernels to their code on a device, through the cache of binaries.

The kernels of a model are one program: a driver's compiler takes a while to start (PoCL: 0.1 s a program, 0.03 s for each
kernel in it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dlc.backends.opencl.devices import Session
from dlc.backends.opencl.driver import opencl, reported
from dlc.backends.opencl.emit import KernelSource, program_text
from dlc.backends.opencl.program import GridCode
from dlc.cache import Cache
from dlc.errors import DeviceError, ModelError

KIND = "opencl"  # of entries in the cache
_DIGEST_BYTES = 32


class TooLargeError(DeviceError):
    """Kernels that a device cannot hold, each with the reason."""

    def __init__(self, kernels: Mapping[str, str]) -> None:
        super().__init__("\n".join(f"kernel {name}: {reason}" for name, reason in kernels.items()))
        self.kernels = kernels


@dataclass(frozen=True)
class BuiltProgram:
    """Kernels as a program on a device; `handle` is PyOpenCL's."""

    sources: tuple[KernelSource, ...]
    handle: Any

    def kernels(self) -> dict[str, tuple[GridCode, ...]]:
        """The code of every kernel by name."""
        make = partial(opencl().Kernel, self.handle)
        return {
            source.name: tuple(
                GridCode(partial(make, f"{source.name}_{g}"), grid.groups, grid.items) for g, grid in enumerate(source.grids)
            )
            for source in self.sources
        }

    @property
    def binary(self) -> bytes:
        """What `load` makes the program of again."""
        (binary,) = self.handle.get_info(opencl().program_info.BINARIES)
        return bytes(binary)

    def require_fitting(self, session: Session) -> None:
        """Raises TooLargeError for kernels whose groups, once compiled, are larger than the device can run."""
        info = opencl().kernel_work_group_info
        problems: dict[str, str] = {}
        for name, grids in self.kernels().items():
            for grid in grids:
                kernel, handle = grid.make(), session.device.handle
                items = kernel.get_work_group_info(info.WORK_GROUP_SIZE, handle)
                local = kernel.get_work_group_info(info.LOCAL_MEM_SIZE, handle)
                if items < grid.items:
                    problems[name] = f"groups of {grid.items} items, and the device runs at most {items} of this kernel"
                elif local > session.device.local_bytes:
                    problems[name] = f"{local} bytes of local memory, and the device has {session.device.local_bytes}"
        if problems:
            raise TooLargeError(problems)


def build(
    name: str,
    sources: Sequence[KernelSource],
    session: Session,
    cache: Cache,
    settle: Callable[[BuiltProgram], object],
) -> BuiltProgram:
    """The program of the kernels of the model called `name`, out of the cache or built now.

    `settle` runs a new program before its binary is kept: drivers finish their compilation when a kernel first runs. Raises
    TooLargeError for kernels that do not build, or are too large.
    """
    text, options, sources = program_text(sources), _options(session), tuple(sources)
    device = session.device
    described = [text, options, device.name, device.platform, device.driver]
    key = hashlib.blake2b("\0".join(described).encode(), digest_size=16).hexdigest()

    def make() -> BuiltProgram:
        program = BuiltProgram(sources, _compiled(sources, text, options, session))
        program.require_fitting(session)
        settle(program)
        return program

    built, _ = cache.fetch(
        KIND,
        key,
        read=lambda path: BuiltProgram(sources, _load(path, session)),
        make=make,
        write=lambda program, path: _save(program.binary, path),
        about={"model": name, "target": str(device), "driver": device.driver, "kernels": [s.name for s in sources]},
    )
    return built


def _options(session: Session) -> str:
    options = ["-cl-std=CL1.2"]
    if session.device.handle.single_fp_config & opencl().device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return " ".join(options)


def _compiled(sources: Sequence[KernelSource], text: str, options: str, session: Session) -> Any:
    try:
        return _from_text(text, options, session)
    except DeviceError:
        problems: dict[str, str] = {}
        for source in sources:
            try:
                _from_text(program_text([source]), options, session)
            except DeviceError as error:
                problems[source.name] = str(error)
        if problems:
            raise TooLargeError(problems) from None
        raise


def _from_text(text: str, options: str, session: Session) -> Any:
    with reported(f"{session.device}: its compiler fails"):
        return opencl().Program(session.context, text).build(options, cache_dir=False)


def _save(binary: bytes, path: Path) -> None:
    path.write_bytes(hashlib.blake2b(binary, digest_size=_DIGEST_BYTES).digest() + binary)


def _load(path: Path, session: Session) -> Any:
    """The program in an entry of the cache.

    Raises ModelError for a damaged one: drivers trust what they are given. Raises DeviceError when the driver refuses it.
    """
    data = path.read_bytes()
    digest, binary = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.blake2b(binary, digest_size=_DIGEST_BYTES).digest() != digest:
        raise ModelError(f"{path}: damaged")
    with reported(f"{session.device}: its driver refuses {path}"):
        return opencl().Program(session.context, [session.device.handle], [binary]).build(cache_dir=False)

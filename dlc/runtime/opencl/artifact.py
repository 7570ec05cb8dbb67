"""A program compiled for an OpenCL device: as what runs it, and as a part of a file (saving/container.py).

The file holds the kernels' OpenCL C, and what they need of a device, rather than binaries, which hold for one driver only: a
program runs on any device that has what it needs. Where it is loaded its kernels are built, or found in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import named_dtype
from dlc.errors import DeviceError, ModelError, TooLargeError
from dlc.runtime.models.model import Model, Run
from dlc.runtime.opencl.build import Builder, build
from dlc.runtime.opencl.driver import reported
from dlc.runtime.opencl.kernel import KernelText
from dlc.runtime.opencl.open_program import OpenOpenCLProgram
from dlc.runtime.opencl.program import OpenCLProgram, weights_on
from dlc.runtime.program.host_program import HostProgram, Launch, OpenKernel
from dlc.runtime.program.kernel_text import BUFFER_START, Grid
from dlc.runtime.program.known_sizes import KnownSizes
from dlc.runtime.program.open_program import OpenProgram
from dlc.runtime.program.starts import require_starts
from dlc.runtime.saving.container import Common, Container, Writer, save
from dlc.runtime.saving.header.arrays import array_to_json, arrays_from_json
from dlc.runtime.saving.header.program import program_from_json, program_to_json
from dlc.runtime.saving.header.values import count, plain, read_size, text
from dlc.target import Target

# Between pieces of text, which have none.
_END = "\0"


@dataclass(frozen=True)
class DeviceArtifact:
    """All that running a compiled model on a device takes; `builder` makes code of its kernels here."""

    name: str
    target: Target
    host: HostProgram | OpenProgram
    kernels: tuple[KernelText, ...]
    weights: Mapping[str, NDArray[Any]]
    builder: Builder
    numerics: str = "default"

    @cached_property
    def known(self) -> HostProgram | KnownSizes:
        """The program of known sizes, or what makes one for those of a call. Raises ModelError for one that is none."""
        if isinstance(self.host, HostProgram):
            return self.host
        return KnownSizes(self.host, {kernel.name: kernel.shape for kernel in self.kernels}, self.target.alignment)

    @property
    def planned(self) -> HostProgram:
        """The program for the sizes that its plans are made for."""
        return self.known if isinstance(self.known, HostProgram) else self.known.representative()

    @cached_property
    def program(self) -> OpenCLProgram | OpenOpenCLProgram:
        """The model on the device.

        Raises TooLargeError, naming them, for kernels that it does not hold, DeviceError for one that refuses them, and
        ModelError for arrays that begin where no kernel expects them.
        """
        device, known = self.builder.device, self.known
        if self.target.alignment % BUFFER_START:
            raise ModelError(f"{self.name}: parts of its memory begin at multiples of {self.target.alignment} bytes")
        require_starts(known.instructions)
        built, session = build(self.name, self.kernels, self.planned.launches, self.builder), self.builder.session
        with reported(device, ": ", self.name):
            kernels, weights = built.kernels(self.kernels), weights_on(session, self.host.weights, self.weights)
            if isinstance(known, KnownSizes):
                return OpenOpenCLProgram(known, kernels, weights, session)
            return OpenCLProgram(known, kernels, weights, session)

    def runner(self, num_threads: int | None = None) -> Run:
        """What runs the model; how many threads a device has is its driver's affair.

        Raises DeviceError, naming them and what they need, for kernels that the device does not hold.
        """
        try:
            return self.program.run
        except TooLargeError as error:
            origins = {kernel.name: kernel.origins for kernel in self.kernels}
            lines = (f"kernel {name} ({', '.join(origins[name])}): {what}" for name, what in error.kernels.items())
            raise DeviceError(
                "\n  ".join([f"{self.name}: {self.builder.device} cannot run", *lines])
                + f"\nIt was compiled for {self.target.name} ({self.target.version}): compile it for this device, or choose "
                "another one (DLC_DEVICE; in Python `dlc.load(…, device=…)`)"
            ) from error

    def model(self, num_threads: int | None = None) -> Model:
        """The model as users call it. Raises what `runner` raises."""
        model = Model(self.host.inputs, self.host.outputs, self.runner(), self.name, self, takes_device_arrays=True)
        model.num_threads = num_threads
        return model

    def save(self, path: Path) -> None:
        """Writes a file of this alone; what `container.save` says."""
        save(path, self)

    def written(self, writer: Writer, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Its part of a file's header."""
        writer.require(Common(self.target, b"", self.numerics))
        pieces = {piece: k for k, piece in enumerate(dict.fromkeys(p for kernel in self.kernels for p in kernel.pieces))}
        return {
            "name": self.name,
            "weights": [array_to_json(info.name, self.weights[info.name], writer) for info in self.host.weights],
            "text": writer.add(memoryview(_END.join(pieces).encode())),
            **program_to_json(self.host),
            "kernels": [_kernel_to_json(kernel, pieces) for kernel in self.kernels],
        }

    @staticmethod
    def read(fields: Mapping[str, Any], container: Container, builder: Builder) -> DeviceArtifact:
        """The artifact that a part of a file's header describes.

        Raises what Artifact.read raises.
        """
        common = container.common
        pieces = bytes(container.section(fields["text"])).decode().split(_END)
        kernels = tuple(_kernel_from_json(kernel, pieces) for kernel in fields["kernels"])
        names = {kernel.name for kernel in kernels}
        infos, arrays = arrays_from_json(fields["weights"], container)
        host = program_from_json(fields, infos, names, names)
        if isinstance(host, HostProgram):
            shapes = {kernel.name: kernel.shape for kernel in kernels}
            for launch in host.launches:
                _require_sizes(launch, shapes)
        return DeviceArtifact(text(fields["name"]), common.target, host, kernels, arrays, builder, common.numerics)


def _require_sizes(launch: Launch, shapes: Mapping[str, OpenKernel]) -> None:
    if launch.kernel is not None and shapes[launch.kernel] != OpenKernel(0, launch.sizes):
        raise ValueError(f"a launch of {launch.kernel} on buffers of {launch.sizes} bytes, not those of the kernel")


def _kernel_to_json(kernel: KernelText, pieces: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "pieces": [pieces[piece] for piece in kernel.pieces],
        "grids": [[plain(grid.groups), grid.items, grid.local_bytes] for grid in kernel.grids],
        "sizes": kernel.shape.sizes,
        "bytes": list(map(plain, kernel.shape.bytes)),
        "computes": kernel.computes,
        "origins": kernel.origins,
        "flops": plain(kernel.flops),
        "results": [dtype.name for dtype in kernel.results],
    }


def _kernel_from_json(fields: Mapping[str, Any], pieces: list[str]) -> KernelText:
    return KernelText(
        text(fields["name"]),
        tuple(pieces[count(k)] for k in fields["pieces"]),
        tuple(Grid(read_size(groups), count(items), count(local)) for groups, items, local in fields["grids"]),
        OpenKernel(count(fields["sizes"]), tuple(map(read_size, fields["bytes"]))),
        tuple(map(text, fields["computes"])),
        tuple(map(text, fields["origins"])),
        read_size(fields["flops"]),
        tuple(map(named_dtype, fields["results"])),
    )

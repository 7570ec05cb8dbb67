"""OpenCL artifacts: a compiled program for a device, and its serialization (saving/container.py).

The file contains the kernels' OpenCL C source and the features that they need, not binaries, which are valid for one driver
only. A program runs on any device with these features. Kernels are built, or loaded from the cache, when it is loaded.
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
from dlc.options import Options
from dlc.runtime.models.model import Model, Run
from dlc.runtime.opencl.build import Builder, build
from dlc.runtime.opencl.driver import driver_errors
from dlc.runtime.opencl.kernel import OpenCLKernel
from dlc.runtime.opencl.program import OpenCLProgram, weights_on
from dlc.runtime.program.alignment import require_alignment
from dlc.runtime.program.host_program import HostProgram, KernelSignature
from dlc.runtime.program.kernel_text import BUFFER_ALIGNMENT_BYTES, Grid
from dlc.runtime.program.specialization import ProgramSpecializer
from dlc.runtime.saving.container import Container, SectionWriter, SharedFields, save
from dlc.runtime.saving.header.arrays import array_to_json, arrays_from_json
from dlc.runtime.saving.header.program import program_from_json, program_to_json
from dlc.runtime.saving.header.values import count, size_from_json, size_to_json, text
from dlc.target import Target

# Separates source chunks, which do not contain it.
_SEPARATOR = "\0"


@dataclass(frozen=True)
class DeviceArtifact:
    """A compiled program for an OpenCL device; `builder` builds its kernels on this machine."""

    name: str
    target: Target
    host: HostProgram
    kernels: tuple[OpenCLKernel, ...]
    weights: Mapping[str, NDArray[Any]]
    builder: Builder
    numerics: str = "default"

    @cached_property
    def specializer(self) -> ProgramSpecializer:
        """The specializer of the program for the sizes of calls. Raises ModelError for an invalid program."""
        return ProgramSpecializer(self.host, self.target.alignment)

    @cached_property
    def program(self) -> OpenCLProgram:
        """The program on the device.

        Raises TooLargeError with the names of kernels that exceed the resources of the device, DeviceError if the driver
        rejects one, and ModelError for arrays without the alignment that kernels expect.
        """
        if self.target.alignment % BUFFER_ALIGNMENT_BYTES:
            raise ModelError(f"{self.name}: its buffers are aligned to {self.target.alignment} bytes only")
        require_alignment(self.host.instructions)
        built_program, session = (
            build(self.name, self.kernels, self.specializer.representative().launches, self.builder),
            self.builder.session,
        )
        with driver_errors(self.builder.device, ": ", self.name):
            kernels, weights = built_program.kernels(self.kernels), weights_on(session, self.host.weights, self.weights)
            return OpenCLProgram(self.specializer, kernels, weights, session)

    def runner(self, options: Options) -> Run:
        """Return a function that runs the program; options have no effect on a device.

        Raises DeviceError, naming the kernels and the resources that they need, if these exceed the device's.
        """
        try:
            return self.program.run
        except TooLargeError as error:
            origins = {kernel.name: kernel.origins for kernel in self.kernels}
            lines = (f"kernel {name} ({', '.join(origins[name])}): {reason}" for name, reason in error.kernels.items())
            raise DeviceError(
                "\n  ".join([f"{self.name}: {self.builder.device} cannot run", *lines])
                + f"\nIt was compiled for {self.target.name} ({self.target.version}): compile it for this device, or choose "
                "another one (DLC_DEVICE; in Python `dlc.load(…, device=…)`)"
            ) from error

    def model(self, options: Options | None = None) -> Model:
        """Return the model that users call. Raises what `runner` raises."""
        options = options or Options()
        model = Model(self.host.inputs, self.host.outputs, self.runner(options), self.name, self, takes_device_arrays=True)
        model.set_execution(options)
        return model

    def save(self, path: Path) -> None:
        """Save a model file with only this artifact; raises what `container.save` raises."""
        save(path, self)

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Write the sections of the artifact and return its fields of the file's header."""
        writer.require(SharedFields(self.target, b"", self.numerics))
        chunks = {chunk: k for k, chunk in enumerate(dict.fromkeys(p for kernel in self.kernels for p in kernel.chunks))}
        return {
            "name": self.name,
            "weights": [array_to_json(info.name, self.weights[info.name], writer) for info in self.host.weights],
            "text": writer.add(memoryview(_SEPARATOR.join(chunks).encode())),
            **program_to_json(self.host),
            "kernels": [_kernel_to_json(kernel, chunks) for kernel in self.kernels],
        }

    @staticmethod
    def read(fields: Mapping[str, Any], container: Container, builder: Builder) -> DeviceArtifact:
        """Read the artifact that these header fields describe.

        Raises what Artifact.read raises.
        """
        common = container.common
        chunks = bytes(container.section(fields["text"])).decode().split(_SEPARATOR)
        kernels = tuple(_kernel_from_json(kernel, chunks) for kernel in fields["kernels"])
        infos, arrays = arrays_from_json(fields["weights"], container)
        host = program_from_json(fields, infos, {kernel.name: kernel.signature for kernel in kernels})
        return DeviceArtifact(text(fields["name"]), common.target, host, kernels, arrays, builder, common.numerics)


def _kernel_to_json(kernel: OpenCLKernel, chunks: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "chunks": [chunks[chunk] for chunk in kernel.chunks],
        "grids": [[size_to_json(grid.groups), grid.items, grid.local_bytes] for grid in kernel.grids],
        "sizes": kernel.signature.sizes,
        "bytes": list(map(size_to_json, kernel.signature.bytes)),
        "required_features": kernel.required_features,
        "origins": kernel.origins,
        "flops": size_to_json(kernel.flops),
        "results": [dtype.name for dtype in kernel.results],
    }


def _kernel_from_json(fields: Mapping[str, Any], chunks: list[str]) -> OpenCLKernel:
    return OpenCLKernel(
        text(fields["name"]),
        tuple(chunks[count(k)] for k in fields["chunks"]),
        tuple(Grid(size_from_json(groups), count(items), count(local)) for groups, items, local in fields["grids"]),
        KernelSignature(count(fields["sizes"]), tuple(map(size_from_json, fields["bytes"]))),
        tuple(map(text, fields["required_features"])),
        tuple(map(text, fields["origins"])),
        size_from_json(fields["flops"]),
        tuple(map(named_dtype, fields["results"])),
    )

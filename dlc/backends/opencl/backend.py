"""OpenCL devices: kernels to OpenCL C, programs to artifacts; what makes code of the text, and runs it, is `runtime.opencl`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dlc.backends.base import KernelBackend, Parts
from dlc.backends.opencl.emit import emit_kernel
from dlc.backends.opencl.functions import MATRICES
from dlc.backends.opencl.syntax import OPENCL
from dlc.emission.c.kernel import KernelSource
from dlc.ir import func
from dlc.options import Options
from dlc.runtime.load import CompiledProgram, program_in
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.build import Builder
from dlc.runtime.opencl.devices import Device, choose, fitted, target_of
from dlc.runtime.opencl.kernel import KernelText, matrices_of
from dlc.runtime.program.host_program import OpenKernel
from dlc.runtime.program.kernel_text import program_text
from dlc.target import OPENCL_PROFILES, Target


@dataclass(frozen=True)
class OpenCL(KernelBackend[KernelSource, KernelText]):
    """A target called `opencl…`, on the device that this means here, or that `wanted` names; `chosen` once it is.

    `reduced` is what kernels are compiled for that the device does not hold otherwise.
    """

    name: str
    wanted: str | None = None
    chosen: tuple[Device, Target] | None = None
    reduced: Target | None = None

    takes_device_arrays = True
    takes_sizes = True
    forms = ("opencl",)
    suffix = "cl"
    compiler = "opencl"

    @property
    def target(self) -> Target:
        if self.reduced is not None:
            return self.reduced
        # Text can be had without a device where the name says all.
        return self.chosen[1] if self.chosen is not None else target_of(self.name, self.wanted)

    @property
    def device(self) -> Device:
        """The device; raises DeviceError when there is none."""
        return self.chosen[0] if self.chosen is not None else choose(self.name, self.wanted)[0]

    def __str__(self) -> str:
        return f"{self.device} as {self.target.name}"

    def here(self) -> OpenCL:
        return self if self.chosen is not None else replace(self, chosen=choose(self.name, self.wanted))

    def emit(self, kernel: func.FuncOp) -> KernelSource:
        return emit_kernel(kernel, self.target)

    def compile_kernel(self, name: str, text: KernelSource) -> KernelText:
        # The driver compiles all of a program's kernels together.
        kinds = {**OPENCL.extensions, **{matrices_of(dot): definition for dot, definition in MATRICES.items()}}
        computes = tuple(kind for kind, needed in kinds.items() if needed in text.definitions)
        return KernelText(name, text.pieces, text.grids, OpenKernel(text.sizes, text.bytes), computes)

    def size(self, code: KernelText) -> int:
        return code.size

    def assemble(self, parts: Parts[KernelText]) -> DeviceArtifact:
        kernels = tuple(
            replace(k, origins=parts.origins[k.name], results=parts.results[k.name], flops=parts.flops[k.name])
            for k in parts.kernels
        )
        device, target = choose(self.name, self.wanted) if self.chosen is None else self.chosen
        builder, numerics = Builder.of(device, parts.options), parts.options.numerics
        artifact = DeviceArtifact(parts.name, target.of_code, parts.host, kernels, parts.weights, builder, numerics)
        # Only what is built is known to fit the device.
        _ = artifact.program
        return artifact

    def kept(self, path: Path, options: Options) -> CompiledProgram:
        return program_in(path, Builder.of(self.device, options))

    def show(self, form: str, texts: Mapping[str, KernelSource], headers: Mapping[str, str]) -> str:
        return program_text([replace(t, functions=headers[name] + t.functions) for name, t in texts.items()])

    def smaller(self) -> OpenCL | None:
        least = fitted(OPENCL_PROFILES["opencl:small"], self.device)
        if self.target.groups is None or least.groups == self.target.groups:
            return None
        return replace(self, reduced=least)

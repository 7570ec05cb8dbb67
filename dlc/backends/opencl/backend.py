"""The OpenCL backend: kernels become OpenCL C, programs become artifacts; `runtime.opencl` builds and runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dlc.backends.base import KernelBackend, ProgramParts
from dlc.backends.opencl.emit import emit_kernel
from dlc.backends.opencl.functions import MATRIX_PRODUCTS
from dlc.backends.opencl.syntax import OPENCL
from dlc.emission.c.kernel import KernelSource
from dlc.ir import func
from dlc.options import Options
from dlc.runtime.compiled_program import CompiledProgram
from dlc.runtime.load import program_in
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.build import Builder
from dlc.runtime.opencl.devices import Device, fit_target, select_device, target_of
from dlc.runtime.opencl.kernel import OpenCLKernel, matrix_unit_feature
from dlc.runtime.program.host_program import KernelSignature
from dlc.runtime.program.kernel_text import program_text
from dlc.target import OPENCL_PROFILES, Target


@dataclass(frozen=True)
class OpenCL(KernelBackend[KernelSource, OpenCLKernel]):
    """A target `opencl…`: `requested` is the device that the options name, `selected` has the selected device and target.

    `reduced_target` is used for kernels that exceed the device's resources.
    """

    name: str
    requested: str | None = None
    selected: tuple[Device, Target] | None = None
    reduced_target: Target | None = None

    takes_device_arrays = True
    accepts_symbolic_sizes = True
    listing_formats = ("opencl",)
    suffix = "cl"
    compiler = "opencl"

    @property
    def target(self) -> Target:
        if self.reduced_target is not None:
            return self.reduced_target
        # Emitting text needs no device if the name specifies the target completely.
        return self.selected[1] if self.selected is not None else target_of(self.name, self.requested)

    @property
    def device(self) -> Device:
        """The selected device; raises DeviceError if there is none."""
        return self.selected[0] if self.selected is not None else select_device(self.name, self.requested)[0]

    def __str__(self) -> str:
        return f"{self.device} as {self.target.name}"

    def for_local_device(self) -> OpenCL:
        return self if self.selected is not None else replace(self, selected=select_device(self.name, self.requested))

    def emit(self, kernel: func.FuncOp) -> KernelSource:
        return emit_kernel(kernel, self.target)

    def compile_kernel(self, name: str, text: KernelSource) -> OpenCLKernel:
        # The driver compiles all kernels of a program together, in `assemble`.
        macros_by_feature = {
            **OPENCL.extensions,
            **{matrix_unit_feature(dot): definition for dot, definition in MATRIX_PRODUCTS.items()},
        }
        required_features = tuple(feature for feature, macro in macros_by_feature.items() if macro in text.definitions)
        return OpenCLKernel(name, text.chunks, text.grids, KernelSignature(text.sizes, text.bytes), required_features)

    def size(self, code: OpenCLKernel) -> int:
        return code.size

    def assemble(self, parts: ProgramParts[OpenCLKernel]) -> DeviceArtifact:
        kernels = tuple(
            replace(k, origins=parts.origins[k.name], results=parts.results[k.name], flops=parts.flops[k.name])
            for k in parts.kernels
        )
        device, target = select_device(self.name, self.requested) if self.selected is None else self.selected
        builder, numerics = Builder.of(device, parts.options), parts.options.numerics
        artifact = DeviceArtifact(parts.name, target.without_costs, parts.host, kernels, parts.weights, builder, numerics)
        # Build now: only a successful build shows that the kernels fit the device.
        _ = artifact.program
        return artifact

    def load_cached(self, path: Path, options: Options) -> CompiledProgram:
        return program_in(path, Builder.of(self.device, options))

    def show(self, format: str, texts: Mapping[str, KernelSource], headers: Mapping[str, str]) -> str:
        return program_text([replace(t, functions=headers[name] + t.functions) for name, t in texts.items()])

    def reduced_backend(self) -> OpenCL | None:
        smallest = fit_target(OPENCL_PROFILES["opencl:small"], self.device)
        if self.target.groups is None or smallest.groups == self.target.groups:
            return None
        return replace(self, reduced_target=smallest)

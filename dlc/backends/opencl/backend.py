"""OpenCL devices: kernels to OpenCL C, their text to a program by the device's driver, launches to commands in its queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dlc.backends.base import KernelBackend, Parts
from dlc.backends.opencl.build import build
from dlc.backends.opencl.emit import KernelSource, emit_kernel, program_text
from dlc.caching.cache import Cache
from dlc.ir import func
from dlc.machine.cpus import usable_cpus
from dlc.runtime.host_program import OpenKernel
from dlc.runtime.known_sizes import KnownSizes
from dlc.runtime.open_program import OpenProgram
from dlc.runtime.opencl.devices import Device, choose, fitted, open_device, target_of
from dlc.runtime.opencl.open_program import OpenOpenCLProgram
from dlc.runtime.opencl.program import OpenCLProgram, weights_on
from dlc.target import OPENCL_PROFILES, Target


@dataclass(frozen=True)
class OpenCL(KernelBackend[KernelSource, KernelSource]):
    """A target called `opencl…`, on the device that this means here, or that `wanted` names; `chosen` once it is."""

    name: str
    wanted: str | None = None
    chosen: tuple[Device, Target] | None = None

    takes_device_arrays = True
    takes_sizes = True
    forms = ("opencl",)
    suffix = "cl"
    compiler = "opencl"

    @property
    def target(self) -> Target:
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

    def compile_kernel(self, name: str, text: KernelSource) -> KernelSource:
        # The driver compiles all of a program's kernels together.
        return text

    def size(self, code: KernelSource) -> int:
        return len(code.text)

    def assemble(self, parts: Parts[KernelSource]) -> OpenCLProgram | OpenOpenCLProgram:
        options, session, host = parts.options, open_device(self.device), parts.host
        shapes = {kernel.name: OpenKernel(kernel.sizes, kernel.bytes) for kernel in parts.kernels}
        known = KnownSizes(host, shapes, session.device.alignment) if isinstance(host, OpenProgram) else host
        launches = (known.representative() if isinstance(known, KnownSizes) else known).launches
        cache = Cache.standard() if options.cache else Cache(None)
        built = build(parts.name, parts.kernels, launches, session, cache, options.workers or usable_cpus())
        kernels, weights = built.kernels(parts.kernels), weights_on(session, host.weights, parts.weights)
        if isinstance(known, KnownSizes):
            return OpenOpenCLProgram(known, kernels, weights, session)
        return OpenCLProgram(known, kernels, weights, session)

    def show(self, form: str, texts: Mapping[str, KernelSource], headers: Mapping[str, str]) -> str:
        return program_text([replace(t, functions=headers[name] + t.functions) for name, t in texts.items()])

    def smaller(self) -> OpenCL | None:
        least = fitted(OPENCL_PROFILES["opencl:small"], self.device)
        if self.target.groups is None or least.groups == self.target.groups:
            return None
        return replace(self, chosen=(self.device, least))

"""CPU artifacts: a compiled program with its kernels and weights, and its serialization (saving/container.py).

An artifact for another processor can be loaded and saved, but not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import named_dtype
from dlc.options import Options
from dlc.runtime.cpu.code.native import Runtime, runtime
from dlc.runtime.cpu.kernel_object import KernelObject, load_kernels
from dlc.runtime.cpu.program import LoadedKernel, NativeProgram
from dlc.runtime.cpu.program_image import ProgramImage, kernels_of
from dlc.runtime.models.model import Model, Run
from dlc.runtime.program.host_program import HostProgram, KernelSignature, sequential
from dlc.runtime.saving.container import Container, SectionRef, SectionWriter, SharedFields, as_byte_view, save
from dlc.runtime.saving.header.arrays import array_to_json, arrays_from_json
from dlc.runtime.saving.header.program import program_from_json, program_to_json
from dlc.runtime.saving.header.values import count, size_from_json, size_to_json, text
from dlc.shapes.dims import Size
from dlc.target import Target, host_supports, require_host


@dataclass(frozen=True)
class Artifact:
    """A compiled program: the host program, its kernels, and its packed weights.

    `runtime` is the object code of the native runtime.
    """

    name: str
    target: Target
    host: HostProgram
    kernels: tuple[KernelObject, ...]
    weights: Mapping[str, NDArray[Any]]
    runtime: bytes
    numerics: str = "default"

    def native(self) -> Runtime:
        """Return the native runtime of this process."""
        return runtime(self.runtime)

    def program(
        self,
        num_threads: int | None = None,
        *,
        cpus: frozenset[int] | None = None,
        images: Mapping[str, LoadedKernel] | None = None,
        native: Runtime | None = None,
        is_sequential: bool = False,
    ) -> NativeProgram:
        """Return the program, loaded into this process; `images` and `native` replace the artifact's kernels and runtime.

        A sequential program runs one launch at a time, without concurrent sections.

        Raises DeviceError on a machine that cannot run it.
        """
        require_host(self.target, self.name)
        images = images or load_kernels(self.kernels)
        host = replace(self.host, instructions=sequential(self.host.instructions)) if is_sequential else self.host
        return NativeProgram(host, images, self.weights, native or self.native(), num_threads, cpus)

    def runner(self, options: Options) -> Run:
        """Return a function that runs the program; on another machine it raises DeviceError when it is called."""
        if host_supports(self.target):
            return self.program(options.num_threads, cpus=options.cpus).run
        return lambda inputs: self.program(options.num_threads, cpus=options.cpus).run(inputs)

    def model(self, options: Options | None = None) -> Model:
        """Return the model that users call."""
        options = options or Options()
        model = Model(self.host.inputs, self.host.outputs, self.runner(options), self.name, self)
        model.set_execution(options)
        return model

    def image(self, weights: Sequence[SectionRef], defaults: Mapping[str, SectionRef]) -> bytes:
        """Return the program image (program_image.py); it refers to `weights`, in order, and to `defaults` of inputs."""
        return ProgramImage(self.name, self.target, self.host, self.kernels, self.runtime).encode(weights, defaults)

    def save(self, path: Path) -> None:
        """Save a model file with only this artifact; raises what `container.save` raises."""
        save(path, self)

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Write the sections of the artifact and return its fields of the file's header."""
        host = self.host
        writer.require(SharedFields(self.target, self.runtime, self.numerics))
        weights = [array_to_json(info.name, self.weights[info.name], writer) for info in host.weights]
        default_sections = {name: writer.add(as_byte_view(array)) for name, array in defaults.items()}
        # The image, which is the next section, refers to arrays by their distance, independent of where the file is mapped.
        image = self.image(
            [writer.reference_to(section) for *_, section in weights],
            {name: writer.reference_to(section) for name, section in default_sections.items()},
        )
        return {
            "name": self.name,
            "weights": weights,
            "image": writer.add(memoryview(image)),
            **program_to_json(host),
            "kernels": [_kernel_to_json(kernel) for kernel in self.kernels],
        }

    @staticmethod
    def read(fields: Mapping[str, Any], container: Container) -> Artifact:
        """Read the artifact that these header fields describe.

        Raises ModelError, KeyError, TypeError, ValueError, IndexError or AttributeError for invalid fields.
        """
        common = container.common
        code, kernel_entries = kernels_of(container.section(fields["image"]), common.target)
        kernels = tuple(_kernel_from_json(kernel, code, kernel_entries) for kernel in fields["kernels"])
        infos, arrays = arrays_from_json(fields["weights"], container)
        host = program_from_json(fields, infos, {kernel.name: kernel.signature for kernel in kernels})
        return Artifact(text(fields["name"]), common.target, host, kernels, arrays, common.runtime, common.numerics)


def _kernel_to_json(kernel: KernelObject) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": kernel.name, "tasks": list(map(size_to_json, kernel.tasks)), "origins": kernel.origins}
    fields |= {"sizes": kernel.signature.sizes, "bytes": list(map(size_to_json, kernel.signature.bytes))}
    return {**fields, "flops": size_to_json(kernel.flops), "results": [dtype.name for dtype in kernel.results]}


def _kernel_from_json(
    fields: Mapping[str, Any], code: bytes, kernel_entries: Mapping[str, tuple[tuple[int, ...], int]]
) -> KernelObject:
    entries, size = kernel_entries[fields["name"]]
    if len(entries) != len(fields["tasks"]):
        raise ValueError(f"kernel {fields['name']}: {len(entries)} grids, not {len(fields['tasks'])}")
    return KernelObject(
        text(fields["name"]),
        code,
        entries,
        tuple(_tasks(size_from_json(tasks)) for tasks in fields["tasks"]),
        size,
        KernelSignature(count(fields["sizes"]), tuple(map(size_from_json, fields["bytes"]))),
        tuple(map(text, fields["origins"])),
        size_from_json(fields["flops"]),
        tuple(map(named_dtype, fields["results"])),
    )


def _tasks(tasks: Size) -> Size:
    if isinstance(tasks, int) and tasks >= 1 << 31:
        raise ValueError(f"a grid of {tasks} tasks; the maximum is {(1 << 31) - 1}")
    return tasks

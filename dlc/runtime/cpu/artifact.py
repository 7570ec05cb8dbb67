"""The artifact: a compiled program as what runs it, and as a part of a file (saving/container.py).

It is what the program takes and returns, which kernels run in which order on which buffers, each kernel's object and each
packed weight. It need not be one for this machine: then it is written and read, and not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import named_dtype
from dlc.dims import Size
from dlc.runtime.cpu.code.native import Runtime, runtime
from dlc.runtime.cpu.image import Image, kernels_of
from dlc.runtime.cpu.kernel_object import KernelObject, images_of
from dlc.runtime.cpu.open_program import OpenNativeProgram
from dlc.runtime.cpu.program import KernelImage, NativeProgram
from dlc.runtime.models.model import Model, Run
from dlc.runtime.program.host_program import HostProgram, OpenKernel
from dlc.runtime.program.open_program import OpenProgram
from dlc.runtime.saving.container import Common, Container, Placed, Writer, bytes_of, save
from dlc.runtime.saving.header.arrays import array_to_json, arrays_from_json
from dlc.runtime.saving.header.program import program_from_json, program_to_json
from dlc.runtime.saving.header.values import count, plain, read_size, text
from dlc.target import Target, host_supports, require_host


@dataclass(frozen=True)
class Artifact:
    """All that running a compiled model takes."""

    name: str
    target: Target
    host: HostProgram | OpenProgram
    kernels: tuple[KernelObject, ...]
    weights: Mapping[str, NDArray[Any]]
    runtime: bytes
    numerics: str = "default"

    def native(self) -> Runtime:
        """The run-time in this process."""
        return runtime(self.runtime)

    def program(
        self,
        num_threads: int | None = None,
        *,
        images: Mapping[str, KernelImage] | None = None,
        native: Runtime | None = None,
    ) -> NativeProgram | OpenNativeProgram:
        """The model in this process; `images` and `native` are what it runs in place of its own code.

        Raises DeviceError on a machine that is none for it.
        """
        require_host(self.target, self.name)
        images = images or images_of(self.kernels)
        native = native or self.native()
        if isinstance(self.host, HostProgram):
            return NativeProgram(self.host, images, self.weights, native, num_threads)
        shapes = {kernel.name: kernel.open for kernel in self.kernels if kernel.open is not None}
        return OpenNativeProgram(self.host, images, shapes, self.weights, native, num_threads)

    def runner(self, num_threads: int | None = None) -> Run:
        """What runs the model; on a machine that is none for it, what raises DeviceError when it is called."""
        if host_supports(self.target):
            return self.program(num_threads).run
        return lambda inputs: self.program(num_threads).run(inputs)

    def model(self, num_threads: int | None = None) -> Model:
        """The model as users call it."""
        model = Model(self.host.inputs, self.host.outputs, self.runner(num_threads), self.name, self)
        model.num_threads = num_threads
        return model

    def image(self, weights: Sequence[Placed], defaults: Mapping[str, Placed]) -> bytes:
        """The program as a block (image.py), with its `weights`, in order, and `defaults` of inputs."""
        return Image(self.name, self.target, self.host, self.kernels, self.runtime).written(weights, defaults)

    def save(self, path: Path) -> None:
        """Writes a file of this alone; what `container.save` says."""
        save(path, self)

    def written(self, writer: Writer, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Its part of a file's header."""
        host = self.host
        writer.require(Common(self.target, self.runtime, self.numerics))
        weights = [array_to_json(info.name, self.weights[info.name], writer) for info in host.weights]
        given = {name: writer.add(bytes_of(array)) for name, array in defaults.items()}
        # Sections keep their distances: the block, which comes next, finds the arrays wherever the file is mapped.
        image = self.image(
            [writer.placed(section) for *_, section in weights],
            {name: writer.placed(section) for name, section in given.items()},
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
        """The artifact that a part of a file's header describes.

        Raises ModelError, or KeyError, TypeError, ValueError, IndexError, AttributeError, for a part that describes none.
        """
        common = container.common
        code, found = kernels_of(container.section(fields["image"]), common.target)
        kernels = tuple(_kernel_from_json(kernel, code, found) for kernel in fields["kernels"])
        infos, arrays = arrays_from_json(fields["weights"], container)
        host = program_from_json(fields, infos, {k.name for k in kernels if k.open}, {k.name for k in kernels})
        return Artifact(text(fields["name"]), common.target, host, kernels, arrays, common.runtime, common.numerics)


def _kernel_to_json(kernel: KernelObject) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": kernel.name, "tasks": list(map(plain, kernel.tasks)), "origins": kernel.origins}
    fields["flops"] = plain(kernel.flops)
    if kernel.results:
        fields["results"] = [dtype.name for dtype in kernel.results]
    if kernel.open is not None:
        fields |= {"sizes": kernel.open.sizes, "bytes": list(map(plain, kernel.open.bytes))}
    return fields


def _kernel_from_json(fields: Mapping[str, Any], code: bytes, found: Mapping[str, tuple[tuple[int, ...], int]]) -> KernelObject:
    sizes = fields.get("sizes")
    entries, size = found[fields["name"]]
    if len(entries) != len(fields["tasks"]):
        raise ValueError(f"kernel {fields['name']}: {len(entries)} grids, not {len(fields['tasks'])}")
    return KernelObject(
        text(fields["name"]),
        code,
        entries,
        tuple(_tasks(count(n) if sizes is None else read_size(n)) for n in fields["tasks"]),
        size,
        tuple(map(text, fields["origins"])),
        read_size(fields["flops"]),
        None if sizes is None else OpenKernel(count(sizes), tuple(map(read_size, fields["bytes"]))),
        tuple(map(named_dtype, fields.get("results", ()))),
    )


def _tasks(tasks: Size) -> Size:
    if isinstance(tasks, int) and tasks >= 1 << 31:
        raise ValueError(f"a grid of {tasks} tasks; the pool counts to {(1 << 31) - 1}")
    return tasks

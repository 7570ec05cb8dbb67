"""The interface of a backend: pipeline stages, code generation for kernels, and execution of programs.

A backend is a value. Built-in backends are found by name (registry.py); a custom backend is passed to `dlc.compile_model`, or
named by its file, `--target FILE.py:NAME`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlc.ir import ModuleOp, Operation, func
from dlc.options import Options
from dlc.passes.base import Stage
from dlc.pipelines import stages_of
from dlc.runtime.compiled_program import CompiledProgram
from dlc.runtime.load import program_in
from dlc.runtime.program.host_program import HostProgram
from dlc.shapes.dims import Size
from dlc.target import Target

KernelTextT = TypeVar("KernelTextT")
KernelCodeT = TypeVar("KernelCodeT")


class Executable(Protocol):
    """A program that can run in this process."""

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run the program; the caller has checked the number, shapes and dtypes of the inputs."""
        ...


class Backend(ABC):
    """A backend compiles and runs programs for a target; it is a `ModuleBackend` or a `KernelBackend`."""

    # True if programs accept arrays that are already on their device, without a copy.
    takes_device_arrays = False
    # True if kernels take symbolic sizes as arguments.
    accepts_symbolic_sizes = False

    @property
    @abstractmethod
    def target(self) -> Target:
        """The description of the device that the passes use."""

    def for_local_device(self) -> Backend:
        """Return the backend bound to a device of this machine.

        Raises DeviceError if there is no suitable device.
        """
        return self

    def for_compilation(self) -> Backend:
        """Return the backend bound to a device if compilation requires one; the program may be meant for another machine.

        Raises DeviceError if compilation requires the device and there is none.
        """
        return self.for_local_device()

    def stages(self, options: Options) -> tuple[Stage, ...]:
        """Return the stages from a `dl` module with static sizes to the input of code generation."""
        return stages_of(self.target, options.numerics, options.weights, options.group, options.precision)

    def __str__(self) -> str:
        return self.target.name


class ModuleBackend(Backend):
    """A backend that executes modules at any stage."""

    @abstractmethod
    def execute(self, module: ModuleOp, weights: Mapping[str, NDArray[Any]]) -> Executable:
        """Return an executable for a module and its weights."""


@dataclass(frozen=True)
class ProgramParts(Generic[KernelCodeT]):
    """The components of a program: its kernels, and the host program that runs them on buffers and weights.

    Attributes:
        origins: The layers in each kernel.
        results: The dtypes of the results of each kernel.
        flops: The floating-point operations of the contractions of each kernel, per launch.
    """

    name: str
    host: HostProgram
    kernels: Sequence[KernelCodeT]
    weights: Mapping[str, NDArray[Any]]
    origins: Mapping[str, tuple[str, ...]]
    results: Mapping[str, tuple[np.dtype[Any], ...]]
    flops: Mapping[str, Size]
    options: Options


@dataclass(frozen=True)
class CodeListing:
    """A kernel's code in one format, with the origins of its lines.

    Attributes:
        line_origins: For each line, indices `#0`, … into the list of origins of the kernel's launches.
        lines: For each line, the 0-based line number in the kernel's own text (-1: unknown), which is more precise. It may be
            empty.
    """

    format: str
    text: str
    line_origins: tuple[tuple[str, ...], ...] = ()
    lines: tuple[int, ...] = ()


def _line_origins(code: str) -> Iterator[tuple[str, ...]]:
    """Yield, for each line of C-like text, the origin indices in the closest comment such as `// #0, #1`."""
    indices: tuple[str, ...] = ()
    for line in code.splitlines():
        if (match := re.fullmatch(r"\s*// (#\d+(?:, #\d+)*)", line)) is not None:
            indices = tuple(match[1].split(", "))
        elif line.startswith(("}", "//")):
            indices = ()
        yield indices


class KernelBackend(Backend, Generic[KernelTextT, KernelCodeT]):
    """A backend that compiles each kernel separately (in parallel processes) and assembles programs from the compiled kernels.

    Attributes:
        listing_formats: The formats that `show` accepts; the first is used for dumps.
        suffix: The file suffix of dumps.
        compiler: The name of the compiler of the kernel text.
    """

    listing_formats: tuple[str, ...]
    suffix: str
    compiler: str

    @abstractmethod
    def emit(self, kernel: func.FuncOp) -> KernelTextT:
        """Return the text of a kernel at the end of the last stage."""

    @abstractmethod
    def compile_kernel(self, name: str, text: KernelTextT) -> KernelCodeT:
        """Return the code of the kernel called `name`, which must be picklable."""

    def compile_kernels(self, texts: Mapping[str, KernelTextT]) -> list[KernelCodeT]:
        """Return the code of several kernels; override it for compilers that are faster in batches."""
        return [self.compile_kernel(name, text) for name, text in texts.items()]

    @abstractmethod
    def size(self, code: KernelCodeT) -> int:
        """Return the size of a kernel's code in bytes."""

    @abstractmethod
    def assemble(self, parts: ProgramParts[KernelCodeT]) -> CompiledProgram | Executable:
        """Assemble a program; an artifact, which can be cached, if the target has a version.

        Raises TooLargeError with the names of kernels that exceed the resources of the device.
        """

    @abstractmethod
    def show(self, format: str, texts: Mapping[str, KernelTextT], headers: Mapping[str, str]) -> str:
        """Return a listing of kernels in one of the formats; a header is the comment above a kernel."""

    def load_cached(self, path: Path, options: Options) -> CompiledProgram:
        """Load the artifact of a cache entry."""
        return program_in(path)

    def emit_with_locations(self, kernel: func.FuncOp, lines: Mapping[Operation, int]) -> KernelTextT:
        """Emit a kernel as `emit` does, with debug locations if supported; `lines` gives the line on which each op begins."""
        return self.emit(kernel)

    def compile_with_listing(self, name: str, text: KernelTextT) -> tuple[KernelCodeT, list[CodeListing]]:
        """Compile the text of a kernel with debug locations; return the code and a listing in each format."""
        listings = {format: self.show(format, {name: text}, {name: ""}) for format in self.listing_formats}
        return self.compile_kernel(name, text), [
            CodeListing(format, code, tuple(_line_origins(code))) for format, code in listings.items()
        ]

    def reduced_backend(self) -> KernelBackend[KernelTextT, KernelCodeT] | None:
        """Return a backend for kernels that exceed the device's resources, or None."""
        return None

"""What a target is to the compiler: the stages of its programs, what becomes of their kernels, and what runs them.

A backend is a value: dlc's own are found by name (registry.py), one of your own is handed to `dlc.compile_model`, or named by
its file, `--target FILE.py:NAME`.
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

from dlc.dims import Size
from dlc.ir import ModuleOp, Operation, func
from dlc.options import Options
from dlc.passes.base import Stage
from dlc.pipelines import stages_of
from dlc.runtime.load import CompiledProgram, program_in
from dlc.runtime.program.host_program import HostProgram
from dlc.runtime.program.open_program import OpenProgram
from dlc.target import Target

Text = TypeVar("Text")
Code = TypeVar("Code")


class Executable(Protocol):
    """A program in this process."""

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs for inputs of the right number, shapes and dtypes."""
        ...


class Backend(ABC):
    """How programs for a target are compiled and run; it is a `ModuleBackend` or a `KernelBackend`."""

    # Whether programs take arrays on their device as they are.
    takes_device_arrays = False
    # Whether kernels take sizes that come with a call as arguments.
    takes_sizes = False

    @property
    @abstractmethod
    def target(self) -> Target:
        """What the passes know of the device."""

    def here(self) -> Backend:
        """The backend with a device of this machine.

        Raises DeviceError when there is none for it.
        """
        return self

    def compiling(self) -> Backend:
        """The backend as far as programs are made, which another machine than this one may be meant to run.

        Raises DeviceError where it takes the device itself to make them, and there is none.
        """
        return self.here()

    def stages(self, options: Options) -> tuple[Stage, ...]:
        """From a `dl` module of static sizes to what code is made of."""
        return stages_of(self.target, options.numerics, options.weights, options.group, options.precision)

    def __str__(self) -> str:
        return self.target.name


class ModuleBackend(Backend):
    """Executes modules at whatever stage they are."""

    @abstractmethod
    def execute(self, module: ModuleOp, weights: Mapping[str, NDArray[Any]]) -> Executable:
        """The program that a module and its weights are."""


@dataclass(frozen=True)
class Parts(Generic[Code]):
    """What a program is put together of: its kernels, and the host program that runs them on buffers and weights.

    `origins` are the layers in each kernel, `results` the dtypes of what it gives, `flops` the floating-point operations of its
    contractions in one run.
    """

    name: str
    host: HostProgram | OpenProgram
    kernels: Sequence[Code]
    weights: Mapping[str, NDArray[Any]]
    origins: Mapping[str, tuple[str, ...]]
    results: Mapping[str, tuple[np.dtype[Any], ...]]
    flops: Mapping[str, Size]
    options: Options


@dataclass(frozen=True)
class CodeListing:
    """A kernel's code in a form, and what is known of where its lines come from.

    `places` are those in the list of origins of the kernel's runs, `#0`, …; `lines`, where there are any, are lines of the
    kernel's own text, from 0 (-1: none is known), which say more.
    """

    form: str
    text: str
    places: tuple[tuple[str, ...], ...] = ()
    lines: tuple[int, ...] = ()


def _places(code: str) -> Iterator[tuple[str, ...]]:
    """The places that comments such as `// #0, #1` say, for each line of a C dialect's text."""
    places: tuple[str, ...] = ()
    for line in code.splitlines():
        if (said := re.fullmatch(r"\s*// (#\d+(?:, #\d+)*)", line)) is not None:
            places = tuple(said[1].split(", "))
        elif line.startswith(("}", "//")):
            places = ()
        yield places


class KernelBackend(Backend, Generic[Text, Code]):
    """Makes code of kernels, each by itself and in processes side by side, and programs of their code.

    `forms` are names of what `show` writes; the first is that of dumps, which end in `suffix`. `compiler` is what makes code
    of text.
    """

    forms: tuple[str, ...]
    suffix: str
    compiler: str

    @abstractmethod
    def emit(self, kernel: func.FuncOp) -> Text:
        """The text of a kernel at the end of the last stage."""

    @abstractmethod
    def compile_kernel(self, name: str, text: Text) -> Code:
        """The code of the kernel called `name`; it can be pickled."""

    def compile_kernels(self, texts: Mapping[str, Text]) -> list[Code]:
        """The code of several kernels by their names, for a compiler that is quicker with them together."""
        return [self.compile_kernel(name, text) for name, text in texts.items()]

    @abstractmethod
    def size(self, code: Code) -> int:
        """The bytes of a kernel's code."""

    @abstractmethod
    def assemble(self, parts: Parts[Code]) -> CompiledProgram | Executable:
        """The program; an artifact where the target's record has a version, so that it can be kept.

        Raises TooLargeError, naming them, for kernels that the device does not hold.
        """

    @abstractmethod
    def show(self, form: str, texts: Mapping[str, Text], headers: Mapping[str, str]) -> str:
        """Kernels in one of the forms, for a reader; a header is the comment above a kernel."""

    def kept(self, path: Path, options: Options) -> CompiledProgram:
        """The artifact in an entry of the cache."""
        return program_in(path)

    def emit_traced(self, kernel: func.FuncOp, lines: Mapping[Operation, int]) -> Text:
        """What `emit` gives, saying where it comes from as far as that can be said; `lines` are those on which ops begin."""
        return self.emit(kernel)

    def compile_listed(self, name: str, text: Text) -> tuple[Code, list[CodeListing]]:
        """The code of a kernel of traced text, and that code for a reader who follows it, in each form."""
        shown = {form: self.show(form, {name: text}, {name: ""}) for form in self.forms}
        return self.compile_kernel(name, text), [CodeListing(form, code, tuple(_places(code))) for form, code in shown.items()]

    def smaller(self) -> KernelBackend[Text, Code] | None:
        """What kernels are compiled by that the device turns out not to hold; None: nothing is smaller."""
        return None

"""Loading what `Model.save` wrote, or what was pickled: an artifact, or variants, models by sizes or a border around them."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlc.caching.cache import Cache
from dlc.errors import CompileError, ModelError
from dlc.files.model_source import ModelSource, path_or_bytes
from dlc.machine.cpus import usable_cpus
from dlc.options import Environment
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.border import BorderedModel, FormedModel
from dlc.runtime.models.model import Model
from dlc.runtime.models.saved_by_sizes import by_sizes_from_json, model_of
from dlc.runtime.models.variants import Variants
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.build import Builder
from dlc.runtime.opencl.devices import choose
from dlc.runtime.saving.container import Container, described_badly, in_memory, to_bytes
from dlc.runtime.saving.header.arrays import array_from_json
from dlc.runtime.saving.header.forms import border_from_json
from dlc.target import is_opencl, require_host

# One program of a model, as its target has it.
CompiledProgram = Artifact | DeviceArtifact


def load(model: ModelSource, *, num_threads: int | None = None, mapped: bool = True, device: str | None = None) -> Model:
    """The model that `Model.save` wrote to a file, given as its path, as its bytes, or open for reading; nothing is compiled.

    `num_threads`: all usable processors if None. A file that is given by its path is mapped into memory, so that processes
    share its weights: put another in its place by renaming, as `Model.save` does, never by writing into it. With
    `mapped=False` it is read, and what becomes of the file is of no concern. `device` is the OpenCL device that a model for one
    runs on, `0:1`; None: the one that DLC_DEVICE names, or else the first that works.

    Raises ModelError for a file that is none, is damaged, or was written by another version of dlc, and DeviceError for one
    that was compiled for another processor, or that needs what the device does not have.
    """
    source = path_or_bytes(model)
    if isinstance(source, bytes):
        return _read(Container.read(Path("model"), in_memory(source)), num_threads, device)
    try:
        content = None if mapped else in_memory(source.read_bytes())
    except OSError as error:
        raise ModelError(f"{source}: cannot be read: {error.strerror}") from error
    return _read(Container.read(source, content), num_threads, device)


def program_in(path: Path, builder: Builder | None = None) -> CompiledProgram:
    """The program in a file of it alone, checked; `builder` makes code of kernels for an OpenCL device.

    Raises what Container.read raises.
    """
    container = Container.read(path)
    with _described(container):
        return _program(container.model, container, builder)


def _pickled(model: Model) -> tuple[Callable[..., Model], tuple[bytes, int | None]]:
    return _unpickled, (to_bytes(model), model.num_threads)


def _unpickled(content: bytes, num_threads: int | None) -> Model:
    return load(content, num_threads=num_threads)


# A pickled model is what its file holds: in another process nothing is compiled.
for kind in (Model, FormedModel, BorderedModel):
    copyreg.pickle(kind, _pickled)


def _read(container: Container, num_threads: int | None, device: str | None) -> Model:
    builder: Builder | None = None
    if is_opencl(container.common.target.name):
        # What comes with a file is first built where it cannot end this process.
        place = choose("opencl", device if device is not None else Environment.read().device)[0]
        builder = Builder(place, Cache.standard(), usable_cpus(), guarded=True)
    else:
        require_host(container.common.target, str(container.path))
    with _described(container):
        return _Reader(container, num_threads, builder).model(container.model)


@contextmanager
def _described(container: Container) -> Generator[None]:
    """Raises ModelError for a header that turns out to describe no model."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, CompileError) as error:
        raise described_badly(container.path, error) from error


def _program(fields: Mapping[str, Any], container: Container, builder: Builder | None) -> CompiledProgram:
    """A program of a file; for an OpenCL device if there is a builder."""
    return Artifact.read(fields, container) if builder is None else DeviceArtifact.read(fields, container, builder)


@dataclass(frozen=True)
class _Reader:
    """Reads the models of a file; `builder`: of one for an OpenCL device."""

    container: Container
    num_threads: int | None
    builder: Builder | None

    def model(self, fields: Mapping[str, Any]) -> Model:
        """A model of the file."""
        model = self._without_defaults(fields)
        defaults = [array_from_json(written, self.container) for written in fields.get("defaults", ())]
        if not set(model.inputs).issuperset(info for info, _ in defaults):
            raise ValueError("a default for what is no input")
        model.defaults = {info.name: array for info, array in defaults}
        model.num_threads = self.num_threads
        return model

    def _without_defaults(self, fields: Mapping[str, Any]) -> Model:
        if "border" in fields:
            return BorderedModel(self.model(fields["program"]), border_from_json(fields["border"]))
        if "variants" in fields:
            return Variants.read(fields, self.model).model(takes_device_arrays=self.builder is not None)
        if "by_sizes" in fields:
            return model_of(by_sizes_from_json(fields, self.model), takes_device_arrays=self.builder is not None)
        return _program(fields, self.container, self.builder).model(self.num_threads)

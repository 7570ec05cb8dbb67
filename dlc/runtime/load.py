"""Load saved or pickled models."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.caching.cache import Cache
from dlc.errors import CompileError, ModelError
from dlc.files.model_source import ModelSource, path_or_bytes
from dlc.machine.cpus import usable_cpus
from dlc.options import Environment, Options
from dlc.runtime.collectives.mesh import RankPlacement
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.io_conversion import ConvertedModel, StructuredModel
from dlc.runtime.models.model import Model
from dlc.runtime.models.mutating_model import MutatingModel
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.runtime.saving.container import Container, invalid_header, page_aligned_copy, to_bytes
from dlc.runtime.saving.header.arrays import array_from_json
from dlc.runtime.saving.header.value_types import io_signature_from_json
from dlc.target import is_opencl, require_host

if TYPE_CHECKING:
    from dlc.runtime.compiled_program import CompiledProgram
    from dlc.runtime.opencl.build import Builder


def load(
    model: ModelSource,
    *,
    num_threads: int | None = None,
    streams: int = 1,
    cpus: Iterable[int] | None = None,
    mapped: bool = True,
    device: str | None = None,
    name: str | None = None,
) -> Model:
    """Load a model that `Model.save` wrote from a path, bytes, or an open file; nothing is compiled.

    A file given as a path is memory-mapped, so that processes share its weights: replace it by renaming another file, as
    `Model.save` does, but never write to it. With `mapped=False` it is read into memory, in huge pages if the system
    has them, and processes do not share it.

    A file of a function on a mesh contains the program of a rank: all ranks load it, and call the model with their shards.

    Args:
        num_threads: Number of threads; by default one per processor that this process may use.
        streams: Number of submitted calls that run at once, each with its share of the threads (docs/concurrency.md).
        cpus: The processors on which the threads of the model run, such as `range(4)`; by default those of the process.
        device: The OpenCL device to run on, such as `0:1`; by default the one that DLC_DEVICE names, or the first that works.
        name: The name of the model in messages; by default that of the function or file from which it was compiled.

    Raises ModelError for an invalid or damaged file and for one of another version of dlc. Raises DeviceError for a model of
    another processor, or one that needs features that the device does not have.
    """
    source, options = path_or_bytes(model), Options.of(num_threads=num_threads, streams=streams, cpus=cpus)
    if isinstance(source, bytes):
        return _read(Container.read(Path("model"), page_aligned_copy(source)), options, device, name)
    try:
        content = None if mapped else page_aligned_copy(source.read_bytes())
    except OSError as error:
        raise ModelError(f"{source}: cannot be read: {error.strerror}") from error
    return _read(Container.read(source, content), options, device, name)


def program_in(path: Path, builder: Builder | None = None) -> CompiledProgram:
    """Load a file that contains one program; `builder` builds the kernels of a program for an OpenCL device.

    Raises what Container.read raises.
    """
    container = Container.read(path)
    with _header_errors(container):
        return _program(container.model, container, builder)


def _pickled(model: Model) -> tuple[Callable[..., Model], tuple[bytes, int | None, int, frozenset[int] | None]]:
    return _unpickled, (to_bytes(model), model.num_threads, model.streams, model.cpus)


def _unpickled(content: bytes, num_threads: int | None, streams: int, cpus: frozenset[int] | None) -> Model:
    return load(content, num_threads=num_threads, streams=streams, cpus=cpus)


# Models are pickled as the content of their file, so that other processes compile nothing.
for kind in (Model, StructuredModel, ConvertedModel, MutatingModel):
    copyreg.pickle(kind, _pickled)


def _read(container: Container, options: Options, device: str | None, name: str | None) -> Model:
    builder: Builder | None = None
    if is_opencl(container.common.target.name):
        builder = _guarded_builder(device)
    else:
        require_host(container.common.target, str(container.path))
    with _header_errors(container):
        return _ModelReader(container, options, builder, name).model(container.model)


def _guarded_builder(device: str | None) -> Builder:
    """Return a builder of kernels of untrusted files: it builds them in another process first, since a driver may crash."""
    # Imported here because programs for processors run without OpenCL.
    from dlc.runtime.opencl.build import Builder
    from dlc.runtime.opencl.devices import select_device

    selected_device = select_device("opencl", device if device is not None else Environment.read().device)[0]
    return Builder(selected_device, Cache.standard(), usable_cpus(), guarded=True)


@contextmanager
def _header_errors(container: Container) -> Generator[None]:
    """Convert errors about invalid header fields to ModelError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, CompileError) as error:
        raise invalid_header(container.path, error) from error


def _program(fields: Mapping[str, Any], container: Container, builder: Builder | None) -> CompiledProgram:
    """Read a program of a file; with a builder, one for an OpenCL device."""
    if builder is None:
        return Artifact.read(fields, container)
    # Imported here because programs for processors run without OpenCL.
    from dlc.runtime.opencl.artifact import DeviceArtifact

    return DeviceArtifact.read(fields, container, builder)


@dataclass(frozen=True)
class _ModelReader:
    """Reads the models of a file; `builder` is set for OpenCL devices, `name` replaces the name of the file's header."""

    container: Container
    options: Options
    builder: Builder | None
    name: str | None

    def model(self, fields: Mapping[str, Any]) -> Model:
        """Read a model from header fields."""
        model = self._without_defaults(fields if self.name is None else {**fields, "name": self.name})
        defaults = [array_from_json(written, self.container) for written in fields.get("defaults", ())]
        if not set(model.inputs).issuperset(info for info, _ in defaults):
            raise ValueError("a default value for an unknown input")
        model.defaults = {info.name: array for info, array in defaults}
        model.set_execution(self.options)
        return model

    def _without_defaults(self, fields: Mapping[str, Any]) -> Model:
        if "mutations" in fields:
            fields = dict(fields)
            mutations: dict[str, Any] = fields.pop("mutations")
            model = self._without_defaults(fields)
            outputs, inputs = ([info.name for info in infos] for infos in (model.outputs, model.inputs))
            if not (set(outputs).issuperset(mutations) and set(inputs).issuperset(mutations.values())):
                raise ValueError("a mutation of an unknown input")
            return MutatingModel(model, mutations)
        if "io_signature" in fields:
            return ConvertedModel(self.model(fields["program"]), io_signature_from_json(fields["io_signature"]))
        if "specializations" in fields:
            return SpecializedModel.read(fields, self.model).model(takes_device_arrays=self.builder is not None)
        program = _program(fields, self.container, self.builder)
        model = program.model(self.options)
        return model if program.host.placement is None else self._on_mesh(model, program.host.placement)

    def _on_mesh(self, model: Model, placement: RankPlacement) -> Model:
        """Return a model of this rank, on shards. Raises ModelError for a file with constants of another rank."""
        # Imported here because only programs on a mesh need MPI.
        from dlc.runtime.collectives.start import rank_on, transport_of
        from dlc.runtime.collectives.transport import use_transport

        rank = rank_on(placement.mesh)
        if placement.rank not in (None, rank):
            raise ModelError(
                f"{self.container.path}: it has the constants of rank {placement.rank}; load the file that rank {rank} saved"
            )

        def run(arrays: Sequence[Any]) -> Sequence[Any]:
            transport = transport_of(placement.mesh)
            with nullcontext() if transport is None else use_transport(transport):
                return model.run_unchecked(arrays)

        return Model(model.inputs, model.outputs, run, model.name, model.artifact)

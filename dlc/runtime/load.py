"""Loading what `Model.save` wrote, or what was pickled: an artifact, or variants, models by sizes or a border around them."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlc.errors import ModelError
from dlc.files.model_source import ModelSource, path_or_bytes
from dlc.runtime.artifact import Artifact
from dlc.runtime.border import BorderedModel, FormedModel
from dlc.runtime.container import Container, described_badly, in_memory, to_bytes
from dlc.runtime.formats.arrays import array_from_json
from dlc.runtime.formats.by_sizes import by_sizes_from_json, model_of
from dlc.runtime.formats.forms import border_from_json
from dlc.runtime.model import Model
from dlc.runtime.variants import Variants
from dlc.target import require_host


def load(model: ModelSource, *, num_threads: int | None = None, mapped: bool = True) -> Model:
    """The model that `Model.save` wrote to a file, given as its path, as its bytes, or open for reading; nothing is compiled.

    `num_threads`: all usable processors if None. A file that is given by its path is mapped into memory, so that processes
    share its weights: put another in its place by renaming, as `Model.save` does, never by writing into it. With
    `mapped=False` it is read, and what becomes of the file is of no concern.

    Raises ModelError for a file that is none, is damaged, or was written by another version of dlc, and DeviceError for one
    that was compiled for another processor.
    """
    source = path_or_bytes(model)
    if isinstance(source, bytes):
        return _read(Container.read(Path("model"), in_memory(source)), num_threads)
    try:
        content = None if mapped else in_memory(source.read_bytes())
    except OSError as error:
        raise ModelError(f"{source}: cannot be read: {error.strerror}") from error
    return _read(Container.read(source, content), num_threads)


def _pickled(model: Model) -> tuple[Callable[..., Model], tuple[bytes, int | None]]:
    return _unpickled, (to_bytes(model), model.num_threads)


def _unpickled(content: bytes, num_threads: int | None) -> Model:
    return load(content, num_threads=num_threads)


# A pickled model is what its file holds: in another process nothing is compiled.
for kind in (Model, FormedModel, BorderedModel):
    copyreg.pickle(kind, _pickled)


def _read(container: Container, num_threads: int | None) -> Model:
    if container.common is not None:
        require_host(container.common.target, str(container.path))
    try:
        return _Reader(container, num_threads).model(container.model)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise described_badly(container.path, error) from error


@dataclass(frozen=True)
class _Reader:
    container: Container
    num_threads: int | None

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
            return Variants.read(fields, self.model).model()
        if "by_sizes" in fields:
            return model_of(by_sizes_from_json(fields, self.model))
        return Artifact.read(fields, self.container).model(self.num_threads)

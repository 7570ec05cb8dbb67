"""Loading what `Model.save` wrote: an artifact, variants, or steps, whose parts are models themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlc.runtime.array_format import array_from_json
from dlc.runtime.artifact import Artifact
from dlc.runtime.container import Container, described_badly
from dlc.runtime.model import Model
from dlc.runtime.steps_format import model_of, steps_from_json
from dlc.runtime.variants import Variants


def load(path: str | os.PathLike[str], *, num_threads: int | None = None) -> Model:
    """The model that `Model.save` wrote to `path`; nothing is compiled. `num_threads`: all usable processors if None.

    Raises ModelError for a file that is none, is damaged, or was written by another version of dlc, and DeviceError for one
    that was compiled for another processor.
    """
    container = Container.read(Path(path))
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
        return model

    def _without_defaults(self, fields: Mapping[str, Any]) -> Model:
        if "variants" in fields:
            return Variants.read(fields, self.model).model()
        if "steps" in fields:
            return model_of(steps_from_json(fields, self.model))
        return Artifact.read(fields, self.container).model(self.num_threads)

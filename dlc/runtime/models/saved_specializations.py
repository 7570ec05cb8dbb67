"""Serialization of specialization caches. Input is untrusted and validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.errors import UnsupportedError
from dlc.runtime.models.lru_cache import LRUCache
from dlc.runtime.models.model import Model
from dlc.runtime.models.specialization_cache import Sizes, Specialization, SpecializationCache
from dlc.runtime.saving.container import SectionWriter
from dlc.runtime.saving.header.dynamic_program import ranges_from_json, ranges_to_json
from dlc.runtime.saving.header.tensor_info import info_from_json, info_to_json
from dlc.runtime.saving.header.values import count, text
from dlc.runtime.saving.variant_table import ModelVariant, variant_image_field
from dlc.runtime.sizes.domain import SizeDomain

ImportedProgram: TypeAlias = "Callable[[Mapping[str, Any]], Model]"


@dataclass(frozen=True)
class SavedSpecializations:
    """A specialization cache as the content of a model file."""

    models: SpecializationCache

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has been compiled yet."""
        return self.models.dynamic is None and all(map(_is_empty, self.models.models.entries.values()))

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Write the sections and return the header fields; raise UnsupportedError if nothing has been compiled yet.

        Without Python, the dynamic-shape specialization is used where it applies.
        """
        models, dynamic = self.models, self.models.dynamic
        if self.is_empty:
            raise UnsupportedError(
                f"{models.name}: it is specialized for the sizes {', '.join(models.symbols)} at run time, and was not called "
                f"yet: call it with all sizes that the file should support; inputs: {models.inputs_text}"
            )
        fields: dict[str, Any] = {
            "specializations": models.symbols,
            "name": models.name,
            "inputs": list(map(info_to_json, models.inputs)),
            "outputs": list(map(info_to_json, models.outputs)),
            "ranges": ranges_to_json(models.ranges),
            "has_data_dependent_sizes": models.decide is not None,
            "models": [[key, m.serialize(writer, defaults)] for key, m in self._nonempty_models.items()],
        }
        if dynamic is not None:
            domain, own = dynamic.domain, dynamic.model.serialize(writer, defaults)
            fields["dynamic"] = [own, ranges_to_json(domain.ranges), list(domain.equal.items()), dynamic.is_guaranteed]
        parts = [*([] if models.decide is not None else [m for _, m in fields["models"]]), *fields.get("dynamic", [])[:1]]
        return fields | variant_image_field(writer, [(c.conditions, part) for c, part in zip(self.choices, parts, strict=True)])

    @property
    def choices(self) -> list[ModelVariant]:
        """The models with their conditions, the dynamic-shape one last; with data-dependent sizes only that one."""
        models, dynamic = self.models, self.models.dynamic
        entries = self._nonempty_models if models.decide is None else {}
        own = [ModelVariant(model, models.conditions(key)) for key, model in entries.items()]
        return own if dynamic is None else [*own, ModelVariant(dynamic.model, ())]

    @property
    def _nonempty_models(self) -> dict[Sizes, Model]:
        return {key: model for key, model in self.models.models.entries.items() if not _is_empty(model)}


def _is_empty(model: Model) -> bool:
    return isinstance(model.artifact, SavedSpecializations) and model.artifact.is_empty


def model_of(models: SpecializationCache, *, takes_device_arrays: bool = False) -> Model:
    """Return the model that users call."""
    infos = models.inputs, models.outputs
    return Model(*infos, models.run, models.name, SavedSpecializations(models), takes_device_arrays=takes_device_arrays)


def specializations_from_json(written: Mapping[str, Any], model: ImportedProgram) -> SpecializationCache:
    """Read a specialization cache; `model` reads a model. Raises what Artifact.read raises."""
    inputs, outputs = (tuple(map(info_from_json, written[key])) for key in ("inputs", "outputs"))
    symbols = tuple(map(text, written["specializations"]))
    entries = {tuple(map(count, key)): model(one) for key, one in written["models"]}
    dynamic = _read_dynamic(written["dynamic"], model) if "dynamic" in written else None
    if any(len(key) != len(symbols) for key in entries):
        raise ValueError("a model with other symbols")
    if dynamic is not None and dynamic.is_guaranteed and not dynamic.domain.symbols.issubset(symbols):
        raise ValueError("a domain with other symbols")
    for one in (*entries.values(), *([dynamic.model] if dynamic is not None else [])):
        if (len(one.inputs), len(one.outputs)) != (len(inputs), len(outputs)):
            raise ValueError("a model with other inputs or outputs")

    def refuse(key: Sizes) -> Model:
        raise UnsupportedError(
            f"{read.name}: not compiled for {read.shown(key)}; inputs: {read.inputs_text}; the file holds {read.holds}. "
            "Call the original model with these sizes too, and save it again"
        )

    def decide(arrays: object) -> Sizes:
        raise UnsupportedError(
            f"{read.name}: not compiled for the data-dependent sizes {', '.join(symbols)} of this call; inputs: "
            f"{read.inputs_text}; the file holds {read.holds}. Call the original model with such data too, and save it again"
        )

    decides = decide if written["has_data_dependent_sizes"] else None
    ranges = ranges_from_json(written["ranges"])
    read = SpecializationCache(
        text(written["name"]), inputs, outputs, symbols, dynamic, LRUCache(refuse, entries), decides, ranges
    )
    return read


def _read_dynamic(written: Any, model: ImportedProgram) -> Specialization:
    own, ranges, equal, is_guaranteed = written
    return Specialization(
        model(own), SizeDomain(ranges_from_json(ranges), {text(a): text(b) for a, b in equal}), bool(is_guaranteed)
    )

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
from dlc.runtime.saving.header.program import guard_from_json, guard_to_json, ranges_from_json, ranges_to_json
from dlc.runtime.saving.header.tensor_info import info_from_json, info_to_json
from dlc.runtime.saving.header.values import count, text
from dlc.runtime.saving.variant_table import ModelVariant, variant_image_field
from dlc.runtime.sizes.domain import SizeDomain

ReadModel: TypeAlias = "Callable[[Mapping[str, Any]], Model]"


@dataclass(frozen=True)
class SavedSpecializations:
    """A specialization cache that can be saved to a model file."""

    cache: SpecializationCache

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has been compiled yet."""
        return self.cache.dynamic is None and all(map(_is_empty, self.cache.models.entries.values()))

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Write the sections and return the header fields; raise UnsupportedError if nothing has been compiled yet.

        Without Python, the dynamic-shape specialization is used where it applies.
        """
        cache, dynamic = self.cache, self.cache.dynamic
        if self.is_empty:
            raise UnsupportedError(
                f"{cache.name}: it is specialized for the sizes {', '.join(cache.symbols)} at run time, and was not called "
                f"yet: call it with all sizes that the file should support; inputs: {cache.inputs_text}"
            )
        fields: dict[str, Any] = {
            "specializations": cache.symbols,
            "name": cache.name,
            "inputs": list(map(info_to_json, cache.inputs)),
            "outputs": list(map(info_to_json, cache.outputs)),
            "ranges": ranges_to_json(cache.ranges),
            "has_data_dependent_sizes": cache.compute_sizes is not None,
            "models": [[key, model.serialize(writer, defaults)] for key, model in self._nonempty_models.items()],
        }
        if dynamic is not None:
            domain, header = dynamic.domain, dynamic.model.serialize(writer, defaults)
            guards, requirements = (list(map(guard_to_json, group)) for group in (domain.guards, domain.requirements))
            restrictions = ranges_to_json(domain.ranges), list(domain.equal.items()), guards, requirements
            fields["dynamic"] = [header, *restrictions, dynamic.is_guaranteed]
        headers = [
            *([] if cache.compute_sizes is not None else [model for _, model in fields["models"]]),
            *fields.get("dynamic", [])[:1],
        ]
        return fields | variant_image_field(
            writer, [(choice.conditions, header) for choice, header in zip(self.choices, headers, strict=True)]
        )

    @property
    def choices(self) -> list[ModelVariant]:
        """The models with their conditions, the dynamic-shape one last; with data-dependent sizes only that one."""
        cache, dynamic = self.cache, self.cache.dynamic
        entries = self._nonempty_models if cache.compute_sizes is None else {}
        variants = [ModelVariant(model, cache.conditions(key)) for key, model in entries.items()]
        return variants if dynamic is None else [*variants, ModelVariant(dynamic.model, ())]

    @property
    def _nonempty_models(self) -> dict[Sizes, Model]:
        return {key: model for key, model in self.cache.models.entries.items() if not _is_empty(model)}


def _is_empty(model: Model) -> bool:
    return isinstance(model.artifact, SavedSpecializations) and model.artifact.is_empty


def model_of(cache: SpecializationCache, *, takes_device_arrays: bool = False) -> Model:
    """Return the model that users call."""
    infos = cache.inputs, cache.outputs
    return Model(*infos, cache.run, cache.name, SavedSpecializations(cache), takes_device_arrays=takes_device_arrays)


def specializations_from_json(header: Mapping[str, Any], read_model: ReadModel) -> SpecializationCache:
    """Read a specialization cache; `read_model` reads one of its models. Raises what Artifact.read raises."""
    inputs, outputs = (tuple(map(info_from_json, header[key])) for key in ("inputs", "outputs"))
    symbols = tuple(map(text, header["specializations"]))
    entries = {tuple(map(count, key)): read_model(model_fields) for key, model_fields in header["models"]}
    dynamic = _read_dynamic(header["dynamic"], read_model) if "dynamic" in header else None
    if any(len(key) != len(symbols) for key in entries):
        raise ValueError("a model with other symbols")
    if dynamic is not None and dynamic.is_guaranteed and not dynamic.domain.symbols.issubset(symbols):
        raise ValueError("a domain with other symbols")
    for saved_model in (*entries.values(), *([dynamic.model] if dynamic is not None else [])):
        if (len(saved_model.inputs), len(saved_model.outputs)) != (len(inputs), len(outputs)):
            raise ValueError("a model with other inputs or outputs")

    def reject_key(key: Sizes) -> Model:
        violation = dynamic.domain.violation(dict(zip(symbols, key, strict=True))) if dynamic is not None else None
        raise UnsupportedError(
            f"{cache.name}: not compiled for {cache.format_key(key)}; inputs: {cache.inputs_text}; the file holds "
            f"{cache.available_sizes}{'' if violation is None else f' ({violation})'}. "
            "Call the original model with these sizes too, and save it again"
        )

    def reject_sizes(arrays: object) -> Sizes:
        raise UnsupportedError(
            f"{cache.name}: not compiled for the data-dependent sizes {', '.join(symbols)} of this call; inputs: "
            f"{cache.inputs_text}; the file holds {cache.available_sizes}. Call the original model with such data too, and "
            "save it again"
        )

    compute_sizes = reject_sizes if header["has_data_dependent_sizes"] else None
    ranges = ranges_from_json(header["ranges"])
    cache = SpecializationCache(
        text(header["name"]), inputs, outputs, symbols, dynamic, LRUCache(reject_key, entries), compute_sizes, ranges
    )
    return cache


def _read_dynamic(dynamic_fields: Any, read_model: ReadModel) -> Specialization:
    model_fields, ranges, equal, *guards, is_guaranteed = dynamic_fields
    remaining, requirements = (tuple(map(guard_from_json, group)) for group in guards)
    domain = SizeDomain(ranges_from_json(ranges), {text(a): text(b) for a, b in equal}, remaining, requirements)
    return Specialization(read_model(model_fields), domain, bool(is_guaranteed))

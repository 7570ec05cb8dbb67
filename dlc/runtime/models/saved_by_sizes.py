"""Models by their sizes as a part of a file's header, and back: what is read is not trusted to be any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.errors import UnsupportedError
from dlc.runtime.models.by_sizes import BySizes, Served, Sizes
from dlc.runtime.models.kept import Kept
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import Writer
from dlc.runtime.saving.header.open_program import ranges_from_json, ranges_to_json
from dlc.runtime.saving.header.tensor_info import info_from_json, info_to_json
from dlc.runtime.saving.header.values import count, text
from dlc.runtime.saving.parts import Choice, picked_program
from dlc.runtime.sizes.domain import Domain

ReadModel: TypeAlias = "Callable[[Mapping[str, Any]], Model]"


@dataclass(frozen=True)
class SavedBySizes:
    """Models by their sizes, as what a model is on disk."""

    models: BySizes

    @property
    def is_empty(self) -> bool:
        """Whether nothing is compiled yet."""
        return self.models.served is None and all(map(_is_empty, self.models.models.made.values()))

    def written(self, writer: Writer, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Its part of a file's header; raises UnsupportedError for what was compiled for no sizes yet.

        Who has no Python runs what serves most calls by itself.
        """
        models, served = self.models, self.models.served
        if self.is_empty:
            raise UnsupportedError(
                f"{models.name}: it is compiled for the sizes {', '.join(models.symbols)} when it is called, and it was not "
                f"called yet: call it with all sizes that the file is to hold; inputs: {models.takes}"
            )
        fields: dict[str, Any] = {
            "by_sizes": models.symbols,
            "name": models.name,
            "inputs": list(map(info_to_json, models.inputs)),
            "outputs": list(map(info_to_json, models.outputs)),
            "ranges": ranges_to_json(models.ranges),
            "decides": models.decide is not None,
            "models": [[key, m.written(writer, defaults)] for key, m in self._made.items()],
        }
        if served is not None:
            domain, own = served.domain, served.model.written(writer, defaults)
            fields["served"] = [own, ranges_to_json(domain.ranges), list(domain.equal.items()), served.is_sure]
        parts = [*([] if models.decide is not None else [m for _, m in fields["models"]]), *fields.get("served", [])[:1]]
        return fields | picked_program(writer, [(c.conditions, part) for c, part in zip(self.choices, parts, strict=True)])

    @property
    def choices(self) -> list[Choice]:
        """The models that serve calls by themselves, that for most sizes last; of sizes that data decides only that."""
        models, served = self.models, self.models.served
        made = self._made if models.decide is None else {}
        own = [Choice(model, models.conditions(key)) for key, model in made.items()]
        return own if served is None else [*own, Choice(served.model, ())]

    @property
    def _made(self) -> dict[Sizes, Model]:
        return {key: model for key, model in self.models.models.made.items() if not _is_empty(model)}


def _is_empty(model: Model) -> bool:
    return isinstance(model.artifact, SavedBySizes) and model.artifact.is_empty


def model_of(models: BySizes, *, takes_device_arrays: bool = False) -> Model:
    """The program as users call it."""
    infos = models.inputs, models.outputs
    return Model(*infos, models.run, models.name, SavedBySizes(models), takes_device_arrays=takes_device_arrays)


def by_sizes_from_json(written: Mapping[str, Any], model: ReadModel) -> BySizes:
    """The models; `model` reads one of them. Raises what Artifact.read raises."""
    inputs, outputs = (tuple(map(info_from_json, written[key])) for key in ("inputs", "outputs"))
    symbols = tuple(map(text, written["by_sizes"]))
    made = {tuple(map(count, key)): model(one) for key, one in written["models"]}
    served = _served(written["served"], model) if "served" in written else None
    if any(len(key) != len(symbols) for key in made):
        raise ValueError("a model of other sizes")
    if served is not None and served.is_sure and not served.domain.symbols.issubset(symbols):
        raise ValueError("a domain of other sizes")
    for one in (*made.values(), *([served.model] if served is not None else [])):
        if (len(one.inputs), len(one.outputs)) != (len(inputs), len(outputs)):
            raise ValueError("a model of other inputs or outputs")

    def refuse(key: Sizes) -> Model:
        raise UnsupportedError(
            f"{read.name}: not compiled for {read.shown(key)}; inputs: {read.takes}; the file holds {read.holds}. "
            "Call the model that is compiled from ONNX with these sizes too, and save it again"
        )

    def decide(arrays: object) -> Sizes:
        raise UnsupportedError(
            f"{read.name}: not compiled for the sizes {', '.join(symbols)} that data decides here; inputs: {read.takes}; the "
            f"file holds {read.holds}. Call the model that is compiled from ONNX with such data too, and save it again"
        )

    decides = decide if written["decides"] else None
    ranges = ranges_from_json(written["ranges"])
    read = BySizes(text(written["name"]), inputs, outputs, symbols, served, Kept(refuse, made), decides, ranges)
    return read


def _served(written: Any, model: ReadModel) -> Served:
    own, ranges, equal, is_sure = written
    return Served(model(own), Domain(ranges_from_json(ranges), {text(a): text(b) for a, b in equal}), bool(is_sure))

"""Programs as steps as a part of a file's header, and back: what is read is not trusted to be any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.errors import UnsupportedError
from dlc.runtime.container import Writer
from dlc.runtime.domain import Domain
from dlc.runtime.formats.host import count, named_dtype, text
from dlc.runtime.formats.info import info_from_json, info_to_json
from dlc.runtime.formats.open_host import plain, ranges_from_json, ranges_to_json, read_size
from dlc.runtime.kept import Kept
from dlc.runtime.model import Model
from dlc.runtime.parts import Choice, picked_program
from dlc.runtime.selection import SELECTIONS, Setting
from dlc.runtime.steps import Body, If, Numbers, Scan, Segment, Select, Served, Step, Steps, While

ReadModel: TypeAlias = "Callable[[Mapping[str, Any]], Model]"


@dataclass(frozen=True)
class SavedSteps:
    """A program as steps, as what a model is on disk."""

    program: Steps

    def written(self, writer: Writer, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Its part of a file's header; raises what steps_to_json raises. Who has no Python runs what serves calls by itself."""
        fields = steps_to_json(self.program, writer, defaults)
        choices = self.choices
        if not choices:
            return fields
        alone = fields["steps"][0]
        parts = [part for _, part in alone["models"]] + alone.get("served", [])[:1]
        return fields | picked_program(writer, [(choice.conditions, part) for choice, part in zip(choices, parts, strict=True)])

    @property
    def choices(self) -> list[Choice]:
        """The models that serve calls by themselves, that for most sizes last; none where Python computes between parts."""
        alone = self.program.alone
        if alone is None:
            return []
        made = [Choice(model, self.program.conditions(alone, key)) for key, model in alone.models.made.items()]
        return made if alone.served is None else [*made, Choice(alone.served.model, ())]


def model_of(program: Steps, *, takes_device_arrays: bool = False) -> Model:
    """The program as users call it."""
    saved = SavedSteps(program)
    return Model(program.inputs, program.outputs, program.run, program.name, saved, takes_device_arrays=takes_device_arrays)


def steps_to_json(program: Steps, writer: Writer, defaults: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Raises UnsupportedError for a segment that was compiled for no sizes yet."""
    return {
        "name": program.name,
        "inputs": list(map(info_to_json, program.inputs)),
        "outputs": list(map(info_to_json, program.outputs)),
        "values": list(map(info_to_json, program.values)),
        "steps": [_step_to_json(program, step, writer, defaults) for step in program.steps],
        "returned": program.returned,
        "ranges": ranges_to_json(program.ranges),
    }


def _step_to_json(program: Steps, step: Step, writer: Writer, defaults: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {"takes": step.inputs, "makes": step.outputs}
    match step:
        case Segment(served=served, symbols=symbols, models=models):
            made = models.made
            if served is None and not made:
                raise UnsupportedError(
                    f"{program.name}: a part of it is compiled for the sizes {', '.join(symbols)} when it is called, and it "
                    f"was not called yet: call it with all sizes that the file is to hold; {program.takes}"
                )
            # The inputs of a part between others have no defaults: those of the program are filled in before.
            own: Mapping[str, NDArray[Any]] = defaults if program.alone is step else {}
            fields |= {"symbols": symbols, "models": [[key, model.written(writer, own)] for key, model in made.items()]}
            return fields if served is None else fields | {"served": _served_to_json(served, writer, own)}
        case Select(op=op, settings=settings, where=where):
            return fields | {"select": op, "settings": settings, "where": where}
        case Scan(states=states, length=length, body=body, reverse=reverse):
            moved = {"states": states, "length": plain(length), "reverse": reverse}
            return fields | moved | {"scan": _body_to_json(body, writer)}
        case While(body=body):
            return fields | {"while": _body_to_json(body, writer)}
        case If(then=then, otherwise=otherwise):
            return fields | {"then": _body_to_json(then, writer), "else": _body_to_json(otherwise, writer)}


def _served_to_json(served: Served, writer: Writer, defaults: Mapping[str, NDArray[Any]]) -> Any:
    domain = served.domain
    return [served.model.written(writer, defaults), ranges_to_json(domain.ranges), list(domain.equal.items()), served.is_sure]


def _body_to_json(body: Body | str, writer: Writer) -> Any:
    return body if isinstance(body, str) else [steps_to_json(body.steps, writer, {}), body.captured]


def steps_from_json(written: Mapping[str, Any], model: ReadModel) -> Steps:
    """The program; `model` reads one that is a part of it. Raises what Artifact.read raises."""
    inputs, outputs, values = (tuple(map(info_from_json, written[key])) for key in ("inputs", "outputs", "values"))
    if values[: len(inputs)] != inputs:
        raise ValueError("the first values are not the inputs")
    reader = _Reader(text(written["name"]), inputs, values, model)
    steps = tuple(map(reader.step, written["steps"]))
    returned = reader.known_ones(written["returned"])
    if len(returned) != len(outputs):
        raise ValueError(f"{len(returned)} values for {len(outputs)} outputs")
    return Steps(reader.name, inputs, outputs, values, steps, returned, ranges_from_json(written["ranges"]))


class _Reader:
    """Reads steps one after the other; values that are made are known from then on."""

    def __init__(self, name: str, inputs: tuple[TensorInfo, ...], values: tuple[TensorInfo, ...], model: ReadModel) -> None:
        self.name = name
        self.inputs = inputs
        self.values = values
        self.model = model
        self.known = set(range(len(inputs)))

    def step(self, written: Mapping[str, Any]) -> Step:
        inputs, outputs = self.known_ones(written["takes"]), tuple(map(count, written["makes"]))
        if max(outputs, default=0) >= len(self.values) or not self.known.isdisjoint(outputs):
            raise ValueError(f"the values {outputs} are not new ones")
        step = self._step(inputs, outputs, written)
        self.known.update(outputs)
        return step

    def known_ones(self, written: Any) -> Numbers:
        numbers = tuple(map(count, written))
        if not self.known.issuperset(numbers):
            raise ValueError(f"the values {numbers} are not known yet")
        return numbers

    def _step(self, inputs: Numbers, outputs: Numbers, written: Mapping[str, Any]) -> Step:
        if "models" in written:
            symbols = tuple(map(text, written["symbols"]))
            made = {tuple(map(count, key)): self.model(one) for key, one in written["models"]}
            served = self._served(written["served"]) if "served" in written else None
            if any(len(key) != len(symbols) for key in made) or (served and not served.domain.symbols.issubset(symbols)):
                raise ValueError("a segment of other sizes")
            for one in (*made.values(), *((served.model,) if served is not None else ())):
                if (len(one.inputs), len(one.outputs)) != (len(inputs), len(outputs)):
                    raise ValueError("a segment of other inputs or outputs")
            return Segment(inputs, outputs, served, symbols, Kept(self._refuse(symbols, served, list(made)), made))
        if "select" in written:
            op, settings = text(written["select"]), dict(written["settings"])
            return Select(inputs, outputs, _require_settings(op, settings), settings, text(written["where"]))
        if "scan" in written:
            states, length = count(written["states"]), read_size(written["length"])
            if states > min(len(inputs), len(outputs)):
                raise ValueError(f"{states} states of {len(inputs)} operands")
            reverse = written["reverse"]
            if type(reverse) is not bool:
                raise ValueError(f"{reverse!r} is no direction")
            return Scan(inputs, outputs, states, length, self._body(written["scan"]), reverse)
        if "while" in written:
            return While(inputs, outputs, self._body(written["while"]))
        then, otherwise = written["then"], written["else"]
        return If(
            inputs,
            outputs,
            then if isinstance(then, str) else self._body(then),
            otherwise if isinstance(otherwise, str) else self._body(otherwise),
        )

    def _served(self, written: Any) -> Served:
        model, ranges, equal, is_sure = written
        domain = Domain(ranges_from_json(ranges), {text(a): text(b) for a, b in equal})
        return Served(self.model(model), domain, bool(is_sure))

    def _body(self, written: Any) -> Body:
        steps, captured = written
        return Body(steps_from_json(steps, self.model), self.known_ones(captured))

    def _refuse(self, symbols: tuple[str, ...], served: Served | None, made: list[Numbers]) -> Callable[[Numbers], Model]:
        def shown(key: Numbers) -> str:
            return ", ".join(f"{symbol} = {size}" for symbol, size in zip(symbols, key, strict=True))

        def refuse(key: Numbers) -> Model:
            takes = ", ".join(map(str, self.inputs))
            holds = [*([str(served.domain)] if served is not None else []), *map(shown, made)]
            raise UnsupportedError(
                f"{self.name}: not compiled for {shown(key)}; inputs: {takes}; the file holds {'; '.join(holds)}. "
                "Call the model that is compiled from ONNX with these sizes too, and save it again"
            )

        return refuse


def _require_settings(op: str, settings: Mapping[str, Setting]) -> str:
    """`op`, if it is one and has these settings."""
    if op not in SELECTIONS:
        raise ValueError(f"{op!r} is no op that the host computes")
    known = {name for name, p in signature(SELECTIONS[op]).parameters.items() if p.kind is Parameter.KEYWORD_ONLY}
    kinds = (int, bool, str, type(None))
    if not known.issuperset(settings) or not all(type(value) in kinds for value in settings.values()):
        raise ValueError(f"settings {settings}")
    if "to" in settings:
        named_dtype(settings["to"])
    return op

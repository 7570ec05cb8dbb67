"""Models that can be imported only for a call: a variant for each set of values, or of shapes, that they are called with.

    y = ReduceSum(x, axes)      called with axes = [0]: y = ReduceSum(x, [0]), a program of x alone, compiled and kept

What shapes hang on (axes, a number of repeats, a condition) is taken from the call: the values of these inputs are constants
of the variant, which has the other inputs. Where no values are asked for, shapes are: of the inputs of which only a call says
what tensors they are, lists and what may be None, or of all. A variant may be a model of this kind itself: an input that picks
a branch is known, and the branch asks for more. Saved are the variants that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.dims import is_static
from dlc.errors import UnsupportedError
from dlc.forms import OBJECTS, ValueShapes, hangs_on_the_call
from dlc.runtime.models.border import FormedModel, shapes_of
from dlc.runtime.models.kept import Kept
from dlc.runtime.models.model import Model
from dlc.runtime.models.recompilations import Recompilations
from dlc.runtime.saving.container import Writer
from dlc.runtime.saving.header.forms import given_from_json, given_to_json, shapes_from_json
from dlc.runtime.saving.header.values import text
from dlc.runtime.saving.parts import Choice, Condition, Conditions, picked_program

Shapes: TypeAlias = "Mapping[str, Any]"  # of inputs, as `forms.py` has them
Values: TypeAlias = "Mapping[str, NDArray[Any]]"
# The values of some inputs, as bytes, or the shapes of some or of all.
Key: TypeAlias = "tuple[bytes, ...] | tuple[ValueShapes, ...]"
# The model for shapes of its inputs, or for the values of some.
Compile: TypeAlias = "Callable[[Shapes, Values], Model]"

# A message that lists variants lists so many.
_MOST_LISTED = 8


class Variants:
    """The model `name` for calls: `compile` makes variants; without it there are those that were `made`."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        values: Sequence[str],
        compile: Compile | None,
        made: Mapping[Key, Model] | None = None,
    ) -> None:
        self.name = name
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.values = tuple(values)
        undecided = [info for info in inputs if hangs_on_the_call(info)]
        self._decisive = [info for info in inputs if info.name in values] or undecided or list(inputs)
        self._compile = compile
        advice = f"it is compiled for {self.decided_by}; fix those that do not change beforehand"
        counted = Recompilations(name, advice) if compile is not None else None
        self._kept = Kept[Key](self._made, made, recompilations=counted, tell=self._told)

    def model(self, *, takes_device_arrays: bool = False) -> Model:
        """The model as users call it."""
        more: dict[str, Any] = {"values": self.values, "takes_device_arrays": takes_device_arrays}
        kind = FormedModel if any(info.dtype == OBJECTS for info in self.inputs) else Model
        return kind(self.inputs, self.outputs, self.run, self.name, self, **more)

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The outputs for inputs that fit `inputs`.

        Raises UnsupportedError for values or shapes that there is no variant for, where nothing compiles one.
        """
        given = {info.name: array for info, array in zip(self.inputs, arrays, strict=True)}
        if self.values:
            variant = self._kept[tuple(np.asarray(given[info.name]).tobytes() for info in self._decisive)]
        else:
            variant = self._kept[tuple(shapes_of(given[info.name]) for info in self._decisive)]
        return variant.run_fitting([given[info.name] for info in variant.inputs])

    def written(self, writer: Writer, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Its part of a file's header. Raises UnsupportedError where no variant was compiled yet."""
        made = self._kept.made
        if not made:
            raise UnsupportedError(
                f"{self.name}: it is compiled for {self.decided_by} when it is called, and it was not called yet: call it with "
                f"all that the file is to hold, or give them with {'input_values' if self.values else 'input_shapes'}"
            )
        keys = [[k.hex() if isinstance(k, bytes) else k for k in key] for key in made]
        variants = [model.written(writer, _those_of(model, defaults)) for model in made.values()]
        fields = {
            "name": self.name,
            "inputs": list(map(given_to_json, self.inputs)),
            "outputs": list(map(given_to_json, self.outputs)),
            "values": self.values,
            "variants": [list(pair) for pair in zip(keys, variants, strict=True)],
        }
        return fields | picked_program(writer, list(zip(map(self._conditions, made), variants, strict=True)))

    @property
    def choices(self) -> list[Choice]:
        """The variants that there are."""
        return [Choice(model, self._conditions(key)) for key, model in self._kept.made.items()]

    @staticmethod
    def read(fields: Mapping[str, Any], model: Callable[[Mapping[str, Any]], Model]) -> Variants:
        """The variants that a part of a file's header describes; `model` reads one.

        Raises what Artifact.read raises.
        """
        inputs, outputs = (tuple(map(given_from_json, fields[key])) for key in ("inputs", "outputs"))
        names, values = {info.name for info in inputs}, tuple(map(text, fields["values"]))
        if not names.issuperset(values):
            raise ValueError(f"{values} are not all inputs")
        made: dict[Key, Model] = {}
        for written, variant in fields["variants"]:
            key = tuple(map(bytes.fromhex, written)) if values else tuple(map(shapes_from_json, written))
            made[key] = model(variant)
            if not names.issuperset(info.name for info in made[key].inputs) or len(made[key].outputs) != len(outputs):
                raise ValueError("a variant with other inputs or outputs")
        return Variants(text(fields["name"]), inputs, outputs, values, None, made)

    @property
    def decided_by(self) -> str:
        """What picks a variant."""
        names = ", ".join(f"'{info.name}'" for info in self._decisive)
        if len(self._decisive) == len(self.inputs) and not self.values:
            return "the shapes of its inputs"
        return f"the values of {names}" if self.values else f"what is in {names}"

    def _made(self, key: Any) -> Model:
        if self._compile is None:
            there = [self._shown(known) for known in self._kept.made]
            more = f" and {len(there) - _MOST_LISTED} more" if len(there) > _MOST_LISTED else ""
            raise UnsupportedError(
                f"{self.name}: no variant for {self._shown(key)}; it is compiled for {self.decided_by}, and the file holds "
                f"{'; '.join(there[:_MOST_LISTED])}{more}. Call the model that is compiled from ONNX with these too, and "
                "save it again"
            )
        if self.values:
            return self._compile({}, {info.name: _value(info, data) for info, data in self._pairs(key)})
        return self._compile({info.name: shapes for info, shapes in self._pairs(key)}, {})

    def _pairs(self, key: Any) -> list[tuple[TensorInfo, Any]]:
        return list(zip(self._decisive, key, strict=True))

    def _conditions(self, key: Key) -> Conditions:
        """What holds of the calls that a variant is for; of shapes, where it takes tensors alone."""
        told = self._told(key)
        # A shape that the model knows by itself picks none.
        pairs = [p for p in self._pairs(key) if self.values or p[0].dtype == OBJECTS or not is_static(p[0].shape)]
        return tuple(Condition(info.name, part, told[info.name]) for info, part in pairs)

    def _told(self, key: Any) -> dict[str, str]:
        if self.values:
            return {info.name: str(_value(info, data).tolist()) for info, data in self._pairs(key)}
        return {info.name: _listed(shapes) for info, shapes in self._pairs(key)}

    def _shown(self, key: Any) -> str:
        return ", ".join(map(str, self._conditions(key)))


def _those_of(model: Model, defaults: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The defaults of inputs that a model has."""
    names = {info.name for info in model.inputs}
    return {name: array for name, array in defaults.items() if name in names}


def _listed(shapes: ValueShapes) -> str:
    """Shapes in words: [2, 3], a list of them in brackets too."""
    if shapes is None:
        return "None"
    return f"[{', '.join(str(part) if isinstance(part, int) else _listed(part) for part in shapes)}]"


def _value(info: TensorInfo, data: bytes) -> NDArray[Any]:
    # Only an input whose sizes are known is asked for its value.
    return np.frombuffer(data, info.dtype).reshape([int(size) for size in info.shape])

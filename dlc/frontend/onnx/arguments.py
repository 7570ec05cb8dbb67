"""What a model is called with: arguments of the program, or constants where values of inputs are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.arrays import TensorInfo, are_text
from dlc.dialects.dl.base import Array, tensor_of, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError
from dlc.forms import OBJECTS, Form, FormInfo, MapOf, Plain, Several
from dlc.frontend.addressable import require_addressable
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.identifiers import short_name
from dlc.frontend.onnx.origins import Origins
from dlc.frontend.onnx.values import Absent, MapValue, SequenceValue, Text
from dlc.ir import i64


class Arguments:
    """The arguments of the program that `emit` makes, `names` in their order."""

    def __init__(self, emit: Emitter, origins: Origins) -> None:
        self.names: list[str] = []
        self._emit = emit
        self._origins = origins

    def of(self, name: str, form: Form, origins: Sequence[str]) -> Value:
        """A value of a form, of new arguments; `origins` are the inputs whose values may be asked for to know it."""
        match form:
            case Several():
                return SequenceValue(self.of(f"{name}[{k}]", part, ()) for k, part in enumerate(form.parts))
            case MapOf():
                keys, values = (self.of(part, within, ()) for part, within in form.parts(name).items())
                return MapValue(keys, values)
            case Plain(shape=tuple(shape)):
                argument = self._emit.argument(tensor_type(shape, i64 if form.is_text else element_type(form.dtype)))
                require_addressable(f"input '{name}'", tensor_of(argument))
                argument.name_hint = short_name(name)
                self._origins.add(argument, () if form.is_text else origins)
                self.names.append(name)
                value = Value(tensor_of(argument), ssa=argument, name=name)
                return Text.of(value) if form.is_text else value
            case _:
                return Absent()


def constants(emit: Emitter, inputs: Sequence[TensorInfo], values: Mapping[str, Array]) -> dict[str, Value]:
    """The inputs whose values are given. Raises DTypeError for values that they cannot have."""
    found: dict[str, Value] = {}
    for info in inputs:
        value = values.get(info.name)
        if value is None:
            continue
        if isinstance(info, FormInfo):
            raise DTypeError(f"input {info}: only a tensor is made a constant; give its shape")
        if info.dtype == OBJECTS:
            if not are_text(value):
                raise DTypeError(f"input {info}: a value of {value.dtype} given where the model has text")
            found[info.name] = Text.known_as(emit, value, info.name)
            continue
        if value.dtype != info.dtype:
            raise DTypeError(f"input '{info.name}': a value of {value.dtype} given where the model has {info.dtype}")
        found[info.name] = Value(tensor_type(value.shape, element_type(value.dtype)), known=value, name=info.name)
    return found

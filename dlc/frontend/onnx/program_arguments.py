"""Arguments of the program for graph inputs, and constants for inputs whose values are specified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.arrays import TensorInfo, are_strings
from dlc.dialects.dl.base import Array, tensor_of, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.identifiers import short_name
from dlc.frontend.onnx.input_dependencies import InputDependencies
from dlc.frontend.onnx.values import EmptyOptional, MapValue, SequenceValue, StringTensor
from dlc.frontend.size_limits import require_addressable
from dlc.ir import i64
from dlc.value_types import OBJECT_DTYPE, DictType, FixedListType, TensorValueType, ValueInfo, ValueType


class ProgramArguments:
    """The arguments of the program that `emit` builds, `names` in their order."""

    def __init__(self, emit: Emitter, dependencies: InputDependencies) -> None:
        self.names: list[str] = []
        self._emit = emit
        self._dependencies = dependencies

    def of(self, name: str, value_type: ValueType, dependencies: Sequence[str]) -> ImportedValue:
        """Add the arguments that represent a value of a type; `dependencies` are the inputs that the value depends on."""
        match value_type:
            case FixedListType():
                return SequenceValue(
                    self.of(f"{name}[{k}]", part_type, ()) for k, part_type in enumerate(value_type.element_types)
                )
            case DictType():
                keys, values = (
                    self.of(component, component_type, ())
                    for component, component_type in value_type.vector_types(name).items()
                )
                return MapValue(keys, values)
            case TensorValueType(shape=tuple(shape)):
                argument = self._emit.argument(
                    tensor_type(shape, i64 if value_type.is_string else element_type(value_type.dtype))
                )
                require_addressable(f"input '{name}'", tensor_of(argument))
                argument.name_hint = short_name(name)
                self._dependencies.add(argument, () if value_type.is_string else dependencies)
                self.names.append(name)
                value = ImportedValue(tensor_of(argument), ssa=argument, name=name)
                return StringTensor.of(value) if value_type.is_string else value
            case _:
                return EmptyOptional()


def constant_inputs(emit: Emitter, inputs: Sequence[TensorInfo], values: Mapping[str, Array]) -> dict[str, ImportedValue]:
    """Return the inputs whose values are specified, as constants. Raises DTypeError for values of another dtype."""
    constants: dict[str, ImportedValue] = {}
    for info in inputs:
        value = values.get(info.name)
        if value is None:
            continue
        if isinstance(info, ValueInfo):
            raise DTypeError(f"input {info}: only the value of a tensor input can be specified; give its shape")
        if info.dtype == OBJECT_DTYPE:
            if not are_strings(value):
                raise DTypeError(f"input {info}: expected strings, got a value of dtype {value.dtype}")
            constants[info.name] = StringTensor.from_strings(emit, value, info.name)
            continue
        if value.dtype != info.dtype:
            raise DTypeError(f"input '{info.name}': expected dtype {info.dtype}, got a value of dtype {value.dtype}")
        constants[info.name] = ImportedValue(
            tensor_type(value.shape, element_type(value.dtype)), constant_value=value, name=info.name
        )
    return constants

"""Lists, dicts and None as inputs and outputs on the command line.

The elements of `frames` are named `frames[0]`, `frames[1]`, …, in files too; the keys and values of a dict are named
`words[keys]` and `words[values]`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count, takewhile
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.errors import DTypeError
from dlc.value_types import (
    AbsentType,
    DictType,
    FixedListType,
    ListType,
    OptionalType,
    TensorValueType,
    ValueInfo,
    ValueType,
    flatten_value_type,
    value_type_of,
)


def is_input_name(name: str, infos: Collection[TensorInfo]) -> bool:
    """Return whether `name` is the name of an input or of an element of one."""
    names = {info.name for info in infos}
    return name in names or name.partition("[")[0] in {info.name for info in infos if isinstance(info, ValueInfo)}


def infer_value_type(info: TensorInfo, names: Collection[str]) -> ValueType:
    """Return the value type of an input, given the names of the tensors that are provided.

    Raises DTypeError for a list without any element.
    """

    def infer(value_type: ValueType, name: str) -> ValueType:
        match value_type:
            case OptionalType():
                is_provided = any(n == name or n.startswith(f"{name}[") for n in names)
                return infer(value_type.value, name) if is_provided else AbsentType()
            case ListType():
                elements = takewhile(lambda n: any(x == n or x.startswith(f"{n}[") for x in names), _element_names(name))
                element_types = tuple(infer(value_type.element, element) for element in elements)
                if not element_types:
                    raise DTypeError(
                        f"input {info}: random values of a list need its length; pass the elements: --input {name}[0]=FILE.npy"
                    )
                return FixedListType(element_types)
            case _:
                return value_type

    return infer(value_type_of(info), info.name)


def tensor_infos(name: str, value_type: ValueType, arrays: Mapping[str, NDArray[Any]]) -> Iterator[TensorInfo]:
    """Yield the tensors of a value type; a tensor of unknown rank gets the shape of its array."""
    for leaf_name, leaf_type in flatten_value_type(name, value_type):
        shape = leaf_type.shape if leaf_type.shape is not None or leaf_name not in arrays else arrays[leaf_name].shape
        yield TensorInfo(leaf_name, shape or (), leaf_type.dtype)


def assemble_value(name: str, value_type: ValueType, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Build a value of a value type from its tensors by name."""
    match value_type:
        case FixedListType():
            return [
                assemble_value(element, element_type, arrays)
                for element, element_type in zip(_element_names(name), value_type.element_types, strict=False)
            ]
        case DictType():
            keys, values = (arrays[leaf_name].tolist() for leaf_name in value_type.vector_types(name))
            return dict(zip(keys, values, strict=True))
        case TensorValueType():
            return arrays[name]
        case _:
            return None


def flatten_value(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a value by name; None has none."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        yield from ((f"{name}[keys]", np.array(list(items))), (f"{name}[values]", np.array(list(items.values()))))
    elif isinstance(value, list):
        for element, element_value in zip(_element_names(name), cast("list[Any]", value), strict=False):
            yield from flatten_value(element, element_value)
    elif value is not None:
        yield name, value


def _element_names(name: str) -> Iterator[str]:
    return (f"{name}[{k}]" for k in count())

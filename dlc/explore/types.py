"""Tensor types as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import Attribute, MemRefType
from dlc.shapes.dims import Size


def format_type(type: Attribute, sizes: Sequence[Size] | None = None) -> str:
    """Return the type of a tensor or buffer as text: `float32[1, 64]`; `sizes` are more precise sizes of a buffer."""
    if isinstance(type, MemRefType):
        type = tensor_type(sizes or type.get_shape(), cast("MemRefType[Attribute]", type).element_type)
    return f"{numpy_dtype(element_type_of(type))}[{', '.join(map(str, shape_of(type)))}]"

"""Types as a person reads them."""

from __future__ import annotations

from typing import cast

from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import Attribute, MemRefType


def type_text(type: Attribute) -> str:
    """`float32[1, 64]` of a tensor or a buffer of it."""
    if isinstance(type, MemRefType):
        type = tensor_type(type.get_shape(), cast("MemRefType[Attribute]", type).element_type)
    return f"{numpy_dtype(element_type_of(type))}[{', '.join(map(str, shape_of(type)))}]"

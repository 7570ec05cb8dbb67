"""Reject tensor and axis sizes from untrusted files before anything is allocated for them."""

from __future__ import annotations

from dlc.dialects.dl.base import Tensor, element_type_of, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import ModelError
from dlc.shapes.dims import is_static, product

# The virtual address space of a process on x86-64.
_MAX_TENSOR_BYTES = 1 << 47
# The longest axis for which the importer computes one value per index.
_MAX_AXIS_ELEMENTS = 1 << 24


def require_addressable(where: str, type: Tensor) -> None:
    """Raise ModelError for a tensor that does not fit into the address space."""
    shape = shape_of(type)
    if is_static(shape) and product(shape) * numpy_dtype(element_type_of(type)).itemsize > _MAX_TENSOR_BYTES:
        raise ModelError(f"{where}: a tensor of shape {shape} has more elements than memory can hold")


def require_axis_length(where: str, length: int) -> None:
    """Raise ModelError for an axis too long to compute a value per index at import time."""
    if length > _MAX_AXIS_ELEMENTS:
        raise ModelError(f"{where}: an axis of size {length}; at most {_MAX_AXIS_ELEMENTS} is supported here")

"""Sizes that a file claims are refused before anything is made of them."""

from __future__ import annotations

from dlc.dialects.dl.base import Tensor, element_type_of, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dims import is_static, product
from dlc.errors import ModelError

# What a process can address.
_MOST_BYTES = 1 << 47
# The longest axis of which something is computed place by place while a file is read.
_MOST_PLACES = 1 << 24


def require_addressable(where: str, t: Tensor) -> None:
    """Raises ModelError for a tensor that no memory holds."""
    shape = shape_of(t)
    if is_static(shape) and product(shape) * numpy_dtype(element_type_of(t)).itemsize > _MOST_BYTES:
        raise ModelError(f"{where}: a tensor of shape {shape} has more elements than memory can hold")


def require_countable(where: str, places: int) -> None:
    """Raises ModelError for more places of an axis than are gone through while a file is read."""
    if places > _MOST_PLACES:
        raise ModelError(f"{where}: an axis of {places} places; up to {_MOST_PLACES} are read")

"""Element types of the `dl` dialect, their NumPy dtypes, and conversion between dense constants and arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.dialects.dl.base import Array, Tensor, is_storage_only
from dlc.errors import DTypeError
from dlc.ir import (
    Attribute,
    DenseIntOrFPElementsAttr,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    Signedness,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)

_UNSIGNED = {width: IntegerType(width, Signedness.UNSIGNED) for width in (2, 4, 8, 16, 32, 64)}

# Signed integers are signless types in the IR (i8), unsigned ones are unsigned types (ui8).
ELEMENT_TYPES: dict[str, Attribute] = {
    "float16": f16, "bfloat16": bf16, "float32": f32, "float64": f64,
    "int8": i8, "int16": i16, "int32": i32, "int64": i64,
    "uint8": _UNSIGNED[8], "uint16": _UNSIGNED[16], "uint32": _UNSIGNED[32], "uint64": _UNSIGNED[64],
    "bool": i1,
    "float8_e4m3fn": Float8E4M3FNType(), "float8_e4m3fnuz": Float8E4M3FNUZType(),
    "float8_e5m2": Float8E5M2Type(), "float8_e5m2fnuz": Float8E5M2FNUZType(), "float4_e2m1fn": Float4E2M1FNType(),
    "float8_e8m0fnu": Float8E8M0FNUType(),
    "int4": IntegerType(4), "uint4": _UNSIGNED[4], "int2": IntegerType(2), "uint2": _UNSIGNED[2],
}  # fmt: skip
# Types that NumPy lacks are dtypes of ml_dtypes.
_NUMPY_DTYPES = {t: np.dtype(getattr(ml_dtypes, name, name)) for name, t in ELEMENT_TYPES.items()} | {
    IndexType(): np.dtype(np.int64)
}


def element_type(dtype: Any) -> Attribute:
    """Return the element type for a NumPy dtype; raise DTypeError if dlc has none."""
    return _element_type(np.dtype(dtype))


@lru_cache(maxsize=64)  # NumPy builds the name of a dtype on each access.
def _element_type(dtype: np.dtype[Any]) -> Attribute:
    name = dtype.name
    if name not in ELEMENT_TYPES:
        if dtype.kind == "c":
            raise DTypeError(f"dtype {name}: expected a real dtype; apply the function to .real and .imag")
        raise DTypeError(f"dtype {name} has no element type in dlc; use one of {', '.join(ELEMENT_TYPES)}")
    return ELEMENT_TYPES[name]


def numpy_dtype(element: Attribute) -> np.dtype[Any]:
    """Return the NumPy dtype of an element type."""
    try:
        return _NUMPY_DTYPES[element]
    except KeyError:
        raise DTypeError(f"element type {element} has no NumPy dtype") from None


def is_float(element: Attribute) -> bool:
    """Return whether an element type is a float type with arithmetic."""
    return element == bf16 or isinstance(element, Float16Type | Float32Type | Float64Type)


def is_integer(element: Attribute) -> bool:
    """Return whether an element type is an integer type with arithmetic; bool is not."""
    return isinstance(element, IntegerType) and element != i1 and not is_storage_only(cast(Attribute, element))


def is_bool(element: Attribute) -> bool:
    return element == i1


def storage_value(value: int | float, element: Attribute) -> int | float:
    """Return a value as kernels store it: a storage-only float as the integer of its bits."""
    return np.asarray(value, numpy_dtype(element)).view(np.int8).item() if is_storage_only(element) else value


def dense_attribute(array: Array, tensor: Tensor) -> DenseIntOrFPElementsAttr:
    """Return a small array as a dense constant; a splat if all elements are bit-equal."""
    return _dense_attribute(array.tobytes(), array.dtype, tensor)


@lru_cache(maxsize=1024)  # Rules and bodies use few distinct constants.
def _dense_attribute(data: bytes, dtype: np.dtype[Any], tensor: Tensor) -> DenseIntOrFPElementsAttr:
    flat = np.frombuffer(data, dtype)
    bits = flat.view(f"u{flat.itemsize}") if flat.size else flat
    splat = flat.size > 1 and bool((bits == bits[0]).all())
    python_type = int if isinstance(tensor.element_type, IntegerType) else float
    values = [python_type(v) for v in (flat[:1] if splat else flat)]
    return cast(DenseIntOrFPElementsAttr, DenseIntOrFPElementsAttr.from_list(cast(Any, tensor), values))


def array_of(dense: DenseIntOrFPElementsAttr) -> Array:
    """Return the elements of a dense constant as a NumPy array."""
    t = dense.type
    dtype = numpy_dtype(t.element_type)
    values = np.array(list(dense.get_values()), np.float64 if is_float(t.element_type) else object).astype(dtype)
    return np.broadcast_to(values.reshape(()), t.get_shape()) if values.size == 1 else values.reshape(t.get_shape())

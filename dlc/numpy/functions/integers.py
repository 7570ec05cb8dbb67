"""Integer functions: common divisors and multiples, bits, and indices of flattened arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Operand,
    apply,
    as_dtype,
    as_shape,
    convert,
    operand,
    promote,
    refuse,
    with_axis_or_flattened,
)
from dlc.numpy.functions.comparison import bitwise_and, bitwise_left_shift, bitwise_right_shift, not_equal
from dlc.numpy.functions.elementwise import abs, floor_divide, multiply
from dlc.numpy.functions.padding import pad
from dlc.numpy.functions.reductions import sum
from dlc.numpy.functions.shape_manipulation import expand_dims, moveaxis, reshape, slice_axis

__all__ = ["bitwise_count", "gcd", "lcm", "packbits", "ravel_multi_index", "unpackbits", "unravel_index"]


def view(x: ArrayLike, dtype: AnyDType = None, /) -> Any:
    """Reinterpret the bits of the elements as another dtype of the same size."""
    x = operand(x)
    if dtype is None:
        return x
    target = as_dtype(dtype)
    if target.itemsize != x.dtype.itemsize:
        refuse(UnsupportedError(f"view: dtype {target} of other size than {x.dtype}; expected dtypes of the same size"))
    return apply(dl.BitcastOp, x, to=element_type(target)) if target != x.dtype else x


def _magnitudes(name: str, x1: ArrayLike, x2: ArrayLike) -> tuple[Operand, Operand, np.dtype[Any]]:
    """Return the magnitudes of integers as unsigned integers, which represent that of the smallest one; and their dtype."""
    a, b = promote(x1, x2)
    if a.dtype.kind not in "iu":
        refuse(DTypeError(f"{name}: dtype {a.dtype}; expected integers"))
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return convert(abs(a), unsigned), convert(abs(b), unsigned), a.dtype


def gcd(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the greatest common divisor of the magnitudes; gcd(0, 0) is 0."""
    a, b, dtype = _magnitudes("gcd", x1, x2)
    return convert(apply(dl.GcdOp, a, b), dtype)


def lcm(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the least common multiple of the magnitudes; 0 if one of them is 0. It wraps beyond the dtype."""
    a, b, dtype = _magnitudes("lcm", x1, x2)
    # A divisor of 0 gives 0.
    return convert(multiply(floor_divide(a, apply(dl.GcdOp, a, b)), b), dtype)


def bitwise_count(x: ArrayLike, /) -> Any:
    """Return the number of one bits of the magnitude, as uint8."""
    x = operand(x)
    if x.dtype.kind == "b":
        return convert(x, np.uint8)
    if x.dtype.kind not in "iu":
        refuse(DTypeError(f"bitwise_count: dtype {x.dtype}; expected integers or bool"))
    bits: Any = convert(abs(x), np.dtype(f"u{x.dtype.itemsize}"))
    # Add the counts of adjacent fields of 1, 2, 4, … bits in parallel.
    size = 8 * x.dtype.itemsize
    width = 1
    while width < size:
        mask = convert(_field_mask(width, size), bits.dtype)
        bits = bitwise_and(bits, mask) + bitwise_and(bitwise_right_shift(bits, convert(width, bits.dtype)), mask)
        width *= 2
    return convert(bits, np.uint8)


def _field_mask(width: int, size: int) -> int:
    """Return an integer of `size` bits whose fields of `width` bits are alternately one and zero."""
    return ((1 << size) - 1) // ((1 << width) + 1)


def _bit_order(name: str, bitorder: str) -> np.ndarray:
    """Return the position in a byte of each of eight consecutive elements."""
    if bitorder not in ("big", "little"):
        refuse(ArgumentError(f"{name}: bitorder {bitorder!r}; expected 'big' or 'little'"))
    return np.arange(8, dtype=np.uint8) if bitorder == "little" else np.arange(8, dtype=np.uint8)[::-1].copy()


def packbits(x: ArrayLike, /, axis: int | None = None, bitorder: str = "big") -> Any:
    """Pack elements, as bits that are one where not zero, into uint8; missing bits of the last byte are zero."""
    shifts = _bit_order("packbits", bitorder)
    x, axis = with_axis_or_flattened("packbits", x, axis)
    if x.dtype.kind not in "iub":
        refuse(DTypeError(f"packbits: dtype {x.dtype}; expected integers or bool"))
    bits: Any = moveaxis(convert(not_equal(x, 0) if x.dtype.kind != "b" else x, np.uint8), axis, -1)
    bits = pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, -bits.shape[-1] % 8)])
    groups = reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    return moveaxis(sum(bitwise_left_shift(groups, shifts), axis=-1, dtype=np.uint8), -1, axis)


def unpackbits(x: ArrayLike, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """Return the bits of uint8 elements as uint8: the first `count`, or all but the last -count if it is negative."""
    shifts = _bit_order("unpackbits", bitorder)
    x, axis = with_axis_or_flattened("unpackbits", x, axis)
    if x.dtype != np.uint8:
        refuse(DTypeError(f"unpackbits: dtype {x.dtype}; expected uint8"))
    last: Any = expand_dims(moveaxis(x, axis, -1), axis=-1)
    bits = bitwise_and(bitwise_right_shift(last, shifts), np.uint8(1))
    size = 8 * x.shape[axis]
    bits = reshape(bits, (*bits.shape[:-2], size))
    if count is not None:
        stop = count if count >= 0 else size + count
        if stop < 0:
            refuse(ArgumentError(f"unpackbits: count {count} for {size} bits; expected at least -{size}"))
        padding = max(stop - size, 0)
        bits = slice_axis(pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, padding)]), bits.ndim - 1, 0, stop)
    return moveaxis(bits, -1, axis)


def unravel_index(indices: ArrayLike, shape: int | Sequence[int], /) -> tuple[Any, ...]:
    """Return the coordinates, one array for each axis of `shape`, of indices of the flattened array. They are not checked."""
    rest: Any = convert(indices, np.int64)
    coordinates: list[Any] = []
    for size in reversed(as_shape("unravel_index", shape)):
        rest, coordinate = divmod(rest, size)
        coordinates.append(coordinate)
    return tuple(reversed(coordinates))


def ravel_multi_index(multi_index: Sequence[ArrayLike], dims: int | Sequence[int], /) -> Any:
    """Return the indices in the flattened array of coordinates, one array for each axis of `dims`. They are not checked."""
    sizes = as_shape("ravel_multi_index", dims)
    if len(multi_index) != len(sizes):
        refuse(
            ShapeError(f"ravel_multi_index: {len(multi_index)} coordinates; expected {len(sizes)}, as many as dims has axes")
        )
    index: Any = 0
    for coordinate, size in zip(multi_index, sizes, strict=True):
        index = index * size + convert(coordinate, np.int64)
    return index

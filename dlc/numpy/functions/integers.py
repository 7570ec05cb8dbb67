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
from dlc.numpy.functions.comparison import bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift, not_equal
from dlc.numpy.functions.elementwise import abs, add, floor_divide, multiply
from dlc.numpy.functions.padding import pad
from dlc.numpy.functions.shape_manipulation import moveaxis, slice_axis

__all__ = ["bitwise_count", "gcd", "lcm", "packbits", "ravel_multi_index", "unpackbits", "unravel_index"]

# The words of eight bytes in which bits are packed and unpacked.
_WORD = element_type(np.dtype(np.uint64))
_LOW_BITS_OF_BYTES = 0x0101010101010101


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


def _require_bit_order(name: str, bitorder: str) -> None:
    if bitorder not in ("big", "little"):
        refuse(ArgumentError(f"{name}: bitorder {bitorder!r}; expected 'big' or 'little'"))


def packbits(x: ArrayLike, /, axis: int | None = None, bitorder: str = "big") -> Any:
    """Pack elements, as bits that are one where not zero, into uint8; missing bits of the last byte are zero."""
    _require_bit_order("packbits", bitorder)
    x, axis = with_axis_or_flattened("packbits", x, axis)
    if x.dtype.kind not in "iub":
        refuse(DTypeError(f"packbits: dtype {x.dtype}; expected integers or bool"))
    flags: Any = moveaxis(not_equal(x, 0) if x.dtype.kind != "b" else x, axis, -1)
    flags = pad(flags, [(0, 0)] * (flags.ndim - 1) + [(0, -flags.shape[-1] % 8)])
    # Eight flags are the lowest bits of the bytes of a word. Each step joins fields of 1, 2 and 4 bits in pairs: in the lowest
    # byte the first flag becomes the lowest bit, in the highest byte the highest bit.
    word: Any = apply(dl.ViewAsOp, flags, to=_WORD)
    for width in (1, 2, 4):
        is_little = bitorder == "little"
        distance = np.uint64(7 * width if is_little else 9 * width)
        word = bitwise_or(word, (bitwise_right_shift if is_little else bitwise_left_shift)(word, distance))
    packed = word if bitorder == "little" else bitwise_right_shift(word, np.uint64(56))
    return moveaxis(convert(packed, np.uint8), -1, axis)


def unpackbits(x: ArrayLike, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """Return the bits of uint8 elements as uint8: the first `count`, or all but the last -count if it is negative."""
    _require_bit_order("unpackbits", bitorder)
    x, axis = with_axis_or_flattened("unpackbits", x, axis)
    if x.dtype != np.uint8:
        refuse(DTypeError(f"unpackbits: dtype {x.dtype}; expected uint8"))
    # Each byte of a word has one bit of a copy of the element. Added to 127, it carries into the highest bit of the byte.
    copies = multiply(convert(moveaxis(x, axis, -1), np.uint64), np.uint64(_LOW_BITS_OF_BYTES))
    selected_bits = sum(1 << (9 * k if bitorder == "little" else 7 * (k + 1)) for k in range(8))
    carries = add(bitwise_and(copies, np.uint64(selected_bits)), np.uint64(127 * _LOW_BITS_OF_BYTES))
    word: Any = bitwise_and(bitwise_right_shift(carries, np.uint64(7)), np.uint64(_LOW_BITS_OF_BYTES))
    bits: Any = apply(dl.ViewAsOp, word, to=element_type(np.dtype(np.uint8)))
    if count is not None:
        size = bits.shape[-1]
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

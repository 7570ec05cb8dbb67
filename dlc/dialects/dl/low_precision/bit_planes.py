"""Bit planes: unsigned integers of 2 to 8 bits in 32-bit words, as operands of packed dot products.

A group of integers is stored as planes of 8, 4, 2 or 1 of their bits, the lowest bits in the first plane; the narrowest plane
of a group fills one word. Integer 4·s + i of a group is in slot s of byte i: in a plane of q bits, slot s is in word s·q / 8 of
the plane, at bit (s·q) mod 8 of the byte. So shifts and masks of whole words yield the four integers of a slot, one per byte,
or every second one of them in 16 bits.

    bits    planes    integers per group    words
    2       2         16                    1
    4       4         8                     1
    5       4, 1      32                    5
    6       4, 2      16                    3
    8       8         4                     1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.interfaces import Body
from dlc.dialects.dl.low_precision.packed_dot import WORD_BITS
from dlc.ir import SSAValue, arith

_BYTES = WORD_BITS // 8
# The bits of each plane, by the bits of the integers.
_PLANE_BITS: Mapping[int, tuple[int, ...]] = {2: (2,), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}


@dataclass(frozen=True)
class Plane:
    """A plane of a group: `bits` bits of each integer from bit `first_bit` on, in the words from `first_word` on."""

    bits: int
    first_bit: int
    first_word: int

    @property
    def slots_per_word(self) -> int:
        return 8 // self.bits


@dataclass(frozen=True)
class BitPlanes:
    """The layout of integers of `bits` bits."""

    bits: int

    @staticmethod
    def is_supported(bits: int) -> bool:
        """Return whether there is a layout for integers of this number of bits."""
        return bits in _PLANE_BITS

    @staticmethod
    def smallest(max_integer: int, size: int) -> BitPlanes:
        """Return the layout with the fewest bits for integers up to `max_integer`, in blocks of `size`, a multiple of 8.

        With a maximum of 8 bits, `size` may be any multiple of 4.
        """
        return next(
            planes for planes in map(BitPlanes, _PLANE_BITS) if max_integer >> planes.bits == 0 and size % planes.group == 0
        )

    @property
    def group(self) -> int:
        """The number of integers of a group."""
        return WORD_BITS // min(_PLANE_BITS[self.bits])

    @property
    def slots(self) -> int:
        """The number of slots of a group."""
        return self.group // _BYTES

    @property
    def words(self) -> int:
        """The number of words of a group."""
        return self.group * self.bits // WORD_BITS

    @property
    def planes(self) -> Sequence[Plane]:
        planes, first_bit, first_word = list[Plane](), 0, 0
        for bits in _PLANE_BITS[self.bits]:
            planes.append(Plane(bits, first_bit, first_word))
            first_bit, first_word = first_bit + bits, first_word + self.group * bits // WORD_BITS
        return planes

    def extract(self, body: Body, words: Sequence[SSAValue], slot: int, half: int | None) -> SSAValue:
        """Emit the integers of a slot of a group of words: all four, or those of bytes `half` and `half` + 2 in 16 bits."""
        result: SSAValue | None = None
        for plane in self.planes:
            word = words[plane.first_word + slot // plane.slots_per_word]
            shift = slot % plane.slots_per_word * plane.bits + 8 * (half or 0) - plane.first_bit
            if shift:
                op = arith.ShRUIOp if shift > 0 else arith.ShLIOp
                word = body(op(word, scalar.like(body, abs(shift), word)))
            if plane.bits < 8 or half is not None:
                step = 8 if half is None else 16
                field = ((1 << plane.bits) - 1) << plane.first_bit
                mask = sum(field << k for k in range(0, WORD_BITS, step))
                word = body(arith.AndIOp(word, scalar.like(body, mask, word)))
            result = word if result is None else body(arith.OrIOp(result, word))
        assert result is not None
        return result

    def unpack(self, words: Array) -> Array:
        """Unpack words […, g·words, N] into integers […, g·group, N]."""
        *lead, count, columns = words.shape
        groups = count // self.words
        in_rows = np.ascontiguousarray(np.moveaxis(words, -2, -1), "<i4")
        as_bytes = in_rows.view(np.uint8).reshape(*lead, columns, groups, self.words, _BYTES)
        integers = np.zeros((*lead, columns, groups, self.slots, _BYTES), np.uint8)
        for plane in self.planes:
            for slot in range(self.slots):
                fields = as_bytes[..., plane.first_word + slot // plane.slots_per_word, :]
                fields = (fields >> (slot % plane.slots_per_word * plane.bits)) & ((1 << plane.bits) - 1)
                integers[..., slot, :] |= fields << plane.first_bit
        return np.moveaxis(integers.reshape(*lead, columns, groups * self.group), -1, -2)

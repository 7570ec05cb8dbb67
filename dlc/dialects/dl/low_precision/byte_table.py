"""Tables of 16 bytes, indexed by the bytes of words."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl import scalar
from dlc.dialects.dl.interfaces import Body
from dlc.ir import SSAValue, arith

TABLE_BITS = 4
TABLE_SIZE = 1 << TABLE_BITS
# A word whose four bytes are 1.
WORD_OF_ONES = 0x01010101


def lookup_bytes(body: Body, table: Sequence[int], word: SSAValue) -> SSAValue:
    """Emit the unsigned byte of a table for the low four bits of each byte of an i32 word.

    A tree of selects by one bit each: `mask` has 8 ones for a bit that is 1, and `((a ^ b) & mask) ^ a` selects a or b. Code
    generation replaces the tree by a table instruction of the target if there is one.
    """
    masks: list[SSAValue] = []
    for bit in range(TABLE_BITS):
        shifted = body(arith.ShRUIOp(word, scalar.like(body, bit, word))) if bit else word
        ones = body(arith.AndIOp(shifted, scalar.like(body, WORD_OF_ONES, word)))
        masks.append(body(arith.MuliOp(ones, scalar.like(body, 255, word))))
    values: list[SSAValue] = []
    for low, high in zip(table[0::2], table[1::2], strict=True):
        difference = body(arith.AndIOp(masks[0], scalar.like(body, _splat(low ^ high), word)))
        values.append(body(arith.XOrIOp(difference, scalar.like(body, _splat(low), word))))
    for mask in masks[1:]:
        values = [_select(body, a, b, mask) for a, b in zip(values[0::2], values[1::2], strict=True)]
    return values[0]


def _select(body: Body, a: SSAValue, b: SSAValue, mask: SSAValue) -> SSAValue:
    difference = body(arith.AndIOp(body(arith.XOrIOp(a, b)), mask))
    return body(arith.XOrIOp(difference, a))


def _splat(byte: int) -> int:
    """Return the i32 word whose four bytes are `byte`."""
    return int.from_bytes(bytes([byte] * 4), "little", signed=True)

"""What floats stand for that were integers of 8 bits: where those are, and how they were moved since."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import SubOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.interfaces import Movement
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.narrow_numbers.quantization import DequantizeOp
from dlc.dialects.dl.reductions.window import MaxPoolOp
from dlc.dialects.dl.scalar import limits
from dlc.dims import Size
from dlc.ir import Operation, SSAValue, i32
from dlc.passes.dl.rewriting import defining, splat

BYTES = (ELEMENT_TYPES["int8"], ELEMENT_TYPES["uint8"])


@dataclass(frozen=True)
class Quantized:
    """`moves((stored - zero) · scale)`: what a value is, with `stored` of integers of 8 bits.

    Without `scale` it is an integer of i32. `zero` is of the type of `stored`, or of i32; None: 0. Both have rank 0, or one
    entry per place of `axis` before the moves, which go from the first to the last.
    """

    stored: SSAValue
    zero: SSAValue | None
    scale: SSAValue | None
    axis: int
    moves: tuple[DlOp, ...]

    @staticmethod
    def of(value: SSAValue, windows: bool = False) -> Quantized | None:
        """What `value` is made of; None if it is nothing of the kind. Maxima of windows are moves too, if they may be."""
        moves: list[DlOp] = []
        while (found := _source(value)) is None:
            op = value.owner
            if not isinstance(op, DlOp) or not _moves(op, windows):
                return None
            moves.insert(0, op)
            value = op.operands[0]
        return Quantized(*found, tuple(moves))

    @property
    def zero_number(self) -> int | None:
        """The zero point, if it is known and one for all."""
        return 0 if self.zero is None else _integer(splat(self.zero))

    def is_single(self) -> bool:
        """Whether scale and zero point are one for all."""
        return not any(rank_of(v) for v in (self.zero, self.scale) if v is not None)

    def moved(self, b: Build, x: SSAValue, zero: Callable[[], SSAValue]) -> SSAValue:
        """`x`, integers in place of what was stored, as the value's elements lie; `zero` makes what stands for 0."""
        for op in self.moves:
            operands = [x]
            if isinstance(op, PadOp):
                of_lowest = splat(op.value) == -math.inf
                operands.append(b.scalar(limits(element_type_of(x))[0], like=x) if of_lowest else zero())
            x = b(type(op), *operands, **op.properties)
        return x

    def per_channel(self, b: Build, parameter: SSAValue) -> SSAValue | None:
        """A scale as it broadcasts with the value: rank 0, or one entry per place of the last axis; None if it does not."""
        if not rank_of(parameter):
            return parameter
        shape: list[Size] = [1] * rank_of(self.stored)
        shape[self.axis] = shape_of(parameter)[0]
        along = b(ReshapeOp, parameter, shape=shape)
        if not all(isinstance(op, TransposeOp) for op in self.moves):
            return None
        for op in self.moves:
            along = b(TransposeOp, along, **op.properties)
        *rest, channels = shape_of(along)
        return b(ReshapeOp, along, shape=(channels,)) if all(s == 1 for s in rest) else None


def _source(value: SSAValue) -> tuple[SSAValue, SSAValue | None, SSAValue | None, int] | None:
    match value.owner:
        case DequantizeOp() as op if element_type_of(op.x) in BYTES and op.block_count is None:
            return op.x, op.zero_point, op.scale, op.channel_axis
        case SubOp() as op if (wide := _widened(op.operands[0])) is not None:
            zero = op.operands[1]
            shape = shape_of(zero)
            axis = rank_of(wide) - len(shape)
            if not shape:
                return wide, zero, None, 0
            # One per place of the first of its axes, as importers write it.
            return (wide, Build(op)(ReshapeOp, zero, shape=shape[:1]), None, axis) if set(shape[1:]) <= {1} else None
        case _ if (wide := _widened(value)) is not None:
            return wide, None, None, 0
        case _:
            return None


def _widened(value: SSAValue) -> SSAValue | None:
    """The integers of 8 bits that `value` is, as i32."""
    cast = defining(value, CastOp)
    return cast.x if cast is not None and cast.to == i32 and element_type_of(cast.x) in BYTES else None


def _moves(op: Operation, windows: bool) -> bool:
    if isinstance(op, PadOp):
        return op.mode != "constant" or splat(op.value) == 0 or (windows and splat(op.value) == -math.inf)
    return isinstance(op, Movement | ReshapeOp) or (windows and isinstance(op, MaxPoolOp))


def _integer(number: int | float | None) -> int | None:
    return None if number is None else int(number)

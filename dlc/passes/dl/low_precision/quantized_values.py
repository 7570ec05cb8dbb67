"""Match float values that are dequantized from int8 or uint8, possibly followed by data movement."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import SubOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.interfaces import DataMovement
from dlc.dialects.dl.low_precision.quantization import DequantizeOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.reductions.window import MaxPoolOp
from dlc.dialects.dl.scalar import limits
from dlc.ir import Operation, SSAValue, i32
from dlc.passes.dl.rewriting import defining_op, splat
from dlc.shapes.dims import Size

INT8_TYPES = (ELEMENT_TYPES["int8"], ELEMENT_TYPES["uint8"])


@dataclass(frozen=True)
class QuantizedValue:
    """A value of the form `f((stored - zero) · scale)`: int8 or uint8 integers, dequantized, then moved by f.

    Attributes:
        stored: The int8 or uint8 integers.
        zero: The zero point, of the type of `stored` or i32; None for 0.
        scale: The scale; None if the value is an i32 integer that is not scaled.
        axis: The axis of `stored` along which `zero` and `scale` vary, unless they have rank 0.
        data_movement_ops: The data-movement ops of f, from first to last.
    """

    stored: SSAValue
    zero: SSAValue | None
    scale: SSAValue | None
    axis: int
    data_movement_ops: tuple[DlOp, ...]

    @staticmethod
    def of(value: SSAValue, windows: bool = False) -> QuantizedValue | None:
        """Match `value`; None if it is not dequantized. With `windows`, max pooling counts as data movement."""
        data_movement_ops: list[DlOp] = []
        while (source := _source(value)) is None:
            op = value.owner
            if not isinstance(op, DlOp) or not _is_data_movement(op, windows):
                return None
            data_movement_ops.insert(0, op)
            value = op.operands[0]
        return QuantizedValue(*source, tuple(data_movement_ops))

    @property
    def constant_zero_point(self) -> int | None:
        """The zero point, if it is a constant scalar."""
        return 0 if self.zero is None else _integer(splat(self.zero))

    def is_per_tensor(self) -> bool:
        """Return whether scale and zero point are per tensor."""
        return not any(rank_of(v) for v in (self.zero, self.scale) if v is not None)

    def apply_data_movement(self, build: DlBuilder, x: SSAValue, zero: Callable[[], SSAValue]) -> SSAValue:
        """Apply the data-movement ops to integers `x` instead of the stored ones; `zero` builds the padding value."""
        for op in self.data_movement_ops:
            operands = [x]
            if isinstance(op, PadOp):
                pads_with_lowest = splat(op.value) == -math.inf
                operands.append(build.scalar(limits(element_type_of(x))[0], like=x) if pads_with_lowest else zero())
            x = build(type(op), *operands, **op.properties)
        return x

    def per_channel(self, build: DlBuilder, parameter: SSAValue) -> SSAValue | None:
        """Return a scale that broadcasts with the value: rank 0, or one entry per position of the last axis; else None."""
        if not rank_of(parameter):
            return parameter
        shape: list[Size] = [1] * rank_of(self.stored)
        shape[self.axis] = shape_of(parameter)[0]
        reshaped = build(ReshapeOp, parameter, shape=shape)
        if not all(isinstance(op, TransposeOp) for op in self.data_movement_ops):
            return None
        for op in self.data_movement_ops:
            reshaped = build(TransposeOp, reshaped, **op.properties)
        *leading, channels = shape_of(reshaped)
        return build(ReshapeOp, reshaped, shape=(channels,)) if all(s == 1 for s in leading) else None


def _source(value: SSAValue) -> tuple[SSAValue, SSAValue | None, SSAValue | None, int] | None:
    """Return the stored integers, zero point, scale and axis of a dequantized value or a centered integer; None for others."""
    match value.owner:
        case DequantizeOp() as op if element_type_of(op.x) in INT8_TYPES and op.block_count is None:
            return op.x, op.zero_point, op.scale, op.channel_axis
        case SubOp() as op if (integers := _int8_source(op.operands[0])) is not None:
            zero = op.operands[1]
            shape = shape_of(zero)
            axis = rank_of(integers) - len(shape)
            if not shape:
                return integers, zero, None, 0
            # Importers emit zero points of shape [n, 1, …].
            return (integers, DlBuilder(op)(ReshapeOp, zero, shape=shape[:1]), None, axis) if set(shape[1:]) <= {1} else None
        case _ if (integers := _int8_source(value)) is not None:
            return integers, None, None, 0
        case _:
            return None


def _int8_source(value: SSAValue) -> SSAValue | None:
    """Return the int8 or uint8 source of a cast to i32; None for other values."""
    cast = defining_op(value, CastOp)
    return cast.x if cast is not None and cast.to == i32 and element_type_of(cast.x) in INT8_TYPES else None


def _is_data_movement(op: Operation, windows: bool) -> bool:
    """Return whether an op is data movement; with `windows`, also max pooling and its padding."""
    if isinstance(op, PadOp):
        return op.mode != "constant" or splat(op.value) == 0 or (windows and splat(op.value) == -math.inf)
    return isinstance(op, DataMovement | ReshapeOp) or (windows and isinstance(op, MaxPoolOp))


def _integer(value: int | float | None) -> int | None:
    return None if value is None else int(value)

"""Padding and trimming."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.pointwise import common_element_type
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    ints,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.interfaces import Body, GatherLike
from dlc.dialects.dl.movement.shaping import ALL_KINDS, add_offset, clamp_index
from dlc.errors import ShapeError
from dlc.ir import (
    DenseArrayBase,
    SSAValue,
    StringAttr,
    TensorType,
    arith,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, is_known_less


@irdl_op_definition
class PadOp(GatherLike):
    """`x` padded with `low` elements before and `high` elements after it on each axis; negative values trim.

    `pad_mode` selects the new elements: `constant` (the default) `value`; `edge` the nearest element; `reflect` the
    elements mirrored at the outermost one, which is not repeated; `wrap` the elements of the other end.
    (C1) `low` and `high` have one entry per axis; (C2) `value` is a scalar of the element type of `x`; (C3) `low + size +
    high ≥ 0`; (C4) modes other than `constant` require an element along a padded axis.
    """

    name = "dl.pad"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    value = operand_def(TensorType)
    low = prop_def(DenseArrayBase)
    high = prop_def(DenseArrayBase)
    pad_mode = opt_prop_def(StringAttr)
    result = result_def(TensorType)

    @property
    def mode(self) -> str:
        return self.pad_mode.data if self.pad_mode is not None else "constant"

    @property
    def padding(self) -> list[tuple[int, int]]:
        """`(low, high)` of each axis."""
        return list(zip(ints(self.low), ints(self.high), strict=True))

    def infer(self) -> Sequence[Tensor]:
        shape = shape_of(self.x)
        if not len(shape) == len(ints(self.low)) == len(ints(self.high)):
            raise ShapeError(f"dl.pad: low {ints(self.low)} and high {ints(self.high)} do not fit {shape} (C1)")
        if rank_of(self.value):
            raise ShapeError(f"dl.pad: value has shape {shape_of(self.value)}; expected a scalar (C2)")
        if self.mode not in PAD_MODES:
            raise ShapeError(f"dl.pad: pad_mode {self.mode!r}, expected one of {', '.join(PAD_MODES)}")
        element = common_element_type(self, [self.x, self.value], ALL_KINDS)
        result = [low + size + high for size, (low, high) in zip(shape, self.padding, strict=True)]
        if any(is_known_less(size, 0) for size in result):
            raise ShapeError(f"dl.pad: low {ints(self.low)} and high {ints(self.high)} trim more than {shape} has (C3)")
        padded_sizes = [size for size, sides in zip(shape, self.padding, strict=True) if max(sides) > 0]
        if self.mode != "constant" and any(is_known_less(size, 1) for size in padded_sizes):
            raise ShapeError(f"dl.pad: mode {self.mode} has no element to repeat in {shape} (C4)")
        return [tensor_type(result, element)]

    def reference(self, *operands: Array) -> Array:
        x, value = operands
        shape = [low + size + high for size, (low, high) in zip(x.shape, self.padding, strict=True)]
        if self.mode == "constant":
            source_slices = [
                slice(max(-low, 0), max(n - max(-high, 0), 0)) for n, (low, high) in zip(x.shape, self.padding, strict=True)
            ]
            target_slices = [
                slice(max(low, 0), max(n - max(high, 0), 0)) for n, (low, high) in zip(shape, self.padding, strict=True)
            ]
            result = np.full(shape, value, x.dtype)
            result[tuple(target_slices)] = x[tuple(source_slices)]
            return result
        for axis, (low, _) in enumerate(self.padding):
            x = np.take(x, padding_source_indices(self.mode, x.shape[axis], shape[axis], low), axis)
        return x

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        x, value = sources
        shape = shape_of(self.x)
        padding_value = scalar.extract(body, value, [])
        if 0 in shape:
            return padding_value
        source_indices: list[SSAValue] = []
        in_bounds: SSAValue | None = None
        for i, size, (low, high) in zip(indices, shape, self.padding, strict=True):
            if low <= 0 and high <= 0:
                source_indices.append(add_offset(body, i, -low))
            elif self.mode in ("constant", "edge"):
                index = add_offset(body, i, -low)
                source_indices.append(clamp_index(body, index, size))
                is_unclamped = body(arith.CmpiOp(index, source_indices[-1], "eq"))
                in_bounds = is_unclamped if in_bounds is None else scalar.bit_and(body, in_bounds, is_unclamped)
            elif self.mode == "wrap":
                source_indices.append(add_offset_modulo(body, i, -low, size))
            else:
                period = emit_max(body, size * 2 - 2, 1)
                mirrored = add_offset_modulo(body, i, -low, period)
                reflected = body(arith.SubiOp(scalar.as_index(body, period), mirrored))
                source_indices.append(body(arith.MinSIOp(mirrored, reflected)))
        element = scalar.extract(body, x, source_indices)
        return (
            element if in_bounds is None or self.mode != "constant" else scalar.select(body, in_bounds, element, padding_value)
        )


PAD_MODES = ("constant", "edge", "reflect", "wrap")


def padding_source_indices(mode: str, size: int, padded_size: int, low: int) -> Array:
    """Return the source index, below `size`, of each of the `padded_size` elements along an axis."""
    indices: Array = np.arange(padded_size) - low
    match mode:
        case "edge":
            return np.clip(indices, 0, size - 1)
        case "wrap":
            return np.mod(indices, size)
        case _:
            period = max(2 * size - 2, 1)
            mirrored: Array = np.mod(indices, period)
            return np.minimum(mirrored, period - mirrored)


def emit_max(body: Body, size: Size, minimum: int) -> Size | SSAValue:
    """Emit the larger of a size and the constant `minimum`."""
    if isinstance(size, int):
        return max(size, minimum)
    return body(arith.MaxSIOp(scalar.as_index(body, size), scalar.as_index(body, minimum)))


def add_offset_modulo(body: Body, i: SSAValue, offset: int, period: Size | SSAValue) -> SSAValue:
    """Emit `(i + offset) mod period`, which is never negative."""
    if isinstance(period, int):
        return body(arith.RemUIOp(add_offset(body, i, offset % period), scalar.as_index(body, period)))
    # Adding -offset periods keeps the dividend nonnegative, since a period is at least 1.
    divisor = scalar.as_index(body, period)
    multiple = body(arith.MuliOp(divisor, scalar.as_index(body, max(-offset, 0))))
    return body(arith.RemUIOp(body(arith.AddiOp(add_offset(body, i, offset), multiple)), divisor))

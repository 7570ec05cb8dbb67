"""Elements more around a tensor, or fewer."""

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
from dlc.dialects.dl.interfaces import Body, Gathering
from dlc.dialects.dl.movement.shaping import ANY, clamped, known_less, shifted
from dlc.dims import Size
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


@irdl_op_definition
class PadOp(Gathering):
    """`x` with `low` elements more before it and `high` after it on each axis; negative numbers take elements away.

    `pad_mode` says what the new elements are: `constant` (the default) `value`; `edge` the nearest element; `reflect` the
    elements mirrored at the outermost one, which is not repeated; `wrap` the elements of the other end.
    (C1) `low` and `high` have one entry per axis; (C2) `value` is a scalar of the element type of `x`; (C3) `low + size +
    high ≥ 0`; (C4) other modes than `constant` need an element along a padded axis.
    """

    name = "dl.pad"
    TAKES_NARROW: ClassVar[bool] = True
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
            raise ShapeError(f"dl.pad: value has shape {shape_of(self.value)}, expected a scalar (C2)")
        if self.mode not in PAD_MODES:
            raise ShapeError(f"dl.pad: pad_mode {self.mode!r}, expected one of {', '.join(PAD_MODES)}")
        element = common_element_type(self, [self.x, self.value], ANY)
        result = [low + size + high for size, (low, high) in zip(shape, self.padding, strict=True)]
        if any(known_less(size, 0) for size in result):
            raise ShapeError(f"dl.pad: low {ints(self.low)} and high {ints(self.high)} take more than {shape} has (C3)")
        if self.mode != "constant" and any(s == 0 and max(p) > 0 for s, p in zip(shape, self.padding, strict=True)):
            raise ShapeError(f"dl.pad: mode {self.mode} has no element to repeat in {shape} (C4)")
        return [tensor_type(result, element)]

    def reference(self, *operands: Array) -> Array:
        x, value = operands
        shape = [low + size + high for size, (low, high) in zip(x.shape, self.padding, strict=True)]
        if self.mode == "constant":
            kept = [
                slice(max(-low, 0), max(n - max(-high, 0), 0)) for n, (low, high) in zip(x.shape, self.padding, strict=True)
            ]
            inner = [slice(max(low, 0), max(n - max(high, 0), 0)) for n, (low, high) in zip(shape, self.padding, strict=True)]
            result = np.full(shape, value, x.dtype)
            result[tuple(inner)] = x[tuple(kept)]
            return result
        for axis, (low, _) in enumerate(self.padding):
            x = np.take(x, repeating_places(self.mode, x.shape[axis], shape[axis], low), axis)
        return x

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        x, value = sources
        shape = shape_of(self.x)
        outside = scalar.extract(body, value, [])
        if 0 in shape:
            return outside
        places: list[SSAValue] = []
        inside: SSAValue | None = None
        for i, size, (low, high) in zip(indices, shape, self.padding, strict=True):
            if low <= 0 and high <= 0:
                places.append(shifted(body, i, -low))
            elif self.mode in ("constant", "edge"):
                shifted_place = shifted(body, i, -low)
                places.append(clamped(body, shifted_place, size))
                here = body(arith.CmpiOp(shifted_place, places[-1], "eq"))
                inside = here if inside is None else scalar.both(body, inside, here)
            elif self.mode == "wrap":
                places.append(repeated(body, i, -low, size))
            else:
                period = larger(body, size * 2 - 2, 1)
                mirrored = repeated(body, i, -low, period)
                back = body(arith.SubiOp(scalar.position(body, period), mirrored))
                places.append(body(arith.MinSIOp(mirrored, back)))
        element = scalar.extract(body, x, places)
        return element if inside is None or self.mode != "constant" else scalar.select(body, inside, element, outside)


PAD_MODES = ("constant", "edge", "reflect", "wrap")


def repeating_places(mode: str, size: int, padded: int, low: int) -> Array:
    """Which of the `size` elements along an axis each of the `padded` ones repeats."""
    places: Array = np.arange(padded) - low
    match mode:
        case "edge":
            return np.clip(places, 0, size - 1)
        case "wrap":
            return np.mod(places, size)
        case _:
            period = max(2 * size - 2, 1)
            mirrored: Array = np.mod(places, period)
            return np.minimum(mirrored, period - mirrored)


def larger(body: Body, size: Size, least: int) -> Size | SSAValue:
    """The larger of a size and a number."""
    if isinstance(size, int):
        return max(size, least)
    return body(arith.MaxSIOp(scalar.position(body, size), scalar.position(body, least)))


def repeated(body: Body, i: SSAValue, offset: int, period: Size | SSAValue) -> SSAValue:
    """`(i + offset) mod period`, never negative."""
    if isinstance(period, int):
        return body(arith.RemUIOp(shifted(body, i, offset % period), scalar.position(body, period)))
    # As many periods more as elements are missing are enough.
    whole = scalar.position(body, period)
    more = body(arith.MuliOp(whole, scalar.position(body, max(-offset, 0))))
    return body(arith.RemUIOp(body(arith.AddiOp(shifted(body, i, offset), more)), whole))

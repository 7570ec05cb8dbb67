"""Sequential kernels along the middle axis of [a, n, b]: cumulative sums and products, argmax and argmin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.interfaces import RowwiseKernel
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    BoolAttr,
    IntegerAttr,
    SSAValue,
    StringAttr,
    TensorType,
    bf16,
    f16,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, is_known_less


def _require_rank_3(name: str, x: SSAValue) -> tuple[Size, ...]:
    """Return the shape of an operand of rank 3; raise DTypeError or ShapeError for bools, 16-bit floats or another rank."""
    element = element_type_of(x)
    if is_bool(element) or element in (f16, bf16):
        raise DTypeError(f"{name}: x of {element}; expected integers or floats of 32 or 64 bits (C1)")
    if rank_of(x) != 3:
        raise ShapeError(f"{name}: x of shape {shape_of(x)}; expected rank 3 (C2)")
    return shape_of(x)


@irdl_op_definition
class AccumulateOp(RowwiseKernel):
    """`y[a, j, b]`: the cumulative sum (`kind` add) or product (mul) of `x[a, k, b]` for `k ≤ j`.

    `k < j` if `exclusive`, from the end if `reverse`. Integers wrap around; sums of floats are blocked.
    (C1) `x` has an integer type, or a float type of 32 or 64 bits; (C2) it has rank 3, with static sizes in a kernel.
    """

    name = "dl.accumulate"
    x = operand_def(TensorType)
    kind = prop_def(StringAttr)
    exclusive = opt_prop_def(BoolAttr)
    reverse = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if self.kind.data not in ("add", "mul"):
            raise ShapeError(f"dl.accumulate: kind {self.kind.data!r}; expected add or mul")
        return [tensor_type(_require_rank_3(self.name, self.x), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return accumulate(operands[0], 1, self.kind.data, exclusive=flag(self.exclusive), reverse=flag(self.reverse))


def accumulate(x: Array, axis: int, kind: str, *, exclusive: bool, reverse: bool) -> Array:
    """Return the cumulative sum (`kind` add) or product (mul) along an axis, as `dl.accumulate`."""
    function, identity = {"add": (np.cumsum, 0), "mul": (np.cumprod, 1)}[kind]
    x = np.flip(x, axis) if reverse else x
    if exclusive and x.shape[axis]:
        first = np.full_like(x.take([0], axis), identity)
        x = np.concatenate([first, x.take(range(x.shape[axis] - 1), axis)], axis)
    with np.errstate(all="ignore"):
        y = function(x, axis, dtype=x.dtype)
    return np.flip(y, axis) if reverse else y


@irdl_op_definition
class ArgExtremumOp(RowwiseKernel):
    """The index `j` of the largest `x[a, j, b]`, as i64 [a, b]; of the smallest if `smallest`.

    The first of equal elements, or the last if `last`; NaN is extreme. With `segments`, the index within each of `segments`
    segments of ⌈n / segments⌉ elements, [a, segments, b]: segment k begins at k times its length, or where the last one fits.
    (C1) `x` has an integer type, or a float type of 32 or 64 bits; (C2) it has rank 3, with a second size that is not 0
    unless the result has no elements; (C3) `segments` is 1 to n.
    """

    name = "dl.arg_extremum"
    x = operand_def(TensorType)
    smallest = opt_prop_def(BoolAttr)
    last = opt_prop_def(BoolAttr)
    segments = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def num_segments(self) -> int | None:
        """The number of segments; None if the axis is not divided."""
        return None if self.segments is None else number(self.segments)

    @property
    def segment_length(self) -> int:
        """The number of elements of a segment."""
        return -(-int(shape_of(self.x)[1]) // (self.num_segments or 1))

    def infer(self) -> Sequence[Tensor]:
        rows, n, columns = _require_rank_3(self.name, self.x)
        if is_known_less(rows * columns * (n - 1), 0):
            raise ShapeError(f"dl.arg_extremum: {n} elements along axis 1 of {shape_of(self.x)}; expected at least 1 (C2)")
        if self.num_segments is None:
            return [tensor_type((rows, columns), i64)]
        if self.num_segments < 1 or is_known_less(n, self.num_segments):
            raise ShapeError(f"dl.arg_extremum: {self.num_segments} segments for {n} elements (C3)")
        return [tensor_type((rows, self.num_segments, columns), i64)]

    def reference(self, *operands: Array) -> Array:
        if self.num_segments is None:
            return self._first_extremum(*operands)
        (x,), size = operands, self.segment_length
        starts = (min(k * size, x.shape[1] - size) for k in range(self.num_segments))
        return np.stack([start + self._first_extremum(x[:, start : start + size]) for start in starts], 1)

    def _first_extremum(self, *operands: Array) -> Array:
        x = np.flip(operands[0], 1) if flag(self.last) else operands[0]
        if not x.size:
            return np.zeros((x.shape[0], x.shape[2]), np.int64)
        positions = (np.argmin if flag(self.smallest) else np.argmax)(x, 1)
        return x.shape[1] - 1 - positions if flag(self.last) else positions

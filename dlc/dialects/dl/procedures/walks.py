"""Along the middle axis of [a, n, b], element by element: running sums and products, places of extrema."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.interfaces import Sequential
from dlc.dims import Size
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


def _require(name: str, x: SSAValue) -> tuple[Size, ...]:
    """The shape of what is walked along; raises where it has not three axes, or is of bools or 16-bit floats."""
    element = element_type_of(x)
    if is_bool(element) or element in (f16, bf16):
        raise DTypeError(f"{name}: x of {element}; expected numbers, floats of 32 or 64 bits")
    if rank_of(x) != 3:
        raise ShapeError(f"{name}: x of shape {shape_of(x)}; expected three axes")
    return shape_of(x)


@irdl_op_definition
class AccumulateOp(Sequential):
    """`y[a, j, b]`: the sum (`kind` add) or product (mul) of `x[a, k, b]` for `k ≤ j`.

    `k < j` if `exclusive`, from the other end if `reverse`. Integers wrap around; sums of floats are blocked.
    (C1) `x` is of numbers, not of 16-bit floats; (C2) it has three axes, of sizes that are known in a kernel.
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
        return [tensor_type(_require(self.name, self.x), element_type_of(self.x))]

    @property
    def _identity(self) -> int:
        return 0 if self.kind.data == "add" else 1

    def reference(self, *operands: Array) -> Array:
        x = np.flip(operands[0], 1) if flag(self.reverse) else operands[0]
        if flag(self.exclusive) and x.shape[1]:
            x = np.concatenate([np.full_like(x[:, :1], self._identity), x[:, :-1]], 1)
        with np.errstate(all="ignore"):
            y = (np.cumsum if self.kind.data == "add" else np.cumprod)(x, 1, dtype=x.dtype)
        return np.flip(y, 1) if flag(self.reverse) else y


@irdl_op_definition
class ExtremePlaceOp(Sequential):
    """The place `j` of the largest `x[a, j, b]`, as i64 [a, b]; of the smallest if `smallest`.

    The first of equal ones, the last if `last`; NaN is extreme. With `parts`, the place in each of so many stretches of
    ⌈n / parts⌉ elements, [a, parts, b]: stretch k begins at k times that many, or where the last one fits.
    (C1) `x` is of numbers, not of 16-bit floats; (C2) it has three axes, of sizes that are known in a kernel, the second
    below 2^31, and not 0 unless the result has no elements; (C3) there is a part, and no more than elements.
    """

    name = "dl.extreme_place"
    x = operand_def(TensorType)
    smallest = opt_prop_def(BoolAttr)
    last = opt_prop_def(BoolAttr)
    parts = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def stretches(self) -> int | None:
        """How many stretches there are, if they have places of their own."""
        return None if self.parts is None else number(self.parts)

    @property
    def stretch(self) -> int:
        """The elements of a stretch."""
        return -(-int(shape_of(self.x)[1]) // (self.stretches or 1))

    def infer(self) -> Sequence[Tensor]:
        rows, n, columns = _require(self.name, self.x)
        if (n == 0 and 0 not in (rows, columns)) or (isinstance(n, int) and n >= 1 << 31):
            raise ShapeError(f"dl.extreme_place: {n} elements along the second axis of {shape_of(self.x)} (C2)")
        if self.stretches is None:
            return [tensor_type((rows, columns), i64)]
        if self.stretches < 1 or (isinstance(n, int) and n < self.stretches):
            raise ShapeError(f"dl.extreme_place: {self.stretches} stretches of {n} elements (C3)")
        return [tensor_type((rows, self.stretches, columns), i64)]

    def reference(self, *operands: Array) -> Array:
        if self.stretches is None:
            return self._places(*operands)
        (x,), size = operands, self.stretch
        starts = (min(k * size, x.shape[1] - size) for k in range(self.stretches))
        return np.stack([start + self._places(x[:, start : start + size]) for start in starts], 1)

    def _places(self, *operands: Array) -> Array:
        x = np.flip(operands[0], 1) if flag(self.last) else operands[0]
        if not x.size:
            return np.zeros((x.shape[0], x.shape[2]), np.int64)
        found = (np.argmin if flag(self.smallest) else np.argmax)(x, 1)
        return x.shape[1] - 1 - found if flag(self.last) else found

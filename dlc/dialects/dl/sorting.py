"""Order along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl.activation import casted, widened
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, normalized_axes, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contraction import static
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_bool, is_float
from dlc.dialects.dl.elementwise import AddOp, AndOp, EqualOp, GreaterOp, LessOp, NotOp, OrOp, SelectOp
from dlc.dialects.dl.functions import IsnanOp
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement import BroadcastToOp, PadOp, ReshapeOp, TransposeOp, known_less
from dlc.dialects.dl.reduction import ReduceMaxOp, ReduceSumOp
from dlc.dialects.dl.scalar import limits
from dlc.dialects.dl.sorted import MergeSortedOp, stable_order
from dlc.errors import ShapeError
from dlc.ir import (
    BoolAttr,
    IntegerAttr,
    SSAValue,
    TensorType,
    i8,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)

# Note [Sorting by merging]
#
# Short runs are sorted by counting: an element's rank is the number of elements before it. That compares every pair, but in
# vectors. Then runs are merged in pairs; each element of a merged run finds by bisection what belongs there, so that a pass
# is parallel and writes nothing twice. Of the runs only as much is kept as can be among the first `count`: the largest k of
# n take n·(run + log k) steps, a full order n·(run + log² n).

# The longest run that is sorted by counting.
_COUNTED = 64


@irdl_op_definition
class ArgsortOp(Composite):
    """The places of the elements along `axis` in ascending order, largest first if `descending`, as i64.

    Equal elements keep their order; NaN counts as the largest. With `count`, only the first so many places.
    (C1) `axis` is an axis of `x`; (C2) `count` is not negative and at most the size of the axis; (C3) sizes are known when it
    is decomposed. See Note [Sorting by merging].
    """

    name = "dl.argsort"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    descending = opt_prop_def(BoolAttr)
    count = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def sorted_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.x))[0]

    @property
    def is_descending(self) -> bool:
        return flag(self.descending)

    def infer(self) -> Sequence[Tensor]:
        shape, axis = list(shape_of(self.x)), self.sorted_axis
        if self.count is not None:
            count = int(number(self.count))
            if count < 0 or known_less(shape[axis], count):
                raise ShapeError(f"dl.argsort: the first {count} of {shape[axis]} elements (C2)")
            shape[axis] = count
        return [tensor_type(shape, i64)]

    def reference(self, *operands: Array) -> Array:
        (x,), axis = operands, self.sorted_axis
        count = x.shape[axis] if self.count is None else int(number(self.count))
        return stable_order(x, axis, self.is_descending).take(range(count), axis).astype(np.int64)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        b, axis = Build(self), self.sorted_axis
        (shape,) = static(self, operands[0])
        size = shape[axis]
        count = size if self.count is None else int(number(self.count))
        if 0 in shape or count == 0:
            result = (*shape[:axis], count, *shape[axis + 1 :])
            return [b(BroadcastToOp, b.scalar(0, like=tensor_type((), i64)), shape=result)]
        x = casted(b, operands[0], i8) if is_bool(element_type_of(operands[0])) else widened(b, operands[0])
        if size <= _COUNTED:
            return [_counted(b, x, axis, count, self.is_descending)]
        # The axis last; the permutation is its own inverse.
        order = list(range(len(shape)))
        order[axis], order[-1] = order[-1], order[axis]
        places = _merged(b, b(TransposeOp, x, permutation=order), count, self.is_descending)
        return [b(TransposeOp, places, permutation=order)]


def _counted(b: Build, x: SSAValue, axis: int, count: int, descending: bool) -> SSAValue:
    """The first `count` places in order, by counting for each element those before it."""
    shape = [int(s) for s in shape_of(x)]
    size = shape[axis]

    def numbered(size: int, position: int) -> SSAValue:
        numbers = b(IotaOp, size=(size,), to=i64, start=0, step=1)
        return b(ReshapeOp, numbers, shape=tuple(size if a == position else 1 for a in range(len(shape) + 1)))

    # The elements along `axis`, those that they are compared with along the axis behind it.
    own = b(ReshapeOp, x, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
    other = b(ReshapeOp, x, shape=(*shape[:axis], 1, *shape[axis:]))
    earlier = b(LessOp, numbered(size, axis + 1), numbered(size, axis))
    before, tied = b(GreaterOp if descending else LessOp, other, own), b(EqualOp, other, own)
    if is_float(element_type_of(x)):
        nan, other_nan = b(IsnanOp, own), b(IsnanOp, other)
        larger = (other_nan, nan) if descending else (nan, other_nan)
        before = b(OrOp, before, b(AndOp, larger[0], b(NotOp, larger[1])))
        tied = b(OrOp, tied, b(AndOp, nan, other_nan))
    before = b(OrOp, before, b(AndOp, tied, earlier))
    rank = b(ReduceSumOp, casted(b, before, i64), axes=(axis + 1,))
    # Place k of the result is the element of rank k.
    wanted = b(EqualOp, b(ReshapeOp, rank, shape=(*shape[:axis], 1, *shape[axis:])), numbered(count, axis))
    places = b(SelectOp, wanted, numbered(size, axis + 1), b.scalar(-1, like=tensor_type((), i64)))
    return b(ReduceMaxOp, places, axes=(axis + 1,))


def _merged(b: Build, x: SSAValue, count: int, descending: bool) -> SSAValue:
    """The first `count` places in order along the last axis: sorted runs, merged in pairs until one is left."""
    *rows, size = (int(s) for s in shape_of(x))
    passes = (-(-size // _COUNTED) - 1).bit_length()
    runs, run = 1 << passes, -(-size >> passes)
    # What fills up the last runs comes after all elements: none is behind it, and of equals the first comes first.
    low, high = limits(element_type_of(x))
    filling = b.scalar(low if descending else float("nan") if is_float(element_type_of(x)) else high, like=x)
    x = b(PadOp, x, filling, low=(0,) * (len(rows) + 1), high=(*(0,) * len(rows), runs * run - size))
    own = _counted(b, b(ReshapeOp, x, shape=(*rows, runs, run)), len(rows) + 1, min(run, count), descending)
    starts = b(ReshapeOp, b(IotaOp, size=(runs,), to=i64, start=0, step=run), shape=(runs, 1))
    places = b(AddOp, own, starts)
    for _ in range(passes):
        places = b(MergeSortedOp, x, places, count=count, descending=descending)
    return b(ReshapeOp, places, shape=(*rows, count))

"""Order along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import casted
from dlc.dialects.dl.arithmetic.logic import (
    BitwiseAndOp,
    BitwiseOrOp,
    BitwiseXorOp,
    ShiftLeftOp,
    ShiftRightOp,
)
from dlc.dialects.dl.base import (
    Array,
    DimsAttr,
    Tensor,
    element_type_of,
    flag,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    sizes,
    tensor_type,
)
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_bool, is_float
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.indexing import GatherElementsOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, SliceOp, TransposeOp, known_less
from dlc.dialects.dl.procedures.keys import elements_of, keys_of, keys_of_numbers
from dlc.dialects.dl.procedures.rows import (
    OfRanksOp,
    SmallestOp,
    SortColumnsOp,
    SortDigitsOp,
    digit_ends,
    network_is_quicker,
    ranks_are_quicker,
    selection_is_quicker,
)
from dlc.dialects.dl.procedures.sorted import stable_order
from dlc.dims import Size, product
from dlc.errors import ShapeError
from dlc.ir import (
    BoolAttr,
    DenseArrayBase,
    IntegerAttr,
    IntegerType,
    SSAValue,
    TensorType,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)


class _Order(Composite):
    """(C1) `axis` is an axis of `x`."""

    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    descending = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @property
    def sorted_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.x))[0]

    @property
    def is_descending(self) -> bool:
        return flag(self.descending)


@irdl_op_definition
class SortOp(_Order):
    """The elements along `axis` in ascending order, largest first if `descending`; NaN counts as the largest, -0 as below 0.

    (C1) `axis` is an axis of `x`. See Note [Sorting integers].
    """

    name = "dl.sort"

    def infer(self) -> Sequence[Tensor]:
        _ = self.sorted_axis
        return [tensor_type(shape_of(self.x), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x,), axis = operands, self.sorted_axis
        if is_float(element_type_of(self.x)):
            # Equal elements keep their order, so zeros are put in theirs before.
            by_sign = stable_order(np.where(np.signbit(x), 0, 1), axis, self.is_descending)
            x = np.take_along_axis(x, by_sign, axis)
        return np.take_along_axis(x, stable_order(x, axis, self.is_descending), axis)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        b, axis, (x,) = Build(self), self.sorted_axis, operands
        shape = shape_of(x)
        if 0 in shape or shape[axis] == 1:
            return [b(ReshapeOp, x, shape=shape)]
        n, element = shape[axis], element_type_of(x)
        before, behind, bits = product(shape[:axis]), product(shape[axis + 1 :]), scalar.bits(element)
        taken = isinstance(n, int) and SortColumnsOp.takes(element) and network_is_quicker(before, n, behind, element, bits)
        if taken:
            columns = b(ReshapeOp, x, shape=(before, n, behind))
            return [b(ReshapeOp, b(SortColumnsOp, columns, descending=self.is_descending), shape=shape)]
        keys = _ascending(b, keys_of(b, x, self.is_descending), axis)
        return [elements_of(b, keys, element, self.is_descending)]


@irdl_op_definition
class ArgsortOp(_Order):
    """The places of the elements along `axis` in ascending order, largest first if `descending`, as i64.

    Equal elements keep their order; NaN counts as the largest. With `count`, only the first so many places.
    (C1) `axis` is an axis of `x`; (C2) `count` is not negative and at most the size of the axis. See Note [Sorting integers].
    """

    name = "dl.argsort"
    count = opt_prop_def(DenseArrayBase | DimsAttr)

    @property
    def wanted(self) -> Size:
        """How many places there are."""
        return shape_of(self.x)[self.sorted_axis] if self.count is None else sizes(self.count)[0]

    def infer(self) -> Sequence[Tensor]:
        shape, axis, count = list(shape_of(self.x)), self.sorted_axis, self.wanted
        if known_less(count, 0) or known_less(shape[axis], count):
            raise ShapeError(f"dl.argsort: the first {count} of {shape[axis]} elements (C2)")
        shape[axis] = count
        return [tensor_type(shape, i64)]

    def reference(self, *operands: Array) -> Array:
        (x,), axis = operands, self.sorted_axis
        return stable_order(x, axis, self.is_descending).take(range(int(self.wanted)), axis).astype(np.int64)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        b, axis, (x,) = Build(self), self.sorted_axis, operands
        shape, count = shape_of(x), self.wanted
        first = (*shape[:axis], count, *shape[axis + 1 :])
        if 0 in first or shape[axis] == 1:
            return [b(BroadcastToOp, b.scalar(0, like=tensor_type((), i64)), shape=first)]
        keys = keys_of_numbers(b, x, self.is_descending)
        if scalar.bits(element_type_of(keys)) == 64:
            half = b.scalar(32, like=keys)
            # The lower half is unsigned: its highest bit turned around, it is in order as a signed number.
            sign = b.scalar(1 << 31, like=keys)
            low = b(BitwiseXorOp, b(BitwiseAndOp, keys, b.scalar((1 << 32) - 1, like=keys)), sign)
            by_low = _places(b, b(ShiftRightOp, b(ShiftLeftOp, low, half), half), 32, axis)
            high = b(ShiftRightOp, b(GatherElementsOp, keys, by_low, axis=axis), half)
            places = b(GatherElementsOp, by_low, _places(b, high, 32, axis), axis=axis)
        else:
            places = _places(b, casted(b, keys, i64), scalar.bits(element_type_of(keys)), axis, count)
        ends = dict(starts=(0,) * len(shape), limits=first, strides=(1,) * len(shape))
        return [places if count == shape_of(places)[axis] else b(SliceOp, places, **ends)]


def of_ranks(sort: SortOp, ranks: Sequence[int]) -> SSAValue | None:
    """What stands at these places of the sorted axis, without sorting it; None where sorting is quicker."""
    b, axis, shape, element = Build(sort), sort.sorted_axis, shape_of(sort.x), element_type_of(sort.x)
    before, behind = product(shape[:axis]), product(shape[axis + 1 :])
    bits = IntegerType(8 if is_bool(element) else scalar.bits(element))
    if 0 in shape or not ranks_are_quicker(before, shape[axis], behind, bits, len(ranks)):
        return None
    order = [*(a for a in range(len(shape)) if a != axis), axis]
    keys = b(TransposeOp, keys_of(b, sort.x, sort.is_descending), permutation=order)
    rows = b(OfRanksOp, b(ReshapeOp, keys, shape=(product((before, behind)), shape[axis])), ranks=ranks)
    found = b(ReshapeOp, rows, shape=(*(shape[a] for a in order[:-1]), len(ranks)))
    found = b(TransposeOp, found, permutation=[order.index(a) for a in range(len(shape))])
    return elements_of(b, found, element, sort.is_descending)


def _places(b: Build, keys: SSAValue, bits: int, axis: int, count: Size | None = None) -> SSAValue:
    """The order along an axis of i64 that are signed numbers of so few bits, equal ones in theirs: the first `count` places, or
    all of them."""
    shape = shape_of(keys)
    numbers = b(IotaOp, size=(shape[axis],), to=i64, start=0, step=1)
    numbers = b(ReshapeOp, numbers, shape=tuple(s if a == axis else 1 for a, s in enumerate(shape)))
    keyed = b(BitwiseOrOp, b(ShiftLeftOp, keys, b.scalar(32, like=keys)), numbers)
    if count is not None and count != shape[axis] and selection_is_quicker(shape[axis], count):
        ordered = _smallest(b, keyed, axis, count)
    else:
        ordered = _ascending(b, keyed, axis, (32, 32 + bits))
    return b(BitwiseAndOp, ordered, b.scalar((1 << 32) - 1, like=keys))


def _smallest(b: Build, x: SSAValue, axis: int, count: Size) -> SSAValue:
    """The first of signed integers in order along an axis."""
    shape = shape_of(x)
    if product(shape[axis + 1 :]) != 1:
        order = list(range(len(shape)))
        order[axis], order[-1] = order[-1], order[axis]
        turned = b(TransposeOp, x, permutation=order)
        return b(TransposeOp, _smallest(b, turned, len(shape) - 1, count), permutation=order)
    rows = b(SmallestOp, b(ReshapeOp, x, shape=(product(shape[:axis]), shape[axis])), size=(count,))
    return b(ReshapeOp, rows, shape=(*shape[:axis], count, *shape[axis + 1 :]))


def _ascending(b: Build, x: SSAValue, axis: int, bits: tuple[int, int] | None = None) -> SSAValue:
    """Signed integers in order along an axis; of i64, `bits` are those by which they are not in order yet."""
    shape, element = shape_of(x), element_type_of(x)
    n, before, behind = shape[axis], product(shape[:axis]), product(shape[axis + 1 :])
    low, high = bits or (0, scalar.bits(element))
    if isinstance(n, int) and network_is_quicker(before, n, behind, element, high - low):
        sorted_ = b(SortColumnsOp, b(ReshapeOp, x, shape=(before, n, behind)))
        return b(ReshapeOp, sorted_, shape=shape)
    if behind != 1:
        order = list(range(len(shape)))
        order[axis], order[-1] = order[-1], order[axis]
        return b(TransposeOp, _ascending(b, b(TransposeOp, x, permutation=order), len(shape) - 1, bits), permutation=order)
    rows = b(ReshapeOp, x, shape=(before, n))
    rows = b(SortDigitsOp, rows, ends=digit_ends(low, high, n), signed=True)
    return b(ReshapeOp, rows, shape=shape)

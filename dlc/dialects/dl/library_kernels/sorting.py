"""Sorting and argsort along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.logic import (
    BitwiseAndOp,
    BitwiseOrOp,
    BitwiseXorOp,
    ShiftLeftOp,
    ShiftRightOp,
)
from dlc.dialects.dl.base import (
    Array,
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
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.library_kernels.partition import PartitionOp
from dlc.dialects.dl.library_kernels.row_sorting import (
    MAX_NETWORK_ELEMENTS,
    BitonicSortOp,
    NetworkSortOp,
    RadixSortOp,
    SmallestKOp,
    digit_ends,
    is_bitonic_sort_faster,
    is_network_sort_faster,
    is_partial_sort_faster,
    is_partition_faster,
)
from dlc.dialects.dl.library_kernels.searchsorted import stable_order
from dlc.dialects.dl.library_kernels.sort_keys import from_sort_keys, to_comparison_keys, to_sort_keys
from dlc.dialects.dl.movement.indexing import GatherElementsOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, SliceOp, TransposeOp
from dlc.dialects.dl.reductions.reduction import ReduceMinOp
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
from dlc.shapes.dims import Size, is_known_less, is_static, product


class _SortingOp(Composite):
    """An op that orders elements along `axis`.

    (C1) `axis` is an axis of `x`.
    """

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
class SortOp(_SortingOp):
    """Sorts the elements along `axis`, ascending, or descending if `descending`; NaN counts as the largest, -0 as below 0.

    (C1) `axis` is an axis of `x`. See Note [Sorting integers].
    """

    name = "dl.sort"

    def infer(self) -> Sequence[Tensor]:
        _ = self.sorted_axis
        return [tensor_type(shape_of(self.x), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x,), axis = operands, self.sorted_axis
        if is_float(element_type_of(self.x)):
            # -0 and 0 compare equal and the sort is stable, so that a first sort by sign orders zeros.
            by_sign = stable_order(np.where(np.signbit(x), 0, 1), axis, self.is_descending)
            x = np.take_along_axis(x, by_sign, axis)
        return np.take_along_axis(x, stable_order(x, axis, self.is_descending), axis)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, axis, (x,) = DlBuilder(self), self.sorted_axis, operands
        shape = shape_of(x)
        if 0 in shape or shape[axis] == 1:
            return [build(ReshapeOp, x, shape=shape)]
        element = element_type_of(x)
        by_network = _sort_by_network(build, x, axis, scalar.bits(element), descending=self.is_descending)
        if by_network is not None:
            return [by_network]
        keys = _sort_ascending(build, to_sort_keys(build, x, self.is_descending), axis)
        return [from_sort_keys(build, keys, element, self.is_descending)]


@irdl_op_definition
class ArgsortOp(_SortingOp):
    """The stable argsort along `axis`, ascending, or descending if `descending`, as i64.

    Equal elements keep their order; NaN counts as the largest. With `count`, only the first `count` indices.
    (C1) `axis` is an axis of `x`; (C2) `count` is not negative and at most the size of the axis. See Note [Sorting integers].
    """

    name = "dl.argsort"
    count = opt_prop_def(DenseArrayBase | DimsAttr)

    @property
    def result_size(self) -> Size:
        """The size of the sorted axis of the result."""
        return shape_of(self.x)[self.sorted_axis] if self.count is None else sizes(self.count)[0]

    def infer(self) -> Sequence[Tensor]:
        shape, axis, count = list(shape_of(self.x)), self.sorted_axis, self.result_size
        if is_known_less(count, 0) or is_known_less(shape[axis], count):
            raise ShapeError(f"dl.argsort: count {count} for an axis of {shape[axis]} elements (C2)")
        shape[axis] = count
        return [tensor_type(shape, i64)]

    def reference(self, *operands: Array) -> Array:
        (x,), axis = operands, self.sorted_axis
        return stable_order(x, axis, self.is_descending).take(range(int(self.result_size)), axis).astype(np.int64)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, axis, (x,) = DlBuilder(self), self.sorted_axis, operands
        shape, count = shape_of(x), self.result_size
        result_shape = (*shape[:axis], count, *shape[axis + 1 :])
        if 0 in result_shape or shape[axis] == 1:
            return [build(BroadcastToOp, build.scalar(0, like=tensor_type((), i64)), shape=result_shape)]
        keys = to_comparison_keys(build, x, self.is_descending)
        if scalar.bits(element_type_of(keys)) == 64:
            half_bits = build.scalar(32, like=keys)
            # The lower half is unsigned: with its highest bit flipped, it is ordered as a signed integer.
            sign = build.scalar(1 << 31, like=keys)
            low = build(BitwiseXorOp, build(BitwiseAndOp, keys, build.scalar((1 << 32) - 1, like=keys)), sign)
            by_low = _argsort(build, build(ShiftRightOp, build(ShiftLeftOp, low, half_bits), half_bits), 32, axis)
            high = build(ShiftRightOp, build(GatherElementsOp, keys, by_low, axis=axis), half_bits)
            order = build(GatherElementsOp, by_low, _argsort(build, high, 32, axis), axis=axis)
        else:
            order = _argsort(build, cast_to(build, keys, i64), scalar.bits(element_type_of(keys)), axis, count)
        bounds = dict(starts=(0,) * len(shape), limits=result_shape, strides=(1,) * len(shape))
        return [order if count == shape_of(order)[axis] else build(SliceOp, order, **bounds)]


def select_order_statistics(sort: SortOp, ranks: Sequence[int]) -> SSAValue | None:
    """Return the elements at these positions of the sorted axis without sorting it; None if sorting is faster."""
    build, axis, shape, element = DlBuilder(sort), sort.sorted_axis, shape_of(sort.x), element_type_of(sort.x)
    outer_size, inner_size = product(shape[:axis]), product(shape[axis + 1 :])
    if 0 in shape or not is_partition_faster(shape[axis], inner_size, element, len(ranks)):
        return None
    order = [*(a for a in range(len(shape)) if a != axis), axis]
    keys = to_sort_keys(build, sort.x, sort.is_descending)
    # Vectors of narrower keys are not compressed.
    wide_keys = cast_to(build, keys, IntegerType(max(scalar.bits(element_type_of(keys)), 32)))
    wide_keys = build(TransposeOp, wide_keys, permutation=order)
    rows = build(ReshapeOp, wide_keys, shape=(product((outer_size, inner_size)), shape[axis]))
    selected = build(ReshapeOp, _elements_of_ranks(build, rows, ranks), shape=(*(shape[a] for a in order[:-1]), len(ranks)))
    selected = build(TransposeOp, selected, permutation=[order.index(a) for a in range(len(shape))])
    return from_sort_keys(build, cast_to(build, selected, element_type_of(keys)), element, sort.is_descending)


def _elements_of_ranks(build: DlBuilder, rows: SSAValue, ranks: Sequence[int]) -> SSAValue:
    """Return the elements of integer rows at ascending ranks, as columns.

    A partition at a rank also gives the next one: the smallest of the elements after it.
    """
    num_rows, n = shape_of(rows)
    columns: dict[int, SSAValue] = {}
    for rank in ranks:
        if rank not in columns:
            partitioned = build(PartitionOp, rows, kth=rank)

            def part(start: int, limit: Size, partitioned: SSAValue = partitioned) -> SSAValue:
                return build(SliceOp, partitioned, starts=(0, start), limits=(num_rows, limit), strides=(1, 1))

            columns[rank] = part(rank, rank + 1)
            if rank + 1 in ranks:
                columns[rank + 1] = build(ReduceMinOp, part(rank + 1, n), axes=(1,), keepdims=True)
    return build(ConcatOp, *columns.values(), axis=1)


def _argsort(build: DlBuilder, keys: SSAValue, bits: int, axis: int, count: Size | None = None) -> SSAValue:
    """Return the first `count` indices, by default all, of the stable argsort of i64 keys with values of `bits` ≤ 32 bits."""
    shape = shape_of(keys)
    positions = build(IotaOp, size=(shape[axis],), to=i64, start=0, step=1)
    positions = build(ReshapeOp, positions, shape=tuple(s if a == axis else 1 for a, s in enumerate(shape)))
    keys_with_positions = build(BitwiseOrOp, build(ShiftLeftOp, keys, build.scalar(32, like=keys)), positions)
    if count is not None and count != shape[axis] and is_partial_sort_faster(shape[axis], count):
        smallest = _select_smallest(build, keys_with_positions, axis, count)
    else:
        smallest = _sort_ascending(build, keys_with_positions, axis, (32, 32 + bits))
    return build(BitwiseAndOp, smallest, build.scalar((1 << 32) - 1, like=keys))


def _along_last_axis(build: DlBuilder, x: SSAValue, axis: int, compute: Callable[[SSAValue], SSAValue]) -> SSAValue:
    """Exchange an axis with the last one, for a function and then its result."""
    order = list(range(len(shape_of(x))))
    order[axis], order[-1] = order[-1], order[axis]
    return build(TransposeOp, compute(build(TransposeOp, x, permutation=order)), permutation=order)


def _select_smallest(build: DlBuilder, x: SSAValue, axis: int, count: Size) -> SSAValue:
    """Return the `count` smallest signed integers along an axis, ascending."""
    shape = shape_of(x)
    if product(shape[axis + 1 :]) != 1:
        return _along_last_axis(build, x, axis, lambda rows: _select_smallest(build, rows, len(shape) - 1, count))
    rows = build(SmallestKOp, build(ReshapeOp, x, shape=(product(shape[:axis]), shape[axis])), size=(count,))
    return build(ReshapeOp, rows, shape=(*shape[:axis], count, *shape[axis + 1 :]))


def _sort_by_network(build: DlBuilder, x: SSAValue, axis: int, bits: int, *, descending: bool = False) -> SSAValue | None:
    """Return elements sorted along an axis by a network; None if a radix sort by `bits` bits is faster."""
    shape, element = shape_of(x), element_type_of(x)
    n, outer_size, inner_size = shape[axis], product(shape[:axis]), product(shape[axis + 1 :])
    if inner_size == 1 and is_bitonic_sort_faster(outer_size, n, element, bits):
        result = build(BitonicSortOp, build(ReshapeOp, x, shape=(outer_size, n)), descending=descending)
    elif NetworkSortOp.supports(element) and is_network_sort_faster(outer_size, n, inner_size, element, bits):
        result = build(NetworkSortOp, build(ReshapeOp, x, shape=(outer_size, n, inner_size)), descending=descending)
    else:
        return None
    return build(ReshapeOp, result, shape=shape)


def _sort_ascending(build: DlBuilder, x: SSAValue, axis: int, bits: tuple[int, int] | None = None) -> SSAValue:
    """Return signed integers sorted along an axis; `bits` is the range of bits of i64 values that is unsorted."""
    shape, element = shape_of(x), element_type_of(x)
    n, outer_size, inner_size = shape[axis], product(shape[:axis]), product(shape[axis + 1 :])
    low, high = bits or (0, scalar.bits(element))
    by_network = _sort_by_network(build, x, axis, high - low)
    if by_network is not None:
        return by_network
    if inner_size != 1:
        return _along_last_axis(build, x, axis, lambda rows: _sort_ascending(build, rows, len(shape) - 1, bits))
    rows = build(ReshapeOp, x, shape=(outer_size, n))
    permits_network = not is_static((outer_size, n)) and not is_known_less(MAX_NETWORK_ELEMENTS, n)
    rows = build(RadixSortOp, rows, ends=digit_ends(low, high, n), signed=True, permits_network=permits_network)
    return build(ReshapeOp, rows, shape=shape)

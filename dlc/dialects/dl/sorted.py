"""What is sorted already: merged and searched, by bisection.

A bisection is unrolled: as many steps as halve the longest run to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, number, shape_of, tensor_type
from dlc.dialects.dl.contraction import differ
from dlc.dialects.dl.dtypes import is_bool, is_float
from dlc.dialects.dl.indexing import clamped_places
from dlc.dialects.dl.interfaces import Body, Gathering
from dlc.dialects.dl.movement import known_less
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    IntegerAttr,
    SSAValue,
    TensorType,
    arith,
    i1,
    i64,
    index,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)


def stable_order(x: Array, axis: int, descending: bool) -> Array:
    """The places along an axis in order, by NumPy; equal elements keep theirs, NaN counts as the largest."""
    x = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # Stable from the other end: equal elements keep their order when the places are turned around.
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def _before(body: Body, x: SSAValue, y: SSAValue, element: Attribute, descending: bool) -> SSAValue:
    """Whether `x` comes before `y`; NaN counts as the largest."""
    before = scalar.compare(body, "gt" if descending else "lt", x, y, element)
    if not is_float(element):
        return before
    largest, other = (x, y) if descending else (y, x)
    only = scalar.both(body, body(arith.CmpfOp(largest, largest, "uno")), body(arith.CmpfOp(other, other, "ord")))
    return scalar.either(body, before, only)


def _inside(body: Body, place: SSAValue, size: int) -> SSAValue:
    """An i64 as a place on an axis; the last one where it is outside, as a negative number is."""
    return body(arith.IndexCastOp(body(arith.MinUIOp(place, scalar.constant(body, size - 1, i64))), index))


@irdl_op_definition
class MergeSortedOp(Gathering):
    """Sorted runs merged in pairs: `places` [.., runs, run] name elements of `x` [.., n] in order, the result half as many.

    Run k of the result [.., runs/2, min(2·run, count)] is the start of runs 2k and 2k+1 in one order: ascending, largest
    first if `descending`; of equal elements those of the first run come first; NaN counts as the largest.
    (C1) `places` are i64; (C2) their axes but the last two are those of `x` but the last; (C3) there are as many runs in the
    first half as in the second, and an element. Each element of the result is found by bisection: n elements take n·log(run)
    steps.
    """

    name = "dl.merge_sorted"
    x = operand_def(TensorType)
    places = operand_def(TensorType)
    count = prop_def(IntegerAttr)
    descending = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        x, places = shape_of(self.x), shape_of(self.places)
        if element_type_of(self.places) != i64:
            raise DTypeError(f"dl.merge_sorted: places of {element_type_of(self.places)}; expected i64 (C1)")
        if not x or len(places) != len(x) + 1 or any(differ(n, m) for n, m in zip(x, places[:-2], strict=False)):
            raise ShapeError(f"dl.merge_sorted: places {places} for x {x} (C2)")
        runs, run = places[-2:]
        if differ(runs % 2, 0) or x[-1] == 0:
            raise ShapeError(f"dl.merge_sorted: {runs} runs of {x[-1]} elements (C3)")
        longest, count = run * 2, int(number(self.count))
        return [tensor_type((*places[:-2], runs // 2, longest if known_less(longest, count) else count), i64)]

    def reference(self, *operands: Array) -> Array:
        x, places = operands
        *rows, runs, run = places.shape
        pairs = places.reshape(*rows, runs // 2, 2 * run)
        keys = np.take_along_axis(x[..., None, :], clamped_places(pairs, x.shape[-1]), -1)
        order = stable_order(keys, -1, flag(self.descending))[..., : int(number(self.count))]
        return np.take_along_axis(pairs, order, -1)

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        *rows, pair, place = indices
        size, run = int(shape_of(self.x)[-1]), int(shape_of(self.places)[-1])
        element = element_type_of(self.x)

        def literal(value: int) -> SSAValue:
            return scalar.constant(body, value, i64)

        first_run = scalar.multiply(body, pair, scalar.position(body, 2))
        runs = (first_run, scalar.add(body, first_run, scalar.position(body, 1)))

        def named(second: int, k: SSAValue) -> SSAValue:
            """Entry `k` of the first or second run of the pair, any where there is no such entry."""
            return scalar.extract(body, sources[1], [*rows, runs[second], _inside(body, k, run)])

        def second_is_first(i: SSAValue, k: SSAValue) -> SSAValue:
            """Whether entry `k` of the second run comes before entry `i` of the first."""
            first, second = (
                scalar.extract(body, sources[0], [*rows, _inside(body, named(run, at), size)]) for run, at in ((0, i), (1, k))
            )
            return _before(body, second, first, element, flag(self.descending))

        # Of the first j elements of both, i are of the first run: the least i whose entry comes after entry j-1-i of the
        # second. It is between low and high.
        j = body(arith.IndexCastOp(place, i64))
        low = body(arith.MaxSIOp(scalar.subtract(body, j, literal(run)), literal(0)))
        high = body(arith.MinSIOp(j, literal(run)))
        for _ in range(run.bit_length()):
            middle = body(arith.ShRUIOp(scalar.add(body, low, high), literal(1)))
            opposite = scalar.subtract(body, scalar.subtract(body, j, middle), literal(1))
            after = second_is_first(middle, opposite)
            # Once they have met, low stays: middle is high then.
            after = scalar.either(body, after, scalar.compare(body, "ge", low, high, i64))
            low = scalar.select(body, after, low, scalar.add(body, middle, literal(1)))
            high = scalar.select(body, after, body(arith.MinSIOp(middle, high)), high)
        k = scalar.subtract(body, j, low)
        used_up = scalar.compare_with(body, "ge", low, run, i64)
        only_first = scalar.compare_with(body, "ge", k, run, i64)
        takes_second = scalar.either(body, used_up, second_is_first(low, k))
        takes_first = scalar.either(body, only_first, body(arith.XOrIOp(takes_second, scalar.constant(body, 1, i1))))
        return scalar.select(body, takes_first, named(0, low), named(1, k))


@irdl_op_definition
class SearchsortedOp(Gathering):
    """Where `values` [.., n] belong in the ascending rows of `x` [.., m], as i64: how many elements come before each of them.

    With `right`, how many come before it or are equal. NaN counts as the largest: NumPy's `searchsorted` for every row.
    (C1) `x` and `values` have one element type, not bool; (C2) and equal axes but the last.
    """

    name = "dl.searchsorted"
    x = operand_def(TensorType)
    values = operand_def(TensorType)
    right = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        x, values, element = shape_of(self.x), shape_of(self.values), element_type_of(self.x)
        if element != element_type_of(self.values) or is_bool(element):
            raise DTypeError(
                f"dl.searchsorted: x of {element}, values of {element_type_of(self.values)}; expected one, not bool"
            )
        if not x or len(x) != len(values) or any(differ(n, m) for n, m in zip(x[:-1], values[:-1], strict=True)):
            raise ShapeError(f"dl.searchsorted: values {values} for rows {x} (C2)")
        return [tensor_type(values, i64)]

    def reference(self, *operands: Array) -> Array:
        x, values = (a.astype(np.float32) if a.dtype.kind == "V" else a for a in operands)
        result = np.empty(values.shape, np.int64)
        for row in np.ndindex(*x.shape[:-1]):
            result[row] = np.searchsorted(x[row], values[row], "right" if flag(self.right) else "left")
        return result

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        *rows, _ = indices
        size, element = int(shape_of(self.x)[-1]), element_type_of(self.x)
        value = scalar.extract(body, sources[1], list(indices))
        low, high = scalar.constant(body, 0, i64), scalar.constant(body, size, i64)
        for _ in range(size.bit_length()):
            middle = body(arith.ShRUIOp(scalar.add(body, low, high), scalar.constant(body, 1, i64)))
            found = scalar.extract(body, sources[0], [*rows, _inside(body, middle, size)])
            if flag(self.right):
                stays = _before(body, value, found, element, False)
            else:
                stays = body(arith.XOrIOp(_before(body, found, value, element, False), scalar.constant(body, 1, i1)))
            # Once they have met, low stays: middle is high then.
            stays = scalar.either(body, stays, scalar.compare(body, "ge", low, high, i64))
            low = scalar.select(body, stays, low, scalar.add(body, middle, scalar.constant(body, 1, i64)))
            high = scalar.select(body, stays, body(arith.MinSIOp(middle, high)), high)
        return low

"""What is sorted already: searched by comparing or by bisection."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import casted
from dlc.dialects.dl.arithmetic.logic import LessEqualOp, LessOp
from dlc.dialects.dl.base import Array, DlOp, Tensor, element_type_of, flag, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import differ
from dlc.dialects.dl.dtypes import is_bool, is_float
from dlc.dialects.dl.interfaces import Body, Composite, Gathering
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.procedures.keys import keys_of_numbers
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    SSAValue,
    TensorType,
    arith,
    i1,
    i32,
    i64,
    index,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
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


class Searched(DlOp, ABC):
    """(C1) `x` and `values` have one element type, not bool; (C2) and equal axes but the last."""

    x = operand_def(TensorType)
    values = operand_def(TensorType)
    right = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        x, values, element = shape_of(self.x), shape_of(self.values), element_type_of(self.x)
        if element != element_type_of(self.values) or is_bool(element):
            raise DTypeError(f"{self.name}: x of {element}, values of {element_type_of(self.values)}; expected one, not bool")
        if not x or len(x) != len(values) or any(differ(n, m) for n, m in zip(x[:-1], values[:-1], strict=True)):
            raise ShapeError(f"{self.name}: values {values} for rows {x} (C2)")
        return [tensor_type(values, i64)]

    def reference(self, *operands: Array) -> Array:
        x, values = (a.astype(np.float32) if a.dtype.kind == "V" else a for a in operands)
        result = np.empty(values.shape, np.int64)
        for row in np.ndindex(*x.shape[:-1]):
            result[row] = np.searchsorted(x[row], values[row], "right" if flag(self.right) else "left")
        return result


# What a row is compared with sooner, value by value, than each of its elements goes through a bisection.
_COMPARED_BYTES = 512


@irdl_op_definition
class SearchsortedOp(Searched, Composite):
    """Where `values` [.., n] belong in the ascending rows of `x` [.., m], as i64: how many elements come before each of them.

    With `right`, how many come before it or are equal. NaN counts as the largest: NumPy's `searchsorted` for every row. Of a
    row that is not in order any place may come out. Values are compared with all of a short row; longer ones are bisected.
    (C1) `x` and `values` have one element type, not bool; (C2) and equal axes but the last.
    """

    name = "dl.searchsorted"

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        b, (x, values) = Build(self), operands
        *rows, size = shape_of(x)
        if not isinstance(size, int) or size * scalar.bits(element_type_of(x)) > 8 * _COMPARED_BYTES:
            return [b(BisectOp, x, values, right=flag(self.right))]
        known = keys_of_numbers(b, b(ReshapeOp, x, shape=(*rows, 1, size)))
        sought = keys_of_numbers(b, b(ReshapeOp, values, shape=(*shape_of(values), 1)))
        before = b(LessEqualOp if flag(self.right) else LessOp, known, sought)
        counted = b(ReduceSumOp, casted(b, before, i32), axes=(len(rows) + 1,), keepdims=False)
        return [casted(b, counted, i64)]


@irdl_op_definition
class BisectOp(Searched, Gathering):
    """What `dl.searchsorted` is, by bisection: as many steps, written out, as halve a row to nothing.

    (C1) `x` and `values` have one element type, not bool; (C2) and equal axes but the last.
    """

    name = "dl.bisect"

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        """Shar's bisection (Knuth, 6.2.1 C): steps of powers of two from the start, or from where the last one ends there."""
        *rows, _ = indices
        size, element = int(shape_of(self.x)[-1]), element_type_of(self.x)
        value = scalar.extract(body, sources[1], list(indices))
        if size == 0:
            return scalar.constant(body, 0, i64)

        def comes_before(place: SSAValue) -> SSAValue:
            found = scalar.extract(body, sources[0], [*rows, body(arith.IndexCastOp(place, index))])
            if not flag(self.right):
                return _before(body, found, value, element, False)
            behind = _before(body, value, found, element, False)
            return body(arith.XOrIOp(behind, scalar.constant(body, 1, i1)))

        step = 1 << (size.bit_length() - 1)
        first = comes_before(scalar.constant(body, step - 1, i64))
        low = scalar.select(body, first, scalar.constant(body, size - step + 1, i64), scalar.constant(body, 0, i64))
        while step := step // 2:
            further = scalar.add(body, low, scalar.constant(body, step, i64))
            place = scalar.add(body, low, scalar.constant(body, step - 1, i64))
            low = scalar.select(body, comes_before(place), further, low)
        return low

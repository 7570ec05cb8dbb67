"""Search in sorted rows, by comparison or binary search; and stable argsort for NumPy references."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.elementwise import AddOp, SelectOp, SubOp
from dlc.dialects.dl.arithmetic.logic import EqualOp, GreaterOp, LessEqualOp, LessOp, ShiftRightOp
from dlc.dialects.dl.base import Array, DlOp, Tensor, element_type_of, flag, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_bool, is_float
from dlc.dialects.dl.interfaces import Body, Composite, GatherLike
from dlc.dialects.dl.library_kernels.sort_keys import to_comparison_keys
from dlc.dialects.dl.movement.indexing import GatherElementsOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp
from dlc.dialects.dl.programs.control import WhileOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Block,
    BoolAttr,
    SSAValue,
    TensorType,
    arith,
    i32,
    i64,
    index,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
)
from dlc.shapes.dims import is_known_different


def stable_order(x: Array, axis: int, descending: bool) -> Array:
    """Return the stable argsort along an axis by NumPy; NaN counts as the largest."""
    x = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # A stable argsort of the flipped array, flipped back, keeps the order of equal elements.
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


class SortedSearch(DlOp, ABC):
    """A search of `values` in sorted rows of `x`.

    (C1) `x` and `values` have one element type, not bool; (C2) they have equal axes except the last.
    """

    x = operand_def(TensorType)
    values = operand_def(TensorType)
    right = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        x, values, element = shape_of(self.x), shape_of(self.values), element_type_of(self.x)
        if element != element_type_of(self.values) or is_bool(element):
            types = f"x of {element}, values of {element_type_of(self.values)}"
            raise DTypeError(f"{self.name}: {types}; expected one element type, not bool (C1)")
        if not x or len(x) != len(values) or any(is_known_different(n, m) for n, m in zip(x[:-1], values[:-1], strict=True)):
            raise ShapeError(f"{self.name}: shapes of values {values} and x {x}; expected equal axes except the last (C2)")
        return [tensor_type(values, i64)]

    def reference(self, *operands: Array) -> Array:
        x, values = (a.astype(np.float32) if a.dtype.kind == "V" else a for a in operands)
        result = np.empty(values.shape, np.int64)
        for row in np.ndindex(*x.shape[:-1]):
            result[row] = np.searchsorted(x[row], values[row], "right" if flag(self.right) else "left")
        return result


# Maximum row size for comparing a value with all elements, which is faster than a binary search in short rows.
_MAX_COMPARED_ROW_BYTES = 512


@irdl_op_definition
class SearchsortedOp(SortedSearch, Composite):
    """The insertion positions of `values` [.., n] in the ascending rows of `x` [.., m], as i64: NumPy's `searchsorted` per row.

    The position is the number of elements that come before the value, or with `right` are equal as well. NaN counts as the
    largest. The result for a row that is not sorted is unspecified. Short rows are compared with each value, long ones
    searched; rows of a symbolic size are searched by a loop.
    (C1) `x` and `values` have one element type, not bool; (C2) they have equal axes except the last.
    """

    name = "dl.searchsorted"

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (x, values) = DlBuilder(self), operands
        *rows, size = shape_of(x)
        if not isinstance(size, int):
            return [_search_by_loop(build, x, values, LessEqualOp if flag(self.right) else LessOp)]
        if size * scalar.bits(element_type_of(x)) > 8 * _MAX_COMPARED_ROW_BYTES:
            positions = build(BinarySearchOp, x, values, right=flag(self.right))
            return [_with_positions_of_nan(build, x, values, positions, right=flag(self.right))]
        row_keys = to_comparison_keys(build, build(ReshapeOp, x, shape=(*rows, 1, size)))
        value_keys = to_comparison_keys(build, build(ReshapeOp, values, shape=(*shape_of(values), 1)))
        is_before = build(LessEqualOp if flag(self.right) else LessOp, row_keys, value_keys)
        counts = build(ReduceSumOp, cast_to(build, is_before, i32), axes=(len(rows) + 1,), keepdims=False)
        return [cast_to(build, counts, i64)]


def _with_positions_of_nan(build: DlBuilder, x: SSAValue, values: SSAValue, positions: SSAValue, *, right: bool) -> SSAValue:
    """Set the positions of values that are NaN: after all numbers of the row, or with `right` after the whole row."""
    if not is_float(element_type_of(x)):
        return positions
    *rows, size = shape_of(x)
    assert isinstance(size, int)
    end = build.scalar(size, like=positions)
    if not right:
        infinity = build(BroadcastToOp, build.scalar(math.inf, like=values), shape=(*rows, 1))
        end = build(BinarySearchOp, x, infinity, right=True)
    return build(SelectOp, build(EqualOp, values, values), positions, build(BroadcastToOp, end, shape=shape_of(positions)))


def _search_by_loop(build: DlBuilder, x: SSAValue, values: SSAValue, precedes: type[LessOp | LessEqualOp]) -> SSAValue:
    """Emit a binary search of all values at once by a while loop; each step halves the number of candidate positions.

    The position of every value is between `low` and `low + count`.
    """
    keys, value_keys = (to_comparison_keys(build, v) for v in (x, values))
    count = build.size(shape_of(x)[-1], tensor_type((), i64))
    zero, one = (build.scalar(number, like=count) for number in (0, 1))
    low = build(BroadcastToOp, zero, shape=shape_of(values))
    body = Block(arg_types=[low.type, count.type])
    inner, (inner_low, inner_count) = DlBuilder(body, build.location), body.args
    next_count = inner(ShiftRightOp, inner_count, one)
    end = inner(AddOp, inner_low, inner(SubOp, inner_count, next_count))
    last_keys = inner(GatherElementsOp, keys, inner(SubOp, end, one), axis=len(shape_of(x)) - 1)
    next_low = inner(SelectOp, inner(precedes, last_keys, value_keys), end, inner_low)
    body.add_op(YieldOp([inner(GreaterOp, next_count, zero), next_low, next_count]))
    return build.insert(WhileOp.of(build(GreaterOp, count, zero), [low, count], body)).results[0]


@irdl_op_definition
class BinarySearchOp(SortedSearch, GatherLike):
    """`dl.searchsorted` in rows of a static size by binary search, with unrolled steps; the position of NaN is 0.

    (C1) `x` and `values` have one element type, not bool; (C2) they have equal axes except the last.
    """

    name = "dl.binary_search"

    def reference(self, *operands: Array) -> Array:
        _, values = operands
        return np.where(values == values, super().reference(*operands), 0)

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        *rows, _ = indices
        size, element = int(shape_of(self.x)[-1]), element_type_of(self.x)
        value = scalar.extract(body, sources[1], list(indices))
        predicate = "le" if flag(self.right) else "lt"

        def precedes(position: SSAValue) -> SSAValue:
            x = scalar.extract(body, sources[0], [*rows, body(arith.IndexCastOp(position, index))])
            return scalar.compare(body, predicate, x, value, element)

        return _first(body, size, precedes)


def _first(body: Body, size: int, is_before: Callable[[SSAValue], SSAValue]) -> SSAValue:
    """Emit Shar's binary search (Knuth, 6.2.1 C) for the first position, below `size`, that is not before the sought one.

    Its steps are powers of two.
    """
    if size == 0:
        return scalar.constant(body, 0, i64)
    step = 1 << (size.bit_length() - 1)

    def if_before(position: SSAValue, distance: int) -> SSAValue:
        # A product: processors predict branches, into which LLVM turns selections in loops, and half of them wrongly.
        return scalar.multiply(body, body(arith.ExtUIOp(is_before(position), i64)), scalar.constant(body, distance, i64))

    low = if_before(scalar.constant(body, step - 1, i64), size - step + 1)
    while step := step // 2:
        position = scalar.add(body, low, scalar.constant(body, step - 1, i64))
        low = scalar.add(body, low, if_before(position, step))
    return low

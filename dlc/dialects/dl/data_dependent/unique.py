"""The distinct elements or slices of a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.elementwise import MaximumOp, SubOp
from dlc.dialects.dl.arithmetic.functions import IsnanOp
from dlc.dialects.dl.arithmetic.logic import AndOp, EqualOp, NotEqualOp, NotOp, OrOp
from dlc.dialects.dl.base import Tensor, element_type_of, flag, normalized_axes, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.data_dependent.selection import SelectionOp, true_indices
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.library_kernels.cumulative import CumsumOp
from dlc.dialects.dl.library_kernels.sorting import ArgsortOp
from dlc.dialects.dl.movement.indexing import GatherOp, ScatterRowsOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, SliceOp, TransposeOp
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.reductions.reduction import ReduceAnyOp
from dlc.ir import (
    Block,
    BoolAttr,
    IntegerAttr,
    SSAValue,
    TensorType,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
)
from dlc.runtime.python_ops.registry import OpSetting
from dlc.shapes.dims import Size, product


@irdl_op_definition
class UniqueOp(SelectionOp):
    """The distinct elements of `x`, or with `axis` its distinct slices; four results:

    `y`, the distinct elements; `first`, the index of the first occurrence of each; `inverse`, the index in `y` of each element
    (slice) of `x`; `counts`, the number of occurrences of each. `y` is ascending (slices lexicographically, NaN last), or
    with `keep_order` in the order of first occurrence. Without `axis`, elements count in row-major order and `y` has rank 1.
    (C1) `axis` is an axis of `x`; (C2) indices and counts are i64. NaN are equal to one another, unless `nan_differs`: then
    every element (slice) with a NaN is distinct.
    """

    name = "dl.unique"
    x = operand_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    keep_order = opt_prop_def(BoolAttr)
    nan_differs = opt_prop_def(BoolAttr)
    y = result_def(TensorType)
    first = result_def(TensorType)
    inverse = result_def(TensorType)
    counts = result_def(TensorType)

    @property
    def unique_axis(self) -> int | None:
        return None if self.axis is None else normalized_axes(self.name, [number(self.axis)], rank_of(self.x))[0]

    def infer(self) -> Sequence[Tensor]:
        shape, axis, total = shape_of(self.x), self.unique_axis, 1
        if axis is None:
            for size in shape:
                total = size * total
            y: tuple[Size, ...] = (self.count,)
        else:
            total = shape[axis]
            y = (*shape[:axis], self.count, *shape[axis + 1 :])
        indices = tensor_type((self.count,), i64)
        return [tensor_type(y, element_type_of(self.x)), indices, tensor_type((total,), i64), indices]

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {"axis": self.unique_axis, "keep_order": flag(self.keep_order), "nan_differs": flag(self.nan_differs)}

    @property
    def max_size(self) -> Size:
        axis = self.unique_axis
        return product(shape_of(self.x)) if axis is None else shape_of(self.x)[axis]

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """Sort the slices; each one that differs from its predecessor is the first of a group."""
        build, (x,), size, axis = DlBuilder(self), operands, self.count, self.unique_axis
        shape = shape_of(x)
        n, other_sizes = (product(shape), ()) if axis is None else (shape[axis], (*shape[:axis], *shape[axis + 1 :]))
        permutation = (axis or 0, *(a for a in range(len(shape)) if a != axis))
        slices = x if axis is None else build(TransposeOp, x, permutation=permutation)
        rows = build(ReshapeOp, slices, shape=(n, product(other_sizes)))
        order = _lexicographic_order(build, rows)
        iota = build(IotaOp, size=(n,), to=i64, start=0, step=1)
        previous_index = build(MaximumOp, build(SubOp, iota, build.scalar(1, like=iota)), build.scalar(0, like=iota))
        sorted_rows = build(GatherOp, rows, order, axis=0)
        neighbors = sorted_rows, build(GatherOp, sorted_rows, previous_index, axis=0)
        differs = build(NotEqualOp, *neighbors) if flag(self.nan_differs) else _elements_differ(build, *neighbors)
        differs = build(ReduceAnyOp, differs, axes=(1,))
        is_first = build(OrOp, differs, build(EqualOp, iota, build.scalar(0, like=iota)))
        group_starts = true_indices(build, is_first, size)
        start, end = (build(SliceOp, group_starts, starts=(k,), limits=(size + k,), strides=(1,)) for k in (0, 1))
        first, counts = build(GatherOp, order, start, axis=0), build(SubOp, end, start)
        group = build(CumsumOp, cast_to(build, is_first, i64), axis=0, exclusive=False, reverse=False)
        group = build(SubOp, group, build.scalar(1, like=group))
        inverse = build(ScatterRowsOp, iota, order, group, mode="none")
        if flag(self.keep_order):
            # Reorder the groups by first occurrence; `rank` is the inverse permutation.
            by_first = build(ArgsortOp, first, axis=0)
            rank = build(IotaOp, size=(size,), to=i64, start=0, step=1)
            rank = build(ScatterRowsOp, rank, by_first, rank, mode="none")
            first, counts = (build(GatherOp, v, by_first, axis=0) for v in (first, counts))
            inverse = build(GatherOp, rank, inverse, axis=0)
        y = build(ReshapeOp, build(GatherOp, rows, first, axis=0), shape=(size, *other_sizes))
        if axis is not None:
            y = build(TransposeOp, y, permutation=tuple(permutation.index(a) for a in range(len(shape))))
        return [y, first, inverse, counts]


def _lexicographic_order(build: DlBuilder, rows: SSAValue) -> SSAValue:
    """Return the stable lexicographic order of rows: an argsort by each column, from the last to the first."""
    n, columns = shape_of(rows)
    if columns == 1:
        return build(ArgsortOp, build(ReshapeOp, rows, shape=(n,)), axis=0)
    iota = build(IotaOp, size=(n,), to=i64, start=0, step=1)
    body = Block(arg_types=[iota.type, tensor_type((n,), element_type_of(rows))])
    inner, (order, column) = DlBuilder(body, build.location), body.args
    by_column = inner(ArgsortOp, inner(GatherOp, column, order, axis=0), axis=0)
    body.add_op(YieldOp([inner(GatherOp, order, by_column, axis=0)]))
    column_rows = build(TransposeOp, rows, permutation=(1, 0))
    return build.insert(ScanOp.of([iota, column_rows], body, 1, columns, reverse=True)).results[0]


def _elements_differ(build: DlBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """Emit an elementwise comparison for inequality in which NaNs are equal."""
    differ = build(NotEqualOp, x, y)
    if not is_float(element_type_of(x)):
        return differ
    return build(AndOp, differ, build(NotOp, build(AndOp, build(IsnanOp, x), build(IsnanOp, y))))

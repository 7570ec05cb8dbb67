"""Scatter of elements and slices at data-dependent indices.

The ops decompose to parallel ops where that is possible, so that each element of the result is computed independently.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import cast_to, widen_floats
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, MinimumOp, MulOp, SelectOp
from dlc.dialects.dl.arithmetic.logic import EqualOp, GreaterEqualOp, LessOp, OrOp
from dlc.dialects.dl.base import Array, Tensor, compatible, element_type_of, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_bool, is_integer
from dlc.dialects.dl.interfaces import Composite, is_unsigned
from dlc.dialects.dl.movement.index_checks import IndexedOp, SingleAxisIndexedOp, fail_if_out_of_bounds
from dlc.dialects.dl.movement.indexing import SCATTER_MODES, GatherElementsOp, ScatterRowsOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, SliceOp
from dlc.dialects.dl.reductions.composite import in_wide_type
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceMinOp, ReduceProdOp, ReduceSumOp
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    BoolAttr,
    DenseArrayBase,
    SSAValue,
    StringAttr,
    TensorType,
    i1,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, is_known_less, is_static, product

# Maximum number of updates that every element is compared with.
_MAX_COMPARED_UPDATES = 64

_REDUCE = {"add": ReduceSumOp, "mul": ReduceProdOp, "max": ReduceMaxOp, "min": ReduceMinOp}
_COMBINE = {"add": AddOp, "mul": MulOp, "max": MaximumOp, "min": MinimumOp}
_UFUNC = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


class ScatterOp(IndexedOp, Composite):
    """`x` with `updates` written at data-dependent indices.

    `mode` selects the combination: with `none` an update replaces the element, and the last of several updates counts; `add`,
    `mul`, `max` and `min` combine all of them with the element. If the op is `checked`, an index out of bounds is an error.
    """

    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    result = result_def(TensorType)

    @property
    def combination(self) -> str:
        mode = self.properties["mode"]
        assert isinstance(mode, StringAttr)
        return mode.data

    @abstractmethod
    def target_indices(self, indices: Array) -> tuple[tuple[Array, ...], Array]:
        """Return the NumPy index of each update, without negative entries, and a mask of the updates in bounds."""

    def checked_builder(self) -> DlBuilder:
        """Return a builder for the decomposition, after inserting the bounds checks of a checked op."""
        build = DlBuilder(self)
        for k in range(len(self.indexed_axes) if self.is_checked else 0):
            fail_if_out_of_bounds(build, self, self.indices, k)
        return build

    def infer(self) -> Sequence[Tensor]:
        element = element_type_of(self.x)
        if element_type_of(self.updates) != element or not is_integer(element_type_of(self.indices)):
            raise DTypeError(
                f"{self.name}: x of {element}, updates of {element_type_of(self.updates)} and indices of "
                f"{element_type_of(self.indices)}; expected one element type, and integers as indices"
            )
        if self.combination not in SCATTER_MODES or (is_bool(element) and self.combination != "none"):
            raise DTypeError(
                f"{self.name}: mode {self.combination!r} on {element}; expected one of {', '.join(SCATTER_MODES)}, on numbers"
            )
        return [tensor_type(shape_of(self.x), element)]

    def reference(self, *operands: Array) -> Array:
        def compute(x: Array, indices: Array, updates: Array) -> Array:
            result = x.copy()
            # A leading axis, so that there is an index even if no axis is indexed.
            batched_result, (index, in_bounds) = result[None], self.target_indices(indices)
            index = (np.zeros_like(in_bounds, np.int64), *index)
            index = tuple(np.broadcast_to(i, in_bounds.shape)[in_bounds] for i in index)
            if self.combination == "none":
                batched_result[index] = updates[in_bounds]
            else:
                _UFUNC[self.combination].at(batched_result, index, updates[in_bounds])
            return result

        return in_wide_type(self, compute, operands)


def _as_i64(indices: Array) -> Array:
    """Return indices as i64; values that do not fit in i64 become indices that are out of bounds on every axis."""
    if indices.dtype.kind == "u":
        indices = np.minimum(indices.astype(np.uint64), np.uint64(np.iinfo(np.int64).max))
    return indices.astype(np.int64)


def _wrap_negative_indices(build: DlBuilder, indices: SSAValue, size: Size) -> SSAValue:
    """Return indices as i64, negative ones counted from the end."""
    wide = cast_to(build, indices, i64)
    if is_unsigned(element_type_of(indices)):
        return wide
    is_negative = build(LessOp, wide, build.scalar(0, like=wide))
    return build(SelectOp, is_negative, build(AddOp, wide, build.size(size, like=wide)), wide)


def _scatter_sequentially(
    build: DlBuilder, x: SSAValue, indices: SSAValue, updates: SSAValue, axis: int, mode: str
) -> SSAValue:
    """Write each update to index `indices[…]` along `axis`, if in bounds, by a `dl.scatter_rows` with one element per row."""
    shape, sizes = shape_of(x), shape_of(indices)
    is_negative = build(LessOp, indices, build.scalar(0, like=indices))
    is_out_of_bounds = build(OrOp, is_negative, build(GreaterEqualOp, indices, build.size(shape[axis], like=indices)))
    flat_indices = build(MulOp, indices, build.size(product(shape[axis + 1 :]), like=indices))
    for a, size in enumerate(sizes):
        if a != axis:
            offsets = _strided_iota(build, size, product(shape[a + 1 :]))
            flat_indices = build(
                AddOp, flat_indices, build(ReshapeOp, offsets, shape=tuple(size if d == a else 1 for d in range(len(sizes))))
            )
    flat_indices = build(SelectOp, is_out_of_bounds, build.size(product(shape), like=flat_indices), flat_indices)
    flat = (build(ReshapeOp, v, shape=(product(shape_of(v)),)) for v in (x, flat_indices, updates))
    return build(ReshapeOp, build(ScatterRowsOp, *flat, mode=mode), shape=shape)


def _strided_iota(build: DlBuilder, size: Size, step: Size) -> SSAValue:
    """Return 0, step, 2·step, … as i64."""
    if isinstance(step, int):
        return build(IotaOp, size=(size,), to=i64, start=0, step=step)
    iota = build(IotaOp, size=(size,), to=i64, start=0, step=1)
    return build(MulOp, iota, build.size(step, like=iota))


def _identity(build: DlBuilder, x: SSAValue, mode: str) -> SSAValue:
    """Return the identity element of the combination, as a scalar of the element type of `x`."""
    low, high = scalar.limits(element_type_of(x))
    return build.scalar({"add": 0, "mul": 1, "max": low, "min": high}[mode], like=x)


def _scatter_by_comparison(
    build: DlBuilder, x: SSAValue, indices: SSAValue, updates: SSAValue, axis: int, mode: str
) -> SSAValue:
    """Scatter by comparison (see its Note); the sizes of indices and updates are those of `x` except along `axis`."""
    shape, count = [int(s) for s in shape_of(x)], int(shape_of(updates)[axis])

    def iota_along(size: int, position: int) -> SSAValue:
        """Return 0, 1, … along one axis of a tensor that has one axis more than `x`."""
        positions = build(IotaOp, size=(size,), to=i64, start=0, step=1)
        return build(ReshapeOp, positions, shape=tuple(size if a == position else 1 for a in range(len(shape) + 1)))

    def insert_element_axis(value: SSAValue) -> SSAValue:
        """Insert an axis for the elements of `x` before that of the updates."""
        sizes = shape_of(value)
        return build(ReshapeOp, value, shape=(*sizes[:axis], 1, *sizes[axis:]))

    is_target = build(EqualOp, iota_along(shape[axis], axis), insert_element_axis(indices))
    if mode == "none":
        order = iota_along(count, axis + 1)
        last = build(ReduceMaxOp, build(SelectOp, is_target, order, build.scalar(-1, like=order)), axes=(axis + 1,))
        last_updates = build(GatherElementsOp, updates, build(BroadcastToOp, last, shape=shape), axis=axis)
        return build(SelectOp, build(GreaterEqualOp, last, build.scalar(0, like=last)), last_updates, x)
    selected = build(SelectOp, is_target, insert_element_axis(updates), _identity(build, x, mode))
    return build(_COMBINE[mode], x, build(_REDUCE[mode], selected, axes=(axis + 1,)))


# Note [Scatter by comparison]
#
# Each element of the result searches the updates for its own index: n elements and m updates take n·m comparisons. In return
# there are no write conflicts, the result does not depend on an order, and it is an ordinary reduction: parallel, fused,
# without atomics. The comparison is part of the reduction's body and never a tensor. More than `_MAX_COMPARED_UPDATES` updates
# are written sequentially by `dl.scatter_rows`.


@irdl_op_definition
class ScatterElementsOp(SingleAxisIndexedOp, ScatterOp):
    """`x` with `result[i, indices[i, j, k], k] = updates[i, j, k]` for `axis` = 1; `mode` combines.

    `mode` is `none` (the last update of an element counts), `add`, `mul`, `max` or `min`. Negative indices count from the
    end, others out of bounds change nothing.
    (C1) x and updates have the same element type, indices are integers; (C2) indices and updates have the same shape, of the
    rank of x, and at most its sizes except along `axis`.
    """

    name = "dl.scatter_elements"
    mode = prop_def(StringAttr)
    checked = opt_prop_def(BoolAttr)
    reported_axes = opt_prop_def(DenseArrayBase)

    def infer(self) -> Sequence[Tensor]:
        x, indices, updates, axis = shape_of(self.x), shape_of(self.indices), shape_of(self.updates), self.indexed_axis
        exceeds = len(x) == len(indices) and any(is_known_less(x[a], indices[a]) for a in range(len(x)) if a != axis)
        if len(x) != len(indices) or not compatible(indices, updates) or exceeds:
            raise ShapeError(
                f"dl.scatter_elements: indices {indices} and updates {updates} must have one shape within x {x}, axis {axis}"
            )
        return super().infer()

    def target_indices(self, indices: Array) -> tuple[tuple[Array, ...], Array]:
        coordinates: list[Array] = list(np.indices(indices.shape, sparse=True))
        size = int(shape_of(self.x)[self.indexed_axis])
        index = _as_i64(indices)
        coordinates[self.indexed_axis] = index = np.where(index < 0, index + size, index)
        return tuple(coordinates), (index >= 0) & (index < size)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, axis = self.checked_builder(), self.indexed_axis
        shape, index_shape = shape_of(operands[0]), shape_of(operands[1])
        x, updates = (widen_floats(build, v) for v in (operands[0], operands[2]))
        indices = _wrap_negative_indices(build, operands[1], shape[axis])
        if 0 in (*shape, *index_shape):
            result = x
        elif not is_static((*shape, *index_shape)) or int(index_shape[axis]) > _MAX_COMPARED_UPDATES:
            result = _scatter_sequentially(build, x, indices, updates, axis, self.combination)
        else:
            # Elements of x beyond the updates get the index -1, which matches none.
            padding = [0 if a == axis else int(n - m) for a, (n, m) in enumerate(zip(shape, index_shape, strict=True))]
            indices = build(PadOp, indices, build.scalar(-1, like=indices), low=(0,) * len(shape), high=padding)
            updates = build(PadOp, updates, build.scalar(0, like=updates), low=(0,) * len(shape), high=padding)
            result = _scatter_by_comparison(build, x, indices, updates, axis, self.combination)
        return [cast_to(build, result, element_type_of(operands[0]))]


@irdl_op_definition
class ScatterNdOp(ScatterOp):
    """`x` with `result[indices[i…, 0], indices[i…, 1], …, s…] = updates[i…, s…]`; `mode` combines.

    The last axis of `indices` holds an index vector: one entry per indexed axis, the first axes of `x`. Modes and indices out
    of bounds are as in `dl.scatter_elements`.
    (C1) x and updates have the same element type, indices are integers; (C2) the last size of indices is static and at most the
    rank of x; (C3) updates have the shape of indices without the last axis, then that of x without the indexed axes.
    """

    name = "dl.scatter_nd"
    mode = prop_def(StringAttr)
    checked = opt_prop_def(BoolAttr)
    reported_axes = opt_prop_def(DenseArrayBase)

    @property
    def indexed_axes(self) -> Sequence[int]:
        return range(self.num_indexed_axes)

    @property
    def has_index_vectors(self) -> bool:
        return True

    @property
    def num_indexed_axes(self) -> int:
        """The number of entries of an index vector."""
        depth = shape_of(self.indices)[-1] if rank_of(self.indices) else None
        if not isinstance(depth, int) or depth > rank_of(self.x):
            raise ShapeError(
                f"dl.scatter_nd: indices {shape_of(self.indices)}; expected a static last size of at most the rank of x (C2)"
            )
        return depth

    def infer(self) -> Sequence[Tensor]:
        x, indices, updates = shape_of(self.x), shape_of(self.indices), shape_of(self.updates)
        expected = (*indices[:-1], *x[self.num_indexed_axes :])
        if not compatible(updates, expected):
            raise ShapeError(f"dl.scatter_nd: updates {updates} for x {x} and indices {indices}; expected {expected}")
        return super().infer()

    def target_indices(self, indices: Array) -> tuple[tuple[Array, ...], Array]:
        sizes = np.array([int(s) for s in shape_of(self.x)[: self.num_indexed_axes]], np.int64)
        index = _as_i64(indices)
        index = np.where(index < 0, index + sizes, index)
        in_bounds = np.all((index >= 0) & (index < sizes), -1)
        return tuple(index[..., d] for d in range(self.num_indexed_axes)), np.asarray(in_bounds)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, depth = self.checked_builder(), self.num_indexed_axes
        shape, index_shape = shape_of(operands[0]), shape_of(operands[1])
        x, updates = (widen_floats(build, v) for v in (operands[0], operands[2]))
        count, num_rows, row_size = product(index_shape[:-1]), product(shape[:depth]), product(shape[depth:])
        result = build(
            ScatterRowsOp,
            build(ReshapeOp, x, shape=(num_rows, row_size)),
            self.row_indices(build, operands[1], shape, count),
            build(ReshapeOp, updates, shape=(count, row_size)),
            mode=self.combination,
        )
        return [cast_to(build, build(ReshapeOp, result, shape=shape), element_type_of(operands[0]))]

    def row_indices(self, build: DlBuilder, indices: SSAValue, shape: Sequence[Size], count: Size) -> SSAValue:
        """Return the index vectors as row-major indices of the indexed axes; the number of rows if out of bounds."""
        flat = build(ReshapeOp, indices, shape=(count, self.num_indexed_axes))
        total = build(BroadcastToOp, build.scalar(0, like=tensor_type((), i64)), shape=(count,))
        is_out_of_bounds = build.scalar(0, like=tensor_type((), i1))
        for d, size in enumerate(shape[: self.num_indexed_axes]):
            column = build(SliceOp, flat, starts=(0, d), limits=(count, d + 1), strides=(1, 1))
            index = _wrap_negative_indices(build, build(ReshapeOp, column, shape=(count,)), size)
            is_too_large = build(GreaterEqualOp, index, build.size(size, like=index))
            is_out_of_bounds = build(
                OrOp, is_out_of_bounds, build(OrOp, build(LessOp, index, build.scalar(0, like=index)), is_too_large)
            )
            total = build(AddOp, build(MulOp, total, build.size(size, like=total)), index)
        return build(SelectOp, is_out_of_bounds, build.size(product(shape[: self.num_indexed_axes]), like=total), total)

"""Gather and scatter: reads and writes at data-dependent indices.

Indices are integers of any type. Negative ones count from the end. Indices out of bounds are clamped for reads and ignored for
writes, so that no index from data reaches outside a buffer. For a `checked` op an index out of bounds is an error; the pass
check-indices inserts one check of all its indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, DlOp, Tensor, compatible, element_type_of, flag, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_bool, is_integer
from dlc.dialects.dl.interfaces import Body, GatherLike, ScatterLike, is_unsigned
from dlc.dialects.dl.movement.index_checks import IndexedOp, SingleAxisIndexedOp
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    BoolAttr,
    DenseArrayBase,
    IntegerAttr,
    SSAValue,
    StringAttr,
    TensorType,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, is_known_different, is_known_less, product


def require_valid_indices(op: DlOp, x: SSAValue, indices: SSAValue, axis: int) -> None:
    """Raise DTypeError unless `indices` are integers, ShapeError if they read from an axis without elements.

    A checked op may read from one: it fails when it is executed, which it never is in a loop without iterations.
    """
    if not is_integer(element_type_of(indices)):
        raise DTypeError(f"{op.name}: indices have element type {element_type_of(indices)}, expected integers")
    # Negative if the axis has no elements, but there are indices. Dynamic shapes have elements: this becomes a guard.
    is_empty = is_known_less(product(shape_of(indices)) * (shape_of(x)[axis] - 1), 0)
    if is_empty and not (isinstance(op, IndexedOp) and op.is_checked):
        raise ShapeError(f"{op.name}: axis {axis} of {shape_of(x)} has no elements to read")


class IndexedRead(IndexedOp, GatherLike):
    """A gather-like op that reads at the indices in its second operand; with `in_bounds`, invalid ones may read any element."""

    in_bounds = opt_prop_def(BoolAttr)

    def read_clamped_index(self, body: Body, indices: SSAValue, position: Sequence[SSAValue], size: Size) -> SSAValue:
        """Emit `indices[position]` as an index on an axis of `size`."""
        integer = scalar.extract(body, indices, list(position))
        return scalar.wrap_and_clamp_index(
            body, integer, size, element_type_of(self.operands[1]), in_bounds=flag(self.in_bounds)
        )


def wrap_and_clamp_indices(indices: Array, size: int) -> Array:
    """Return indices on an axis of `size`: negative ones counted from the end, then clamped."""
    if indices.dtype.kind == "u":
        return np.minimum(indices.astype(np.uint64), max(size - 1, 0)).astype(np.int64)
    wide = indices.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + size, wide), 0, max(size - 1, 0))


@irdl_op_definition
class GatherOp(SingleAxisIndexedOp, IndexedRead):
    """The slices of `x` along `axis` at `indices`: NumPy's `take(x, indices, axis)`.

    The result's axes are those of `x` before `axis`, those of `indices`, those of `x` after. If the op is `checked`, an index
    out of bounds is an error. (C1) `axis` is an axis of `x`; (C2) `indices` are integers; (C3) the axis has an element, or
    `indices` has none, or the op is `checked`.
    """

    name = "dl.gather"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    checked = opt_prop_def(BoolAttr)
    reported_axes = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        axis, shape = self.indexed_axis, shape_of(self.x)
        require_valid_indices(self, self.x, self.indices, axis)
        return [tensor_type((*shape[:axis], *shape_of(self.indices), *shape[axis + 1 :]), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x, indices), axis = operands, self.indexed_axis
        if x.shape[axis] == 0:
            return np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
        return np.take(x, wrap_and_clamp_indices(indices, x.shape[axis]), axis)

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        axis = self.indexed_axis
        size, end = shape_of(self.x)[axis], axis + rank_of(self.indices)
        clamped_index = self.read_clamped_index(body, sources[1], indices[axis:end], size)
        return scalar.extract(body, sources[0], [*indices[:axis], clamped_index, *indices[end:]])


@irdl_op_definition
class GatherNdOp(IndexedRead):
    """The slices of `x` at the index vectors along the last axis of `indices`.

    `result[b…, i…, s…] = x[b…, indices[b…, i…, 0], indices[b…, i…, 1], …, s…]`, with `batch_dims` (0 if absent) batch axes.
    If the op is `checked`, an index out of bounds is an error.
    (C1) `indices` are integers of rank above `batch_dims`; (C2) its last size is static and at most the number of axes of `x`
    after the batch axes; (C3) batch axes have equal sizes; (C4) indexed axes have elements, or `indices` has none, or the
    op is `checked`.
    """

    name = "dl.gather_nd"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    batch_dims = opt_prop_def(IntegerAttr)
    checked = opt_prop_def(BoolAttr)
    reported_axes = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)

    @property
    def indexed_axes(self) -> Sequence[int]:
        return range(self.batch, self.batch + self.num_indexed_axes)

    @property
    def has_index_vectors(self) -> bool:
        return True

    @property
    def batch(self) -> int:
        return number(self.batch_dims) if self.batch_dims is not None else 0

    @property
    def num_indexed_axes(self) -> int:
        """The number of entries of an index vector."""
        depth = shape_of(self.indices)[-1]
        if not isinstance(depth, int):
            raise ShapeError(f"dl.gather_nd: the last size of indices {shape_of(self.indices)} must be static (C2)")
        return depth

    def infer(self) -> Sequence[Tensor]:
        shape, index_shape, batch = shape_of(self.x), shape_of(self.indices), self.batch
        if not 0 <= batch < len(index_shape):
            raise ShapeError(f"dl.gather_nd: batch_dims {batch} for indices {index_shape}; expected less than their rank (C1)")
        if batch + self.num_indexed_axes > len(shape):
            raise ShapeError(
                f"dl.gather_nd: index vectors of {self.num_indexed_axes} entries after {batch} batch axes of {shape} (C2)"
            )
        if any(map(is_known_different, shape[:batch], index_shape[:batch])):
            raise ShapeError(f"dl.gather_nd: x {shape} and indices {index_shape} differ in their {batch} batch axes (C3)")
        if not is_integer(element_type_of(self.indices)):
            raise DTypeError(f"dl.gather_nd: indices have element type {element_type_of(self.indices)}, expected integers")
        for axis in range(batch, batch + self.num_indexed_axes):
            require_valid_indices(self, self.x, self.indices, axis)
        return [tensor_type((*index_shape[:-1], *shape[batch + self.num_indexed_axes :]), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x, indices), batch, depth = operands, self.batch, self.num_indexed_axes
        outer, inner = math.prod(indices.shape[:batch]), math.prod(indices.shape[batch:-1])
        if outer * inner == 0:
            return np.zeros((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)
        flat, vectors = x.reshape(outer, *x.shape[batch:]), indices.reshape(outer, inner, depth)
        batch_indices = np.broadcast_to(np.arange(outer)[:, None], (outer, inner))
        gathered = flat[(batch_indices, *(wrap_and_clamp_indices(vectors[..., k], flat.shape[1 + k]) for k in range(depth)))]
        return gathered.reshape((*indices.shape[:-1], *x.shape[batch + depth :]))

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        batch, outer = self.batch, rank_of(self.indices) - 1
        sizes = shape_of(self.x)[batch : batch + self.num_indexed_axes]
        source_indices: list[SSAValue] = []
        for k in range(self.num_indexed_axes):
            vector_indices = [*indices[:outer], scalar.as_index(body, k)]
            source_indices.append(self.read_clamped_index(body, sources[1], vector_indices, sizes[k]))
        return scalar.extract(body, sources[0], [*indices[:batch], *source_indices, *indices[outer:]])


@irdl_op_definition
class GatherElementsOp(SingleAxisIndexedOp, IndexedRead):
    """`result[i, j, k] = x[i, indices[i, j, k], k]` for `axis` = 1: NumPy's `take_along_axis`.

    If the op is `checked`, an index out of bounds is an error.
    (C1) `indices` are integers of the rank of `x`; (C2) `axis` is an axis of `x`; (C3) the other sizes of `indices` are at
    most those of `x`; (C4) the axis has an element, or `indices` has none, or the op is `checked`.
    """

    name = "dl.gather_elements"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    checked = opt_prop_def(BoolAttr)
    reported_axes = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        axis, shape, index_shape = self.indexed_axis, shape_of(self.x), shape_of(self.indices)
        require_valid_indices(self, self.x, self.indices, axis)
        if len(shape) != len(index_shape):
            raise ShapeError(f"dl.gather_elements: indices {index_shape} and x {shape} differ in rank (C1)")
        if any(a != axis and is_known_less(n, m) for a, (n, m) in enumerate(zip(shape, index_shape, strict=True))):
            raise ShapeError(f"dl.gather_elements: indices {index_shape} exceed x {shape} other than along axis {axis} (C3)")
        return [tensor_type(index_shape, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x, indices), axis = operands, self.indexed_axis
        coordinates: list[Array] = list(np.indices(indices.shape, sparse=True))
        coordinates[axis] = wrap_and_clamp_indices(indices, x.shape[axis])
        return x[tuple(coordinates)]

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        axis, source_indices = self.indexed_axis, list(indices)
        source_indices[axis] = self.read_clamped_index(body, sources[1], indices, shape_of(self.x)[axis])
        return scalar.extract(body, sources[0], source_indices)


SCATTER_MODES = ("none", "add", "mul", "max", "min")
_UFUNC = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@irdl_op_definition
class ScatterRowsOp(IndexedOp, ScatterLike):
    """`x` with rows updated sequentially: for each `i`, `result[indices[i…]] = result[indices[i…]] ∘ updates[i…]`.

    `mode` selects ∘: `none` takes the update, `add`, `mul`, `max` and `min` combine, in the element type. Negative indices
    count from the end. An index out of bounds is ignored, or with `clamped` refers to the nearest row, as in `dl.gather`, whose
    transpose is the mode `add`. If the op is `checked`, an index out of bounds is an error; with
    `in_bounds` set, other indices may change any row.
    (C1) x and updates have the same element type, not bool unless `mode` is `none`, indices are integers; (C2) updates have the
    shape of indices, then that of x without its first axis; (C3) `clamped` requires a row, or no indices.
    """

    name = "dl.scatter_rows"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    mode = prop_def(StringAttr)
    clamped = opt_prop_def(BoolAttr)
    in_bounds = opt_prop_def(BoolAttr)
    checked = opt_prop_def(BoolAttr)
    reported_axes = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)

    @property
    def indexed_axes(self) -> Sequence[int]:
        return (0,)

    def infer(self) -> Sequence[Tensor]:
        x, indices, updates = (shape_of(v) for v in self.operands)
        element, mode = element_type_of(self.x), self.mode.data
        if element_type_of(self.updates) != element or mode not in SCATTER_MODES or (is_bool(element) and mode != "none"):
            raise DTypeError(f"dl.scatter_rows: mode {mode!r}, x of {element}, updates of {element_type_of(self.updates)} (C1)")
        expected = (*indices, *x[1:])
        if not x or not compatible(updates, expected):
            raise ShapeError(f"dl.scatter_rows: updates {updates} for x {x} and indices {indices}, expected {expected} (C2)")
        if flag(self.clamped):
            require_valid_indices(self, self.x, self.indices, 0)
        elif not is_integer(element_type_of(self.indices)):
            raise DTypeError(f"dl.scatter_rows: indices of {element_type_of(self.indices)}, expected integers (C1)")
        return [tensor_type(x, element)]

    def reference(self, *operands: Array) -> Array:
        (x, indices, updates), rows = operands, operands[0].shape[0]
        result, flat, update_rows = x.copy(), indices.reshape(-1), updates.reshape(indices.size, *x.shape[1:])
        row_indices = wrap_and_clamp_indices(flat, rows)
        if not flag(self.clamped):
            in_bounds = flat < rows if flat.dtype.kind == "u" else (flat >= -rows) & (flat < rows)
            row_indices, update_rows = row_indices[in_bounds], update_rows[in_bounds]
        with np.errstate(all="ignore"):
            if self.mode.data == "none":
                for row, update in zip(row_indices, update_rows, strict=True):
                    result[row] = update
            else:
                _UFUNC[self.mode.data].at(result, row_indices, update_rows)
        return result

    def row(self, body: Body, index: SSAValue) -> tuple[SSAValue, SSAValue | None]:
        (size, *_), element = shape_of(self.x), element_type_of(self.indices)
        clamped_index = scalar.wrap_and_clamp_index(body, index, size, element, in_bounds=flag(self.in_bounds))
        if flag(self.clamped) or flag(self.in_bounds):
            return clamped_index, None
        wide = scalar.convert(body, index, element, i64)
        if is_unsigned(element):
            return clamped_index, scalar.compare(body, "lt", wide, scalar.as_i64(body, size), element)
        is_not_below = scalar.compare(body, "ge", wide, scalar.as_i64(body, -size), i64)
        return clamped_index, scalar.bit_and(
            body, is_not_below, scalar.compare(body, "lt", wide, scalar.as_i64(body, size), i64)
        )

    def combine(self, body: Body, element: SSAValue, update: SSAValue) -> SSAValue:
        match self.mode.data:
            case "add":
                return scalar.add(body, element, update)
            case "mul":
                return scalar.multiply(body, element, update)
            case "max":
                return scalar.maximum(body, element, update, element_type_of(self.x))
            case "min":
                return scalar.minimum(body, element, update, element_type_of(self.x))
            case _:
                return update

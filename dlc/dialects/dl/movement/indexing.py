"""Indexing: elements at places that come from data.

Places are integers of any type. Negative ones count from the end; what is still outside is moved to the nearest place where
it is read, and written nowhere, so that no index read from data reaches outside a buffer. A `checked` op says that an index
outside is an error, which one check of all of its indices finds (the pass check-indices).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import (
    Array,
    DlOp,
    Tensor,
    element_type_of,
    flag,
    number,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.contractions.contraction import compatible
from dlc.dialects.dl.dtypes import is_bool, is_integer
from dlc.dialects.dl.interfaces import Body, Gathering, Scattering, is_unsigned
from dlc.dialects.dl.movement.indexed import AlongAxis, Indexed
from dlc.dialects.dl.movement.shaping import known_less
from dlc.dims import Size
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


def check_places(op: DlOp, x: SSAValue, indices: SSAValue, axis: int) -> None:
    """Raises DTypeError unless `indices` are integers, ShapeError if they read from an axis without elements."""
    if not is_integer(element_type_of(indices)):
        raise DTypeError(f"{op.name}: indices have element type {element_type_of(indices)}, expected integers")
    if shape_of(x)[axis] == 0 and 0 not in shape_of(indices):
        raise ShapeError(f"{op.name}: axis {axis} of {shape_of(x)} has no elements to take")


class Taking(Indexed, Gathering):
    """A gathering at places that its second operand has. If they are known to be `inside`, it may read anything for others."""

    inside = opt_prop_def(BoolAttr)

    def place(self, body: Body, indices: SSAValue, at: Sequence[SSAValue], size: Size) -> SSAValue:
        """The place on an axis of `size` that one of the integers has."""
        integer = scalar.extract(body, indices, list(at))
        return scalar.clamped_position(body, integer, size, element_type_of(self.operands[1]), inside=flag(self.inside))


def clamped_places(indices: Array, size: int) -> Array:
    """Integers as places on an axis of `size`: negative ones from the end, then moved inside."""
    if indices.dtype.kind == "u":
        return np.minimum(indices.astype(np.uint64), max(size - 1, 0)).astype(np.int64)
    wide = indices.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + size, wide), 0, max(size - 1, 0))


@irdl_op_definition
class GatherOp(AlongAxis, Taking):
    """The slices of `x` along `axis` that `indices` name: NumPy's `take(x, indices, axis)`.

    The result's axes are those of `x` before `axis`, those of `indices`, those of `x` after.
    If it is `checked`, an index outside is an error. (C1) `axis` is an axis of `x`; (C2) `indices` are integers; (C3) the axis
    has an element, or `indices` none.
    """

    name = "dl.gather"
    TAKES_NARROW: ClassVar[bool] = True
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    checked = opt_prop_def(BoolAttr)
    said_axes = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        axis, shape = self.indexed_axis, shape_of(self.x)
        check_places(self, self.x, self.indices, axis)
        return [tensor_type((*shape[:axis], *shape_of(self.indices), *shape[axis + 1 :]), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x, indices), axis = operands, self.indexed_axis
        if x.shape[axis] == 0:
            return np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
        return np.take(x, clamped_places(indices, x.shape[axis]), axis)

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        axis, places = self.indexed_axis, list(indices)
        size, end = shape_of(self.x)[axis], axis + rank_of(self.indices)
        place = self.place(body, sources[1], places[axis:end], size)
        return scalar.extract(body, sources[0], [*places[:axis], place, *places[end:]])


@irdl_op_definition
class GatherNdOp(Taking):
    """The slices of `x` at the places that the last axis of `indices` names: one entry per indexed axis.

    `result[b…, i…, s…] = x[b…, indices[b…, i…, 0], indices[b…, i…, 1], …, s…]`, with `batch_dims` (0 if absent) batch axes.
    If it is `checked`, an index outside is an error.
    (C1) `indices` are integers of rank above `batch_dims`; (C2) its last size is known and indexes no more axes than `x` has
    after the batch axes; (C3) batch axes have equal sizes; (C4) indexed axes have elements, or `indices` none.
    """

    name = "dl.gather_nd"
    TAKES_NARROW: ClassVar[bool] = True
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    batch_dims = opt_prop_def(IntegerAttr)
    checked = opt_prop_def(BoolAttr)
    said_axes = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)

    @property
    def named_axes(self) -> Sequence[int]:
        return range(self.batch, self.batch + self.indexed)

    @property
    def has_columns(self) -> bool:
        return True

    @property
    def batch(self) -> int:
        return number(self.batch_dims) if self.batch_dims is not None else 0

    @property
    def indexed(self) -> int:
        """How many axes the places index."""
        depth = shape_of(self.indices)[-1]
        if not isinstance(depth, int):
            raise ShapeError(f"dl.gather_nd: the last size of indices {shape_of(self.indices)} must be known (C2)")
        return depth

    def infer(self) -> Sequence[Tensor]:
        shape, places, batch = shape_of(self.x), shape_of(self.indices), self.batch
        if not 0 <= batch < len(places):
            raise ShapeError(f"dl.gather_nd: batch_dims {batch} of indices {places} (C1)")
        if batch + self.indexed > len(shape):
            raise ShapeError(f"dl.gather_nd: places of {self.indexed} entries after {batch} batch axes of {shape} (C2)")
        if any(known_less(a, b) or known_less(b, a) for a, b in zip(shape[:batch], places[:batch], strict=True)):
            raise ShapeError(f"dl.gather_nd: x {shape} and indices {places} differ in their {batch} batch axes (C3)")
        if not is_integer(element_type_of(self.indices)):
            raise DTypeError(f"dl.gather_nd: indices have element type {element_type_of(self.indices)}, expected integers")
        for axis in range(batch, batch + self.indexed):
            check_places(self, self.x, self.indices, axis)
        return [tensor_type((*places[:-1], *shape[batch + self.indexed :]), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x, indices), batch, depth = operands, self.batch, self.indexed
        outer, inner = math.prod(indices.shape[:batch]), math.prod(indices.shape[batch:-1])
        if outer * inner == 0:
            return np.zeros((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)
        flat, places = x.reshape(outer, *x.shape[batch:]), indices.reshape(outer, inner, depth)
        own = np.broadcast_to(np.arange(outer)[:, None], (outer, inner))
        taken = flat[(own, *(clamped_places(places[..., k], flat.shape[1 + k]) for k in range(depth)))]
        return taken.reshape((*indices.shape[:-1], *x.shape[batch + depth :]))

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        batch, outer = self.batch, rank_of(self.indices) - 1
        sizes, places = shape_of(self.x)[batch : batch + self.indexed], list(indices)
        named: list[SSAValue] = []
        for k in range(self.indexed):
            named.append(self.place(body, sources[1], [*places[:outer], scalar.position(body, k)], sizes[k]))
        return scalar.extract(body, sources[0], [*places[:batch], *named, *places[outer:]])


@irdl_op_definition
class GatherElementsOp(AlongAxis, Taking):
    """`result[i, j, k] = x[i, indices[i, j, k], k]`, here with `axis` 1: NumPy's `take_along_axis`.

    If it is `checked`, an index outside is an error.
    (C1) `indices` are integers of the rank of `x`; (C2) `axis` is an axis of `x`; (C3) the other sizes of `indices` are at
    most those of `x`; (C4) the axis has an element, or `indices` none.
    """

    name = "dl.gather_elements"
    TAKES_NARROW: ClassVar[bool] = True
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    checked = opt_prop_def(BoolAttr)
    said_axes = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        axis, shape, places = self.indexed_axis, shape_of(self.x), shape_of(self.indices)
        check_places(self, self.x, self.indices, axis)
        if len(shape) != len(places):
            raise ShapeError(f"dl.gather_elements: indices {places} have another rank than x {shape} (C1)")
        if any(a != axis and known_less(n, m) for a, (n, m) in enumerate(zip(shape, places, strict=True))):
            raise ShapeError(f"dl.gather_elements: indices {places} exceed x {shape} beside axis {axis} (C3)")
        return [tensor_type(places, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x, indices), axis = operands, self.indexed_axis
        own: list[Array] = list(np.indices(indices.shape, sparse=True))
        own[axis] = clamped_places(indices, x.shape[axis])
        return x[tuple(own)]

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        axis, places = self.indexed_axis, list(indices)
        places[axis] = self.place(body, sources[1], places, shape_of(self.x)[axis])
        return scalar.extract(body, sources[0], places)


SCATTER_MODES = ("none", "add", "mul", "max", "min")
_UFUNC = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@irdl_op_definition
class ScatterRowsOp(Indexed, Scattering):
    """`x`, and then for each `i`, in order: `result[indices[i…]] = result[indices[i…]] ∘ updates[i…]`, row by row.

    `mode` says what ∘ is: `none` takes the update, `add`, `mul`, `max` and `min` combine, in the element type. Negative
    indices count from the end; others outside of the first axis change nothing, or with `clamped` the nearest row, which is
    where `dl.gather` reads: so `add` is its transpose. If it is `checked`, an index outside is an error; if indices are known
    to be `inside`, it may change any row for others.
    (C1) x and updates have one element type, not bool but for `none`, indices are integers; (C2) updates have the shape of
    indices, then that of x without its first axis; (C3) `clamped` needs a row, or no indices.
    """

    name = "dl.scatter_rows"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    mode = prop_def(StringAttr)
    clamped = opt_prop_def(BoolAttr)
    inside = opt_prop_def(BoolAttr)
    checked = opt_prop_def(BoolAttr)
    said_axes = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)

    @property
    def named_axes(self) -> Sequence[int]:
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
            check_places(self, self.x, self.indices, 0)
        elif not is_integer(element_type_of(self.indices)):
            raise DTypeError(f"dl.scatter_rows: indices of {element_type_of(self.indices)}, expected integers (C1)")
        return [tensor_type(x, element)]

    def reference(self, *operands: Array) -> Array:
        (x, indices, updates), rows = operands, operands[0].shape[0]
        result, flat, rest = x.copy(), indices.reshape(-1), updates.reshape(indices.size, *x.shape[1:])
        places = clamped_places(flat, rows)
        if not flag(self.clamped):
            inside = flat < rows if flat.dtype.kind == "u" else (flat >= -rows) & (flat < rows)
            places, rest = places[inside], rest[inside]
        with np.errstate(all="ignore"):
            if self.mode.data == "none":
                for place, update in zip(places, rest, strict=True):
                    result[place] = update
            else:
                _UFUNC[self.mode.data].at(result, places, rest)
        return result

    def row(self, body: Body, index: SSAValue) -> tuple[SSAValue, SSAValue | None]:
        (size, *_), element = shape_of(self.x), element_type_of(self.indices)
        place = scalar.clamped_position(body, index, size, element, inside=flag(self.inside))
        if flag(self.clamped) or flag(self.inside):
            return place, None
        wide = scalar.convert(body, index, element, i64)
        if is_unsigned(element):
            return place, scalar.compare(body, "lt", wide, scalar.number_of(body, size), element)
        above = scalar.compare(body, "ge", wide, scalar.number_of(body, -size), i64)
        return place, scalar.both(body, above, scalar.compare(body, "lt", wide, scalar.number_of(body, size), i64))

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

"""Writes to places that are data: elements, and slices.

They are made of regular ops, so that every element of the result can be computed by itself: nothing depends on an order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import casted, widened
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, MinimumOp, MulOp, SelectOp
from dlc.dialects.dl.arithmetic.logic import EqualOp, GreaterEqualOp, LessOp, OrOp
from dlc.dialects.dl.base import Array, Tensor, element_type_of, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import compatible
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_bool, is_integer
from dlc.dialects.dl.interfaces import Composite, is_unsigned
from dlc.dialects.dl.movement.indexed import AlongAxis, Indexed, fail_outside
from dlc.dialects.dl.movement.indexing import SCATTER_MODES, GatherElementsOp, ScatterRowsOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, SliceOp, known_less
from dlc.dialects.dl.reductions.composite import in_wide_type
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceMinOp, ReduceProdOp, ReduceSumOp
from dlc.dims import Size, is_static, product
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

# The most updates that every element is compared with.
_COMPARED = 64

_REDUCE = {"add": ReduceSumOp, "mul": ReduceProdOp, "max": ReduceMaxOp, "min": ReduceMinOp}
_COMBINE = {"add": AddOp, "mul": MulOp, "max": MaximumOp, "min": MinimumOp}
_UFUNC = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


class Scatter(Indexed, Composite):
    """`x` with `updates` written to places that are data.

    `mode` says how: `none` replaces, the last of several updates of one element counts; `add`, `mul`, `max` and `min`
    combine all of them with the element. If it is `checked`, an index outside is an error.
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
    def places(self, indices: Array) -> tuple[tuple[Array, ...], Array]:
        """NumPy's index of each update (negative ones counted from the front), and which of them are inside of `x`."""

    def building(self) -> Build:
        """What makes the decomposition, which begins with the checks of indices that are to be inside."""
        b = Build(self)
        for k in range(len(self.named_axes) if self.is_checked else 0):
            fail_outside(b, self, self.indices, k)
        return b

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
            # An axis in front, so that there is an index even where places index no axis.
            whole, (index, inside) = result[None], self.places(indices)
            index = (np.zeros_like(inside, np.int64), *index)
            index = tuple(np.broadcast_to(i, inside.shape)[inside] for i in index)
            if self.combination == "none":
                whole[index] = updates[inside]
            else:
                _UFUNC[self.combination].at(whole, index, updates[inside])
            return result

        return in_wide_type(self, compute, operands)


def _signed(indices: Array) -> Array:
    """Indices as i64; what no i64 holds stays outside of every axis."""
    if indices.dtype.kind == "u":
        indices = np.minimum(indices.astype(np.uint64), np.uint64(np.iinfo(np.int64).max))
    return indices.astype(np.int64)


def _wrapped(b: Build, indices: SSAValue, size: Size) -> SSAValue:
    """Indices as i64, negative ones counted from the end."""
    wide = casted(b, indices, i64)
    if is_unsigned(element_type_of(indices)):
        return wide
    negative = b(LessOp, wide, b.scalar(0, like=wide))
    return b(SelectOp, negative, b(AddOp, wide, b.size(size, like=wide)), wide)


def _one_by_one(b: Build, x: SSAValue, places: SSAValue, updates: SSAValue, axis: int, mode: str) -> SSAValue:
    """`x` with each update written to place `places[…]` along `axis`, if there is such a place: each element a row."""
    shape, sizes = shape_of(x), shape_of(places)
    outside = b(OrOp, b(LessOp, places, b.scalar(0, like=places)), b(GreaterEqualOp, places, b.size(shape[axis], like=places)))
    number = b(MulOp, places, b.size(product(shape[axis + 1 :]), like=places))
    for a, size in enumerate(sizes):
        if a != axis:
            along = _stepped(b, size, product(shape[a + 1 :]))
            number = b(AddOp, number, b(ReshapeOp, along, shape=tuple(size if d == a else 1 for d in range(len(sizes)))))
    number = b(SelectOp, outside, b.size(product(shape), like=number), number)
    flat = (b(ReshapeOp, v, shape=(product(shape_of(v)),)) for v in (x, number, updates))
    return b(ReshapeOp, b(ScatterRowsOp, *flat, mode=mode), shape=shape)


def _stepped(b: Build, size: Size, step: Size) -> SSAValue:
    """0, step, 2·step, … as i64."""
    if isinstance(step, int):
        return b(IotaOp, size=(size,), to=i64, start=0, step=step)
    numbers = b(IotaOp, size=(size,), to=i64, start=0, step=1)
    return b(MulOp, numbers, b.size(step, like=numbers))


def _identity(b: Build, x: SSAValue, mode: str) -> SSAValue:
    """What changes nothing when it is combined with an element of `x`."""
    low, high = scalar.limits(element_type_of(x))
    return b.scalar({"add": 0, "mul": 1, "max": low, "min": high}[mode], like=x)


def _by_comparison(b: Build, x: SSAValue, places: SSAValue, updates: SSAValue, axis: int, mode: str) -> SSAValue:
    """See Note [Scatter by comparison]; the sizes of places and updates beside `axis` are those of `x`."""
    shape, count = [int(s) for s in shape_of(x)], int(shape_of(updates)[axis])

    def numbered(size: int, position: int) -> SSAValue:
        """0, 1, … along one axis of a tensor that has one axis more than `x`."""
        numbers = b(IotaOp, size=(size,), to=i64, start=0, step=1)
        return b(ReshapeOp, numbers, shape=tuple(size if a == position else 1 for a in range(len(shape) + 1)))

    def for_each_element(value: SSAValue) -> SSAValue:
        """With an axis for the elements of `x` before that of the updates."""
        sizes = shape_of(value)
        return b(ReshapeOp, value, shape=(*sizes[:axis], 1, *sizes[axis:]))

    hit = b(EqualOp, numbered(shape[axis], axis), for_each_element(places))
    if mode == "none":
        order = numbered(count, axis + 1)
        last = b(ReduceMaxOp, b(SelectOp, hit, order, b.scalar(-1, like=order)), axes=(axis + 1,))
        chosen = b(GatherElementsOp, updates, b(BroadcastToOp, last, shape=shape), axis=axis)
        return b(SelectOp, b(GreaterEqualOp, last, b.scalar(0, like=last)), chosen, x)
    meant = b(SelectOp, hit, for_each_element(updates), _identity(b, x, mode))
    return b(_COMBINE[mode], x, b(_REDUCE[mode], meant, axes=(axis + 1,)))


# Note [Scatter by comparison]
#
# Each element of the result looks for the updates that are meant for it: n elements and m updates take n·m comparisons. In
# return no two writes meet, the result does not depend on an order, and it is a reduction like any other: parallel,
# fused, without atomics. The comparison is part of the reduction's body, never a tensor. More updates than a few go one by
# one to the rows that they name (`dl.scatter_rows`).


@irdl_op_definition
class ScatterElementsOp(AlongAxis, Scatter):
    """`x`, and there `result[i, indices[i, j, k], k] = updates[i, j, k]`, here with `axis` 1; `mode` combines.

    `mode` is `none` (the last update of an element counts), `add`, `mul`, `max` or `min`. Negative indices count from the
    end, others outside of the axis change nothing.
    (C1) x and updates have one element type, indices are integers; (C2) indices and updates have one shape, of the rank of
    x, and beside `axis` at most its sizes.
    """

    name = "dl.scatter_elements"
    mode = prop_def(StringAttr)
    checked = opt_prop_def(BoolAttr)
    said_axes = opt_prop_def(DenseArrayBase)

    def infer(self) -> Sequence[Tensor]:
        x, indices, updates, axis = shape_of(self.x), shape_of(self.indices), shape_of(self.updates), self.indexed_axis
        exceeds = len(x) == len(indices) and any(known_less(x[a], indices[a]) for a in range(len(x)) if a != axis)
        if len(x) != len(indices) or not compatible(indices, updates) or exceeds:
            raise ShapeError(
                f"dl.scatter_elements: indices {indices} and updates {updates} must have one shape within x {x}, axis {axis}"
            )
        return super().infer()

    def places(self, indices: Array) -> tuple[tuple[Array, ...], Array]:
        own: list[Array] = list(np.indices(indices.shape, sparse=True))
        size = int(shape_of(self.x)[self.indexed_axis])
        place = _signed(indices)
        own[self.indexed_axis] = place = np.where(place < 0, place + size, place)
        return tuple(own), (place >= 0) & (place < size)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        b, axis = self.building(), self.indexed_axis
        shape, given = shape_of(operands[0]), shape_of(operands[1])
        x, updates = (widened(b, v) for v in (operands[0], operands[2]))
        places = _wrapped(b, operands[1], shape[axis])
        if 0 in (*shape, *given):
            result = x
        elif not is_static((*shape, *given)) or int(given[axis]) > _COMPARED:
            result = _one_by_one(b, x, places, updates, axis, self.combination)
        else:
            # No update is meant for the elements beyond: -1 is no place.
            missing = [0 if a == axis else int(n - m) for a, (n, m) in enumerate(zip(shape, given, strict=True))]
            places = b(PadOp, places, b.scalar(-1, like=places), low=(0,) * len(shape), high=missing)
            updates = b(PadOp, updates, b.scalar(0, like=updates), low=(0,) * len(shape), high=missing)
            result = _by_comparison(b, x, places, updates, axis, self.combination)
        return [casted(b, result, element_type_of(operands[0]))]


@irdl_op_definition
class ScatterNdOp(Scatter):
    """`x`, and there `result[indices[i…, 0], indices[i…, 1], …, s…] = updates[i…, s…]`; `mode` combines.

    The last axis of `indices` names a place: one entry per indexed axis, the first axes of `x`. Modes and indices outside
    are as in `dl.scatter_elements`.
    (C1) x and updates have one element type, indices are integers; (C2) the last size of indices is known and at most the
    rank of x; (C3) updates have the shape of indices without the last axis, then that of x without the indexed axes.
    """

    name = "dl.scatter_nd"
    mode = prop_def(StringAttr)
    checked = opt_prop_def(BoolAttr)
    said_axes = opt_prop_def(DenseArrayBase)

    @property
    def named_axes(self) -> Sequence[int]:
        return range(self.indexed)

    @property
    def has_columns(self) -> bool:
        return True

    @property
    def indexed(self) -> int:
        """How many axes the places index."""
        depth = shape_of(self.indices)[-1] if rank_of(self.indices) else None
        if not isinstance(depth, int) or depth > rank_of(self.x):
            raise ShapeError(
                f"dl.scatter_nd: the last size of indices {shape_of(self.indices)} must be known and at most the rank of x"
            )
        return depth

    def infer(self) -> Sequence[Tensor]:
        x, indices, updates = shape_of(self.x), shape_of(self.indices), shape_of(self.updates)
        expected = (*indices[:-1], *x[self.indexed :])
        if not compatible(updates, expected):
            raise ShapeError(f"dl.scatter_nd: updates {updates} for x {x} and indices {indices}; expected {expected}")
        return super().infer()

    def places(self, indices: Array) -> tuple[tuple[Array, ...], Array]:
        sizes = np.array([int(s) for s in shape_of(self.x)[: self.indexed]], np.int64)
        place = _signed(indices)
        place = np.where(place < 0, place + sizes, place)
        inside = np.all((place >= 0) & (place < sizes), -1)
        return tuple(place[..., d] for d in range(self.indexed)), np.asarray(inside)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        b, depth = self.building(), self.indexed
        shape, given = shape_of(operands[0]), shape_of(operands[1])
        x, updates = (widened(b, v) for v in (operands[0], operands[2]))
        count, rows, row = product(given[:-1]), product(shape[:depth]), product(shape[depth:])
        result = b(
            ScatterRowsOp,
            b(ReshapeOp, x, shape=(rows, row)),
            self.rows_of(b, operands[1], shape, count),
            b(ReshapeOp, updates, shape=(count, row)),
            mode=self.combination,
        )
        return [casted(b, b(ReshapeOp, result, shape=shape), element_type_of(operands[0]))]

    def rows_of(self, b: Build, indices: SSAValue, shape: Sequence[Size], count: Size) -> SSAValue:
        """The places as row-major numbers of the indexed axes; as many as there are for those outside."""
        flat = b(ReshapeOp, indices, shape=(count, self.indexed))
        total = b(BroadcastToOp, b.scalar(0, like=tensor_type((), i64)), shape=(count,))
        outside = b.scalar(0, like=tensor_type((), i1))
        for d, size in enumerate(shape[: self.indexed]):
            column = b(SliceOp, flat, starts=(0, d), limits=(count, d + 1), strides=(1, 1))
            place = _wrapped(b, b(ReshapeOp, column, shape=(count,)), size)
            beyond = b(GreaterEqualOp, place, b.size(size, like=place))
            outside = b(OrOp, outside, b(OrOp, b(LessOp, place, b.scalar(0, like=place)), beyond))
            total = b(AddOp, b(MulOp, total, b.size(size, like=total)), place)
        return b(SelectOp, outside, b.size(product(shape[: self.indexed]), like=total), total)

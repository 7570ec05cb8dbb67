"""Base classes of ops with data-dependent indices, and the bounds checks of these indices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, SubOp
from dlc.dialects.dl.arithmetic.logic import LessOp
from dlc.dialects.dl.base import (
    Array,
    DlOp,
    element_type_of,
    flag,
    ints,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.dialects.dl.programs.control import FailOp, IfOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp
from dlc.dialects.dl.scalar import bits
from dlc.dialects.location_text import location_prefix
from dlc.errors import DlcError
from dlc.ir import Block, IntegerAttr, IntegerType, Operation, Signedness, SSAValue, i32, i64, prop_def
from dlc.runtime.python_ops.control import format_failure
from dlc.shapes.dims import Size, is_known_less, is_static, product


class IndexedOp(DlOp, ABC):
    """An op whose second operand indexes axes of the first: by one integer each, or by index vectors along its last axis.

    If the op is `checked`, an index out of bounds is an error. Its message states the axis of the user's array, from
    `reported_axes` if the op has them: passes may have moved axes or added batch axes.
    """

    @property
    @abstractmethod
    def indexed_axes(self) -> Sequence[int]:
        """The axes of the first operand that the indices refer to."""

    @property
    def has_index_vectors(self) -> bool:
        """Return whether the last axis of the indices is an index vector, with one entry per indexed axis."""
        return False

    @property
    def is_checked(self) -> bool:
        return flag(self.properties.get("checked"))

    @property
    def has_empty_indexed_axis(self) -> bool:
        """Return whether an indexed axis is known to have no elements, so that every index is out of bounds."""
        shape = shape_of(self.operands[0])
        count = product(shape_of(self.operands[1]))
        return any(is_known_less(count * (shape[axis] - 1), 0) for axis in self.indexed_axes)

    def reported_axis(self, k: int) -> int:
        """Return the k-th indexed axis as the axis of the user's array."""
        reported = self.properties.get("reported_axes")
        return (self.indexed_axes if reported is None else ints(reported))[k]

    def evaluate(self, *operands: Array) -> tuple[Array, ...]:
        """Evaluate the op; raise DlcError for an index out of bounds if the op is checked."""
        x, indices, *_ = operands
        for k, axis in enumerate(self.indexed_axes if self.is_checked else ()):
            invalid = out_of_bounds_indices(indices[..., k] if self.has_index_vectors else indices, x.shape[axis])
            if invalid.size:
                # Compiled programs pass the values of a message as i64.
                message = _out_of_bounds_message(self, k, x.shape[axis])
                raise DlcError(format_failure(message, [int(invalid.astype(np.int64)[0])]))
        return super().evaluate(*operands)


class SingleAxisIndexedOp(IndexedOp, ABC):
    """An indexed op whose indices refer to the one axis `axis`, counted from either end."""

    axis = prop_def(IntegerAttr)

    @property
    def indexed_axis(self) -> int:
        """The axis, counted from the front."""
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.operands[0]))[0]

    @property
    def indexed_axes(self) -> Sequence[int]:
        return (self.indexed_axis,)


def out_of_bounds_indices(indices: Array, size: int) -> Array:
    """Return the indices out of bounds of an axis of `size`; negative ones count from the end."""
    if indices.dtype.kind == "u":
        return indices[indices >= size]
    return indices[(indices < -size) | (indices >= size)]


def checked_op_locations(module: Operation) -> list[str]:
    """Return the locations of the program's ops with checked indices, as their error messages state them."""
    return [location_prefix(op.location) for op in module.walk() if isinstance(op, IndexedOp) and op.is_checked]


def _out_of_bounds_message(op: IndexedOp, k: int, size: Size) -> str:
    """Return the message for an index out of bounds of the k-th indexed axis, with `{}` for the index and a symbolic size."""
    size_text = size if isinstance(size, int) else "{}"
    return f"{location_prefix(op.location)}index {{}} is outside axis {op.reported_axis(k)} of size {size_text}"


def fail_if_out_of_bounds(build: DlBuilder, op: IndexedOp, indices: SSAValue, k: int) -> None:
    """Insert a branch that fails if an index of an op is out of bounds of the k-th indexed axis."""
    size, element = shape_of(op.operands[0])[op.indexed_axes[k]], element_type_of(indices)
    if 0 in shape_of(indices):
        return
    if op.has_index_vectors:
        indices = _column(build, indices, k)
    # Signed indices from -size to size - 1 are valid. After adding `size`, one unsigned comparison checks both bounds.
    shift = 0 if is_unsigned(element) else size
    width = 32 if bits(element) <= 32 and isinstance(size, int) and 2 * size < 1 << 31 else 64
    wide = cast_to(build, indices, i32 if width == 32 else i64)
    shifted = build(AddOp, wide, build.size(shift, like=wide)) if shift else wide
    shifted = cast_to(build, shifted, IntegerType(width, Signedness.UNSIGNED))
    axes = tuple(range(rank_of(indices)))
    largest = build(ReduceMaxOp, shifted, axes=axes, keepdims=False) if axes else shifted
    limit = build.size(shift + size, like=largest)
    if not is_static(shape_of(indices)):
        # The maximum of an empty array is 0, which must not count as out of bounds.
        limit = build(MaximumOp, limit, build.scalar(1, like=limit))
    in_bounds = build(LessOp, largest, limit)
    in_bounds_body, out_of_bounds_body = Block(), Block()
    DlBuilder(in_bounds_body, build.location).insert(YieldOp([]))
    failure_builder = DlBuilder(out_of_bounds_body, build.location)
    if shift:
        largest = cast_to(failure_builder, largest, element_type_of(wide))
        largest = failure_builder(SubOp, largest, failure_builder.size(shift, like=largest))
    sizes = [] if isinstance(size, int) else [failure_builder.size(size, like=tensor_type((), i64))]
    failure_builder.insert(FailOp(_out_of_bounds_message(op, k, size), [cast_to(failure_builder, largest, i64), *sizes]))
    build.insert(IfOp.of(in_bounds, in_bounds_body, out_of_bounds_body, []))


def _column(build: DlBuilder, indices: SSAValue, k: int) -> SSAValue:
    """Return the k-th entry of each index vector."""
    *rows, _ = shape_of(indices)
    starts, limits = [*(0 for _ in rows), k], [*rows, k + 1]
    return build(SliceOp, indices, starts=starts, limits=limits, strides=[1] * len(starts))

"""Ops that read or write at places that come from data, and the check that these are inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl.arithmetic.activation import casted
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
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.dialects.dl.programs.control import FailOp, IfOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp
from dlc.dialects.dl.scalar import bits
from dlc.dialects.places import place
from dlc.dims import Size, is_static
from dlc.errors import DlcError
from dlc.ir import Block, IntegerAttr, IntegerType, Operation, Signedness, SSAValue, i32, i64, prop_def
from dlc.runtime.python_ops.control import failure


class Indexed(DlOp, ABC):
    """An op with places on its first operand that its second one has: one integer each, or as many as its last axis has.

    If it is `checked`, an index outside of its axis is an error, which counts the axis as `said_axes` does, if the op has that:
    a person's array has its axes in other places where the op's has been moved, or has lanes.
    """

    @property
    @abstractmethod
    def named_axes(self) -> Sequence[int]:
        """The axes of the first operand that the integers of a place are on."""

    @property
    def has_columns(self) -> bool:
        """Whether the integers of a place lie along the last axis of the indices."""
        return False

    @property
    def is_checked(self) -> bool:
        return flag(self.properties.get("checked"))

    def said_axis(self, k: int) -> int:
        """The k-th of the named axes as a person counts it."""
        said = self.properties.get("said_axes")
        return (self.named_axes if said is None else ints(said))[k]

    def evaluate(self, *operands: Array) -> tuple[Array, ...]:
        """As of any op; raises DlcError for an index outside where that is an error."""
        x, indices, *_ = operands
        for k, axis in enumerate(self.named_axes if self.is_checked else ()):
            wrong = misplaced(indices[..., k] if self.has_columns else indices, x.shape[axis])
            if wrong.size:
                # As programs have the numbers of a message: i64.
                raise DlcError(failure(_outside(self, k, x.shape[axis]), [int(wrong.astype(np.int64)[0])]))
        return super().evaluate(*operands)


class AlongAxis(Indexed, ABC):
    """An op whose places are on the one axis `axis`, counted from either end."""

    axis = prop_def(IntegerAttr)

    @property
    def indexed_axis(self) -> int:
        """The axis, counted from the front."""
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.operands[0]))[0]

    @property
    def named_axes(self) -> Sequence[int]:
        return (self.indexed_axis,)


def misplaced(indices: Array, size: int) -> Array:
    """The indices that are outside an axis of `size`, negative ones counted from the end."""
    if indices.dtype.kind == "u":
        return indices[indices >= size]
    return indices[(indices < -size) | (indices >= size)]


def checked_places(module: Operation) -> list[str]:
    """Where the ops of a program stand whose indices are checked, as their messages say it."""
    return [place(op.location) for op in module.walk() if isinstance(op, Indexed) and op.is_checked]


def _outside(op: Indexed, k: int, size: Size) -> str:
    """The message about an index outside of the k-th named axis, with room for the index, and for a size that is not known."""
    return f"{place(op.location)}index {{}} is outside axis {op.said_axis(k)} of size {size if isinstance(size, int) else '{}'}"


def fail_outside(b: Build, op: Indexed, indices: SSAValue, k: int) -> None:
    """A branch that fails if one of an op's indices is outside the k-th axis that places name."""
    size, element = shape_of(op.operands[0])[op.named_axes[k]], element_type_of(indices)
    if 0 in shape_of(indices):
        return
    if op.has_columns:
        indices = _column(b, indices, k)
    # Counted from the end there are as many again, but for unsigned ones.
    shift = 0 if is_unsigned(element) else size
    width = 32 if bits(element) <= 32 and isinstance(size, int) and 2 * size < 1 << 31 else 64
    wide = casted(b, indices, i32 if width == 32 else i64)
    shifted = b(AddOp, wide, b.size(shift, like=wide)) if shift else wide
    shifted = casted(b, shifted, IntegerType(width, Signedness.UNSIGNED))
    axes = tuple(range(rank_of(indices)))
    most = b(ReduceMaxOp, shifted, axes=axes, keepdims=False) if axes else shifted
    limit = b.size(shift + size, like=most)
    if not is_static(shape_of(indices)):
        # Of no indices the largest is 0, which is inside of anything.
        limit = b(MaximumOp, limit, b.scalar(1, like=limit))
    inside = b(LessOp, most, limit)
    then, otherwise = Block(), Block()
    Build(then, b.location).insert(YieldOp([]))
    failing = Build(otherwise, b.location)
    if shift:
        most = casted(failing, most, element_type_of(wide))
        most = failing(SubOp, most, failing.size(shift, like=most))
    numbers = [] if isinstance(size, int) else [failing.size(size, like=tensor_type((), i64))]
    failing.insert(FailOp(_outside(op, k, size), [casted(failing, most, i64), *numbers]))
    b.insert(IfOp.of(inside, then, otherwise, []))


def _column(b: Build, indices: SSAValue, k: int) -> SSAValue:
    """One integer of each place."""
    *rows, _ = shape_of(indices)
    starts, limits = [*(0 for _ in rows), k], [*rows, k + 1]
    return b(SliceOp, indices, starts=starts, limits=limits, strides=[1] * len(starts))

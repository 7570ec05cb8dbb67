"""Iteration spaces of fusion groups, and rules for fusing producers and data-movement ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.elementwise import DivOp, FloordivOp, ModOp, PowOp
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import (
    Contraction,
    DataMovement,
    Elementwise,
    GatherLike,
    Reduction,
    RowComposite,
    ScatterLike,
    StagedComposite,
    Window,
)
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.ir import Operation
from dlc.passes.dl.simplification.decompose_composites import are_rows, is_row_kernel
from dlc.shapes.dims import Size, is_static

# Maximum results per shape of a kernel of elementwise and row ops. All other kernels have one result.
MAX_KERNEL_RESULTS = 3


@dataclass
class IterationSpace:
    """The iteration space of a fusion group.

    Attributes:
        shape: The shape of the group's values.
        row_axes: The axes that the group's row reductions reduce; empty if there are none.
        accepts_row_ops: Whether row reductions may be fused.
        is_closed: Whether no op may be fused.
        max_results: The maximum number of results per shape.
        accepts_scalarized_ops: Whether scalarized ops may be fused. With dynamic shapes their long code would be
            duplicated for each tile size.
    """

    shape: tuple[Size, ...]
    row_axes: tuple[int, ...] = ()
    accepts_row_ops: bool = False
    is_closed: bool = False
    max_results: int = 1
    accepts_scalarized_ops: bool = True

    @property
    def shapes(self) -> tuple[tuple[Size, ...], ...]:
        """The shapes that values of the group may have: the full iteration space, or one element per row."""
        return (self.shape, tuple(1 if a in self.row_axes else s for a, s in enumerate(self.shape)))

    def allows_results(self, results: Sequence[tuple[Size, ...]]) -> bool:
        """Return whether a kernel over this space may have results of these shapes."""
        if self.max_results == 1:
            return len(results) == 1
        return all(shape in self.shapes for shape in results) and all(results.count(s) <= self.max_results for s in self.shapes)


def row_axes(op: Operation, max_row_elements: int) -> tuple[int, ...]:
    """Return the trailing axes that an op reduces or normalizes over, row by row; empty for other ops."""
    if isinstance(op, RowComposite) and is_row_kernel(op, max_row_elements):
        return tuple(op.row_axes)
    if (
        isinstance(op, Reduction)
        and op.keeps_reduced_axes
        and are_rows(op.reduction_axes, shape_of(op.operands[0]), max_row_elements)
    ):
        return tuple(op.reduction_axes)
    return ()


def choose_iteration_space(root: DlOp, max_row_elements: int) -> IterationSpace:
    """Return the iteration space of a group with this root."""
    if isinstance(root, Elementwise):
        return IterationSpace(shape_of(root.results[0]), accepts_row_ops=True, max_results=MAX_KERNEL_RESULTS)
    if rows := row_axes(root, max_row_elements):
        return IterationSpace(shape_of(root.operands[0]), rows, accepts_row_ops=True, max_results=MAX_KERNEL_RESULTS)
    accepts_epilogue = isinstance(root, Contraction | StagedComposite | Window | Reduction | GatherLike | DataMovement)
    shape, is_closed = shape_of(root.results[0]), not accepts_epilogue or isinstance(root, ConcatOp | PadOp)
    return IterationSpace(
        shape, is_closed=is_closed, accepts_scalarized_ops=not isinstance(root, Contraction) or is_static(shape)
    )


def is_scalarized(op: Operation) -> bool:
    """Return whether an op is scalarized: integer division, remainder or power."""
    if isinstance(op, DivOp | PowOp):
        return not is_float(element_type_of(op.results[0]))
    return isinstance(op, FloordivOp | ModOp)


def is_fusion_root(op: Operation, max_row_elements: int) -> bool:
    """Return whether elementwise consumers should be fused into this op's kernel as an epilogue."""
    return (
        isinstance(op, Contraction | StagedComposite | Window | Reduction | GatherLike)
        and not row_axes(op, max_row_elements)
        and not isinstance(op, ConcatOp | PadOp)
    )


def fuses_producers(op: Operation | None, max_row_elements: int) -> bool:
    """Return whether elementwise producers may be fused into an op whose result has another shape.

    These are reductions, concatenations and scatters. A scatter needs static shapes, since kernels cannot allocate
    dynamic buffers for the updates, and distinct operands, since each is read in another order.
    """
    if isinstance(op, ScatterLike):
        return all(is_static(shape_of(v)) for v in op.operands) and len(set(op.operands)) == len(op.operands)
    return isinstance(op, ConcatOp) or (isinstance(op, Reduction) and not row_axes(op, max_row_elements))


def can_fuse_movement(user: Operation, index: int, movement: DataMovement) -> bool:
    """Return whether the kernel of `user` can read operand `index` through the indexing map of `movement`, without a copy."""
    if isinstance(user, Elementwise | DataMovement | ConcatOp) or (isinstance(user, PadOp) and user.mode == "constant"):
        return True
    # These ops load vectors along the innermost axis, which must stay contiguous.
    if isinstance(user, Contraction | StagedComposite | Window) or (isinstance(user, Reduction | RowComposite) and index == 0):
        return preserves_innermost_contiguity(movement)
    return False


def preserves_innermost_contiguity(movement: DataMovement) -> bool:
    """Return whether adjacent elements along the last axis stay adjacent through a chain of data-movement ops."""
    sizes = shape_of(movement.results[0])
    if sizes and sizes[-1] != 1:
        map_, zeros = movement.source_map(), [0] * len(sizes)
        # Slice offsets (the symbols of the map) do not affect contiguity: evaluate with 0.
        starts = [0] * map_.num_symbols
        step = [b - a for a, b in zip(map_.eval(zeros, starts), map_.eval([*zeros[:-1], 1], starts), strict=True)]
        if step != [*(0 for _ in step[1:]), 1]:
            return False
    producer = movement.operands[0].owner
    return not isinstance(producer, DataMovement) or preserves_innermost_contiguity(producer)

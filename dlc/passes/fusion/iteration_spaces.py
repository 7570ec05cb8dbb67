"""Iteration spaces of kernels, and ops that can be fused into their readers at no cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.elementwise import DivOp, FloordivOp, ModOp, PowOp
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import (
    Contraction,
    Elementwise,
    GatherLike,
    Movement,
    Reduction,
    RowComposite,
    ScatterLike,
    StagedComposite,
    Window,
)
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.dims import Size, is_static
from dlc.ir import Operation
from dlc.passes.dl.simplification.decompose_composites import are_rows, is_row_kernel

# Maximum results, of each legal shape, of a kernel of elementwise or row ops. Other kernels have one result.
MAX_KERNEL_RESULTS = 3


@dataclass
class IterationSpace:
    """The iteration space of a group: the shape of its values, and the axes along which rows are reduced, if any."""

    shape: tuple[Size, ...]
    rows: tuple[int, ...] = ()
    # Row reductions may join; no op may join (closed); maximum results per shape.
    accepts_row_ops: bool = False
    is_closed: bool = False
    max_results: int = 1
    # Ops with long code may join. With dynamic shapes their code would be duplicated for each tile size.
    accepts_long_code: bool = True

    @property
    def shapes(self) -> tuple[tuple[Size, ...], ...]:
        """The legal shapes of values in the group: the whole space, or one element per row."""
        return (self.shape, tuple(1 if a in self.rows else s for a, s in enumerate(self.shape)))

    def allows_results(self, results: Sequence[tuple[Size, ...]]) -> bool:
        """Return whether a kernel over this space may have results of these shapes."""
        if self.max_results == 1:
            return len(results) == 1
        return all(shape in self.shapes for shape in results) and all(results.count(s) <= self.max_results for s in self.shapes)


def row_axes(op: Operation, max_row_elements: int) -> tuple[int, ...]:
    """Return the last axes whose rows an op reduces or normalizes independently; empty for other ops."""
    if isinstance(op, RowComposite) and is_row_kernel(op, max_row_elements):
        return tuple(op.row_axes)
    if isinstance(op, Reduction) and op.keeps_axes and are_rows(op.reduction_axes, shape_of(op.operands[0]), max_row_elements):
        return tuple(op.reduction_axes)
    return ()


def space_of(root: DlOp, max_row_elements: int) -> IterationSpace:
    """Return the iteration space of a group with this root."""
    if isinstance(root, Elementwise):
        return IterationSpace(shape_of(root.results[0]), accepts_row_ops=True, max_results=MAX_KERNEL_RESULTS)
    if rows := row_axes(root, max_row_elements):
        return IterationSpace(shape_of(root.operands[0]), rows, accepts_row_ops=True, max_results=MAX_KERNEL_RESULTS)
    allows_followers = isinstance(root, Contraction | StagedComposite | Window | Reduction | GatherLike | Movement)
    shape, is_closed = shape_of(root.results[0]), not allows_followers or isinstance(root, ConcatOp | PadOp)
    return IterationSpace(shape, is_closed=is_closed, accepts_long_code=not isinstance(root, Contraction) or is_static(shape))


def has_long_code(op: Operation) -> bool:
    """Return whether an op is an integer division, remainder or power, which is expanded lane by lane."""
    if isinstance(op, DivOp | PowOp):
        return not is_float(element_type_of(op.results[0]))
    return isinstance(op, FloordivOp | ModOp)


def is_fusion_root(op: Operation, max_row_elements: int) -> bool:
    """Return whether elementwise ops that follow this op should join its kernel instead of starting one."""
    return (
        isinstance(op, Contraction | StagedComposite | Window | Reduction | GatherLike)
        and not row_axes(op, max_row_elements)
        and not isinstance(op, ConcatOp | PadOp)
    )


def fuses_producers(op: Operation | None, max_row_elements: int) -> bool:
    """Return whether elementwise producers of operands join an op's kernel although their shape is not that of its result.

    For a scatter, shapes must be static, since a kernel has no buffers of dynamic size for the updates, and operands
    must be distinct, since each is iterated in another order.
    """
    if isinstance(op, ScatterLike):
        return all(is_static(shape_of(v)) for v in op.operands) and len(set(op.operands)) == len(op.operands)
    return isinstance(op, ConcatOp) or (isinstance(op, Reduction) and not row_axes(op, max_row_elements))


def can_absorb_movement(user: Operation, index: int, movement: Movement) -> bool:
    """Return whether the kernel of `user` can read operand `index` through `movement` at no cost, without a copy."""
    if isinstance(user, Elementwise | Movement | ConcatOp) or (isinstance(user, PadOp) and user.mode == "constant"):
        return True
    # These ops read whole vectors along the innermost axis.
    if isinstance(user, Contraction | StagedComposite | Window) or (isinstance(user, Reduction | RowComposite) and index == 0):
        return preserves_innermost_axis(movement)
    return False


def preserves_innermost_axis(movement: Movement) -> bool:
    """Return whether adjacent elements along the last axis stay adjacent through a chain of movements."""
    sizes = shape_of(movement.results[0])
    if sizes and sizes[-1] != 1:
        map_, zeros = movement.source_map(), [0] * len(sizes)
        # Offsets of slices do not affect adjacency, so set them to 0.
        starts = [0] * map_.num_symbols
        step = [b - a for a, b in zip(map_.eval(zeros, starts), map_.eval([*zeros[:-1], 1], starts), strict=True)]
        if step != [*(0 for _ in step[1:]), 1]:
            return False
    producer = movement.operands[0].owner
    return not isinstance(producer, Movement) or preserves_innermost_axis(producer)

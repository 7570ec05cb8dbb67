"""What the ops of a kernel iterate over, and which ops read what others make at no cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.elementwise import DivOp, FloordivOp, ModOp, PowOp
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import (
    Contraction,
    Elementwise,
    Gathering,
    Movement,
    Reduction,
    RowComposite,
    Scattering,
    Staged,
    Window,
)
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.dims import Size, is_static
from dlc.ir import Operation
from dlc.passes.dl.simplification.decompose_composites import are_rows, is_row_kernel

# A kernel of elementwise ops or rows may have a few results, and as many more that are an element per row; others have one.
MAX_RESULTS = 3


@dataclass
class Space:
    """What the ops of a group iterate over: the shape of its values, and the axes of the rows it reduces, if any."""

    shape: tuple[Size, ...]
    rows: tuple[int, ...] = ()
    # Whether reductions of whole rows may join, whether anything may, and how many results there may be.
    takes_rows: bool = False
    closed: bool = False
    max_results: int = 1
    # Whether ops of long code may: what goes over it may be written out for many tiles.
    takes_long: bool = True

    @property
    def shapes(self) -> tuple[tuple[Size, ...], ...]:
        """The shapes that values of the group have: all of the space, or one element per row."""
        return (self.shape, tuple(1 if a in self.rows else s for a, s in enumerate(self.shape)))

    def holds(self, results: Sequence[tuple[Size, ...]]) -> bool:
        """Whether a kernel that goes over the space may have results of these shapes."""
        if self.max_results == 1:
            return len(results) == 1
        return all(shape in self.shapes for shape in results) and all(results.count(s) <= self.max_results for s in self.shapes)


def row_axes(op: Operation, longest_row: int) -> tuple[int, ...]:
    """The last axes whose rows an op reduces or normalises one by one; empty for other ops."""
    if isinstance(op, RowComposite) and is_row_kernel(op, longest_row):
        return tuple(op.row_axes)
    if isinstance(op, Reduction) and op.keeps_axes and are_rows(op.reduction_axes, shape_of(op.operands[0]), longest_row):
        return tuple(op.reduction_axes)
    return ()


def space_of(root: DlOp, longest_row: int) -> Space:
    """What a group that starts with `root` iterates over."""
    if isinstance(root, Elementwise):
        return Space(shape_of(root.results[0]), takes_rows=True, max_results=MAX_RESULTS)
    if rows := row_axes(root, longest_row):
        return Space(shape_of(root.operands[0]), rows, takes_rows=True, max_results=MAX_RESULTS)
    followed = isinstance(root, Contraction | Staged | Window | Reduction | Gathering | Movement)
    shape, closed = shape_of(root.results[0]), not followed or isinstance(root, ConcatOp | PadOp)
    return Space(shape, closed=closed, takes_long=not isinstance(root, Contraction) or is_static(shape))


def is_long(op: Operation) -> bool:
    """Whether an op is a division with a remainder, or one of integers, which is done lane by lane, or a power of these."""
    if isinstance(op, DivOp | PowOp):
        return not is_float(element_type_of(op.results[0]))
    return isinstance(op, FloordivOp | ModOp)


def is_heavy(op: Operation, longest_row: int) -> bool:
    """Whether elementwise ops had better follow this op in its kernel than start one of their own."""
    return (
        isinstance(op, Contraction | Staged | Window | Reduction | Gathering)
        and not row_axes(op, longest_row)
        and not isinstance(op, ConcatOp | PadOp)
    )


def takes_makers(op: Operation | None, longest_row: int) -> bool:
    """Whether the elementwise ops that make an op's operands, of another shape than its result, belong in its kernel.

    Updates are read one after the other, whole: a kernel has no room for what has an open size. A value that is more than one
    operand of a scatter would be walked in several orders at once.
    """
    if isinstance(op, Scattering):
        return all(is_static(shape_of(v)) for v in op.operands) and len(set(op.operands)) == len(op.operands)
    return isinstance(op, ConcatOp) or (isinstance(op, Reduction) and not row_axes(op, longest_row))


def absorbs(user: Operation, index: int, movement: Movement) -> bool:
    """Whether the kernel of `user` reads operand `index` through `movement`, at no cost, instead of a copy."""
    if isinstance(user, Elementwise | Movement | ConcatOp) or (isinstance(user, PadOp) and user.mode == "constant"):
        return True
    # These read whole vectors along the innermost axis.
    if isinstance(user, Contraction | Staged | Window) or (isinstance(user, Reduction | RowComposite) and index == 0):
        return keeps_innermost(movement)
    return False


def keeps_innermost(movement: Movement) -> bool:
    """Whether elements that are neighbours along the last axis were neighbours before, through all movements in a row."""
    sizes = shape_of(movement.results[0])
    if sizes and sizes[-1] != 1:
        map_, zeros = movement.source_map(), [0] * len(sizes)
        # Where a slice begins makes no difference.
        starts = [0] * map_.num_symbols
        step = [b - a for a, b in zip(map_.eval(zeros, starts), map_.eval([*zeros[:-1], 1], starts), strict=True)]
        if step != [*(0 for _ in step[1:]), 1]:
            return False
    before = movement.operands[0].owner
    return not isinstance(before, Movement) or keeps_innermost(before)

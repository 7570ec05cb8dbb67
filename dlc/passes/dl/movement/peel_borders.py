"""Compute stencils of padded tensors separately inside and at the borders, so that the interior reads the unpadded tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias, cast

from dlc.dialects.dl.arithmetic.elementwise import AddOp, MulOp, NegOp, SubOp
from dlc.dialects.dl.base import ints, shape_of, sizes
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, SliceOp
from dlc.ir import Block, Context, ModuleOp, Operation, SSAValue
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import program_blocks, replace, splat
from dlc.shapes.dims import is_static

# The half-open range of indices on each axis.
Box: TypeAlias = "tuple[tuple[int, int], ...]"
# Maximum padding of a side, in elements.
_MAX_BORDER_ELEMENTS = 8
# Minimum elements of a result: the copies of smaller ones stay in the first-level cache.
_MIN_ELEMENTS = 1 << 14
# Maximum part of a result, in percent, that is computed at the borders, by shorter loops.
_MAX_BORDER_PERCENT = 10
# Maximum ops of a stencil, and slices that it reads: they are copied for each border. The copy of a padded tensor costs little
# compared with many reads of it (measured with 3 to 25 reads, 2 to 16 % at the borders, Zen 4).
_MAX_STENCIL_OPS = 64
_MAX_STENCIL_READS = 12
# Maximum depth of the sums and products that are computed again for each shifted position.
_MAX_RECOMPUTED_DEPTH = 3
_RECOMPUTED = (AddOp, SubOp, MulOp, NegOp)


@dataclass(frozen=True)
class PeelBordersPass(TargetPass):
    """`peel-borders`: computes an elementwise function of shifted slices of a padded tensor inside and at the borders.

        %p = dl.pad %x {low = [1], high = [1]};  %y = dl.sub %p[0, n), %p[2, n + 2)
    →   %inner = dl.sub %x[0, n - 2), %x[2, n);  %first = dl.sub %p[0, 1), %p[2, 3);  …
        %y = dl.concat %first, %inner, %last

    The interior reads the tensor where it is; without this, the padded tensor is written and read again. A padded tensor is a
    `dl.pad` with a constant, or a `dl.concat` of thin tensors around a large one (periodic or reflected boundaries). Sums and
    products before the padding are computed again at each position: the gradient of a stencil is a sum of padded cotangents.
    The borders are loops of the same kernel. Only for CPUs, static sizes, and at least 16,384 elements. Sums omit zero padding,
    which may change the sign of zeros.
    """

    name = "peel-borders"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.target.groups is not None:
            return
        for block in program_blocks(op):
            for root in list(_roots(block)):
                stencil = _Stencil(root)
                if (borders := stencil.borders()) is not None:
                    replace(root, [stencil.peeled(borders)])


def _roots(block: Block) -> Iterator[Elementwise]:
    """Yield the elementwise ops whose result is read by other kinds of ops or at other shapes."""
    for op in block.ops:
        if isinstance(op, Elementwise) and len(op.results) == 1 and is_static(shape := shape_of(op.results[0])):
            size = prod(cast("tuple[int, ...]", shape))
            if size >= _MIN_ELEMENTS and any(not _continues(use.operation, op) for use in op.results[0].uses):
                yield op


def _continues(user: Operation, op: Elementwise) -> bool:
    """Return whether a user of an op is a part of the same stencil."""
    return isinstance(user, Elementwise) and user.parent is op.parent and shape_of(user.results[0]) == shape_of(op.results[0])


class _Stencil:
    """The elementwise ops of one shape that compute a result."""

    def __init__(self, root: Elementwise) -> None:
        self.root = root
        self.shape = cast("tuple[int, ...]", shape_of(root.results[0]))
        self.ops = {root}
        pending: list[Operation] = [root]
        while pending:
            for value in pending.pop().operands:
                owner = value.owner
                if isinstance(owner, Elementwise) and owner not in self.ops and self._contains(owner):
                    self.ops.add(owner)
                    pending.append(owner)

    def _contains(self, op: Elementwise) -> bool:
        return len(op.results) == 1 and op.parent is self.root.parent and shape_of(op.results[0]) == self.shape

    def borders(self) -> list[tuple[int, int]] | None:
        """Return the number of elements at each end of each axis that read padding; None if peeling gains nothing."""
        if len(self.ops) > _MAX_STENCIL_OPS or any(type(op).broadcast is not Elementwise.broadcast for op in self.ops):
            return None
        whole = tuple((0, n) for n in self.shape)
        leaves = {v for op in self.ops for v in op.operands if v.owner not in self.ops and shape_of(v) == self.shape}
        cuts = _Cuts([set() for _ in whole])
        for leaf in leaves:
            cuts.visit(leaf, whole, [0] * len(whole))
        # A tensor that is read at one position only needs no copy: its producer writes to the inside of the padded tensor.
        if not any(1 < len(boxes) <= _MAX_STENCIL_READS for boxes in cuts.reads.values()):
            return None
        borders = [
            (max((p for p in axis if 2 * p <= n), default=0), max((n - p for p in axis if 2 * p > n), default=0))
            for axis, n in zip(cuts.positions, self.shape, strict=True)
        ]
        percent = sum(100 * (a + b) / n for (a, b), n in zip(borders, self.shape, strict=True))
        is_thin = all(max(side) <= _MAX_BORDER_ELEMENTS for side in borders) and percent <= _MAX_BORDER_PERCENT
        return borders if is_thin and any(a or b for a, b in borders) else None

    def peeled(self, borders: Sequence[tuple[int, int]]) -> SSAValue:
        """Insert the computations of the interior and the borders, and return their concatenation."""
        return self._joined(0, tuple((0, n) for n in self.shape), borders)

    def _joined(self, axis: int, box: Box, borders: Sequence[tuple[int, int]]) -> SSAValue:
        """Compute a box that is whole along the axes from `axis` on."""
        if axis == len(box):
            return self._computed(box)
        low, high = borders[axis]
        begin, end = box[axis]
        parts: list[SSAValue] = []
        for part, is_inner in (((begin, low), False), ((low, end - high), True), ((end - high, end), False)):
            if part[0] < part[1]:
                inner = (*box[:axis], part, *box[axis + 1 :])
                parts.append(self._joined(axis + 1, inner, borders) if is_inner else self._computed(inner))
        return parts[0] if len(parts) == 1 else DlBuilder(self.root)(ConcatOp, *parts, axis=axis)

    def _computed(self, box: Box) -> SSAValue:
        """Insert copies of the ops for a box of their results."""
        copies: dict[SSAValue, SSAValue] = {}
        builder = DlBuilder(self.root)

        def operand(value: SSAValue) -> SSAValue:
            if value not in copies:
                copies[value] = _sliced_operand(builder, value, box)
            return copies[value]

        assert self.root.parent is not None
        for op in self.root.parent.ops:
            if op in self.ops:
                with builder.at_location(op.location):
                    copies[op.results[0]] = _copy_with_operands(builder, cast(Elementwise, op), list(map(operand, op.operands)))
            if op is self.root:
                break
        return copies[self.root.results[0]]


@dataclass
class _Cuts:
    """The positions, on each axis of a result, at which its operands pass from padding to the padded tensor.

    `reads` are the boxes that are read of each padded tensor.
    """

    positions: list[set[int]]
    reads: dict[SSAValue, set[Box]] = field(default_factory=dict[SSAValue, "set[Box]"])

    def visit(self, value: SSAValue, box: Box, offsets: Sequence[int]) -> None:
        """Add the cuts of a box of a value; the element 0 of the value is at these offsets of the result."""
        match value.owner:
            case SliceOp() as op if all(s == 1 for s in ints(op.strides)) and is_static(sizes(op.starts)):
                starts = cast("Sequence[int]", sizes(op.starts))
                self.visit(op.x, _shifted(box, starts), [o - s for o, s in zip(offsets, starts, strict=True)])
            case PadOp() | ConcatOp() as op:
                if (padded := _center(op)) is not None:
                    self._visit_padded(op, *padded, box, offsets)
            case Elementwise() as op if _is_recomputed(value):
                for operand in op.operands:
                    if shape_of(operand) == shape_of(value):
                        self.visit(operand, box, offsets)
            case _:
                pass

    def _visit_padded(self, op: PadOp | ConcatOp, center: SSAValue, placed: Box, box: Box, offsets: Sequence[int]) -> None:
        inner = _intersection(box, placed)
        for positions, offset, (first, last), ends in zip(self.positions, offsets, box, placed, strict=True):
            positions.update(offset + end for end in ends if first < end < last)
        if any(a >= b for a, b in inner):
            return
        starts = [begin for begin, _ in placed]
        inside = _shifted(inner, [-begin for begin in starts])
        if _is_in_memory(center):
            self.reads.setdefault(center, set()).add(_shifted(box, [-begin for begin in starts]))
        self.visit(center, inside, [o + begin for o, begin in zip(offsets, starts, strict=True)])


def _center(op: PadOp | ConcatOp) -> tuple[SSAValue, Box] | None:
    """Return the tensor that an op pads, and the box that it takes in the result; None if the op does not pad."""
    if not is_static(shape_of(op.result)):
        return None
    if isinstance(op, PadOp):
        shape = cast("tuple[int, ...]", shape_of(op.x))
        if op.mode != "constant" or any(n < 0 for side in op.padding for n in side):
            return None
        return op.x, tuple((low, low + n) for (low, _), n in zip(op.padding, shape, strict=True))
    axis = op.concat_axis
    extents = [cast(int, shape_of(v)[axis]) for v in op.values]
    widest = max(extents)
    if sum(extents) - widest > 2 * _MAX_BORDER_ELEMENTS:
        return None
    k = extents.index(widest)
    begin = sum(extents[:k])
    shape = cast("tuple[int, ...]", shape_of(op.result))
    return op.values[k], tuple((begin, begin + widest) if a == axis else (0, n) for a, n in enumerate(shape))


def _is_in_memory(value: SSAValue) -> bool:
    """Return whether a tensor is stored in addition to its padded copy, or is recomputed."""
    owner = value.owner
    if isinstance(owner, SliceOp):
        return _is_in_memory(owner.x)
    return isinstance(owner, Block | PadOp | ConcatOp) or not value.has_one_use() or _is_recomputed(value)


def _is_recomputed(value: SSAValue, depth: int = _MAX_RECOMPUTED_DEPTH) -> bool:
    """Return whether slices of a value are computed from slices of its operands."""
    owner = value.owner
    if not isinstance(owner, _RECOMPUTED):
        return False
    return depth > 0 and all(not isinstance(v.owner, Elementwise) or _is_recomputed(v, depth - 1) for v in owner.operands)


def _sliced(builder: DlBuilder, value: SSAValue, box: Box) -> SSAValue:
    """Return a box of a value, read from the tensors that it pads or concatenates."""
    if box == tuple((0, n) for n in shape_of(value)) and not (_is_thin(box) and _is_recomputed(value)):
        return value
    match value.owner:
        case SliceOp() as op if all(s == 1 for s in ints(op.strides)) and is_static(sizes(op.starts)):
            return _sliced(builder, op.x, _shifted(box, cast("Sequence[int]", sizes(op.starts))))
        case PadOp() as op if _center(op) is not None:
            return _sliced_pad(builder, op, box)
        case ConcatOp() as op:
            return _sliced_concat(builder, op, box)
        case Elementwise() as op if _is_recomputed(value):
            return _copy_with_operands(builder, op, [_sliced_operand(builder, v, box) for v in op.operands])
        case _:
            starts, limits = zip(*box, strict=True)
            return builder(SliceOp, value, starts=starts, limits=limits, strides=[1] * len(box))


def _sliced_operand(builder: DlBuilder, value: SSAValue, box: Box) -> SSAValue:
    """Return what a box of an elementwise result needs of an operand, which may be broadcast."""
    shape = shape_of(value)
    own = zip(shape, box[len(box) - len(shape) :], strict=True)
    return _sliced(builder, value, tuple((0, 1) if n == 1 else part for n, part in own))


def _is_thin(box: Box) -> bool:
    return any(end - begin <= _MAX_BORDER_ELEMENTS for begin, end in box)


def _copy_with_operands(builder: DlBuilder, op: Elementwise, operands: Sequence[SSAValue]) -> SSAValue:
    """Insert a copy of an op with other operands. For x + zero padding return x, which may change the sign of zeros."""
    if isinstance(op, AddOp):
        terms = [v for v in operands if not _is_zero_padding(v)] or operands[:1]
        if len(terms) == 1 and shape_of(terms[0]) == shape_of(operands[0]) == shape_of(operands[1]):
            return terms[0]
    return builder(type(op), *operands, **op.properties)


def _is_zero_padding(value: SSAValue) -> bool:
    return isinstance(value.owner, BroadcastToOp) and splat(value.owner.x) == 0


def _sliced_pad(builder: DlBuilder, op: PadOp, box: Box) -> SSAValue:
    center = _center(op)
    assert center is not None
    x, placed = center
    inner = _intersection(box, placed)
    if any(a >= b for a, b in inner):
        return builder(BroadcastToOp, op.value, shape=[b - a for a, b in box])
    part = _sliced(builder, x, _shifted(inner, [-c for c, _ in placed]))
    low, high = ([abs(i[side] - o[side]) for i, o in zip(inner, box, strict=True)] for side in (0, 1))
    return builder(PadOp, part, op.value, low=low, high=high) if any(low) or any(high) else part


def _sliced_concat(builder: DlBuilder, op: ConcatOp, box: Box) -> SSAValue:
    axis, begin = op.concat_axis, 0
    parts: list[SSAValue] = []
    first, last = box[axis]
    for v in op.values:
        end = begin + cast(int, shape_of(v)[axis])
        if max(first, begin) < min(last, end):
            own = (max(first, begin) - begin, min(last, end) - begin)
            parts.append(_sliced(builder, v, (*box[:axis], own, *box[axis + 1 :])))
        begin = end
    return parts[0] if len(parts) == 1 else builder(ConcatOp, *parts, axis=axis)


def _intersection(box: Box, other: Box) -> Box:
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, other, strict=True))


def _shifted(box: Box, offsets: Sequence[int]) -> Box:
    return tuple((a + n, b + n) for (a, b), n in zip(box, offsets, strict=True))

"""Merge zero paddings of one tensor, such as the shifted cotangents of a stencil."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.elementwise import AddOp, NegOp, SubOp
from dlc.dialects.dl.base import ints, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.ir import Block, Context, ModuleOp, ModulePass, SSAValue, ops_of
from dlc.passes.dl.rewriting import defining_op, program_blocks, replace, rewrite_forward, splat
from dlc.shapes.dims import is_static

# Maximum added elements per axis, so that the merged padding is hardly larger than each of its parts.
_MAX_ADDED_ELEMENTS = 8


@dataclass(frozen=True)
class MergePadsPass(ModulePass):
    """`merge-pads`: replaces several zero paddings of a tensor by slices of one.

        %a = dl.pad %d {low = [1], high = [0]};  %b = dl.pad %d {low = [0], high = [1]}
    →   %p = dl.pad %d {low = [1], high = [1]};  %a = dl.slice %p[0, n);  %b = dl.slice %p[1, n + 1)

    The gradient of a stencil sums cotangents that are padded on different sides. Merged, each cotangent is stored once, and
    the sum reads it at shifted positions, in one pass. `x + pad(-d)` becomes `x - pad(d)`, which may change the sign of zeros.
    """

    name = "merge-pads"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            rewrite_forward(block, _subtract_padded, AddOp)
            for pads in list(_groups(block)):
                _merge(pads)


def _subtract_padded(op: AddOp) -> Sequence[SSAValue] | None:
    """x + pad(-d) = x - pad(d)"""
    for x, padded in ((op.operands[0], op.operands[1]), (op.operands[1], op.operands[0])):
        pad = defining_op(padded, PadOp)
        negation = defining_op(pad.x, NegOp) if pad is not None and _pads_zeros(pad) else None
        if pad is not None and negation is not None and padded.has_one_use():
            build = DlBuilder(op)
            positive = build(PadOp, negation.operands[0], pad.value, low=ints(pad.low), high=ints(pad.high))
            return [build(SubOp, x, positive)]
    return None


def _pads_zeros(pad: PadOp) -> bool:
    return pad.mode == "constant" and splat(pad.value) == 0 and is_static(shape_of(pad.x))


def _groups(block: Block) -> Iterator[list[PadOp]]:
    """Yield the zero paddings of each tensor that has several different ones."""
    pads: dict[SSAValue, list[PadOp]] = {}
    for pad in ops_of(block, PadOp):
        if _pads_zeros(pad) and all(0 <= n <= _MAX_ADDED_ELEMENTS for sides in pad.padding for n in sides):
            pads.setdefault(pad.x, []).append(pad)
    yield from (group for group in pads.values() if len({tuple(p.padding) for p in group}) > 1)


def _merge(pads: Sequence[PadOp]) -> None:
    first = pads[0]
    low, high = ([max(p.padding[a][side] for p in pads) for a in range(len(first.padding))] for side in (0, 1))
    merged = DlBuilder(first)(PadOp, first.x, first.value, low=low, high=high)
    for pad in pads:
        starts = [whole - own for whole, (own, _) in zip(low, pad.padding, strict=True)]
        limits = [start + size for start, size in zip(starts, shape_of(pad.result), strict=True)]
        replace(pad, [DlBuilder(pad)(SliceOp, merged, starts=starts, limits=limits, strides=[1] * len(starts))])

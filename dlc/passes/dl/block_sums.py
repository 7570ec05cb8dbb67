"""Long sums as sums of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.base import DlOp, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.conversion import CastOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.elementwise import AddOp
from dlc.dialects.dl.movement import ReshapeOp, SliceOp
from dlc.dialects.dl.reduction import ReduceSumOp
from dlc.dims import is_static
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, bf16, f16, f32
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward

# Terms of a block, and of a sum that is left whole: along memory, where a vector of accumulators shares the terms; and across.
_ALONG, _ACROSS = (1024, 4096), (512, 16384)
# Blocks of fewer terms are not worth a pass over memory.
_LEAST = 16


@dataclass(frozen=True)
class BlockSumsPass(ModulePass):
    """`block-sums`: a sum of many floats as the sum of the sums of its blocks, again and again.

        %s = dl.reduce_sum %x : [1000000]
    →   %b = dl.reshape %x : [250, 4000];  %p = dl.reduce_sum %b along 1;  %s = dl.reduce_sum %p

    What one accumulator adds up loses about the last bit of the sum with each term, and grows no more from 2^24 equal terms
    on. In blocks the error grows with the logarithm of the length, and the blocks are tasks of their own. Sums of f16 and bf16
    are rounded once, at the end. Sums whose length is open stay as they are.
    """

    name = "block-sums"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            rewrite_forward(block, _blocked)


def _blocked(op: DlOp) -> Sequence[SSAValue] | None:
    if not isinstance(op, ReduceSumOp) or not is_float(op.element):
        return None
    x, shape, axes = op.x, shape_of(op.x), op.reduction_axes
    if not is_static(shape):
        return None
    block, limit = _ALONG if rank_of(x) - 1 in axes else _ACROSS
    if prod(int(shape[a]) for a in axes) <= limit:
        return None
    b, element = Build(op), op.element
    if element in (f16, bf16):
        wide = b(ReduceSumOp, b(CastOp, x, to=f32), axes=axes, keepdims=op.keeps_axes)
        return [b(CastOp, wide, to=element)]
    # The last axes are whole in a block; the one that is too long for it is cut.
    cut, room = len(axes) - 1, block
    while int(shape[axes[cut]]) <= room:
        room //= int(shape[axes[cut]])
        cut -= 1
    axis, inner = axes[cut], axes[cut + 1 :]
    size = int(shape[axis])
    part = next(p for p in range(room, 0, -1) if size % p == 0)
    if part < _LEAST and inner:
        sums = b(ReduceSumOp, x, axes=inner, keepdims=True)
        total = b(ReduceSumOp, sums, axes=axes[: cut + 1], keepdims=True)
        return [b(ReshapeOp, total, shape=shape_of(op.result))]
    if part >= _LEAST:
        blocks = b(ReshapeOp, x, shape=(*shape[:axis], size // part, part, *shape[axis + 1 :]))
        sums = b(ReduceSumOp, blocks, axes=[axis + 1, *(a + 1 for a in inner)], keepdims=True)
        sums = b(ReshapeOp, sums, shape=[size // part if a == axis else 1 if a in inner else n for a, n in enumerate(shape)])
        total = b(ReduceSumOp, sums, axes=axes[: cut + 1], keepdims=True)
        return [b(ReshapeOp, total, shape=shape_of(op.result))]
    # No number of blocks divides the axis: what is left over is a sum of its own.
    parts = (_between(b, x, axis, low, high) for low, high in ((0, size - size % room), (size - size % room, size)))
    return [b(AddOp, *(b(ReduceSumOp, v, axes=axes, keepdims=op.keeps_axes) for v in parts))]


def _between(b: Build, x: SSAValue, axis: int, low: int, high: int) -> SSAValue:
    shape = shape_of(x)
    starts = [low if a == axis else 0 for a in range(len(shape))]
    limits = [high if a == axis else size for a, size in enumerate(shape)]
    return b(SliceOp, x, starts=starts, limits=limits, strides=[1] * len(shape))

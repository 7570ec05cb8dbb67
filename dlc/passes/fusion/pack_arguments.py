"""Arguments in the order in which a contraction's register tiles read them."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from dlc.arrays import ALIGNMENT
from dlc.dialects.dl.base import DlOp, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.movement.packing import UnpackOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.ir import Attribute, BlockArgument, SSAValue
from dlc.passes.fusion.arguments import Arguments
from dlc.target import Target


def crowd(target: Target, element: Attribute, rows: int, width: int, vectors: int) -> bool:
    """Whether panels of so many vectors, of rows side by side, crowd a part of the nearest cache's sets.

    Where those are fewer than half, or lines come one by one instead of in pairs, as a cache asks for them, it holds a panel
    only where it holds all of the rows.
    """
    machine, size = target.machine, numpy_dtype(element).itemsize
    panel = min(vectors * target.lanes(max(4, size)), width) * size
    apart = panel < 2 * ALIGNMENT or 2 * panel < gcd(machine.way_bytes, width * size)
    return apart and rows * width * size > machine.cache_ways * machine.way_bytes


def pack(arguments: Arguments, argument: BlockArgument, axis: int, most: int, reader: DlOp) -> None:
    """Gives an argument in panels of up to `most` elements of an axis, which the kernel unpacks before `reader`."""
    length = int(shape_of(argument)[axis])
    tile = min(most, length)
    source, order = arguments.untransposed(argument)
    packed = _packed(arguments, source, [*order[:axis], *order[axis + 1 :], order[axis]], tile)
    batch = rank_of(argument) - 2

    def unpacked(inner: SSAValue) -> SSAValue:
        b = Build(reader)
        tiles = b(TransposeOp, inner, permutation=(batch, *range(batch), batch + 1, batch + 2))
        return b(UnpackOp, tiles, axis=axis, tile=tile, size=length)

    arguments.replace(argument, packed, unpacked)


def _packed(arguments: Arguments, source: SSAValue, order: Sequence[int], tile: int) -> SSAValue:
    """`source` with its axes in `order`, of which the last is split into tiles, filled up with zeros.

    The tiles of one product lie together: those of all products in turn would lie far apart, in the same sets of a cache.
    """
    axis = order[-1]
    shape = [int(s) for s in shape_of(source)]
    if missing := -shape[axis] % tile:
        high = [missing if a == axis else 0 for a in range(len(shape))]

        def pad(b: Build, x: SSAValue) -> SSAValue:
            return b(PadOp, x, b.scalar(0, like=x), low=[0] * len(shape), high=high, pad_mode="constant")

        source = arguments.made("pad", source, pad)
        shape[axis] += missing
    split = Build(arguments.dispatch)(ReshapeOp, source, shape=(*shape[:axis], shape[axis] // tile, tile, *shape[axis + 1 :]))
    *batch, row = (a + (a > axis) for a in order[:-1])
    return arguments.made("pack", split, lambda b, x: b(TransposeOp, x, permutation=(*batch, axis, row, axis + 1)))

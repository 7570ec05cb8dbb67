"""Pack arguments in the order in which a contraction's register tiles read them."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects.dl.base import DlOp, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.movement.packing import UnpackOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.ir import Attribute, BlockArgument, SSAValue
from dlc.passes.fusion.dispatch_arguments import DispatchArguments
from dlc.target import Target


def has_set_conflicts(target: Target, element: Attribute, rows: int, width: int, vectors: int) -> bool:
    """Return whether the L1 cache cannot hold a panel that is `vectors` vectors wide, because its rows share cache sets.

    This is the case if the rows use fewer than half of the sets, or if each row is only one line, since the hardware prefetches
    lines in pairs. There are no conflicts if the cache holds all rows completely.
    """
    costs, size = target.costs, numpy_dtype(element).itemsize
    panel_row_bytes = min(vectors * target.lanes(max(4, size)), width) * size
    is_sparse = panel_row_bytes < 2 * ALIGNMENT_BYTES or 2 * panel_row_bytes < gcd(costs.way_bytes, width * size)
    return is_sparse and rows * width * size > costs.l1_bytes


def pack_argument(arguments: DispatchArguments, argument: BlockArgument, axis: int, max_width: int, user: DlOp) -> None:
    """Pass an argument in panels of up to `max_width` elements along an axis; the kernel unpacks it before `user`."""
    length = int(shape_of(argument)[axis])
    tile = min(max_width, length)
    source, order = arguments.strip_transpose(argument)
    packed = _packed(arguments, source, [*order[:axis], *order[axis + 1 :], order[axis]], tile)
    num_batch_axes = rank_of(argument) - 2

    def unpack(packed_argument: SSAValue) -> SSAValue:
        build = DlBuilder(user)
        tiles = build(
            TransposeOp,
            packed_argument,
            permutation=(num_batch_axes, *range(num_batch_axes), num_batch_axes + 1, num_batch_axes + 2),
        )
        return build(UnpackOp, tiles, axis=axis, tile=tile, size=length)

    arguments.replace(argument, packed, unpack)


def _packed(arguments: DispatchArguments, source: SSAValue, order: Sequence[int], tile: int) -> SSAValue:
    """Return `source` with its axes in `order`, and the last one split into tiles, zero-padded.

    The tiles of one product are adjacent, since tiles interleaved with those of other products would map to the same
    cache sets.
    """
    axis = order[-1]
    shape = [int(s) for s in shape_of(source)]
    if padding := -shape[axis] % tile:
        high = [padding if a == axis else 0 for a in range(len(shape))]

        def pad(build: DlBuilder, x: SSAValue) -> SSAValue:
            return build(PadOp, x, build.scalar(0, like=x), low=[0] * len(shape), high=high, pad_mode="constant")

        source = arguments.insert_kernel("pad", source, pad)
        shape[axis] += padding
    split_source = DlBuilder(arguments.dispatch)(
        ReshapeOp, source, shape=(*shape[:axis], shape[axis] // tile, tile, *shape[axis + 1 :])
    )
    *num_batch_axes, row = (a + (a > axis) for a in order[:-1])
    return arguments.insert_kernel(
        "pack", split_source, lambda build, x: build(TransposeOp, x, permutation=(*num_batch_axes, axis, row, axis + 1))
    )

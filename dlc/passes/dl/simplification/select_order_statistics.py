"""Replace sorts of which only a few positions are read by selection of order statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.base import Array, ints, shape_of, sizes
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.library_kernels.sorting import SortOp, select_order_statistics
from dlc.dialects.dl.movement.indexing import GatherOp, wrap_and_clamp_indices
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.ir import Context, ModuleOp, ModulePass, Operation, i64, ops_of
from dlc.passes.dl.rewriting import defining_op, program_blocks, replace, users


@dataclass(frozen=True)
class SelectOrderStatisticsPass(ModulePass):
    """`select-order-statistics`: selects elements by rank, without sorting, if only a few constant positions are read.

        %s = dl.sort %x : [10000];  %a = dl.slice %s [4999:5000];  %b = dl.slice %s [5000:5001]
    →   %p = dl.partition (keys of %x) {kth = 4999}
        %a = (elements of) dl.slice %p [4999:5000];  %b = (elements of) dl.reduce_min (dl.slice %p [5000:10000])

    This is how medians and quantiles of long rows are computed: a partition reads the elements a few times in vectors, a radix
    sort moves each once per digit.
    """

    name = "select-order-statistics"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            for sort in ops_of(block, SortOp):
                _replace_sort(sort)


def _replace_sort(sort: SortOp) -> None:
    positions_by_user = {user: _read_positions(user, sort) for user in users(sort.result)}
    constant_positions = {user: positions for user, positions in positions_by_user.items() if positions is not None}
    ranks = np.unique([position for positions in constant_positions.values() for position in positions.flat]).tolist()
    selected = select_order_statistics(sort, ranks) if ranks and len(constant_positions) == len(positions_by_user) else None
    if selected is None:
        return
    for user, positions in constant_positions.items():
        build = DlBuilder(user)
        replace(
            user, [build(GatherOp, selected, build.constant(np.searchsorted(ranks, positions), i64), axis=sort.sorted_axis)]
        )


def _read_positions(user: Operation, sort: SortOp) -> Array | None:
    """Return the positions of the sorted axis that a user of the sort reads, in order; None if they are not constant."""
    shape, axis = shape_of(sort.x), sort.sorted_axis
    size = shape[axis]
    if not isinstance(size, int):
        return None
    if isinstance(user, SliceOp):
        bounds = list(zip(sizes(user.starts), sizes(user.limits), ints(user.strides), strict=True))
        low, high, step = bounds[axis]
        is_full_slice = all(a == axis or bound == (0, n, 1) for a, (bound, n) in enumerate(zip(bounds, shape, strict=True)))
        return np.arange(low, high, step) if is_full_slice and isinstance(low, int) and isinstance(high, int) else None
    if not isinstance(user, GatherOp) or user.x is not sort.result or user.indexed_axis != axis:
        return None
    indices = defining_op(user.indices, ConstantOp)
    return None if indices is None else wrap_and_clamp_indices(indices.evaluate()[0], size)

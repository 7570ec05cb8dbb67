"""What is sorted for a few of its places is not sorted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.base import Array, ints, shape_of, sizes
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.movement.indexing import GatherOp, clamped_places
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.dialects.dl.procedures.sorting import SortOp, of_ranks
from dlc.ir import Context, ModuleOp, ModulePass, Operation, i64, ops_of
from dlc.passes.dl.rewriting import defining, program_blocks, replace, users


@dataclass(frozen=True)
class SelectRanksPass(ModulePass):
    """`select-ranks`: where a few known places of a sorted axis are all that is read, they are found without sorting it.

        %s = dl.sort %x : [10000];  %a = dl.slice %s [4999:5000];  %b = dl.slice %s [5000:5001]
    →   %r = dl.of_ranks (keys of %x) {ranks = [4999, 5000]};  %a = dl.slice (elements of %r) [0:1];  %b = … [1:2]

    So medians and quantiles of long rows are computed: a sort goes through its elements once for each digit and puts them
    somewhere each time, where these are counted.
    """

    name = "select-ranks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            for sort in ops_of(block, SortOp):
                _select(sort)


def _select(sort: SortOp) -> None:
    read = {reader: _places_read(reader, sort) for reader in users(sort.result)}
    known = {reader: places for reader, places in read.items() if places is not None}
    ranks = np.unique([place for places in known.values() for place in places.flat]).tolist()
    found = of_ranks(sort, ranks) if ranks and len(known) == len(read) else None
    if found is None:
        return
    for reader, places in known.items():
        b = Build(reader)
        replace(reader, [b(GatherOp, found, b.constant(np.searchsorted(ranks, places), i64), axis=sort.sorted_axis)])


def _places_read(reader: Operation, sort: SortOp) -> Array | None:
    """The places of the sorted axis that an op reads, as it has them; None where they are not known, or it reads others too."""
    shape, axis = shape_of(sort.x), sort.sorted_axis
    size = shape[axis]
    if not isinstance(size, int):
        return None
    if isinstance(reader, SliceOp):
        bounds = list(zip(sizes(reader.starts), sizes(reader.limits), ints(reader.strides), strict=True))
        low, high, step = bounds[axis]
        whole = all(a == axis or bound == (0, n, 1) for a, (bound, n) in enumerate(zip(bounds, shape, strict=True)))
        return np.arange(low, high, step) if whole and isinstance(low, int) and isinstance(high, int) else None
    if not isinstance(reader, GatherOp) or reader.x is not sort.result or reader.indexed_axis != axis:
        return None
    indices = defining(reader.indices, ConstantOp)
    return None if indices is None else clamped_places(indices.evaluate()[0], size)

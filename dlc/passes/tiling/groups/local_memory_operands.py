"""Operands of a contraction in local memory: work-items fetch a chunk into registers, then store it for all work-items.

Other work between the fetch and the store hides the latency of the global loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.sizes import strides_of
from dlc.ir import SSAValue
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.buffer_views import BufferView, copy, subview
from dlc.passes.tiling.groups.work_group import WorkGroup
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile
from dlc.passes.tiling.loop_nests import NestOp
from dlc.passes.tiling.tile_body import LocalBuffer
from dlc.passes.types import memref_of
from dlc.shapes.dims import Size

# Legal numbers of contiguous elements per fetch.
_FETCH_WIDTHS = (1, 2, 4)
_PADDING_ELEMENTS = 4


@dataclass(frozen=True)
class _Fetch:
    """A fetch of `widths` elements at `source_offsets` by each work-item, stored to local memory at `local_offsets`.

    Along the reduced dimension source offsets are relative to the chunk. Only the first `items` work-items of the group
    take part.
    """

    source_offsets: Mapping[int, Index]
    local_offsets: Mapping[int, Index]
    widths: Mapping[int, int]
    items: int
    registers: SSAValue


class LocalMemoryOperand:
    """The elements of operand `k` of an op that a group needs, one chunk of the reduced dimension `reduced` at a time.

    `sizes` are the extents of a chunk and of the group's tile. `origin` is the group's offset along shared dimensions. Along
    dimensions in `ends` the group may exceed the extent: fetches outside of it read the last elements instead, and their
    products are not stored.
    """

    def __init__(
        self,
        group: WorkGroup,
        nest_op: NestOp,
        k: int,
        reduced: int,
        sizes: Mapping[int, int],
        origin: Mapping[int, Index],
        ends: Mapping[int, Size],
    ) -> None:
        self.group = group
        self.origin = origin
        self.ends = ends
        self.source = nest_op.operands[k]
        self.axes = nest_op.axes(k)
        self.sizes = {x: sizes.get(x, 1) for x in self.axes}
        # The reduced dimension is first, so that a register tile reads adjacent elements. If work-items fetch along it, they
        # store columns, so rows are padded against bank conflicts. Dimensions of size 1 are dropped: otherwise the padding
        # of an empty row would be stored.
        stored_dims = (x for x in self.axes if x == reduced or (x in sizes and self.sizes[x] > 1))
        dims = tuple(sorted(stored_dims, key=lambda x: x != reduced))
        shape = tuple(self.sizes[x] for x in dims)
        is_transposed = self.axes[-1] == reduced and len(dims) > 1
        padded_shape = (*shape[:-1], shape[-1] + _PADDING_ELEMENTS) if is_transposed else shape
        self.local = LocalBuffer(
            group.shared_buffer((nest_op.op, k), self.source, padded_shape, self.source.name_hint), dims, is_shared=True
        )
        self.reduced = reduced
        self._fetches: dict[int, list[_Fetch]] = {}

    def prepare(self, builder: OpBuilder, size: int) -> None:
        """Compute the fetch offsets of the work-items for chunks of `size` iterations, before the first of them is fetched."""
        self._fetches[size] = list(self._split_into_fetches(builder, {**self.sizes, self.reduced: size}))

    def fetch(self, builder: OpBuilder, chunk: Tile) -> None:
        """Fetch a chunk into the registers of the work-items; adjacent work-items read adjacent memory."""
        for fetch_builder, fetch in self._own_fetches(builder, chunk[self.reduced].size):
            reduced_offsets = {
                x: fetch_builder.add(r.offset, fetch.source_offsets[x]) for x, r in chunk.items() if x in fetch.source_offsets
            }
            offsets = {**fetch.source_offsets, **reduced_offsets}
            source = subview(fetch_builder, self.source, [(x, IterationRange(offsets[x], fetch.widths[x])) for x in self.axes])
            copy(fetch_builder, source, (fetch.registers, source[1]))

    def store(self, builder: OpBuilder, size: int) -> None:
        """Store a fetched chunk of `size` iterations to local memory."""
        for fetch_builder, fetch in self._own_fetches(builder, size):
            destination = subview(
                fetch_builder,
                self.local.buffer,
                [(x, IterationRange(fetch.local_offsets[x], fetch.widths[x])) for x in self.local.dims],
            )
            copy(fetch_builder, (fetch.registers, destination[1]), destination)

    def view(self, builder: OpBuilder, tile: Tile) -> BufferView:
        """Return the view that a register tile reads; offsets along the reduced dimension are relative to the chunk."""
        return subview(
            builder, self.local.buffer, [(x, IterationRange(tile[x].group_offset, tile[x].size)) for x in self.local.dims]
        )

    def _own_fetches(self, builder: OpBuilder, size: int) -> Iterator[tuple[OpBuilder, _Fetch]]:
        """Yield the fetches of a work-item, each with a builder, which is guarded if only some work-items do the fetch."""
        for fetch in self._fetches[size]:
            fetch_builder = builder
            if fetch.items < self.group.num_items:
                fetch_builder = fetch_builder.branch(fetch_builder.compare(self.group.linear_index, "ult", fetch.items))
            yield fetch_builder, fetch

    def _split_into_fetches(self, builder: OpBuilder, sizes: Mapping[int, int]) -> Iterator[_Fetch]:
        """Yield the fetches of a chunk of these sizes, each of a few adjacent elements per work-item."""
        lanes = self._fetch_width(sizes)
        widths = {x: lanes if x == self.axes[-1] else 1 for x in self.axes}
        counts = [sizes[x] // widths[x] for x in self.axes]
        element = memref_of(self.source).element_type
        for first in range(0, prod(counts), self.group.num_items):
            coordinates = zip(self.axes, delinearize(builder, self.group.linear_index, first, counts), strict=True)
            local_offsets = {x: builder.multiply(coordinate, widths[x]) for x, coordinate in coordinates}
            source_offsets = {x: self._clamped_offset(builder, x, start, widths[x]) for x, start in local_offsets.items()}
            name = f"{self.source.name_hint or 'x'}_next"
            registers = builder.alloca(element, (lanes,) if lanes > 1 else (), name)
            yield _Fetch(source_offsets, local_offsets, widths, min(self.group.num_items, prod(counts) - first), registers)

    def _clamped_offset(self, builder: OpBuilder, x: int, start: Index, width: int) -> Index:
        """Return the offset in the operand of a fetch at `start` in the group's tile, clamped to the extent."""
        offset = builder.add(self.origin.get(x, 0), start)
        if x not in self.ends:
            return offset
        return builder.minimum(offset, builder.subtract(builder.size(self.ends[x]), width))

    def _fetch_width(self, sizes: Mapping[int, int]) -> int:
        """Return the number of contiguous elements per fetch: a divisor of all row sizes, so that fetches are aligned."""
        *outer_strides, last = strides_of(self.source)
        inner = self.axes[-1]
        divisible = [sizes[inner], *outer_strides, *([self.ends[inner]] if inner in self.ends else [])]
        if last != 1 or not all(isinstance(size, int) for size in divisible):
            return 1
        return max(n for n in _FETCH_WIDTHS if all(int(size) % n == 0 for size in divisible))


def delinearize(builder: OpBuilder, linear_index: Index, offset: int, counts: Sequence[int]) -> list[Index]:
    """Return the coordinates of `linear_index + offset` in the row-major shape `counts`; the sum is in bounds."""
    coordinates: list[Index] = []
    stride = prod(counts)
    for count in reversed(counts):
        stride //= count
        if stride == 1:
            # The most significant coordinate that can be nonzero.
            coordinates.insert(0, builder.add(linear_index, offset))
            linear_index, offset = 0, 0
            continue
        if offset % count:
            linear_index, offset = builder.add(linear_index, offset), 0
        coordinates.insert(0, builder.remainder(linear_index, count))
        linear_index, offset = builder.floordiv(linear_index, count), offset // count
    return coordinates

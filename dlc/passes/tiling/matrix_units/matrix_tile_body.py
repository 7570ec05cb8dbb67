"""A contraction of packed operands on matrix units: the 32 work-items of a warp multiply matrices together.

    for k: barrier; local a, b = loaded words; barrier; load the next chunk of a, b; for i, j: c[i, j] += a[i] · b[j]

The work-items copy both operands to local memory, a few 32-bit words per load, in memory order: rows of `a`
are words along k, rows of `b` are words along columns. While work-items multiply one chunk, they load the next one into
registers. Local memory has the layout of `gpu.subgroup_matmul`: the four words of a work-item, of two rows of `a` or of
a column of `b`, are adjacent, followed by those of the next work-item. So a work-item loads the words of both rows of
`a`, or of the four rows of `b` that contain these words.

A partial tile is computed completely but only its valid part is stored: loads outside of an operand read its last row or
columns instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import cast

from dlc.dialects.matrix_multiply import (
    COLUMNS_PER_ITEM,
    ROWS_PER_ITEM,
    SUBGROUP_ITEMS,
    SUMS_PER_ITEM,
    TILE_COLUMNS,
    TILE_ROWS,
    TILE_WORDS,
    WORDS_PER_ITEM,
    SubgroupMatmulOp,
)
from dlc.ir import AffineDimExpr, AffineMap, Attribute, SSAValue, VectorType, f32, gpu, vector
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.buffer_views import copy
from dlc.passes.tiling.groups.group_tile_body import ItemTileBody
from dlc.passes.tiling.groups.local_memory_operands import delinearize
from dlc.passes.tiling.groups.work_group import WorkGroup
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile
from dlc.passes.tiling.loop_nests import identity_of, promoted_contraction
from dlc.passes.tiling.matrix_units.matrix_products import matrix_product
from dlc.passes.tiling.matrix_units.matrix_unit_tiles import COLUMN_LOAD_WIDTHS, ITEMS_PER_ROW, MatrixUnitTiles
from dlc.passes.tiling.tile_body import LocalBuffer, axis_ranges
from dlc.passes.types import i64_array, vector_type

Values = Sequence[SSAValue]
# Local-memory layout of 16 rows of the first operand, and of 32 columns of the second: for each pair of words, or each of
# four columns, the words of all work-items.
_A_LAYOUT = (WORDS_PER_ITEM // 2, 8, ITEMS_PER_ROW, WORDS_PER_ITEM)
_B_LAYOUT = (COLUMNS_PER_ITEM, 8, ITEMS_PER_ROW, WORDS_PER_ITEM)
# The map of a vector load of a work-item's words of all pairs (or columns).
_ITEM_WORDS_MAP = AffineMap(5, 0, (AffineDimExpr(1), AffineDimExpr(4)))


class MatrixTileBody(ItemTileBody):
    """A contraction on the tile of a work-group, and the ops after it."""

    def __init__(self, group: WorkGroup, plan: MatrixUnitTiles, group_tile: Tile) -> None:
        nest, shared_buffer = group.nest, group.shared_buffer
        nest_op = promoted_contraction(nest)
        assert nest_op is not None
        product = matrix_product(nest_op, nest)
        assert product is not None
        super().__init__(
            nest, plan, {**dict.fromkeys(group_tile, IterationRange(0, 1)), product.column: IterationRange(0, SUMS_PER_ITEM)}
        )
        self.contraction, self.product, self.plan, self.linear_index = nest_op, product, plan, group.linear_index
        self.origin = {d: r.offset for d, r in group_tile.items()}
        a, b = (nest_op.operands[k] for k in (product.a, product.b))
        self.a = shared_buffer((nest_op.op, product.a), a, (self.plan.rows // TILE_ROWS, *_A_LAYOUT), a.name_hint)
        self.b = shared_buffer((nest_op.op, product.b), b, (self.plan.columns // TILE_COLUMNS, *_B_LAYOUT), b.name_hint)

    def run(self, builder: OpBuilder) -> None:
        nest_op = self.contraction
        op_builder = builder.with_location(nest_op.op.location)
        self.make_locals(builder, excluded=(nest_op.output.root,))
        zero = op_builder.splat(identity_of(nest_op, self.nest), (SUMS_PER_ITEM,))
        self.emit_epilogue(op_builder, self.accumulate(op_builder, [zero for _ in self.accumulator_positions(op_builder)]))

    # Distribution over work-items

    def item_position(self, builder: OpBuilder) -> tuple[Index, Index, Index, Index]:
        """Return the position of a work-item in the group's tile.

        The result is the first row and column of its warp, and the work-item's row g and column t in the warp.
        """
        plan = self.plan
        warp_index, item = (
            builder.floordiv(self.linear_index, SUBGROUP_ITEMS),
            builder.remainder(self.linear_index, SUBGROUP_ITEMS),
        )
        warps_per_row = plan.columns // plan.warp_columns
        warp_row, warp_column = builder.floordiv(warp_index, warps_per_row), builder.remainder(warp_index, warps_per_row)
        g, t = builder.floordiv(item, ITEMS_PER_ROW), builder.remainder(item, ITEMS_PER_ROW)
        return builder.multiply(warp_row, plan.warp_rows), builder.multiply(warp_column, plan.warp_columns), g, t

    def accumulator_positions(self, builder: OpBuilder) -> Iterator[tuple[Index, Index]]:
        """Yield the row and first column, in the group's tile, of each accumulator vector of a work-item."""
        row, column, g, t = self.item_position(builder)
        row, column = builder.add(row, g), builder.add(column, builder.multiply(t, SUMS_PER_ITEM))
        for i in range(0, self.plan.warp_rows, TILE_ROWS):
            for j in range(0, self.plan.warp_columns, TILE_COLUMNS):
                for h in range(0, TILE_ROWS, TILE_ROWS // ROWS_PER_ITEM):
                    yield builder.add(row, i + h), builder.add(column, j)

    def row_indices(self, builder: OpBuilder, row: Index) -> dict[int, Index]:
        """Return the index along each row dimension of a row of the group's tile.

        Rows after the last one continue the outermost dimension.
        """
        counts = [self.plan.grid[d] for d in self.product.rows]
        counts[0] = max(counts[0], -(-self.plan.rows // prod(counts[1:])))
        coordinates = delinearize(builder, row, 0, counts)
        return {d: builder.add(self.origin[d], i) for d, i in zip(self.product.rows, coordinates, strict=True)}

    def has_remainder(self, d: int) -> bool:
        """Return whether the last group has a partial tile along a dimension."""
        return self.nest.extents[d] % self.plan.grid[d] != 0

    # Accumulation

    def accumulate(self, builder: OpBuilder, accumulators: Values) -> Values:
        """Accumulate all chunks of the reduction; packed words are its innermost dimension."""
        outer_reductions = [d for d in self.contraction.dims if d in self.contraction.reductions and d != self.product.words]
        iteration_counts = [
            *(self.nest.extents[d] for d in outer_reductions),
            self.nest.extents[self.product.words] // TILE_WORDS,
        ]

        def load_chunk(chunk_builder: OpBuilder, chunk: Index) -> Values:
            *coordinates, step = delinearize(chunk_builder, chunk, 0, iteration_counts)
            return self.load_operands(
                chunk_builder, dict(zip(outer_reductions, coordinates, strict=True)), chunk_builder.multiply(step, TILE_WORDS)
            )

        loop = builder.loop(0, prod(iteration_counts), 1, [*accumulators, *load_chunk(builder, 0)], name="part")
        body_builder, (chunk, *carried) = builder.at_block_end(loop.body.block), loop.body.block.args
        body_builder.insert(gpu.BarrierOp())
        self.store_to_local(body_builder, carried[len(accumulators) :])
        body_builder.insert(gpu.BarrierOp())
        # Load the last chunk once more, which avoids a branch.
        next_operands = load_chunk(body_builder, body_builder.minimum(body_builder.add(chunk, 1), prod(iteration_counts) - 1))
        body_builder.yield_(*self.multiply(body_builder, carried[: len(accumulators)]), *next_operands)
        return loop.res[: len(accumulators)]

    def item_loads(self, builder: OpBuilder, count: int, *sizes: int) -> Iterator[list[Index]]:
        """Yield the coordinates of each load of a work-item, out of `count` loads of the group."""
        for k in range(0, count, self.plan.num_items):
            yield delinearize(builder, self.linear_index, k, [count // prod(sizes), *sizes])

    def row_loads(self, builder: OpBuilder) -> Iterator[tuple[Index, Index, Index]]:
        """Yield for each load of `a`: the block of 16 rows, the first row of the pair (8 apart) in it, and the first word."""
        width = self.plan.words_per_load
        for block, g, word in self.item_loads(builder, self.plan.rows * TILE_WORDS // (2 * width), 8, TILE_WORDS // width):
            yield block, g, builder.multiply(word, width)

    def column_loads(self, builder: OpBuilder) -> Iterator[tuple[Index, Index]]:
        """Yield for each load of `b`: the first column, and the first of the four words."""
        width = self.column_load_width()
        for column, t in self.item_loads(builder, self.plan.columns // width * ITEMS_PER_ROW, ITEMS_PER_ROW):
            yield builder.multiply(column, width), builder.multiply(t, WORDS_PER_ITEM)

    def column_load_width(self) -> int:
        """Return the number of adjacent columns per load, for which no load crosses the end of a row."""
        max_width = self.plan.columns_per_load
        return next(n for n in COLUMN_LOAD_WIDTHS if n <= max_width and self.nest.extents[self.product.column] % n == 0)

    def load_operands(self, builder: OpBuilder, outer_indices: Mapping[int, Index], word: Index) -> Values:
        """Load the operand elements that a work-item copies, for the chunk that begins at `word`."""
        column, words, loaded = self.product.column, self.product.words, list[SSAValue]()
        for block, g, first_word in self.row_loads(builder):
            for row_offset in range(0, TILE_ROWS, TILE_ROWS // ROWS_PER_ITEM):
                row = builder.add(builder.add(builder.multiply(block, TILE_ROWS), g), row_offset)
                row_indices = {d: self.clamp_index(builder, d, i, 1) for d, i in self.row_indices(builder, row).items()}
                indices = {**row_indices, words: builder.add(word, first_word)}
                loaded.append(self.load(builder, self.product.a, {**outer_indices, **indices}, words, self.plan.words_per_load))
        for first_column, first_word in self.column_loads(builder):
            clamped_column = self.clamp_index(
                builder, column, builder.add(self.origin[column], first_column), self.column_load_width()
            )
            for k in range(WORDS_PER_ITEM):
                indices = {words: builder.add(builder.add(word, first_word), k), column: clamped_column}
                loaded.append(
                    self.load(builder, self.product.b, {**outer_indices, **indices}, column, self.column_load_width())
                )
        return loaded

    def load(self, builder: OpBuilder, k: int, indices: Mapping[int, Index], lane: int, width: int) -> SSAValue:
        """Load `width` elements of an operand along a dimension."""
        ranges = {d: IterationRange(i, 1) for d, i in {**self.origin, **indices}.items()}
        axes = self.contraction.axes(k)
        lane_map = AffineMap(len(axes), 0, (AffineDimExpr(axes.index(lane)),))
        offsets = [r.offset for _, r in axis_ranges(builder, self.contraction, k, ranges)]
        return builder.transfer_read(self.contraction.operands[k], offsets, (width,), lane_map)

    def clamp_index(self, builder: OpBuilder, d: int, start: Index, width: int) -> Index:
        """Return an index along a dimension, clamped to the last legal one if it may exceed it."""
        plan, grid = self.plan, self.plan.grid
        may_exceed_outermost = d == plan.row_dims[0] and prod(grid[x] for x in plan.row_dims) < plan.rows
        may_exceed = may_exceed_outermost or self.has_remainder(d) or (d == plan.column and grid[d] < plan.columns)
        return builder.minimum(start, self.nest.extents[d] - width) if may_exceed else start

    def store_to_local(self, builder: OpBuilder, loaded: Values) -> None:
        """Store a work-item's loaded vectors to local memory."""
        remaining, width = list(loaded), self.plan.words_per_load
        for block, g, first_word in self.row_loads(builder):
            t, half = (
                builder.floordiv(first_word, WORDS_PER_ITEM),
                builder.floordiv(builder.remainder(first_word, WORDS_PER_ITEM), 2),
            )
            loads, remaining = remaining[:ROWS_PER_ITEM], remaining[ROWS_PER_ITEM:]
            for s, value in enumerate(self.interleave(builder, loads)):
                builder.transfer_write(value, self.a, [block, s if width == WORDS_PER_ITEM else half, g, t, 0], _lane(5))
        for column, first_word in self.column_loads(builder):
            loads, remaining = remaining[:WORDS_PER_ITEM], remaining[WORDS_PER_ITEM:]
            block, column_in_tile = builder.floordiv(column, TILE_COLUMNS), builder.remainder(column, TILE_COLUMNS)
            g, j = builder.floordiv(column_in_tile, COLUMNS_PER_ITEM), builder.remainder(column_in_tile, COLUMNS_PER_ITEM)
            t = builder.floordiv(first_word, WORDS_PER_ITEM)
            for c, value in enumerate(self.interleave(builder, loads)):
                builder.transfer_write(value, self.b, [block, builder.add(j, c), g, t, 0], _lane(5))

    def interleave(self, builder: OpBuilder, loads: Values) -> Values:
        """Return vectors of four words: the first words of two or four loads, then the second ones, and so on."""
        (width,), results = cast("VectorType[Attribute]", loads[0].type).get_shape(), list[SSAValue]()

        def interleaved(a: SSAValue, b: SSAValue, start: int, count: int) -> SSAValue:
            return shuffle(builder, a, b, [k for i in range(start, start + count) for k in (i, width + i)])

        first, second, *remaining = loads
        for k in range(0, width, 1 if remaining else 2):
            if remaining:
                halves = interleaved(first, second, k, 1), interleaved(remaining[0], remaining[1], k, 1)
                results.append(shuffle(builder, *halves, range(WORDS_PER_ITEM)))
            else:
                results.append(interleaved(first, second, k, 2))
        return results

    def multiply(self, builder: OpBuilder, sums: Values) -> Values:
        """Return the accumulators after adding the products of the chunk in local memory."""
        first_row, first_column, g, t = self.item_position(builder)
        block, column_tile = builder.floordiv(first_row, TILE_ROWS), builder.floordiv(first_column, TILE_COLUMNS)

        def load(buffer: SSAValue, tile_index: Index, num_vectors: int) -> SSAValue:
            return builder.transfer_read(buffer, [tile_index, 0, g, t, 0], (num_vectors, WORDS_PER_ITEM), _ITEM_WORDS_MAP)

        b_vectors = [
            load(self.b, builder.add(column_tile, j), COLUMNS_PER_ITEM) for j in range(self.plan.warp_columns // TILE_COLUMNS)
        ]
        results: list[SSAValue] = []
        for i in range(self.plan.warp_rows // TILE_ROWS):
            a_vector = load(self.a, builder.add(block, i), ROWS_PER_ITEM)
            for b_vector in b_vectors:
                accumulators = sums[len(results)], sums[len(results) + 1]
                results += builder.insert(SubgroupMatmulOp.of(a_vector, b_vector, accumulators, self.product.dot)).results
        return results

    # Epilogue

    def emit_epilogue(self, builder: OpBuilder, sums: Values) -> None:
        """Run the ops after the contraction (or only a store) on each accumulator vector inside the extents."""
        nest_op, column = self.contraction, self.product.column
        root, is_local = nest_op.output.root, nest_op.output.root in self.nest.local_buffers()
        buffer = builder.alloca(f32, (SUMS_PER_ITEM,), root.name_hint)
        following_ops = self.nest.ops[self.nest.ops.index(nest_op) + 1 :]
        if is_local:
            self.local_buffers[root] = LocalBuffer(buffer, (column,))
        group_position = {d: IterationRange(i, 1) for d, i in self.origin.items()}
        for (row, first_column), value in zip(list(self.accumulator_positions(builder)), sums, strict=True):
            for store_builder, tile in self.stored_tiles(builder, row, first_column):
                store_builder.transfer_write(value, buffer, [0], _lane(1))
                tile = {**self.tile, **group_position, **tile}
                if not is_local:
                    view = self.subview(store_builder, buffer, [(column, IterationRange(0, tile[column].size))])
                    copy(store_builder, view, self.output_view(store_builder, nest_op, tile))
                self.emit_nest_ops(store_builder, following_ops, tile)

    def stored_tiles(self, builder: OpBuilder, row: Index, first_column: Index) -> Iterator[tuple[OpBuilder, Tile]]:
        """Yield a builder, guarded if the tile is partial, and the ranges of an accumulator vector to store."""
        plan, column = self.plan, self.product.column
        rows = prod(plan.grid[d] for d in plan.row_dims)
        if rows < plan.rows:
            builder = builder.branch(builder.compare(row, "ult", rows))
        row_indices, column_index = self.row_indices(builder, row), builder.add(self.origin[column], first_column)
        for d, i in row_indices.items():
            if self.has_remainder(d):
                builder = builder.branch(builder.compare(i, "ult", self.nest.extents[d]))
        tile, extent = {d: IterationRange(i, 1) for d, i in row_indices.items()}, self.nest.extents[column]
        if extent % plan.columns == 0:
            yield builder, {**tile, column: IterationRange(column_index, SUMS_PER_ITEM)}
            return
        remainder = extent % SUMS_PER_ITEM
        for relation, size in (("ult", SUMS_PER_ITEM), ("eq", remainder)):
            if size and extent >= size:
                store_builder = builder.branch(builder.compare(column_index, relation, extent - remainder))
                yield store_builder, {**tile, column: IterationRange(column_index, size)}


def shuffle(builder: OpBuilder, a: SSAValue, b: SSAValue, order: Sequence[int]) -> SSAValue:
    """Return elements of two vectors in the given order; those of the first are numbered first."""
    t = cast("VectorType[Attribute]", a.type)
    properties = {"mask": i64_array(tuple(order))}
    result = vector_type((len(order),), t.element_type)
    return builder.op(vector.ShuffleOp.create(operands=[a, b], properties=properties, result_types=[result]))


def _lane(rank: int) -> AffineMap:
    """Return the map to the last of `rank` axes."""
    return AffineMap(rank, 0, (AffineDimExpr(rank - 1),))

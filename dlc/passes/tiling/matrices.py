"""A contraction of words by the matrix units of a device: 32 items of a group multiply matrices together.

    for k: barrier; local a, b = what was read; barrier; read the next part of a and b; for i, j: c[i, j] += a[i] · b[j]

All items bring parts of both operands to local memory, a few words at a time, as they lie: rows of `a` are of words along k, of
`b` along columns. While they multiply one part, the next one is on its way from memory to their registers. Local memory is laid
out for `gpu.multiply_words`: four words that an item has of two rows of `a`, or of a column of `b`, lie side by side, and
behind them those of its neighbour. So an item brings pieces of both of these rows, or of the four rows of `b` that have these
words.

What is ragged is computed for nothing: from outside of an operand its last row or columns are read instead, and what comes of
them is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import cast

from dlc.dialects.matrices import COLUMNS, ITEMS, OWN_COLUMNS, OWN_ROWS, OWN_SUMS, OWN_WORDS, ROWS, WORDS, MultiplyWordsOp
from dlc.ir import AffineDimExpr, AffineMap, Attribute, SSAValue, VectorType, f32, gpu, vector
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.group import Group
from dlc.passes.tiling.leaf import Leaf, Local, part_of
from dlc.passes.tiling.matrix_products import ACROSS, LANES, columns_at_once, matrix_product, words_at_once
from dlc.passes.tiling.nests import identity_of
from dlc.passes.tiling.plan import promoted_stage
from dlc.passes.tiling.promoted import digits
from dlc.passes.tiling.ranges import Range, Tile
from dlc.passes.tiling.structured_ops import operand_maps
from dlc.passes.tiling.windows import copy
from dlc.passes.types import i64s, vector_type

Values = Sequence[SSAValue]
# How local memory has 16 rows of the first operand, and 32 columns of the second: for each pair of words, or column of four,
# what items have of them.
_OF_A = (OWN_WORDS // 2, 8, ACROSS, OWN_WORDS)
_OF_B = (OWN_COLUMNS, 8, ACROSS, OWN_WORDS)
# What an item reads of them at once: its own words of all pairs, or columns.
_OWN = AffineMap(5, 0, (AffineDimExpr(1), AffineDimExpr(4)))


class MatrixLeaf(Leaf):
    """A contraction on the tile of a group, and the stages after it."""

    def __init__(self, group: Group, whole: Tile) -> None:
        nest, plan, shared = group.nest, group.plan, group.shared
        stage = promoted_stage(nest)
        assert stage is not None and plan.matrices is not None
        product = matrix_product(stage, nest)
        assert product is not None
        super().__init__(nest, plan, {**dict.fromkeys(whole, Range(0, 1)), product.column: Range(0, OWN_SUMS)})
        self.contraction, self.product, self.matrices, self.number = stage, product, plan.matrices, group.number
        self.origin = {d: r.offset for d, r in whole.items()}
        a, b = (stage.op.operands[k] for k in (product.a, product.b))
        self.a = shared((stage.op, product.a), a, (self.matrices.rows // ROWS, *_OF_A), a.name_hint)
        self.b = shared((stage.op, product.b), b, (self.matrices.columns // COLUMNS, *_OF_B), b.name_hint)

    def run(self, place: Place) -> None:
        stage, own = self.contraction, {d: r.size for d, r in self.tile.items()}
        at = place.located(stage.op.location)
        for root in self.local_roots():
            if root is not stage.output.root:
                self.make_local(place, root, own)
        zero = at.splat(identity_of(stage, self.nest), (OWN_SUMS,))
        self.finish(at, self.accumulated(at, [zero for _ in self.places(at)]))

    # Who has what

    def corner(self, place: Place) -> tuple[Index, Index, Index, Index]:
        """Where the part of an item's 32 begins in the group's tile, in rows and columns; and the item's g and t in it."""
        m = self.matrices
        part, item = place.floordiv(self.number, ITEMS), place.remainder(self.number, ITEMS)
        across = m.columns // m.right
        down, right = place.floordiv(part, across), place.remainder(part, across)
        g, t = place.floordiv(item, ACROSS), place.remainder(item, ACROSS)
        return place.multiply(down, m.down), place.multiply(right, m.right), g, t

    def places(self, place: Place) -> Iterator[tuple[Index, Index]]:
        """The row and the first column in the group's tile of each of an item's vectors of sums."""
        row, column, g, t = self.corner(place)
        row, column = place.add(row, g), place.add(column, place.multiply(t, OWN_SUMS))
        for i in range(0, self.matrices.down, ROWS):
            for j in range(0, self.matrices.right, COLUMNS):
                for h in range(0, ROWS, ROWS // OWN_ROWS):
                    yield place.add(row, i + h), place.add(column, j)

    def along(self, place: Place, row: Index) -> dict[int, Index]:
        """Where a row of the group's tile lies along its dimensions; one behind them has the last number of the outermost."""
        counts = [self.plan.grid[d] for d in self.product.rows]
        counts[0] = max(counts[0], -(-self.matrices.rows // prod(counts[1:])))
        places = digits(place, row, 0, counts)
        return {d: place.add(self.origin[d], i) for d, i in zip(self.product.rows, places, strict=True)}

    def has_rest(self, d: int) -> bool:
        """Whether the last group has less of a dimension than others."""
        return self.nest.extents[d] % self.plan.grid[d] != 0

    # The sums

    def accumulated(self, place: Place, sums: Values) -> Values:
        """The sums after all that is reduced, part by part: numbers of the parts are those of all others, then of words."""
        others = [d for d in self.contraction.dims if d in self.contraction.reductions and d != self.product.words]
        counts = [*(self.nest.extents[d] for d in others), self.nest.extents[self.product.words] // WORDS]

        def part(p: Place, number: Index) -> Values:
            *at, step = digits(p, number, 0, counts)
            return self.read(p, dict(zip(others, at, strict=True)), p.multiply(step, WORDS))

        loop = place.loop(0, prod(counts), 1, [*sums, *part(place, 0)], name="part")
        inside, (number, *carried) = place.inside(loop.body.block), loop.body.block.args
        inside.insert(gpu.BarrierOp())
        self.write(inside, carried[len(sums) :])
        inside.insert(gpu.BarrierOp())
        # The last part is read once more, by which nothing is asked of loops and branches.
        following = part(inside, inside.minimum(inside.add(number, 1), prod(counts) - 1))
        inside.yield_(*self.multiplied(inside, carried[: len(sums)]), *following)
        return loop.res[: len(sums)]

    def pieces(self, place: Place, count: int, *sizes: int) -> Iterator[list[Index]]:
        """The digits of the numbers of an item's pieces, of `count` that there are."""
        for k in range(0, count, self.matrices.items):
            yield digits(place, self.number, k, [count // prod(sizes), *sizes])

    def of_rows(self, place: Place) -> Iterator[tuple[Index, Index, Index]]:
        """The number of 16 rows, which of these two that are 8 apart, and the first word of what an item brings of them."""
        width = words_at_once(self.matrices)
        for block, g, word in self.pieces(place, self.matrices.rows * WORDS // (2 * width), 8, WORDS // width):
            yield block, g, place.multiply(word, width)

    def of_columns(self, place: Place) -> Iterator[tuple[Index, Index]]:
        """The first column, and the first of the four words in it, of what an item brings of columns."""
        width = self.width()
        for column, t in self.pieces(place, self.matrices.columns // width * ACROSS, ACROSS):
            yield place.multiply(column, width), place.multiply(t, OWN_WORDS)

    def width(self) -> int:
        """How many columns that lie side by side in each row, wherever it begins, an item brings at once."""
        wanted = columns_at_once(self.matrices)
        return next(n for n in LANES if n <= wanted and self.nest.extents[self.product.column] % n == 0)

    def read(self, place: Place, at: Mapping[int, Index], word: Index) -> Values:
        """An item's pieces of the part of the operands whose first word this is."""
        column, words, read = self.product.column, self.product.words, list[SSAValue]()
        for block, g, first in self.of_rows(place):
            for h in range(0, ROWS, ROWS // OWN_ROWS):
                row = place.add(place.add(place.multiply(block, ROWS), g), h)
                along = {d: self.inside(place, d, i, 1) for d, i in self.along(place, row).items()}
                own = {**along, words: place.add(word, first)}
                read.append(self.piece(place, self.product.a, {**at, **own}, words, words_at_once(self.matrices)))
        for start, first in self.of_columns(place):
            c = self.inside(place, column, place.add(self.origin[column], start), self.width())
            for q in range(OWN_WORDS):
                own = {words: place.add(place.add(word, first), q), column: c}
                read.append(self.piece(place, self.product.b, {**at, **own}, column, self.width()))
        return read

    def piece(self, place: Place, k: int, at: Mapping[int, Index], lane: int, width: int) -> SSAValue:
        """So many elements of an operand along a dimension."""
        ranges = {d: Range(i, 1) for d, i in {**self.origin, **at}.items()}
        parts = [part_of(place, e, self.contraction.dims, ranges) for e in operand_maps(self.contraction.op)[k].results]
        axis = next(i for i, (d, _) in enumerate(parts) if d == lane)
        along = AffineMap(len(parts), 0, (AffineDimExpr(axis),))
        return place.transfer_read(self.contraction.op.operands[k], [r.offset for _, r in parts], (width,), along)

    def inside(self, place: Place, d: int, start: Index, width: int) -> Index:
        """A place along a dimension; instead of one that may be outside of it the last one."""
        m, grid = self.matrices, self.plan.grid
        outer = d == m.along[0] and prod(grid[x] for x in m.along) < m.rows
        outside = outer or self.has_rest(d) or (d == m.column and grid[d] < m.columns)
        return place.minimum(start, self.nest.extents[d] - width) if outside else start

    def write(self, place: Place, pieces: Values) -> None:
        left, width = list(pieces), words_at_once(self.matrices)
        for block, g, first in self.of_rows(place):
            t, half = place.floordiv(first, OWN_WORDS), place.floordiv(place.remainder(first, OWN_WORDS), 2)
            own, left = left[:OWN_ROWS], left[OWN_ROWS:]
            for s, value in enumerate(self.in_turns(place, own)):
                place.transfer_write(value, self.a, [block, s if width == OWN_WORDS else half, g, t, 0], _lane(5))
        for column, first in self.of_columns(place):
            own, left = left[:OWN_WORDS], left[OWN_WORDS:]
            block, rest = place.floordiv(column, COLUMNS), place.remainder(column, COLUMNS)
            g, j = place.floordiv(rest, OWN_COLUMNS), place.remainder(rest, OWN_COLUMNS)
            t = place.floordiv(first, OWN_WORDS)
            for c, value in enumerate(self.in_turns(place, own)):
                place.transfer_write(value, self.b, [block, place.add(j, c), g, t, 0], _lane(5))

    def in_turns(self, place: Place, pieces: Values) -> Values:
        """Vectors of four words: the first ones of two or four pieces, then the second ones, and so on."""
        (width,), results = cast("VectorType[Attribute]", pieces[0].type).get_shape(), list[SSAValue]()

        def of_two(a: SSAValue, b: SSAValue, start: int, count: int) -> SSAValue:
            return shuffled(place, a, b, [k for i in range(start, start + count) for k in (i, width + i)])

        first, second, *more = pieces
        for k in range(0, width, 1 if more else 2):
            if more:
                two = of_two(first, second, k, 1), of_two(more[0], more[1], k, 1)
                results.append(shuffled(place, *two, range(OWN_WORDS)))
            else:
                results.append(of_two(first, second, k, 2))
        return results

    def multiplied(self, place: Place, sums: Values) -> Values:
        """The sums after a part of the operands that is in local memory."""
        top, left, g, t = self.corner(place)
        block, right = place.floordiv(top, ROWS), place.floordiv(left, COLUMNS)

        def own(buffer: SSAValue, number: Index, count: int) -> SSAValue:
            return place.transfer_read(buffer, [number, 0, g, t, 0], (count, OWN_WORDS), _OWN)

        words = [own(self.b, place.add(right, j), OWN_COLUMNS) for j in range(self.matrices.right // COLUMNS)]
        results: list[SSAValue] = []
        for i in range(self.matrices.down // ROWS):
            rows = own(self.a, place.add(block, i), OWN_ROWS)
            for b in words:
                of_two = sums[len(results)], sums[len(results) + 1]
                results += place.insert(MultiplyWordsOp.of(rows, b, of_two, self.product.dot)).results
        return results

    # What becomes of them

    def finish(self, place: Place, sums: Values) -> None:
        """The stages after the contraction, or none, on each vector of sums that lies inside."""
        stage, column = self.contraction, self.product.column
        root, is_local = stage.output.root, stage.output.root in self.nest.locals()
        buffer = place.alloca(f32, (OWN_SUMS,), root.name_hint)
        rest = self.nest.stages[self.nest.stages.index(stage) + 1 :]
        if is_local:
            self.locals[root] = Local(buffer, (column,))
        whole = {d: Range(i, 1) for d, i in self.origin.items()}
        for (first, second), value in zip(list(self.places(place)), sums, strict=True):
            for at, tile in self.stored(place, first, second):
                at.transfer_write(value, buffer, [0], _lane(1))
                tile = {**self.tile, **whole, **tile}
                if not is_local:
                    own = self.window(at, buffer, [(column, Range(0, tile[column].size))])
                    copy(at, own, self.operand(at, stage, len(stage.op.operands) - 1, tile))
                self.stages(at, rest, tile)

    def stored(self, place: Place, first: Index, second: Index) -> Iterator[tuple[Place, Tile]]:
        """Where, and how much, there is to store of a vector of sums: guarded where the tile is ragged."""
        m, column = self.matrices, self.product.column
        rows = prod(self.plan.grid[d] for d in m.along)
        if rows < m.rows:
            place = place.branch(place.compare(first, "ult", rows))
        along, c = self.along(place, first), place.add(self.origin[column], second)
        for d, i in along.items():
            if self.has_rest(d):
                place = place.branch(place.compare(i, "ult", self.nest.extents[d]))
        tile, extent = {d: Range(i, 1) for d, i in along.items()}, self.nest.extents[column]
        if extent % m.columns == 0:
            yield place, {**tile, column: Range(c, OWN_SUMS)}
            return
        rest = extent % OWN_SUMS
        for relation, size in (("ult", OWN_SUMS), ("eq", rest)):
            if size and extent >= size:
                at = place.branch(place.compare(c, relation, extent - rest))
                yield at, {**tile, column: Range(c, size)}


def shuffled(place: Place, a: SSAValue, b: SSAValue, order: Sequence[int]) -> SSAValue:
    """Elements of two rows, those of the first numbered first."""
    t = cast("VectorType[Attribute]", a.type)
    properties = {"mask": i64s(tuple(order))}
    result = vector_type((len(order),), t.element_type)
    return place.op(vector.ShuffleOp.create(operands=[a, b], properties=properties, result_types=[result]))


def _lane(rank: int) -> AffineMap:
    """The last axis of so many."""
    return AffineMap(rank, 0, (AffineDimExpr(rank - 1),))

"""A contraction of words by the matrix units of a device: 32 items of a group multiply matrices together.

    for k: barrier; local a, b = what was read; barrier; read the next part of a and b; for i, j: c[i, j] += a[i] · b[j]

All items bring parts of both operands to local memory, four words at a time, as they lie: rows of `a` are of words along k, of
`b` along columns. While they multiply one part, the next one is on its way from memory to their registers. Local memory is laid
out for `gpu.multiply_words`: an item reads all of its words of a row of `a` at once, and those of four columns of `b`, whose
rows stand in the order in which an item takes them; items that read together read from different banks.

What is ragged is computed for nothing: from outside of an operand its last row or columns are read instead, and what comes of
them is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from dlc.dialects.dl.interfaces import Body
from dlc.dialects.dl.narrow_numbers.words import DOTS
from dlc.dialects.matrices import COLUMNS, ITEMS, OWN_COLUMNS, OWN_ROWS, OWN_SUMS, OWN_WORDS, ROWS, WORDS, MultiplyWordsOp
from dlc.ir import AffineDimExpr, AffineMap, Block, Operation, SSAValue, StringAttr, arith, f32, gpu, i32, linalg
from dlc.passes.structured import DOT, Index, Place
from dlc.passes.tiling.group import Group
from dlc.passes.tiling.leaf import Leaf, Local, part_of
from dlc.passes.tiling.nests import Nest, Stage, identity_of
from dlc.passes.tiling.plan import promoted_stage
from dlc.passes.tiling.promoted import digits
from dlc.passes.tiling.ranges import Range, Tile
from dlc.passes.tiling.structured_ops import operand_maps
from dlc.passes.tiling.windows import copy

# Words beside a row of columns, which put rows that are read together in different banks.
PADDING = 8
# Items that have words of one row, or columns; and columns that items bring at once.
_ACROSS = WORDS // OWN_WORDS
_LANES = (4, 2, 1)
Values = Sequence[SSAValue]


@dataclass(frozen=True)
class MatrixProduct:
    """Which operands of a contraction, by position, are the matrices `a` and `b`, and which dimensions their axes follow.

    `rows` are all that only `a` has, the outermost first; `words` are what is reduced, `dot` says how they are multiplied.
    """

    dot: str
    a: int
    b: int
    rows: tuple[int, ...]
    column: int
    words: int


def matrix_product(stage: Stage, nest: Nest) -> MatrixProduct | None:
    """What a contraction of plain operands is as a product of matrices of words that lie as `MatrixLeaf` brings them."""
    name = stage.op.attributes.get(DOT)
    if not isinstance(name, StringAttr) or DOTS[name.data].total != f32 or nest.open:
        return None
    if [type(op) for op in stage.op.regions[0].block.ops] != _steps(name.data) or len(stage.op.operands) != 3:
        return None
    for k, (a, b) in enumerate((stage.inputs, stage.inputs[::-1])):
        columns = [d for d in nest.shared if stage.output.stride(d) == 1 == b.stride(d) and not a.uses(d)]
        rows = [d for d in nest.shared if a.uses(d) and not b.uses(d) and stage.output.uses(d)]
        words = [d for d in stage.reductions if a.stride(d) == 1 and b.uses(d) and nest.extents[d] % WORDS == 0]
        if columns and rows and words:
            rows.sort(key=lambda d: int(stage.output.stride(d)), reverse=True)
            return MatrixProduct(name.data, k, 1 - k, tuple(rows), columns[0], words[0])
    return None


@lru_cache
def _steps(name: str) -> list[type[Operation]]:
    """The ops of a body that adds a product of words to a sum, and does nothing else; constants are outside of it."""
    block = Block(arg_types=[i32, i32, f32])
    a, b, total = block.args
    DOTS[name].added(Body(block), total, a, b)
    return [*(type(op) for op in block.ops if not isinstance(op, arith.ConstantOp)), linalg.YieldOp]


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
        self.a = shared((stage.op, product.a), a, (self.matrices.rows, WORDS), a.name_hint)
        width = self.matrices.columns + PADDING
        self.b = shared((stage.op, product.b), b, (OWN_WORDS, _ACROSS, width), b.name_hint)

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
        g, t = place.floordiv(item, _ACROSS), place.remainder(item, _ACROSS)
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

    def pieces(self, place: Place, count: int, across: int) -> Iterator[tuple[Index, Index]]:
        """Which of `count` pieces an item brings, so many in a row: row, and piece of the row."""
        for k in range(0, count, self.matrices.items):
            number = place.add(self.number, k)
            yield place.floordiv(number, across), place.remainder(number, across)

    def pieces_of(self, place: Place) -> Iterator[tuple[int, Index, Index]]:
        """The pieces of both operands that an item brings: the operand, and where a piece begins in the group's part of it."""
        for row, word in self.pieces(place, self.matrices.rows * _ACROSS, _ACROSS):
            yield self.product.a, row, place.multiply(word, OWN_WORDS)
        across = self.matrices.columns // self.width()
        for word, column in self.pieces(place, WORDS * across, across):
            yield self.product.b, word, place.multiply(column, self.width())

    def width(self) -> int:
        """How many columns lie side by side in each row, wherever it begins."""
        return next(n for n in _LANES if self.nest.extents[self.product.column] % n == 0)

    def read(self, place: Place, at: Mapping[int, Index], word: Index) -> Values:
        """An item's pieces of the part of the operands whose first word this is."""
        column, words = self.product.column, self.product.words
        read: list[SSAValue] = []
        for k, first, second in self.pieces_of(place):
            if k == self.product.a:
                along, lane, width = self.along(place, first), words, OWN_WORDS
                own = {words: place.add(word, second), **{d: self.inside(place, d, i, 1) for d, i in along.items()}}
            else:
                lane, width = column, self.width()
                start = place.add(self.origin[column], second)
                own = {words: place.add(word, first), column: self.inside(place, column, start, width)}
            ranges = {d: Range(i, 1) for d, i in {**self.origin, **at, **own}.items()}
            parts = [part_of(place, e, self.contraction.dims, ranges) for e in operand_maps(self.contraction.op)[k].results]
            axis = next(i for i, (d, _) in enumerate(parts) if d == lane)
            source, along_lane = self.contraction.op.operands[k], AffineMap(len(parts), 0, (AffineDimExpr(axis),))
            read.append(place.transfer_read(source, [r.offset for _, r in parts], (width,), along_lane))
        return read

    def inside(self, place: Place, d: int, start: Index, width: int) -> Index:
        """A place along a dimension; instead of one that may be outside of it the last one."""
        m, grid = self.matrices, self.plan.grid
        outer = d == m.along[0] and prod(grid[x] for x in m.along) < m.rows
        outside = outer or self.has_rest(d) or (d == m.column and grid[d] < m.columns)
        return place.minimum(start, self.nest.extents[d] - width) if outside else start

    def write(self, place: Place, pieces: Values) -> None:
        for (k, first, second), value in zip(self.pieces_of(place), pieces, strict=True):
            if k == self.product.a:
                place.transfer_write(value, self.a, [first, second], _lane(2))
            else:
                turn = place.remainder(first, OWN_WORDS), place.floordiv(first, OWN_WORDS)
                place.transfer_write(value, self.b, [*turn, second], _lane(3))

    def multiplied(self, place: Place, sums: Values) -> Values:
        """The sums after a part of the operands that is in local memory."""
        top, left, g, t = self.corner(place)
        row, column = place.add(top, g), place.add(left, place.multiply(g, OWN_COLUMNS))
        both = AffineMap(3, 0, (AffineDimExpr(0), AffineDimExpr(2)))
        words = [
            place.transfer_read(self.b, [0, t, place.add(column, j)], (OWN_WORDS, OWN_COLUMNS), both)
            for j in range(0, self.matrices.right, COLUMNS)
        ]
        results: list[SSAValue] = []
        for i in range(0, self.matrices.down, ROWS):
            upper, lower = (
                place.transfer_read(self.a, [place.add(row, i + h), place.multiply(t, OWN_WORDS)], (OWN_WORDS,), _lane(2))
                for h in (0, ROWS // OWN_ROWS)
            )
            for b in words:
                of_two = sums[len(results)], sums[len(results) + 1]
                results += place.insert(MultiplyWordsOp.of((upper, lower), b, of_two, self.product.dot)).results
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


def _lane(rank: int) -> AffineMap:
    """The last axis of so many."""
    return AffineMap(rank, 0, (AffineDimExpr(rank - 1),))

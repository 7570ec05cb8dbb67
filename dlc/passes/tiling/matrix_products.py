"""Which contractions the matrix units of a device multiply, and what items bring of them at once; how: `matrices.py`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dlc.dialects.dl.interfaces import Body
from dlc.dialects.dl.narrow_numbers.words import DOTS
from dlc.dialects.matrices import OWN_WORDS, WORDS
from dlc.ir import Block, Operation, StringAttr, arith, f32, i32, linalg
from dlc.passes.structured import DOT
from dlc.passes.tiling.nests import Nest, Stage
from dlc.passes.tiling.plan import Matrices

# Items that have words of one row, or column; and columns that items bring at once, at most.
ACROSS = WORDS // OWN_WORDS
LANES = (4, 2, 1)


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


def words_at_once(m: Matrices) -> int:
    """How many words of two rows an item brings, so that all items have some."""
    return OWN_WORDS if m.rows * ACROSS // 2 % m.items == 0 else OWN_WORDS // 2


def columns_at_once(m: Matrices) -> int:
    """How many columns of four rows an item brings, so that all items have some."""
    return next((n for n in LANES if m.columns // n * ACROSS % m.items == 0), 0)


def brings_whole(m: Matrices) -> bool:
    """Whether its items bring whole pieces, all as many."""
    return m.rows * WORDS // (2 * words_at_once(m)) % m.items == 0 and columns_at_once(m) > 0

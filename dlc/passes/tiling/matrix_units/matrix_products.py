"""Match contractions that matrix units can compute, and divide the loads of their operands among work-items.

`matrix_tile_body.py` generates the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dlc.dialects.dl.interfaces import Body
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS
from dlc.dialects.matrix_multiply import TILE_WORDS, WORDS_PER_ITEM
from dlc.ir import Block, Operation, StringAttr, arith, f32, i32, linalg
from dlc.passes.structured import PACKED_DOT
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest
from dlc.passes.tiling.matrix_units.matrix_unit_tiles import MatrixUnitTiles

# Work-items per tile row of `a` or tile column of `b`.
ITEMS_PER_ROW = TILE_WORDS // WORDS_PER_ITEM
# Candidate numbers of adjacent columns per load, widest first.
COLUMN_LOAD_WIDTHS = (4, 2, 1)


@dataclass(frozen=True)
class MatrixProduct:
    """A contraction as a matrix product of operands `a` and `b` (by position), and the dimensions of its axes.

    `rows` are the dimensions that only `a` has, the outermost first. `words` is the reduced dimension, in packed
    32-bit words. `dot` names the dot-product instruction.
    """

    dot: str
    a: int
    b: int
    rows: tuple[int, ...]
    column: int
    words: int


def matrix_product(nest_op: NestOp, nest: SizedLoopNest) -> MatrixProduct | None:
    """Return a contraction as a matrix product whose layout `MatrixTileBody` can load; None for other contractions."""
    name = nest_op.op.attributes.get(PACKED_DOT)
    if not isinstance(name, StringAttr) or PACKED_DOTS[name.data].total != f32 or nest.dynamic_dims:
        return None
    if [type(op) for op in nest_op.op.regions[0].block.ops] != _body_ops(name.data) or len(nest_op.op.operands) != 3:
        return None
    for k, (a, b) in enumerate((nest_op.inputs, nest_op.inputs[::-1])):
        columns = [d for d in nest.shared_dims if nest_op.output.stride(d) == 1 == b.stride(d) and not a.uses(d)]
        rows = [d for d in nest.shared_dims if a.uses(d) and not b.uses(d) and nest_op.output.uses(d)]
        words = [d for d in nest_op.reductions if a.stride(d) == 1 and b.uses(d) and nest.extents[d] % TILE_WORDS == 0]
        if columns and rows and words:
            rows.sort(key=lambda d: int(nest_op.output.stride(d)), reverse=True)
            return MatrixProduct(name.data, k, 1 - k, tuple(rows), columns[0], words[0])
    return None


@lru_cache
def _body_ops(name: str) -> list[type[Operation]]:
    """Return the op types of a body that only adds a packed dot product to a sum, without constants."""
    block = Block(arg_types=[i32, i32, f32])
    a, b, total = block.args
    PACKED_DOTS[name].accumulate(Body(block), total, a, b)
    return [*(type(op) for op in block.ops if not isinstance(op, arith.ConstantOp)), linalg.YieldOp]


def words_per_load(plan: MatrixUnitTiles) -> int:
    """Return the number of words per load of `a`. A work-item loads them from two rows.

    It is half of the maximum if loads of the maximum width cannot be divided evenly among the work-items.
    """
    return WORDS_PER_ITEM if plan.rows * ITEMS_PER_ROW // 2 % plan.num_items == 0 else WORDS_PER_ITEM // 2


def columns_per_load(plan: MatrixUnitTiles) -> int:
    """Return the number of adjacent columns per load of `b`. A work-item loads the same columns of four rows.

    It is the largest for which every work-item has the same number of loads; 0 if there is none.
    """
    return next((n for n in COLUMN_LOAD_WIDTHS if plan.columns // n * ITEMS_PER_ROW % plan.num_items == 0), 0)


def has_even_loads(plan: MatrixUnitTiles) -> bool:
    """Return whether all work-items have the same number of loads."""
    return plan.rows * TILE_WORDS // (2 * words_per_load(plan)) % plan.num_items == 0 and columns_per_load(plan) > 0

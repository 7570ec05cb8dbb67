"""Match contractions that matrix units can compute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dlc.dialects.dl.interfaces import Body
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS
from dlc.dialects.matrix_multiply import TILE_WORDS
from dlc.ir import Block, Operation, StringAttr, arith, f32, i32, linalg
from dlc.passes.structured import PACKED_DOT
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest


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
    if [type(op) for op in nest_op.body.ops] != _body_ops(name.data) or len(nest_op.op.operands) != 3:
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

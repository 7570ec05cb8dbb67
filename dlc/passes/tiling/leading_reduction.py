"""The reduction that a nest begins with, which cache blocks and work-groups split into blocks."""

from __future__ import annotations

from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, initial_fill


def leading_contraction(nest: SizedLoopNest) -> NestOp | None:
    """Return the leading reduction of a nest if it is a contraction, else None."""
    nest_op = leading_reduction(nest)
    return nest_op if nest_op is not None and nest_op.is_contraction else None


def leading_reduction(nest: SizedLoopNest) -> NestOp | None:
    """Return the first reduction of a nest, if only the fill of its result precedes it.

    None for other nests, and for a reduction with a private parallel dimension.
    """
    reduction = next((k for k, op in enumerate(nest.ops) if op.reductions), 0)
    nest_op = nest.ops[reduction]
    preceding = nest.ops[:reduction]
    if (
        not nest_op.reductions
        or nest_op.scatter_dim is not None
        or nest_op.has_indirect_loads
        or len(preceding) != 1
        or preceding[0] is not initial_fill(nest_op, nest)
    ):
        return None
    private_dims = [d for d in nest_op.dims if d >= 0 and d not in nest.shared_dims and d not in nest_op.reductions]
    return None if private_dims else nest_op


def promoted_contraction(nest: SizedLoopNest) -> NestOp | None:
    """Return the contraction whose operands can be promoted to local memory: a leading one of plain operands."""
    nest_op = leading_contraction(nest)
    if nest_op is None or not all(t.is_plain for a in (*nest_op.inputs, nest_op.output) for t in a.terms):
        return None
    return nest_op

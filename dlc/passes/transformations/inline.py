"""Inline the body of an op."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.ir import Block, Operation, SSAValue, erase_op


def inline(op: Operation, block: Block, arguments: Sequence[SSAValue]) -> None:
    """Move the ops of a body before the op that owns it, and replace the op's results by the values that the body yields."""
    outer, last = op.parent, block.last_op
    assert outer is not None and isinstance(last, dl.YieldOp)
    for parameter, argument in zip(block.args, arguments, strict=True):
        parameter.replace_all_uses_with(argument)
    for inner in list(block.ops):
        if inner is not last:
            inner.detach()
            outer.insert_op_before(inner, op)
    for result, value in zip(op.results, last.values, strict=True):
        result.replace_all_uses_with(value)
    erase_op(op, is_unused=False)

"""Relative costs of elementwise ops."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.arithmetic.pointwise import FloatFunction
from dlc.ir import Operation

# In vector additions: divisions and roots take 5 to 10 cycles per vector, other functions 15 to 30 instructions.
_DIVISION_COST, _FUNCTION_COST = 8.0, 20.0
_DIVISIONS = (dl.DivOp, dl.ReciprocalOp, dl.SqrtOp, dl.RsqrtOp, dl.ModOp, dl.FloordivOp)
_SINGLE_INSTRUCTIONS = (dl.FloorOp, dl.CeilOp, dl.RoundOp, dl.TruncOp, dl.IsnanOp, dl.IsinfOp)


def elementwise_cost(op: Operation) -> float:
    """Return the cost of an elementwise op per element, in additions."""
    if isinstance(op, _DIVISIONS):
        return _DIVISION_COST
    is_function = isinstance(op, FloatFunction | dl.PowOp | dl.Atan2Op) and not isinstance(op, _SINGLE_INSTRUCTIONS)
    return _FUNCTION_COST if is_function else 1.0

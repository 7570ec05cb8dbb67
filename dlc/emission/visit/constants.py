"""Numbers that are the same in all elements of a value."""

from __future__ import annotations

from dlc.ir import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, SSAValue, arith, vector


def number_in(value: SSAValue) -> int | float | None:
    """The number that every element of a constant is; None for other values."""
    if isinstance(value.owner, vector.BroadcastOp):
        value = value.owner.source
    match value.owner:
        case arith.ConstantOp(value=IntegerAttr() | FloatAttr() as number):
            return number.value.data
        case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as dense) if dense.is_splat():
            number = next(iter(dense.iter_values()))
            return None if isinstance(number, tuple) else number
        case _:
            return None

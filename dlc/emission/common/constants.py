"""Constants whose elements are all equal."""

from __future__ import annotations

from dlc.ir import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, SSAValue, arith, vector


def splat_constant(value: SSAValue) -> int | float | None:
    """Return the common value of all elements of a constant, or None if `value` is not such a constant."""
    if isinstance(value.owner, vector.BroadcastOp):
        value = value.owner.source
    match value.owner:
        case arith.ConstantOp(value=IntegerAttr() | FloatAttr() as scalar):
            return scalar.value.data
        case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as dense) if dense.is_splat():
            element = next(iter(dense.iter_values()))
            return None if isinstance(element, tuple) else element
        case _:
            return None

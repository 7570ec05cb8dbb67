"""`arith.remf`, which MLIR has and xDSL lacks: C's `fmod`."""

from __future__ import annotations

from dlc.ir import arith, irdl_op_definition


@irdl_op_definition
class RemFOp(arith.FloatingPointLikeBinaryOperation):
    """`x - y·trunc(x / y)`, exactly, with the sign of `x`; NaN where `x` is infinite or `y` 0, `x` where `y` is infinite."""

    name = "arith.remf"

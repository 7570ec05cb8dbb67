"""`arith.remf`, the floating-point remainder of C's `fmod`, which MLIR has and xDSL lacks."""

from __future__ import annotations

from dlc.ir import arith, irdl_op_definition


@irdl_op_definition
class RemFOp(arith.FloatingPointLikeBinaryOperation):
    """`x - y·trunc(x / y)`, exactly, with the sign of `x`; NaN if `x` is infinite or `y` is 0, `x` if `y` is infinite."""

    name = "arith.remf"

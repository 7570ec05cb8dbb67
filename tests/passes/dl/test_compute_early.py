"""`compute-early`: what a value is kept for alone is computed where it is made."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.ir import SSAValue
from dlc.passes.dl.simplification.compute_early import ComputeEarlyPass

from ..programs import Writer, program, randoms


def test_a_formula_goes_where_its_last_operand_is_made() -> None:
    def body(b: Writer, x: SSAValue, w: SSAValue) -> SSAValue:
        x = b(dl.NegOp, x)
        y = b(dl.MulOp, x, b(dl.ErfOp, x))
        cotangent = b(dl.MatmulOp, y, w)
        one, half = b.scalar(1.0, like=x), b.scalar(0.5, like=x)
        derivative = b(dl.AddOp, b(dl.AddOp, b(dl.ExpOp, b(dl.MulOp, x, half)), one), one)
        return b(dl.MulOp, cotangent, derivative)

    p = program(body, *randoms((3, 4), (4, 4))).apply(ComputeEarlyPass())
    assert p.ops == ["neg", "mul", "exp", "add", "add", "erf", "mul", "matmul", "mul"]


def test_what_others_keep_too_is_no_reason() -> None:
    def body(b: Writer, x: SSAValue, w: SSAValue) -> SSAValue:
        x = b(dl.NegOp, x)
        y = b(dl.MatmulOp, x, w)
        return b(dl.MulOp, b(dl.MatmulOp, x, y), b(dl.ExpOp, x))

    p = program(body, *randoms((4, 4), (4, 4))).apply(ComputeEarlyPass())
    assert p.ops == ["neg", "matmul", "matmul", "exp", "mul"]

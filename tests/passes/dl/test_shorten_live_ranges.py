"""`shorten-live-ranges`: an expression moves to the producer of a value that only it keeps alive."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.ir import SSAValue
from dlc.passes.dl.simplification.shorten_live_ranges import ShortenLiveRangesPass

from ..programs import Writer, program, randoms


def test_expression_moves_to_its_last_operand() -> None:
    def body(b: Writer, x: SSAValue, w: SSAValue) -> SSAValue:
        x = b(dl.NegOp, x)
        y = b(dl.MulOp, x, b(dl.ErfOp, x))
        cotangent = b(dl.MatmulOp, y, w)
        one, half = b.scalar(1.0, like=x), b.scalar(0.5, like=x)
        derivative = b(dl.AddOp, b(dl.AddOp, b(dl.ExpOp, b(dl.MulOp, x, half)), one), one)
        return b(dl.MulOp, cotangent, derivative)

    p = program(body, *randoms((3, 4), (4, 4))).apply(ShortenLiveRangesPass())
    assert p.ops == ["neg", "mul", "exp", "add", "add", "erf", "mul", "matmul", "mul"]


def test_values_with_other_late_readers_stay() -> None:
    def body(b: Writer, x: SSAValue, w: SSAValue) -> SSAValue:
        x = b(dl.NegOp, x)
        y = b(dl.MatmulOp, x, w)
        return b(dl.MulOp, b(dl.MatmulOp, x, y), b(dl.ExpOp, x))

    p = program(body, *randoms((4, 4), (4, 4))).apply(ShortenLiveRangesPass())
    assert p.ops == ["neg", "matmul", "matmul", "exp", "mul"]

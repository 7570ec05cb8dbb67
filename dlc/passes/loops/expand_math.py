"""`expand-math`: the functions of `math` as arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects.dl.scalar import AT_MOST_ZERO, BESIDE_ONE
from dlc.dialects.remainder import RemFOp
from dlc.ir import (
    Context,
    Operation,
    SSAValue,
    arith,
    f32,
    f64,
    func,
    math,
    shaped_like,
)
from dlc.passes.base import KernelPass
from dlc.passes.loops.elementary import error_function, exponential, logarithm, power, remainder, trigonometric
from dlc.passes.loops.formula import Constants, Float, Place, element_of, format_of

Formula: TypeAlias = Callable[..., Float]

FORMULAS: dict[type[Operation], Formula] = {
    math.ExpOp: exponential.exp, math.Exp2Op: exponential.exp2, math.ExpM1Op: exponential.expm1,
    math.SinhOp: exponential.sinh, math.CoshOp: exponential.cosh, math.TanhOp: exponential.tanh,
    math.LogOp: logarithm.log, math.Log2Op: logarithm.log2, math.Log10Op: logarithm.log10, math.Log1pOp: logarithm.log1p,
    math.AsinhOp: logarithm.asinh, math.AcoshOp: logarithm.acosh, math.AtanhOp: logarithm.atanh,
    math.SinOp: trigonometric.sin, math.CosOp: trigonometric.cos, math.TanOp: trigonometric.tan,
    math.AsinOp: trigonometric.asin, math.AcosOp: trigonometric.acos,
    math.AtanOp: trigonometric.atan, math.Atan2Op: trigonometric.atan2,
    math.PowFOp: power.powf, math.RsqrtOp: power.rsqrt, math.CbrtOp: power.cbrt,
    math.ErfOp: error_function.erf, RemFOp: remainder.remf,
}  # fmt: skip
# Those that are computed in f64 whatever they are of.
_IN_F64 = (RemFOp,)


@dataclass(frozen=True)
class ExpandMathPass(KernelPass):
    """Replaces functions that no processor has, of `math` and `arith.remf`, by formulas, for scalars and vectors of any shape.

        %y = math.exp %x : vector<8x16xf32>
        →  %n = math.fma %x, %log2e, %rounder : vector<8x16xf32>; …; %y = arith.mulf %p, %scale : vector<8x16xf32>

    Leaves of `math` only fma, sqrt, absf, copysign and the roundings. f16 and bf16 are computed in f32 and rounded once; so is
    f32 in f64 where `precise` asks for it, which leaves errors of half a unit in the last place, and hardly more. Constants go
    to the start of the kernel, each once. Vectors stay whole; what a formula does for rare operands it does for those elements
    alone. What is said of an operand (`math.exp %x {at_most_zero}`) makes its formula shorter. Without `fused`, fma
    rounds twice, which some formulas must know.
    """

    name = "expand-math"
    precise: bool = False
    fused: bool = True

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        functions = [op for op in kernel.walk() if type(op) in FORMULAS]
        if not functions:
            return
        constants = Constants(kernel.body.block)
        for op in functions:
            result = expanded(op, Place(op, constants, fused=self.fused), precise=self.precise)
            result.name_hint = op.results[0].name_hint
            op.results[0].replace_all_uses_with(result)
            op.detach()
            op.erase()


def expanded(op: Operation, place: Place, *, precise: bool = False) -> SSAValue:
    """The value of a function of `math`, by its formula; with `precise`, by that for f64."""
    t = op.results[0].type
    element = element_of(t)
    in_f64 = element == f64 or isinstance(op, _IN_F64) or (precise and element == f32)
    wide = shaped_like(t, f64 if in_f64 else f32)
    narrow = wide != t
    operands: list[Float] = []
    for value in op.operands:
        if narrow:
            value = place.insert(arith.ExtFOp, [value], wide)
        operands.append(Float(place, format_of(wide), value))
    result = _formula(op)(*operands).value
    return place.insert(arith.TruncFOp, [result], t) if narrow else result


def _formula(op: Operation) -> Formula:
    """The shortest formula for what is said of an operand and a result."""
    if BESIDE_ONE in op.attributes:
        return exponential.exp_beside_one
    return exponential.exp_at_most_zero if AT_MOST_ZERO in op.attributes else FORMULAS[type(op)]

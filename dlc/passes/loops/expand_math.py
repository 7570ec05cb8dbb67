"""`expand-math`: expand functions of the `math` dialect to arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects.dl.scalar import ABSOLUTE_ACCURACY, AT_MOST_ZERO, FLUSH_SUBNORMALS, NORMAL_RANGE
from dlc.dialects.ldexp import MathLdexpOp
from dlc.dialects.remainder import RemFOp
from dlc.ir import (
    Context,
    Operation,
    SSAValue,
    arith,
    erase_op,
    f32,
    f64,
    func,
    math,
    shaped_like,
)
from dlc.passes.base import KernelPass
from dlc.passes.kernel_values import element_of
from dlc.passes.loops.elementary import error_function, exponential, logarithm, power, remainder, trigonometric
from dlc.passes.loops.formula import Float, FormulaBuilder, FormulaConstants, find_format

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
    math.ErfOp: error_function.erf, RemFOp: remainder.remf, MathLdexpOp: exponential.ldexp,
}  # fmt: skip
_FLUSHED_FORMULAS: dict[type[Operation], Formula] = {
    math.ExpOp: exponential.exp_flushed, math.Exp2Op: exponential.exp2_flushed,
}  # fmt: skip
# Functions that are always computed in f64.
_F64_ONLY_OPS = (RemFOp,)


@dataclass(frozen=True)
class ExpandMathPass(KernelPass):
    """Expand functions of `math`, and `arith.remf`, to basic arithmetic, on scalars and vectors of any shape.

        %y = math.exp %x : vector<8x16xf32>
        →  %n = math.fma %x, %log2e, %rounder : vector<8x16xf32>; …; %y = arith.mulf %p, %scale : vector<8x16xf32>

    The only ops of `math` that remain are fma, sqrt, absf, copysign and the roundings, with `has_ldexp` also ldexp. f16 and
    bf16 are computed in f32 and rounded once. With `precise`, f32 is computed in f64, with an error of little more than half an
    ulp. Constants are pooled at the start of the kernel. Vectors are not split; only elements that need a slow path take it,
    one at a time. Attributes of an op (`math.exp %x {at_most_zero}`) select a shorter formula. Without `fused`, fma rounds
    twice, which some formulas take into account.
    """

    name = "expand-math"
    precise: bool = False
    fused: bool = True
    has_ldexp: bool = False

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        functions = [op for op in kernel.walk() if type(op) in FORMULAS]
        if not functions:
            return
        constants = FormulaConstants(kernel.body.block)
        for op in functions:
            result = expand_function(
                op, FormulaBuilder(op, constants, fused=self.fused, has_ldexp=self.has_ldexp), precise=self.precise
            )
            result.name_hint = op.results[0].name_hint
            op.results[0].replace_all_uses_with(result)
            erase_op(op)


def expand_function(op: Operation, builder: FormulaBuilder, *, precise: bool = False) -> SSAValue:
    """Expand a function of `math`; with `precise`, f32 is computed by the formula for f64."""
    t = op.results[0].type
    element = element_of(t)
    computes_in_f64 = element == f64 or isinstance(op, _F64_ONLY_OPS) or (precise and element == f32)
    computed_type = shaped_like(t, f64 if computes_in_f64 else f32)
    needs_conversion = computed_type != t
    operands: list[Float] = []
    for value in op.operands:
        if needs_conversion:
            value = builder.insert(arith.ExtFOp, [value], computed_type)
        operands.append(Float(builder, find_format(computed_type), value))
    formula = _FLUSHED_FORMULAS[type(op)] if FLUSH_SUBNORMALS in op.attributes and not precise else _formula(op)
    result = formula(*operands).value
    return builder.insert(arith.TruncFOp, [result], t) if needs_conversion else result


def _formula(op: Operation) -> Formula:
    """Return the shortest formula that the op's attributes allow."""
    if ABSOLUTE_ACCURACY in op.attributes:
        return exponential.exp_absolute_error
    if NORMAL_RANGE in op.attributes:
        return exponential.exp_normal_range
    return exponential.exp_at_most_zero if AT_MOST_ZERO in op.attributes else FORMULAS[type(op)]

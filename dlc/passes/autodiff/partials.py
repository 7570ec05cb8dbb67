"""Partial derivatives of elementwise functions, one formula per line: compare it with a table of derivatives.

`r` is the result. A formula gives ∂r/∂x as a term; a constant; or a condition that is 1 where it holds, else 0. A condition
selects instead of multiplying with zero, so that an infinite cotangent does not give NaN. At a kink the derivative is the mean
of both one-sided ones: 0 for |x| at 0, ½ for the larger of two equal values; that of relu at 0 is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, flag
from dlc.passes.autodiff.term import Number, Term, cos, cosh, erf, exp, floor, log, rsqrt, sign, sin, sinh, tanh, trunc, where
from dlc.passes.dl.rewriting import splat
from dlc.plugins.tables import ExtensionTable

# ∂r/∂(one operand).
Partial: TypeAlias = "Term | Number"


def _quotient(r: Term, x: Term, y: Term) -> Term:
    """The integer quotient of a remainder: trunc(x / y) or floor(x / y)"""
    op = r.value.owner
    assert isinstance(op, dl.ModOp)
    return trunc(x / y) if flag(op.fmod) else floor(x / y)


def _power_by_base(r: Term, x: Term, y: Term) -> Term:
    """y·xʸ⁻¹, which is 0 where y is 0, whatever x is."""
    exponent = splat(y.value)
    if exponent is None:
        is_zero = y.equals(0)
        return where(is_zero, 0, y * x ** where(is_zero, 1, y - 1))
    return x.like(0) if exponent == 0 else x * 2 if exponent == 2 else x ** (exponent - 1) * exponent


def _power_by_exponent(r: Term, x: Term, y: Term) -> Term:
    """xʸ·log x, which is 0 where x is 0 and y is not negative."""
    vanishes = x.equals(0) & ~(y < 0)
    return where(vanishes, 0, r * log(where(vanishes, 1, x)))


def _share_of_larger(x: Term, y: Term) -> Term:
    return where(x > y, 1, where(x.equals(y), x.like(0.5), 0))


def _gelu(r: Term, x: Term) -> Term:
    """Φ(x) + x·φ(x), or the derivative of the tanh approximation."""
    op = r.value.owner
    assert isinstance(op, dl.GeluOp)
    if op.approximate.data == "tanh":
        # ½(1 + t) + ½x(1 - t²)·√(2/π)·(1 + 3·0.044715·x²), t = tanh(√(2/π)·(x + 0.044715·x³))
        root = math.sqrt(2 / math.pi)
        t = tanh(x * (x * x * (root * 0.044715) + root))
        return (t + 1) * 0.5 + (x * 0.5) * (1 - t * t) * (x * x * (3 * root * 0.044715) + root)
    return (erf(x * math.sqrt(0.5)) + 1) * 0.5 + x * exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def _power_of_two(exponent: Term) -> Term:
    """2^⌊exponent⌋."""
    return exponent.op(dl.FloorOp).op(dl.Exp2Op)


def _sigmoid(x: Term) -> Term:
    return x.op(dl.SigmoidOp)


def _mish(r: Term, x: Term) -> Term:
    """t + x·(1 - t²)·σ(x), t = tanh(log(1 + eˣ))."""
    t = tanh(x.op(dl.SoftplusOp))
    return t + x * ((1 - t) * (1 + t)) * _sigmoid(x)


UNARY_PARTIALS: dict[type[DlOp], Callable[[Term, Term], Partial]] = {
    dl.NegOp: lambda r, x: -1,
    dl.AbsOp: lambda r, x: sign(x),
    dl.ReluOp: lambda r, x: r > 0,
    dl.SqrtOp: lambda r, x: 0.5 / r,
    dl.CbrtOp: lambda r, x: (1 / 3) / (r * r),
    dl.RsqrtOp: lambda r, x: r / x * -0.5,
    dl.ReciprocalOp: lambda r, x: -(r * r),
    dl.ExpOp: lambda r, x: r,
    dl.Exp2Op: lambda r, x: r * math.log(2),
    dl.Expm1Op: lambda r, x: r + 1,
    dl.LogOp: lambda r, x: 1 / x,
    dl.Log2Op: lambda r, x: (1 / math.log(2)) / x,
    dl.Log10Op: lambda r, x: (1 / math.log(10)) / x,
    dl.Log1pOp: lambda r, x: 1 / (x + 1),
    dl.SinOp: lambda r, x: cos(x),
    dl.CosOp: lambda r, x: -sin(x),
    dl.TanOp: lambda r, x: r * r + 1,
    dl.AsinOp: lambda r, x: rsqrt((1 - x) * (1 + x)),
    dl.AcosOp: lambda r, x: -rsqrt((1 - x) * (1 + x)),
    dl.AtanOp: lambda r, x: 1 / (x * x + 1),
    dl.SinhOp: lambda r, x: cosh(x),
    dl.CoshOp: lambda r, x: sinh(x),
    dl.TanhOp: lambda r, x: (1 - r) * (1 + r),
    dl.AsinhOp: lambda r, x: rsqrt(x * x + 1),
    dl.AcoshOp: lambda r, x: rsqrt((x - 1) * (x + 1)),
    dl.AtanhOp: lambda r, x: 1 / ((1 - x) * (1 + x)),
    dl.ErfOp: lambda r, x: exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    dl.ErfinvOp: lambda r, x: exp(r * r) * (math.sqrt(math.pi) / 2),
    dl.SigmoidOp: lambda r, x: r * (1 - r),
    dl.SiluOp: lambda r, x: _sigmoid(x) * (x * (1 - _sigmoid(x)) + 1),
    dl.GeluOp: _gelu,
    dl.SoftplusOp: lambda r, x: _sigmoid(x),
    dl.MishOp: _mish,
    dl.FloorOp: lambda r, x: 0,
    dl.CeilOp: lambda r, x: 0,
    dl.RoundOp: lambda r, x: 0,
    dl.TruncOp: lambda r, x: 0,
    dl.SignOp: lambda r, x: 0,
}
BINARY_PARTIALS: dict[type[DlOp], tuple[Callable[[Term, Term, Term], Partial], Callable[[Term, Term, Term], Partial]]] = {
    dl.AddOp: (lambda r, x, y: 1, lambda r, x, y: 1),
    dl.SubOp: (lambda r, x, y: 1, lambda r, x, y: -1),
    dl.MulOp: (lambda r, x, y: y, lambda r, x, y: x),
    dl.DivOp: (lambda r, x, y: 1 / y, lambda r, x, y: -r / y),
    dl.ModOp: (lambda r, x, y: 1, lambda r, x, y: -_quotient(r, x, y)),
    dl.PowOp: (_power_by_base, _power_by_exponent),
    dl.Atan2Op: (lambda r, x, y: y / (x * x + y * y), lambda r, x, y: -x / (x * x + y * y)),
    dl.LdexpOp: (lambda r, x, y: _power_of_two(y), lambda r, x, y: 0),
    dl.MaximumOp: (lambda r, x, y: _share_of_larger(x, y), lambda r, x, y: _share_of_larger(y, x)),
    dl.MinimumOp: (lambda r, x, y: _share_of_larger(y, x), lambda r, x, y: _share_of_larger(x, y)),
    dl.FloordivOp: (lambda r, x, y: 0, lambda r, x, y: 0),
}
# The formulas of each op, one per operand, as functions of the result and the operands.
PARTIALS: ExtensionTable[type[DlOp], tuple[Callable[..., Partial], ...]] = ExtensionTable(
    "partials", {**{op: (formula,) for op, formula in UNARY_PARTIALS.items()}, **BINARY_PARTIALS}
)


def partial(op: DlOp, index: int, terms: Sequence[Term]) -> Partial:
    """Return ∂r/∂xᵢ of an elementwise op for operand `index`, from terms of the result and the operands."""
    return PARTIALS[type(op)][index](*terms)

"""Samples of functions of one float, against the same function in f64 or extended precision."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from dlc.dialects import dl
from dlc.testing.sample import BF16, F16, F32, F64, Sample, exactly
from tests.ops.samples.elementwise import telling

# A few ulp of the largest result: the library's functions are not rounded exactly.
_TOLERANCE = {F32: 4e-7, F64: 4e-15, F16: 1e-3, BF16: 8e-3}
_EXACT = {dl.SqrtOp, dl.FloorOp, dl.CeilOp, dl.RoundOp, dl.TruncOp, dl.IsnanOp, dl.IsinfOp}


def erfinv(x: float) -> float:
    """Compute erfinv by Newton's method, starting from the quantile of the normal distribution."""
    if abs(x) >= 1 or x == 0:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan if x else x
    y = abs(NormalDist().inv_cdf((1 - abs(x)) / 2)) / math.sqrt(2)
    for _ in range(3):
        left = math.erf(y) - abs(x) if y < 0.5 else (1 - abs(x)) - math.erfc(y)
        y -= left * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


_FUNCTIONS = {
    dl.SqrtOp: np.sqrt,
    dl.CbrtOp: np.cbrt,
    dl.RsqrtOp: lambda x: 1 / np.sqrt(x),
    dl.ReciprocalOp: lambda x: 1 / x,
    dl.ExpOp: np.exp,
    dl.Exp2Op: np.exp2,
    dl.Expm1Op: np.expm1,
    dl.LogOp: np.log,
    dl.Log2Op: np.log2,
    dl.Log10Op: np.log10,
    dl.Log1pOp: np.log1p,
    dl.SinOp: np.sin,
    dl.CosOp: np.cos,
    dl.TanOp: np.tan,
    dl.AsinOp: np.arcsin,
    dl.AcosOp: np.arccos,
    dl.AtanOp: np.arctan,
    dl.SinhOp: np.sinh,
    dl.CoshOp: np.cosh,
    dl.TanhOp: np.tanh,
    dl.AsinhOp: np.arcsinh,
    dl.AcoshOp: np.arccosh,
    dl.AtanhOp: np.arctanh,
    dl.ErfOp: np.vectorize(math.erf, otypes=[float]),
    dl.ErfinvOp: np.vectorize(erfinv, otypes=[float]),
    dl.SigmoidOp: lambda x: np.exp(-np.logaddexp(0, -x)),
    dl.FloorOp: np.floor,
    dl.CeilOp: np.ceil,
    dl.RoundOp: np.round,
    dl.TruncOp: np.trunc,
    dl.IsnanOp: lambda x: x != x,
    dl.IsinfOp: lambda x: np.abs(x) == np.inf,
}

_INPUTS = [
    *(("telling", telling(dtype)) for dtype in (F32, F64, F16, BF16)),
    *(("near_zero", np.linspace(-0.9, 0.9, 61).astype(dtype)) for dtype in (F32, F64)),
]

_ANGLES = np.array([1.0, 3e3, -1e5, 1e7, 1e10, -1e22, 3e38])

SAMPLES = [
    *(
        Sample(op, (x,), exactly(formula), tolerance=0 if op in _EXACT else _TOLERANCE[x.dtype], label=label)
        for op, formula in _FUNCTIONS.items()
        for label, x in _INPUTS
    ),
    *(
        Sample(
            dl.ExpOp,
            (-np.abs(x),),
            exactly(np.exp),
            {said: True},
            tolerance=_TOLERANCE[x.dtype],
            label=f"{said}_{label}",
        )
        for said in ("at_most_zero", "absolute_accuracy")
        for label, x in _INPUTS
    ),
    # Arguments beyond the range that is reduced by fused multiply-adds.
    *(
        Sample(op, (_ANGLES.astype(d),), exactly(formula), tolerance=_TOLERANCE[d], label="large")
        for op, formula in _FUNCTIONS.items()
        if op in (dl.SinOp, dl.CosOp, dl.TanOp)
        for d in (F32, F64)
    ),
    # e^x overflows f16 there, the result does not.
    Sample(dl.SigmoidOp, (np.arange(-17, 18, dtype=F16),), exactly(_FUNCTIONS[dl.SigmoidOp]), tolerance=1e-7, label="steps"),
    # e^-x overflows f32 there.
    Sample(dl.SigmoidOp, (np.float32([-90, -89.5, -88.8]),), exactly(_FUNCTIONS[dl.SigmoidOp]), tolerance=1e-5, label="far"),
    *(
        Sample(op, (np.arange(-4, 4.5, 0.5, dtype=np.float32),), exactly(_FUNCTIONS[op]), label="ties")
        for op in (dl.FloorOp, dl.CeilOp, dl.RoundOp, dl.TruncOp)
    ),
]

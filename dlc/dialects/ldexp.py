"""`math.ldexp`, the C function, which MLIR has for AVX-512 vectors only (`x86vector.avx512.mask.scalef`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.ir import arith, irdl_op_definition

# Beyond these exponents, the product with every finite float other than 0 is zero or infinite.
_MAX_EXPONENT_BITS = 2200


@irdl_op_definition
class MathLdexpOp(arith.FloatingPointLikeBinaryOperation):
    """`x·2^⌊n⌋` for a finite float `n`, rounded once; NaN if `x` or `n` is NaN, undefined for infinite `n`."""

    name = "math.ldexp"


def ldexp(x: np.ndarray[Any, Any], n: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return x·2^⌊n⌋."""
    exponent = np.floor(np.clip(n.astype(np.float64), -_MAX_EXPONENT_BITS, _MAX_EXPONENT_BITS))
    is_nan = np.isnan(exponent)
    product = np.ldexp(x.astype(np.float64), np.where(is_nan, 0, exponent).astype(np.int32))
    return np.where(is_nan, np.nan, product).astype(x.dtype)

"""The modified Bessel functions of the first kind, of orders 0 and 1, computed in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.numpy.apply import ArrayLike, Operand
from dlc.numpy.functions.comparing import equal, greater, isinf, less, less_equal
from dlc.numpy.functions.elementwise import abs, divide, exp, multiply, sqrt, where
from dlc.numpy.functions.floats import copysign
from dlc.numpy.rules import with_tangent
from dlc.special.formulas import chebyshev, floats, in_float64

__all__ = ["i0", "i0e", "i1", "i1e"]


def i0(x: ArrayLike, /) -> Any:
    """The modified Bessel function of order 0."""
    return _i0(*floats(x))


def i0e(x: ArrayLike, /) -> Any:
    """e^-|x| · i0(x)."""
    return _i0e(*floats(x))


def i1(x: ArrayLike, /) -> Any:
    """The modified Bessel function of order 1, which is the derivative of i0."""
    return _i1(*floats(x))


def i1e(x: ArrayLike, /) -> Any:
    """e^-|x| · i1(x)."""
    return _i1e(*floats(x))


# Chebyshev's coefficients, computed with 45 digits, of e^-z I0(z) and e^-z I1(z) / z for z = 4 + 4t, and of √z e^-z I(z) for
# z = 16 / (1 + t), the split of Cephes' (Moshier, Methods and Programs for Mathematical Functions).
_SPLIT = 8.0
_NEAR_0 = (
    0.676795274409476085, -0.3046826723431983987, 0.1716209015222087753, -0.09490109704804764442, 0.04930528423967070849,
    -0.02373741480589946882, 0.01054646039459499832, -0.004324309995050575944, 0.001639475616941335798,
    -0.0005763755745385823659, 0.0001885028850958416557, -0.00005754195010082103704, 0.00001644844807072889709,
    -4.416738358458750564e-6, 1.117387539120103718e-6, -2.670793853940611734e-7, 6.046995022541918949e-8,
    -1.300025009986248042e-8, 2.65982372468238665e-9, -5.189795601635262907e-10, 9.675809035373236912e-11,
    -1.726826291441555707e-11, 2.955052663129639835e-12, -4.856446783111929461e-13, 7.676185498604935617e-14,
    -1.168533287799345168e-14, 1.715391285555133031e-15, -2.431279846547954694e-16, 3.330794518822238098e-17,
)  # fmt: skip
_FAR_0 = (
    0.8044904110141088316, 0.00336911647825569409, 0.00006889758346916823984, 2.891370520834756483e-6,
    2.048918589469063742e-7, 2.266668990498178065e-8, 3.396232025708386345e-9, 4.940602388224969589e-10,
    1.188914710784643834e-11, -3.149916527963241365e-11, -1.321581184044771312e-11, -1.794178531506806118e-12,
    7.180124451383666234e-13, 3.852778382742142701e-13, 1.540086217521409827e-14, -4.150569347287222087e-14,
    -9.554846698828307649e-15, 3.811680669352622421e-15, 1.772560133056526384e-15, -3.425485619677219135e-16,
    -2.827623980516583485e-16, 3.461222867697461093e-17, 4.465621420296759999e-17,
)  # fmt: skip
_NEAR_1 = (
    0.2525871864436336548, -0.1764165183578340552, 0.1026436586898470954, -0.05294598120809499143, 0.02472644903062651683,
    -0.01056408489462619816, 0.004156422944312888157, -0.001513572450631253149, 0.0005122859561685757729,
    -0.0001617608158258967456, 0.00004781565107550054226, -0.00001327316365603943583, 3.470251308137678477e-6,
    -8.568720264695454741e-7, 2.003294753552135262e-7, -4.445059128796328081e-8, 9.381537386495771784e-9,
    -1.887249751722829288e-9, 3.625590281552117037e-10, -6.663489723502027742e-11, 1.173618629889090163e-11,
    -1.983974397764943715e-12, 3.22379336594557471e-13, -5.042185504727911687e-14, 7.600684294735406934e-15,
    -1.105596947735386308e-15, 1.553631957736200469e-16, -2.111421214358166078e-17,
)  # fmt: skip
_FAR_1 = (
    0.7785762350182801205, -0.009761097491361468408, -0.0001105889387626237163, -3.882564808877690393e-6,
    -2.512236237870208925e-7, -2.631468846889519507e-8, -3.835380385964237022e-9, -5.589743462196583807e-10,
    -1.897495812350541234e-11, 3.252603583015488239e-11, 1.412580743661378133e-11, 2.035628544147089507e-12,
    -7.198551776245908512e-13, -4.083551111092197318e-13, -2.101541842772664313e-14, 4.272440016711951354e-14,
    1.042027698412880276e-14, -3.814403072437007805e-15, -1.880354775510782449e-15, 3.308202310920928283e-16,
    2.962628997645950139e-16, -3.209525921993423959e-17, -4.650305368489358326e-17,
)  # fmt: skip


def _scaled_bessel(order: int, x: Any) -> Any:
    """e^-|x| · I(|x|)."""
    z = abs(x)
    near, far = (_NEAR_1, _FAR_1) if order else (_NEAR_0, _FAR_0)
    small = less_equal(z, _SPLIT)
    low = chebyshev(where(small, z, 0) * 0.25 - 1, near)
    inverse = divide(1, where(small, _SPLIT, z))
    high = chebyshev(inverse * 16 - 1, far) * sqrt(inverse)
    return where(small, z * low if order else low, high)


def _unscaled(scaled: Any, x: Any) -> Any:
    # In two steps: e^x overflows before the product does.
    half = exp(abs(x) / 2)
    return half * scaled * half


def _i0_slope(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(i1(operands[0]), tangents[0])


def _i0e_slope(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(i1e(x) - _sign(x) * result, tangents[0])


def _i1_slope(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(i0(x) - _over(result, x), tangents[0])


def _i1e_slope(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(i0e(x) - _sign(x) * result - _over(result, x), tangents[0])


def _sign(x: Any) -> Any:
    return where(less(x, 0), -1, where(greater(x, 0), 1, 0 * x))


def _over(result: Any, x: Any) -> Any:
    """i1(x) / x, which is 1/2 at 0."""
    none = equal(x, 0)
    return where(none, 0.5, divide(result, where(none, 1, x)))


@in_float64
@with_tangent(_i0_slope)
def _i0(x: Any) -> Any:
    return where(isinf(x), math.inf, _unscaled(_scaled_bessel(0, x), x))


@in_float64
@with_tangent(_i0e_slope)
def _i0e(x: Any) -> Any:
    return _scaled_bessel(0, x)


@in_float64
@with_tangent(_i1_slope)
def _i1(x: Any) -> Any:
    return copysign(where(isinf(x), math.inf, _unscaled(_scaled_bessel(1, x), x)), x)


@in_float64
@with_tangent(_i1e_slope)
def _i1e(x: Any) -> Any:
    return copysign(_scaled_bessel(1, x), x)

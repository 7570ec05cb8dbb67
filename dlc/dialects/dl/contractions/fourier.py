"""Fourier transforms, of real numbers in pairs: the real parts, and the imaginary parts after them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dlc.dialects.dl.arithmetic.activation import casted, widened
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MinimumOp, ModOp, MulOp, SelectOp, SubOp
from dlc.dialects.dl.arithmetic.functions import SinOp
from dlc.dialects.dl.arithmetic.logic import LessOp
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import MatmulOp, differ
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
from dlc.dialects.dl.reductions.composite import in_wide_type
from dlc.dims import product
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    IntegerAttr,
    SSAValue,
    TensorType,
    f64,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)

_I64 = tensor_type((), i64)
# The longest transform that is one product with a matrix, and what a stage costs beside its products, in terms of one.
_LONGEST, _STAGE = 64, 16


@irdl_op_definition
class DftOp(Composite):
    """`y[…, k] = Σⱼ x[…, j] · e^(-2πi·jk/n)`, n = `length`; with `inverse`, e^(2πi·jk/n) and divided by n.

    The last axis but one has the parts of numbers: 1 for real ones, 2 for the real and the imaginary parts. The result has 2.
    With `onesided`, of a real `x`, it has only the first n // 2 + 1 bins, whose mirror images the others are; the inverse of
    that takes so many bins, and its result is real. The imaginary parts of the first bin, and of the last for an even n, are
    not read then.
    (C1) `x` is of floats, of rank 2 or more, with 1 or 2 parts, as `onesided` says if it is there; (C2) its last size is n, or
    n // 2 + 1; (C3) n is 1 or more. NaN and infinities may become NaN in all bins.
    """

    name = "dl.dft"
    x = operand_def(TensorType)
    length = prop_def(IntegerAttr)
    inverse = opt_prop_def(BoolAttr)
    onesided = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @property
    def bins(self) -> int:
        """How many elements a row of the half that is onesided has, or all."""
        return number(self.length) // 2 + 1 if flag(self.onesided) else number(self.length)

    def infer(self) -> Sequence[Tensor]:
        n, shape, element = number(self.length), shape_of(self.x), element_type_of(self.x)
        back, half = flag(self.inverse), flag(self.onesided)
        if not is_float(element):
            raise DTypeError(f"dl.dft: element type {element}, expected a float (C1)")
        if n < 1:
            raise ShapeError(f"dl.dft: length {n}, expected 1 or more (C3)")
        parts = (1 + back,) if half else (1, 2)
        if len(shape) < 2 or all(differ(shape[-2], p) for p in parts) or differ(shape[-1], self.bins if back else n):
            wanted = " or ".join(f"[…, {p}, {self.bins if back else n}]" for p in parts)
            raise ShapeError(f"dl.dft: x {shape} for a transform of {n}; expected {wanted} (C1, C2)")
        result = (1, n) if half and back else (2, self.bins)
        return [tensor_type((*shape[:-2], *result), element)]

    def reference(self, *operands: Array) -> Array:
        n, back, half = number(self.length), flag(self.inverse), flag(self.onesided)

        def compute(x: Array) -> Array:
            real, *imaginary = np.moveaxis(x.astype(np.float64), -2, 0)
            z = real + 1j * imaginary[0] if imaginary else real
            if half and back:
                return np.fft.irfft(z, n)[..., np.newaxis, :]
            y = np.fft.rfft(z) if half else np.fft.ifft(z) if back else np.fft.fft(z)
            return np.stack([y.real, y.imag], -2)

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        b, n, back = Build(self), number(self.length), flag(self.inverse)
        x, (*lead, parts, given), made = widened(b, operands[0]), shape_of(operands[0]), shape_of(self.result)[-2:]
        x = b(ReshapeOp, x, shape=(product(lead), parts, given))
        if given < n:
            x = _with_mirror_images(b, x, n)
        transform = _transform if _stages(n) else _by_convolution
        y = transform(b, x, n, 1 if back else -1, 1 / n if back else 1.0, *map(int, made))
        return [casted(b, b(ReshapeOp, y, shape=(*lead, *made)), element_type_of(operands[0]))]


# Note [Transforms in stages]
#
# n = f·m: with j = j₁·m + j₂ and k = k₁ + f·k₂ a transform of n is m transforms of f (along j₁), turns by e^(∓2πi·k₁·j₂/n),
# and f transforms of m (along j₂). What was transformed becomes an axis in front of the bins that there are (Stockham's order):
# after each stage rows are [m, parts, bins], and nothing is left to be put in order at the end. A transform of a factor is a
# product with a matrix that has the parts of numbers in it, so that a stage is one contraction and one elementwise kernel.
# Matrices and turns are expressions of literals, which are evaluated once, in f64.


def _transform(b: Build, x: SSAValue, n: int, sign: int, scale: float, parts: int, bins: int) -> SSAValue:
    """The first bins of rows [r, parts, n], and so many of their parts, times `scale`: see Note [Transforms in stages]."""
    rows, given, _ = shape_of(x)
    element, (f, *rest), last = element_type_of(x), _stages(n), (parts, bins, scale)
    m, given = n // f, int(given)
    # [out, k, j, in] → [in, j, out, k]
    matrix = _matrix(b, f, sign, given, last if m == 1 else (2, f, 1.0), element)
    matrix = b(TransposeOp, matrix, permutation=(3, 2, 0, 1))
    matrix = b(ReshapeOp, matrix, shape=(given * f, product(shape_of(matrix)[2:])))
    y = b(TransposeOp, b(ReshapeOp, x, shape=(rows, given * f, m)), permutation=(0, 2, 1))
    y, done = b(MatmulOp, y, matrix), bins if m == 1 else f
    for following in rest:
        # The bin of the factor is what the bins before it leave.
        k = b(DivOp, _along(b, done, 1, 2), b.scalar(done // f, like=_I64))
        e = b(MulOp, b(MulOp, k, _along(b, m, 0, 2)), b.scalar(sign, like=k))
        y = _turned(b, b(ReshapeOp, y, shape=(rows, m, 2, done)), e, f * m)
        f, m = following, m // following
        y = b(TransposeOp, b(ReshapeOp, y, shape=(rows, f, m, 2, done)), permutation=(0, 2, 1, 3, 4))
        out = (parts, -(-bins // done), scale) if m == 1 else (2, f, 1.0)
        matrix = b(ReshapeOp, _matrix(b, f, sign, 2, out, element), shape=(out[0] * out[1], f * 2))
        y = b(MatmulOp, matrix, b(ReshapeOp, y, shape=(rows, m, f * 2, done)))
        done *= out[1]
    y = b(ReshapeOp, y, shape=(rows, parts, done))
    return b(SliceOp, y, starts=(0, 0, 0), limits=(rows, parts, bins), strides=(1, 1, 1)) if done > bins else y


@lru_cache(maxsize=1024)
def _stages(n: int) -> tuple[int, ...]:
    """The factors of the stages of a transform of `n`, the least work for all of them; none if n has too large a prime."""
    if n <= _LONGEST:
        return (n,)
    found = [(f, *_stages(n // f)) for f in range(_LONGEST, 1, -1) if n % f == 0]
    # An even factor at the end has the bin in the middle of real numbers from real ones, so that it is real exactly.
    return min((s for s in found if len(s) > 1), key=lambda s: (sum(s) + _STAGE * len(s), s[-1] % 2), default=())


def _by_convolution(b: Build, x: SSAValue, n: int, sign: int, scale: float, parts: int, bins: int) -> SSAValue:
    """What `_transform` computes, for any n (Bluestein's algorithm): jk = (j² + k² - (k - j)²) / 2 makes it a convolution.

    With c[k] = e^(±πi·k²/n): y[k] = c[k] · Σⱼ (x[j]·c[j]) · c̄[k - j], by transforms of a length of small factors.
    """
    (rows, given, _), element = shape_of(x), element_type_of(x)
    m = next(m for m in range(2 * n - 1, 4 * n) if _stages(m) and max(_stages(m)) <= _LONGEST // 2)
    k = _along(b, n, 0, 1)
    chirp = b(MulOp, b(MulOp, k, k), b.scalar(sign, like=k))
    if given == 1:
        x = b(MulOp, x, b(CastOp, _cosines(b, chirp, 2 * n, b(SubOp, _zero(b), _along(b, 2, 0, 2))), to=element))
    else:
        x = _turned(b, x, chirp, 2 * n)
    x = b(PadOp, x, b.scalar(0, like=x), low=(0, 0, 0), high=(0, 0, m - n))
    y = _transform(b, x, m, -1, 1.0, 2, m)
    response = [b(CastOp, v, to=element) for v in _response(b, n, m, sign, scale)]
    y = _transform(b, _times(b, y, *response), m, 1, 1.0, 2, bins)
    y = _turned(b, y, b(SliceOp, chirp, starts=(0,), limits=(bins,), strides=(1,)), 2 * n)
    return b(SliceOp, y, starts=(0, 0, 0), limits=(rows, parts, bins), strides=(1, 1, 1))


def _response(b: Build, n: int, m: int, sign: int, scale: float) -> tuple[SSAValue, SSAValue]:
    """What `_times` takes of the transform of c̄, for both directions, times `scale` and divided by m."""
    k = _along(b, m, 0, 1)
    near = b(MinimumOp, k, b(SubOp, b.scalar(m, like=k), k))
    chirp = b(MulOp, b(MulOp, near, near), b.scalar(-sign, like=k))
    wave = _cosines(b, chirp, 2 * n, b(SubOp, _zero(b), _along(b, 2, 0, 2)))
    wave = b(SelectOp, b(LessOp, near, b.scalar(n, like=near)), wave, b.scalar(0.0, like=wave))
    y = _transform(b, b(ReshapeOp, wave, shape=(1, 2, m)), m, -1, scale / m, 2, m)
    real, imaginary = (b(SliceOp, y, starts=(0, p, 0), limits=(1, p + 1, m), strides=(1, 1, 1)) for p in (0, 1))
    return real, b(ConcatOp, b(SubOp, b.scalar(0.0, like=imaginary), imaginary), imaginary, axis=1)


def _with_mirror_images(b: Build, x: SSAValue, n: int) -> SSAValue:
    """All bins [r, 2, n] of real numbers, from the first n // 2 + 1."""
    rows, _, given = shape_of(x)
    images = b(SliceOp, x, starts=(0, 0, 1), limits=(rows, 2, n - int(given) + 1), strides=(1, 1, 1))
    signs = b(CastOp, _signs(b, 0, 2), to=element_type_of(x))
    return b(ConcatOp, x, b(MulOp, b(ReverseOp, images, axes=(2,)), signs), axis=2)


def _matrix(b: Build, f: int, sign: int, given: int, out: tuple[int, int, float], element: Attribute) -> SSAValue:
    """A transform of `f` as a matrix [parts out, bins, f, parts given]; `out` has how many parts and bins, and a factor."""
    parts, bins, scale = out
    e = b(MulOp, b(MulOp, _along(b, bins, 1, 4), b.scalar(sign, like=_I64)), _along(b, f, 2, 4))
    # An imaginary part is a quarter of a turn behind: (a + b·i)·(c + s·i) has a·c - b·s and a·s + b·c.
    matrix = _cosines(b, e, f, b(SubOp, _along(b, given, 3, 4), _along(b, parts, 0, 4)))
    return b(CastOp, b(MulOp, matrix, b.scalar(scale, like=matrix)), to=element)


def _turned(b: Build, y: SSAValue, e: SSAValue, n: int) -> SSAValue:
    """Numbers […, 2, l] turned by e/n of a full turn."""
    rank = rank_of(e)
    e = b(ReshapeOp, e, shape=(*shape_of(e)[:-1], 1, shape_of(e)[-1]))
    factors = (_cosines(b, e, n, quarters) for quarters in (_zero(b), _signs(b, rank - 1, rank + 1)))
    return _times(b, y, *(b(CastOp, v, to=element_type_of(y)) for v in factors))


def _times(b: Build, y: SSAValue, same: SSAValue, other: SSAValue) -> SSAValue:
    """Numbers […, 2, l], of which each part takes factors of itself and of the other one."""
    return b(AddOp, b(MulOp, y, same), b(MulOp, b(ReverseOp, y, axes=(rank_of(y) - 2,)), other))


def _cosines(b: Build, e: SSAValue, n: int, quarters: SSAValue) -> SSAValue:
    """cos(2π·(e/n + quarters/4)) of integers, in f64: the fraction of a turn is exact, and so is a 0.

    What is real stays real thereby: an imaginary part that is no more than a rounding would give a phase any sign.
    """
    fine = b(AddOp, b(MulOp, e, b.scalar(4, like=e)), b(MulOp, quarters, b.scalar(n, like=e)))
    turn = b(ModOp, fine, b.scalar(4 * n, like=fine))
    # cos t = cos(-t) = sin(π/2 - t), which is exact and odd around its 0.
    half = b(MinimumOp, turn, b(SubOp, b.scalar(4 * n, like=turn), turn))
    angle = b(CastOp, b(SubOp, b.scalar(n, like=half), half), to=f64)
    return b(SinOp, b(MulOp, angle, b.scalar(math.tau / (4 * n), like=angle)))


def _along(b: Build, size: int, axis: int, rank: int) -> SSAValue:
    """0, 1, … along one axis of a tensor of i64."""
    numbers = b(IotaOp, size=(size,), to=i64, start=0, step=1)
    return b(ReshapeOp, numbers, shape=tuple(size if a == axis else 1 for a in range(rank))) if rank > 1 else numbers


def _signs(b: Build, axis: int, rank: int) -> SSAValue:
    """1 for real parts and -1 for imaginary ones, along one axis of a tensor of i64."""
    return b(SubOp, b.scalar(1, like=_I64), b(MulOp, _along(b, 2, axis, rank), b.scalar(2, like=_I64)))


def _zero(b: Build) -> SSAValue:
    return b.scalar(0, like=_I64)

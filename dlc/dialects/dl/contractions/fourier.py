"""Discrete Fourier transforms of real and complex arrays; an axis of size 2 holds real and imaginary components."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dlc.dialects.dl.arithmetic.activation import cast_to, widen_floats
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MinimumOp, ModOp, MulOp, SelectOp, SubOp
from dlc.dialects.dl.arithmetic.functions import SinOp
from dlc.dialects.dl.arithmetic.logic import LessOp
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
from dlc.dialects.dl.reductions.composite import in_wide_type
from dlc.dims import is_known_different, product
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
# Maximum length of a transform that is one matrix product.
_MAX_MATRIX_LENGTH = 64
# Fixed cost of a stage per element, in multiplications.
_STAGE_COST_PRODUCTS = 16


@irdl_op_definition
class DftOp(Composite):
    """`y[…, k] = Σⱼ x[…, j] · e^(-2πi·jk/n)`, n = `length`; with `inverse`, e^(2πi·jk/n) and divided by n.

    The second-to-last axis holds the components: 1 for real values, 2 for real and imaginary components. The result has 2.

    With `onesided` and a real `x`, the result has only the first n // 2 + 1 bins; the others are their complex conjugates. The
    inverse of that takes n // 2 + 1 bins and has a real result; it does not read the imaginary component of the first bin, nor
    of the last one for an even n.
    (C1) `x` has a float type and rank 2 or more, with 1 or 2 components, 1 for `onesided`, 2 for its inverse; (C2) its last
    size is n, or n // 2 + 1 for the inverse of `onesided`; (C3) n is 1 or more. A NaN or an infinity may turn all bins into
    NaN.
    """

    name = "dl.dft"
    x = operand_def(TensorType)
    length = prop_def(IntegerAttr)
    inverse = opt_prop_def(BoolAttr)
    onesided = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @property
    def bins(self) -> int:
        """The number of bins of a row: n // 2 + 1 if `onesided`, else n."""
        return number(self.length) // 2 + 1 if flag(self.onesided) else number(self.length)

    def infer(self) -> Sequence[Tensor]:
        n, shape, element = number(self.length), shape_of(self.x), element_type_of(self.x)
        inverse, onesided = flag(self.inverse), flag(self.onesided)
        if not is_float(element):
            raise DTypeError(f"dl.dft: element type {element}; expected floats (C1)")
        if n < 1:
            raise ShapeError(f"dl.dft: length {n}, expected 1 or more (C3)")
        component_counts = (1 + inverse,) if onesided else (1, 2)
        if (
            len(shape) < 2
            or all(is_known_different(shape[-2], p) for p in component_counts)
            or is_known_different(shape[-1], self.bins if inverse else n)
        ):
            expected = " or ".join(f"[…, {p}, {self.bins if inverse else n}]" for p in component_counts)
            raise ShapeError(f"dl.dft: x {shape} for a transform of {n}; expected {expected} (C1, C2)")
        result = (1, n) if onesided and inverse else (2, self.bins)
        return [tensor_type((*shape[:-2], *result), element)]

    def reference(self, *operands: Array) -> Array:
        n, inverse, onesided = number(self.length), flag(self.inverse), flag(self.onesided)

        def compute(x: Array) -> Array:
            real, *imaginary = np.moveaxis(x.astype(np.float64), -2, 0)
            z = real + 1j * imaginary[0] if imaginary else real
            if onesided and inverse:
                return np.fft.irfft(z, n)[..., np.newaxis, :]
            y = np.fft.rfft(z) if onesided else np.fft.ifft(z) if inverse else np.fft.fft(z)
            return np.stack([y.real, y.imag], -2)

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        b, n, inverse = Build(self), number(self.length), flag(self.inverse)
        x, (*lead, components, num_elements), result_shape = (
            widen_floats(b, operands[0]),
            shape_of(operands[0]),
            shape_of(self.result)[-2:],
        )
        x = b(ReshapeOp, x, shape=(product(lead), components, num_elements))
        if num_elements < n:
            x = _with_mirror_images(b, x, n)
        transform = _transform if _stages(n) else _transform_by_convolution
        y = transform(b, x, n, 1 if inverse else -1, 1 / n if inverse else 1.0, *map(int, result_shape))
        return [cast_to(b, b(ReshapeOp, y, shape=(*lead, *result_shape)), element_type_of(operands[0]))]


# Note [Transforms in stages]
#
# For n = f·m, with j = j₁·m + j₂ and k = k₁ + f·k₂, a transform of length n is m transforms of length f (along j₁), twiddle
# factors e^(∓2πi·k₁·j₂/n), and f transforms of length m (along j₂). The transformed axis becomes the one before the bins so far
# (Stockham's order): after each stage rows are [m, components, bins], and no final permutation is needed. A transform of a
# factor is a product with a matrix that includes the components, so that a stage is one contraction and one elementwise kernel.
# Matrices and twiddle factors are expressions of literals, which are evaluated once, in f64.


def _transform(b: Build, x: SSAValue, n: int, sign: int, scale: float, components: int, bins: int) -> SSAValue:
    """Transform rows [r, components, n] to their first bins and components, times `scale`: see Note [Transforms in stages]."""
    rows, input_components, _ = shape_of(x)
    element, (f, *later_factors), last_output = element_type_of(x), _stages(n), (components, bins, scale)
    m, input_components = n // f, int(input_components)
    # [out, k, j, in] → [in, j, out, k]
    matrix = _matrix(b, f, sign, input_components, last_output if m == 1 else (2, f, 1.0), element)
    matrix = b(TransposeOp, matrix, permutation=(3, 2, 0, 1))
    matrix = b(ReshapeOp, matrix, shape=(input_components * f, product(shape_of(matrix)[2:])))
    y = b(TransposeOp, b(ReshapeOp, x, shape=(rows, input_components * f, m)), permutation=(0, 2, 1))
    y, num_bins = b(MatmulOp, y, matrix), bins if m == 1 else f
    for next_factor in later_factors:
        # k₁ of the next stage is the quotient of the bin index by the bins of all previous stages.
        k = b(DivOp, _iota_along(b, num_bins, 1, 2), b.scalar(num_bins // f, like=_I64))
        e = b(MulOp, b(MulOp, k, _iota_along(b, m, 0, 2)), b.scalar(sign, like=k))
        y = _rotate(b, b(ReshapeOp, y, shape=(rows, m, 2, num_bins)), e, f * m)
        f, m = next_factor, m // next_factor
        y = b(TransposeOp, b(ReshapeOp, y, shape=(rows, f, m, 2, num_bins)), permutation=(0, 2, 1, 3, 4))
        output = (components, -(-bins // num_bins), scale) if m == 1 else (2, f, 1.0)
        matrix = b(ReshapeOp, _matrix(b, f, sign, 2, output, element), shape=(output[0] * output[1], f * 2))
        y = b(MatmulOp, matrix, b(ReshapeOp, y, shape=(rows, m, f * 2, num_bins)))
        num_bins *= output[1]
    y = b(ReshapeOp, y, shape=(rows, components, num_bins))
    return b(SliceOp, y, starts=(0, 0, 0), limits=(rows, components, bins), strides=(1, 1, 1)) if num_bins > bins else y


@lru_cache(maxsize=1024)
def _stages(n: int) -> tuple[int, ...]:
    """Return the factors of n for the stages of a transform with the least cost; () if n has too large a prime factor."""
    if n <= _MAX_MATRIX_LENGTH:
        return (n,)
    factorizations = [(f, *_stages(n // f)) for f in range(_MAX_MATRIX_LENGTH, 1, -1) if n % f == 0]
    # With an even last factor, the middle bin of real values is computed from real values, so that it is exactly real.
    return min(
        (s for s in factorizations if len(s) > 1), key=lambda s: (sum(s) + _STAGE_COST_PRODUCTS * len(s), s[-1] % 2), default=()
    )


def _transform_by_convolution(b: Build, x: SSAValue, n: int, sign: int, scale: float, components: int, bins: int) -> SSAValue:
    """Compute `_transform` for any n as a convolution (Bluestein's algorithm): jk = (j² + k² - (k - j)²) / 2.

    With c[k] = e^(±πi·k²/n): y[k] = c[k] · Σⱼ (x[j]·c[j]) · c̄[k - j], by transforms of a length with small factors.
    """
    (rows, input_components, _), element = shape_of(x), element_type_of(x)
    m = next(m for m in range(2 * n - 1, 4 * n) if _stages(m) and max(_stages(m)) <= _MAX_MATRIX_LENGTH // 2)
    k = _iota_along(b, n, 0, 1)
    chirp = b(MulOp, b(MulOp, k, k), b.scalar(sign, like=k))
    if input_components == 1:
        x = b(MulOp, x, b(CastOp, _cosines(b, chirp, 2 * n, b(SubOp, _zero(b), _iota_along(b, 2, 0, 2))), to=element))
    else:
        x = _rotate(b, x, chirp, 2 * n)
    x = b(PadOp, x, b.scalar(0, like=x), low=(0, 0, 0), high=(0, 0, m - n))
    y = _transform(b, x, m, -1, 1.0, 2, m)
    response = [b(CastOp, v, to=element) for v in _emit_response(b, n, m, sign, scale)]
    y = _transform(b, _multiply_components(b, y, *response), m, 1, 1.0, 2, bins)
    y = _rotate(b, y, b(SliceOp, chirp, starts=(0,), limits=(bins,), strides=(1,)), 2 * n)
    return b(SliceOp, y, starts=(0, 0, 0), limits=(rows, components, bins), strides=(1, 1, 1))


def _emit_response(b: Build, n: int, m: int, sign: int, scale: float) -> tuple[SSAValue, SSAValue]:
    """Return the transform of c̄, times `scale` and divided by m, as factors for `_multiply_components`."""
    k = _iota_along(b, m, 0, 1)
    distance = b(MinimumOp, k, b(SubOp, b.scalar(m, like=k), k))
    chirp = b(MulOp, b(MulOp, distance, distance), b.scalar(-sign, like=k))
    wave = _cosines(b, chirp, 2 * n, b(SubOp, _zero(b), _iota_along(b, 2, 0, 2)))
    wave = b(SelectOp, b(LessOp, distance, b.scalar(n, like=distance)), wave, b.scalar(0.0, like=wave))
    y = _transform(b, b(ReshapeOp, wave, shape=(1, 2, m)), m, -1, scale / m, 2, m)
    real, imaginary = (b(SliceOp, y, starts=(0, p, 0), limits=(1, p + 1, m), strides=(1, 1, 1)) for p in (0, 1))
    return real, b(ConcatOp, b(SubOp, b.scalar(0.0, like=imaginary), imaginary), imaginary, axis=1)


def _with_mirror_images(b: Build, x: SSAValue, n: int) -> SSAValue:
    """Return all bins [r, 2, n] of a real transform from the first n // 2 + 1, by conjugate symmetry."""
    rows, _, num_bins = shape_of(x)
    images = b(SliceOp, x, starts=(0, 0, 1), limits=(rows, 2, n - int(num_bins) + 1), strides=(1, 1, 1))
    signs = b(CastOp, _signs(b, 0, 2), to=element_type_of(x))
    return b(ConcatOp, x, b(MulOp, b(ReverseOp, images, axes=(2,)), signs), axis=2)


def _matrix(b: Build, f: int, sign: int, input_components: int, output: tuple[int, int, float], element: Attribute) -> SSAValue:
    """Return the matrix [components out, bins, f, components in] of a transform of length `f`.

    `output` is (number of result components, number of bins, scale).
    """
    components, bins, scale = output
    e = b(MulOp, b(MulOp, _iota_along(b, bins, 1, 4), b.scalar(sign, like=_I64)), _iota_along(b, f, 2, 4))
    # The imaginary component lags the real one by a quarter turn: (a + b·i)·(c + s·i) = (a·c - b·s) + (a·s + b·c)·i.
    matrix = _cosines(b, e, f, b(SubOp, _iota_along(b, input_components, 3, 4), _iota_along(b, components, 0, 4)))
    return b(CastOp, b(MulOp, matrix, b.scalar(scale, like=matrix)), to=element)


def _rotate(b: Build, y: SSAValue, e: SSAValue, n: int) -> SSAValue:
    """Multiply complex values […, 2, l] by e^(2πi·e/n)."""
    rank = rank_of(e)
    e = b(ReshapeOp, e, shape=(*shape_of(e)[:-1], 1, shape_of(e)[-1]))
    factors = (_cosines(b, e, n, quarters) for quarters in (_zero(b), _signs(b, rank - 1, rank + 1)))
    return _multiply_components(b, y, *(b(CastOp, v, to=element_type_of(y)) for v in factors))


def _multiply_components(b: Build, y: SSAValue, own_factor: SSAValue, cross_factor: SSAValue) -> SSAValue:
    """Multiply complex values […, 2, l]: a component c becomes `own_factor`·c + `cross_factor`·(the other component)."""
    return b(AddOp, b(MulOp, y, own_factor), b(MulOp, b(ReverseOp, y, axes=(rank_of(y) - 2,)), cross_factor))


def _cosines(b: Build, e: SSAValue, n: int, quarters: SSAValue) -> SSAValue:
    """Return cos(2π·(e/n + quarters/4)) of integers in f64; the angle is reduced exactly, so that zeros are exact.

    Real values thereby stay exactly real: a rounding error as imaginary component would give phases an arbitrary sign.
    """
    phase_steps = b(AddOp, b(MulOp, e, b.scalar(4, like=e)), b(MulOp, quarters, b.scalar(n, like=e)))
    phase = b(ModOp, phase_steps, b.scalar(4 * n, like=phase_steps))
    # cos t = cos(-t) = sin(π/2 - t), which is exact and odd around its zero.
    folded_phase = b(MinimumOp, phase, b(SubOp, b.scalar(4 * n, like=phase), phase))
    angle = b(CastOp, b(SubOp, b.scalar(n, like=folded_phase), folded_phase), to=f64)
    return b(SinOp, b(MulOp, angle, b.scalar(math.tau / (4 * n), like=angle)))


def _iota_along(b: Build, size: int, axis: int, rank: int) -> SSAValue:
    """Return 0, 1, … along one axis of an i64 tensor of rank `rank`."""
    iota = b(IotaOp, size=(size,), to=i64, start=0, step=1)
    return b(ReshapeOp, iota, shape=tuple(size if a == axis else 1 for a in range(rank))) if rank > 1 else iota


def _signs(b: Build, axis: int, rank: int) -> SSAValue:
    """Return 1 and -1, the signs of the components under conjugation, along one axis of an i64 tensor."""
    return b(SubOp, b.scalar(1, like=_I64), b(MulOp, _iota_along(b, 2, axis, rank), b.scalar(2, like=_I64)))


def _zero(b: Build) -> SSAValue:
    return b.scalar(0, like=_I64)

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
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
from dlc.dialects.dl.reductions.composite import in_wide_type
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
from dlc.shapes.dims import is_known_different, product

_I64 = tensor_type((), i64)
# Maximum length of a transform that is one matrix product.
_MAX_MATRIX_LENGTH = 64
# Fixed cost of a stage per element, in multiplications.
_STAGE_COST_PRODUCTS = 16


@irdl_op_definition
class DftOp(Composite):
    """`y[…, k] = Σⱼ x[…, j] · e^(-2πi·jk/n)`, n = `length`; with `inverse`, e^(2πi·jk/n) and divided by n.

    The second-to-last axis holds the components: 1 for real values, 2 for real and imaginary components. The result has 2.

    With `onesided` and a real `x`, the result has only the first n // 2 + 1 bins; the others are their complex conjugates. With
    `onesided` and `inverse`, `x` has n // 2 + 1 bins and the result is real. The imaginary component of the first bin, and for
    an even n of the last bin, is not read.
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
        build, n, inverse = DlBuilder(self), number(self.length), flag(self.inverse)
        x, (*lead, components, num_elements), result_shape = (
            widen_floats(build, operands[0]),
            shape_of(operands[0]),
            shape_of(self.result)[-2:],
        )
        x = build(ReshapeOp, x, shape=(product(lead), components, num_elements))
        if num_elements < n:
            x = _with_mirror_images(build, x, n)
        transform = _transform if _stages(n) else _transform_by_convolution
        y = transform(build, x, n, 1 if inverse else -1, 1 / n if inverse else 1.0, *map(int, result_shape))
        return [cast_to(build, build(ReshapeOp, y, shape=(*lead, *result_shape)), element_type_of(operands[0]))]


# Note [Transforms in stages]
#
# For n = f·m, with j = j₁·m + j₂ and k = k₁ + f·k₂, a transform of length n is m transforms of length f (along j₁), twiddle
# factors e^(∓2πi·k₁·j₂/n), and f transforms of length m (along j₂). The transformed axis becomes the one before the bins so far
# (Stockham's order): after each stage rows are [m, components, bins], and no final permutation is needed. A transform of a
# factor is a product with a matrix that includes the components, so that a stage is one contraction and one elementwise kernel.
# Matrices and twiddle factors are expressions of literals, which are evaluated once, in f64.


def _transform(build: DlBuilder, x: SSAValue, n: int, sign: int, scale: float, components: int, bins: int) -> SSAValue:
    """Transform rows [r, components, n] to their first bins and components, times `scale`: see Note [Transforms in stages]."""
    rows, input_components, _ = shape_of(x)
    element, (f, *later_factors), last_output = element_type_of(x), _stages(n), (components, bins, scale)
    m, input_components = n // f, int(input_components)
    # [out, k, j, in] → [in, j, out, k]
    matrix = _matrix(build, f, sign, input_components, last_output if m == 1 else (2, f, 1.0), element)
    matrix = build(TransposeOp, matrix, permutation=(3, 2, 0, 1))
    matrix = build(ReshapeOp, matrix, shape=(input_components * f, product(shape_of(matrix)[2:])))
    y = build(TransposeOp, build(ReshapeOp, x, shape=(rows, input_components * f, m)), permutation=(0, 2, 1))
    y, num_bins = build(MatmulOp, y, matrix), bins if m == 1 else f
    for next_factor in later_factors:
        # k₁ of the next stage is the quotient of the bin index by the bins of all previous stages.
        k = build(DivOp, _iota_along(build, num_bins, 1, 2), build.scalar(num_bins // f, like=_I64))
        e = build(MulOp, build(MulOp, k, _iota_along(build, m, 0, 2)), build.scalar(sign, like=k))
        y = _rotate(build, build(ReshapeOp, y, shape=(rows, m, 2, num_bins)), e, f * m)
        f, m = next_factor, m // next_factor
        y = build(TransposeOp, build(ReshapeOp, y, shape=(rows, f, m, 2, num_bins)), permutation=(0, 2, 1, 3, 4))
        output = (components, -(-bins // num_bins), scale) if m == 1 else (2, f, 1.0)
        matrix = build(ReshapeOp, _matrix(build, f, sign, 2, output, element), shape=(output[0] * output[1], f * 2))
        y = build(MatmulOp, matrix, build(ReshapeOp, y, shape=(rows, m, f * 2, num_bins)))
        num_bins *= output[1]
    y = build(ReshapeOp, y, shape=(rows, components, num_bins))
    return build(SliceOp, y, starts=(0, 0, 0), limits=(rows, components, bins), strides=(1, 1, 1)) if num_bins > bins else y


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


def _transform_by_convolution(
    build: DlBuilder, x: SSAValue, n: int, sign: int, scale: float, components: int, bins: int
) -> SSAValue:
    """Compute `_transform` for any n as a convolution (Bluestein's algorithm): jk = (j² + k² - (k - j)²) / 2.

    With c[k] = e^(±πi·k²/n): y[k] = c[k] · Σⱼ (x[j]·c[j]) · c̄[k - j], by transforms of a length with small factors.
    """
    (rows, input_components, _), element = shape_of(x), element_type_of(x)
    m = next(m for m in range(2 * n - 1, 4 * n) if _stages(m) and max(_stages(m)) <= _MAX_MATRIX_LENGTH // 2)
    k = _iota_along(build, n, 0, 1)
    chirp = build(MulOp, build(MulOp, k, k), build.scalar(sign, like=k))
    if input_components == 1:
        x = build(
            MulOp,
            x,
            build(CastOp, _cosines(build, chirp, 2 * n, build(SubOp, _zero(build), _iota_along(build, 2, 0, 2))), to=element),
        )
    else:
        x = _rotate(build, x, chirp, 2 * n)
    x = build(PadOp, x, build.scalar(0, like=x), low=(0, 0, 0), high=(0, 0, m - n))
    y = _transform(build, x, m, -1, 1.0, 2, m)
    response = [build(CastOp, v, to=element) for v in _emit_response(build, n, m, sign, scale)]
    y = _transform(build, _multiply_components(build, y, *response), m, 1, 1.0, 2, bins)
    y = _rotate(build, y, build(SliceOp, chirp, starts=(0,), limits=(bins,), strides=(1,)), 2 * n)
    return build(SliceOp, y, starts=(0, 0, 0), limits=(rows, components, bins), strides=(1, 1, 1))


def _emit_response(build: DlBuilder, n: int, m: int, sign: int, scale: float) -> tuple[SSAValue, SSAValue]:
    """Return the transform of c̄, times `scale` and divided by m, as factors for `_multiply_components`."""
    k = _iota_along(build, m, 0, 1)
    distance = build(MinimumOp, k, build(SubOp, build.scalar(m, like=k), k))
    chirp = build(MulOp, build(MulOp, distance, distance), build.scalar(-sign, like=k))
    wave = _cosines(build, chirp, 2 * n, build(SubOp, _zero(build), _iota_along(build, 2, 0, 2)))
    wave = build(SelectOp, build(LessOp, distance, build.scalar(n, like=distance)), wave, build.scalar(0.0, like=wave))
    y = _transform(build, build(ReshapeOp, wave, shape=(1, 2, m)), m, -1, scale / m, 2, m)
    real, imaginary = (build(SliceOp, y, starts=(0, p, 0), limits=(1, p + 1, m), strides=(1, 1, 1)) for p in (0, 1))
    return real, build(ConcatOp, build(SubOp, build.scalar(0.0, like=imaginary), imaginary), imaginary, axis=1)


def _with_mirror_images(build: DlBuilder, x: SSAValue, n: int) -> SSAValue:
    """Return all bins [r, 2, n] of a real transform from the first n // 2 + 1, by conjugate symmetry."""
    rows, _, num_bins = shape_of(x)
    images = build(SliceOp, x, starts=(0, 0, 1), limits=(rows, 2, n - int(num_bins) + 1), strides=(1, 1, 1))
    signs = build(CastOp, _signs(build, 0, 2), to=element_type_of(x))
    return build(ConcatOp, x, build(MulOp, build(ReverseOp, images, axes=(2,)), signs), axis=2)


def _matrix(
    build: DlBuilder, f: int, sign: int, input_components: int, output: tuple[int, int, float], element: Attribute
) -> SSAValue:
    """Return the matrix [components out, bins, f, components in] of a transform of length `f`.

    `output` is (number of result components, number of bins, scale).
    """
    components, bins, scale = output
    e = build(MulOp, build(MulOp, _iota_along(build, bins, 1, 4), build.scalar(sign, like=_I64)), _iota_along(build, f, 2, 4))
    # The imaginary component lags the real one by a quarter turn: (a + b·i)·(c + s·i) = (a·c - b·s) + (a·s + b·c)·i.
    matrix = _cosines(
        build, e, f, build(SubOp, _iota_along(build, input_components, 3, 4), _iota_along(build, components, 0, 4))
    )
    return build(CastOp, build(MulOp, matrix, build.scalar(scale, like=matrix)), to=element)


def _rotate(build: DlBuilder, y: SSAValue, e: SSAValue, n: int) -> SSAValue:
    """Multiply complex values […, 2, l] by e^(2πi·e/n)."""
    rank = rank_of(e)
    e = build(ReshapeOp, e, shape=(*shape_of(e)[:-1], 1, shape_of(e)[-1]))
    factors = (_cosines(build, e, n, quarters) for quarters in (_zero(build), _signs(build, rank - 1, rank + 1)))
    return _multiply_components(build, y, *(build(CastOp, v, to=element_type_of(y)) for v in factors))


def _multiply_components(build: DlBuilder, y: SSAValue, own_factor: SSAValue, cross_factor: SSAValue) -> SSAValue:
    """Multiply complex values […, 2, l]: a component c becomes `own_factor`·c + `cross_factor`·(the other component)."""
    return build(AddOp, build(MulOp, y, own_factor), build(MulOp, build(ReverseOp, y, axes=(rank_of(y) - 2,)), cross_factor))


def _cosines(build: DlBuilder, e: SSAValue, n: int, quarters: SSAValue) -> SSAValue:
    """Return cos(2π·(e/n + quarters/4)) of integers in f64; the angle is reduced exactly, so that zeros are exact.

    Real values thereby stay exactly real: a rounding error as imaginary component would give phases an arbitrary sign.
    """
    phase_steps = build(AddOp, build(MulOp, e, build.scalar(4, like=e)), build(MulOp, quarters, build.scalar(n, like=e)))
    phase = build(ModOp, phase_steps, build.scalar(4 * n, like=phase_steps))
    # cos t = cos(-t) = sin(π/2 - t), which is exact and odd around its zero.
    folded_phase = build(MinimumOp, phase, build(SubOp, build.scalar(4 * n, like=phase), phase))
    angle = build(CastOp, build(SubOp, build.scalar(n, like=folded_phase), folded_phase), to=f64)
    return build(SinOp, build(MulOp, angle, build.scalar(math.tau / (4 * n), like=angle)))


def _iota_along(build: DlBuilder, size: int, axis: int, rank: int) -> SSAValue:
    """Return 0, 1, … along one axis of an i64 tensor of rank `rank`."""
    iota = build(IotaOp, size=(size,), to=i64, start=0, step=1)
    return build(ReshapeOp, iota, shape=tuple(size if a == axis else 1 for a in range(rank))) if rank > 1 else iota


def _signs(build: DlBuilder, axis: int, rank: int) -> SSAValue:
    """Return 1 and -1, the signs of the components under conjugation, along one axis of an i64 tensor."""
    return build(SubOp, build.scalar(1, like=_I64), build(MulOp, _iota_along(build, 2, axis, rank), build.scalar(2, like=_I64)))


def _zero(build: DlBuilder) -> SSAValue:
    return build.scalar(0, like=_I64)

"""Recipes for contractions and window ops: operands with matching sizes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import DlOp, PropertyValue, tensor_type
from dlc.dialects.dl.dtypes import dense_attribute, element_type, numpy_dtype
from dlc.dialects.dl.low_precision.bit_planes import BitPlanes
from dlc.dialects.dl.low_precision.weight_only import WEIGHT_ONLY_TYPES
from dlc.dialects.dl.low_precision.weight_only_dot import MAX_WEIGHT_BITS
from dlc.testing.sample import BF16, F16, F32, I8, I16, I32, I64, U8, U32, is_float
from tests.fuzz.random_program import ProgramValue, RandomProgram
from tests.fuzz.random_values import FLOATS, NUMERIC, SMALL_SIZES, Unsuitable


def _sum_type(p: RandomProgram, a: ProgramValue, b: ProgramValue) -> dict[str, PropertyValue]:
    if a.dtype != b.dtype or (not is_float(a.dtype) and p.random.random() < 0.3):
        return {"result": element_type(p.random.choice([I32, I64, U32]))}
    if is_float(a.dtype) and a.dtype.itemsize == 2 and p.random.random() < 0.3:
        return {"result": element_type(F32)}
    return {}


def _factor_dtype(p: RandomProgram, x: ProgramValue) -> np.dtype:
    """Choose a dtype for the second operand of a product with `x`."""
    if is_float(x.dtype) or p.random.random() < 0.7:
        return x.dtype
    return p.random.choice([I8, U8, I16])


def matmul(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(NUMERIC, lambda s: len(s) > 0)
    k, n = x.shape[-1], p.random.choice([1, 2, 5, 16, 17, 33])
    batch = [s if p.flag() else 1 for s in x.shape[:-2]][p.random.choice([0, 2]) :]
    shape = p.random.choice([(k,), (k, n), (k, n), (*batch, k, n)])
    y = p.like(_factor_dtype(p, x), lambda s: len(s) > 0 and s[-2:][0] == k, shape, max(k, 1) ** -0.5)
    return p.add(op, x, y, **_sum_type(p, x, y))


def matmul_weight_only(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    """Rows of floats times weight-only quantized weights in packed words, with ordinary scales."""
    of, (blocks, words, n) = p.random.choice(WEIGHT_ONLY_TYPES), (p.random.choice([1, 2, 3]) for _ in range(3))
    k, n = blocks * words * (32 // scalar.bits(of)), n * p.random.choice([1, 5, 16])
    x = p.like(
        p.random.choice([F16, BF16, F32]), lambda s: len(s) > 0 and s[-1] == k, (*p.shape(p.random.choice([0, 1, 2]), 16), k)
    )
    parameters = [p.rng.uniform(0.01, 0.1, (blocks, n)), p.rng.integers(0, 16, (blocks, n))]
    scales_and_zeros = [p.source(a.astype(F32)) for a in parameters[: p.random.choice([1, 2])]]
    bits = p.source(p.rng.integers(-(1 << 31), 1 << 31, (blocks, words, n)).astype(I32))
    return p.add(op, x, bits, *scales_and_zeros, of=of, scale_weights=p.flag())


def matmul_weight_only_dot(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    """Rows of quantized integers times weight-only quantized weights in bit planes, with ordinary scales."""
    planes, (blocks, steps, groups, n) = (
        BitPlanes(p.random.choice([2, 4, 5, 6, 8])),
        (p.random.choice([1, 2, 3]) for _ in range(4)),
    )
    dots = [("i16", 1, I16), *((dot, parts, I8) for dot in ("u8i8", "u8i7") for parts in (1, 2))]
    dot, parts, dtype = p.random.choice([d for d in dots if planes.bits <= MAX_WEIGHT_BITS[d[0]]])
    rows, n, size = p.shape(p.random.choice([0, 1, 2]), 16), n * p.random.choice([1, 5, 16]), groups * planes.group
    fours = p.rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (*rows, blocks, steps, size // 4, parts, 4)).astype(
        dtype
    )
    x = (fours.astype(np.int64) * (1 << 8 * np.arange(parts)[::-1])[:, None]).sum((-3, -2, -1))
    words = p.rng.integers(-(1 << 31), 1 << 31, (blocks, steps, groups * planes.words, n)).astype(I32)
    row_scale, scale = (p.rng.uniform(0.01, 0.1, s).astype(F32) for s in ((*rows, blocks), (blocks, n)))
    zero = [p.rng.integers(0, 16, (blocks, n)).astype(F32)][: p.random.choice([0, 1])]
    row_sums = x.astype(F32) * row_scale[..., None] if zero else (-(1 << (planes.bits - 1)) * x).astype(I32)
    packed = fours.reshape(*rows, blocks * steps * size * parts).view(I32)
    operands = map(p.source, (packed, words, row_scale, row_sums, scale, *zero))
    return p.add(op, *operands, bits=planes.bits, parts=parts, dot=dot)


def pack_nibbles(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    dtype = numpy_dtype(p.random.choice([of for of in WEIGHT_ONLY_TYPES if scalar.bits(of) == 4]))
    return p.add(op, p.fresh(dtype, (*p.shape(p.random.choice([0, 1, 2]), 16), 2 * p.random.choice(SMALL_SIZES))))


def dot_general(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(NUMERIC, lambda s: len(s) < 5)
    axes = p.random.sample(range(len(x.shape)), len(x.shape))
    contraction_error = axes[: p.random.choice([1, 1, 2, 0])]
    batch = axes[len(contraction_error) :][: p.random.choice([0, 0, 1, 2])]
    shape = [x.shape[a] for a in (*batch, *contraction_error)] + [
        p.random.choice([1, 3, 8, 17]) for _ in range(p.random.choice([0, 1]))
    ]
    order = p.random.sample(range(len(shape)), len(shape))
    w = p.fresh(_factor_dtype(p, x), [shape[k] for k in order])
    positions = [order.index(k) for k in range(len(shape))]
    return p.add(
        op,
        x,
        w,
        lhs_batch=tuple(batch),
        rhs_batch=tuple(positions[: len(batch)]),
        lhs_contract=tuple(contraction_error),
        rhs_contract=tuple(positions[len(batch) : len(batch) + len(contraction_error)]),
        **_sum_type(p, x, w),
    )


def _windows(p: RandomProgram, x: ProgramValue) -> dict[str, tuple[int, ...]]:
    """Choose kernel sizes, strides and dilations that fit the spatial axes of `x`."""
    spatial = x.shape[1:-1]
    if min(spatial) < 1:
        raise Unsuitable
    kernel = tuple(p.random.randint(1, min(4, s)) for s in spatial)
    return {
        "kernel": kernel,
        "strides": tuple(p.random.choice([1, 1, 2, 3]) for _ in spatial),
        "dilations": tuple(p.random.choice([1, 2]) if (k - 1) * 2 < s else 1 for k, s in zip(kernel, spatial, strict=True)),
    }


def _image(p: RandomProgram) -> ProgramValue:
    x = p.any(NUMERIC, lambda s: len(s) in (3, 4, 5) and min(s[1:-1]) > 0, (3, 4, 4, 4, 5))
    if p.random.random() < 0.4:
        padding = (0, *(p.random.randint(0, 2) for _ in x.shape[1:-1]), 0)
        return p.add(dl.PadOp, x, p.source(np.zeros((), x.dtype)), low=padding, high=padding)
    return x


def conv(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = _image(p)
    window = _windows(p, x)
    kernel, channels = window.pop("kernel"), x.shape[-1]
    groups = p.random.choice([1, 1, 1, channels or 1, *(g for g in (2, 3, 4) if channels and channels % g == 0)])
    outputs = p.random.choice([1, 1, 2, 5] if groups > 1 else [1, 3, 8, 16, 33])
    if op is dl.ConvTransposeOp:
        w = p.fresh(x.dtype, (*kernel, channels, outputs), 0.3)
        return p.add(op, x, w, groups=groups, **window)
    depth = math.prod(kernel) * channels // groups or 1
    w = p.fresh(_factor_dtype(p, x), (*kernel, channels // groups, groups * outputs), depth**-0.5)
    y = p.add(op, x, w, groups=groups, **window, **_sum_type(p, x, w))
    if is_float(y.dtype) and p.flag():
        y = p.add(dl.ReluOp, p.add(dl.AddOp, y, p.fresh(y.dtype, (groups * outputs,))))
    return y


def mode_product(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(FLOATS, lambda s: len(s) > 0)
    axis, to = (p.random.randrange(len(x.shape)) for _ in range(2))
    matrix, properties = _matrix(p, x.dtype, (p.random.choice(SMALL_SIZES), x.shape[axis]))
    return p.add(op, x, matrix, axis=axis, to=to, **properties)


def _matrix(p: RandomProgram, dtype: np.dtype, shape: tuple[int, int]) -> tuple[ProgramValue, dict[str, PropertyValue]]:
    """Return a matrix operand, and the property that gives its constant elements to the op, if any."""
    if p.flag():
        return p.fresh(dtype, shape), {}
    numbers = _matrix_elements(p, dtype, shape)
    return p.literal(numbers), {"matrix_values": dense_attribute(numbers, tensor_type(shape, element_type(dtype)))}


def _matrix_elements(p: RandomProgram, dtype: np.dtype, shape: tuple[int, int]) -> np.ndarray:
    """Draw a matrix with few distinct elements, so that rows share terms: 0, ±1, sometimes extremes, or scaled rows."""
    if p.random.random() < 0.2:
        return p.random_array(dtype, shape)
    choices = [0.0, 0.0, 1.0, 1.0, -1.0, *p.random.choice([[], [2.0, -4.0], [0.5, 0.3, -3.0]])]
    if p.special:
        large, smallest = float(ml_dtypes.finfo(dtype).max), float(ml_dtypes.finfo(dtype).smallest_normal)
        choices += p.random.choice([[], [large, -large], [large / 3, smallest], [np.inf], [np.nan, -np.inf]])
    elements = p.rng.choice(choices, shape)
    if p.flag():
        elements = elements[:1] * p.rng.choice([1.0, -1.0, 2.0, 3.0], (shape[0], 1))
    with np.errstate(all="ignore"):
        return elements.astype(dtype)


def winograd_input(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    rows, t, step = p.random.choice([(4, 4, 2), (6, 6, 4), (3, 3, 1), (6, 4, 4), (4, 2, 2), (6, 3, 3)])
    height, width = (t + step * p.random.randint(0, 2) for _ in range(2))
    x = p.fresh(p.dtype(FLOATS), (p.random.choice([1, 2]), height, width, p.random.choice([1, 3, 8])))
    matrix, properties = _matrix(p, x.dtype, (rows, t))
    return p.add(op, x, matrix, step=step, **properties)


def winograd_output(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    t, m = p.random.choice([(4, 2), (6, 4), (3, 1)])
    x = p.fresh(p.dtype(FLOATS), (t, t, 1, p.random.choice(SMALL_SIZES), p.random.choice([1, 2]), p.random.choice([1, 5, 8])))
    matrix, properties = _matrix(p, x.dtype, (m, t))
    return p.add(op, x, matrix, **properties)


def pool(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = _image(p)
    return p.add(op, x, **_windows(p, x))


def max_pool_gradient(p: RandomProgram, op: type[DlOp]) -> ProgramValue:
    x = p.any(FLOATS, lambda s: len(s) in (3, 4) and min(s[1:-1]) > 0, (3, 4, 4, 4))
    window = _windows(p, x)
    y = p.add(dl.MaxPoolOp, x, **window)
    return p.add(op, x, y, p.fresh(x.dtype, y.shape), **window)

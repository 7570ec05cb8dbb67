"""`quantized-contractions` and `fold-quantization`: contractions of quantized operands in integers, and folded scales."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, tensor_type
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.ir import SSAValue, f32, i32
from dlc.passes.dl.low_precision.fold_quantization import FoldQuantizationPass
from dlc.passes.dl.low_precision.pack_dot_operands import PackDotOperandsPass
from dlc.passes.dl.low_precision.quantized_contractions import QuantizedContractionsPass
from dlc.passes.dl.rewriting import splat
from dlc.passes.dl.simplification.cse import CsePass
from dlc.passes.dl.simplification.dce import DcePass
from dlc.passes.dl.simplification.simplify import SimplifyPass
from dlc.target import CPU_LEVELS, REFERENCE, Target, resolve
from tests.passes.programs import Program, Writer, program, randoms

PAIRS, FOURS, PLAIN = CPU_LEVELS["cpu:avx2"], CPU_LEVELS["cpu:avx512_vnni"], REFERENCE
# The packed dot products for weights of 8 bits.
DOTS_8_BITS = {PAIRS: "i16", FOURS: "u8i8"}
SCALE, STEP = 0.02, 0.05


def number(b: Writer, value: float, dtype: Any = np.float32) -> SSAValue:
    return b.scalar(value, like=tensor_type((), element_type(dtype)))


def quantized(b: Writer, x: SSAValue, dtype: Any, scale: float = SCALE, zero: int = 9) -> tuple[SSAValue, SSAValue]:
    """Quantize and dequantize `x`."""
    parameters = number(b, scale), number(b, zero, dtype)
    q = b(dl.QuantizeOp, x, *parameters, axis=0)
    return q, b(dl.DequantizeOp, q, *parameters, axis=0)


def dequantized(b: Writer, shape: tuple[int, ...], dtype: Any, axis: int, zero: int = 0) -> SSAValue:
    """Return weights with a scale per position of an axis."""
    rng, limits = np.random.default_rng(1), np.iinfo(dtype)
    w = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    w.flat[:2] = limits.min, limits.max
    scales = rng.uniform(0.001, 0.002, shape[axis]).astype(np.float32)
    zeros = b.constant(np.full(shape[axis], zero), element_type(dtype))
    return b(dl.DequantizeOp, b.weight(w), b.weight(scales), zeros, axis=axis)


def convolution(b: Writer, x: SSAValue, channels: int, groups: int, dtype: Any = np.int8, zero: int = 0) -> SSAValue:
    """A padded channels-first convolution, as importers emit it."""
    x = b(dl.TransposeOp, x, permutation=(0, 2, 3, 1))
    x = b(dl.PadOp, x, b.scalar(0, like=x), low=(0, 1, 1, 0), high=(0, 1, 1, 0))
    w = dequantized(b, (8, channels // groups, 3, 3), dtype, 0, zero)
    w = b(dl.TransposeOp, w, permutation=(2, 3, 1, 0))
    y = b(dl.ConvOp, x, w, strides=(1, 2), dilations=(1, 1), groups=groups)
    return b(dl.TransposeOp, b(dl.AddOp, y, b.weight(randoms((8,))[0])), permutation=(0, 3, 1, 2))


def contractions(p: Program) -> list[Any]:
    return [op for op in p.main.body.block.ops if isinstance(op, dl.ConvOp | dl.MatmulOp)]


def rewritten(body: Any, target: Target, *inputs: np.ndarray, tolerance: float = 0.0) -> Program:
    return program(body, *inputs).apply(
        *(SimplifyPass(), QuantizedContractionsPass(target), PackDotOperandsPass(target), SimplifyPass(), CsePass(), DcePass()),
        tolerance=tolerance,
    )


@pytest.mark.parametrize("target", [PAIRS, FOURS, PLAIN], ids=lambda t: t.name)
@pytest.mark.parametrize("data", [np.uint8, np.int8])
@pytest.mark.parametrize("channels, groups", [(5, 1), (8, 1), (8, 8)])
def test_convolutions(data: Any, channels: int, groups: int, target: Target) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReluOp, convolution(b, quantized(b, x, data)[1], channels, groups))
        return quantized(b, y, data, STEP)[1]

    p = rewritten(body, target, *randoms((2, channels, 5, 7)), tolerance=1.01 * STEP)
    (conv,) = contractions(p)
    assert element_type_of(conv.result) == (i32 if groups == 1 else f32)
    assert conv.dot is dl.PACKED_DOTS.get(DOTS_8_BITS.get(target, "") if groups == 1 else "")
    p.apply(FoldQuantizationPass(), tolerance=1.01 * STEP)


@pytest.mark.parametrize(
    "dtype, zero, dot", [(np.int8, 0, "u8i8"), (np.int8, 1, "i16"), (np.uint8, 128, "u8i8"), (np.uint8, 100, "i16")]
)
def test_centered_weights_choose_the_dot_product(dtype: Any, zero: int, dot: str) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.MatmulOp, quantized(b, x, np.uint8)[1], dequantized(b, (10, 6), dtype, 1, zero))

    (matmul,) = contractions(rewritten(body, FOURS, *randoms((4, 10)), tolerance=1e-4))
    assert matmul.dot is dl.PACKED_DOTS[dot]


@pytest.mark.parametrize("max_weight, kernel, strides, dot", [
    (64, 1, 1, "u8i7"), (65, 1, 1, "i16"), (64, 3, 2, "u8i7"), (64, 3, 1, "i16"),
])  # fmt: skip
def test_weights_of_7_bits_are_multiplied_as_bytes(max_weight: int, kernel: int, strides: int, dot: str) -> None:
    w = np.random.default_rng(1).integers(-64, 64, (kernel, kernel, 8, 8), np.int8, endpoint=True)
    w[0, 0, 0, 0] = max_weight

    def body(b: Writer, x: SSAValue) -> SSAValue:
        weights = b(dl.DequantizeOp, b.weight(w), number(b, 0.001), number(b, 0, np.int8), axis=0)
        data = quantized(b, x, np.uint8)[1]
        return b(dl.ConvOp, data, weights, strides=(strides, strides), dilations=(1, 1), groups=1)

    (conv,) = contractions(rewritten(body, PAIRS, *randoms((1, 9, 9, 8)), tolerance=1e-4))
    assert conv.dot is dl.PACKED_DOTS[dot]


def test_float_dot_products_do_not_apply() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.MatmulOp, quantized(b, x, np.uint8)[1], dequantized(b, (10, 6), np.int8, 1, 0))

    (matmul,) = contractions(rewritten(body, resolve("opencl:gpu:mma"), *randoms((4, 10)), tolerance=1e-4))
    assert matmul.dot is None and element_type_of(matmul.result) == i32


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("target", [PAIRS, FOURS], ids=lambda t: t.name)
def test_centered_integer_sums_are_exact(target: Target, zeros: bool) -> None:
    def centred(b: Writer, x: SSAValue, zero: SSAValue) -> SSAValue:
        wide = b(dl.CastOp, x, to=i32)
        return b(dl.SubOp, wide, b(dl.CastOp, zero, to=i32)) if zeros else wide

    def body(b: Writer, x: SSAValue) -> SSAValue:
        q = dl.DynamicQuantizeLinearOp.make(x)
        b.insert(q)
        (w,) = (b.weight(np.random.default_rng(0).integers(-127, 127, (12, 5), np.int8)) for _ in range(1))
        of_columns = b.weight(np.arange(5, dtype=np.int8))
        return b(dl.MatmulOp, centred(b, q.y, q.zero_point), centred(b, w, of_columns))

    (matmul,) = contractions(rewritten(body, target, *randoms((2, 3, 12))))
    assert matmul.dot is not None


def test_requantization_after_movement_is_removed() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.TransposeOp, quantized(b, x, np.int8)[1], permutation=(0, 2, 3, 1))
        y = b(dl.PadOp, y, b.scalar(-math.inf, like=y), low=(0, 1, 1, 0), high=(0, 1, 1, 0))
        y = b(dl.MaxPoolOp, y, kernel=(3, 3), strides=(2, 2), dilations=(1, 1))
        return quantized(b, y, np.int8)[0]

    p = rewritten(body, PAIRS, *randoms((1, 4, 6, 6)))
    assert p.ops == ["quantize", "transpose", "pad", "max_pool"]


def test_all_readers_share_stored_integers() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        q, y = quantized(b, x, np.int8)
        again = b(dl.DequantizeOp, q, number(b, SCALE), number(b, 9, np.int8), axis=0)
        return b(dl.AddOp, convolution(b, y, 8, 1), b(dl.ReduceSumOp, again, axes=(2, 3), keepdims=True))

    for target, stored in ((PAIRS, np.int16), (FOURS, np.uint8)):
        p = rewritten(body, target, *randoms((1, 8, 3, 5)), tolerance=1e-3)
        (store,) = (op for op in p.main.body.block.ops if isinstance(op, dl.QuantizeOp))
        assert numpy_dtype(element_type_of(store.result)) == stored


def test_products_of_data_stay_floats() -> None:
    def body(b: Writer, x: SSAValue, y: SSAValue) -> SSAValue:
        return b(dl.MatmulOp, quantized(b, x, np.uint8)[1], quantized(b, y, np.uint8)[1])

    (matmul,) = contractions(rewritten(body, PAIRS, *randoms((4, 6), (6, 4))))
    assert matmul.dot is None and element_type_of(matmul.result) != i32


def test_scales_fold_through_extrema_and_sums() -> None:
    def body(b: Writer, x: SSAValue, y: SSAValue) -> SSAValue:
        _, skip = quantized(b, y, np.uint8)
        w, bias = (b.weight(v) for v in randoms((6,), (6,)))
        total = b(dl.AddOp, b(dl.AddOp, b(dl.MulOp, x, w), bias), skip)
        return quantized(b, b(dl.MinimumOp, b(dl.ReluOp, total), number(b, 6.0)), np.uint8, STEP)[1]

    p = program(body, *randoms((4, 6), (4, 6))).apply(FoldQuantizationPass(), SimplifyPass(), tolerance=1.01 * STEP)
    # x is scaled by its factors, y at its quantization.
    assert sum(isinstance(op, dl.MulOp) and reads_runtime_data(op) for op in p.main.body.block.ops) == 2


def reads_runtime_data(op: dl.MulOp) -> bool:
    """Return whether an op multiplies values known only at run time."""
    return any(not isinstance(v.owner, dl.WeightOp | dl.ConstantOp | dl.MulOp) for v in op.operands)


def test_grouped_convolutions_of_many_terms_sum_integers() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w = b(dl.TransposeOp, dequantized(b, (2, 259, 1, 1), np.int8, 0), permutation=(2, 3, 1, 0))
        y = b(dl.ConvOp, quantized(b, x, np.uint8)[1], w, strides=(1, 1), dilations=(1, 1), groups=2)
        return quantized(b, y, np.uint8, STEP)[1]

    (conv,) = contractions(rewritten(body, PAIRS, *randoms((1, 2, 3, 518)), tolerance=1.01 * STEP))
    assert element_type_of(conv.result) == i32


@pytest.mark.parametrize("zero", [0, 9])
@pytest.mark.parametrize("groups", [1, 8])
def test_offsets_become_part_of_the_constant_summand(groups: int, zero: int) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReluOp, convolution(b, quantized(b, x, np.uint8)[1], 8, groups))
        return quantized(b, b(dl.MinimumOp, y, number(b, 3)), np.uint8, STEP, zero)[1]

    integers = rewritten(body, PAIRS, *randoms((2, 8, 5, 7)), tolerance=1.01 * STEP)
    p = integers.apply(FoldQuantizationPass(), SimplifyPass(), CsePass(), DcePass(), tolerance=1.01 * STEP)
    (conv,), operations = contractions(p), list(p.main.body.block.ops)
    assert [type(use.operation) for use in conv.result.uses] == [dl.CastOp if groups == 1 else dl.MulOp]
    *_, quantize = (op for op in operations if isinstance(op, dl.QuantizeOp))
    assert splat(quantize.zero_point) == 0 and splat(quantize.scale) == 1
    # The zero point of the last dequantization stays.
    (dequantize,) = (op for op in operations if isinstance(op, dl.DequantizeOp) and op.x is quantize.result)
    assert splat(dequantize.zero_point) == zero


def test_requantized_data_keeps_its_zero_point() -> None:
    # The values are often halfway between two steps, where 9 is added to the even one.
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return quantized(b, quantized(b, x, np.uint8, 0.5)[1], np.uint8, 1.5)[0]

    program(body, *randoms((8, 100))).apply(FoldQuantizationPass(), SimplifyPass())


@pytest.mark.parametrize("bound, stays", [(0.02 * 246, 0), (0.02 * 245.6, 0), (0.02 * 245, 1)])
def test_clamp_at_the_highest_value_is_removed(bound: float, stays: int) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return quantized(b, b(dl.MaximumOp, b(dl.MinimumOp, x, number(b, bound)), number(b, -0.1)), np.uint8)[0]

    x = np.concatenate([randoms((64,))[0] * 8, [np.nan, np.inf, -np.inf, 0]]).astype(np.float32)
    ops = program(body, x).apply(FoldQuantizationPass()).ops
    assert sum(op == "minimum" for op in ops) == stays and sum(op == "maximum" for op in ops) == 1


@pytest.mark.parametrize("dtype, zero, stays", [(np.uint8, 0, 0), (np.int8, -128, 0), (np.uint8, 9, 1), (np.int8, 0, 1)])
@pytest.mark.parametrize("six", [False, True])
def test_relu_at_the_lowest_value_is_removed(six: bool, dtype: Any, zero: int, stays: int) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        x = b(dl.MinimumOp, b(dl.MaximumOp, x, number(b, 0)), number(b, 6)) if six else b(dl.ReluOp, x)
        return quantized(b, x, dtype, zero=zero)[0]

    x = np.concatenate([randoms((64,))[0] * 8, [np.nan, np.inf, -np.inf, 0]]).astype(np.float32)
    ops = program(body, x).apply(FoldQuantizationPass()).ops
    assert sum(op in ("relu", "maximum") for op in ops) == stays

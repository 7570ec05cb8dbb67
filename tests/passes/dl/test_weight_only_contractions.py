"""`weight-only-contractions` and `quantize-weights`: which weights stay integers, and the quantization error."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import element_type
from dlc.ir import Context, SSAValue, f32, i8
from dlc.passes.dl.low_precision.quantize_weights import QuantizeWeightsPass
from dlc.passes.dl.low_precision.weight_only_contractions import WeightOnlyContractionsPass
from dlc.pipelines import stages_of
from dlc.target import CPU_LEVELS, resolve
from tests.passes.programs import Program, Writer, program, randoms

INT4, UINT4 = ml_dtypes.int4, ml_dtypes.uint4
RNG = np.random.default_rng(5)
K, N = 48, 6


def integers(dtype: Any, *shape: int) -> np.ndarray:
    low, high = ml_dtypes.iinfo(dtype).min, ml_dtypes.iinfo(dtype).max
    return RNG.integers(int(low), int(high) + 1, shape).astype(dtype)


def product(
    dtype: Any,
    parameters: tuple[int, ...],
    axis: int,
    transposed: bool,
    zero: Any,
    rows: int = 2,
    min_lhs_bits: int | None = None,
) -> Program:
    """Rows times dequantized weights, with parameters of a shape; a zero point that is an array is a weight."""

    def body(b: Writer, x: SSAValue) -> SSAValue:
        w = b.weight(integers(dtype, *((N, K) if transposed else (K, N))))
        scale = b.weight(RNG.uniform(0.01, 0.02, parameters).astype(np.float32))
        own = b.weight(zero) if isinstance(zero, np.ndarray) else b.scalar(zero, like=element_tensor(dtype))
        w = b(dl.DequantizeOp, w, scale, own, axis=axis)
        w = b(dl.TransposeOp, w, permutation=(1, 0)) if transposed else w
        return b(dl.MatmulOp, x, w, min_lhs_bits=min_lhs_bits)

    return program(body, *randoms((rows, K)))


def element_tensor(dtype: Any) -> Any:
    return dl.base.tensor_type((), element_type(dtype))


@pytest.mark.parametrize(
    "dtype, parameters, axis, transposed, zero, of",
    [
        (np.int8, (), 0, False, 0, np.int8),
        (np.uint8, (N,), 1, False, 128, np.int8),
        (np.int8, (N,), 0, True, integers(np.int8, N), np.int8),
        (UINT4, (3, N), 0, False, 8, INT4),
        (UINT4, (N, 3), 1, True, integers(UINT4, N, 3), UINT4),
        (INT4, (2, N), 0, False, 1, INT4),
    ],
)
@pytest.mark.parametrize("rows", [1, 5])
def test_quantized_weights_stay_integers(
    dtype: Any, parameters: tuple[int, ...], axis: int, transposed: bool, zero: Any, of: Any, rows: int
) -> None:
    p = product(dtype, parameters, axis, transposed, zero, rows).apply(
        WeightOnlyContractionsPass(resolve("cpu:generic")), tolerance=2e-5
    )
    (op,) = [op for op in p.main.body.block.ops if isinstance(op, dl.MatmulWeightOnlyOp)]
    assert op.of == element_type(of) and (op.scale_weights is None) == (rows <= 2)


@pytest.mark.parametrize(
    "dtype, parameters, axis",
    [(np.int8, (K,), 0), (np.int8, (K, 2), 1), (UINT4, (12, N), 0), (np.int16, (N,), 1)],
    ids=["a scale for each row", "blocks across", "blocks of half a word", "16 bits"],
)
def test_other_weights_are_dequantized_at_compile_time(dtype: Any, parameters: tuple[int, ...], axis: int) -> None:
    p = product(dtype, parameters, axis, False, 0)
    assert p.apply(WeightOnlyContractionsPass(resolve("cpu:generic"))).ops[-1] == "matmul"


@pytest.mark.parametrize(
    "dtype, rows, target, dot",
    [(UINT4, 32, "cpu:avx2", "u8i7"), (np.int8, 32, "cpu:avx2", "i16"), (UINT4, 4, "cpu:aarch64", "i16"), (UINT4, 5, "cpu:aarch64", None),
     (np.int8, 5, "cpu:generic", "i16"), (UINT4, 1, "cpu:riscv64", None), (UINT4, 1, "cpu:avx512_vnni", "u8i8"),
     (np.int8, 40, "cpu:avx2_vnni", "u8i8"), (np.uint8, 2, "cpu:aarch64_i8mm", "u8i8")],
)  # fmt: skip
def test_quantized_rows(dtype: Any, rows: int, target: str, dot: str | None) -> None:
    """The error is at most half a quantization step of each block."""
    p = product(dtype, (3, N), 0, False, 1, rows, min_lhs_bits=8)
    exact, (x,) = p.run()[0], randoms((rows, K))
    WeightOnlyContractionsPass(resolve(target)).apply(None, p.module)  # pyright: ignore[reportArgumentType]
    (op,) = [op for op in p.main.body.block.ops if isinstance(op, dl.MatmulWeightOnlyOp | dl.MatmulWeightOnlyDotOp)]
    assert (op.dot.data if isinstance(op, dl.MatmulWeightOnlyDotOp) else None) == dot
    half = np.abs(x.reshape(rows, 3, -1)).max(2).sum(1) / (2 * {"i16": 32767, "u8i8": 127, "u8i7": 127}.get(dot or "", np.inf))
    largest = 0.02 * max(map(abs, (int(ml_dtypes.iinfo(dtype).min) - 1, int(ml_dtypes.iinfo(dtype).max) - 1)))
    error = np.abs(p.run()[0] - exact).max(1)
    assert (error <= half * (K // 3) * largest + 1e-4).all() and (dot is None or error.max() > 1e-2 * half.max() * largest)


def test_weights_for_many_rows_are_dequantized_at_compile_time() -> None:
    for rows, last in ((32, "matmul_weight_only"), (33, "matmul")):
        assert (
            product(np.int8, (N,), 1, False, 0, rows)
            .apply(WeightOnlyContractionsPass(resolve("cpu:generic")), tolerance=2e-5)
            .ops[-1]
            == last
        )


def effective_weights(w: np.ndarray, weights: str, group: int) -> np.ndarray:
    """Return the weights that a product uses: its result for the identity."""
    p = program(lambda b, x: b(dl.MatmulOp, x, b.weight(w)), np.eye(len(w), dtype=np.float32))
    QuantizeWeightsPass(weights=weights, group=group).apply(None, p.module)  # pyright: ignore[reportArgumentType]
    return p.run()[0]


@pytest.mark.parametrize("weights, group", [("int8", 32), ("int4", 32), ("int4", 8)])
def test_quantization_error_is_within_half_a_step(weights: str, group: int) -> None:
    w = RNG.standard_normal((128, 160)).astype(np.float32)
    # All equal, and all 0.
    w[:32, 3], w[32:64, 4] = 0.7, 0
    groups = w.reshape(-1, group, 160)
    largest, span = np.abs(groups).max(1), groups.max(1) - groups.min(1)
    half = largest / 254 if weights == "int8" else span / 30
    error = np.abs(effective_weights(w, weights, group).reshape(groups.shape) - groups).max(1)
    assert (error <= half * 1.0001 + 1e-6).all() and error.max() > 0.5 * half.max()


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_few_rows_are_quantized_to_int16(weights: str) -> None:
    """The error is at most half a step per group of a row; zeros stay exact."""
    w, (x,) = RNG.standard_normal((128, 160)).astype(np.float32), randoms((2, 128))
    x[0, :32], x[1, 32:64] = 0, 1e4 * x[1, 32:64]
    p = program(lambda b, x: b(dl.MatmulOp, x, b.weight(w)), x)
    QuantizeWeightsPass(weights=weights, group=32).apply(None, p.module)  # pyright: ignore[reportArgumentType]
    assert any(isinstance(op, dl.MatmulWeightOnlyDotOp) for op in p.main.body.block.ops)
    exact, half = effective_weights(w, weights, 32), np.abs(x.reshape(2, 4, 32)).max(2) / 65534
    bound = np.einsum("rb,bkn->rn", half, np.abs(exact).reshape(4, 32, 160))
    error = np.abs(p.run()[0] - x.astype(np.float64) @ exact)
    assert (error <= bound + 1e-6 * (np.abs(x) @ np.abs(exact))).all() and error.max() > 0.02 * bound.max()


def test_exact_rows_stay_float() -> None:
    w = RNG.standard_normal((128, 160)).astype(np.float32)
    for rows, target, exact in ((5, "cpu:aarch64", False), (1, "cpu:riscv64", False), (1, "cpu:avx2", True)):
        p = program(lambda b, x: b(dl.MatmulOp, x, b.weight(w)), *randoms((rows, 128)))
        assert p.apply(QuantizeWeightsPass(resolve(target), exact_rows=exact), tolerance=0.2).ops[-1] == "matmul_weight_only"


def test_small_and_ragged_weights_stay() -> None:
    for shape in ((32, 32), (130, 160)):
        p = program(lambda b, x, s=shape: b(dl.MatmulOp, x, b.weight(randoms(s)[0])), *randoms((2, shape[0])))
        assert p.apply(QuantizeWeightsPass()).ops == ["matmul"]


@pytest.mark.parametrize("rhs_contract, last", [(0, "matmul_weight_only"), (1, "dot_general")])
def test_dot_general_that_is_a_matmul(rhs_contract: int, last: str) -> None:
    """As JAX emits them: weights contracted along the other axis stay."""
    w = RNG.standard_normal((128, 128)).astype(np.float32)
    axes = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (2,), "rhs_contract": (rhs_contract,)}
    p = program(lambda b, x: b(dl.DotGeneralOp, x, b.weight(w), **axes), *randoms((2, 3, 128)))
    assert p.apply(QuantizeWeightsPass(resolve("cpu:generic"), exact_rows=True), tolerance=0.2).ops[-1] == last


def two_level_product(has_table: bool, is_transposed: bool) -> Program:
    """A row times weights [64, 8] in blocks of 8 with two-level scales: int8 per block, f16 per 32 weights."""

    def body(b: Writer, x: SSAValue) -> SSAValue:
        shape, axis = ((8, 64), 1) if is_transposed else ((64, 8), 0)
        per_block, per_large_block = (tuple(s // n if a == axis else s for a, s in enumerate(shape)) for n in (8, 32))
        codes = b.weight(RNG.integers(0, 16, shape).astype(np.uint8))
        values = np.arange(-100, 60, 10).astype(np.int8)
        codes = b(dl.GatherOp, b.constant(values, i8), codes, axis=0) if has_table else codes
        fine_scale = b.weight(RNG.integers(-9, 9, per_block).astype(np.int8))
        scale = b(dl.CastOp, b.weight(RNG.uniform(0.01, 0.02, per_large_block).astype(np.float16)), to=f32)
        scale = b(dl.DequantizeOp, fine_scale, scale, b.scalar(0, like=element_tensor(np.int8)), axis=axis)
        w = b(dl.DequantizeOp, codes, scale, b.scalar(0, like=element_tensor(np.int8 if has_table else np.uint8)), axis=axis)
        w = b(dl.TransposeOp, w, permutation=(1, 0)) if is_transposed else w
        return b(dl.MatmulOp, x, w, min_lhs_bits=16)

    return program(body, *randoms((1, 64)))


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("has_table", [False, True], ids=["integers", "table"])
@pytest.mark.parametrize("name", ["cpu:avx2", "cpu:avx512_vnni", "cpu:aarch64", "cpu:riscv64"])
def test_two_level_scales_and_tables(name: str, has_table: bool, is_transposed: bool) -> None:
    p, target = two_level_product(has_table, is_transposed), CPU_LEVELS[name]
    (expected,) = p.run()
    WeightOnlyContractionsPass(target).apply(Context(), p.module)
    np.testing.assert_allclose(p.run()[0], expected, atol=1e-4 * np.abs(expected).max())
    products = [op for op in p.module.walk() if isinstance(op, dl.MatmulWeightOnlyDotOp | dl.MatmulWeightOnlyOp)]
    (product,) = products
    if not target.dot_products:
        assert isinstance(product, dl.MatmulWeightOnlyOp)
        return
    assert isinstance(product, dl.MatmulWeightOnlyDotOp)
    # Blocks of 8 are too small for two-level scales in 16 registers.
    scales = ["f16", "i8"] if target.vector_registers == 32 else ["f32"]
    assert [str(element_type_of(v)) for v in product.operands[4:]] == scales
    assert dl.base.number(product.bits) == 4 and (product.table is not None) == has_table


def product_with_minima(integers: np.ndarray, is_transposed: bool, is_two_level: bool) -> Program:
    """Rows times `(integers [128, 8] - 7.5) / 64` in blocks of 16, with f16 or quantized minima."""

    def body(b: Writer, x: SSAValue) -> SSAValue:
        shape, axis = ((8, 128), 1) if is_transposed else ((128, 8), 0)
        per_block, per_larger_block = (tuple(s // n if a == axis else s for a, s in enumerate(shape)) for n in (16, 64))
        zero = b.scalar(0, like=element_tensor(np.uint8))
        if is_two_level:
            larger_scale = b.weight(np.full(per_larger_block, -0.5 / 64, np.float32))
            minima = b(dl.DequantizeOp, b.weight(np.full(per_block, 15, np.uint8)), larger_scale, zero, axis=axis)
        else:
            minima = b(dl.CastOp, b.weight(np.full(per_block, -7.5 / 64, np.float16)), to=f32)
        split = b(dl.ReshapeOp, minima, shape=(*per_block[: axis + 1], 1, *per_block[axis + 1 :]))
        minima = b(dl.BroadcastToOp, split, shape=(*per_block[: axis + 1], 16, *per_block[axis + 1 :]))
        scale, zero = b.weight(np.full(per_block, 1 / 64, np.float32)), b.scalar(0, like=element_tensor(UINT4))
        w = b(dl.DequantizeOp, b.weight((integers.T if is_transposed else integers).astype(UINT4)), scale, zero, axis=axis)
        w = b(dl.AddOp, w, b(dl.ReshapeOp, minima, shape=shape))
        w = b(dl.TransposeOp, w, permutation=(1, 0)) if is_transposed else w
        return b(dl.MatmulOp, x, w, min_lhs_bits=8)

    return program(body, *randoms((3, 128)))


@pytest.mark.parametrize("is_two_level", [False, True], ids=["floats", "quantized"])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(
    "name, steps", [("cpu:avx2", 127), ("cpu:avx512_vnni", 127), ("cpu:aarch64", 32767), ("cpu:riscv64", None)]
)
def test_minima_are_multiplied_by_sums_of_rounded_rows(
    name: str, steps: int | None, is_transposed: bool, is_two_level: bool
) -> None:
    integers, target = RNG.integers(0, 16, (128, 8)), CPU_LEVELS[name]
    p, (x,) = product_with_minima(integers, is_transposed, is_two_level), randoms((3, 128))
    blocks = x.reshape(3, 8, 16)
    unit = np.abs(blocks).max(-1, keepdims=True) / (steps or 1)
    rounded = (np.round(blocks / unit) * unit if steps else blocks).reshape(3, 128)
    expected = rounded @ ((integers - 7.5) / 64)
    np.testing.assert_allclose(p.run()[0], x @ ((integers - 7.5) / 64), atol=1e-6)
    WeightOnlyContractionsPass(target).apply(Context(), p.module)
    np.testing.assert_allclose(p.run()[0], expected, atol=1e-4)
    products = [op for op in p.module.walk() if isinstance(op, dl.MatmulWeightOnlyDotOp | dl.MatmulWeightOnlyOp)]
    assert len(products) == 1 + is_two_level and not any(isinstance(op, dl.BroadcastToOp) for op in p.module.walk())
    for stage in stages_of(target):
        for step in stage.passes:
            step.apply(Context(), p.module)
    np.testing.assert_allclose(p.run()[0], expected, atol=1e-4)


def test_other_sums_of_weights_are_dequantized_at_compile_time() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w, scale = b.weight(integers(np.int8, K, N)), b.weight(RNG.uniform(0.01, 0.02, (3, N)).astype(np.float32))
        w = b(dl.DequantizeOp, w, scale, b.scalar(0, like=element_tensor(np.int8)), axis=0)
        return b(dl.MatmulOp, x, b(dl.AddOp, w, b.weight(randoms((K, N))[0])), min_lhs_bits=8)

    p = program(body, *randoms((2, K)))
    assert p.apply(WeightOnlyContractionsPass(resolve("cpu:avx2"))).ops == ["dequantize", "add", "matmul"]


def six_bit_product(weights: np.ndarray, x: np.ndarray) -> Program:
    """Rows times weights [256, N] in blocks of 16 with int8 scales, times an f32 scale, as GGUF's Q6_K."""

    def body(b: Writer, x: SSAValue) -> SSAValue:
        columns = weights.shape[1]
        fine_scale = b.weight(RNG.integers(-128, 128, (16, columns)).astype(np.int8))
        zero = b.scalar(0, like=element_tensor(np.int8))
        scale = b(dl.DequantizeOp, fine_scale, b.weight(RNG.uniform(0.01, 0.02, (1, columns)).astype(np.float32)), zero, axis=0)
        return b(dl.MatmulOp, x, b(dl.DequantizeOp, b.weight(weights), scale, zero, axis=0), min_lhs_bits=8)

    return program(body, x)


@pytest.mark.parametrize("weight", [-32, 31, None], ids=["smallest", "largest", "random"])
@pytest.mark.parametrize("signs", ["positive", "alternating", "random"])
def test_two_level_scales_multiply_integers(weight: int | None, signs: str) -> None:
    """Sums in 16 bits are exact for the largest products, which exceed 16 bits with unsigned weights."""
    weights = RNG.integers(-32, 32, (256, 8)) if weight is None else np.full((256, 8), weight)
    weights[:2, 0] = -32, 31
    x = np.ones((3, 256), np.float32) * np.array([1, -1, 127], np.float32)[:, None]
    x *= {"positive": 1, "alternating": np.resize([1, -1], 256), "random": RNG.integers(-127, 128, 256) / 127}[signs]
    # The largest magnitude of a row is 127 units, so that row integers are exact.
    x[:, 0] = 1, -1, 127
    p, target = six_bit_product(weights.astype(np.int8), x.astype(np.float32)), CPU_LEVELS["cpu:avx2"]
    (expected,) = p.run()
    WeightOnlyContractionsPass(target).apply(Context(), p.module)
    (product,) = (op for op in p.module.walk() if isinstance(op, dl.MatmulWeightOnlyDotOp))
    assert product.words_per_sum is not None and dl.base.number(product.words_per_sum) == 4
    tolerance = 3e-6 * np.abs(x).max() * np.abs(weights).sum(0).max() * 128 * 0.02
    np.testing.assert_allclose(p.run()[0], expected, atol=tolerance)
    for stage in stages_of(target):
        for step in stage.passes:
            step.apply(Context(), p.module)
    np.testing.assert_allclose(p.run()[0], expected, atol=tolerance)

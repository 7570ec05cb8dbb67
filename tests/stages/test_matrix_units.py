"""Contractions on matrix units, in programs lowered for a device that has them; evaluated, since few machines have
one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlc.backends.opencl.backend import OpenCL
from dlc.backends.opencl.emit import emit_kernel
from dlc.backends.opencl.functions import MATRIX_PRODUCTS
from dlc.backends.reference import EvaluationError, evaluate
from dlc.compiler import Program
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.dialects import dl
from dlc.dialects.dl.contractions.convolution import convolve
from dlc.dialects.matrix_multiply import SubgroupMatmulOp
from dlc.dialects.registry import make_context
from dlc.ir import SSAValue, parse_module
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.passes.tiling.matrix_units import choose_matrix_unit_tiles
from dlc.runtime.opencl.kernel import matrix_unit_feature
from dlc.target import resolve
from tests.passes.programs import Writer, program

TARGET = "opencl:gpu:nofp16:mma"
TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def lowered(body: Callable[..., Any], *inputs: np.ndarray, precision: str = "bf16", stage: str = "loops") -> Lowering:
    p = program(body, *inputs)
    options = Options(num_threads=1, workers=1, precision=precision)
    lowering = Lowering(Compilation(Program(p.module, p.weights), OpenCL(TARGET), options))
    lowering.until(stage)
    return lowering


def count(lowering: Lowering) -> int:
    return sum(isinstance(op, SubgroupMatmulOp) for op in lowering.module.walk())


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def rounded(x: np.ndarray, precision: str) -> np.ndarray:
    return x.astype(TYPES[precision]).astype(np.float32)


def assert_product(rows: tuple[int, ...], n: int, precision: str = "bf16", stage: str = "loops") -> None:
    """Check rows times weights with an epilogue: a bias, an addition, and a function."""
    x, w, bias, other = numbers(*rows), numbers(rows[-1], n, seed=1), numbers(n, seed=2), numbers(*rows[:-1], n, seed=3)

    def body(b: Writer, x: SSAValue, other: SSAValue) -> SSAValue:
        product = b(dl.AddOp, b(dl.MatmulOp, x, b.weight(w)), b.weight(bias))
        return b(dl.ReluOp, b(dl.AddOp, product, other))

    lowering = lowered(body, x, other, precision=precision, stage=stage)
    assert count(lowering)
    (got,) = evaluate(lowering.module, [x, other], lowering.weights)
    expected = np.maximum(rounded(x, precision) @ rounded(w, precision) + bias + other, 0)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tile", choose_matrix_unit_tiles.MATRIX_UNIT_TILES)
def test_tiles(tile: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Full tiles, and remainders in rows, and in columns by eights and by ones."""
    monkeypatch.setattr(choose_matrix_unit_tiles, "MATRIX_UNIT_TILES", (tile,))
    rows, columns, *_ = tile
    for m, n in ((2 * rows, 2 * columns), (rows + 5, columns - 3), (rows - 3, columns + 12)):
        assert_product((m, 64), n)


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("stage", ["tiling", "loops"])
def test_results(precision: str, stage: str) -> None:
    assert_product((40, 96), 48, precision, stage)
    assert_product((3, 20, 32), 36, precision, stage)


@pytest.mark.parametrize("precision", TYPES)
def test_half_precision_model(precision: str) -> None:
    """Accumulators are f32 and rounded once; the kernel has no other op after the product."""
    x, w = numbers(48, 64, dtype=TYPES[precision]), numbers(64, 40, seed=1, dtype=TYPES[precision])
    lowering = lowered(lambda b, x: b(dl.MatmulOp, x, b.weight(w)), x, precision="f32")
    assert count(lowering)
    (got,) = evaluate(lowering.module, [x], lowering.weights)
    expected = (x.astype(np.float32) @ w.astype(np.float32)).astype(TYPES[precision])
    np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), 1e-2 if precision == "bf16" else 1e-3, 1e-4)


@pytest.mark.parametrize("kernel, stride, shape", [(1, 1, (2, 7, 7, 64)), (3, 1, (1, 9, 21, 32)), (3, 2, (1, 9, 21, 64))])
def test_convolutions(kernel: int, stride: int, shape: tuple[int, ...]) -> None:
    x, w = numbers(*shape), numbers(kernel, kernel, shape[-1], 40, seed=1)
    properties: dict[str, Any] = {"strides": (stride, stride), "dilations": (1, 1), "groups": 1}
    lowering = lowered(lambda b, x: b(dl.ConvOp, x, b.weight(w), **properties), x)
    assert count(lowering)
    (got,) = evaluate(lowering.module, [x], lowering.weights)
    np.testing.assert_allclose(got, convolve(rounded(x, "bf16"), rounded(w, "bf16"), (stride, stride), (1, 1), 1), 1e-5, 1e-4)


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("heads, queries, keys, size", [(2, 32, 32, 64), (3, 40, 64, 32)])
def test_attention(heads: int, queries: int, keys: int, size: int, precision: str) -> None:
    """Products of two activations in half precision: the movement of heads packs words, once per operand."""
    q, k, v = (numbers(2, n, heads, size, seed=i, dtype=TYPES[precision]) for i, n in enumerate((queries, keys, keys)))
    # Small scores: their rounding changes the weights little.
    q = q * TYPES[precision](0.125)

    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
        q, k, v = (b(dl.TransposeOp, x, permutation=p) for x, p in ((q, (0, 2, 1, 3)), (k, (0, 2, 3, 1)), (v, (0, 2, 1, 3))))
        return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.MatmulOp, q, k), axis=3), v)

    lowering = lowered(body, q, k, v, precision="f32")
    kernels = [(sum(isinstance(op, SubgroupMatmulOp) for op in k.walk()), k.sym_name.data) for k in kernels_of(lowering.module)]
    assert [bool(n) for n, _ in kernels] == [False, True, False, False, True], kernels
    (got,) = evaluate(lowering.module, [q, k, v], lowering.weights)
    wide = [x.astype(np.float32) for x in (q, k, v)]
    scores = np.exp(np.einsum("bqhd,bkhd->bhqk", *wide[:2]))
    expected = np.einsum("bhqk,bkhd->bhqd", scores / scores.sum(-1, keepdims=True), wide[2])
    tolerance = 5e-2 if precision == "bf16" else 5e-3
    np.testing.assert_allclose(got.astype(np.float32), expected, tolerance, tolerance)


@pytest.mark.parametrize("rows, n", [((1, 64), 64), ((40, 40), 64), ((17, 65), 66)])
def test_packed_products_without_matrix_units(rows: tuple[int, ...], n: int) -> None:
    """A single row, or words that are no multiple of a step, use the generic path of devices with work-groups."""
    for precision in TYPES:
        x, w = numbers(*rows), numbers(rows[-1], n, seed=1)
        lowering = lowered(lambda b, x, w=w: b(dl.MatmulOp, x, b.weight(w)), x, precision=precision)
        assert not count(lowering)
        (got,) = evaluate(lowering.module, [x], lowering.weights)
        np.testing.assert_allclose(got, rounded(x, precision) @ rounded(w, precision), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", TYPES)
def test_text(precision: str) -> None:
    """Accumulators are variables; items load and store four words at a time."""
    w = numbers(512, 256, seed=1)
    lowering = lowered(lambda b, x: b(dl.ReluOp, b(dl.MatmulOp, x, b.weight(w))), numbers(256, 512), precision=precision)
    kernel = next(k for k in kernels_of(lowering.module) if "matmul" in k.sym_name.data)
    source = emit_kernel(kernel, resolve(TARGET))
    text = source.functions
    # A saved file states its device requirements.
    assert OpenCL(TARGET).compile_kernel("k", source).required_features == (matrix_unit_feature(precision),)
    assert f"mma.sync.aligned.m16n8k16.row.col.f32.{precision}.{precision}.f32" in "".join(source.definitions)
    assert text.count(f"multiply_words_{precision}(&") == count(lowering)
    assert "[8]" not in text and "vload" not in text and "(long)" not in text


PRODUCT = """
builtin.module {{ func.func @main(%x: memref<32xf32>) attributes {{kernel}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  %items = arith.constant {items} : index
  %a = arith.constant dense<1> : vector<2x4xi32>
  %b = arith.constant dense<1> : vector<4x4xi32>
  %c = arith.constant dense<0.0> : vector<8xf32>
  "scf.parallel"(%c0, %c1, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
  ^bb0(%i: index):
    "scf.parallel"(%c0, %items, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
    ^bb0(%j: index):
      %some = arith.cmpi ult, %j, {limit} : index
      scf.if %some {{
        %r, %s = "gpu.subgroup_matmul"(%a, %b, %c, %c) <{{dot = "bf16"}}>
          : (vector<2x4xi32>, vector<4x4xi32>, vector<8xf32>, vector<8xf32>) -> (vector<8xf32>, vector<8xf32>)
      }}
      scf.reduce
    }}) {{level = "item"}} : (index, index, index) -> ()
    scf.reduce
  }}) {{level = "grid"}} : (index, index, index) -> ()
  func.return }} }}"""


@pytest.mark.parametrize("items, limit", [(32, "%c9"), (16, "%items")])
def test_all_items_must_reach_the_op(items: int, limit: str) -> None:
    module = parse_module(make_context(), PRODUCT.format(items=items, limit=limit))
    module.verify()
    with pytest.raises(EvaluationError, match="only some of the 32 work-items"):
        evaluate(module, [np.zeros(32, np.float32)])


_MMA = re.compile(r'"\+f"\(s(\d)\.s(\d)\)|"r"\((a|b)(\d)\.s(\d)\)')


def mma_sync(sums: np.ndarray, a: np.ndarray, b: np.ndarray, kind: Any) -> np.ndarray:
    """Emulate PTX mma.sync.m16n8k16 on the registers of 32 items, [item, register]: four of A, two of B, four sums."""
    g, t = np.divmod(np.arange(32), 4)
    rows, columns, total = np.zeros((16, 16), np.float32), np.zeros((16, 8), np.float32), np.zeros((16, 8), np.float32)
    for r in range(4):
        for e in range(2):
            rows[g + 8 * (r % 2), 2 * t + e + 8 * (r // 2)] = a[:, r].copy().view(kind).reshape(32, 2)[:, e]
            if r < 2:
                columns[2 * t + e + 8 * r, g] = b[:, r].copy().view(kind).reshape(32, 2)[:, e]
        total[g + 8 * (r // 2), 2 * t + r % 2] = sums[:, r]
    total += rows @ columns
    return np.stack([total[g + 8 * (r // 2), 2 * t + r % 2] for r in range(4)], 1)


@pytest.mark.parametrize("precision", TYPES)
def test_instructions(precision: str) -> None:
    """The PTX text changes the registers of 32 items as the op does."""
    random, kind = np.random.default_rng(0), TYPES[precision]
    words = random.standard_normal((32, 6, 4, 2)).astype(kind).view(np.int32)[..., 0]
    sums = random.standard_normal((32, 2, 8)).astype(np.float32)
    registers = {("s", i): sums.reshape(32, 4, 4)[:, i].copy() for i in range(4)}
    registers |= {("a", i): words[:, i] for i in range(2)} | {("b", i): words[:, 2 + i] for i in range(4)}
    lines = [line for line in MATRIX_PRODUCTS[precision].splitlines() if "mma.sync" in line]
    assert len(lines) == 8
    for line in lines:
        assert (
            f"m16n8k16.row.col.f32.{precision}.{precision}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0" in line
        )
        of = [("s", int(m[1]), int(m[2])) if m[1] else (m[3], int(m[4]), int(m[5])) for m in _MMA.finditer(line)]
        values = [registers[name, i][:, k] for name, i, k in of]
        total = mma_sync(*(np.stack(v, 1) for v in (values[:4], values[4:8], values[8:])), kind)
        for (name, i, k), value in zip(of[:4], total.T, strict=True):
            registers[name, i][:, k] = value
    got = np.stack([registers["s", i] for i in range(4)], 1).reshape(32, 2, 8)
    expected = np.empty_like(sums)
    module = parse_module(make_context(), ONE.replace("bf16", precision))
    module.verify()
    evaluate(module, [words[:, :2].copy(), words[:, 2:].copy(), sums, expected])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


ONE = """
builtin.module { func.func @main(%a: memref<32x2x4xi32>, %b: memref<32x4x4xi32>, %c: memref<32x2x8xf32>, %d: memref<32x2x8xf32>)
    attributes {kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %i0 = arith.constant 0 : i32
  %f0 = arith.constant 0.0 : f32
  "scf.parallel"(%c0, %c1, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
  ^bb0(%i: index):
    "scf.parallel"(%c0, %c32, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
    ^bb0(%j: index):
      %x = vector.transfer_read %a[%j, %c0, %c0], %i0 {in_bounds = [true, true]} : memref<32x2x4xi32>, vector<2x4xi32>
      %y = vector.transfer_read %b[%j, %c0, %c0], %i0 {in_bounds = [true, true]} : memref<32x4x4xi32>, vector<4x4xi32>
      %u = vector.transfer_read %c[%j, %c0, %c0], %f0 {in_bounds = [true]} : memref<32x2x8xf32>, vector<8xf32>
      %l = vector.transfer_read %c[%j, %c1, %c0], %f0 {in_bounds = [true]} : memref<32x2x8xf32>, vector<8xf32>
      %r, %s = "gpu.subgroup_matmul"(%x, %y, %u, %l) <{dot = "bf16"}>
        : (vector<2x4xi32>, vector<4x4xi32>, vector<8xf32>, vector<8xf32>) -> (vector<8xf32>, vector<8xf32>)
      vector.transfer_write %r, %d[%j, %c0, %c0] {in_bounds = [true]} : vector<8xf32>, memref<32x2x8xf32>
      vector.transfer_write %s, %d[%j, %c1, %c0] {in_bounds = [true]} : vector<8xf32>, memref<32x2x8xf32>
      scf.reduce
    }) {level = "item"} : (index, index, index) -> ()
    scf.reduce
  }) {level = "grid"} : (index, index, index) -> ()
  func.return } }"""

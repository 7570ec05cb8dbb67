"""Weight-only quantization in whole programs: every target, ONNX's blocks, and the option `weights`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import dlc
import dlc.numpy as dnp
from dlc.backends.cpu.llvm import assembly
from dlc.caching.keys import program_key
from dlc.cli import main
from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.low_precision.bit_planes import BitPlanes
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS
from dlc.dialects.dl.low_precision.weight_only_dot import MAX_WEIGHT_BITS
from dlc.dialects.dl.scalar import constant_integer
from dlc.dialects.prefetch import PrefetchOp
from dlc.emission.llvm.kernel import emit_kernel
from dlc.errors import UnsupportedError
from dlc.ir import Context, SSAValue, vector
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.pipelines import stages_of
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, resolve
from dlc.weights import WeightStore
from tests.passes.programs import Writer, program, randoms
from tests.targets import NATIVE, TARGETS

RNG = np.random.default_rng(3)
W = RNG.standard_normal((128, 160)).astype(np.float32)


def product(b: Writer, x: SSAValue) -> SSAValue:
    words = b.weight(RNG.integers(-(1 << 31), 1 << 31, (2, 4, 72)).astype(np.int32))
    scale, zero = (b.weight(v) for v in randoms((2, 72), (2, 72)))
    return b(dl.MatmulWeightOnlyOp, x, words, scale, zero, of=ELEMENT_TYPES["uint4"], scale_weights=len(x.type.get_shape()) > 2)


# Of integers to floats: of a vector, and of one.
CONVERSIONS = {
    "x86_64": (r"cvtdq2ps", r"cvtsi2ss"),
    "aarch64": (r"[su]cvtf\tv", r"[su]cvtf\ts"),
    "riscv64": (r"vfw?cvt\.f\.xu?\.v", r"\tfcvt\.s\.[wl]"),
}


@pytest.mark.parametrize("shape", [(1, 64), (1, 9, 64)], ids=["one row", "rows"])
@pytest.mark.parametrize("name", [*CPU_LEVELS, "opencl:cpu256", "opencl:gpu"])
def test_loops_of_every_target(name: str, shape: tuple[int, ...]) -> None:
    target = CPU_LEVELS.get(name) or OPENCL_PROFILES[name]
    p = program(product, *randoms(shape))
    (expected,) = p.run()
    for stage in stages_of(target):
        for step in stage.passes:
            step.apply(Context(), p.module)
    np.testing.assert_allclose(p.run()[0], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    if name in CPU_LEVELS:
        code = assembly(emit_kernel(next(iter(kernels_of(p.module))), target).text, target)
        # Whole vectors are converted, and none of them to and fro through memory.
        whole, one = CONVERSIONS[target.architecture]
        assert len(re.findall(whole, code)) >= 8 and not re.search(one, code)


@pytest.mark.parametrize("bits", [2, 4, 5, 6, 8])
@pytest.mark.parametrize(
    "name, dot, instruction",
    [
        ("cpu:generic", "i16", "pmaddwd"),
        ("cpu:avx2", "u8i7", "vpmaddubsw"),
        ("cpu:avx512_vnni", "i16", "vp(?:maddwd|dpwssd)"),
        ("cpu:avx512_vnni", "u8i8", "vpdpbusd"),
        ("cpu:avx2_vnni", "u8i8", "vpdpbusd"),
        ("cpu:aarch64", "i16", "smull"),
        ("cpu:aarch64_i8mm", "u8i8", "usdot"),
    ],
)
def test_words_are_multiplied_by_an_instruction(name: str, dot: str, instruction: str, bits: int) -> None:
    """Row integers of two parts are multiplied with the same weights."""
    bits = min(bits, MAX_WEIGHT_BITS[dot])
    planes, parts = BitPlanes(bits), 1 if dot == "i16" else 2

    def product(b: Writer, x: SSAValue, row_scale: SSAValue, row_sums: SSAValue) -> SSAValue:
        words = b.weight(RNG.integers(-(1 << 31), 1 << 31, (2, 2, planes.words, 72)).astype(np.int32))
        scale = b.weight(randoms((2, 72))[0])
        return b(dl.MatmulWeightOnlyDotOp, x, words, row_scale, row_sums, scale, bits=bits, parts=parts, dot=dot)

    target, num_products = CPU_LEVELS[name], planes.slots * 2
    x = RNG.integers(-(1 << 31), 1 << 31, (1, 4 * num_products)).astype(np.int32)
    p = program(product, x, *randoms((1, 2)), np.zeros((1, 2, 2), np.int32))
    for stage in stages_of(target):
        for step in stage.passes:
            step.apply(Context(), p.module)
    code = assembly(emit_kernel(next(iter(kernels_of(p.module))), target).text, target)
    count = len(re.findall(rf"\t{instruction}\w*\s", code))
    assert count >= num_products and not re.search(r"\tv?pmulld|\tmul\tv", code)
    if dot == "u8i7":
        # Pairs are summed in 16 bits over as many words as fit.
        num_sums = -(-planes.slots // PACKED_DOTS[dot].max_words_per_sum(128 * ((1 << bits) - 1)))
        assert len(re.findall(r"\tvpmaddwd\s", code)) * planes.slots == count * num_sums


@pytest.mark.parametrize(
    "name, dot, instruction",
    [
        ("cpu:generic", "i16", "pshufb"),
        ("cpu:avx2", "i16", "vpshufb"),
        ("cpu:avx512_vnni", "u8i8", "vpshufb"),
        ("cpu:aarch64", "i16", "tbl"),
        ("cpu:aarch64_i8mm", "u8i8", "tbl"),
    ],
)
def test_a_table_is_looked_up_by_an_instruction(name: str, dot: str, instruction: str) -> None:
    """Each word has two lookups of four weights."""
    table = RNG.integers(0, 256, 16).tolist()

    def product(b: Writer, x: SSAValue, row_scale: SSAValue, row_sums: SSAValue) -> SSAValue:
        words = b.weight(RNG.integers(-(1 << 31), 1 << 31, (2, 2, 1, 72)).astype(np.int32))
        scale = b.weight(randoms((2, 72))[0])
        operands = x, words, row_scale, row_sums, scale
        return b(dl.MatmulWeightOnlyDotOp, *operands, bits=4, parts=1, dot=dot, table=table)

    target = CPU_LEVELS[name]
    x = RNG.integers(-(1 << 31), 1 << 31, (1, 16 if dot == "i16" else 8)).astype(np.int32)
    p = program(product, x, *randoms((1, 2)), np.zeros((1, 2, 2), np.int32))
    (expected,) = p.run()
    for stage in stages_of(target):
        for step in stage.passes:
            step.apply(Context(), p.module)
    # The loops define the lookups by selects.
    np.testing.assert_allclose(p.run()[0], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    code = assembly(emit_kernel(next(iter(kernels_of(p.module))), target).text, target)
    assert len(re.findall(rf"\t{instruction}\s", code)) >= 2
    # Selects are `and` and `xor` of two registers; a register is cleared by `xor` with itself.
    assert not re.search(r"\tv?pxor[dq]?\t%(\wmm\d+), %(?!\1)|\teor\tv", code)


def test_words_and_scales_of_a_row_are_prefetched() -> None:
    """Each iteration reads three words and a scale of 64 columns, four cache lines each, in the order of the reads."""

    def product(b: Writer, x: SSAValue, row_scale: SSAValue, row_sums: SSAValue) -> SSAValue:
        words, scale = b.weight(np.zeros((40, 1, 3, 64), np.int32)), b.weight(randoms((40, 64))[0])
        return b(dl.MatmulWeightOnlyDotOp, x, words, row_scale, row_sums, scale, bits=6, parts=1, dot="u8i8")

    p = program(product, np.zeros((1, 160), np.int32), *randoms((1, 40)), np.zeros((1, 40, 1), np.int32))
    for stage in stages_of(CPU_LEVELS["cpu:avx512_vnni"]):
        for step in stage.passes:
            step.apply(Context(), p.module)
    prefetches = [op for kernel in kernels_of(p.module) for op in kernel.walk() if isinstance(op, PrefetchOp)]
    assert len(prefetches) == 16
    block = prefetches[0].parent
    assert block is not None
    read_buffers = [op.source for op in block.ops if isinstance(op, vector.TransferReadOp)]
    prefetched_buffers = list(dict.fromkeys(op.memref for op in prefetches))
    assert prefetched_buffers == [buffer for buffer in read_buffers if buffer in prefetched_buffers]
    assert [constant_integer(op.indices[-1]) for op in prefetches] == [0, 16, 32, 48] * 4


@pytest.mark.parametrize("weights, columns", [("int8", 2048), ("int4", 2048), ("float", 256)])
def test_products_of_a_row_use_several_threads(weights: str, columns: int) -> None:
    """A point reads a group of packed weights, or a float, which takes as long as several multiply-adds."""
    w = RNG.standard_normal((1024, columns)).astype(np.float32)
    product = dlc.jit(target="cpu:avx2", weights=weights)(lambda x: x @ w).lower(*randoms((1, 1024))).compile()
    assert max(tasks for kernel in product.artifact.kernels for tasks in kernel.tasks) >= (4 if columns == 2048 else 2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("rows", [1, 6, 33])
def test_the_option(weights: str, rows: int, target: str) -> None:
    (x,) = randoms((rows, 128))
    f = dlc.jit(target=target, weights=weights, group=64, num_threads=1)(lambda x: dnp.tanh(x @ W / 16))
    # Pairs of few rows are multiplied, where there is an instruction for it.
    product = (
        "dl.matmul_weight_only_dot"
        if rows < 33 and target == "cpu" and resolve(target).dot_products
        else "dl.matmul_weight_only"
    )
    assert product in f.lower(x).as_text("dl")
    # Half a step for each weight, and errors that do not all add up.
    step = np.abs(W).max() / 127 if weights == "int8" else 2 * np.abs(W).max() / 15
    np.testing.assert_allclose(f(x), np.tanh(x @ W / 16), atol=step * np.sqrt(128) / 16)


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("dtype, axis", [(np.int8, 0), ("uint4", 1), ("int4", 0)])
def test_blocks_of_dequantize_linear(dtype: str, axis: int, target: str) -> None:
    """Opset 21: a scale and a zero point for each block along an axis."""
    element = (
        helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        if dtype == np.int8
        else getattr(helper.TensorProto, str(dtype).upper())
    )
    shape = (64, 24) if axis == 0 else (24, 64)
    blocks = tuple(2 if a == axis else s for a, s in enumerate(shape))
    low, high = {"uint4": (0, 16), "int4": (-8, 8)}.get(str(dtype), (-128, 128))
    weights = [
        helper.make_tensor("q", element, shape, RNG.integers(low, high, shape).ravel().tolist()),
        numpy_helper.from_array(RNG.uniform(0.01, 0.02, blocks).astype(np.float32), "s"),
        helper.make_tensor("z", element, blocks, RNG.integers(low, high, blocks).ravel().tolist()),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis, block_size=32),
        helper.make_node("Gemm", ["x", "w"], ["y"], transB=axis),
    ]
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (3, 64)), ("y", (3, 24)))]
    model = helper.make_model(
        helper.make_graph(nodes, "g", infos[:1], infos[1:], weights), opset_imports=[helper.make_opsetid("", 21)]
    )
    (x,) = randoms((3, 64))
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(dlc.compile_model(model, target=target)(x)["y"], expected, rtol=1e-4, atol=1e-4)


def test_the_command(tmp_path: Path) -> None:
    file, node = tmp_path / "m.onnx", helper.make_node("MatMul", ["x", "w"], ["y"])
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (1, 128)), ("y", (1, 160)))]
    onnx.save(helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:], [numpy_helper.from_array(W, "w")])), file)
    result = CliRunner().invoke(main, ["compile", str(file), "--weights", "int4", "--group", "64", "--emit", "dl"])
    assert result.exit_code == 0 and "tensor<2x1x8x160xi32>" in result.output


def test_the_option_is_in_the_key() -> None:
    chosen = [{}, {"weights": "int8"}, {"weights": "int8", "group": 64}]
    keys = [program_key("", WeightStore(), None, resolve("cpu:generic"), Options(**c)) for c in chosen]
    assert [keys[0].differences(k.fields) for k in keys] == [[], ["weight_format"], ["weight_format"]]
    assert keys[1].differences(keys[2].fields) == ["weight_format"]


@pytest.mark.parametrize(
    "given, message", [({"weights": "int3"}, "int3.*float, int8, int4"), ({"group": 12}, "12.*multiple of 8")]
)
def test_what_the_option_takes(given: dict[str, object], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        dlc.jit(**given)(dnp.exp)

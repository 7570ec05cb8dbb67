"""Packed dot products become the processor's instructions, and their defining arithmetic disappears."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.backends.cpu.llvm import assembly
from dlc.dialects import dl
from dlc.emission.llvm.kernel import emit_kernel
from dlc.ir import Context, SSAValue, i32
from dlc.language_models.layers import linear
from dlc.language_models.quantized_matrix import QuantizedMatrix
from dlc.machine.architectures import HOST
from dlc.passes.base import kernels_of
from dlc.pipelines import stages_of
from dlc.target import CPU_LEVELS
from tests.passes.programs import Writer, program

# For weights of 8 bits.
INSTRUCTIONS = {
    "cpu:generic": r"pmaddwd\s.*%xmm",
    "cpu:avx2": r"vpmaddwd\s.*%ymm",
    "cpu:avx2_vnni": r"vpdpbusd\s.*%ymm",
    "cpu:avx512": r"vpmaddwd\s.*%zmm",
    "cpu:avx512_vnni": r"vpdpbusd\s.*%zmm",
    "cpu:aarch64": r"smull\s",
    "cpu:aarch64_i8mm": r"usdot\s",
}
INSTRUCTIONS_7_BITS = {
    **INSTRUCTIONS,
    "cpu:generic": r"pmaddubsw\s.*%xmm",
    "cpu:avx2": r"vpmaddubsw\s.*%ymm",
    "cpu:avx512": r"vpmaddubsw\s.*%zmm",
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
@pytest.mark.parametrize("max_weight, instructions", [(127, INSTRUCTIONS), (64, INSTRUCTIONS_7_BITS)], ids=["i8", "i7"])
def test_instruction(name: str, max_weight: int, instructions: dict[str, str]) -> None:
    def product(b: Writer, x: SSAValue) -> SSAValue:
        w = np.random.default_rng(0).integers(-max_weight, max_weight, (64, 64), np.int8, endpoint=True)
        # The largest sum of two products.
        w[:2, 0] = max_weight
        return b(dl.MatmulOp, *(b(dl.CastOp, v, to=i32) for v in (x, b.weight(w))))

    target = CPU_LEVELS[name]
    x = np.random.default_rng(1).integers(0, 255, (24, 64), np.uint8, endpoint=True)
    x[:, :2] = 255
    p = program(product, x)
    expected = p.run()
    for stage in stages_of(target):
        for step in stage.passes:
            step.apply(Context(), p.module)
    # Targets that this machine may not support are evaluated at the loops stage.
    np.testing.assert_array_equal(p.run(), expected)
    kernel = next(k for k in kernels_of(p.module) if "matmul" in k.sym_name.data)
    code = assembly(emit_kernel(kernel, target).text, target)
    assert len(re.findall(instructions[name], code)) >= 8
    # None of the defining arithmetic remains.
    assert not re.search(r"mull[dw]|pmuludq|psrad|psllw|mla|sshl|shl\s", code)
    # The other registers are callee-saved, and 7-bit products need a register for the ones that add pairs.
    if target.architecture == HOST and max_weight == 127:
        assert "Spill" not in code


@pytest.mark.skipif(HOST != "x86_64", reason="reads the assembly of AVX2")
def test_tiles_of_weight_only_products_spill_few_vectors() -> None:
    weights = np.random.default_rng(0).integers(-128, 127, (64, 2048), np.int8, endpoint=True)
    matrix = QuantizedMatrix(weights, np.ones((64, 64), np.float16))

    @dlc.jit(target="cpu:avx2")
    def product(x: Any) -> Any:
        return linear(x, matrix)

    code = product.lower(np.ones((32, 2048), np.float32)).as_text("asm")
    assert len(re.findall(r"32-byte Spill", code)) < len(re.findall(r"vpmaddwd", code)) / 4

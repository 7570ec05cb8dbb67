"""`upcast-contractions`: equal results from contractions in f32, with values converted at their producers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlc.dialects import dl
from dlc.ir import SSAValue, f32
from dlc.passes.dl.low_precision.upcast_contractions import UpcastContractionsPass
from dlc.passes.dl.simplification.dce import DcePass
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, Target
from tests.passes.programs import Program, Writer, program, randoms

CPU = CPU_LEVELS["cpu:avx2"]


def half_precision_arrays(*shape: int, dtype: Any = np.float16) -> np.ndarray:
    return randoms(shape)[0].astype(dtype)


def upcast(body: Any, x: np.ndarray, target: Target = CPU) -> Program:
    return program(body, x).apply(UpcastContractionsPass(target), DcePass())


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_residual_block_stores_f32(dtype: Any) -> None:
    def conv(b: Writer, x: SSAValue) -> SSAValue:
        x = b(dl.PadOp, x, b.scalar(0, like=x), low=(0, 1, 1, 0), high=(0, 1, 1, 0), pad_mode="constant")
        return b(
            dl.ConvOp, x, b.weight(half_precision_arrays(3, 3, 4, 4, dtype=dtype)), strides=(1, 1), dilations=(1, 1), groups=1
        )

    def body(b: Writer, x: SSAValue) -> SSAValue:
        r = b(dl.ReluOp, conv(b, x))
        return b(dl.AddOp, conv(b, r), r)

    p = upcast(body, half_precision_arrays(1, 5, 6, 4, dtype=dtype))
    # The operand of the second convolution and of the sum is converted once, after its producer.
    one = ["cast", "pad", "cast", "conv", "cast"]
    assert p.ops == [*one, "relu", "cast", "cast", *one[1:], "add"]
    assert all(op.results[0].type.element_type == f32 for op in p.main.body.block.ops if op.name == "dl.conv")


@pytest.mark.parametrize("rows, target, wide", [(16, CPU, True), (2, CPU, False), (16, OPENCL_PROFILES["opencl:gpu"], False)])
def test_weights_for_few_rows_stay_half_precision(rows: int, target: Target, wide: bool) -> None:
    p = upcast(lambda b, x: b(dl.MatmulOp, x, b.weight(half_precision_arrays(8, 6))), half_precision_arrays(rows, 8), target)
    assert ("cast" in p.ops) == wide


def test_products_of_data_stay_half_precision() -> None:
    p = upcast(lambda b, x: b(dl.MatmulOp, x, b(dl.TransposeOp, x, permutation=(1, 0))), half_precision_arrays(16, 8))
    assert "cast" not in p.ops

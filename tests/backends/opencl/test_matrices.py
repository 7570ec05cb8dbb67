"""Kernels with matrix units in OpenCL C: on a device, and in Oclgrind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.dialects import dl
from dlc.ir import MemRefType, ModuleOp, SSAValue, func, i32, print_module
from dlc.passes.base import kernels_of
from dlc.runtime.opencl.devices import all_devices
from dlc.target import resolve
from tests.backends.opencl.gpu_simulator import TOOL, reports
from tests.backends.opencl.kernels import run
from tests.passes.programs import Writer
from tests.stages.test_matrix_units import TARGET, TYPES, lowered, numbers

# Rows, words and columns: full tiles, and tiles that are ragged in rows, and in columns by 8, 4 and 1.
SHAPES = [(64, 64, 64), (69, 64, 61), (133, 32, 124), (5, 96, 40)]


def kernel_of(rows: int, terms: int, columns: int, precision: str) -> func.FuncOp:
    """Return a matrix product followed by an epilogue, at the end of the loops stage."""
    w = numbers(terms, columns, seed=1)

    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.ReluOp, b(dl.MatmulOp, x, b.weight(w)))

    lowering = lowered(body, numbers(rows, terms), precision=precision)
    return next(k for k in kernels_of(lowering.module) if "matmul" in k.sym_name.data)


def arguments(kernel: func.FuncOp, precision: str) -> list[np.ndarray]:
    arrays: list[np.ndarray] = []
    for k, argument in enumerate(kernel.body.block.args):
        t = argument.type
        assert isinstance(t, MemRefType)
        words = t.element_type == i32
        pairs = (2,) if words else ()
        drawn = numbers(*t.get_shape(), *pairs, seed=k, dtype=TYPES[precision] if words else np.float32)
        arrays.append(drawn.view(np.int32)[..., 0] if words else drawn)
    return arrays


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_on_a_device(shape: tuple[int, int, int], precision: str) -> None:
    kernel = kernel_of(*shape, precision)
    given = arguments(kernel, precision)
    expected = [array.copy() for array in given]
    evaluate_function(kernel, expected)
    for got, want in zip(run(kernel, given, resolve(TARGET)), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(TOOL is None, reason="oclgrind is not installed (apt install oclgrind)")
def test_items_share_without_races(tmp_path: Path) -> None:
    file = tmp_path / "kernel.mlir"
    text = print_module(ModuleOp([kernel_of(37, 64, 43, "bf16").clone()]), locations=False)
    file.write_text(text)
    assert reports(file, TARGET) == ""
    barrier = '"gpu.barrier"() : () -> ()'
    before, between, after = text.split(barrier)
    for left in (barrier.join([before + between, after]), barrier.join([before, between + after])):
        file.write_text(left)
        assert "data race" in reports(file, TARGET)

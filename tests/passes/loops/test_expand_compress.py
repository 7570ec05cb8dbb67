"""`vector.compress`, evaluated, expanded, and compiled for the processors that differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.kernels as k
from dlc.backends.reference import evaluate
from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from dlc.kernels.functions import compress
from dlc.passes.loops.expand_compress import ExpandCompressPass
from dlc.target import resolve
from tests.targets import NATIVE

CONTEXT = make_context()


def test_expanded() -> None:
    bounds = "{in_bounds = [true], permutation_map = affine_map<(d0) -> (d0)>}"
    module = parse_module(
        CONTEXT,
        f"""
        func.func @main(%x: memref<8xi32>, %y: memref<8xi32>, %n: memref<1xindex>) attributes {{kernel}} {{
          %c0 = arith.constant 0 : index
          %zero = arith.constant 0 : i32
          %zeros = arith.constant dense<0> : vector<8xi32>
          %v = vector.transfer_read %x[%c0], %zero {bounds} : memref<8xi32>, vector<8xi32>
          %mask = arith.cmpi slt, %v, %zeros : vector<8xi32>
          %r, %count = "vector.compress"(%mask, %v) : (vector<8xi1>, vector<8xi32>) -> (vector<8xi32>, index)
          vector.transfer_write %r, %y[%c0] {bounds} : vector<8xi32>, memref<8xi32>
          memref.store %count, %n[%c0] : memref<1xindex>
          func.return
        }}""",
    )
    x = np.array([3, -1, 4, -1, -5, 9, -2, 6], np.int32)
    module.verify()
    for target in ("cpu:avx2", "cpu:generic"):
        ExpandCompressPass(resolve(target)).apply(CONTEXT, module)
        module.verify()
        assert any(op.name == "vector.compress" for op in module.walk()) == (target == "cpu:avx2")
        y, n = evaluate(module, [x])
        assert n == 4
        np.testing.assert_array_equal(y[:4], [-1, -1, -5, -2])


@pytest.mark.parametrize("target", [*NATIVE, "cpu:avx2", "cpu:generic"])
def test_compiled(target: str) -> None:
    @dlc.kernel(results=lambda x, _: k.Result((x.shape[0] * 2,), x.dtype, fill=0))
    def select(x: Any, mask: Any, y: Any) -> None:
        width = 32 // x.dtype.itemsize
        for _ in k.grid(1):
            end = k.variable(0, size=x.shape[0] + 1)
            for i in k.range(0, x.shape[0], width):
                selected, count = compress(mask.load(i, width=width), x.load(i, width=width))
                y.store(end.value, value=selected)
                end.value = k.assume_index(end.value + count, x.shape[0] + 1)

    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(0, 1e4, 1024).astype(name) for name in ("int32", "float32", "int64", "float64")}
    # All masks of eight lanes.
    mask = np.unpackbits(np.arange(128, dtype=np.uint8)).astype(bool)
    results = dlc.jit(target=target)(lambda xs, mask: {name: select(x, mask) for name, x in xs.items()})(arrays, mask)
    for name, y in results.items():
        expected = arrays[name][mask]
        np.testing.assert_array_equal(np.asarray(y)[: len(expected)], expected, err_msg=name)

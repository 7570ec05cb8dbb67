"""`unpack-panels`: values that all register tiles of a panel have in common are computed once, with the same results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, Operation, arith, memref, parse_module, scf
from dlc.passes.base import kernels_of
from dlc.passes.loops.unpack_panels import UnpackPanelsPass
from dlc.target import CPU_LEVELS

CONTEXT = make_context()
AVX2 = CPU_LEVELS["cpu:avx2"]
# Rows of 6 elements times the low halves of 6 × 8 bytes in words, in tiles of four rows.
PRODUCT = """
builtin.module {
  func.func @product(%w: memref<6x8xi32>, %x: memref<16x6xf32>, %y: memref<16x8xf32>) attributes {kernel} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c6 = arith.constant 6 : index
    %rows = arith.constant ROWS : index
    %no_word = arith.constant 0 : i32
    %no_float = arith.constant 0.0 : f32
    %mask = arith.constant dense<15> : vector<4x8xi32>
    %zero = arith.constant dense<0.0> : vector<4x8xf32>
    scf.for %r = %c0 to %rows step %c4 {
      %y_tile = memref.subview %y[%r, 0] [4, 8] [1, 1] : memref<16x8xf32> to memref<4x8xf32, strided<[8, 1], offset: ?>>
      %sum = scf.for %k = %c0 to %c6 step %c1 iter_args(%acc = %zero) -> (vector<4x8xf32>) {
        %words = vector.transfer_read %w[%k, %c0], %no_word {in_bounds = [true, true],
          permutation_map = affine_map<(d0, d1) -> (0, d1)>} : memref<6x8xi32>, vector<4x8xi32>
        %low = arith.andi %words, %mask : vector<4x8xi32>
        %weights = arith.sitofp %low : vector<4x8xi32> to vector<4x8xf32>
        %data = vector.transfer_read %x[%r, %k], %no_float {in_bounds = [true, true],
          permutation_map = affine_map<(d0, d1) -> (d0, 0)>} : memref<16x6xf32>, vector<4x8xf32>
        %next = vector.fma %data, %weights, %acc : vector<4x8xf32>
        STORE
        scf.yield %next : vector<4x8xf32>
      }
      vector.transfer_write %sum, %y_tile[%c0, %c0] {in_bounds = [true, true]} :
        vector<4x8xf32>, memref<4x8xf32, strided<[8, 1], offset: ?>>
    }
    func.return
  }
}
"""
# Writes the words that the loop reads.
STORE = "memref.store %no_word, %w[%c0, %c0] : memref<6x8xi32>"


def unpacked(rows: int = 16, max_bytes: int = 192, store: str = "", product: str = PRODUCT) -> ModuleOp:
    module = parse_module(CONTEXT, product.replace("ROWS", str(rows)).replace("STORE", store))
    expected = result_of(module)
    costs = replace(AVX2.costs, max_unpacked_panel_bytes=max_bytes)
    UnpackPanelsPass(replace(AVX2, costs=costs)).apply(CONTEXT, module)
    module.verify()
    np.testing.assert_array_equal(result_of(module), expected)
    return module


def result_of(module: ModuleOp) -> np.ndarray:
    rng, y = np.random.default_rng(0), np.zeros((16, 8), np.float32)
    (kernel,) = kernels_of(module)
    evaluate_function(kernel, [rng.integers(0, 256, (6, 8)).astype(np.int32), rng.random((16, 6), np.float32), y])
    return y


def loop_around(op: Operation) -> scf.ForOp:
    loop = op.parent_op()
    assert isinstance(loop, scf.ForOp)
    return loop


def test_tiles_read_a_panel_that_is_unpacked_before() -> None:
    module = unpacked()
    (unpacking,) = (op for op in module.walk() if isinstance(op, arith.SIToFPOp))
    (panel,) = (op for op in module.walk() if isinstance(op, memref.AllocaOp))
    assert unpacking.result.type.get_shape() == (8,) and panel.memref.type.get_shape() == (6, 1, 8)
    # The loop that unpacks is before the loop over tiles, not in it.
    assert not loop_around(unpacking).results and not isinstance(loop_around(unpacking).parent_op(), scf.ForOp)


@pytest.mark.parametrize(
    "settings", [{"max_bytes": 191}, {"rows": 12}, {"store": STORE}], ids=["panel too large", "few tiles", "words change"]
)
def test_other_tiles_compute_the_values_themselves(settings: dict[str, int | str]) -> None:
    module = unpacked(**settings)
    (unpacking,) = (op for op in module.walk() if isinstance(op, arith.SIToFPOp))
    assert loop_around(unpacking).results and not any(isinstance(op, memref.AllocaOp) for op in module.walk())


def test_panels_do_not_copy_vectors_that_are_only_broadcast() -> None:
    words = """%words = vector.transfer_read %w[%k, %c0], %no_word {in_bounds = [true, true],
          permutation_map = affine_map<(d0, d1) -> (0, d1)>} : memref<6x8xi32>, vector<4x8xi32>"""
    broadcast = """%word = vector.transfer_read %w[%k, %c0], %no_word {in_bounds = [true]} : memref<6x8xi32>, vector<8xi32>
        %words = vector.broadcast %word : vector<8xi32> to vector<4x8xi32>"""
    computed = "%low = arith.andi %words, %mask : vector<4x8xi32>"
    varying = """%row = arith.index_cast %r : index to i32
        %rows_of_tile = vector.broadcast %row : i32 to vector<4x8xi32>
        %low = arith.andi %words, %rows_of_tile : vector<4x8xi32>"""
    assert words in PRODUCT and computed in PRODUCT
    module = unpacked(product=PRODUCT.replace(words, broadcast).replace(computed, varying))
    assert not any(isinstance(op, memref.AllocaOp) for op in module.walk())

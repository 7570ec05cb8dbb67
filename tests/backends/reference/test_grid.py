"""Lockstep evaluation of grid points: values that vary between points, and divergence."""

import tracemalloc

import numpy as np
import pytest

from dlc.backends.reference import EvaluationError, control, evaluate
from dlc.backends.reference.values import gather
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, parse_module


def grid(body: str, size: int, arguments: str, points: int = 4) -> str:
    return f"""
    func.func @main({arguments}) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %n = arith.constant {points} : index
      "scf.parallel"(%c0, %n, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
      ^bb0(%i: index):
        {body}
        "scf.reduce"() : () -> ()
      }}) {{level = "grid"}} : (index, index, index) -> ()
      func.return
    }}"""


def run(text: str, *inputs: np.ndarray) -> np.ndarray:
    module = parse_module(make_context(), text)
    module.verify()
    (result,) = evaluate(module, inputs)
    return result


def test_divergent_branch():
    text = grid(
        """
        %even = arith.remui %i, %c2 : index
        %c = arith.cmpi eq, %even, %c0 : index
        %x = arith.index_cast %i : index to i64
        %r = scf.if %c -> (i64) {
          %a = arith.addi %x, %x : i64
          scf.yield %a : i64
        } else {
          scf.yield %x : i64
        }
        memref.store %r, %y[%i] : memref<5xi64>
        """, 5, "%y: memref<5xi64>", 5)  # fmt: skip
    np.testing.assert_array_equal(run(text), [0, 1, 4, 3, 8])


def test_divergent_trip_counts():
    text = grid(
        """
        %one = arith.constant 1 : i64
        %r = scf.for %k = %c0 to %i step %c1 iter_args(%a = %one) -> (i64) {
          %b = arith.addi %a, %a : i64
          scf.yield %b : i64
        }
        memref.store %r, %y[%i] : memref<6xi64>
        """, 6, "%y: memref<6xi64>", 6)  # fmt: skip
    np.testing.assert_array_equal(run(text), 2 ** np.arange(6))


def test_each_point_has_its_own_local_buffer():
    text = grid(
        """
        %t = memref.alloca() : memref<3xf32>
        %x = memref.subview %a[%i, 0] [1, 3] [1, 1] : memref<4x3xf32> to memref<3xf32, strided<[1], offset: ?>>
        linalg.generic {indexing_maps = [affine_map<(d) -> (-d + 2)>, affine_map<(d) -> (d)>], iterator_types = ["parallel"]}
          ins(%x : memref<3xf32, strided<[1], offset: ?>>) outs(%t : memref<3xf32>) {
        ^bb0(%e: f32, %o: f32):
          linalg.yield %e : f32
        }
        %v_pad = arith.constant 0.0 : f32
        %v = vector.transfer_read %t[%c0], %v_pad {in_bounds = [true]} : memref<3xf32>, vector<3xf32>
        vector.transfer_write %v, %y[%i, %c0] {in_bounds = [true]} : vector<3xf32>, memref<4x3xf32>
        """, 4, "%a: memref<4x3xf32>, %y: memref<4x3xf32>")  # fmt: skip
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(run(text, a), a[:, ::-1])


def test_reads_outside_the_buffer_are_padding_and_writes_are_dropped():
    text = grid(
        """
        %f = arith.constant 9.0 : f32
        %v = vector.transfer_read %a[%i], %f {in_bounds = [false], permutation_map = affine_map<(d) -> (d)>}
          : memref<5xf32>, vector<4xf32>
        vector.transfer_write %v, %y[%i, %c1] {in_bounds = [false], permutation_map = affine_map<(d, e) -> (e)>}
          : vector<4xf32>, memref<4x4xf32>
        """, 4, "%a: memref<5xf32>, %y: memref<4x4xf32>")  # fmt: skip
    y = run(text, np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(y[:, 1:], [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 9]])
    assert np.isnan(y[:, 0]).all()


def test_reductions_and_broadcasts_of_rows():
    text = grid(
        """
        %f = arith.constant 0.0 : f32
        %v = vector.transfer_read %a[%i, %c0], %f {in_bounds = [true], permutation_map = affine_map<(d, e) -> (e)>}
          : memref<4x3xf32>, vector<3xf32>
        %m = "vector.reduction"(%v) <{kind = #vector.kind<maximumf>}> : (vector<3xf32>) -> f32
        %b = vector.broadcast %m : f32 to vector<3xf32>
        %d = arith.subf %v, %b : vector<3xf32>
        vector.transfer_write %d, %y[%i, %c0] {in_bounds = [true]} : vector<3xf32>, memref<4x3xf32>
        """, 4, "%a: memref<4x3xf32>, %y: memref<4x3xf32>")  # fmt: skip
    a = np.random.default_rng(1).standard_normal((4, 3), np.float32)
    np.testing.assert_array_equal(run(text, a), a - a.max(1, keepdims=True))


def test_a_read_outside_a_buffer_is_an_error():
    text = grid("%v = memref.load %a[%i] : memref<3xf32>\nmemref.store %v, %y[%i] : memref<4xf32>", 4,
                "%a: memref<3xf32>, %y: memref<4xf32>")  # fmt: skip
    with pytest.raises(EvaluationError, match=r"memref.load.*: index 0 is 0..3, outside 0..2"):
        run(text, np.zeros(3, np.float32))


def test_conflicting_writes_of_points_are_an_error():
    text = grid("%v = memref.load %a[%i] : memref<4xf32>\nmemref.store %v, %y[%c0] : memref<4xf32>", 4,
                "%a: memref<4xf32>, %y: memref<4xf32>")  # fmt: skip
    with pytest.raises(EvaluationError, match="points of a grid write different values"):
        run(text, np.zeros(4, np.float32))


def test_a_large_grid_runs_in_chunks(monkeypatch):
    monkeypatch.setattr(control, "GRID_POINTS_PER_CHUNK", 3)
    text = grid("%v = memref.load %a[%i] : memref<7xf32>\nmemref.store %v, %y[%i] : memref<7xf32>", 7,
                "%a: memref<7xf32>, %y: memref<7xf32>", 7)  # fmt: skip
    a = np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(run(text, a), a)


def test_offsets_of_large_tiles_are_not_cached() -> None:
    base, starts = np.zeros(1 << 20, np.float32), np.arange(2)
    tracemalloc.start()
    try:
        for stride in range(2, 10):
            tile = gather(ModuleOp([]), base, starts, (1 << 16,), (stride,))
        assert tile.shape == (2, 1 << 16)
        del tile
        assert tracemalloc.get_traced_memory()[0] < 1 << 19  # of 4 MB
    finally:
        tracemalloc.stop()

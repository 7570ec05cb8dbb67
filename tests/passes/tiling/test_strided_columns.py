"""Tile plans of columns: elements that are contiguous in local buffers only are not vectorized."""

from __future__ import annotations

import pytest

from dlc.passes.tiling.choose_tiles import choose_tiles
from dlc.target import CPU_LEVELS

from .test_plans import nest_in

# Two results from the square of a column, which is stored in a local buffer.
COLUMN = """
builtin.module {
  func.func @column(%x: tensor<64x8xf32>, %y: tensor<64x8xf32>, %z: tensor<64x8xf32>) -> (tensor<64x8xf32>, tensor<64x8xf32>)
      attributes {kernel} {
    %a = tensor.extract_slice %x[0, 1] [64, 1] [1, 1] : tensor<64x8xf32> to tensor<64x1xf32>
    %e = tensor.empty() : tensor<64x1xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>],
        iterator_types = ["parallel", "parallel"]} ins(%a : tensor<64x1xf32>) outs(%e : tensor<64x1xf32>) {
    ^bb0(%v: f32, %o: f32):
      %s = arith.mulf %v, %v : f32
      linalg.yield %s : f32
    } -> tensor<64x1xf32>
    %ys = tensor.extract_slice %y[0, 0] [64, 1] [1, 1] : tensor<64x8xf32> to tensor<64x1xf32>
    %zs = tensor.extract_slice %z[0, 0] [64, 1] [1, 1] : tensor<64x8xf32> to tensor<64x1xf32>
    %p = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>],
        iterator_types = ["parallel", "parallel"]} ins(%t : tensor<64x1xf32>) outs(%ys : tensor<64x1xf32>) {
    ^bb0(%v: f32, %o: f32):
      %s = arith.negf %v : f32
      linalg.yield %s : f32
    } -> tensor<64x1xf32>
    %q = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>],
        iterator_types = ["parallel", "parallel"]} ins(%t : tensor<64x1xf32>) outs(%zs : tensor<64x1xf32>) {
    ^bb0(%v: f32, %o: f32):
      %s = arith.addf %v, %v : f32
      linalg.yield %s : f32
    } -> tensor<64x1xf32>
    %y1 = tensor.insert_slice %p into %y[0, 0] [64, 1] [1, 1] : tensor<64x1xf32> into tensor<64x8xf32>
    %z1 = tensor.insert_slice %q into %z[0, 0] [64, 1] [1, 1] : tensor<64x1xf32> into tensor<64x8xf32>
    func.return %y1, %z1 : tensor<64x8xf32>, tensor<64x8xf32>
  }
}
"""


@pytest.mark.parametrize("level", ["cpu:avx2", "cpu:avx512"])
def test_columns_with_a_common_term_are_scalar(level: str) -> None:
    plan = choose_tiles(nest_in(COLUMN).specialize({}), CPU_LEVELS[level])
    assert not plan.register and plan.grid == {0: 64}

"""While register tiles go through a block of what a contraction reduces they ask for all lines of the next one."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function, machine
from dlc.dialects.prefetch import PrefetchOp
from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from dlc.passes.base import kernels_of
from dlc.passes.structured import Constants
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.collapse_iterators import CollapseIteratorsPass
from dlc.passes.tiling.form_nests import nests_of
from dlc.passes.tiling.plan import TilePlan

CONTEXT = make_context()
# Images × places of an image × channels: sums over both, of whole rows of channels.
GRADIENT = """
builtin.module {
  func.func @gradient(%x: tensor<4x6x64xf32>, %y: tensor<4x6x96xf32>, %w: tensor<64x96xf32>) -> tensor<64x96xf32>
      attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %z = linalg.fill ins(%zero : f32) outs(%w : tensor<64x96xf32>) -> tensor<64x96xf32>
    %xs = tensor.extract_slice %x[0, 0, 0] [4, 5, 64] [1, 1, 1] : tensor<4x6x64xf32> to tensor<4x5x64xf32>
    %ys = tensor.extract_slice %y[0, 0, 0] [4, 5, 96] [1, 1, 1] : tensor<4x6x96xf32> to tensor<4x5x96xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(m, n, i, p) -> (i, p, m)>, affine_map<(m, n, i, p) -> (i, p, n)>,
        affine_map<(m, n, i, p) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
        ins(%xs, %ys : tensor<4x5x64xf32>, tensor<4x5x96xf32>) outs(%z : tensor<64x96xf32>) {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %p, %acc : f32
      linalg.yield %s : f32
    } -> tensor<64x96xf32>
    func.return %r : tensor<64x96xf32>
  }
}
"""


@pytest.mark.parametrize(
    ("blocks", "steps"),
    [({2: 1}, range(5, 20)), ({2: 1, 3: 5}, range(5, 20)), ({2: 2}, range(10, 20))],
    ids=["image by image", "whole images", "two images"],
)
@pytest.mark.parametrize("panels", [(), (0, 1)])
def test_all_lines_of_the_next_block_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, blocks: dict[int, int], steps: range, panels: tuple[int, ...]
) -> None:
    module = parse_module(CONTEXT, GRADIENT)
    for p in (BufferizeKernelsPass(), CollapseIteratorsPass()):
        p.apply(CONTEXT, module)
    (kernel,) = kernels_of(module)
    (nest,) = nests_of(kernel)
    plan = TilePlan({0: 32, 1: 64}, {0: 16, 1: 32}, (0, 1), blocks=blocks, panels=panels, ahead=(0, 1))
    apply_tiles(nest, plan, Constants(kernel))
    asked: list[tuple[int, ...]] = []

    def note(op: machine.Operation, frame: machine.Frame) -> tuple[()]:
        assert isinstance(op, PrefetchOp)
        columns = op.memref.type.get_shape()[-1]
        # Tasks are evaluated in lockstep.
        indices = np.broadcast_arrays(*(np.atleast_1d(frame.array(i)) for i in op.indices))
        asked.extend((columns, *map(int, place)) for place in zip(*indices, strict=True))
        return ()

    monkeypatch.setitem(machine._RULES, PrefetchOp, note)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((4, 6, n), dtype=np.float32) for n in (64, 96))
    w = np.zeros((64, 96), np.float32)
    evaluate_function(kernel, [x, y, w])
    np.testing.assert_allclose(w, np.einsum("ipm,ipn->mn", x[:, :5], y[:, :5]), rtol=1e-4, atol=1e-4)
    for columns in (64, 96):
        # A step of what is reduced by its number, and the line in its row.
        lines = {(5 * i + p, column // 16) for size, i, p, column in asked if size == columns}
        assert {(step, line) for step in steps for line in range(columns // 16)} <= lines

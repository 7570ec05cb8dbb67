"""Register tiles prefetch all lines of a contraction's next cache block, or of the next product of a batch."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function, evaluation_context
from dlc.dialects.prefetch import PrefetchOp
from dlc.dialects.registry import make_context
from dlc.ir import func, parse_module
from dlc.passes.base import kernels_of
from dlc.passes.structured import ConstantPool
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.choose_tiles import choose_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.loop_nests import LoopNest
from dlc.target import CPU_LEVELS

CONTEXT = make_context()
RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((4, 6, n), dtype=np.float32) for n in (64, 96))
# Images × pixels × channels: reduced over images and pixels, with whole rows of channels.
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
# A reduction over pixels for each of four images.
BATCH = (
    GRADIENT.replace("<64x96xf32>", "<4x64x96xf32>")
    .replace("(m, n, i, p)", "(i, m, n, p)")
    .replace("-> (m, n)>", "-> (i, m, n)>")
    .replace('"parallel", "parallel", "reduction", "reduction"', '"parallel", "parallel", "parallel", "reduction"')
)


def nest_of(text: str) -> tuple[func.FuncOp, LoopNest]:
    module = parse_module(CONTEXT, text)
    BufferizeKernelsPass().apply(CONTEXT, module)
    (kernel,) = kernels_of(module)
    (nest,) = form_loop_nests(kernel)
    return kernel, nest


def prefetched(monkeypatch: pytest.MonkeyPatch, kernel: func.FuncOp, *arrays: np.ndarray) -> set[tuple[int, ...]]:
    """Return the number of columns of an operand, and the offsets that a kernel prefetches."""
    indexed_dims: set[tuple[int, ...]] = set()

    def note(op: evaluation_context.Operation, frame: evaluation_context.Frame) -> tuple[()]:
        assert isinstance(op, PrefetchOp)
        columns = op.memref.type.get_shape()[-1]
        # Tasks are evaluated in lockstep.
        indices = np.broadcast_arrays(*(np.atleast_1d(frame.array(i)) for i in op.indices))
        indexed_dims.update((columns, *map(int, place)) for place in zip(*indices, strict=True))
        return ()

    monkeypatch.setitem(evaluation_context._RULES, PrefetchOp, note)
    evaluate_function(kernel, arrays)
    return indexed_dims


@pytest.mark.parametrize(
    ("blocks", "steps"),
    [({2: 1}, range(5, 20)), ({2: 1, 3: 5}, range(5, 20)), ({2: 2}, range(10, 20))],
    ids=["image by image", "whole images", "two images"],
)
@pytest.mark.parametrize("panels", [(), (0, 1)])
def test_all_lines_of_the_next_block_are_prefetched(
    monkeypatch: pytest.MonkeyPatch, blocks: dict[int, int], steps: range, panels: tuple[int, ...]
) -> None:
    kernel, nest = nest_of(GRADIENT)
    plan = BlockedTiles(
        grid={0: 32, 1: 64}, register={0: 16, 1: 32}, order=(0, 1), blocks=blocks, panels=panels, prefetch=(0, 1)
    )
    apply_tiles(nest, plan, ConstantPool(kernel))
    w = np.zeros((64, 96), np.float32)
    indexed_dims = prefetched(monkeypatch, kernel, X, Y, w)
    np.testing.assert_allclose(w, np.einsum("ipm,ipn->mn", X[:, :5], Y[:, :5]), rtol=1e-4, atol=1e-4)
    for columns in (64, 96):
        # (reduction step, line in its row).
        lines = {(5 * i + p, column // 16) for size, i, p, column in indexed_dims if size == columns}
        assert {(step, line) for step in steps for line in range(columns // 16)} <= lines


@pytest.mark.parametrize("panels", [(), (0, 1)])
@pytest.mark.parametrize("images", [1, 2])
def test_all_lines_of_the_next_batch_entry_are_prefetched(
    monkeypatch: pytest.MonkeyPatch, images: int, panels: tuple[int, ...]
) -> None:
    kernel, nest = nest_of(BATCH)
    plan = BlockedTiles(
        grid={0: images, 1: 32, 2: 64}, register={1: 16, 2: 32}, order=(0, 1, 2), panels=panels, prefetch=(0, 1)
    )
    apply_tiles(nest, plan, ConstantPool(kernel))
    w = np.zeros((4, 64, 96), np.float32)
    indexed_dims = prefetched(monkeypatch, kernel, X, Y, w)
    np.testing.assert_allclose(w, np.einsum("ipm,ipn->imn", X[:, :5], Y[:, :5]), rtol=1e-4, atol=1e-4)
    for columns in (64, 96):
        lines = {(i, p, column // 16) for size, i, p, column in indexed_dims if size == columns}
        assert {(i, p, line) for i in range(1, 4) for p in range(5) for line in range(columns // 16)} <= lines


def test_a_single_product_has_no_next_one() -> None:
    _, nest = nest_of(GRADIENT)
    plan = BlockedTiles(order=(0, 1), register={0: 16, 1: 32}, prefetch=(0,))
    with pytest.raises(ValueError, match="must be read in rows, by a contraction with blocks or a batch"):
        plan.check(nest.specialize({}))


@pytest.mark.parametrize(
    ("steps", "channels", "near"), [(256, 64, True), (128, 128, True), (1024, 64, False), (128, 256, False)]
)
@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_batched_products_are_read_in_place_if_two_fit_l2(target: str, steps: int, channels: int, near: bool) -> None:
    """With 1,024 steps a cache holds a single product; of rows of 1 KB the L1 cache holds at most 32."""
    _, nest = nest_of(
        BATCH.replace("4x64x96x", f"36x{channels}x{channels}x")
        .replace("4x6x64x", f"36x{steps + 1}x{channels}x")
        .replace("4x6x96x", f"36x{steps + 1}x{channels}x")
        .replace("4x5x64x", f"36x{steps}x{channels}x")
        .replace("4x5x96x", f"36x{steps}x{channels}x")
        .replace("[4, 5, 64]", f"[36, {steps}, {channels}]")
        .replace("[4, 5, 96]", f"[36, {steps}, {channels}]")
    )
    plan = choose_tiles(nest.specialize({}), CPU_LEVELS[target])
    assert isinstance(plan, BlockedTiles)
    assert (not plan.panels, bool(plan.blocks)) == (near, not near and steps > 150)
    assert plan.prefetch == ((0, 1) if near or plan.blocks else ())
    assert not near or plan.grid[nest.shared_dims[0]] == 1

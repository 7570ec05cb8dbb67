"""Register tiles that share a panel of weights prefetch the next panel, each a part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function, evaluation_context
from dlc.cost_model import PrefetchCosts, UnrollingCosts
from dlc.dialects.prefetch import L2_READ_HINTS, PrefetchOp
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, memref, parse_module, scf
from dlc.passes.base import kernels_of
from dlc.passes.loops.forward_stores import ForwardStoresPass
from dlc.passes.loops.prefetch_panels import PrefetchPanelsPass
from dlc.passes.loops.unroll_reductions import UnrollReductionsPass
from dlc.passes.loops.vectorize import VectorizePass
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.passes.types import viewed_buffer
from dlc.target import CPU_LEVELS
from tests.passes.tiling.kernels import KERNELS

CONTEXT = make_context()
TARGET = CPU_LEVELS["cpu:avx2"]
LINE = 16


def compiled(text: str, factor: int = 4, next_panel_rows: int = 256, has_blocks: bool = False) -> ModuleOp:
    module = parse_module(CONTEXT, text)
    unrolling = UnrollingCosts(factor=factor, min_steps=1)
    # No cache holds the panels, so the loop over rows is inside that over panels, for blocks of rows or for all rows.
    block_elements, blocks = (1 << 13, 1) if has_blocks else (1 << 10, 128)
    costs = replace(TARGET.costs, way_bytes=1 << 7, block_elements=block_elements, outer_cache_blocks=blocks)
    target = replace(TARGET, costs=replace(costs, unrolling=unrolling, prefetch=PrefetchCosts(next_panel_rows=next_panel_rows)))
    passes = (
        BufferizeKernelsPass(),
        TileKernelsPass(target),
        VectorizePass(),
        ForwardStoresPass(),
        UnrollReductionsPass(target),
        PrefetchPanelsPass(target),
    )
    for p in passes:
        p.apply(CONTEXT, module)
        module.verify()
    return module


def prefetched_lines(
    module: ModuleOp, weights: np.ndarray, compute: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> Counter[int]:
    """Return how often each cache line of the weights is prefetched, by positions in units of lines."""
    lines: Counter[int] = Counter()

    def note(op: evaluation_context.Operation, frame: evaluation_context.Frame) -> tuple[()]:
        assert isinstance(op, PrefetchOp)
        panel = frame.view(op.memref)
        if np.shares_memory(panel.base, weights):
            offsets = sum(np.asarray(frame.array(i)) * stride for i, stride in zip(op.indices, panel.strides, strict=True))
            lines.update(int(e) // LINE for e in np.ravel(panel.offset + offsets))
        return ()

    monkeypatch.setitem(evaluation_context._RULES, PrefetchOp, note)
    compute()
    return lines


@pytest.mark.parametrize(("rows", "depth", "num_blocks"), [(13, 96, 1), (48, 200, 1), (200, 97, 1), (210, 97, 5)])
@pytest.mark.parametrize("factor", [1, 4])
def test_every_line_of_the_next_panel_is_prefetched(
    rows: int, depth: int, num_blocks: int, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = KERNELS["matmul"].replace("x24x", f"x{depth}x").replace("13x24", f"13x{depth}").replace("13x", f"{rows}x")
    module = compiled(text, factor, has_blocks=num_blocks > 1)
    (kernel,) = kernels_of(module)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, depth), dtype=np.float32), rng.standard_normal((3, depth, 16), dtype=np.float32)
    c = np.zeros((rows, 40), np.float32)
    lines = prefetched_lines(module, b, lambda: evaluate_function(kernel, [a, b, c]), monkeypatch)
    np.testing.assert_allclose(c, a @ b.transpose(1, 0, 2).reshape(depth, 48)[:, :40], rtol=1e-4, atol=1e-4)
    assert min(lines[line] for line in range(depth, 3 * depth)) >= num_blocks


@pytest.mark.parametrize(("max_rows", "uses_next_panel"), [(48, True), (47, False)])
def test_products_with_more_rows_prefetch_the_current_panel(max_rows: int, uses_next_panel: bool) -> None:
    """48 rows are eight tiles of six rows."""
    text = KERNELS["matmul"].replace("x24x", "x200x").replace("13x24", "13x200").replace("13x", "48x")
    module = compiled(text, next_panel_rows=max_rows)
    (kernel,) = kernels_of(module)
    weights = kernel.body.block.args[1]
    prefetches = [op for op in module.walk() if isinstance(op, PrefetchOp) and viewed_buffer(op.memref) is weights]
    assert any(op.localityHint == L2_READ_HINTS["localityHint"] for op in prefetches) is uses_next_panel


def test_the_loop_is_split_behind_its_prefetches() -> None:
    text = KERNELS["matmul"].replace("x24x", "x400x").replace("13x24", "13x400").replace("13x", "240x")
    module = compiled(text)
    (kernel,) = kernels_of(module)
    loops = [op for op in module.walk() if isinstance(op, scf.ForOp) and op.results]
    panels = {
        op.results[0] for op in module.walk() if isinstance(op, memref.SubviewOp) and op.source is kernel.body.block.args[1]
    }
    heads = [loop for loop in loops if any(isinstance(op, PrefetchOp) and op.memref in panels for op in loop.body.block.ops)]
    split = [head for head in heads if any(head.results[0] in other.iter_args for other in loops)]
    assert split

"""`prefetch-panels`: prefetches packed weights in the innermost loop of a contraction, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function, evaluation_context
from dlc.cost_model import PrefetchCosts
from dlc.dialects.prefetch import PrefetchOp
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, SSAValue, memref, parse_module, print_module, scf, vector
from dlc.passes.base import kernels_of
from dlc.passes.loops.forward_stores import ForwardStoresPass
from dlc.passes.loops.prefetch_panels import PrefetchPanelsPass
from dlc.passes.loops.vectorize import VectorizePass
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.passes.types import memref_of
from dlc.target import CPU_LEVELS
from tests.passes.tiling.kernels import KERNELS

CONTEXT = make_context()
TARGET = CPU_LEVELS["cpu:avx512"]
PASSES = (
    BufferizeKernelsPass(),
    TileKernelsPass(TARGET),
    VectorizePass(),
    ForwardStoresPass(),
)


# The lines of a tile are prefetched one per step, or all before the first step.
SPREAD_ROWS = pytest.mark.parametrize("interleaved_rows", [4, 100])


def prefetched(
    text: str, l2_elements: int = TARGET.costs.block_elements, interleaved_rows: int = 4
) -> tuple[ModuleOp, list[PrefetchOp]]:
    """Return a kernel after the pass, for a second-level cache of that many elements, and its prefetches."""
    module = parse_module(CONTEXT, text)
    costs = replace(TARGET.costs, block_elements=l2_elements, prefetch=PrefetchCosts(interleaved_rows=interleaved_rows))
    prefetch = PrefetchPanelsPass(replace(TARGET, costs=costs))
    for p in (*PASSES, prefetch):
        p.apply(CONTEXT, module)
        module.verify()
    return module, [op for op in module.walk() if isinstance(op, PrefetchOp)]


def test_a_long_panel_is_prefetched_line_by_line() -> None:
    text = KERNELS["matmul"].replace("x24x", "x48x").replace("13x24", "13x48")
    module, prefetches = prefetched(text)
    # One row of 16 floats is one line; the edge of 8 columns reads part of one.
    assert len(prefetches) == 2
    assert all(op.parent is not None and op.parent.parent_op() is not None for op in prefetches)
    matmul_kernel(module)
    assert str(print_module(parse_module(CONTEXT, print_module(module)))) == print_module(module)


def matmul_kernel(module: ModuleOp) -> None:
    (kernel,) = kernels_of(module)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((13, 48), dtype=np.float32), rng.standard_normal((3, 48, 16), dtype=np.float32)
    c = np.zeros((13, 40), np.float32)
    evaluate_function(kernel, [a, b, c])
    np.testing.assert_allclose(c, a @ b.transpose(1, 0, 2).reshape(48, 48)[:, :40], rtol=1e-4, atol=1e-4)


def prefetched_rows(prefetches: list[PrefetchOp], compute: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that all rows of each tile of up to 16 floats, one cache line each, are prefetched while its sums are computed."""
    asked: dict[PrefetchOp, set[int]] = {op: set() for op in prefetches}

    def note(op: evaluation_context.Operation, frame: evaluation_context.Frame) -> tuple[()]:
        assert isinstance(op, PrefetchOp)
        if op in asked:
            asked[op] |= {int(row) for row in np.ravel(frame.array(op.indices[0]))}
            assert not np.any(frame.array(op.indices[1]))
        return ()

    monkeypatch.setitem(evaluation_context._RULES, PrefetchOp, note)
    compute()
    rows: dict[SSAValue, set[int]] = {}
    for op, own in asked.items():
        rows.setdefault(op.memref, set()).update(own)
        loops = [following for following in op.parent.ops if isinstance(following, scf.ForOp)] if op.parent is not None else []
        assert loops or isinstance(op.parent_op(), scf.ForOp)
    for tile, own in rows.items():
        assert own >= set(range(memref_of(tile).get_shape()[0]))


@SPREAD_ROWS
@pytest.mark.parametrize(("l2_elements", "prefetch_count"), [(13 * 40, True), (13 * 40 + 1, False)])
def test_result_lines_are_prefetched_during_the_sums(
    l2_elements: int, prefetch_count: bool, interleaved_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, prefetches = prefetched(
        KERNELS["matmul"].replace("x24x", "x48x").replace("13x24", "13x48"), l2_elements, interleaved_rows
    )
    written = {op.source for op in module.walk() if isinstance(op, vector.TransferWriteOp)}
    of_results = [op for op in prefetches if op.memref in written]
    assert bool(of_results) is prefetch_count
    prefetched_rows(of_results, lambda: matmul_kernel(module), monkeypatch)


@SPREAD_ROWS
def test_epilogue_operands_are_prefetched_during_the_sums(interleaved_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = KERNELS["matmul"].replace("x24x", "x48x").replace("13x24", "13x48").replace("%c: ", "%d: tensor<13x40xf32>, %c: ")
    last = "    func.return %r"
    assert last in text
    rows = "affine_map<(m, n) -> (m, n)>"
    added = f"""
    %y = linalg.generic {{indexing_maps = [{rows}, {rows}, {rows}], iterator_types = ["parallel", "parallel"]}}
        ins(%r, %d : tensor<13x40xf32>, tensor<13x40xf32>) outs(%c : tensor<13x40xf32>) {{
    ^bb0(%u: f32, %v: f32, %old: f32):
      %t = arith.addf %u, %v : f32
      linalg.yield %t : f32
    }} -> tensor<13x40xf32>
    func.return %y"""
    module, prefetches = prefetched(text.replace(last, added), interleaved_rows=interleaved_rows)
    (kernel,) = kernels_of(module)
    d = kernel.body.block.args[2]
    of_added = [op for op in prefetches if isinstance(view := op.memref.owner, memref.SubviewOp) and view.source is d]
    assert of_added
    rng = np.random.default_rng(0)
    a, b, d = (rng.standard_normal(shape, dtype=np.float32) for shape in ((13, 48), (3, 48, 16), (13, 40)))
    c = np.zeros((13, 40), np.float32)
    prefetched_rows(of_added, lambda: evaluate_function(kernel, [a, b, d, c]), monkeypatch)
    np.testing.assert_allclose(c, a @ b.transpose(1, 0, 2).reshape(48, 48)[:, :40] + d, rtol=1e-4, atol=1e-4)


def test_single_rows_are_not_prefetched() -> None:
    long = KERNELS["matmul"].replace("x24x", "x48x")
    rows = {n: long.replace("13x24", "13x48").replace("13x", f"{n}x") for n in (1, 2)}
    assert not prefetched(rows[1])[1]
    assert prefetched(rows[2])[1]


def test_short_loops_and_other_reads_stay() -> None:
    for name in KERNELS:
        assert not prefetched(KERNELS[name])[1], name


@pytest.mark.parametrize(("way", "is_prefetched"), [(1 << 12, False), (1 << 7, True)])
def test_small_local_buffers_are_not_prefetched(way: int, is_prefetched: bool) -> None:
    """Queries are transposed into a buffer of 48×9 floats, which half of 32 KiB holds and half of 1 KiB does not."""
    module = parse_module(CONTEXT, KERNELS["attention, transposed"].replace("x6x", "x48x"))
    costs = replace(TARGET.costs, way_bytes=way)
    for p in (*PASSES, PrefetchPanelsPass(replace(TARGET, costs=costs))):
        p.apply(CONTEXT, module)
    assert any(isinstance(op, PrefetchOp) for op in module.walk()) == is_prefetched

"""Plans of attention: fused loops, key blocks, and the caches that hold them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function, evaluation_context
from dlc.dialects.prefetch import PrefetchOp
from dlc.ir import arith, memref, parse_module
from dlc.passes.base import kernels_of
from dlc.passes.tiling.attention.choose_fused_loops import FusedLoopChooser
from dlc.passes.tiling.attention.choose_transposed_fused_loops import TransposedFusedLoopChooser
from dlc.passes.tiling.attention.match_attention import match_attention
from dlc.passes.tiling.attention.online_softmax import match_online_softmax
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.choose_tiles import choose_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.tasks.variants import VARIANTS
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.passes.types import memref_of
from dlc.target import CPU_LEVELS

from .kernels import KERNELS
from .test_plans import CONTEXT, buffered


def test_illegal_fused_loops_are_rejected() -> None:
    (kernel,) = kernels_of(buffered("attention"))
    nest = next(iter(form_loop_nests(kernel))).specialize({})
    plan = choose_tiles(nest, CPU_LEVELS["cpu:avx2"])
    first, *rest = plan.fused_loops
    (lane, width), (row, _) = first.steps
    for fused_loops, problem in (
        ((replace(first, end=len(nest.ops)), *rest), "reads the result of a reduction before it is complete"),
        ((replace(first, steps=((lane, 5), (row, 6))), *rest), "must divide the panels of a packed operand"),
        ((replace(first, unmasked=(lane, width + 1)), *rest), "must be a multiple of the step"),
        ((replace(first, steps=((row, 10),)), *rest), "with 1 ≤ step ≤ its extent"),
        ((*rest, first), "ops must follow those of the previous loop"),
    ):
        with pytest.raises(ValueError, match=problem):
            replace(plan, fused_loops=fused_loops).check(nest)


def test_weights_overwrite_scores() -> None:
    module = buffered("attention")
    TileKernelsPass(CPU_LEVELS["cpu:avx2"]).apply(CONTEXT, module)
    made = [op for op in module.walk() if isinstance(op, memref.AllocaOp) and op.memref.type.get_shape() == (9, 32)]
    # One for products, which are in registers, and one for scores, with rows of two aligned vectors of 16 elements.
    assert len(made) == 2


@pytest.mark.parametrize("kernel_name", ["attention", "attention, transposed"])
@pytest.mark.parametrize(("divisor", "propagates_nan"), [("%t", False), ("%top", True)])
def test_maxima_that_are_only_subtracted_do_not_propagate_nan(kernel_name: str, divisor: str, propagates_nan: bool) -> None:
    """The results are divided by the sums of weights, or by the maxima. Partial maxima in lanes are reduced horizontally."""
    module = parse_module(CONTEXT, KERNELS[kernel_name].replace("ins(%y, %t :", f"ins(%y, {divisor} :"))
    BufferizeKernelsPass().apply(CONTEXT, module)
    TileKernelsPass(CPU_LEVELS["cpu:avx512"]).apply(CONTEXT, module)
    generics = [op.parent_op() for op in module.walk() if isinstance(op, arith.MaximumfOp)]
    vector_shapes = {memref_of(op.operands[-1]).get_shape() for op in generics if op is not None} - {()}
    assert bool(vector_shapes) is propagates_nan


@pytest.mark.parametrize("kernel_name", ["attention", "attention, transposed"])
@pytest.mark.parametrize(("block_elements", "prefetches"), [(216, True), (217, False)])
def test_results_and_next_queries_are_prefetched_if_results_fill_l2(
    kernel_name: str, block_elements: int, prefetches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two heads have nine queries with results of 12 elements, and a task has up to nine queries."""
    module, target = parse_module(CONTEXT, KERNELS[kernel_name]), CPU_LEVELS["cpu:avx2"]
    BufferizeKernelsPass().apply(CONTEXT, module)
    TileKernelsPass(replace(target, costs=replace(target.costs, block_elements=block_elements))).apply(CONTEXT, module)
    (kernel,) = kernels_of(module)
    types = [memref_of(arg) for arg in kernel.body.block.args]
    arrays = [np.ones(t.get_shape(), np.float32) for t in types]
    rows: dict[int, set[tuple[int, ...]]] = {0: set(), len(arrays) - 1: set()}

    def note(op: evaluation_context.Operation, frame: evaluation_context.Frame) -> tuple[()]:
        assert isinstance(op, PrefetchOp)
        buffer = frame.view(op.memref)
        position = next(k for k, array in enumerate(arrays) if np.shares_memory(buffer.base, array))
        rows[position].add(tuple(int(frame.array(i)) for i in op.indices))
        return ()

    monkeypatch.setitem(evaluation_context._RULES, PrefetchOp, note)
    evaluate_function(kernel, arrays)
    assert rows[len(arrays) - 1] >= {(h, i, 0) for h in range(2) for i in range(9)} if prefetches else not rows[len(arrays) - 1]
    assert {i - 9 for _, i, _ in rows[0]} >= set(range(9)) if prefetches else not rows[0]


@pytest.mark.parametrize("rows, near, height", [(8, 1 << 17, 8), (8, 1, 9), (6, 1 << 17, 9)])
def test_a_single_large_tile_if_keys_and_values_fit_l2(rows: int, near: int, height: int) -> None:
    (kernel,) = kernels_of(buffered("attention"))
    nest = next(iter(form_loop_nests(kernel))).specialize({})
    sums, target = match_attention(nest), CPU_LEVELS["cpu:avx512"]
    assert sums is not None
    target = replace(target, costs=replace(target.costs, block_elements=near))
    assert FusedLoopChooser(nest, target, VARIANTS[0], False, sums, nest.shared_dims[-1], rows).queries_per_task() == height


@pytest.mark.parametrize("kernel_name", ["attention", "attention, transposed"])
def test_all_queries_of_a_head_follow_each_other(kernel_name: str) -> None:
    """The result is stored query by query, with adjacent heads."""
    inputs, result = KERNELS[kernel_name].split("%r = ")
    inputs = inputs.replace("%out: tensor<2x9x12", "%out: tensor<9x2x12").replace(
        "-> tensor<2x9x12xf32> attr", "-> tensor<9x2x12xf32> attr"
    )
    result = re.sub(r"(?<=, )#hi[je](?=\])", "affine_map<(h, i, e) -> (i, h, e)>", result)
    result = re.sub(r"(%out : |-> |%r : )tensor<2x9x12", r"\1tensor<9x2x12", result)
    module = parse_module(CONTEXT, f"{inputs}%r = {result}")
    BufferizeKernelsPass().apply(CONTEXT, module)
    nest = next(n for n in form_loop_nests(next(iter(kernels_of(module)))) if len(n.ops) > 3).specialize({})
    plan = choose_tiles(nest, CPU_LEVELS["cpu:avx2"])
    assert plan.order[-1] == plan.query_dim


def test_key_blocks_are_whole_panels() -> None:
    (kernel,) = kernels_of(buffered("attention"))
    nest = next(iter(form_loop_nests(kernel))).specialize({})
    plan, sums = choose_tiles(nest, CPU_LEVELS["cpu:avx2"]), match_attention(nest)
    assert sums is not None
    replace(plan, online_softmax=(sums.key_dim, 16)).check(nest)
    for online_softmax, problem in (
        ((sums.key_dim, 12), "a multiple of an operand's panels"),
        ((sums.key_dim, 24), "at most the extent"),
        ((sums.value_dim, 12), "the reduced dimension of a softmax in fused loops"),
    ):
        with pytest.raises(ValueError, match=problem):
            replace(plan, online_softmax=online_softmax).check(nest)


@pytest.mark.parametrize(
    "old, new",
    [
        ("math.exp", "math.tanh"),
        ("arith.subf %a, %b", "arith.subf %b, %a"),
        ("arith.maximumf", "arith.minimumf"),
        ("%lowest = arith.constant 0xff800000", "%lowest = arith.constant 0.0"),
        ("ins(%w, %v : tensor<2x9x21xf32>", "ins(%m, %v : tensor<2x9x21xf32>"),
    ],
)
def test_other_sums_have_no_online_softmax(old: str, new: str) -> None:
    module = parse_module(CONTEXT, KERNELS["attention"].replace(old, new))
    BufferizeKernelsPass().apply(CONTEXT, module)
    (kernel,) = kernels_of(module)
    nest = next(n for n in form_loop_nests(kernel) if len(n.ops) > 3).specialize({})
    lane = next(d for op in nest.ops for d in op.reductions if op.output.stride(d) == 0 and nest.extents[d] == 21)
    assert match_online_softmax(nest, lane) is None


@pytest.mark.parametrize(
    "target, sizes, height, tile",
    [
        # (rows, keys, head size): half of the L1 cache holds 64 rows of 64 elements; a register tile has four vectors by four keys.
        ("cpu:avx512", (512, 512, 64), 64, (4, 64)),
        ("cpu:avx512", (512, 512, 128), 32, (8, 32)),
        ("cpu:avx512", (48, 510, 64), 48, (6, 48)),
        ("cpu:avx2", (512, 512, 64), 64, (6, 16)),
        # The L2 cache holds 40 rows of 1,500 scores: two whole register tiles.
        ("cpu:avx2", (1500, 1500, 64), 32, (6, 16)),
    ],
)
def test_transposed_scores_fit_the_caches(target: str, sizes: tuple[int, int, int], height: int, tile: tuple[int, int]) -> None:
    (kernel,) = kernels_of(buffered("attention, transposed"))
    nest = next(iter(form_loop_nests(kernel))).specialize({})
    sums = match_attention(nest)
    assert sums is not None and sums.is_transposed
    row, (width,) = nest.shared_dims[-1], nest.ops[sums.first].reductions
    nest = replace(nest, extents=nest.extents | dict(zip((row, sums.key_dim, width), sizes, strict=True)))
    at = CPU_LEVELS[target]
    chooser = TransposedFusedLoopChooser(nest, at, VARIANTS[0], False, sums, row, 8)
    assert chooser.queries_per_task() == height
    swept = next(s for s in chooser.fused_loops() if s.first <= sums.first < s.end)
    assert swept.steps == ((sums.key_dim, tile[0]), (row, tile[1]))

"""Any legal plan gives equal results at the tiling stage and at the loops stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, StringAttr, func, gpu, parse_module, scf
from dlc.passes.base import kernels_of
from dlc.passes.loops.cse_kernels import CseKernelsPass
from dlc.passes.loops.forward_stores import ForwardStoresPass
from dlc.passes.loops.vectorize import VectorizePass
from dlc.passes.structured import ConstantPool
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.choose_tiles import choose_group_tiles, choose_tiles, naive_group_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.groups.cooperative_tiles import CooperativeTiles
from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.groups.promoted_tiles import PromotedTiles
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.plan_kinds import DevicePlan
from dlc.passes.tiling.tasks.task_tiles import TaskTiles
from dlc.passes.tiling.tasks.variants import Variant
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, Target

from .kernels import DEPTHWISE, KERNELS, kernel_module
from .random_plans import random_group_plan, random_plan

CONTEXT = make_context()


# On devices with work-groups each contraction is a separate kernel.
OF_GROUPS = [name for name in KERNELS if not name.startswith("attention")]


def buffered(name: str) -> ModuleOp:
    module = kernel_module(name)
    BufferizeKernelsPass().apply(CONTEXT, module)
    module.verify()
    return module


def nest_in(text: str) -> SizedLoopNest:
    """Return the only nest of a kernel."""
    module = parse_module(CONTEXT, text)
    BufferizeKernelsPass().apply(CONTEXT, module)
    (nest,) = form_loop_nests(next(iter(kernels_of(module))))
    return nest


def arguments(kernel: func.FuncOp, rng: np.random.Generator) -> list[np.ndarray]:
    """Return random arguments; integers of both signs."""
    types = [a.type for a in kernel.body.block.args]
    arrays = [rng.standard_normal(t.get_shape()) * (1 if is_float(t.element_type) else 5) for t in types]
    return [a.astype(numpy_dtype(t.element_type)) for a, t in zip(arrays, types, strict=True)]


def run(kernel: func.FuncOp, rng: np.random.Generator) -> np.ndarray:
    arrays = arguments(kernel, rng)
    evaluate_function(kernel, arrays)
    return arrays[-1]


@cache
def expected_of(name: str) -> np.ndarray:
    """Return the result of a kernel before tiling."""
    (kernel,) = kernels_of(buffered(name))
    return run(kernel, np.random.default_rng(1))


def lowered(module: ModuleOp) -> ModuleOp:
    for p in (VectorizePass(), ForwardStoresPass(), CseKernelsPass()):
        p.apply(CONTEXT, module)
        module.verify()
    return module


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("seed", range(12))
def test_random_plans_give_equal_results(name: str, seed: int) -> None:
    module = buffered(name)
    (kernel,) = kernels_of(module)
    rng = np.random.default_rng(seed)
    for nest in form_loop_nests(kernel, CPU_LEVELS["cpu:avx512"]):
        apply_tiles(nest, random_plan(nest, rng), ConstantPool(kernel))
    module.verify()
    np.testing.assert_allclose(run(kernel, np.random.default_rng(1)), expected_of(name), rtol=2e-5, atol=2e-5)
    lowered(module)
    np.testing.assert_allclose(run(kernel, np.random.default_rng(1)), expected_of(name), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", OF_GROUPS)
@pytest.mark.parametrize("seed", range(6))
def test_random_group_plans_give_equal_results(name: str, seed: int) -> None:
    module = buffered(name)
    (kernel,) = kernels_of(module)
    rng = np.random.default_rng(seed)
    for nest in form_loop_nests(kernel, CPU_LEVELS["cpu:avx512"]):
        apply_tiles(nest, random_group_plan(nest, rng), ConstantPool(kernel))
    module.verify()
    np.testing.assert_allclose(run(kernel, np.random.default_rng(1)), expected_of(name), rtol=2e-5, atol=2e-5)
    lowered(module)
    np.testing.assert_allclose(run(kernel, np.random.default_rng(1)), expected_of(name), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("target", CPU_LEVELS)
def test_chosen_plans_give_equal_results(name: str, target: str) -> None:
    module = buffered(name)
    (kernel,) = kernels_of(module)
    for nest in form_loop_nests(kernel, CPU_LEVELS[target]):
        apply_tiles(nest, choose_tiles(nest.specialize({}), CPU_LEVELS[target]), ConstantPool(kernel))
    lowered(module)
    np.testing.assert_allclose(run(kernel, np.random.default_rng(1)), expected_of(name), rtol=2e-5, atol=2e-5)


def product_of(rows: int, steps: int, has_scales: bool = False) -> SizedLoopNest:
    """Return a matrix product with `rows` rows and `steps` reduction steps; with `has_scales`, each weight has a scale."""
    text = KERNELS["matmul"].replace("13x", f"{rows}x").replace("24x", f"{steps}x").replace("x24", f"x{steps}")
    if has_scales:
        index, type_ = "affine_map<(m, n, k) -> (n floordiv 16, k, n mod 16)>", f"tensor<3x{steps}x16xf32>"
        text = text.replace(index, f"{index}, {index}").replace("ins(%a, %b", "ins(%a, %b, %b")
        text = text.replace(f"{type_}) outs", f"{type_}, {type_}) outs").replace("%w: f32", "%w: f32, %scale: f32")
        text = text.replace("%p = arith.mulf %x, %w", "%v = arith.mulf %w, %scale : f32\n %p = arith.mulf %x, %v")
    return nest_in(text).specialize({})


@pytest.mark.parametrize(
    ("rows", "steps", "columns", "has_scales", "rows_first"),
    [
        (64, 64, 1 << 12, False, True),
        (64, 65, 1 << 12, False, False),
        (64, 32, 1 << 12, True, True),
        (64, 33, 1 << 12, True, False),
        (1 << 16, 64, 4, False, True),
        (1 << 16, 64, 5, False, False),
    ],
)
def test_rows_are_outermost_if_weights_and_results_are_cached(
    rows: int, steps: int, columns: int, has_scales: bool, rows_first: bool
) -> None:
    """Weights, with their scales, and results each fit 1 MiB of the L2 cache (2¹⁸ floats)."""
    check_loop_order(product_of(rows, steps, has_scales), columns, rows_first, "cpu:avx512_bf16")


@pytest.mark.parametrize(
    ("rows", "steps", "columns", "rows_first"),
    [(1016, 130, 256, True), (1016, 129, 256, False), (1016, 130, 259, False), (500, 512, 256, True), (500, 513, 256, False)],
)
def test_rows_are_outermost_only_if_they_are_not_cached_and_the_next_panel_is_prefetched(
    rows: int, steps: int, columns: int, rows_first: bool
) -> None:
    """A block of the L2 cache has 2¹⁷ floats: weights fit and rows do not; results fit two blocks."""
    check_loop_order(product_of(rows, steps), columns, rows_first, "cpu:avx2")


def check_loop_order(nest: SizedLoopNest, columns: int, rows_first: bool, target: str) -> None:
    m, n = nest.shared_dims
    known = replace(nest, extents={**nest.extents, n: columns})
    assert choose_tiles(known, CPU_LEVELS[target]).order == ((m, n) if rows_first else (n, m))
    other = choose_tiles(known, CPU_LEVELS[target], Variant(swaps_loop_order=True))
    assert other.order == ((n, m) if rows_first else (m, n))


@pytest.mark.parametrize(("steps", "has_blocks"), [(128, False), (129, True), (2048, True), (2049, False)])
def test_rows_are_processed_in_blocks_if_no_cache_holds_them(steps: int, has_blocks: bool) -> None:
    """1 MiB of the L2 cache holds 2,048 rows of 128 floats; a block of 256 KiB has at least twice the rows of a panel's lanes."""
    nest, target = product_of(1 << 11, steps), CPU_LEVELS["cpu:avx2"]
    m, n = nest.shared_dims
    plan = choose_tiles(replace(nest, extents={**nest.extents, n: 256}), target)
    assert plan.order == ((m, n) if has_blocks else (n, m))
    if has_blocks:
        assert plan.grid[n] == 16
        assert plan.register[m] < plan.grid[m] <= (1 << 16) // steps
        assert "all panels for the rows of a task" in " ".join(plan.explain(nest, target))


@pytest.mark.parametrize(("steps", "rows_first"), [(102, True), (103, False)])
def test_rows_are_outermost_if_l1_holds_unpacked_weights(steps: int, rows_first: bool) -> None:
    """102 rows of 40 columns fit half of a 32 KiB L1 cache."""
    text = KERNELS["matmul"].replace("(n floordiv 16, k, n mod 16)", "(k, n)").replace("3x24x16", "24x40")
    text = text.replace("13x", "60x").replace("24x", f"{steps}x").replace("x24", f"x{steps}")
    nest = nest_in(text)
    m, n = nest.shared_dims
    assert choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx2"]).order == ((m, n) if rows_first else (n, m))


@pytest.mark.parametrize(("rows", "rows_first"), [(1 << 12, True), ((1 << 12) - 1, False)])
def test_lanes_without_reuse_follow_memory_order_beyond_l2(rows: int, rows_first: bool) -> None:
    """4,096 pixels of 32 channels are the 512 KiB of L2 cache that the blocks of a task may fill."""
    text = DEPTHWISE.replace("60x", f"{rows}x").replace("62x", f"{rows + 2}x")
    nest = nest_in(text)
    plan = choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx2"])
    lane = next(d for d in nest.shared_dims if nest.ops[-1].output.stride(d) == 1)
    assert (plan.order[-1] == lane) is rows_first


@pytest.mark.parametrize(("rows", "tile"), [(1 << 18, 4), ((1 << 18) + 2, 2), ((1 << 18) + 1, 1), (1 << 10, 1)])
def test_items_reuse_window_weights_for_several_rows(rows: int, tile: int) -> None:
    """With 32 channels, eight items have four channels each; 131,072 items occupy the device."""
    (nest,) = form_loop_nests(next(iter(kernels_of(buffered("depthwise")))))
    (row,) = [d for d in nest.shared_dims if nest.ops[-1].output.stride(d) == 32]
    known = replace(nest.specialize({}), extents={**nest.specialize({}).extents, row: rows})
    plan = choose_group_tiles(known, OPENCL_PROFILES["opencl:gpu"])
    plan.check(known)
    assert plan.tile(row) == tile


def test_dynamic_rows_fill_the_registers() -> None:
    """A representative size of 512 divides by 16, but a dynamic size may be 511."""
    nest = product_of(13, 260)
    m = nest.shared_dims[0]
    known = replace(nest, extents={**nest.extents, m: 512})
    rows = [choose_tiles(n, CPU_LEVELS["cpu:avx512"]).register[m] for n in (known, replace(known, dynamic_dims=frozenset({m})))]
    assert rows == [16, 30]


def test_tasks_have_whole_tiles_of_a_dynamic_size() -> None:
    """Eight rows are two tiles of 4, whatever the representative 13 rows are: not a task of 13 with a remainder of 1."""
    (nest,) = form_loop_nests(next(iter(kernels_of(buffered("matmul")))))
    m = nest.shared_dims[0]
    plan = choose_tiles(replace(nest.specialize({}), dynamic_dims=frozenset({m})), CPU_LEVELS["cpu:avx2"])
    assert plan.grid[m] % plan.register[m] == 0 and plan.grid[m] > nest.extents[m]
    plan.check(replace(nest.specialize({}), dynamic_dims=frozenset({m})))
    assert plan.register[m] == 6 and plan.grid[m] >= 18 and plan.balance_threshold == 4


def test_tiles_have_enough_accumulators() -> None:
    """128 rows in tiles of 4 would have 8 accumulators, too few to hide latency: use 21 tiles of 6, and one of 2."""
    (nest,) = form_loop_nests(next(iter(kernels_of(buffered("matmul")))))
    m = nest.shared_dims[0]
    known = replace(nest.specialize({}), extents={**nest.extents, m: 128})
    assert choose_tiles(known, CPU_LEVELS["cpu:avx2"]).register[m] == 6


@pytest.mark.parametrize(("steps", "rows"), [(1024, 7), (1040, 28), (512, 14)])
def test_tiles_avoid_l1_set_conflicts(steps: int, rows: int) -> None:
    """28 rows with a stride of 4,096 bytes all map to one set of eight lines, with a stride of 2,048 bytes to two sets."""
    nest = product_of(28, steps)
    assert choose_tiles(nest, CPU_LEVELS["cpu:avx512"]).register[nest.shared_dims[0]] == rows


@pytest.mark.parametrize(("steps", "rows"), [(256, 14), (260, 28)])
def test_larger_tiles_if_vectors_leave_l1(steps: int, rows: int) -> None:
    """A panel of 256 × 16 floats fills half of the L1 cache, and costs nothing to read again for each tile."""
    nest = product_of(28, steps)
    assert choose_tiles(nest, CPU_LEVELS["cpu:avx512"]).register[nest.shared_dims[0]] == rows


def test_transposes_are_tiled_in_squares() -> None:
    (nest,) = form_loop_nests(next(iter(kernels_of(buffered("turned")))))
    n, m = nest.shared_dims
    assert choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx2"]).register == {m: 16, n: 8}


def test_windows_are_vectorized_along_the_channels_that_their_result_transposes() -> None:
    (nest,) = form_loop_nests(next(iter(kernels_of(buffered("windows, transposed")))))
    _, width, channel = sorted(nest.shared_dims, key=lambda d: -nest.ops[0].output.stride(d))
    assert choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx2"]).register == {channel: 8, width: 8}


def test_elementwise_ops_transpose_most_of_their_operands() -> None:
    text = """
    builtin.module {
      func.func @sum(%x: tensor<64x99xf32>, %y: tensor<64x99xf32>, %z: tensor<64x99xf32>, %out: tensor<99x64xf32>)
          -> tensor<99x64xf32> attributes {kernel} {
        %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (j, i)>,
            affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
            ins(%x, %y, %z : tensor<64x99xf32>, tensor<64x99xf32>, tensor<64x99xf32>) outs(%out : tensor<99x64xf32>) {
        ^bb0(%a: f32, %b: f32, %c: f32, %before: f32):
          %s = arith.addf %a, %b : f32
          %t = arith.addf %s, %c : f32
          linalg.yield %t : f32
        } -> tensor<99x64xf32>
        func.return %r : tensor<99x64xf32>
      }
    }
    """
    nest = nest_in(text).specialize({})
    row, column = nest.shared_dims
    assert choose_tiles(nest, CPU_LEVELS["cpu:avx512"]).register == {column: 16, row: 8}


def test_row_wise_products_are_vectorized_along_rows() -> None:
    (nest,) = form_loop_nests(next(iter(kernels_of(buffered("dots")))))
    (row,), (reduced,) = nest.shared_dims, nest.ops[-1].reductions
    plan = choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx2"])
    assert (plan.tile(row), plan.chunks) == (1, {reduced: 32})


def test_operands_with_one_element_per_row_have_no_lane() -> None:
    (nest,) = form_loop_nests(next(iter(kernels_of(buffered("distances")))))
    (row,), reduced = nest.shared_dims, {d for op in nest.ops for d in op.reductions}
    plan = choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx2"])
    assert plan.tile(row) == 1
    assert set(plan.chunks) == reduced and min(plan.chunks.values()) >= 32


@pytest.mark.parametrize(
    ("columns", "tile", "part", "steps"), [(100, 100, 100, None), (512, 128, 512, 1), (10_000, 128, 3456, 8)]
)
def test_reductions_across_rows_are_streamed(columns: int, tile: int, part: int, steps: int | None) -> None:
    """All sums in registers; or row by row with sums in the L1 cache; or a few rows of a part of them."""
    text = f"""
        func.func @k(%x: tensor<8x2000x{columns}xf32>, %out: tensor<8x{columns}xf32>) -> tensor<8x{columns}xf32>
            attributes {{kernel}} {{
          %lowest = arith.constant 0xFF800000 : f32
          %f = linalg.fill ins(%lowest : f32) outs(%out : tensor<8x{columns}xf32>) -> tensor<8x{columns}xf32>
          %r = linalg.generic {{indexing_maps = [affine_map<(b, k, n) -> (b, k, n)>, affine_map<(b, k, n) -> (b, n)>],
                               iterator_types = ["parallel", "reduction", "parallel"]}}
              ins(%x : tensor<8x2000x{columns}xf32>) outs(%f : tensor<8x{columns}xf32>) {{
          ^bb0(%a: f32, %acc: f32):
            %n = arith.maximumf %acc, %a : f32
            linalg.yield %n : f32
          }} -> tensor<8x{columns}xf32>
          func.return %r : tensor<8x{columns}xf32>
        }}"""
    nest = nest_in(text)
    (reduced,), (batch, lane) = nest.ops[-1].reductions, nest.shared_dims
    plan = choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx512"])
    assert (plan.tile(lane), plan.grid[batch], plan.grid[lane]) == (tile, 1, part)
    assert (plan.blocks if isinstance(plan, BlockedTiles) else {}) == ({} if steps is None else {reduced: steps})


def test_windows_of_an_image_are_no_separate_tasks() -> None:
    text = """
        func.func @k(%x: tensor<113x113x32xf32>, %out: tensor<56x56x32xf32>) -> tensor<56x56x32xf32> attributes {kernel} {
          %lowest = arith.constant 0xFF800000 : f32
          %f = linalg.fill ins(%lowest : f32) outs(%out : tensor<56x56x32xf32>) -> tensor<56x56x32xf32>
          %taps = tensor.empty() : tensor<3x3xf32>
          %r = linalg.generic {indexing_maps = [affine_map<(h, w, c, i, j) -> (h * 2 + i, w * 2 + j, c)>,
                                                affine_map<(h, w, c, i, j) -> (i, j)>, affine_map<(h, w, c, i, j) -> (h, w, c)>],
                               iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
              ins(%x, %taps : tensor<113x113x32xf32>, tensor<3x3xf32>) outs(%f : tensor<56x56x32xf32>) {
          ^bb0(%a: f32, %t: f32, %acc: f32):
            %n = arith.maximumf %acc, %a : f32
            linalg.yield %n : f32
          } -> tensor<56x56x32xf32>
          func.return %r : tensor<56x56x32xf32>
        }"""
    nest = nest_in(text)
    plan = choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx512"])
    assert min(plan.grid[d] for d in nest.shared_dims[1:]) > 1


def test_bufferized_kernels_give_equal_results() -> None:
    for name in KERNELS:
        (kernel,) = kernels_of(kernel_module(name))
        (expected,) = evaluate_function(kernel, arguments(kernel, np.random.default_rng(1)))
        (kernel,) = kernels_of(buffered(name))
        np.testing.assert_allclose(run(kernel, np.random.default_rng(1)), expected, rtol=1e-5, atol=1e-5)


def test_illegal_plans_are_rejected_by_entry() -> None:
    (kernel,) = kernels_of(buffered("matmul"))
    nest = next(iter(form_loop_nests(kernel))).specialize({})
    m, n = nest.shared_dims
    with pytest.raises(ValueError, match=r"register\[d1\] = 12: an operand is packed in panels of 16"):
        TaskTiles(register={n: 12}, order=(m, n)).check(nest)
    with pytest.raises(ValueError, match="order"):
        TaskTiles(register={n: 16}, order=(m,)).check(nest)
    with pytest.raises(ValueError, match="must be a multiple of the register tile"):
        TaskTiles(grid={m: 5}, register={n: 16, m: 2}, order=(m, n)).check(nest)


def test_illegal_group_plans_are_rejected_by_entry() -> None:
    (kernel,) = kernels_of(buffered("rows"))
    nest = next(iter(form_loop_nests(kernel))).specialize({})
    (row,) = nest.shared_dims
    own = [d for d in nest.extents if d != row]
    two = {"order": (row,), "num_cooperating": 2, "are_adjacent": True}
    with pytest.raises(ValueError, match=rf"items\[d{row}\] = 0: must be a dimension of the nest and at least 1"):
        GroupTiles(order=(row,), items={row: 0}).check(nest)
    with pytest.raises(ValueError, match=rf"items\[d{own[0]}\] = 2: must be a shared dimension"):
        GroupTiles(order=(row,), items={own[0]: 2}).check(nest)
    with pytest.raises(ValueError, match="num_cooperating 6: must be a power of two"):
        CooperativeTiles(**{**two, "num_cooperating": 6}, cooperative_dims=(own[0],)).check(nest)
    with pytest.raises(ValueError, match="must be private dimensions"):
        CooperativeTiles(**two, cooperative_dims=(row,)).check(nest)
    with pytest.raises(ValueError, match="the nest must begin with a contraction of plain operands"):
        PromotedTiles(order=(row,), promoted_dim=own[0], chunk_size=4).check(nest)
    with pytest.raises(ValueError, match="along a dynamic dimension, a work-item must compute one index"):
        GroupTiles(order=(row,), items={row: 2}, register={row: 2}, grid={row: 4}).check(
            replace(nest, dynamic_dims=frozenset({row}))
        )
    with pytest.raises(ValueError, match="must be 1 for cooperating work-items along a dynamic dimension"):
        CooperativeTiles(**two, cooperative_dims=(own[0],), chunks={own[0]: 2}).check(
            replace(nest, dynamic_dims=frozenset({own[0]}))
        )
    (kernel,) = kernels_of(buffered("convolution"))
    nest = max(form_loop_nests(kernel), key=lambda n: len(n.ops)).specialize({})
    with pytest.raises(ValueError, match=r"promoted_dim d\d in chunks of 4: must be a reduced dimension"):
        PromotedTiles(order=tuple(nest.shared_dims), promoted_dim=nest.shared_dims[0], chunk_size=4).check(nest)


def items_and_barriers(plan: DevicePlan) -> tuple[list[int], int]:
    """Return the items of a group and the barriers of a matrix product with this plan."""
    module = parse_module(
        CONTEXT, KERNELS["matmul"].replace("3x24x16", "24x40").replace("(n floordiv 16, k, n mod 16)", "(k, n)")
    )
    BufferizeKernelsPass().apply(CONTEXT, module)
    (kernel,) = kernels_of(module)
    (nest,) = form_loop_nests(kernel)
    apply_tiles(nest, plan, ConstantPool(kernel))
    loops = [op for op in kernel.walk() if isinstance(op, scf.ParallelOp)]
    assert [op.attributes["level"] for op in loops] == [StringAttr("grid"), StringAttr("item")]
    bounds = [b.owner.value.value.data for b in loops[1].upperBound]
    return bounds, sum(isinstance(op, gpu.BarrierOp) for op in kernel.walk())


def test_items_loop_and_synchronize_around_fetches() -> None:
    assert items_and_barriers(GroupTiles(order=(0, 1))) == ([1], 0)
    assert items_and_barriers(GroupTiles(order=(0, 1), items={0: 4, 1: 8}, register={1: 4})) == ([4, 8], 0)
    # 24 steps in two chunks, in one loop.
    promoted = PromotedTiles(order=(0, 1), items={0: 13, 1: 10}, register={1: 4}, promoted_dim=2, chunk_size=12)
    assert items_and_barriers(promoted) == ([13, 10], 2)
    # A reduction tree of arity eight at most, over shared buffers.
    for num_cooperating, barriers in ((4, 1), (16, 2)):
        plan = CooperativeTiles(
            order=(0, 1),
            items={1: 10},
            register={1: 4, 0: 13},
            cooperative_dims=(2,),
            num_cooperating=num_cooperating,
            are_adjacent=False,
        )
        assert items_and_barriers(plan) == ([num_cooperating, 10], barriers)


def test_a_convolution_shares_dims_with_its_epilogue() -> None:
    (kernel,) = kernels_of(buffered("convolution"))
    nests = form_loop_nests(kernel)
    main = next(n for n in nests if len(n.ops) == 3)
    assert [main.extents[d] for d in main.shared_dims] == [7, 6, 20]
    # kw and c are contiguous and become one iterator.
    assert sorted(main.extents[d] for d in main.extents if d not in main.shared_dims) == [3, 15]


@pytest.mark.parametrize("name", OF_GROUPS)
@pytest.mark.parametrize("target", ["opencl:gpu", "opencl:small"])
@pytest.mark.parametrize("choose", [choose_group_tiles, naive_group_tiles])
def test_chosen_group_plans_give_equal_results(
    name: str, target: str, choose: Callable[[SizedLoopNest, Target], DevicePlan]
) -> None:
    module = buffered(name)
    (kernel,) = kernels_of(module)
    for nest in form_loop_nests(kernel, OPENCL_PROFILES[target]):
        apply_tiles(nest, choose(nest.specialize({}), OPENCL_PROFILES[target]), ConstantPool(kernel))
    lowered(module)
    np.testing.assert_allclose(run(kernel, np.random.default_rng(1)), expected_of(name), rtol=2e-5, atol=2e-5)

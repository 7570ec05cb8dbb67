"""Contractions by work-groups: any plan gives equal results, and the next chunk is fetched before the current one is
used.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlc.dialects.loop_attributes import UNROLLED
from dlc.dialects.workgroup import is_workgroup
from dlc.ir import Operation, func, gpu, memref, scf, vector
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.choose_tiles import choose_group_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.groups.local_memory_operands import delinearize
from dlc.passes.tiling.groups.promoted_tiles import PromotedTiles
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.tasks.task_tiles import TaskTiles
from dlc.target import OPENCL_PROFILES

from .products import Product
from .test_plans import lowered

# Four register tiles of 4 × 4 per row of the group's tile, two of them per work-item.
INTERLEAVED = PromotedTiles(
    grid={0: 8, 1: 16},
    order=(0, 1),
    register={0: 4, 1: 4},
    items={0: 2, 1: 2},
    promoted_dim=2,
    chunk_size=8,
    tiles_per_item={1: 2},
)
LAYOUTS = [("bmkl", "bkln"), ("bklm", "bkln"), ("bmkl", "bnkl"), ("blmk", "bknl"), ("mkl", "bkln")]


def random_plan(nest: SizedLoopNest, rng: np.random.Generator) -> PromotedTiles:
    """Return a random plan of a chunked contraction: ragged or not, with idle items, and with strided register tiles."""

    def size(most: int) -> int:
        return int(rng.integers(1, most + 1))

    shared = nest.shared_dims
    register = {d: size(min(4, nest.extents[d])) for d in shared}
    (*_, d) = rng.permutation(sorted(set(nest.extents) - set(shared))).tolist()
    plan = PromotedTiles(
        register=register,
        order=tuple(shared),
        items={x: size(4) for x in shared if rng.random() < 0.8},
        promoted_dim=d,
        chunk_size=size(nest.extents[d]),
        tiles_per_item={x: size(3) for x in shared if rng.random() < 0.5},
    )
    return replace(plan, grid={x: min(plan.group_tile(x), nest.extents[x]) for x in shared})


@pytest.mark.parametrize("layout", LAYOUTS, ids=",".join)
@pytest.mark.parametrize("seed", range(6))
def test_random_plans_give_equal_results(layout: tuple[str, str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = dict(zip("bmnkl", (int(rng.integers(1, most)) for most in (3, 20, 20, 4, 13)), strict=True))
    product = Product(*layout, sizes)
    module, kernel = product.kernel()
    for nest in form_loop_nests(kernel):
        plan = (
            random_plan(nest.specialize({}), rng)
            if any(op.is_contraction for op in nest.ops)
            else TaskTiles(order=tuple(nest.shared_dims))
        )
        apply_tiles(nest, plan, ConstantPool(kernel))
    module.verify()
    product.check(kernel)
    lowered(module)
    product.check(kernel)


def tiled(plan: PromotedTiles, sizes: tuple[int, int, int]) -> func.FuncOp:
    module, kernel = Product("bmkl", "bkln", dict(zip("bmnkl", (1, *sizes[:2], 1, sizes[2]), strict=True))).kernel()
    (nest,) = form_loop_nests(kernel)
    apply_tiles(nest, plan, ConstantPool(kernel))
    lowered(module)
    return kernel


def names(ops: list[Operation]) -> list[str]:
    return ["meet" if isinstance(op, gpu.BarrierOp) else type(op).__name__ for op in ops]


def test_next_chunk_is_fetched_before_multiplying() -> None:
    kernel = tiled(INTERLEAVED, (32, 32, 32))
    (parts,) = [op for op in kernel.walk() if isinstance(op, scf.ForOp) and UNROLLED not in op.attributes]
    kept = [op for op in parts.body.block.ops if isinstance(op, gpu.BarrierOp | scf.IfOp | scf.ForOp | vector.TransferWriteOp)]
    # Four items load 16 and 32 elements of the operands each, four at once: at least 8 transfers for the larger one.
    put = [n for n in names(kept) if n == "TransferWriteOp"]
    assert names(kept) == ["meet", *put, "meet", "IfOp", "ForOp"] and len(put) >= 8
    fetched, multiplied = kept[-2:]
    assert all("workgroup" not in str(op.source.type) for op in fetched.walk() if isinstance(op, vector.TransferReadOp))
    assert UNROLLED in multiplied.attributes
    # The accumulators of both register tiles are carried.
    assert len(multiplied.iter_args) == 2 and len(parts.iter_args) == 2
    fused = [op for op in multiplied.body.block.ops if isinstance(op, vector.FMAOp)]
    assert [op.res.type.get_shape() for op in fused] == [(4, 4), (4, 4)]


def test_item_tiles_are_strided_by_all_items() -> None:
    plan = INTERLEAVED
    assert (plan.tile(1), plan.item_tile_stride(1), plan.group_tile(1)) == (4, 8, 16)
    assert "tiles_per_item {d1: 2}" in str(plan)


def test_tiles_per_item_are_along_shared_dimensions() -> None:
    _, kernel = Product("bmkl", "bkln", {"b": 1, "m": 8, "n": 8, "k": 1, "l": 8}).kernel()
    (nest,) = form_loop_nests(kernel)
    with pytest.raises(ValueError, match=r"tiles_per_item\[d2\] = 2: must be a shared dimension"):
        PromotedTiles(order=(0, 1), promoted_dim=2, chunk_size=8, tiles_per_item={2: 2}).check(nest.specialize({}))


@pytest.mark.parametrize("counts", [(3, 4), (1, 8), (5, 1, 2), (4, 4), (7,)])
@pytest.mark.parametrize("more", [0, 4, 5])
def test_delinearize(counts: tuple[int, ...], more: int) -> None:
    _, kernel = Product("bmkl", "bkln", dict.fromkeys("bmnkl", 2)).kernel()
    builder, total = OpBuilder(ConstantPool(kernel), kernel.body.block), int(np.prod(counts))
    for number in range(max(0, total - more)):
        expected = np.unravel_index(number + more, counts)
        assert delinearize(builder, number, more, counts) == list(map(int, expected))


def test_batch_dims_of_size_1_are_no_local_memory_axes() -> None:
    """Columns of 16 rows are padded to a stride of 20 elements to avoid bank conflicts, not to 80."""
    module, kernel = Product("mbkl", "bkln", {"b": 3, "m": 32, "n": 32, "k": 64, "l": 1}).kernel()
    (nest,) = form_loop_nests(kernel)
    known = nest.specialize({})
    apply_tiles(nest, choose_group_tiles(known, OPENCL_PROFILES["opencl:gpu"]), ConstantPool(kernel))
    module.verify()
    local = [op.memref.type.get_shape() for op in kernel.walk() if isinstance(op, memref.AllocaOp) and is_workgroup(op.memref)]
    assert local and all(1 not in shape for shape in local)

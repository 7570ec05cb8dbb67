"""Contractions by groups of items: any plan computes the same, and the next part is fetched before the present one is used."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects.unrolled import UNROLLED
from dlc.dialects.workgroup import is_workgroup
from dlc.ir import Operation, func, gpu, memref, scf, vector
from dlc.passes.structured import Constants, Place
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.choose_groups import choose_groups
from dlc.passes.tiling.form_nests import nests_of
from dlc.passes.tiling.nests import Nest
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.promoted import digits
from dlc.target import OPENCL_PROFILES

from .products import Product
from .test_plans import lowered

LAYOUTS = [("bmkl", "bkln"), ("bklm", "bkln"), ("bmkl", "bnkl"), ("blmk", "bknl"), ("mkl", "bkln")]


def random_plan(nest: Nest, rng: np.random.Generator) -> TilePlan:
    """Of contractions in parts: ragged or not, with items that bring nothing, and with pieces that lie apart."""

    def size(most: int) -> int:
        return int(rng.integers(1, most + 1))

    shared = nest.shared
    register = {d: size(min(4, nest.extents[d])) for d in shared}
    (*_, d) = rng.permutation(sorted(set(nest.extents) - set(shared))).tolist()
    plan = TilePlan(
        register=register,
        order=tuple(shared),
        items={x: size(4) for x in shared if rng.random() < 0.8},
        promote={d: size(nest.extents[d])},
        pieces={x: size(3) for x in shared if rng.random() < 0.5},
    )
    return TilePlan(**{**vars(plan), "grid": {x: min(plan.covered(x), nest.extents[x]) for x in shared}})


@pytest.mark.parametrize("layout", LAYOUTS, ids=",".join)
@pytest.mark.parametrize("seed", range(6))
def test_random_plans_of_contractions_compute_the_same(layout: tuple[str, str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = dict(zip("bmnkl", (int(rng.integers(1, most)) for most in (3, 20, 20, 4, 13)), strict=True))
    product = Product(*layout, sizes)
    module, kernel = product.kernel()
    for nest in nests_of(kernel):
        plan = (
            random_plan(nest.at({}), rng) if any(s.is_contraction for s in nest.stages) else TilePlan(order=tuple(nest.shared))
        )
        apply_tiles(nest, plan, Constants(kernel))
    module.verify()
    product.check(kernel)
    lowered(module)
    product.check(kernel)


def tiled(plan: TilePlan, sizes: tuple[int, int, int]) -> func.FuncOp:
    module, kernel = Product("bmkl", "bkln", dict(zip("bmnkl", (1, *sizes[:2], 1, sizes[2]), strict=True))).kernel()
    (nest,) = nests_of(kernel)
    apply_tiles(nest, plan, Constants(kernel))
    lowered(module)
    return kernel


def names(ops: list[Operation]) -> list[str]:
    return ["meet" if isinstance(op, gpu.BarrierOp) else type(op).__name__ for op in ops]


def test_the_next_part_is_fetched_before_the_present_one_is_multiplied() -> None:
    plan = TilePlan({0: 8, 1: 16}, {0: 4, 1: 4}, (0, 1), items={0: 2, 1: 2}, promote={2: 8}, pieces={1: 2})
    kernel = tiled(plan, (32, 32, 32))
    (parts,) = [op for op in kernel.walk() if isinstance(op, scf.ForOp) and UNROLLED not in op.attributes]
    kept = [op for op in parts.body.block.ops if isinstance(op, gpu.BarrierOp | scf.IfOp | scf.ForOp | vector.TransferWriteOp)]
    # Four for each operand that four items bring 64 and 128 elements of, four at once: 16 and 32 of them, one after the other.
    put = [n for n in names(kept) if n == "TransferWriteOp"]
    assert names(kept) == ["meet", *put, "meet", "IfOp", "ForOp"] and len(put) >= 8
    fetched, multiplied = kept[-2:]
    assert all("workgroup" not in str(op.source.type) for op in fetched.walk() if isinstance(op, vector.TransferReadOp))
    assert UNROLLED in multiplied.attributes
    # The sums of both pieces are carried.
    assert len(multiplied.iter_args) == 2 and len(parts.iter_args) == 2
    fused = [op for op in multiplied.body.block.ops if isinstance(op, vector.FMAOp)]
    assert [op.res.type.get_shape() for op in fused] == [(4, 4), (4, 4)]


def test_pieces_of_an_item_lie_behind_those_of_all_items() -> None:
    plan = TilePlan({0: 8, 1: 16}, {0: 4, 1: 4}, (0, 1), items={0: 2, 1: 2}, promote={2: 8}, pieces={1: 2})
    assert (plan.tile(1), plan.apart(1), plan.covered(1)) == (4, 8, 16)
    assert "pieces {d1: 2}" in str(plan)


def test_pieces_are_of_contractions_in_parts() -> None:
    _, kernel = Product("bmkl", "bkln", {"b": 1, "m": 8, "n": 8, "k": 1, "l": 8}).kernel()
    (nest,) = nests_of(kernel)
    with pytest.raises(ValueError, match=r"pieces\[d1\] = 2: must be of a shared dimension where a contraction is promoted"):
        TilePlan(order=(0, 1), items={}, pieces={1: 2}).check(nest.at({}))


@pytest.mark.parametrize("counts", [(3, 4), (1, 8), (5, 1, 2), (4, 4), (7,)])
@pytest.mark.parametrize("more", [0, 4, 5])
def test_digits(counts: tuple[int, ...], more: int) -> None:
    _, kernel = Product("bmkl", "bkln", dict.fromkeys("bmnkl", 2)).kernel()
    place, total = Place(Constants(kernel), kernel.body.block), int(np.prod(counts))
    for number in range(max(0, total - more)):
        expected = np.unravel_index(number + more, counts)
        assert digits(place, number, more, counts) == list(map(int, expected))


def test_what_a_batch_has_one_of_is_no_axis_of_a_group_s_memory() -> None:
    """Rows of a product of a batch lie apart by its size: columns of 16 rows are 20 places apart for their banks, not 80."""
    module, kernel = Product("mbkl", "bkln", {"b": 3, "m": 32, "n": 32, "k": 64, "l": 1}).kernel()
    (nest,) = nests_of(kernel)
    known = nest.at({})
    apply_tiles(nest, choose_groups(known, OPENCL_PROFILES["opencl:gpu"]), Constants(kernel))
    module.verify()
    local = [op.memref.type.get_shape() for op in kernel.walk() if isinstance(op, memref.AllocaOp) and is_workgroup(op.memref)]
    assert local and all(1 not in shape for shape in local)

"""The cost model of contractions by work-groups, compared with times on an H100 and an H200."""

from __future__ import annotations

from math import prod

import pytest

from dlc.passes.tiling.choose_tiles import choose_group_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.groups.contraction_cost import cost_of_contraction
from dlc.passes.tiling.groups.promoted_tiles import PromotedTiles
from dlc.passes.tiling.loop_nests import SizedLoopNest
from tests.targets import gpu

from .products import Product

# Time in µs of products (rows, columns, reduction[, batch]), by the rows and columns of a group, the steps of a chunk, and the
# rows and columns of an item.
TIMES: dict[tuple[int, ...], dict[tuple[int, int, int, int, int], float]] = {
    (512, 512, 512): {
        (32, 32, 16, 4, 4): 16.27,
        (32, 32, 32, 4, 4): 17.16,
        (32, 64, 32, 4, 4): 17.99,
        (32, 64, 16, 4, 4): 18.36,
        (64, 32, 16, 4, 4): 18.73,
        (32, 64, 16, 8, 4): 19.83,
        (16, 32, 32, 2, 4): 20.27,
    },
    (1024, 1024, 1024): {
        (128, 64, 32, 8, 4): 62.62,
        (64, 64, 32, 8, 4): 63.9,
        (64, 32, 16, 8, 4): 66.32,
        (64, 64, 8, 8, 8): 68.26,
        (64, 128, 16, 8, 8): 70.69,
        (128, 64, 16, 8, 8): 71.64,
        (64, 64, 16, 4, 4): 72.61,
    },
    (2048, 2048, 2048): {
        (128, 128, 8, 8, 8): 397.3,
        (64, 128, 8, 8, 8): 416.8,
        (64, 128, 16, 8, 8): 419.5,
        (128, 64, 16, 8, 8): 428.9,
        (128, 64, 16, 8, 4): 432.2,
        (32, 64, 32, 4, 4): 587.3,
    },
    (4096, 4096, 4096): {
        (128, 128, 16, 8, 8): 3098,
        (64, 128, 16, 8, 8): 3109,
        (128, 128, 8, 8, 8): 3114,
        (64, 64, 16, 8, 4): 3326,
    },
    (128, 768, 768): {
        (16, 32, 32, 2, 4): 17.74,
        (32, 32, 32, 4, 4): 19.6,
        (32, 32, 16, 4, 4): 20.22,
        (16, 32, 32, 4, 4): 20.61,
        (8, 32, 32, 1, 4): 22.9,
        (64, 32, 16, 8, 4): 26.42,
        (64, 32, 32, 8, 4): 29.42,
    },
    (128, 3072, 768): {
        (64, 32, 16, 8, 4): 30.58,
        (32, 32, 32, 4, 4): 32.15,
        (32, 32, 32, 8, 4): 33.64,
        (64, 32, 32, 8, 4): 34.12,
        (16, 32, 32, 4, 4): 35.12,
        (64, 64, 8, 8, 4): 35.47,
        (32, 64, 16, 4, 4): 36.52,
    },
    (128, 768, 3072): {
        (32, 64, 16, 4, 4): 87.89,
        (64, 32, 16, 4, 4): 91.65,
        (64, 32, 16, 8, 4): 92.9,
        (64, 64, 16, 8, 4): 114.5,
        (64, 64, 16, 4, 4): 114.8,
    },
    (192, 1024, 256): {
        (16, 32, 32, 4, 4): 10.55,
        (32, 32, 32, 4, 4): 10.72,
        (32, 64, 32, 4, 4): 11.12,
        (64, 32, 16, 4, 4): 11.43,
        (64, 32, 32, 8, 4): 12.69,
        (32, 32, 32, 8, 4): 12.91,
        (64, 64, 8, 8, 4): 14.78,
    },
    (64, 2048, 512): {
        (32, 32, 32, 4, 4): 14.55,
        (16, 32, 32, 4, 4): 15.27,
        (64, 32, 16, 4, 4): 18.52,
        (32, 64, 16, 8, 4): 19.61,
        (64, 32, 16, 8, 4): 19.81,
        (32, 32, 32, 8, 4): 20.49,
        (32, 32, 16, 8, 4): 21.21,
    },
    (768, 512, 128): {(32, 32, 16, 4, 4): 8.72, (32, 32, 32, 4, 4): 9.107, (128, 64, 16, 8, 8): 13.1},
    (3072, 64, 576): {
        (16, 32, 32, 4, 4): 18.29,
        (32, 64, 32, 4, 4): 19.73,
        (32, 32, 32, 8, 4): 23.58,
        (64, 32, 32, 8, 4): 23.6,
        (64, 64, 32, 8, 4): 24.33,
        (64, 64, 16, 8, 4): 24.71,
        (64, 128, 8, 8, 8): 28.82,
    },
    (3072, 256, 64): {
        (32, 64, 16, 4, 4): 7.98,
        (64, 32, 16, 4, 4): 7.993,
        (64, 64, 8, 8, 4): 8.016,
        (128, 64, 8, 8, 8): 8.235,
        (128, 64, 16, 8, 8): 9.116,
    },
    (4096, 768, 768): {
        (64, 128, 16, 8, 8): 114.8,
        (128, 64, 8, 8, 8): 118.3,
        (64, 64, 8, 8, 8): 123.5,
        (64, 64, 8, 8, 4): 128.7,
        (64, 64, 16, 8, 4): 148.1,
        (128, 128, 16, 8, 8): 151.7,
        (128, 128, 8, 8, 8): 151.7,
    },
    (4096, 3072, 768): {
        (64, 128, 16, 8, 8): 441.4,
        (128, 128, 8, 8, 8): 444.2,
        (128, 128, 16, 8, 8): 445,
        (128, 64, 8, 8, 8): 452.7,
        (64, 128, 8, 8, 8): 456.7,
        (64, 64, 16, 8, 4): 479.2,
        (32, 128, 8, 4, 8): 556.2,
    },
    (6272, 256, 2304): {
        (64, 64, 16, 8, 4): 194.4,
        (64, 64, 32, 8, 4): 199.5,
        (64, 32, 16, 8, 4): 213.8,
        (128, 128, 16, 8, 8): 220.4,
        (64, 64, 8, 8, 8): 236,
        (128, 32, 16, 8, 4): 241.1,
        (64, 64, 16, 4, 4): 243.6,
    },
    (1536, 512, 4608): {
        (64, 32, 16, 8, 4): 250.6,
        (32, 64, 16, 8, 4): 252.5,
        (128, 64, 32, 8, 4): 265.3,
        (32, 64, 16, 4, 4): 266.8,
        (64, 32, 32, 8, 4): 290.3,
        (128, 64, 16, 8, 8): 304.3,
        (64, 64, 8, 8, 4): 347.3,
    },
    (128, 128, 64, 384): {
        (32, 64, 16, 8, 4): 28.66,
        (64, 128, 8, 8, 8): 29.19,
        (64, 64, 16, 8, 8): 29.27,
        (128, 128, 8, 8, 8): 30.14,
        (128, 64, 8, 8, 8): 30.59,
        (64, 32, 16, 8, 4): 30.85,
        (128, 64, 16, 8, 4): 31.54,
    },
    (128, 64, 128, 384): {
        (64, 64, 16, 8, 8): 26.16,
        (128, 64, 32, 8, 4): 27.75,
        (128, 64, 16, 8, 4): 28.02,
        (32, 64, 16, 8, 4): 29.07,
        (64, 64, 16, 8, 4): 29.35,
        (128, 64, 8, 8, 8): 29.54,
        (32, 64, 16, 4, 4): 34.7,
    },
    (1000, 1000, 1000): {(128, 64, 8, 8, 8): 64.18, (128, 64, 32, 8, 4): 65.1, (64, 128, 16, 8, 8): 73.57},
    (1023, 777, 513): {
        (64, 64, 16, 8, 4): 39.86,
        (128, 64, 16, 8, 4): 40.88,
        (128, 64, 32, 8, 4): 41.39,
        (64, 128, 16, 8, 8): 53.5,
    },
    (768, 128, 1152): {
        (16, 32, 32, 2, 4): 24.46,
        (32, 32, 32, 4, 4): 27.4,
        (16, 32, 32, 4, 4): 28.99,
        (8, 32, 32, 1, 4): 32.13,
        (32, 64, 16, 4, 4): 35.27,
    },
}


def nest_of(m: int, n: int, k: int, batch: int = 1) -> SizedLoopNest:
    left = ("bmkl", "bkln") if batch > 1 else ("mkl", "kln")
    _, kernel = Product(*left, {"b": batch, "m": m, "n": n, "k": 1, "l": k}).kernel()
    return next(n.specialize({}) for n in form_loop_nests(kernel) if any(op.is_contraction for op in n.ops))


def plan_of(nest: SizedLoopNest, rows: int, columns: int, step: int, height: int, width: int) -> PromotedTiles:
    m, n = nest.shared_dims[-2:]
    (k,) = next(op.reductions for op in nest.ops if op.is_contraction)
    return PromotedTiles(
        register={m: height, n: 4},
        order=tuple(nest.shared_dims),
        items={m: rows // height, n: columns // width},
        tiles_per_item={n: width // 4},
        promoted_dim=k,
        chunk_size=step,
    )


@pytest.mark.parametrize("sizes", TIMES, ids=lambda sizes: "x".join(map(str, sizes)))
def test_cheapest_plan_is_close_to_the_fastest(sizes: tuple[int, ...]) -> None:
    nest, times = nest_of(*sizes), TIMES[sizes]
    nest_op = next(op for op in nest.ops if op.is_contraction)
    costs = {plan: cost_of_contraction(plan_of(nest, *plan), nest, nest_op, gpu(132)) for plan in times}
    assert times[min(costs, key=lambda plan: costs[plan])] <= 1.15 * min(times.values())


def test_fewer_compute_units_get_larger_tiles() -> None:
    nest = nest_of(512, 512, 512)
    group_tile: list[int] = []
    for units in (8, 132):
        plan = choose_group_tiles(nest, gpu(units))
        group_tile.append(prod(plan.group_tile(d) for d in nest.shared_dims))
    assert group_tile[0] > group_tile[1]

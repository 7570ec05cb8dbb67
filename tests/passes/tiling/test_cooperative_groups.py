"""Cooperating items for vector-matrix products: enough items to occupy the device, each with several loads in flight."""

from __future__ import annotations

from math import prod

import pytest

from dlc.ir import arith, func, scf
from dlc.passes.structured import ConstantPool
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.choose_tiles import choose_group_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.groups.cooperative_tiles import CooperativeTiles
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.target import OPENCL_PROFILES, Target
from tests.targets import gpu

from .products import Product

SMALL, LARGE = OPENCL_PROFILES["opencl:small"], gpu(132, 512)


def product(rows: int, terms: int, columns: int, *, transposed: bool = False) -> Product:
    """Return [rows, terms] · [terms, columns], or with the transpose of the right operand."""
    return Product("bmkl", "nkl" if transposed else "kln", {"b": 1, "m": rows, "n": columns, "k": 1, "l": terms})


def tiled(product: Product, target: Target) -> tuple[func.FuncOp, SizedLoopNest, CooperativeTiles]:
    """Return the kernel of a product, its nest and its plan."""
    module, kernel = product.kernel()
    (nest,) = form_loop_nests(kernel)
    known = nest.specialize({})
    plan = choose_group_tiles(known, target)
    assert isinstance(plan, CooperativeTiles)
    apply_tiles(nest, plan, ConstantPool(kernel))
    module.verify()
    return kernel, known, plan


def groups_of(plan: CooperativeTiles, nest: SizedLoopNest) -> tuple[int, int, int]:
    """Return the number of groups, the items per group, and the cooperating items."""
    return (
        prod(-(-nest.extents[d] // plan.group_tile(d)) for d in plan.order),
        plan.num_items,
        plan.num_cooperating,
    )


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        # Lines of 32 columns are read by eight items; the fewer lines there are, the more items share each.
        ((1, 768, 768), LARGE, (24, 512, 64)),
        ((1, 768, 3072), LARGE, (96, 512, 64)),
        ((1, 768, 50257), LARGE, (786, 128, 8)),
        ((1, 768, 768), gpu(96, 256), (24, 256, 32)),
        ((1, 768, 768), SMALL, (24, 64, 8)),
        # Four rows are in registers, and partial results of cooperating items fit local memory.
        ((4, 768, 3072), LARGE, (96, 256, 32)),
        ((3, 768, 3072), SMALL, (96, 64, 8)),
        # Short columns are not worth as many items.
        ((1, 64, 768), LARGE, (24, 128, 16)),
    ],
)
def test_item_counts(shape: tuple[int, int, int], target: Target, expected: tuple[int, int, int]) -> None:
    _, nest, plan = tiled(product(*shape), target)
    assert groups_of(plan, nest) == expected


def loads(shape: tuple[int, int, int]) -> tuple[int, int]:
    """Return the loops of an item's part of a product, and the products in its code."""
    kernel, _, _ = tiled(product(*shape), LARGE)
    products = [op for op in kernel.walk() if isinstance(op, arith.MulfOp)]
    return sum(isinstance(op, scf.ForOp) for op in kernel.walk()), len(products)


def test_an_item_has_several_loads_in_flight() -> None:
    # Of 64 items, which have eight rows each, then 64, then 36.
    assert loads((1, 512, 768)) == (0, 8)
    assert loads((1, 4096, 768)) == (1, 8)
    assert loads((1, 2304, 768)) == (1, 12)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("target", [LARGE, gpu(8, 256), SMALL], ids=["large", "gpu", "small"])
@pytest.mark.parametrize("shape", [(1, 300, 40), (2, 129, 33), (4, 200, 7), (1, 513, 132), (3, 70, 9)])
def test_results(shape: tuple[int, int, int], target: Target, transposed: bool) -> None:
    one = product(*shape, transposed=transposed)
    kernel, _, _ = tiled(one, target)
    one.check(kernel)

"""Teams of items for rows times matrices: as many items as keep a device busy, each with a few rows of the matrix at once."""

from __future__ import annotations

from math import prod

import pytest

from dlc.ir import arith, func, scf
from dlc.passes.structured import Constants
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.choose_groups import choose_groups
from dlc.passes.tiling.form_nests import nests_of
from dlc.passes.tiling.nests import Nest
from dlc.passes.tiling.plan import TilePlan
from dlc.target import OPENCL_PROFILES, Target
from tests.targets import gpu

from .products import Product

SMALL, LARGE = OPENCL_PROFILES["opencl:small"], gpu(132, 512)


def product(rows: int, terms: int, columns: int, *, turned: bool = False) -> Product:
    """[rows, terms] · [terms, columns], or by the right operand's transpose."""
    return Product("bmkl", "nkl" if turned else "kln", {"b": 1, "m": rows, "n": columns, "k": 1, "l": terms})


def tiled(product: Product, target: Target) -> tuple[func.FuncOp, Nest, TilePlan]:
    """The kernel of a product, its nest and its plan."""
    module, kernel = product.kernel()
    (nest,) = nests_of(kernel)
    known = nest.at({})
    plan = choose_groups(known, target)
    apply_tiles(nest, plan, Constants(kernel))
    module.verify()
    return kernel, known, plan


def groups_of(plan: TilePlan, nest: Nest) -> tuple[int, int, int]:
    """How many groups there are, the items of one, and the items of a team."""
    return prod(-(-nest.extents[d] // plan.covered(d)) for d in plan.order), prod((plan.items or {}).values()), plan.team(nest)


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        # Lines of 32 columns are read by eight items, and the more items go down them the fewer lines there are.
        ((1, 768, 768), LARGE, (24, 512, 64)),
        ((1, 768, 3072), LARGE, (96, 512, 64)),
        ((1, 768, 50257), LARGE, (786, 128, 8)),
        ((1, 768, 768), gpu(96, 256), (24, 256, 32)),
        ((1, 768, 768), SMALL, (24, 64, 8)),
        # Four rows are in registers, and what a team adds up has its place in local memory.
        ((4, 768, 3072), LARGE, (96, 256, 32)),
        ((3, 768, 3072), SMALL, (96, 64, 8)),
        # Short columns are not worth as many.
        ((1, 64, 768), LARGE, (24, 128, 16)),
    ],
)
def test_how_many_items(shape: tuple[int, int, int], target: Target, expected: tuple[int, int, int]) -> None:
    _, nest, plan = tiled(product(*shape), target)
    assert groups_of(plan, nest) == expected


def loads(shape: tuple[int, int, int]) -> tuple[int, int]:
    """Loops of an item's part of a product, and products in its code."""
    kernel, _, _ = tiled(product(*shape), LARGE)
    products = [op for op in kernel.walk() if isinstance(op, arith.MulfOp)]
    return sum(isinstance(op, scf.ForOp) for op in kernel.walk()), len(products)


def test_an_item_reads_several_rows_at_once() -> None:
    # Of 64 items, which have eight rows each, then 64, then 36.
    assert loads((1, 512, 768)) == (0, 8)
    assert loads((1, 4096, 768)) == (1, 8)
    assert loads((1, 2304, 768)) == (1, 12)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("target", [LARGE, gpu(8, 256), SMALL], ids=["large", "gpu", "small"])
@pytest.mark.parametrize("shape", [(1, 300, 40), (2, 129, 33), (4, 200, 7), (1, 513, 132), (3, 70, 9)])
def test_they_compute_the_same(shape: tuple[int, int, int], target: Target, turned: bool) -> None:
    one = product(*shape, turned=turned)
    kernel, _, _ = tiled(one, target)
    one.check(kernel)

"""Teams of items for rows times matrices: as many items as keep a device busy, each with a few rows of the matrix at once."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, arith, func, parse_module, scf
from dlc.passes.base import kernels_of
from dlc.passes.structured import Constants
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.choose_groups import choose_groups
from dlc.passes.tiling.collapse_iterators import CollapseIteratorsPass
from dlc.passes.tiling.form_nests import nests_of
from dlc.passes.tiling.nests import Nest
from dlc.passes.tiling.plan import TilePlan
from dlc.target import OPENCL_PROFILES, Target

SMALL = OPENCL_PROFILES["opencl:small"]


def gpu(units: int, team_items: int) -> Target:
    target = OPENCL_PROFILES["opencl:gpu"]
    assert target.groups is not None
    return replace(target, groups=replace(target.groups, units=units, team_items=team_items))


LARGE = gpu(132, 512)


def product(rows: int, terms: int, columns: int, *, turned: bool = False) -> tuple[ModuleOp, func.FuncOp, Nest]:
    """A kernel of [rows, terms] · [terms, columns], or of the right operand's transpose, and its nest."""
    w, map_ = ((columns, terms), "(n, k)") if turned else ((terms, columns), "(k, n)")
    types = [f"tensor<{a}x{b}xf32>" for a, b in ((rows, terms), w, (rows, columns))]
    module = parse_module(
        make_context(),
        f"""
        builtin.module {{
          func.func @product(%a: {types[0]}, %b: {types[1]}, %c: {types[2]}) -> {types[2]} attributes {{kernel}} {{
            %zero = arith.constant 0.0 : f32
            %z = linalg.fill ins(%zero : f32) outs(%c : {types[2]}) -> {types[2]}
            %r = linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> {map_}>,
                affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}}
                ins(%a, %b : {types[0]}, {types[1]}) outs(%z : {types[2]}) {{
            ^bb0(%x: f32, %w: f32, %acc: f32):
              %p = arith.mulf %x, %w : f32
              %s = arith.addf %p, %acc : f32
              linalg.yield %s : f32
            }} -> {types[2]}
            func.return %r : {types[2]}
          }}
        }}""",
    )
    for p in (BufferizeKernelsPass(), CollapseIteratorsPass(LARGE)):
        p.apply(make_context(), module)
    (kernel,) = kernels_of(module)
    (nest,) = nests_of(kernel)
    return module, kernel, nest.at({})


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
    _, _, nest = product(*shape)
    assert groups_of(choose_groups(nest, target), nest) == expected


def loads(shape: tuple[int, int, int]) -> tuple[int, int]:
    """Loops of an item's part of a product, and products in its code."""
    _, kernel, nest = product(*shape)
    apply_tiles(next(iter(nests_of(kernel))), choose_groups(nest, LARGE), Constants(kernel))
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
    module, kernel, nest = product(*shape, turned=turned)
    rng = np.random.default_rng(0)
    m, k, n = shape
    x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((n, k) if turned else (k, n), np.float32)
    apply_tiles(next(iter(nests_of(kernel))), choose_groups(nest, target), Constants(kernel))
    module.verify()
    out: Any = np.empty((m, n), np.float32)
    evaluate_function(kernel, [x, w, out])
    np.testing.assert_allclose(out, x @ (w.T if turned else w), rtol=1e-4, atol=1e-4)

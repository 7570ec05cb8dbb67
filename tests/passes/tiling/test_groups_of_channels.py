"""Groups of few channels: which share a vector, what their tiles hold, and in what order they come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from dlc.passes.base import kernels_of
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.choose_tiles import choose_tiles
from dlc.passes.tiling.collapse_iterators import CollapseIteratorsPass
from dlc.passes.tiling.form_nests import nests_of
from dlc.passes.tiling.nests import OpenNest
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, Target

from .kernels import GROUPS

CONTEXT = make_context()


def merged(text: str, target: Target) -> list[OpenNest]:
    module = parse_module(CONTEXT, text)
    for p in (BufferizeKernelsPass(), CollapseIteratorsPass(target)):
        p.apply(CONTEXT, module)
    return nests_of(next(iter(kernels_of(module))))


def times_of(text: str, target: Target) -> dict[int, int]:
    """How often operands of a kernel repeat elements along its dimensions, by their extents."""
    (nest,) = merged(text, target)
    return {nest.at({}).extents[d]: times for d, times in nest.at({}).repetitions.items()}


@pytest.mark.parametrize(
    ("outputs", "inputs", "target", "merged"),
    [
        (4, 3, "cpu:avx512", True),
        (4, 3, "cpu:avx2", True),
        (4, 3, "cpu:generic", False),
        (2, 2, "cpu:generic", True),
        (4, 5, "cpu:avx512", False),
        (3, 3, "cpu:avx512", False),
        (8, 3, "cpu:avx512", False),
    ],
)
def test_groups_of_few_outputs_share_a_vector(outputs: int, inputs: int, target: str, merged: bool) -> None:
    """Where they fill one, are fewer than 32 bytes each, and what they read is a vector."""
    text = (
        GROUPS.replace("6x3xf32", f"6x{inputs}xf32")
        .replace("3x3x6x4", f"3x{inputs}x6x4")
        .replace("6x4xf32", f"6x{outputs}xf32")
    )
    assert times_of(text, CPU_LEVELS[target]) == ({6 * outputs: outputs} if merged else {})


def test_items_of_a_group_need_no_vectors() -> None:
    assert times_of(GROUPS.replace("6x4xf32", "6x2xf32").replace("6x3x", "6x2x"), OPENCL_PROFILES["opencl:gpu"]) == {}


@pytest.mark.parametrize(("target", "tile"), [("cpu:avx512", (7, 24)), ("cpu:avx2", (3, 16))])
def test_each_sum_of_groups_has_a_vector_of_what_they_read(target: str, tile: tuple[int, int]) -> None:
    """14 vectors of sums, as many to make others of, and two of weights are 30 of 32 registers; 6, 6 and two are 14 of 16."""
    (nest,) = merged(GROUPS, CPU_LEVELS[target])
    rows, lane = nest.shared
    known = replace(nest.at({}), extents={**nest.extents, rows: 42})
    assert choose_tiles(known, CPU_LEVELS[target]).register == {lane: tile[1], rows: tile[0]}


@pytest.mark.parametrize(("channels", "first"), [(8, "rows"), (16, "groups")])
def test_groups_of_a_part_of_a_line_go_pixel_by_pixel(channels: int, first: str) -> None:
    """Groups of 16 channels have lines of their own, and come one after the other."""
    text = GROUPS.replace("6x3xf32", f"6x{channels}xf32").replace("3x3x6x4", f"3x{channels}x6x{channels}")
    (nest,) = merged(text.replace("6x4xf32", f"6x{channels}xf32"), CPU_LEVELS["cpu:avx512"])
    groups = next(d for d in nest.shared if nest.extents[d] == 6)
    order = choose_tiles(nest.at({}), CPU_LEVELS["cpu:avx512"]).order
    assert (order[0] == groups) is (first == "groups")

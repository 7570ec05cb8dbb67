"""Grouped convolutions with few channels: which groups share a vector, their register tiles, and their loop order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from dlc.passes.base import kernels_of
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.choose_tiles import choose_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.loop_nests import LoopNest
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, Target

from .kernels import GROUPS

CONTEXT = make_context()


def merged(text: str, target: Target) -> list[LoopNest]:
    module = parse_module(CONTEXT, text)
    BufferizeKernelsPass().apply(CONTEXT, module)
    return form_loop_nests(next(iter(kernels_of(module))), target)


def times_of(text: str, target: Target) -> dict[int, int]:
    """Return how often operands of a kernel repeat elements along its dimensions, by extent."""
    (nest,) = merged(text, target)
    return {nest.specialize({}).extents[d]: times for d, times in nest.specialize({}).repeat_counts.items()}


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
def test_groups_with_few_output_channels_share_a_vector(outputs: int, inputs: int, target: str, merged: bool) -> None:
    """Groups are merged if they fill a vector, each has fewer than 32 bytes, and their inputs form a vector."""
    text = (
        GROUPS.replace("6x3xf32", f"6x{inputs}xf32")
        .replace("3x3x6x4", f"3x{inputs}x6x4")
        .replace("6x4xf32", f"6x{outputs}xf32")
    )
    assert times_of(text, CPU_LEVELS[target]) == ({6 * outputs: outputs} if merged else {})


def test_work_groups_do_not_merge_channel_groups() -> None:
    assert times_of(GROUPS.replace("6x4xf32", "6x2xf32").replace("6x3x", "6x2x"), OPENCL_PROFILES["opencl:gpu"]) == {}


@pytest.mark.parametrize(("target", "tile"), [("cpu:avx512", (7, 24)), ("cpu:avx2", (3, 16))])
def test_repeated_operands_need_a_vector_per_accumulator(target: str, tile: tuple[int, int]) -> None:
    """14 accumulators, as many operand vectors and two of weights are 30 of 32 registers; 6, 6 and 2 are 14 of 16."""
    (nest,) = merged(GROUPS, CPU_LEVELS[target])
    rows, lane = nest.shared_dims
    known = replace(nest.specialize({}), extents={**nest.extents, rows: 42})
    assert choose_tiles(known, CPU_LEVELS[target]).register == {lane: tile[1], rows: tile[0]}


@pytest.mark.parametrize(("channels", "first"), [(8, "rows"), (16, "groups")])
def test_groups_smaller_than_a_cache_line_are_innermost(channels: int, first: str) -> None:
    """Groups of 16 channels have cache lines of their own and are outermost."""
    text = GROUPS.replace("6x3xf32", f"6x{channels}xf32").replace("3x3x6x4", f"3x{channels}x6x{channels}")
    (nest,) = merged(text.replace("6x4xf32", f"6x{channels}xf32"), CPU_LEVELS["cpu:avx512"])
    groups = next(d for d in nest.shared_dims if nest.extents[d] == 6)
    order = choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx512"]).order
    assert (order[0] == groups) is (first == "groups")

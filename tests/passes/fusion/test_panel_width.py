"""Widths of weight panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.nn as nn
import dlc.numpy as dnp
from dlc.passes.fusion.panel_width import choose_panel_width
from dlc.target import CPU_LEVELS, OPENCL_PROFILES

WIDE, NARROW = CPU_LEVELS["cpu:avx512"], CPU_LEVELS["cpu:avx2"]


@pytest.mark.parametrize(
    ("channels", "panel"),
    # Usually two vectors; three if they divide better; ragged only in a single panel.
    [(1, 1), (10, 10), (16, 16), (24, 24), (40, 40), (64, 32), (96, 32), (144, 48), (1000, 48), (2048, 32)],
)
def test_many_rows(channels: int, panel: int) -> None:
    assert choose_panel_width(channels, 1000, 16, WIDE) == panel


def test_few_rows_have_wide_panels() -> None:
    assert choose_panel_width(1024, 1, 16, WIDE) == 64


def test_rows_with_sums_per_step_have_one_vector_per_eight_registers() -> None:
    # With 32 registers, a single row and several share packed weights.
    for rows in (1, 2, 8):
        assert choose_panel_width(1024, rows, 16, WIDE, decodes_weights=True, sums_per_step=True) == 64
        narrow_panel = choose_panel_width(1024, rows, 8, NARROW, decodes_weights=True, sums_per_step=True)
        assert narrow_panel == (16 if rows == 1 else 8)


def test_few_registers_have_narrow_panels() -> None:
    assert choose_panel_width(64, 1000, 8, NARROW) == 16
    assert choose_panel_width(24, 1000, 8, NARROW) == 24


@pytest.mark.parametrize("channels", range(1, 200, 7))
def test_panels_cover_all_channels_without_an_empty_one(channels: int) -> None:
    panel = choose_panel_width(channels, 100, 16, WIDE)
    count = -(-channels // panel)
    assert (count - 1) * panel < channels <= count * panel
    assert panel % 16 == 0 or panel == channels


@pytest.mark.parametrize(("channels", "panel"), [(1, 4), (10, 12), (12, 12), (513, 544), (768, 768), (50257, 50272)])
def test_work_groups_have_one_panel_with_aligned_rows(channels: int, panel: int) -> None:
    assert choose_panel_width(channels, 1, 4, OPENCL_PROFILES["opencl:gpu"]) == panel


def test_rows_of_a_window_that_are_too_few_to_hide_the_latency_have_wide_panels() -> None:
    # Seven rows are tiles of 4 and 3 rows, which wait for their accumulators with two vectors.
    assert choose_panel_width(96, 49, 8, NARROW, 7) == 24
    assert choose_panel_width(64, 196, 8, NARROW, 14) == 16
    assert choose_panel_width(96, 49, 16, WIDE, 7) == 32


def test_a_contraction_of_two_axes_may_have_no_rows() -> None:
    weights = np.ones((3, 4, 40), np.float32)
    f = dlc.jit(lambda x: dnp.einsum("ab,abc->c", x, weights), target="cpu:avx2")
    assert "tensor<40xf32>" in f.lower(np.ones((3, 4), np.float32)).as_text("fusion")


def test_sixteen_registers_have_panels_of_three_vectors_if_they_divide_the_channels() -> None:
    assert choose_panel_width(768, 128, 8, NARROW) == 24
    assert choose_panel_width(512, 128, 8, NARROW) == 16
    # Products of integers need registers.
    assert choose_panel_width(768, 128, 8, NARROW, is_integer=True) == 16


@pytest.mark.parametrize(("stride", "padding", "panel"), [(1, 0, 16), (2, 0, 24), (1, 1, 24)])
def test_tiles_cover_one_image_row_with_a_stride_or_padding(stride: int, padding: int, panel: int) -> None:
    # Rows of 32 pixels are eight tiles of 4 rows × 3 vectors, which fit better than 6 × 2.
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((3, 3, 256, 8)).astype(np.float32)
    kernel = rng.standard_normal((1, 1, 64, 256)).astype(np.float32)

    def f(x: Any) -> Any:
        y = nn.relu(nn.conv(x, kernel, strides=stride))
        return nn.conv(dnp.pad(y, ((0, 0), (padding, padding), (padding, padding), (0, 0))), weights)

    text = dlc.jit(f, target="cpu:avx2").lower(np.ones((1, 32 * stride, 32 * stride, 64), np.float32)).as_text("fusion")
    assert f"tile = {panel} :" in text

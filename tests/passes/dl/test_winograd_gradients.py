"""`winograd-gradients`: weight gradients of convolutions by tiles compute the same with less work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlc.cost_model import WinogradCosts
from dlc.dialects import dl
from dlc.dialects.dl.base import number, shape_of
from dlc.ir import Context, SSAValue
from dlc.passes.dl.contractions.block_reductions import BlockReductionsPass
from dlc.passes.dl.contractions.winograd_gradients import WinogradGradientsPass
from dlc.target import CPU_LEVELS
from tests.passes.programs import Program, Writer, program, randoms

AVX512, AVX2 = CPU_LEVELS["cpu:avx512"], CPU_LEVELS["cpu:avx2"]
# Two images of nine tiles of 4×4 with 16 channels on either side.
_STRIPS = WinogradCosts(input=0, output=0, runtime_weight=0, weight=0, cached_bytes=1 << 10, strip_bytes=2 * 36 * 9 * 32 * 4)
_IN_STRIPS = replace(AVX2, costs=replace(AVX2.costs, winograd=_STRIPS))
_AXES = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (2, 3, 4), "rhs_contract": (0, 1, 2)}


def windows_product(b: Writer, x: SSAValue, ct: SSAValue, kernel: int = 3, stride: int = 1, **axes: Any) -> SSAValue:
    windows = b(dl.SlidingWindowsOp, x, axes=(1, 2), sizes=(kernel, kernel), strides=(stride, stride))
    return b(dl.DotGeneralOp, windows, ct, **{**_AXES, **axes})


def gradient(images: int, size: tuple[int, int], c: int, o: int, kernel: int = 3, stride: int = 1) -> Program:
    places = tuple((n - 1) * stride + kernel for n in size)
    x, ct = randoms((images, *places, c), (images, *size, o))
    scale = np.float32((images * size[0] * size[1]) ** -0.5)
    return program(lambda b, x, ct: windows_product(b, x, ct, kernel, stride), x, ct * scale)


@pytest.mark.parametrize("images, size, channels, step", [(4, (28, 28), 64, 4), (16, (6, 6), 256, 2)])
def test_tiles_that_divide_the_image(images: int, size: tuple[int, int], channels: int, step: int) -> None:
    p = gradient(images, size, channels, channels).apply(WinogradGradientsPass(AVX512), tolerance=1e-4)
    tiles = [op for op in p.main.body.block.ops if isinstance(op, dl.WinogradInputOp)]
    assert p.ops.count("dot_general") == 1 and "sliding_windows" not in p.ops and "pad" not in p.ops
    assert [shape_of(t.result)[:5] for t in tiles] == [(step + 2, step + 2, images, size[0] // step, size[1] // step)] * 2
    assert {number(t.step) for t in tiles} == {step}


def test_other_images_are_padded() -> None:
    p = gradient(2, (27, 30), 64, 96).apply(WinogradGradientsPass(AVX512), tolerance=1e-4)
    assert p.ops.count("pad") == 2 and "sliding_windows" not in p.ops


@pytest.mark.parametrize("images, strips", [(6, [2, 2, 2]), (5, [2, 2, 1])])
def test_large_batches_are_split_into_strips(images: int, strips: list[int]) -> None:
    p = gradient(images, (12, 12), 16, 16).apply(WinogradGradientsPass(_IN_STRIPS), tolerance=1e-4)
    tiles = [shape_of(op.result)[2] for op in p.main.body.block.ops if isinstance(op, dl.WinogradInputOp)]
    assert tiles == [n for n in strips for _ in range(2)]
    assert p.ops.count("concat") == p.ops.count("reduce_sum") == p.ops.count("winograd_output") == 1


def test_sums_over_tiles_are_not_blocked() -> None:
    """For more than 32,768 positions only the sum over strips is blocked."""
    p = gradient(48, (28, 28), 64, 64).apply(WinogradGradientsPass(AVX512), tolerance=1e-4)
    by_tiles = p.ops
    assert by_tiles.count("reduce_sum") == 1 and "winograd_output" in by_tiles
    assert p.apply(BlockReductionsPass(), tolerance=1e-4).ops == by_tiles


@pytest.mark.parametrize("properties", [{"stride": 2}, {"kernel": 5}, {"kernel": 1}], ids=lambda p: next(iter(p)))
def test_other_windows_stay(properties: dict[str, int]) -> None:
    p = gradient(4, (16, 16), 64, 64, **properties).apply(WinogradGradientsPass(AVX512))
    assert p.ops == ["sliding_windows", "dot_general"]


@pytest.mark.parametrize(
    "shape, axes",
    [
        # A batch axis over images, and another summation order.
        ((4, 16, 16, 64), {"lhs_batch": (2,), "rhs_batch": (0,), "lhs_contract": (3, 4), "rhs_contract": (1, 2)}),
        ((4, 16, 16, 64), {"rhs_contract": (0, 2, 1)}),
        ((4, 16, 16), {}),
    ],
    ids=["batch", "transposed", "one_channel"],
)
def test_other_products_stay(shape: tuple[int, ...], axes: dict[str, Any]) -> None:
    inputs = randoms((4, 18, 18, 64), shape)
    p = program(lambda b, x, ct: windows_product(b, x, ct, **axes), *inputs).apply(WinogradGradientsPass(AVX512))
    assert p.ops == ["sliding_windows", "dot_general"]


def test_other_types_stay() -> None:
    p = program(windows_product, np.zeros((4, 18, 18, 64)), np.zeros((4, 16, 16, 64))).apply(WinogradGradientsPass(AVX512))
    assert p.ops == ["sliding_windows", "dot_general"]


@pytest.mark.parametrize("images, size, c, o", [(1, (4, 4), 512, 512), (8, (28, 28), 1, 32), (1, (8, 8), 4, 4)])
def test_slower_cases_stay(images: int, size: tuple[int, int], c: int, o: int) -> None:
    assert gradient(images, size, c, o).apply(WinogradGradientsPass(AVX512)).ops == ["sliding_windows", "dot_general"]


@pytest.mark.parametrize("images, size, channels, step, bound", [(8, 28, 64, 4, 2e-5), (16, 6, 256, 2, 4e-6)])
def test_stated_error(images: int, size: int, channels: int, step: int, bound: float) -> None:
    p = gradient(images, (size, size), channels, channels)
    x, ct = p.inputs
    WinogradGradientsPass(AVX512).apply(Context(), p.module)
    assert {number(op.step) for op in p.main.body.block.ops if isinstance(op, dl.WinogradInputOp)} == {step}
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (1, 2))
    exact = np.einsum("nhwckl,nhwo->klco", windows, ct.astype(np.float64), optimize=True)
    assert np.abs(p.run()[0] - exact).max() < bound * np.abs(exact).max()

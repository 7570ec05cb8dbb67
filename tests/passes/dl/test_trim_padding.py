"""`trim-padding`: convolutions compute the same without taps that only read padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.ir import SSAValue
from dlc.passes.dl.contractions.trim_padding import TrimPaddingPass
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, Target
from tests.passes.programs import Program, Writer, program, randoms

AVX512 = CPU_LEVELS["cpu:avx512"]


def without_kernel_cost(target: Target, weight: int = 0) -> Target:
    """A target on which an additional kernel costs nothing but its weights, `weight` multiplications each."""
    costs = target.costs
    assert costs.winograd is not None
    return replace(target, costs=replace(costs, kernel_work=0, winograd=replace(costs.winograd, weight=weight)))


def convolution(
    spatial: Sequence[int],
    kernel: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    channels: tuple[int, int] = (4, 6),
    groups: int = 1,
    value: float = 0.0,
) -> Program:
    """A convolution of a padded image with a bias and a per-position addition, and its elementwise epilogue."""
    c, o = channels
    x, w, bias = randoms((2, *spatial, c), (*kernel, c // groups, o), (o,))

    def body(b: Writer, x: SSAValue) -> SSAValue:
        padded = b(dl.PadOp, x, b.scalar(value, like=x), low=(0, *low, 0), high=(0, *high, 0))
        y = b(dl.ConvOp, padded, b.weight(w), strides=strides, dilations=dilations, groups=groups)
        (beside,) = randoms(tuple(map(int, shape_of(y)[1:])), seed=1)
        return b(dl.MaximumOp, b(dl.AddOp, b(dl.AddOp, y, b.weight(bias)), b.weight(beside)), b.scalar(0, like=y))

    return program(body, x)


def windows(p: Program) -> list[tuple[int, ...]]:
    """Return the kernel sizes of the remaining convolutions."""
    convolutions = (op for op in p.main.body.block.ops if isinstance(op, dl.ConvOp))
    return [tuple(int(n) for n in shape_of(op.w)[:-2]) for op in convolutions]


def dilated(
    distance: int, size: int = 16, channels: tuple[int, int] = (64, 256), value: float = 0.0, target: Target = AVX512
) -> Program:
    """A dilated 3×3 convolution with as many results as the image has positions."""
    ends = [distance] * 2
    p = convolution([size] * 2, [3, 3], ends, ends, [1, 1], ends, channels, value=value)
    return p.apply(TrimPaddingPass(target), tolerance=2e-4)


def test_taps_that_only_read_padding_are_removed() -> None:
    p = dilated(24)
    assert windows(p) == [(1, 1)] and "pad" not in p.ops and "concat" not in p.ops


def test_positions_with_equal_taps_form_a_range() -> None:
    p = dilated(12)
    assert sorted(windows(p)) == sorted((h, w) for h in (2, 1, 2) for w in (2, 1, 2))
    assert "pad" not in p.ops and p.ops[-1] == "concat" and p.ops.count("maximum") == 9


def test_ranges_merge_where_kernels_cost_more() -> None:
    p = dilated(12, channels=(8, 16))
    assert windows(p) == [(3, 3)] and "pad" in p.ops
    assert len(windows(dilated(12, channels=(8, 16), target=without_kernel_cost(AVX512)))) == 9
    assert len(windows(dilated(8, size=15, channels=(16, 64)))) < len(windows(dilated(8, size=15, channels=(64, 256))))


def test_ranges_merge_where_weights_cost_more() -> None:
    kernels = [
        len(windows(grouped.apply(TrimPaddingPass(without_kernel_cost(AVX512, weight)), tolerance=2e-4)))
        for weight in (0, 8)
        for grouped in [convolution([14, 14], [3, 3], [1, 1], [1, 1], [1, 1], [1, 1], (8, 12), groups=2)]
    ]
    assert kernels == [9, 1]


def test_kernel_cost_depends_on_the_target() -> None:
    gpu = OPENCL_PROFILES["opencl:gpu"]
    assert windows(dilated(12, target=gpu)) == [(3, 3)] and windows(dilated(24, target=gpu)) == [(1, 1)]


def test_empty_batch_stays() -> None:
    x, w = np.zeros((0, 4, 4, 2), np.float32), np.ones((3, 3, 2, 3), np.float32)

    def body(b: Writer, x: SSAValue) -> SSAValue:
        padded = b(dl.PadOp, x, b.scalar(0, like=x), low=(0, 3, 3, 0), high=(0, 3, 3, 0))
        return b(dl.ConvOp, padded, b.weight(w), strides=(1, 1), dilations=(3, 3), groups=1)

    assert windows(program(body, x).apply(TrimPaddingPass(AVX512))) == [(3, 3)]


def test_video_frames_are_split_separately() -> None:
    def video(frames: int) -> list[tuple[int, ...]]:
        p = convolution([frames, 14, 14], [3, 3, 3], [1] * 3, [1] * 3, [1] * 3, [1] * 3, channels=(32, 64))
        return windows(p.apply(TrimPaddingPass(AVX512), tolerance=2e-4))

    assert video(1) == [(1, 3, 3)] and video(2) == [(2, 3, 3)] * 2


def test_other_paddings_stay() -> None:
    assert windows(dilated(24, value=1.0)) == [(3, 3)]


@pytest.mark.parametrize("seed", range(40))
def test_any_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 4]))
    kernel, strides, dilations = (rng.integers(1, most, rank).tolist() for most in (5, 4, 6))
    spatial = rng.integers(1, 9, rank).tolist()
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    low, high = ([int(rng.integers(0, r + 2)) for r in reach] for _ in range(2))
    high = [max(b, r - n - a) for a, b, n, r in zip(low, high, spatial, reach, strict=True)]
    p = convolution(spatial, kernel, low, high, strides, dilations, channels=(4, 8), groups=groups)
    p.apply(TrimPaddingPass(without_kernel_cost(AVX512)), tolerance=1e-4)

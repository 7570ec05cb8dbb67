"""`winograd`: convolutions by tiles compute the same with fewer multiplications, where that pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlc.cost_model import WinogradCosts
from dlc.dialects import dl
from dlc.dialects.dl.base import number, shape_of
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.registry import make_context
from dlc.ir import SSAValue, i32, parse_module
from dlc.passes.dl.contractions.winograd import WinogradPass
from dlc.passes.dl.simplification.simplify import SimplifyPass
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.target import CPU_LEVELS, Target
from tests.passes.programs import Program, Writer, program, randoms

AVX512, AVX2 = CPU_LEVELS["cpu:avx512"], CPU_LEVELS["cpu:avx2"]
_I16 = ELEMENT_TYPES["int16"]


def convolution(
    b: Writer, x: SSAValue, o: int, kernel: int = 3, stride: int = 1, dilation: int = 1, groups: int = 1
) -> SSAValue:
    c = int(shape_of(x)[-1]) // groups
    (w,) = randoms((kernel, kernel, c, o))
    weights = b.weight((w / np.sqrt(kernel * kernel * c)).astype(w.dtype))
    return b(dl.ConvOp, x, weights, strides=(stride,) * 2, dilations=(dilation,) * 2, groups=groups)


def rewritten(size: tuple[int, int], channels: int, o: int, **properties: int) -> Program:
    image = randoms((1, size[0] + 2, size[1] + 2, channels))
    return program(lambda b, x: convolution(b, x, o, **properties), *image).apply(WinogradPass(AVX512), tolerance=1e-4)


def image_transforms(p: Program) -> list[dl.WinogradInputOp]:
    """Return the transforms of images: tiles of weights do not overlap."""
    inputs = (op for op in p.main.body.block.ops if isinstance(op, dl.WinogradInputOp))
    return [op for op in inputs if number(op.step) < shape_of(op.matrix)[1]]


@pytest.mark.parametrize("size, step", [((28, 28), 4), ((24, 16), 4), ((14, 14), 2)])
def test_tiles_that_divide_the_image(size: tuple[int, int], step: int) -> None:
    p = rewritten(size, 128, 128)
    (tiles,) = image_transforms(p)
    assert shape_of(tiles.result)[3:5] == (size[0] // step, size[1] // step)
    assert "conv" not in p.ops and "slice" not in p.ops


@pytest.mark.parametrize("level, uses_winograd", [("avx512", False), ("avx512_bf16", True), ("avx2", True)])
def test_small_images_with_many_weights(level: str, uses_winograd: bool) -> None:
    p = program(lambda b, x: convolution(b, x, 512), *randoms((1, 9, 9, 512)))
    assert ("conv" not in p.apply(WinogradPass(CPU_LEVELS[f"cpu:{level}"]), tolerance=1e-4).ops) == uses_winograd


@pytest.mark.parametrize("size", [(27, 27), (21, 30)])
def test_other_images_are_padded_and_trimmed(size: tuple[int, int]) -> None:
    p = rewritten(size, 64, 96)
    assert p.ops[0] == "pad" and p.ops[-1] == "slice" and "winograd_output" in p.ops


def test_pads_become_one() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        padded = b(dl.PadOp, x, b.scalar(0, x), low=(0, 1, 1, 0), high=(0, 1, 1, 0), pad_mode="constant")
        return convolution(b, padded, 128)

    p = program(body, *randoms((1, 27, 27, 64))).apply(WinogradPass(), SimplifyPass(), tolerance=1e-4)
    assert p.ops.count("pad") == 1


def test_elementwise_ops_precede_the_trim() -> None:
    def body(b: Writer, x: SSAValue, skip: SSAValue) -> SSAValue:
        biased = b(dl.AddOp, convolution(b, x, 128), b.weight(randoms((128,))[0]))
        return b(dl.AddOp, b(dl.ReluOp, biased), skip)

    p = program(body, *randoms((1, 29, 29, 64), (1, 27, 27, 128))).apply(WinogradPass(AVX512), tolerance=1e-4)
    # An operand that varies over the image is added correctly.
    assert p.ops[-5:] == ["winograd_output", "add", "relu", "slice", "add"]


# Strips of three tiles of 4×4 with 16 channels in and out.
_STRIPS = WinogradCosts(input=0, output=0, runtime_weight=0, weight=0, cached_bytes=1 << 10, strip_bytes=3 * 36 * 3 * 32 * 4)
_IN_STRIPS = replace(AVX2, costs=replace(AVX2.costs, winograd=_STRIPS))


@pytest.mark.parametrize("images, size, strips", [(1, (24, 12), [(1, 12, 12)] * 2), (6, (8, 8), [(2, 8, 8)] * 3)])
def test_large_images_are_split_into_strips(images: int, size: tuple[int, int], strips: list[tuple[int, int, int]]) -> None:
    """Including elementwise consumers, also of a value with two users."""

    def body(b: Writer, x: SSAValue, skip: SSAValue) -> SSAValue:
        biased = b(dl.AddOp, convolution(b, x, 16), b.weight(randoms((16,))[0]))
        return b(dl.MulOp, biased, b(dl.AddOp, b(dl.ReluOp, biased), skip))

    image, skip = randoms((images, size[0] + 2, size[1] + 2, 16), (images, *size, 16))
    p = program(body, image, skip).apply(WinogradPass(_IN_STRIPS), SimplifyPass(), tolerance=1e-4)
    parts = [shape_of(o.result)[:3] for o in p.main.body.block.ops if isinstance(o, dl.WinogradOutputOp)]
    assert parts == strips
    assert [o.name for o in p.main.body.block.ops if o.results and shape_of(o.results[0]) == skip.shape] == ["dl.concat"]


def test_ops_that_depend_on_all_strips_are_not_split() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ReluOp, convolution(b, x, 16))
        return b(dl.SubOp, y, b(dl.ReduceSumOp, y, axes=(0, 1, 2)))

    p = program(body, *randoms((6, 10, 10, 16))).apply(WinogradPass(_IN_STRIPS), tolerance=1e-4)
    assert p.ops.count("relu") == 3 and p.ops[-3:] == ["concat", "reduce_sum", "sub"]


def test_dependency_analysis_of_deep_bodies() -> None:
    v = "tensor<3xf32>"
    chain = "".join(f"    %{k + 1} = dl.neg %{k} : ({v}) -> {v}\n" for k in range(1_500))
    module = parse_module(
        make_context(),
        f"""func.func @main(%c: tensor<i1>, %0: {v}) -> ({v}) {{
  %y = dl.if %c : (tensor<i1>) -> ({v}) {{
{chain}    dl.yield %1500 : {v}
  }} {{
    dl.yield %0 : {v}
  }}
  %z = dl.neg %y : ({v}) -> {v}
  func.return %z : {v}
}}""",
    )
    WinogradPass(AVX512).apply(make_context(), module)


def test_strips_share_one_trim() -> None:
    p = program(lambda b, x: b(dl.ReluOp, convolution(b, x, 16)), *randoms((1, 24, 14, 16)))
    p.apply(WinogradPass(_IN_STRIPS), tolerance=1e-4)
    assert p.ops[-3:] == ["relu", "concat", "slice"] and p.ops.count("winograd_output") == p.ops.count("relu") == 2


@pytest.mark.parametrize(
    "properties", [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {"kernel": 5}, {"kernel": 1}], ids=lambda p: next(iter(p))
)
def test_other_convolutions_stay(properties: dict[str, int]) -> None:
    assert rewritten((30, 30), 64, 64, **properties).ops == ["conv"]


@pytest.mark.parametrize("size, channels, o", [((7, 7), 512, 512), ((56, 56), 3, 8), ((8, 8), 4, 4)])
def test_slower_cases_stay(size: tuple[int, int], channels: int, o: int) -> None:
    assert rewritten(size, channels, o).ops == ["conv"]


def test_other_types_stay() -> None:
    def double(b: Writer, x: SSAValue) -> SSAValue:
        w = b.weight(randoms((3, 3, 128, 128))[0].astype(np.float64))
        return b(dl.ConvOp, x, w, strides=(1, 1), dilations=(1, 1), groups=1)

    assert program(double, np.zeros((1, 30, 30, 128))).apply(WinogradPass()).ops == ["conv"]


@pytest.mark.parametrize("images, tiles", [(1, False), (4, True)])
def test_computed_weights_are_transformed_if_tiles_share_them(images: int, tiles: bool) -> None:
    def body(b: Writer, x: SSAValue, w: SSAValue) -> SSAValue:
        return b(dl.ConvOp, x, w, strides=(1, 1), dilations=(1, 1), groups=1)

    x, w = randoms((images, 18, 18, 128), (3, 3, 128, 128))
    p = program(body, x, w / np.float32(34)).apply(WinogradPass(), tolerance=1e-4)
    assert ("winograd_input" in p.ops) == tiles


@pytest.mark.parametrize("target, o, panel", [(AVX512, 128, 64), (AVX2, 128, 32), (AVX512, 64, None), (AVX512, 160, None)])
def test_computed_weights_are_transformed_in_panels(target: Target, o: int, panel: int | None) -> None:
    def body(b: Writer, x: SSAValue, w: SSAValue) -> SSAValue:
        return b(dl.ConvOp, x, w, strides=(1, 1), dilations=(1, 1), groups=1)

    x, w = randoms((8, 18, 18, 64), (3, 3, 64, o))
    p = program(body, x, w / np.float32(34)).apply(WinogradPass(target), FormKernelsPass(target), tolerance=1e-4)
    made = {shape_of(k.yielded[0]): k for k in p.module.ops if isinstance(k, dl.KernelOp)}
    if panel is None:
        assert (6, 6, 1, 1, 1, 64 * o) in made
        return
    # One kernel reads and writes panels, and the product reads them without packing.
    ops = [op.name for op in made[6, 6, o // panel, 1, 1, 64 * panel].body.block.ops]
    assert ops == ["dl.transpose", "dl.unpack", "dl.winograd_input", "dl.yield"]
    (product,) = (k for k in made.values() if any(isinstance(op, dl.MatmulOp) for op in k.body.block.ops))
    assert [shape_of(a) for a in product.body.block.args] == [(36, 128, 64), (36, o // panel, 64, panel)]


def integer_convolution(channels: int, data: type, low: int, high: int) -> tuple[Program, np.ndarray]:
    """A rewritten convolution of data in a value range, of i16 as in quantized models, and its result."""
    random = np.random.default_rng(3)
    # The extreme values of both at some positions, so that sums are as large as possible.
    x = random.choice([low, high], (1, 10, 12, channels)).astype(data)
    w = random.choice([-128, 127], (3, 3, channels, 16)).astype(np.int8)
    x[0, :3, :3], w[..., 0], w[..., 1] = high, 127, -128

    def body(b: Writer, x: SSAValue) -> SSAValue:
        pair = b(dl.CastOp, x, to=_I16), b(dl.CastOp, b.weight(w), to=_I16)
        return b(dl.ConvOp, *pair, strides=(1, 1), dilations=(1, 1), groups=1, result=i32)

    costs = replace(AVX2.costs, winograd=WinogradCosts(input=0, output=0, runtime_weight=0, weight=0))
    p = program(body, x)
    (before,) = p.run()
    WinogradPass(replace(AVX2, costs=costs)).apply(None, p.module)  # type: ignore[arg-type]
    return p, before


# The largest tile for which sums of that many int8 products are recoverable modulo 2³².
@pytest.mark.parametrize(
    "channels, data, low, high, step",
    [
        (114, np.uint8, 0, 255, 4),
        (115, np.uint8, 0, 255, 4),
        (227, np.uint8, 0, 255, 4),
        (228, np.uint8, 0, 255, 3),
        (227, np.int8, -128, 127, 4),
        (228, np.int8, -128, 127, 3),
    ],
)
def test_integers_are_exact(channels: int, data: type, low: int, high: int, step: int) -> None:
    p, before = integer_convolution(channels, data, low, high)
    (tiles,) = image_transforms(p)
    assert number(tiles.step) == step
    np.testing.assert_array_equal(p.run()[0], before)


def test_integers_that_overflow_stay() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w = b.weight(np.full((3, 3, 64, 64), 9, np.int16))
        return b(dl.ConvOp, x, w, strides=(1, 1), dilations=(1, 1), groups=1, result=i32)

    # Tiles of arbitrary i16 values would overflow i16.
    assert program(body, np.zeros((1, 30, 30, 64), np.int16)).apply(WinogradPass()).ops == ["conv"]


def test_stated_error() -> None:
    random = np.random.default_rng(5)
    for size, channels, bound in ((28, 256, 2e-5), (14, 256, 4e-6)):
        x = random.standard_normal((1, size + 2, size + 2, channels), np.float32)
        w = random.standard_normal((3, 3, channels, 64), np.float32)

        def body(b: Writer, x: SSAValue, w: np.ndarray = w) -> SSAValue:
            return b(dl.ConvOp, x, b.weight(w), strides=(1, 1), dilations=(1, 1), groups=1)

        p = program(body, x)
        WinogradPass(AVX512).apply(None, p.module)  # type: ignore[arg-type]
        windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), (3, 3), (0, 1))
        exact = np.tensordot(windows, w, ((2, 3, 4), (2, 0, 1)))
        assert "conv" not in p.ops
        assert np.abs(p.run()[0][0] - exact).max() < bound * np.abs(exact).max()


@pytest.mark.parametrize(
    "images, frames, taps, stride, dilation", [(1, 8, 3, 1, 1), (2, 7, 3, 2, 1), (2, 6, 2, 1, 3), (1, 4, 1, 1, 1)]
)
def test_video_frames_become_images(images: int, frames: int, taps: int, stride: int, dilation: int) -> None:
    x, w, bias = randoms((images, frames, 22, 22, 32), (taps, 3, 3, 32, 64), (64,))
    places = (images, (frames - (taps - 1) * dilation - 1) // stride + 1, 20, 20, 64)
    (beside,) = randoms(places, seed=1)

    def body(b: Writer, x: SSAValue) -> SSAValue:
        weights = b.weight((w / np.sqrt(9 * taps * 32)).astype(w.dtype))
        y = b(dl.ConvOp, x, weights, strides=(stride, 1, 1), dilations=(dilation, 1, 1), groups=1)
        y = b(dl.AddOp, b(dl.AddOp, y, b.weight(bias.reshape(1, 1, 1, 1, 64))), b.weight(beside))
        return b(dl.MaximumOp, y, b.scalar(0, like=y))

    p = program(body, x).apply(WinogradPass(AVX512), tolerance=1e-4)
    assert len(image_transforms(p)) >= 1 and "conv" not in p.ops
    # Elementwise ops apply to the images; only views follow.
    behind = p.ops[len(p.ops) - p.ops[::-1].index("maximum") :]
    assert set(behind) <= {"concat", "slice", "reshape"} and behind[-1] == "reshape"


@pytest.mark.parametrize("strides, groups", [((1, 2, 1), 1), ((1, 1, 1), 2)])
def test_other_videos_stay(strides: tuple[int, int, int], groups: int) -> None:
    x, w = randoms((1, 4, 22, 22, 32), (3, 3, 3, 32 // groups, 64))

    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.ConvOp, x, b.weight(w), strides=strides, dilations=(1, 1, 1), groups=groups)

    assert program(body, x).apply(WinogradPass(AVX512)).ops == ["conv"]

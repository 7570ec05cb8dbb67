"""Convolutions whose windows are largely padding, split into parts, on every target."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.backends.registry import backend_of
from tests.targets import NATIVE, level

RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 3, 64, 128)).astype(np.float32) / 24
IMAGES = RNG.standard_normal((2, 16, 16, 64)).astype(np.float32)


def pyramid(x, w):
    """A segmentation head: parallel convolutions with several dilations."""
    wide = [nn.relu(nn.conv(x, w, dilations=d, padding=[(d, d), (d, d)]) + x[..., :1]) for d in (12, 18)]
    return dnp.concatenate(wide, -1)


@pytest.mark.parametrize("target", ["cpu:generic", level("cpu:avx2"), *NATIVE])
def test_windows_of_several_widths(target: str) -> None:
    made = dlc.jit(pyramid, target=target)
    # A split window, and one of which a single tap remains.
    text = made.lower(IMAGES, W).as_text("dl")
    assert text.count("dl.conv ") >= 5 and "tensor<1x1x64x128xf32>" in text
    wanted = dlc.jit(pyramid, target="reference", numerics="strict")(IMAGES, W)
    np.testing.assert_allclose(np.asarray(made(IMAGES, W)), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("target", ["cpu:generic", level("cpu:avx2"), *NATIVE])
def test_short_videos(target: str) -> None:
    """Videos whose temporal window is mostly padding: single frames with two of three taps, then Winograd."""
    video = RNG.standard_normal((1, 2, 20, 20, 64)).astype(np.float32)
    w = RNG.standard_normal((3, 3, 3, 64, 64)).astype(np.float32) / 40

    def layer(x):
        return nn.relu(nn.conv(x, w, padding="same") + x)

    made = dlc.jit(layer, target=target)
    by_tiles = made.lower(video).as_text("dl").count("dl.winograd_output") >= 2
    assert by_tiles == (backend_of(target).target.costs.winograd is not None)
    wanted = dlc.jit(layer, target="reference", numerics="strict")(video)
    np.testing.assert_allclose(np.asarray(made(video)), wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


def test_gradients_of_split_convolutions() -> None:
    gradient = dlc.grad(lambda x, w: dnp.sum(pyramid(x, w) ** 2), argnums=(0, 1))
    got = dlc.jit(gradient)(IMAGES, W)
    wanted = dlc.jit(gradient, target="reference", numerics="strict")(IMAGES, W)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())

"""Chosen plans are legal for contractions of any shape, as large as in real models (plans are not run)."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.target import CPU_LEVELS

SIZES = [1, 2, 3, 7, 8, 14, 16, 31, 56, 64, 100, 128, 197, 384, 512, 1000, 1024, 2048]


def convolution(rng: np.random.Generator):
    kernel, stride = int(rng.choice([1, 3, 3, 5, 7])), int(rng.choice([1, 1, 2]))
    groups = int(rng.choice([1, 1, 4, 32]))
    c, o = (groups * int(rng.choice([1, 3, 4, 16, 64])) for _ in range(2))
    side, n = int(rng.choice([7, 8, 14, 28, 56])), int(rng.choice([1, 1, 8]))
    x, w = dlc.ShapeDtype((n, side, side, c), "float32"), dlc.ShapeDtype((kernel, kernel, c // groups, o), "float32")
    return lambda x, w: nn.relu(nn.conv(x, w, strides=stride, padding="same", groups=groups)), (x, w)


def depthwise(rng: np.random.Generator):
    kernel, stride, side = int(rng.choice([3, 5, 7])), int(rng.choice([1, 2])), int(rng.choice([4, 7, 8, 14, 56, 112]))
    c = int(rng.choice([16, 96, 100, 512, 1024, 2048]))
    x, w = dlc.ShapeDtype((1, side, side, c), "float32"), dlc.ShapeDtype((kernel, kernel, 1, c), "float32")
    return lambda x, w: nn.gelu(nn.conv(x, w, strides=stride, padding="same", groups=c)), (x, w)


def product(rng: np.random.Generator):
    m, k, n, batch = (int(rng.choice(SIZES)) for _ in range(4))
    shapes = ((batch, m, k), (batch, k, n)) if batch < 100 and rng.random() < 0.5 else ((m, k), (k, n))
    return lambda a, b: nn.relu(dnp.matmul(a, b)), tuple(dlc.ShapeDtype(s, "float32") for s in shapes)


@pytest.mark.parametrize("kind", [convolution, depthwise, product])
@pytest.mark.parametrize("seed", range(20))
def test_chosen_plans_are_legal(kind, seed: int) -> None:
    rng = np.random.default_rng(seed)
    function, arguments = kind(rng)
    target = str(rng.choice([name for name in CPU_LEVELS if "avx" in name or "generic" in name]))
    assert "scf.for" in dlc.jit(function, target=target).lower(*arguments).as_text("tiling")

"""Detect the edges of an image with one compiled function: Gaussian blur, gradient, non-maximum suppression, contrast.

    python examples/find_edges.py IMAGE.ppm EDGES.pgm

Reads and writes the formats PPM and PGM (`convert photo.jpg photo.ppm` converts other images). `-` instead of IMAGE.ppm uses a
generated test image.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import nn

LUMINANCE = np.array([0.2126, 0.7152, 0.0722], np.float32)


def gaussian_blur(image, sigma: float):
    """Blur an image [H, W] with a separable Gaussian kernel: one convolution along each axis."""
    radius = int(3 * sigma)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2).astype(np.float32)
    kernel = (weights / weights.sum())[:, None, None, None]
    # Convolutions are channels-last: the image is [1, H, W, 1], the kernel [rows, columns, 1, 1].
    x = dnp.pad(image, radius, mode="edge")[None, :, :, None]
    return nn.conv(nn.conv(x, kernel), kernel.swapaxes(0, 1))[0, :, :, 0]


@dlc.jit(static_argnames=("sigma",))
def edges(image, sigma=1.4):
    """Return the edges of an image uint8 [H, W, 3] as uint8 [H, W]: the steeper the gradient, the brighter."""
    gray = image.astype(np.float32) / 255 @ LUMINANCE
    x = dnp.pad(gaussian_blur(gray, sigma), 1, mode="edge")
    dx, dy = x[1:-1, 2:] - x[1:-1, :-2], x[2:, 1:-1] - x[:-2, 1:-1]
    magnitude = dnp.hypot(dx, dy)
    # Non-maximum suppression: keep a pixel if its gradient is the largest along the gradient's direction.
    padded = dnp.pad(magnitude, 1)
    horizontal = dnp.abs(dx) > dnp.abs(dy)
    before = dnp.where(horizontal, padded[1:-1, :-2], padded[:-2, 1:-1])
    after = dnp.where(horizontal, padded[1:-1, 2:], padded[2:, 1:-1])
    lines = dnp.where((magnitude >= before) & (magnitude > after), magnitude, 0)
    return dnp.round(255 * dnp.sqrt(lines / dnp.maximum(lines.max(), 1e-6))).astype(np.uint8)


def read_ppm(path: Path) -> np.ndarray:
    """Read a binary PPM file with 8-bit colors as uint8 [H, W, 3]."""
    data = path.read_bytes()
    header = re.match(rb"P6\s(?:#.*\s)*(\d+)\s+(\d+)\s+255\s", data)
    if header is None:
        sys.exit(f"{path}: expected a binary PPM file (P6) with 8-bit colors")
    width, height = int(header[1]), int(header[2])
    return np.frombuffer(data, np.uint8, height * width * 3, header.end()).reshape(height, width, 3)


def test_image(size: int = 512) -> np.ndarray:
    """Generate an image: a red disk and a blue square on gray, with noise."""
    y, x = np.mgrid[:size, :size] / size
    image = np.full((size, size, 3), 90.0)
    image[(x - 0.35) ** 2 + (y - 0.4) ** 2 < 0.05] = [220, 60, 40]
    image[(abs(x - 0.7) < 0.15) & (abs(y - 0.65) < 0.15)] = [40, 80, 230]
    return (image + np.random.default_rng(0).normal(0, 6, image.shape)).clip(0, 255).astype(np.uint8)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} IMAGE.ppm EDGES.pgm")
    image = test_image() if sys.argv[1] == "-" else read_ppm(Path(sys.argv[1]))
    edges(image)  # the first call compiles for this size
    start = perf_counter()
    result = edges(image)
    height, width = result.shape
    print(f"{width}×{height} pixels in {(perf_counter() - start) * 1e3:.1f} ms")
    Path(sys.argv[2]).write_bytes(b"P5\n%d %d\n255\n" % (width, height) + result.tobytes())


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")

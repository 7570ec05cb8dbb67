"""Draws the edges of a picture: blur, gradients, thin lines, contrast, as one compiled function.

    python examples/find_edges.py PICTURE.ppm EDGES.pgm

Reads and writes the plain formats PPM and PGM (`convert photo.jpg photo.ppm` makes one); `-` instead of a picture draws one.
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


def smoothed(image, sigma: float):
    """A Gaussian blur of [H, W]: along the rows, then along the columns."""
    radius = int(3 * sigma)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2).astype(np.float32)
    kernel = (weights / weights.sum())[:, None, None, None]
    # Channels last: [1, H, W, 1], and the kernel [rows, columns, 1, 1].
    x = dnp.pad(image, radius, mode="edge")[None, :, :, None]
    return nn.conv(nn.conv(x, kernel), kernel.swapaxes(0, 1))[0, :, :, 0]


@dlc.jit(static_argnames=("sigma",))
def edges(picture, sigma=1.4):
    """The edges of a uint8 [H, W, 3] picture as uint8 [H, W]: white where it is steepest."""
    grey = picture.astype(np.float32) / 255 @ LUMINANCE
    x = dnp.pad(smoothed(grey, sigma), 1, mode="edge")
    across, down = x[1:-1, 2:] - x[1:-1, :-2], x[2:, 1:-1] - x[:-2, 1:-1]
    steep = dnp.hypot(across, down)
    # A line is one pixel wide: where the slope is largest along its own direction.
    around = dnp.pad(steep, 1)
    flat = dnp.abs(across) > dnp.abs(down)
    before = dnp.where(flat, around[1:-1, :-2], around[:-2, 1:-1])
    after = dnp.where(flat, around[1:-1, 2:], around[2:, 1:-1])
    lines = dnp.where((steep >= before) & (steep > after), steep, 0)
    return dnp.round(255 * dnp.sqrt(lines / dnp.maximum(lines.max(), 1e-6))).astype(np.uint8)


def read_ppm(path: Path) -> np.ndarray:
    """A binary PPM file of 8-bit colours as uint8 [H, W, 3]."""
    data = path.read_bytes()
    header = re.match(rb"P6\s(?:#.*\s)*(\d+)\s+(\d+)\s+255\s", data)
    if header is None:
        sys.exit(f"{path}: no binary PPM file (P6) of 8-bit colours")
    width, height = int(header[1]), int(header[2])
    return np.frombuffer(data, np.uint8, height * width * 3, header.end()).reshape(height, width, 3)


def drawn(size: int = 512) -> np.ndarray:
    """A picture: a red disc and a blue square on grey, with noise."""
    y, x = np.mgrid[:size, :size] / size
    picture = np.full((size, size, 3), 90.0)
    picture[(x - 0.35) ** 2 + (y - 0.4) ** 2 < 0.05] = [220, 60, 40]
    picture[(abs(x - 0.7) < 0.15) & (abs(y - 0.65) < 0.15)] = [40, 80, 230]
    return (picture + np.random.default_rng(0).normal(0, 6, picture.shape)).clip(0, 255).astype(np.uint8)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} PICTURE.ppm EDGES.pgm")
    picture = drawn() if sys.argv[1] == "-" else read_ppm(Path(sys.argv[1]))
    edges(picture)  # compiles for this size
    began = perf_counter()
    found = edges(picture)
    height, width = found.shape
    print(f"{width}×{height} pixels in {(perf_counter() - began) * 1e3:.1f} ms")
    Path(sys.argv[2]).write_bytes(b"P5\n%d %d\n255\n" % (width, height) + found.tobytes())


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")

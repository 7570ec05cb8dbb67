"""A 7-point stencil in three dimensions, on an array with a halo of one element on each side."""

from __future__ import annotations

import dlc
import dlc.kernels as k


def interior(x):
    return k.Result([n - 2 for n in x.shape], x.dtype)


@dlc.kernel(results=interior)
def stencil(x, y, *, center=-6.0, width=16):
    """Sums of the six neighbors of each element, and the element times `center`."""
    depth, rows, columns = y.shape
    for i, j in k.grid(depth, rows):
        for c, lanes in k.strips(columns, width):

            def at(di, dj, dc, i=i + 1, j=j + 1, c=c + 1, lanes=lanes):
                return x.load(i + di, j + dj, c + dc, width=lanes)

            planes, lines = at(-1, 0, 0) + at(1, 0, 0), at(0, -1, 0) + at(0, 1, 0)
            y.store(i, j, c, value=k.fma(at(0, 0, 0), center, planes + lines + (at(0, 0, -1) + at(0, 0, 1))))

"""Finds clusters of points with k-means: one step is a compiled function, the loop around it is Python's.

    python examples/k_means.py [POINTS.npy] [CLUSTERS]

POINTS.npy holds one point a row; without it, three clouds of points are drawn.
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np

import dlc
import dlc.numpy as dnp


@dlc.jit
def step(points, centres):
    """New centres, the cluster of each point, and the mean squared distance to its centre."""
    # |p - c|² for every pair; the points' own squares come last, as they do not decide which centre is nearest.
    closeness = dnp.sum(centres**2, axis=1) - 2 * points @ centres.T
    cluster = dnp.argmin(closeness, axis=1)
    distance = dnp.mean(dnp.min(closeness, axis=1) + dnp.sum(points**2, axis=1))
    member = dnp.astype(cluster[:, None] == dnp.arange(len(centres)), points.dtype)
    count = member.sum(axis=0)[:, None]
    # A centre without points stays where it is.
    return dnp.where(count > 0, member.T @ points / dnp.maximum(count, 1), centres), cluster, distance


def first_centres(points: np.ndarray, clusters: int) -> np.ndarray:
    """Points far from one another: each is the farthest from those before it."""
    chosen = [points[0]]
    for _ in range(clusters - 1):
        chosen.append(points[np.min([((points - c) ** 2).sum(1) for c in chosen], axis=0).argmax()])
    return np.array(chosen)


def k_means(points: np.ndarray, clusters: int) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Centres, the cluster of each point, the mean squared distance, and the number of steps until nothing changed."""
    centres, cluster, steps = first_centres(points, clusters), np.empty(0), 0
    while True:
        centres, found, distance = step(points, centres)
        steps += 1
        if np.array_equal(found, cluster) or steps == 1000:
            return centres, found, float(distance), steps
        cluster = found


def clouds(size: int = 20_000) -> np.ndarray:
    """Points around three places of the plane."""
    draw = np.random.default_rng(0)
    middles = np.array([[0, 0], [6, 1], [2, 7]])
    return (middles[draw.integers(3, size=size)] + draw.standard_normal((size, 2))).astype(np.float32)


def main() -> None:
    points = np.load(sys.argv[1]).astype(np.float32) if len(sys.argv) > 1 else clouds()
    clusters = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    step(points, points[:clusters])  # compiles for these shapes
    began = perf_counter()
    centres, cluster, distance, steps = k_means(points, clusters)
    milliseconds = (perf_counter() - began) * 1e3
    print(f"{len(points)} points, {steps} steps in {milliseconds:.0f} ms, mean squared distance {distance:.3f}")
    for k, centre in enumerate(centres):
        print(f"cluster {k}: {np.count_nonzero(cluster == k)} points around ({', '.join(f'{c:.2f}' for c in centre)})")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")

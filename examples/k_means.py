"""Cluster points with k-means: one iteration is a compiled function, called in a Python loop until the clusters are stable.

    python examples/k_means.py [POINTS.npy] [CLUSTERS]

POINTS.npy is an array [N, D]; without it, three random point clouds in the plane are clustered.
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np

import dlc
import dlc.numpy as dnp


@dlc.jit
def step(points, centers):
    """Return new centers, the cluster of each point, and the mean squared distance of the points to their centers."""
    # |p - c|² = |c|² - 2 p·c + |p|²; |p|² is added last, since it does not affect which center is nearest.
    partial_distance = dnp.sum(centers**2, axis=1) - 2 * points @ centers.T
    cluster = dnp.argmin(partial_distance, axis=1)
    distance = dnp.mean(dnp.min(partial_distance, axis=1) + dnp.sum(points**2, axis=1))
    one_hot = dnp.astype(cluster[:, None] == dnp.arange(len(centers)), points.dtype)
    count = one_hot.sum(axis=0)[:, None]
    # A center without points stays where it is.
    return dnp.where(count > 0, one_hot.T @ points / dnp.maximum(count, 1), centers), cluster, distance


def initial_centers(points: np.ndarray, clusters: int) -> np.ndarray:
    """Choose points far from one another: each is the farthest from those chosen before."""
    centers = [points[0]]
    for _ in range(clusters - 1):
        centers.append(points[np.min([((points - c) ** 2).sum(1) for c in centers], axis=0).argmax()])
    return np.array(centers)


def k_means(points: np.ndarray, clusters: int) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Return the centers, the cluster of each point, the mean squared distance, and the number of steps taken."""
    centers, cluster, steps = initial_centers(points, clusters), np.empty(0), 0
    while True:
        centers, new_cluster, distance = step(points, centers)
        steps += 1
        if np.array_equal(new_cluster, cluster) or steps == 1000:
            return centers, new_cluster, float(distance), steps
        cluster = new_cluster


def point_clouds(size: int = 20_000) -> np.ndarray:
    """Draw normally distributed points around three centers in the plane."""
    rng = np.random.default_rng(0)
    means = np.array([[0, 0], [6, 1], [2, 7]])
    return (means[rng.integers(3, size=size)] + rng.standard_normal((size, 2))).astype(np.float32)


def main() -> None:
    points = np.load(sys.argv[1]).astype(np.float32) if len(sys.argv) > 1 else point_clouds()
    clusters = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    step(points, points[:clusters])  # the first call compiles for these shapes
    start = perf_counter()
    centers, cluster, distance, steps = k_means(points, clusters)
    milliseconds = (perf_counter() - start) * 1e3
    print(f"{len(points)} points, {steps} steps in {milliseconds:.0f} ms, mean squared distance {distance:.3f}")
    for k, center in enumerate(centers):
        print(f"cluster {k}: {np.count_nonzero(cluster == k)} points around ({', '.join(f'{c:.2f}' for c in center)})")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")

"""Samples of decision tree ensembles, against traversals from their roots."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.testing.sample import F32, F64, I32, I64, Sample, values


def _forest(dtype: np.dtype, rows: int, trees: int, outputs: int, kind: str) -> Sample:
    """Trees of two or three levels with nodes of each other's, and a row with NaN."""
    random = np.random.default_rng(trees)
    x = values(dtype, rows, 5)
    x[-1, ::2] = np.nan
    count = 7 * trees
    nodes = np.zeros((count, 4), I32 if dtype == F32 else I64)
    nodes[:, 0] = random.integers(0, 5, count)
    nodes[:, 1] = values(dtype, count, seed=1).view(nodes.dtype)
    nodes[:, 2:] = np.arange(count)[:, None]
    for tree in range(trees):
        # Nodes 0 to 2 are inner nodes, 3 to 6 are leaves; one leaf is less deep.
        inner = 7 * tree + np.array([[1, 2], [3, 4], [5, 6]])
        nodes[7 * tree : 7 * tree + (2 if tree % 2 else 3), 2:] = inner[: 2 if tree % 2 else 3]
    roots, levels = 7 * np.arange(trees, dtype=np.int32), 2 + np.arange(-(-trees // 8), dtype=np.int32)
    weights = values(dtype, count, outputs, seed=2)

    def walk(x: np.ndarray, nodes: np.ndarray, roots: np.ndarray, levels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        thresholds, y = np.ascontiguousarray(nodes[:, 1]).view(x.dtype), []
        for row in x:
            leaves = []
            for tree, root in enumerate(roots):
                at = int(root)
                for _ in range(levels[tree // 8]):
                    at = int(nodes[at, 2 if row[nodes[at, 0]] <= thresholds[at] else 3])
                leaves.append(weights[at])
            y.append({"add": np.sum, "min": np.min, "max": np.max}[kind](leaves, axis=0))
        return np.array(y)

    label = f"{rows}x{trees}x{outputs}_{kind}"
    return Sample(
        dl.TreeEnsembleOp, (x, nodes, roots, levels, weights), walk, {"kind": kind}, {F32: 1e-6}.get(dtype, 1e-14), label
    )


SAMPLES = [
    _forest(F32, 35, 11, 3, "add"),
    _forest(F32, 2, 3, 1, "max"),
    _forest(F64, 3, 8, 9, "min"),
]

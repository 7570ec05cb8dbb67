"""Scores of the best local alignments of sequences (Smith and Waterman, 1981), by anti-diagonals."""

from __future__ import annotations

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda a, b, costs: k.Result(a.shape[:1], costs.dtype))
def smith_waterman(a, b, costs, best, *, width=16):
    """Scores of aligning a[pairs, m] and b[pairs, n]; `costs` has the scores of a match, of a mismatch and of a gap."""
    pairs, m = a.shape
    n, padded = b.shape[1], -(-m // width) * width
    for p in k.grid(pairs):
        match, mismatch, gap = (costs[c] for c in range(3))
        # Element i of diagonal d aligns a[i] with b[d - i]; elements of `backward` outside of b match nothing.
        query = k.buffer(padded, a.dtype, fill=-1)
        backward = k.buffer(n + 2 * padded, b.dtype, fill=-2)
        for j in k.range(m):
            query[j] = a[p, j]
        for j in k.range(n):
            backward[padded + n - 1 - j] = b[p, j]
        scores, largest = k.buffer((3, padded + 1), costs.dtype), k.variable(k.full(width, 0, costs.dtype))
        for d in k.range(m + n - 1):
            new, last, before = ((d + 3 - age) % 3 for age in range(3))
            for i in k.range(0, padded, width):
                is_match = query.load(i, width=width) == backward.load(padded + n - 1 - d + i, width=width)
                diagonal = scores.load(before, i, width=width) + k.select(is_match, match, mismatch)
                gaps = k.maximum(scores.load(last, i, width=width), scores.load(last, i + 1, width=width)) + gap
                score = k.maximum(k.maximum(diagonal, gaps), 0)
                scores.store(new, i + 1, value=score)
                largest.value = k.maximum(largest.value, score)
        best[p] = largest.value.max()

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


@dlc.kernel(results=lambda a, b, costs: k.Result((a.shape[0], 3), costs.dtype))
def best_path_counts(a, b, costs, counts, *, width=16):
    """Numbers of matches, mismatches and gaps of the best alignments: the derivatives of the scores with respect to `costs`."""
    pairs, m = a.shape
    n, padded = b.shape[1], -(-m // width) * width
    for p in k.grid(pairs):
        query = k.buffer(padded, a.dtype, fill=-1)
        backward = k.buffer(n + 2 * padded, b.dtype, fill=-2)
        for j in k.range(m):
            query[j] = a[p, j]
        for j in k.range(n):
            backward[padded + n - 1 - j] = b[p, j]
        # Of each path: its score, and its numbers of matches, mismatches and gaps.
        paths = k.buffer((4, 3, padded + 1), costs.dtype)
        best = [k.variable(k.full(width, 0, costs.dtype)) for _ in range(4)]
        for d in k.range(m + n - 1):
            new, last, before = ((d + 3 - age) % 3 for age in range(3))
            for i in k.range(0, padded, width):
                is_match = query.load(i, width=width) == backward.load(padded + n - 1 - d + i, width=width)
                kinds = [k.select(is_match, costs[0], costs[1]), k.select(is_match, k.full(width, 1, costs.dtype), 0)]
                kinds += [1 - kinds[1], k.full(width, 0, costs.dtype)]
                path = [k.full(width, 0, costs.dtype)] * 4
                steps = [k.full(width, x, costs.dtype) for x in (costs[2], 0, 0, 1)]
                for age, shift, added in ((before, 0, kinds), (last, 0, steps), (last, 1, steps)):
                    other = [paths.load(x, age, i + shift, width=width) + added[x] for x in range(4)]
                    is_better = other[0] > path[0]
                    path = [k.select(is_better, x, y) for x, y in zip(other, path, strict=True)]
                is_best = path[0] > best[0].value
                for x in range(4):
                    paths.store(x, new, i + 1, value=path[x])
                    best[x].value = k.select(is_best, path[x], best[x].value)
        lane, scores = k.iota(width, costs.dtype), best[0].value
        first = k.select(scores == scores.max(), lane, width).min()
        counts.store(p, 0, value=k.stack([k.select(lane == first, best[x].value, 0).sum() for x in (1, 2, 3)]))


@dlc.custom_vjp
def alignment_scores(a, b, costs):
    """Scores of the best alignments, with derivatives with respect to the costs."""
    return smith_waterman(a, b, costs)


alignment_scores.defvjp(
    lambda a, b, costs: (smith_waterman(a, b, costs), best_path_counts(a, b, costs)),
    lambda counts, g: (None, None, g @ counts),
)

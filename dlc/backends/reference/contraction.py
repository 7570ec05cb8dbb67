"""Evaluate sums of products over an iteration space as matrix products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.backends.reference.values import Array

MATRIX_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def contract(u: Array, v: Array, extents: Sequence[int], reduced: Sequence[int]) -> Array:
    """Return Σ u·v over the `reduced` axes, which have size 1 in the result.

    u and v have one axis per iterator, of the iterator's extent, or of size 1 where they do not depend on it.
    """
    repeats = 1
    for axis in reduced:
        # If only one factor depends on the axis, sum that factor first; if neither does, the product is repeated.
        if u.shape[axis] == 1 and v.shape[axis] == 1:
            repeats *= extents[axis]
        elif v.shape[axis] == 1:
            u = u.sum(axis=axis, keepdims=True, dtype=u.dtype)
        elif u.shape[axis] == 1:
            v = v.sum(axis=axis, keepdims=True, dtype=v.dtype)
    product = _matrix_product(u, v, reduced)
    return product if repeats == 1 else product * np.asarray(repeats, product.dtype)


def _matrix_product(u: Array, v: Array, reduced: Sequence[int]) -> Array:
    axes = range(u.ndim)
    k = [a for a in axes if a in reduced]
    batch = [a for a in axes if a not in k and u.shape[a] != 1 and v.shape[a] != 1]
    n = [a for a in axes if a not in k and a not in batch and v.shape[a] != 1]
    m = [a for a in axes if a not in k and a not in batch and a not in n]

    def matrices(x: Array, rows: list[int], columns: list[int]) -> Array:
        sizes = [int(np.prod([x.shape[a] for a in group])) for group in (batch, rows, columns)]
        return x.transpose([*batch, *rows, *columns, *[a for a in axes if a not in (*batch, *rows, *columns)]]).reshape(sizes)

    a, b = matrices(u, m, k), matrices(v, k, n)
    c = _multiply(a, b)
    # Transpose from (batch, m, n), each with its axes in order, to the order of the iterators.
    order = [*batch, *m, *n, *k]
    sizes = [max(u.shape[axis], v.shape[axis]) for axis in (*batch, *m, *n)] + [1] * len(k)
    return c.reshape(sizes).transpose(np.argsort(order))


def _multiply(a: Array, b: Array) -> Array:
    if a.shape[1] == 1 and b.shape[2] == 1:
        # One dot product per batch entry (depthwise convolution): a matmul call each would cost more than the arithmetic.
        return np.einsum("bk,bk->b", a[:, 0], b[:, :, 0])[:, None, None]
    if a.dtype in MATRIX_DTYPES:
        return a @ b
    if a.dtype.kind in "iu" and a.size and b.size:
        max_magnitude = float(np.abs(a.astype(np.float64)).max()) * float(np.abs(b.astype(np.float64)).max()) * a.shape[2]
        if max_magnitude < 2**53:
            # The result is exact in f64, which has a fast matrix product.
            return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(a.dtype)
    return a @ b

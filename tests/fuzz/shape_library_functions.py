"""Steps of random functions with symbolic sizes: library functions, transformations, indexing, nested conditions, caches.

Each draws the settings of a step of `shape_functions.py`. With NumPy (`xp is np`), functions that NumPy lacks compute a result
of the same shape only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import dlc
from dlc import lax, nn, ragged

# The computation of a step, with the array functions `xp` (NumPy or dlc.numpy).
Compute = Callable[..., Any]


def _map_rows(xp: Any, function: Callable[..., Any], *arrays: Any) -> Any:
    """Apply a function to the rows of arrays: by `dlc.vmap`, or by a loop over NumPy arrays."""
    return np.stack([function(*rows) for rows in zip(*arrays, strict=True)]) if xp is np else dlc.vmap(function)(*arrays)


def _gradient(xp: Any, function: Callable[[Any], Any], x: Any) -> Any:
    """Return the gradient of the sum of a function's squared result, which has the shape of `x`."""

    def loss(value: Any) -> Any:
        result = function(value)
        return xp.sum(result * result)

    return np.full(x.shape, loss(x), np.float32) if xp is np else dlc.grad(loss)(x)


def batched(draw: random.Random) -> Compute:
    """A function under vmap over a symbolic axis."""
    index, count = draw.choice([0, 1, -2]), draw.choice([1, 2, 3])
    return draw.choice(
        [
            lambda xp, x: _map_rows(xp, lambda row: row[index] + xp.sum(row), x),
            lambda xp, x: _map_rows(xp, lambda row: xp.concatenate([row, row[:count]]), x),
            lambda xp, x, y: _map_rows(xp, lambda a, b: xp.matmul(a, xp.transpose(b)), x, y),
            lambda xp, x: _map_rows(xp, lambda row: xp.reshape(row, (-1, count)), x),
            lambda xp, x, y: _map_rows(xp, lambda row: row + y, x),
            lambda xp, x: _map_rows(xp, lambda row: row * row.shape[0] + x.shape[0], x),
            lambda xp, x: _map_rows(xp, lambda row: xp.cumsum(row, axis=0), xp.transpose(x)),
            lambda xp, x: _map_rows(xp, lambda row: xp.pad(row, (count, 0)), x),
            lambda xp, x: _map_rows(xp, lambda row: row[::-1] if row.shape[0] > count else row * 2, x),
        ]
    )


def differentiated(draw: random.Random) -> Compute:
    """A gradient of a function of sizes; functions of earlier steps seldom end at the bounds, where gradients jump."""
    count, start = draw.choice([1, 2, 3]), draw.choice([0, 1, -3])
    return draw.choice(
        [
            lambda xp, x: _gradient(xp, lambda v: xp.clip(v, -1.07, 1.07)[start:], x),
            lambda xp, x: _gradient(xp, lambda v: xp.reshape(v, (count, -1)) * 0.5, x),
            lambda xp, x: _gradient(xp, lambda v: xp.concatenate([v, v[:count]]) / 4, x),
            lambda xp, x, y: _gradient(xp, lambda v: xp.clip(v, -1.07, 1.07) + xp.clip(y, -1.07, 1.07), x),
            lambda xp, x, y: _gradient(xp, lambda v: xp.matmul(xp.clip(v, -1.07, 1.07), xp.clip(y, -1.07, 1.07)), x),
            lambda xp, x: _gradient(xp, lambda v: xp.max(xp.clip(v, -2, 2), axis=0) / 3, x),
            lambda xp, x: _gradient(xp, lambda v: xp.mean(v, axis=-1) if v.shape[0] > count else xp.sum(v) / 100, x),
            lambda xp, x: _gradient(xp, lambda v: xp.pad(v, ((count, 0), *((0, 0) for _ in v.shape[1:])), mode="edge") / 4, x),
            lambda xp, x: _gradient(xp, lambda v: xp.take(v, xp.arange(v.shape[0]) // 2, axis=0) / 4, x),
            lambda xp, x: _gradient(
                xp, lambda v: lax.fori_loop(0, v.shape[0] // 4, lambda k, c: c * 0.5, v) if xp is not np else v, x
            ),
        ]
    )


def layer(draw: random.Random) -> Compute:
    """A layer of a neural network, with symbolic heads, channels or images."""
    window, stride, is_causal = draw.choice([1, 2, 3]), draw.choice([1, 2]), draw.choice([True, False])
    padding = draw.choice(["valid", "same"])

    def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
        q, k, v = (xp.clip(a, -1, 1) for a in (q, k, v))
        if xp is not np:
            return nn.attention(q, k, v, causal=is_causal)
        return np.matmul(np.matmul(q, np.swapaxes(k, -1, -2)), v)

    def pool(xp: Any, x: Any) -> Any:
        image = xp.reshape(x, (1, *x.shape, 1))
        return x if xp is np else xp.reshape(nn.max_pool(image, window, stride, padding), (-1,))

    return draw.choice(
        [
            attention,
            lambda xp, x: attention(xp, x, x, x),
            lambda xp, x: attention(xp, *(xp.reshape(x, (1, 2, -1, x.shape[-1])) for _ in range(3))),
            pool,
            lambda xp, x: x if xp is np else nn.softmax(x, axis=0),
            lambda xp, x: x if xp is np else nn.layer_norm(x, xp.ones(x.shape[-1:]), xp.zeros(x.shape[-1:])),
            lambda xp, x: xp.take(x, xp.arange(x.shape[-1]) % 2, axis=0),
        ]
    )


def indexed(draw: random.Random) -> Compute:
    """Gathers and scatters by positions that depend on sizes, and sorting."""
    count = draw.choice([1, 2, 3, 5])

    def scattered(xp: Any, x: Any, rows: Any, value: Any) -> Any:
        if xp is not np:
            return xp.at(x)[rows].add(value)
        result = x.copy()
        np.add.at(result, rows, value)
        return result

    return draw.choice(
        [
            lambda xp, x: x[xp.arange(x.shape[0]) // count],
            lambda xp, x: x[xp.arange(count)],
            lambda xp, x: x[xp.arange(x.shape[0] // count) * count],
            lambda xp, x, y: x[xp.arange(y.shape[0])],
            lambda xp, x: xp.take(x, xp.asarray([0, -1, count]), axis=0),
            lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=0), axis=0),
            lambda xp, x: xp.sort(x, axis=-1)[..., -count:],
            lambda xp, x: scattered(xp, x, xp.arange(x.shape[0]) // count, 2),
            lambda xp, x: scattered(xp, x, xp.arange(count), 1),
            lambda xp, x: xp.argmax(x, axis=0),
            lambda xp, x, y: xp.searchsorted(xp.sort(xp.ravel(x)), xp.ravel(y)),
            lambda xp, x: xp.where(x > 0, x, xp.flip(x, axis=0)),
            lambda xp, x: xp.median(x, axis=0),
            lambda xp, x: x[:, None] + x[..., :1],
            lambda xp, x: x[..., x.shape[-1] // 2 :, :][:count],
        ]
    )


def rearranged(draw: random.Random) -> Compute:
    """Rearrangements of several arrays, and contractions of several axes."""
    count = draw.choice([1, 2, 3])
    return draw.choice(
        [
            lambda xp, x, y: xp.tensordot(x, y, axes=1),
            lambda xp, x, y: xp.kron(x, y),
            lambda xp, x, y: xp.outer(x, y),
            lambda xp, x: xp.diagonal(x),
            lambda xp, x: xp.tril(x, count - 2),
            lambda xp, x: xp.rot90(x, count),
            lambda xp, x, y: xp.vstack([x, y]),
            lambda xp, x, y: xp.stack([x, y], axis=1),
            lambda xp, x, y: xp.convolve(xp.ravel(x), xp.ravel(y)[:count]),
            lambda xp, x: xp.gradient(x, axis=0),
            lambda xp, x: xp.linspace(0, 1, x.shape[0]),
            lambda xp, x: xp.concatenate(xp.array_split(x, count)[::-1]),
            lambda xp, x: xp.reshape(xp.repeat(x, count, axis=-1), (*x.shape[:-1], count, -1)),
            lambda xp, x: xp.einsum("ij,ik,jk->i", x, x, x),
            lambda xp, x, y: xp.einsum("ii,ij->j", x, y),
            lambda xp, x: xp.var(x, axis=0),
            lambda xp, x: xp.moveaxis(x, 0, -1),
            lambda xp, x: xp.broadcast_to(xp.expand_dims(x, 0), (x.shape[-1], *x.shape)),
            lambda xp, x: xp.meshgrid(x, xp.arange(x.shape[0] // 2))[1],
        ]
    )


def nested_condition(draw: random.Random) -> Compute:
    """Nested Python conditions on sizes, jitted functions inside of the function, and loops over sizes."""
    limit, other = draw.choice([2, 4, 6]), draw.choice([1, 3, 8])

    def nested(xp: Any, x: Any, y: Any) -> Any:
        if x.shape[0] > limit:
            return x[:limit] if y.shape[0] < other else x[limit:]
        return xp.concatenate([x, x]) if x.shape[0] * 2 >= y.shape[0] + other else x * 3

    def jitted(xp: Any, x: Any) -> Any:
        def halve(value: Any) -> Any:
            return value[: value.shape[0] // 2] if value.shape[0] % 2 == 0 else value[1:]

        return halve(x) if xp is np else dlc.jit(halve)(x)

    def growing(xp: Any, x: Any, y: Any) -> Any:
        cache = x
        for _ in range(2):
            cache = xp.concatenate([cache, y])
        return cache[-limit:] if limit < other else cache[cache.shape[0] - x.shape[0] :]

    def in_loop(xp: Any, x: Any) -> Any:
        return lax.fori_loop(0, x.shape[0], lambda k, c: c + (x[:1] if x.shape[0] > limit else x[-1:]), x * 0)

    def in_branch(xp: Any, x: Any, y: Any) -> Any:
        return lax.cond(
            xp.asarray(x.shape[0] > limit), lambda: xp.sum(x) + (0 if y.shape[0] else 1), lambda: xp.sum(y) * x.shape[0]
        )

    def chained(xp: Any, x: Any, y: Any) -> Any:
        rows = min(x.shape[0], y.shape[0], limit)
        return xp.concatenate([x[:rows], y[:rows]]) if rows > 1 else y

    return draw.choice([nested, jitted, growing, in_loop, in_branch, chained])


def selected(draw: random.Random) -> Compute:
    """Data-dependent sizes that are concatenated, split, padded, reshaped, broadcast, scanned or compared."""
    limit, count = draw.choice([-1, 0, 2]), draw.choice([1, 2, 3])

    def of(operation: Callable[[Any, Any], Any]) -> Compute:
        return lambda xp, x: operation(xp, x[x > limit])

    return draw.choice(
        [
            of(lambda xp, v: xp.concatenate([v, v[:count], v])),
            of(lambda xp, v: xp.array_split(v, count)[0]),
            of(lambda xp, v: xp.pad(v, (count, 1))),
            of(lambda xp, v: xp.reshape(v, (1, 1, -1))),
            of(lambda xp, v: v[:, None] * v),
            of(lambda xp, v: lax.scan(lambda c, row: (c + row, c), xp.asarray(np.float32(0)), v)[1]),
            of(lambda xp, v: v[-count:]),
            of(lambda xp, v: xp.sort(v)[::-1]),
            of(lambda xp, v: xp.cumsum(v)[v.shape[0] // 2 :]),
            of(lambda xp, v: v[v > limit + 1]),
            of(lambda xp, v: xp.arange(v.shape[0]) * 2),
            of(lambda xp, v: xp.zeros((v.shape[0], count)) + v[:, None]),
            of(lambda xp, v: xp.mean(v[:count]) if xp is np else xp.mean(v)),
            lambda xp, x: x[xp.nonzero(xp.sum(x, axis=-1))[0]],
            lambda xp, x, y: xp.concatenate([x[x > limit], xp.ravel(y)]),
            lambda xp, x, y: xp.outer(x[x > limit], y[y > limit]),
            lambda xp, x, y: xp.einsum("i,j->ij", x[x > limit], y[y <= limit]),
        ]
    )


def ragged_rows(draw: random.Random) -> Compute:
    """A ragged array whose lengths depend on a size, with sums, expansions or attention per sequence."""
    count = draw.choice([1, 2])

    def of(operation: Callable[[Any], Any]) -> Compute:
        def compute(xp: Any, x: Any) -> Any:
            if xp is np:
                return x
            rows = x.shape[0]
            lengths = xp.stack([xp.asarray(rows // (count + 1)), xp.asarray(rows - rows // (count + 1))])
            return operation(ragged.Ragged(x, xp.astype(lengths, np.int64)))

        return compute

    return draw.choice([of(ragged.sum), of(ragged.max), of(lambda r: ragged.reverse(r).values), of(ragged.last)])


STEPS: dict[str, Callable[[random.Random], Compute]] = {
    "batched": batched,
    "differentiated": differentiated,
    "layer": layer,
    "indexed": indexed,
    "rearranged": rearranged,
    "nested_condition": nested_condition,
    "selected": selected,
    "ragged": ragged_rows,
}

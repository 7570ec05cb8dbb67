"""Steps of random functions with symbolic sizes: statistics, sets, polynomials, segments, layers, and loops with such states.

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


def statistics(draw: random.Random) -> Compute:
    """Order statistics, cumulative functions and histograms along symbolic axes."""
    count, axis, fraction = draw.choice([1, 2, 3]), draw.choice([0, -1, None]), draw.choice([0, 0.25, 0.5, 1])
    return draw.choice(
        [
            lambda xp, x: xp.quantile(x, fraction, axis=axis),
            lambda xp, x: xp.percentile(x, [25, 100 * fraction], axis=axis),
            lambda xp, x: xp.average(x, axis=axis),
            lambda xp, x: xp.average(x, axis=0, weights=xp.arange(x.shape[0]) + 1),
            lambda xp, x: xp.ptp(x, axis=axis),
            lambda xp, x: xp.argmin(x, axis=axis),
            lambda xp, x: xp.cumprod(xp.clip(x, -1, 1), axis=axis),
            lambda xp, x: xp.nansum(xp.where(x > 1, xp.nan, x), axis=axis),
            lambda xp, x: xp.nanmax(xp.where(x > 2, xp.nan, x), axis=axis),
            lambda xp, x: xp.partition(x, count, axis=-1)[..., count],
            lambda xp, x: xp.count_nonzero(x, axis=axis),
            lambda xp, x: xp.trapezoid(x, axis=0),
            lambda xp, x: xp.cov(x),
            lambda xp, x, y: xp.digitize(x, xp.sort(xp.ravel(y))),
            lambda xp, x, y: xp.interp(x, xp.arange(y.shape[0]), y),
            lambda xp, x, y: xp.isin(x, y),
            lambda xp, x: xp.lexsort((xp.ravel(x), -xp.ravel(x))),
            lambda xp, x: xp.allclose(x, xp.flip(x)),
            lambda xp, x, y: xp.array_equal(x, y),
            lambda xp, x: x if xp is np else xp.top_k(x, min(count, x.shape[-1]))[0],
            lambda xp, x: x[: x.shape[0] // 2] if xp is np else xp.top_k(xp.transpose(x), x.shape[0] // 2)[0],
        ]
    )


def assembled(draw: random.Random) -> Compute:
    """Arrays assembled from others: stacks, blocks, insertions, deletions and splits."""
    count, axis = draw.choice([1, 2, 3]), draw.choice([0, -1])
    return draw.choice(
        [
            lambda xp, x, y: xp.hstack([x, y]),
            lambda xp, x, y: xp.dstack([x, y]),
            lambda xp, x, y: xp.column_stack([x, y]),
            lambda xp, x: xp.block([[x, x * 2], [x * 3, x]]),
            lambda xp, x: xp.insert(x, count - 1, 7, axis=axis),
            lambda xp, x: xp.delete(x, count - 1, axis=axis),
            lambda xp, x: xp.delete(x, slice(count, None, 2), axis=0),
            lambda xp, x, y: xp.append(x, y, axis=0),
            lambda xp, x: xp.ediff1d(x, to_begin=xp.asarray([1.0])),
            lambda xp, x: xp.hsplit(x, count)[-1],
            lambda xp, x: xp.vsplit(x, [count, -count])[1],
            lambda xp, x: xp.diagflat(x, count - 2),
            lambda xp, x: xp.trace(x, count - 2),
            lambda xp, x: xp.atleast_3d(x),
            lambda xp, x: xp.vander(xp.ravel(xp.clip(x, -1, 1)), count),
            lambda xp, x: x[count:-count:count],
            lambda xp, x: x[::-count],
            lambda xp, x: x[..., -count::-1],
            lambda xp, x: x[x.shape[0] // 2 :: -1],
            lambda xp, x: x[None, ..., None, :count],
            lambda xp, x, y: xp.trim_zeros(xp.ravel(xp.where(x > 0, x, 0))),
            lambda xp, x, y: xp.correlate(xp.ravel(x), xp.ravel(y)[:count], mode="same"),
            lambda xp, x: xp.roll(x, (count, -1), axis=(0, -1)),
            lambda xp, x: xp.roll(x, x.shape[0] - count, axis=0),
            lambda xp, x: xp.logspace(0, 1, x.shape[0] // count),
        ]
    )


def sets(draw: random.Random) -> Compute:
    """Sets, positions, and selections that are combined."""
    limit = draw.choice([-1, 0, 2])
    return draw.choice(
        [
            lambda xp, x, y: xp.intersect1d(x, y),
            lambda xp, x, y: xp.union1d(x, y),
            lambda xp, x, y: xp.setdiff1d(x, y),
            lambda xp, x, y: xp.setxor1d(x, y),
            lambda xp, x: xp.unique(x, return_counts=True)[1],
            lambda xp, x: xp.unique(x, return_inverse=True)[1].reshape(x.shape),
            lambda xp, x: xp.argwhere(x > limit),
            lambda xp, x: xp.flatnonzero(x > limit),
            lambda xp, x: xp.extract(x > limit, x),
            lambda xp, x: xp.compress(xp.ravel(x)[: x.shape[0]] > limit, x, axis=0),
            lambda xp, x: xp.stack(xp.unravel_index(xp.arange(x.size), x.shape)),
            lambda xp, x: xp.ravel_multi_index((xp.arange(x.shape[0]), xp.arange(x.shape[0]) % x.shape[1]), x.shape),
            lambda xp, x: xp.stack(xp.triu_indices(x.shape[0], limit)),
            lambda xp, x: x[xp.tril_indices(x.shape[0])],
            lambda xp, x: xp.searchsorted(xp.unique(x), x, side="right"),
            lambda xp, x: xp.bincount(xp.astype(xp.ravel(xp.abs(x)), np.int64) % 5, minlength=x.shape[0]),
        ]
    )


def products(draw: random.Random) -> Compute:
    """Products, norms and transforms of several symbolic axes; equations with repeated letters."""
    count = draw.choice([1, 2, 3])
    equation = draw.choice(["ii,i->i", "ij,jk,kl->il", "iij->j", "ij,ik->ijk", "ijk,ijl->kl", "i...,i...->...", "ii,jj,ij->i"])
    return draw.choice(
        [
            lambda xp, x, y: xp.einsum(
                equation, *([x, y, x] if equation.count(",") == 2 else [x, y] if "," in equation else [x])
            ),
            lambda xp, x, y: xp.inner(x, y),
            lambda xp, x, y: xp.dot(x, y),
            lambda xp, x, y: xp.vdot(x, y),
            lambda xp, x, y: xp.vecdot(x, y),
            lambda xp, x, y: xp.tensordot(x, y, axes=([0], [0])),
            lambda xp, x: xp.linalg.multi_dot([x, xp.transpose(x), x]),
            lambda xp, x: xp.linalg.matrix_norm(x),
            lambda xp, x: xp.round(xp.real(xp.fft.fft2(x)) * 16) / 16,
            lambda xp, x: xp.round(xp.fft.irfft2(xp.fft.rfft2(x)) * 16) / 16,
            lambda xp, x: xp.round(xp.real(xp.fft.ifft(x, n=x.shape[-1] + count)) * 16) / 16,
            lambda xp, x: xp.round(xp.real(xp.fft.fft(x, n=x.shape[0], axis=-1)) * 16) / 16,
            lambda xp, x: xp.fft.ifftshift(x, axes=0),
            lambda xp, x, y: xp.polyval(xp.clip(xp.ravel(y)[:count], -1, 1), xp.clip(x, -1, 1)),
            lambda xp, x, y: xp.polymul(xp.ravel(x), xp.ravel(y)),
            lambda xp, x, y: xp.cross(x[..., :3], y[..., :3]),
        ]
    )


def segments(draw: random.Random) -> Compute:
    """Reductions of segments whose number is a size, rows in groups, and ragged arrays."""
    count = draw.choice([1, 2, 3])

    def summed(xp: Any, x: Any, ids: Any, number: Any) -> Any:
        start = xp.zeros((number, *x.shape[1:]), np.float32)
        if xp is not np:
            return xp.at(start)[ids].add(x)
        np.add.at(start, ids, x)
        return start

    def padded(xp: Any, x: Any) -> Any:
        if xp is np:
            return x
        rows = x.shape[0]
        lengths = xp.astype(xp.stack([xp.asarray(rows // 2), xp.asarray(rows - rows // 2)]), np.int64)
        return ragged.to_padded(ragged.Ragged(x, lengths), rows)[0]

    return draw.choice(
        [
            lambda xp, x: summed(xp, x, xp.arange(x.shape[0]) // count, x.shape[0] // count + 1),
            lambda xp, x, y: summed(xp, x, xp.arange(x.shape[0]) % max(y.shape[0], 1), max(y.shape[0], 1)),
            lambda xp, x: summed(xp, x, xp.astype(xp.abs(xp.ravel(x))[: x.shape[0]], np.int64) % x.shape[0], x.shape[0]),
            lambda xp, x: xp.sum(xp.reshape(x[: x.shape[0] // count * count], (-1, count, *x.shape[1:])), axis=1),
            lambda xp, x: xp.reshape(x[: x.shape[0] - x.shape[0] % 2], (2, -1)),
            lambda xp, x: xp.concatenate([x[k::count] for k in range(count)]),
            lambda xp, x: x if xp is np else nn.one_hot(xp.arange(x.shape[0]) // 2, x.shape[-1]),
            padded,
        ]
    )


def windows(draw: random.Random) -> Compute:
    """Convolutions, transposed convolutions and pools of symbolic images, channels and batches."""
    window, stride, dilation = draw.choice([1, 2, 3]), draw.choice([1, 2, 3]), draw.choice([1, 2])
    padding, function = draw.choice(["valid", "same"]), draw.choice(["conv", "conv_transpose", "avg_pool", "max_pool", "norm"])

    def compute(xp: Any, x: Any) -> Any:
        if xp is np:
            return np.ravel(x)
        image = xp.reshape(x, draw_shape(x))
        if function == "conv":
            weights = xp.ones((window, window, 1, 2), np.float32)
            return nn.conv(image, weights, strides=stride, padding=padding, dilation=dilation)
        if function == "conv_transpose":
            return nn.conv_transpose(image, xp.ones((window, window, 1, 2), np.float32), strides=stride, padding=padding)
        if function == "norm":
            return nn.group_norm(image, 1, xp.ones(image.shape[-1:]), xp.zeros(image.shape[-1:]))
        return getattr(nn, function)(image, window, stride, padding)

    def draw_shape(x: Any) -> tuple[Any, ...]:
        return (1, *x.shape, 1) if x.ndim == 2 else (*x.shape, 1)

    return lambda xp, x: xp.ravel(compute(xp, x))


def symbolic_states(draw: random.Random) -> Compute:
    """Loops over symbolic axes whose states have symbolic sizes, nested ones, their gradients, and batches of loops."""
    count = draw.choice([1, 2, 3])

    def of(function: Callable[[Any, Any], Any]) -> Compute:
        return lambda xp, x: x if xp is np else function(xp, x)

    def halved(xp: Any, x: Any) -> Any:
        return lax.while_loop(
            lambda c: xp.max(xp.abs(c[0])) > 1, lambda c: (c[0] / 2, c[1] + x.shape[0]), (xp.clip(x, -9, 9), 0)
        )

    def updated(xp: Any, x: Any) -> Any:
        return lax.fori_loop(0, x.shape[0] // count, lambda k, c: xp.at(c)[x.shape[0] - 1 - k].set(c[k] * 0.5), x)

    def nested(xp: Any, x: Any) -> Any:
        def outer(total: Any, row: Any) -> Any:
            inner = lax.fori_loop(0, x.shape[-1] // count, lambda k, c: c * 0.5 + row, total)
            return inner, xp.concatenate([inner, row])

        return lax.scan(outer, x[0] * 0, x)[1]

    def switched(xp: Any, x: Any) -> Any:
        choices = [lambda v: v[::-1], lambda v: v * 2, lambda v: xp.roll(v, count, axis=0)]
        return lax.switch(xp.asarray(x.shape[0] % 3), choices, x)

    def grown(xp: Any, x: Any) -> Any:
        cache = x[:0]
        for k in range(count + 1):
            cache = xp.concatenate([cache, x * k])
        return cache[-x.shape[0] :] if count > 1 else cache

    def differentiated(xp: Any, x: Any) -> Any:
        def loss(v: Any) -> Any:
            return xp.sum(lax.scan(lambda c, row: (c * 0.5 + row, c * row), v[0] * 0.5, v[1:])[1])

        return dlc.grad(loss)(xp.clip(x, -2, 2))

    def mapped(xp: Any, x: Any) -> Any:
        return dlc.vmap(lambda row: lax.fori_loop(0, x.shape[0] // count, lambda k, c: c * 0.5 + row[::-1], row))(x)

    def jitted(xp: Any, x: Any) -> Any:
        inner = dlc.jit(lambda v, n: xp.concatenate([v[:n], v]) if n < v.shape[0] else v, static_argnames=("n",))
        return dlc.jit(lambda v: inner(v, count) * v.shape[0])(x)

    def perturbed(xp: Any, x: Any) -> Any:
        return dlc.jvp(
            lambda v: xp.concatenate([v[: v.shape[0] // 2] * v[: v.shape[0] // 2], xp.cumsum(v, 0)]), (x,), (x * 0 + 1,)
        )[1]

    def hessian_diagonal(xp: Any, x: Any) -> Any:
        return dlc.grad(lambda v: xp.sum(dlc.grad(lambda w: xp.sum(xp.clip(w, -2.03, 2.03)[:count] ** 3))(v)))(x)

    functions = [halved, updated, nested, switched, grown, differentiated, mapped, jitted, perturbed, hessian_diagonal]
    chosen = draw.choice(functions)
    return of((lambda xp, x: chosen(xp, x)[0]) if chosen is halved else chosen) if chosen is not grown else grown


def remainders(draw: random.Random) -> Compute:
    """Sums, products, quotients and remainders of two symbols as sizes, and conditions on them."""
    count = draw.choice([2, 3, 5])
    return draw.choice(
        [
            lambda xp, x, y: xp.zeros((x.shape[0] + y.shape[0], 2)) + xp.concatenate([x, y])[:, :1],
            lambda xp, x, y: xp.arange(x.shape[0] * y.shape[0]).reshape(x.shape[0], y.shape[0]),
            lambda xp, x, y: xp.arange(x.shape[0] * y.shape[0]).reshape(y.shape[0], -1) % count,
            lambda xp, x, y: x[: (x.shape[0] + y.shape[0]) // 2],
            lambda xp, x, y: x[x.shape[0] % (y.shape[0] + 1) :],
            lambda xp, x, y: x[: x.shape[0] // (y.shape[0] + 1)],
            lambda xp, x: x[x.shape[0] % count :],
            lambda xp, x: xp.pad(x, ((0, -x.shape[0] % count), *((0, 0) for _ in x.shape[1:]))),
            lambda xp, x: xp.reshape(xp.pad(x, ((0, -x.shape[0] % count), *((0, 0) for _ in x.shape[1:]))), (-1, count)),
            lambda xp, x: x[: x.shape[0] // count * count].reshape(count, -1),
            lambda xp, x, y: x[: y.shape[0]] if x.shape[0] % count == y.shape[0] % count else xp.concatenate([x, x[:1]]),
            lambda xp, x, y: x if divmod(x.shape[0], count)[1] < y.shape[0] // count else x * 2,
            lambda xp, x: x * float(x.shape[0] / count) if x.shape[0] ** 2 > 30 else x + x.shape[0] / count,
            lambda xp, x, y: xp.ones((max(x.shape[0], y.shape[0]), 1)) * min(x.shape[0], y.shape[0], count),
            lambda xp, x, y: xp.eye(x.shape[0] * count, y.shape[0] + 1, -count),
            lambda xp, x: x.shape[0] * x if 0 in x.shape or x.shape[-1] in (1, count) else x.shape[-1] + x,
            lambda xp, x: xp.sum(x[: x.shape[0] - 2 * count if x.shape[0] > 2 * count else None], axis=0),
            lambda xp, x: sum((x[k : k + 1] for k in range(count) if k < x.shape[0]), xp.zeros((1, *x.shape[1:]))),
        ]
    )


STEPS: dict[str, Callable[[random.Random], Compute]] = {
    "statistics": statistics,
    "assembled": assembled,
    "sets": sets,
    "products": products,
    "segments": segments,
    "windows": windows,
    "symbolic_states": symbolic_states,
    "remainders": remainders,
}

"""Steps of random functions with symbolic sizes: computed sizes as operands, equal derived sizes, solvers, aliased results.

Each draws the settings of a step of `shape_functions.py`. With NumPy (`xp is np`), functions that NumPy lacks compute a result
of the same shape only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import dlc
from dlc import lax

# The computation of a step, with the array functions `xp` (NumPy or dlc.numpy).
Compute = Callable[..., Any]


def repeated(draw: random.Random) -> Compute:
    """Sizes as strides, repetitions, shifts, offsets and numbers of elements, some of which may be negative."""
    amount, divisor = draw.choice([0, 1, 3, 5]), draw.choice([1, 2, 3])
    return draw.choice(
        [
            lambda xp, x: x[:: x.shape[0] // 4 + 1],
            lambda xp, x: x[:: -(x.shape[0] // 3) - 1],
            lambda xp, x: xp.repeat(x, x.shape[0] // divisor, axis=0),
            lambda xp, x: xp.tile(x, x.shape[-1] // divisor),
            lambda xp, x: xp.tile(x, (x.shape[0] - amount, 1)),
            lambda xp, x: xp.roll(x, x.shape[0] // divisor + amount, axis=0),
            lambda xp, x: xp.zeros(x.shape[0] - amount),
            lambda xp, x: xp.zeros((x.shape[0] - amount) * divisor),
            lambda xp, x: xp.ones((x.shape[0] - 2 * x.shape[-1] + amount, 2)),
            lambda xp, x: xp.arange(x.shape[0], amount, -divisor),
            lambda xp, x: xp.arange(0, x.shape[0] * x.shape[-1], x.shape[-1] + 1),
            lambda xp, x: xp.eye(x.shape[0], x.shape[-1] + amount, divisor),
            lambda xp, x: xp.tri(x.shape[0], x.shape[-1], x.shape[0] // 2 - amount),
            lambda xp, x: xp.diagonal(x, offset=amount - 2),
            lambda xp, x: xp.triu(x, x.shape[0] // divisor - amount),
            lambda xp, x: xp.pad(x, ((x.shape[0] // divisor, 0), *((0, 0) for _ in x.shape[1:]))),
            lambda xp, x, y: xp.pad(x, ((0, y.shape[0]), *((0, 0) for _ in x.shape[1:])), mode="edge"),
            lambda xp, x, y: xp.pad(x, ((0, y.shape[0] - x.shape[0]), *((0, 0) for _ in x.shape[1:]))),
            lambda xp, x: xp.sort(x, axis=0)[: x.shape[0] // divisor],
            lambda xp, x: xp.sort(x, axis=-1)[..., x.shape[-1] - 1 - amount],
            lambda xp, x: x[x.shape[0] // 2],
            lambda xp, x: x[-(x.shape[0] // 2) - 1],
            lambda xp, x, y: x[x.shape[0] - y.shape[0]],
            lambda xp, x: xp.linspace(0, 1, 2 * x.shape[0] - amount),
        ]
    )


def equal_sizes(draw: random.Random) -> Compute:
    """Derived sizes that an operation requires to be equal: 2N = M + 1, N·M = K, N // 2 = M - 1."""
    count = draw.choice([1, 2, 3])
    return draw.choice(
        [
            lambda xp, x, y: xp.concatenate([x, x]) + xp.concatenate([y, y[:1]]),
            lambda xp, x, y: xp.concatenate([x, x[1:]]) + y,
            lambda xp, x, y: xp.ravel(x) + xp.ravel(y),
            lambda xp, x, y: xp.ravel(x) + y,
            lambda xp, x, y: x[: x.shape[0] // 2] + y[1:],
            lambda xp, x, y: x[::2] * y,
            lambda xp, x, y: xp.repeat(x, count, axis=0) + xp.repeat(y, 2, axis=0),
            lambda xp, x, y: xp.reshape(x, (y.shape[0], -1)) + y[:, None],
            lambda xp, x, y: xp.reshape(xp.concatenate([x, x]), (y.shape[0], 2, -1)),
            lambda xp, x, y: xp.reshape(x, (-1, y.shape[0] + 1)),
            lambda xp, x, y: xp.reshape(x, (y.shape[0] - count, -1)),
            lambda xp, x, y: xp.reshape(xp.outer(x, y), (y.shape[0], -1)),
            lambda xp, x, y: xp.matmul(xp.reshape(x, (1, -1)), xp.reshape(y, (-1, 1))),
            lambda xp, x, y: xp.broadcast_to(x[:1], (y.shape[0] - count, *x.shape[1:])),
            lambda xp, x, y: xp.stack([x[: y.shape[0]], y[: x.shape[0]]]),
            lambda xp, x, y: xp.where(xp.ravel(x) > 0, xp.ravel(y)[: x.size], 1),
            lambda xp, x, y: xp.concatenate([x, y], axis=-1) if x.shape[0] * 2 == y.shape[0] + x.shape[0] else x[:1],
            lambda xp, x, y: x * 2 if x.size == y.size else y[:1],
            lambda xp, x, y: xp.sum(x) if x.shape[0] * y.shape[0] > 20 + x.shape[0] else xp.sum(y),
            lambda xp, x, y: xp.einsum("ii,jj->ij", x, y),
            lambda xp, x, y: xp.einsum("aab,b->a", x, y),
            lambda xp, x, y: xp.einsum("ij,ji->", x, y),
            lambda xp, x, y: xp.einsum("ij,ij,j->i", x, y, y[0]),
            lambda xp, x: xp.einsum("ij,jk,ki->i", x, x, x),
        ]
    )


def solved(draw: random.Random) -> Compute:
    """Factorizations, solutions and Fourier transforms along symbolic axes.

    Results are rounded, so that later steps that compare elements do not depend on their rounding errors. Multiples of small
    fractions, such as the rounded results of an earlier step, are no ties.
    """

    def rounded(xp: Any, x: Any) -> Any:
        return xp.round(x * 64 + 0.3) / 64

    def regular(xp: Any, x: Any) -> Any:
        return xp.clip(x, -1, 1) + 2 * x.shape[-1] * xp.eye(x.shape[-1])

    count = draw.choice([1, 2, 5])
    compute = draw.choice(
        [
            lambda xp, x: xp.linalg.inv(regular(xp, x)),
            lambda xp, x: xp.log(xp.linalg.det(regular(xp, x) / (2 * x.shape[-1] + 1))),
            lambda xp, x: xp.linalg.slogdet(regular(xp, x))[1],
            lambda xp, x, y: xp.linalg.solve(regular(xp, x), y),
            lambda xp, x: xp.linalg.cholesky(xp.matmul(regular(xp, x), xp.transpose(regular(xp, x)))),
            lambda xp, x: xp.linalg.eigvalsh(regular(xp, x)),
            lambda xp, x: xp.linalg.svdvals(x),
            lambda xp, x: xp.abs(xp.linalg.qr(regular(xp, x))[1]),
            lambda xp, x: xp.linalg.matrix_power(xp.clip(x, -1, 1) / 4, count),
            lambda xp, x: xp.linalg.pinv(regular(xp, x)),
            lambda xp, x: xp.linalg.norm(x, count, axis=-1),
            lambda xp, x: xp.real(xp.fft.fft(x)),
            lambda xp, x: xp.abs(xp.fft.rfft(x, axis=0)),
            lambda xp, x: xp.fft.irfft(xp.fft.rfft(x)),
            lambda xp, x: xp.fft.fftshift(x),
            lambda xp, x: xp.fft.fftfreq(x.shape[0]),
        ]
    )
    if compute.__code__.co_argcount == 2:
        return lambda xp, x: rounded(xp, compute(xp, x))
    return lambda xp, x, y: rounded(xp, compute(xp, x, y))


def sized(draw: random.Random) -> Compute:
    """Sizes of the arguments, or numbers of selected elements, as integer arguments of functions."""
    amount, divisor = draw.choice([0, 1, 3]), draw.choice([1, 2, 3])
    size = draw.choice(
        [
            lambda x: x.shape[0] // divisor,
            lambda x: x.shape[-1] + amount,
            lambda x: x.shape[0] - amount,
            lambda x: x[x > 0].shape[0],
            lambda x: x[x > 0].shape[0] // divisor,
        ]
    )
    function = draw.choice(
        [
            lambda xp, x, n: xp.repeat(x, n, axis=-1),
            lambda xp, x, n: xp.tile(x, (n, 2)),
            lambda xp, x, n: xp.roll(x, n - divisor, axis=0),
            lambda xp, x, n: xp.concatenate(xp.array_split(x, [amount, n], axis=0)[::-1]),
            lambda xp, x, n: xp.split(x.reshape(-1), divisor)[0],
            lambda xp, x, n: xp.broadcast_to(x.reshape(-1)[:divisor], (2, n)),
            lambda xp, x, n: xp.diag(xp.arange(divisor), n),
            lambda xp, x, n: xp.indices((n, divisor)),
            lambda xp, x, n: xp.tril_indices(n, amount - 1, divisor)[0],
            lambda xp, x, n: xp.bincount(xp.arange(divisor), minlength=n),
            lambda xp, x, n: xp.histogram(x, n)[0],
            lambda xp, x, n: xp.asarray([n, amount, n * n]),
            lambda xp, x, n: xp.power(xp.arange(4), n),
            lambda xp, x, n: xp.geomspace(1.0, 4.0, n),
            lambda xp, x, n: xp.pad(x, ((amount, divisor), *((0, 0) for _ in x.shape[1:])), mode="symmetric"),
            lambda xp, x, n: x.reshape(-1)[-n:],
            lambda xp, x, n: x.reshape(-1)[n : -n or None],
            lambda xp, x, n: xp.concatenate([x[:n], x[n:]]) + x,
            lambda xp, x, n: xp.std(x.reshape(-1)[:n], ddof=1),
        ]
    )
    return lambda xp, x: function(xp, x, size(x))


def aliased(draw: random.Random) -> Compute:
    """Results that share memory with operands, functions jitted with their own symbols, and donated arguments."""
    count = draw.choice([1, 2])

    def named(xp: Any, x: Any) -> Any:
        def stretch(value: Any) -> Any:
            return xp.concatenate([value, value[:count]]) if value.shape[0] > 3 else value * 2

        return stretch(x) if xp is np else dlc.jit(stretch, dynamic={"value": {0: "P"}})(x)

    def crossed(xp: Any, x: Any, y: Any) -> Any:
        def combine(a: Any, b: Any) -> Any:
            return xp.concatenate([a, b]) if a.shape[0] < b.shape[0] else a[: b.shape[0]]

        return combine(x, y) if xp is np else dlc.jit(combine, dynamic={"a": {0: "M"}, "b": {0: "N"}})(x, y)

    def carried(xp: Any, x: Any) -> Any:
        if xp is np:
            return x
        return lax.fori_loop(0, x.shape[0] // 2, lambda _, c: (c[1], c[0]), (x, x * 2))[count % 2]

    return draw.choice(
        [
            lambda xp, x: x,
            lambda xp, x: x[:],
            lambda xp, x: xp.reshape(x, x.shape),
            lambda xp, x: xp.reshape(x, (1, *x.shape)),
            lambda xp, x: xp.transpose(xp.transpose(x)),
            lambda xp, x: x[: x.shape[0]],
            lambda xp, x: xp.broadcast_to(x, x.shape),
            lambda xp, x: xp.concatenate([x[: x.shape[0] // 2], x[x.shape[0] // 2 :]]),
            lambda xp, x: xp.concatenate([x, x[:0]]),
            named,
            crossed,
            carried,
        ]
    )


STEPS: dict[str, Callable[[random.Random], Compute]] = {
    "repeated": repeated,
    "equal_sizes": equal_sizes,
    "solved": solved,
    "sized": sized,
    "aliased": aliased,
}

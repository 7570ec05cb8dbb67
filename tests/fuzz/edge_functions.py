"""The functions of `edge_values`: each takes a library, `dlc.numpy` or NumPy with loops, and arrays."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax, nn

_NARROW = ("int8", "uint8", "int16", "uint16")
_INTEGERS = (*_NARROW, "int32", "uint32", "int64", "uint64")


class Library:
    """Array functions of `dlc.numpy` or NumPy, and loops."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def take(self, x: Any, indices: Any, mode: str) -> Any:
        if self.module is np and mode == "wrap":
            # NumPy's own loop subtracts the size once per iteration.
            return x[np.asarray(indices, np.int64) % x.shape[0]]
        return self.module.take(x, indices, mode=mode)

    def fori_loop(self, first: Any, end: Any, body: Callable[[Any, Any], Any], state: Any) -> Any:
        if self.module is dnp:
            return lax.fori_loop(first, end, body, state)
        for k in range(int(first), int(end)):
            state = body(k, state)
        return state


@dataclass(frozen=True)
class Draw:
    """Parameters of a function: integers at the ends of dtypes, and the length of its arrays."""

    random: random.Random
    integers: Sequence[int]
    length: int

    @property
    def small(self) -> int:
        return self.random.choice([0, 1, 2, 3, 5, 7])

    @property
    def dtype(self) -> str:
        return self.random.choice(_INTEGERS)

    def choice(self, *values: Any) -> Any:
        return self.random.choice(values)


Function = Callable[..., Any]


def _arithmetic(draw: Draw) -> Function:
    a, size = draw.integers[0], draw.small
    return draw.choice(
        lambda n, x, y: x + y,
        lambda n, x, y: x - y,
        lambda n, x, y: x * y,
        lambda n, x, y: x // y,
        lambda n, x, y: x % y,
        lambda n, x, y: n.fmod(x, y),
        lambda n, x, y: n.minimum(x, y),
        lambda n, x, y: n.maximum(x, y),
        lambda n, x, y: x & y,
        lambda n, x, y: x ^ y,
        lambda n, x, y: n.where(x > y, x, y),
        lambda n, x: (n.abs(x), n.sign(x), -x, ~x, n.square(x)),
        lambda n, x: x + a,
        lambda n, x: a - x,
        lambda n, x: x * a,
        lambda n, x: x // a,
        lambda n, x: x % a,
        lambda n, x: n.minimum(x, a),
        lambda n, x: x << size,
        lambda n, x: x >> size,
        lambda n, x: x**size,
        lambda n, x: n.divmod(x, size + 1),
    )


def _compare(draw: Draw) -> Function:
    a = draw.integers[0]
    return draw.choice(
        lambda n, x, y: (x < y, x <= y, x == y, x != y),
        lambda n, x: (x < a, x <= a, x == a, x != a, a > x),
        lambda n, x, y: n.isin(x, y.astype(x.dtype)),
        lambda n, x: n.isin(x, [a, 1, 300]),
        lambda n, x, y: n.equal(x, y).sum(),
        lambda n, x, y: (n.array_equal(x, y), n.array_equiv(x, y)),
        lambda n, x: n.count_nonzero(x),
        lambda n, x, y: n.logical_xor(x, y),
    )


def _with_sizes(draw: Draw) -> Function:
    k = draw.small
    return draw.choice(
        lambda n, x: x * x.shape[0],
        lambda n, x: x + x.shape[0],
        lambda n, x: x.shape[0] - x,
        lambda n, x: x // (x.shape[0] + 1),
        lambda n, x: x % (x.shape[0] + 1),
        lambda n, x: x == x.shape[0],
        lambda n, x: x < x.shape[0] - k,
        lambda n, x: n.clip(x, 0, x.shape[0]),
        lambda n, x: n.clip(x, -k, x.shape[0] - 1),
        lambda n, x: n.maximum(x, x.shape[0]),
        lambda n, x: n.where(x > k, x, x.shape[0]),
        lambda n, x: n.full_like(x, x.shape[0]),
        lambda n, x: n.pad(x, (k, 1), constant_values=x.shape[0]),
        lambda n, x: n.arange(x.shape[0]) * x,
        lambda n, x: n.arange(x.shape[0], dtype=x.dtype) + x,
        lambda n, x: n.roll(x, x.shape[0] + k),
        lambda n, x: n.roll(x, -k) - x,
        lambda n, x: x.sum() // (x.shape[0] + 1),
        lambda n, x: x[x.shape[0] // 2 :],
        lambda n, x: x[-k:] if k else x[k:],
        lambda n, x: x[max(x.shape[0] - 3, 0) :],
        lambda n, x: n.take(x, x % (x.shape[0] + 1), mode="clip"),
        lambda n, x: n.linspace(0, x.shape[0], 5, dtype="float64"),
        lambda n, x: n.searchsorted(n.arange(x.shape[0]), x),
    )


def _positions(draw: Draw) -> Function:
    a, b, step = draw.integers[0], draw.integers[1], draw.choice(1, 2, -1, -3, draw.integers[2] or 1)
    mode = draw.choice("wrap", "clip")
    dtype = draw.dtype
    return draw.choice(
        lambda n, x: x[a:b:step],
        lambda n, x: x[a:],
        lambda n, x: x[:b],
        lambda n, x: x[::step],
        lambda n, x: n.roll(x, a),
        lambda n, x, y: n.take(x, y.astype("int64"), mode=mode),
        lambda n, x: n.take(x, n.array([a, b]), mode=mode),
        lambda n, x: n.take(x, n.array([1, 2, 200]).astype(dtype), mode=mode),
        lambda n, x: n.repeat(x, 3),
        lambda n, x, y: n.searchsorted(n.sort(x), y),
        lambda n, x, y: n.searchsorted(n.sort(x), y, side="right"),
        lambda n, x: n.searchsorted(n.sort(x), a),
        lambda n, x, y: n.digitize(x, n.sort(y)),
        lambda n, x: n.argsort(x, stable=True) if n.module is dnp else np.argsort(x, kind="stable"),
        lambda n, x: n.sort(x),
        lambda n, x: n.flip(x)[:3],
        lambda n, x: n.bincount(n.clip(x, 0, 9), minlength=12),
        lambda n, x: n.arange(n.module.iinfo(dtype).max - 3, n.module.iinfo(dtype).max) + 0 * x.sum(),
        lambda n, x: n.array([a, b]) + 0 * x.shape[0],
        lambda n, x: n.full(3, n.iinfo(dtype).max, dtype) + 0 * x.shape[0],
    )


def _reductions(draw: Draw) -> Function:
    dtype = draw.dtype
    return draw.choice(
        lambda n, x: (x.sum(), x.prod()),
        lambda n, x: n.sum(x, dtype=dtype),
        lambda n, x: n.prod(x, dtype=dtype),
        lambda n, x: (n.cumsum(x), n.cumprod(x)),
        lambda n, x: n.cumsum(x, dtype=dtype),
        lambda n, x: (x.max(), x.min(), n.ptp(x)),
        lambda n, x: (n.argmax(x), n.argmin(x)),
        lambda n, x: n.max(x, initial=3),
        lambda n, x: (n.any(x), n.all(x)),
        lambda n, x: n.diff(x),
        lambda n, x, y: n.dot(x, y),
        lambda n, x, y: n.outer(x, y)[:5, :5],
        lambda n, x, y: n.convolve(x, y) if x.shape[0] else x,
        lambda n, x: n.sum(x > 3),
        lambda n, x: n.median(x),
        lambda n, x: n.trapezoid(x),
        lambda n, x: n.unique(x),
    )


def _conversions(draw: Draw) -> Function:
    dtype, other = draw.dtype, draw.dtype
    return draw.choice(
        lambda n, x: x.astype(dtype),
        lambda n, x: x.astype(dtype).astype(other),
        lambda n, x: x.astype("float32"),
        lambda n, x: x.astype("float64"),
        lambda n, x: x.astype("float16"),
        lambda n, x: x.astype(bool),
        lambda n, x, y: n.concatenate([x, y]),
        lambda n, x, y: n.stack([x, y]),
        lambda n, x, y: n.where(x > 1, x.astype(dtype), y),
        lambda n, x: x.astype("float32") > x,
        lambda n, x: (x > 0) + x,
        lambda n, x: n.true_divide(x, x.astype(dtype)),
        lambda n, x: n.sqrt(x.astype("uint32")),
    )


def _counters(draw: Draw) -> Function:
    k, dtype = draw.small, draw.choice(*_NARROW)
    return draw.choice(
        lambda n, x: n.fori_loop(0, k, lambda i, s: s + i, x),
        lambda n, x: n.fori_loop(0, x.shape[0], lambda i, s: s + 1, n.zeros((), dtype)),
        lambda n, x: n.fori_loop(0, x.shape[0], lambda i, s: s + i, n.zeros((), "int64")),
        lambda n, x: n.fori_loop(-k, x.shape[0], lambda i, s: n.where(x > i, s, x), x),
        lambda n, x: n.fori_loop(0, x.shape[0], lambda i, s: s + x[i], n.zeros((), x.dtype)),
        lambda n, x: n.fori_loop(0, k, lambda i, s: s * 2 + (x == i), n.zeros(x.shape, "int32")),
    )


INTEGER_FUNCTIONS: dict[str, Callable[[Draw], Function]] = {
    "arithmetic": _arithmetic,
    "compare": _compare,
    "with_sizes": _with_sizes,
    "positions": _positions,
    "reductions": _reductions,
    "conversions": _conversions,
    "counters": _counters,
}

_COMPLEX_UNARY = (
    "sqrt exp log log2 log10 sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh abs angle conj "
    "negative real imag isfinite isnan isinf sign exp2"
)


def _unary(name: str) -> Function:
    return lambda n, x: getattr(n, name)(x)


COMPLEX_FUNCTIONS: dict[str, Function] = {
    **{name: _unary(name) for name in _COMPLEX_UNARY.split()},
    "add": lambda n, x, y: x + y,
    "subtract": lambda n, x, y: x - y,
    "multiply": lambda n, x, y: x * y,
    # NumPy's quotient of a finite and an infinite number is undefined; C99's is 0.
    "divide": lambda n, x, y: x / n.where(n.isinf(y), 1, y),
    "equal": lambda n, x, y: (x == y, x != y),
    "select": lambda n, x, y: n.where(x.real > 0, x, y),
    "cast": lambda n, x: x.real.astype("float64") + 1j,
    "from_parts": lambda n, x: x.real + 1j * x.imag,
}


def _gradient(function: Function) -> Function:
    return lambda n, x: dlc.grad(lambda v: function(v).astype("float32"))(x)


def _extremum_gradient(reduce: Callable[[Any], Any]) -> Function:
    """Return the gradient of an extremum: equal elements share it."""

    def gradient(x: Any) -> Any:
        is_extremum = x == reduce(x)
        return (is_extremum / is_extremum.sum()).astype(x.dtype)

    return gradient


def _exact_softmax(x: Any) -> Any:
    powers = np.exp(x.astype(np.float64) - x.max())
    return (powers / powers.sum()).astype(x.dtype)


# Functions, and their definitions in NumPy.
COUNTED_FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "max_gradient": (_gradient(dnp.max), _extremum_gradient(np.max)),
    "min_gradient": (_gradient(dnp.min), _extremum_gradient(np.min)),
    "nanmax_gradient": (_gradient(dnp.nanmax), _extremum_gradient(np.nanmax)),
    "mean": (lambda n, x: n.mean(x), lambda x: x.astype(np.float64).mean().astype(x.dtype)),
    "variance": (lambda n, x: n.var(x), lambda x: x.astype(np.float64).var().astype(x.dtype)),
    "softmax": (lambda n, x: nn.softmax(x), _exact_softmax),
    "argmax": (lambda n, x: n.argmax(x), np.argmax),
    "count": (lambda n, x: n.sum(x == x[0]), lambda x: np.sum(x == x[0])),
    "cumulative_count": (lambda n, x: n.cumsum(x == x[0])[-3:], lambda x: np.cumsum(x == x[0])[-3:]),
    "mean_gradient": (_gradient(dnp.mean), lambda x: np.full_like(x, 1 / x.size)),
    "median": (lambda n, x: n.median(x), np.median),
    "norm": (lambda n, x: n.linalg.norm(x), lambda x: np.sqrt((x.astype(np.float64) ** 2).sum()).astype(x.dtype)),
}

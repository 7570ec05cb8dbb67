"""Random kernels: a function of a kernel language, run by `dlc.kernels` and by `NumpyLanguage`, which computes with NumPy."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

import dlc.kernels as k

FLOATS, INTEGERS = ("float32", "float64"), ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
_WIDTHS = (1, 2, 3, 4, 8, 16)
_MAX_EXPRESSION_DEPTH = 3

Block = Callable[[], None]


class Language(Protocol):
    """The functions of a kernel language that differ between `dlc.kernels` and NumPy."""

    def grid(self, *sizes: int, **hints: Any) -> Iterator[Any]: ...
    def range(self, start: Any, stop: Any, step: int = 1, unroll: int = 1) -> Iterator[Any]: ...
    def when(self, condition: Any, block: Block) -> None: ...
    def index(self, x: Any, size: int) -> Any: ...
    def select(self, condition: Any, x: Any, y: Any) -> Any: ...
    def maximum(self, x: Any, y: Any) -> Any: ...
    def minimum(self, x: Any, y: Any) -> Any: ...
    def fma(self, x: Any, y: Any, z: Any) -> Any: ...
    def convert(self, x: Any, dtype: str) -> Any: ...
    def variable(self, value: Any, dtype: str | None = None) -> Any: ...
    def buffer(self, shape: Sequence[int], dtype: str) -> Any: ...
    def full(self, width: int, value: Any, dtype: str) -> Any: ...


class KernelLanguage:
    """`dlc.kernels`."""

    grid, range = staticmethod(k.grid), staticmethod(k.range)
    select, maximum, minimum, fma = map(staticmethod, (k.select, k.maximum, k.minimum, k.fma))
    variable, buffer, full = map(staticmethod, (k.variable, k.buffer, k.full))

    def when(self, condition: Any, block: Block) -> None:
        with k.when(condition):
            block()

    def index(self, x: Any, size: int) -> Any:
        return k.clip(x, size)

    def convert(self, x: Any, dtype: str) -> Any:
        return x.astype(dtype)


class _Variable:
    def __init__(self, value: Any, dtype: str | None = None) -> None:
        self.value = value if dtype is None else np.dtype(dtype).type(value)


class NumpyArray:
    """An array with the accesses of references to arrays in kernels."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __getitem__(self, indices: Any) -> Any:
        return self.array[indices]

    def __setitem__(self, indices: Any, value: Any) -> None:
        self.array[indices] = value

    def load(self, *indices: int, width: int, axis: int = -1, fill: Any = None) -> Any:
        return np.array(
            [self.array[p] if self._contains(p) else fill for p in self._positions(indices, width, axis)], self.array.dtype
        )

    def store(self, *indices: int, value: Any, axis: int = -1, masked: bool = False) -> None:
        for position, element in zip(self._positions(indices, len(value), axis), value, strict=True):
            if self._contains(position):
                self.array[position] = element

    def _positions(self, indices: Sequence[int], width: int, axis: int) -> list[tuple[int, ...]]:
        axis %= self.array.ndim
        return [tuple(i + offset * (d == axis) for d, i in enumerate(indices)) for offset in range(width)]

    def _contains(self, position: tuple[int, ...]) -> bool:
        return all(0 <= i < n for i, n in zip(position, self.array.shape, strict=True))


class NumpyLanguage:
    """Kernels as loops over NumPy scalars and vectors."""

    select, fma, variable = staticmethod(np.where), staticmethod(lambda x, y, z: x * y + z), _Variable
    maximum, minimum = staticmethod(np.maximum), staticmethod(np.minimum)

    def grid(self, *sizes: int, **_: Any) -> Iterator[Any]:
        points = itertools.product(*map(range, sizes))
        return (p[0] for p in points) if len(sizes) == 1 else points

    def range(self, start: int, stop: int, step: int = 1, unroll: int = 1) -> Iterator[int]:
        return iter(range(start, stop, step))

    def when(self, condition: Any, block: Block) -> None:
        if condition:
            block()

    def index(self, x: Any, size: int) -> int:
        return min(max(int(x), 0), size - 1)

    def convert(self, x: Any, dtype: str) -> Any:
        return np.asarray(x).astype(dtype)[()]

    def buffer(self, shape: Sequence[int], dtype: str) -> NumpyArray:
        return NumpyArray(np.zeros(shape, dtype))

    def full(self, width: int, value: Any, dtype: str) -> Any:
        return np.full(width, value, dtype)


class RandomKernel:
    """A kernel of x[n, m], another array of that shape, and integers ids[n], which writes y[n, m].

    Numbers are small multiples of 1/4, so that arithmetic on floats is exact.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.n, self.m = self.random.choice(_SIZES), self.random.choice(_SIZES)
        self.dtype = self.random.choice((*FLOATS, *FLOATS, *INTEGERS))
        self.is_float = self.dtype in FLOATS
        self.width = self.random.choice(_WIDTHS)
        self.body = self.random.choice((self._elements, self._rows, self._vectors, self._scans, self._buffers, self._lanes))()

    def inputs(self, seed: int) -> list[np.ndarray]:
        rng, shape = np.random.default_rng(seed), (self.n, self.m)
        if self.is_float:
            x, other = (rng.integers(-8, 9, shape).astype(self.dtype) / 4 for _ in range(2))
        else:
            limits = np.iinfo(self.dtype)
            x, other = (rng.integers(limits.min, limits.max, shape, self.dtype, endpoint=True) for _ in range(2))
        return [x, other, rng.integers(-3, self.n + 3, self.n).astype(np.int32)]

    def run(self, language: Language, x: Any, other: Any, ids: Any, y: Any) -> None:
        self.body(language, x, other, ids, y)

    def expected(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        y = np.zeros((self.n, self.m), self.dtype)
        with np.errstate(all="ignore"):
            self.run(NumpyLanguage(), *map(NumpyArray, (*inputs, y)))
        return y

    # Expressions: functions of a language and of the values that they may read

    def _number(self) -> Any:
        number = self.random.choice((0, 1, 2, 3, -1, -2))
        return np.dtype(self.dtype).type(number / 2 if self.is_float else number % 128 if self.dtype[0] == "u" else number)

    def _expression(self, depth: int = _MAX_EXPRESSION_DEPTH) -> Callable[[Any, Sequence[Any]], Any]:
        if depth == 0 or self.random.random() < 0.15:
            position = self.random.randrange(8)
            return lambda _, values: values[position % len(values)]
        a, b, c = (self._expression(depth - 1) for _ in range(3))
        number = self._number()
        choices: list[Callable[[Any, Sequence[Any]], Any]] = [
            lambda L, v: a(L, v) + b(L, v),
            lambda L, v: a(L, v) - b(L, v),
            lambda L, v: a(L, v) * b(L, v),
            lambda L, v: number - a(L, v),
            lambda L, v: number * a(L, v),
            lambda L, v: -a(L, v),
            lambda L, v: abs(a(L, v)),
            lambda L, v: a(L, v) ** 2,
            lambda L, v: L.maximum(a(L, v), b(L, v)),
            lambda L, v: L.minimum(a(L, v), number),
            lambda L, v: L.select(a(L, v) < b(L, v), c(L, v), a(L, v)),
            lambda L, v: L.select((a(L, v) >= number) & ~(b(L, v) == c(L, v)), b(L, v), c(L, v)),
        ]
        if self.is_float:
            choices.append(lambda L, v: L.fma(a(L, v), b(L, v), c(L, v)))
        else:
            shift, wider = self.random.randrange(8), self.random.choice(INTEGERS)
            choices += [
                lambda L, v: a(L, v) // b(L, v),
                lambda L, v: a(L, v) % b(L, v),
                lambda L, v: (a(L, v) & b(L, v)) | ~c(L, v),
                lambda L, v: a(L, v) ^ b(L, v),
                lambda L, v: a(L, v) << shift,
                lambda L, v: a(L, v) >> shift,
                lambda L, v: L.convert(L.convert(a(L, v), wider), self.dtype),
            ]
        return self.random.choice(choices)

    # Bodies

    def _hints(self, sizes: int) -> dict[str, Any]:
        return self.random.choice([{}, {}, {"parallel": 3}, {"tile": (2,) * sizes}])

    def _elements(self) -> Callable[..., None]:
        """One store per element, under conditions, with neighbors at clipped indices."""
        f, g, hints, (di, dj) = self._expression(), self._expression(), self._hints(2), self.random.choices(range(-3, 4), k=2)
        limit = self.random.randrange(9)

        def body(L: Any, x: Any, other: Any, ids: Any, y: Any) -> None:
            for i, j in L.grid(self.n, self.m, **hints):
                neighbor = other[L.index(i + di, self.n), L.index(j * 2 + dj, self.m)]
                values = (x[i, j], neighbor, x[L.index(ids[i], self.n), j])
                y[i, j] = f(L, values)

                def inside(i: Any = i, j: Any = j, values: Any = values) -> None:
                    L.when(values[0] > values[1], lambda: y.__setitem__((i, j), g(L, (x[i - 1, j], *values))))

                L.when((i > 0) & ((j < limit) | (j == self.m - 1)), inside)

        return body

    def _rows(self) -> Callable[..., None]:
        """A sequential loop per row, with a variable, a step and data-dependent bounds."""
        f, g, hints = self._expression(2), self._expression(1), self._hints(1)
        start, step, unroll = self.random.randrange(3), self.random.randint(1, 3), self.random.choice((1, 1, 2, 4))

        def body(L: Any, x: Any, other: Any, ids: Any, y: Any) -> None:
            for i in L.grid(self.n, **hints):
                total = L.variable(0, self.dtype)
                for j in L.range(start, self.m, step, unroll=unroll):
                    total.value = g(L, (f(L, (x[i, j], other[i, j])), x[i, j]))
                    y[i, j] = total.value
                for j in L.range(0, L.index(ids[i], self.n) if self.n <= self.m else self.m):
                    y[i, j] = y[i, j] + total.value

        return body

    def _vectors(self) -> Callable[..., None]:
        """Masked vectors along an axis, which start outside of the array."""
        f, width, axis, offset = self._expression(), self.width, self.random.choice((0, 1)), self.random.randint(-2, 2)
        fill, is_reduced = self._number(), self.random.random() < 0.3

        def body(L: Any, x: Any, other: Any, ids: Any, y: Any) -> None:
            sizes = (self.n, self.m)
            for i, t in L.grid(sizes[1 - axis], -(-sizes[axis] // width)):
                start, shifted = ((p, i) if axis == 0 else (i, p) for p in (width * t, width * t + offset))
                a = x.load(*start, width=width, axis=axis, fill=fill)
                b = other.load(*shifted, width=width, axis=axis, fill=fill)
                result = f(L, (a, b))
                if is_reduced:
                    result = result + L.full(width, b.max(), self.dtype)
                y.store(*start, value=result, axis=axis, masked=True)

        return body

    def _scans(self) -> Callable[..., None]:
        """A recurrence along rows, by the previous element of the result."""
        f = self._expression(2)

        def body(L: Any, x: Any, other: Any, ids: Any, y: Any) -> None:
            for i in L.grid(self.n):
                for j in L.range(1, self.m):
                    y[i, j] = L.maximum(f(L, (x[i, j], other[i, j])), y[i, j - 1])

        return body

    def _buffers(self) -> Callable[..., None]:
        """A local buffer that reverses rows."""
        f = self._expression(2)

        def body(L: Any, x: Any, other: Any, ids: Any, y: Any) -> None:
            for i in L.grid(self.n):
                memory = L.buffer((2, self.m), self.dtype)
                for j in L.range(0, self.m):
                    memory[j % 2, self.m - 1 - j] = f(L, (x[i, j], other[i, j]))
                for j in L.range(0, self.m):
                    y[i, j] = memory[0, j] - memory[1, j]

        return body

    def _lanes(self) -> Callable[..., None]:
        """Points in the lanes of vectors."""
        f, width = self._expression(), max(self.width, 2)

        def body(L: Any, x: Any, other: Any, ids: Any, y: Any) -> None:
            for i, j in L.grid(self.n, self.m, vectorize=width):
                total = L.variable(f(L, (x[i, j], other[i, j])))
                for r in L.range(0, i + 1):
                    total.value = L.maximum(total.value, x[r, j])
                y[i, j] = total.value

        return body


KERNEL_LANGUAGE = KernelLanguage()

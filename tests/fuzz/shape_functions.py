"""Random functions of shape operations, Python conditions on sizes, loops and selections, over arrays with symbolic sizes."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc import lax
from dlc.errors import ShapeError
from tests.fuzz import shape_computed_functions as computed_functions
from tests.fuzz import shape_library_functions as library_functions
from tests.fuzz import shape_numpy_functions as numpy_functions
from tests.fuzz.random_shapes import DRAWN_SIZES
from tests.kernels import kernels

Array = NDArray[Any]
# The computation of a step, with the array functions `xp` (NumPy or dlc.numpy).
Compute = Callable[..., Any]
_STATIC_SIZES = (1, 2, 3, 6)
_MAX_ELEMENTS = 4096
_MAX_STEPS = 6


@dataclass(frozen=True)
class Step:
    """One operation `name` on earlier values, given by their indices."""

    name: str
    compute: Compute
    operands: Sequence[int]


class RandomShapeFunction:
    """The function of a seed, and the shapes of its `inputs` as sizes and symbols.

    Steps are drawn for `DRAWN_SIZES`, for which the function is valid; other sizes may violate what it requires.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        symbols = self.random.sample([*DRAWN_SIZES], self.random.randint(1, 4))
        self.inputs: dict[str, tuple[str | int, ...]] = {}
        for k in range(self.random.randint(1, 3)):
            rank = self.random.choice([1, 2, 2, 3])
            self.inputs[f"x{k}"] = tuple(
                self.random.choice([*symbols, *symbols, self.random.choice(_STATIC_SIZES)]) for _ in range(rank)
            )
        self.steps: list[Step] = []
        shapes = [[DRAWN_SIZES[s] if isinstance(s, str) else s for s in shape] for shape in self.inputs.values()]
        self._values = [np.ones(shape, np.float32) for shape in shapes]
        for _ in range(60):
            if len(self.steps) >= _MAX_STEPS:
                break
            self._draw(self.random.choice([*STEPS]))

    def _draw(self, name: str) -> None:
        """Append a step, unless it is invalid or its result is too large for the drawn sizes."""
        compute = STEPS[name](self.random)
        count = compute.__code__.co_argcount - 1
        recent = range(max(0, len(self._values) - 3), len(self._values))
        operands = [
            self.random.choice(recent if self.random.random() < 0.6 else range(len(self._values))) for _ in range(count)
        ]
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                result = np.asarray(compute(np, *(self._values[k] for k in operands)), np.float32)
        except Exception:  # NumPy raises errors of many types for an invalid step, which is not drawn.
            return
        if result.size <= _MAX_ELEMENTS and result.ndim <= 4:
            self.steps.append(Step(name, compute, operands))
            self._values.append(result)

    @property
    def dynamic(self) -> dict[str, dict[int, str]]:
        """The symbolic axes of the inputs, as `dlc.jit` takes them."""
        return {name: {k: s for k, s in enumerate(shape) if isinstance(s, str)} for name, shape in self.inputs.items()}

    def python_function(self, xp: Any) -> Callable[..., Any]:
        """Return a function of the inputs that uses the array functions of `xp`."""

        def compute(*inputs: Any) -> Any:
            values = [*inputs]
            for step in self.steps:
                values.append(xp.asarray(step.compute(xp, *(values[k] for k in step.operands)), dtype=np.float32))
            read = {k for step in self.steps for k in step.operands}
            return tuple(v for k, v in enumerate(values) if k not in read and k >= len(inputs))

        # Symbolic axes are declared by argument name.
        functions: dict[str, Any] = {"compute": compute}
        names = ", ".join(self.inputs)
        exec(f"def function({names}): return compute({names})", functions)
        return functions["function"]

    def __str__(self) -> str:
        return ", ".join(f"{step.name}{tuple(step.operands)}" for step in self.steps)


def _reshape(draw: random.Random) -> Compute:
    n = draw.choice([1, 2, 3, 4, 6])
    shape = draw.choice([(-1, n), (n, -1), (-1,), (-1, 1, n)])
    return lambda xp, x: xp.reshape(x, shape)


def _reshape_by_size(draw: random.Random) -> Compute:
    return draw.choice(
        [
            lambda xp, x: xp.reshape(x, (x.shape[0], -1)),
            lambda xp, x: xp.reshape(x, (x.shape[1], -1)),
            lambda xp, x: xp.reshape(x, (x.shape[0] * x.shape[1], -1)),
            lambda xp, x: xp.reshape(x, (2, x.shape[0] // 2, *x.shape[1:])),
            lambda xp, x, y: xp.reshape(x, y.shape),
        ]
    )


def _slice(draw: random.Random) -> Compute:
    start, end, step = draw.choice([None, 0, 1, 2, -3, 7]), draw.choice([None, 1, 3, 5, -1, -2]), draw.choice([1, 1, 2, -1])
    return lambda xp, x: x[start:end:step]


def _slice_by_size(draw: random.Random) -> Compute:
    return draw.choice(
        [
            lambda xp, x: x[: x.shape[0] // 2],
            lambda xp, x: x[x.shape[0] - 3 :],
            lambda xp, x, y: x[: y.shape[0]],
            lambda xp, x, y: x[y.shape[0] - x.shape[0] :],
            lambda xp, x: x[..., x.shape[-1] // 3 : x.shape[-1] - 1],
        ]
    )


def _index(draw: random.Random) -> Compute:
    index = draw.choice([0, 1, -1, -4, 5])
    return lambda xp, x: x[index]


def _concatenate(draw: random.Random) -> Compute:
    axis = draw.choice([0, 1, -1])
    return lambda xp, x, y: xp.concatenate([x, y], axis=axis)


def _split(draw: random.Random) -> Compute:
    count, position = draw.choice([2, 3]), draw.choice([0, -1])
    if draw.random() < 0.5:
        return lambda xp, x: xp.split(x, count)[position]
    return lambda xp, x: xp.array_split(x, count)[position]


def _pad(draw: random.Random) -> Compute:
    before, after, mode = draw.randint(0, 3), draw.randint(0, 3), draw.choice(["constant", "edge", "reflect", "wrap"])
    return lambda xp, x: xp.pad(x, ((before, after), *((0, 0) for _ in x.shape[1:])), mode=mode)


def _broadcast(draw: random.Random) -> Compute:
    return draw.choice(
        [
            lambda xp, x, y: xp.broadcast_to(x, y.shape),
            lambda xp, x: xp.broadcast_to(x, (2, *x.shape)),
            lambda xp, x, y: xp.broadcast_to(x, (*y.shape[:1], *x.shape)),
        ]
    )


def _einsum(draw: random.Random) -> Compute:
    if draw.random() < 0.3:
        equation = draw.choice(["ii->i", "ii->", "ij->ji", "ijk->ki", "iji->j"])
        return lambda xp, x: xp.einsum(equation, x)
    equation = draw.choice(["i,i->", "ij,j->i", "ij,jk->ik", "ij,kj->ik", "ij,ij->j", "bij,bjk->bik", "i,j->ij", "...i,i->..."])
    return lambda xp, x, y: xp.einsum(equation, x, y)


def _arithmetic(draw: random.Random) -> Compute:
    name = draw.choice(["add", "multiply", "maximum"])
    return lambda xp, x, y: getattr(xp, name)(x, y)


def _reduce(draw: random.Random) -> Compute:
    name, axis, keepdims = draw.choice(["sum", "max", "mean"]), draw.choice([0, -1, None]), draw.choice([True, False])
    return lambda xp, x: getattr(xp, name)(x, axis=axis, keepdims=keepdims)


def _rearrange(draw: random.Random) -> Compute:
    shift = draw.choice([1, 2, -3])
    return draw.choice(
        [
            lambda xp, x: xp.transpose(x),
            lambda xp, x: xp.flip(x, axis=0),
            lambda xp, x: xp.roll(x, shift, axis=0),
            lambda xp, x: xp.tile(x, 2),
            lambda xp, x: xp.stack([x, x], axis=-1),
            lambda xp, x: xp.expand_dims(x, 1),
            lambda xp, x: xp.squeeze(x),
            lambda xp, x: xp.cumsum(x, axis=0),
            lambda xp, x: xp.repeat(x, 2, axis=0),
            lambda xp, x: xp.diff(x, axis=0),
        ]
    )


def _numbers(draw: random.Random) -> Compute:
    amount, divisor = draw.choice([0, 1, 3]), draw.choice([1, 2])
    return draw.choice(
        [
            lambda xp, x: xp.arange(x.shape[0] - amount) // divisor,
            lambda xp, x: xp.zeros((x.shape[0] // 2 + amount, x.shape[-1])),
            lambda xp, x: xp.arange(amount, x.shape[0], divisor),
            lambda xp, x: x * x.shape[0] + x.size,
            lambda xp, x: xp.eye(x.shape[0]),
            lambda xp, x: xp.full((x.shape[0] % 4,), 2.0),
        ]
    )


def _condition(draw: random.Random) -> Compute:
    """A Python condition on sizes."""
    limit, divisor = draw.choice([0, 1, 4, 6, 8]), draw.choice([2, 3])
    return draw.choice(
        [
            lambda xp, x: x[:limit] if x.shape[0] > limit else xp.concatenate([x, x]),
            lambda xp, x, y: x + y if x.shape == y.shape else x,
            lambda xp, x, y: xp.concatenate([x, y]) if x.shape[1:] == y.shape[1:] else y,
            lambda xp, x: xp.reshape(x, (divisor, -1)) if x.shape[0] % divisor == 0 else xp.reshape(x, (-1,)),
            lambda xp, x, y: x[: min(x.shape[0], y.shape[0])],
            lambda xp, x: x[: max(x.shape[0] - limit, 1)],
            lambda xp, x: x if x.shape[0] else xp.zeros((1, *x.shape[1:])),
        ]
    )


def _loop(draw: random.Random) -> Compute:
    """A loop over an axis, up to a size, or until a condition holds, on bounded numbers."""
    limit = draw.choice([2, 5])

    def total(xp: Any, x: Any) -> Any:
        return xp.asarray(xp.sum(xp.clip(x, -1, 1)), dtype=np.float32)

    return draw.choice(
        [
            lambda xp, x: lax.scan(lambda c, row: (c + row, c * 2), x[0], x[1:])[1],
            lambda xp, x, y: lax.scan(lambda c, rows: (c + total(xp, rows[0]), rows[1]), total(xp, x), (x, y))[0],
            lambda xp, x: lax.fori_loop(0, x.shape[0], lambda k, c: c + xp.asarray(k, dtype=np.float32), x),
            lambda xp, x: lax.fori_loop(0, x.shape[0] // 2, lambda k, c: xp.roll(c, 1, axis=0), x),
            lambda xp, x: lax.while_loop(
                lambda c: (total(xp, c[0]) < limit) & (c[1] < 4), lambda c: (c[0] + 1, c[1] + 1), (x, 0)
            )[0],
            lambda xp, x: lax.map(lambda row: xp.sum(row) + row, x),
            lambda xp, x, y: lax.cond(total(xp, x) > limit, lambda: x, lambda: y),
            lambda xp, x: lax.cond(total(xp, x) > limit, lambda: x[: x.shape[0] // 2], lambda: x[-(x.shape[0] // 2) :]),
        ]
    )


def _select(draw: random.Random) -> Compute:
    """Elements or positions whose number depends on data."""
    limit = draw.choice([-1, 0, 2])
    return draw.choice(
        [
            lambda xp, x: x[x > limit],
            lambda xp, x: x[x > limit] * 2 + xp.flip(x[x > limit]),
            lambda xp, x: xp.stack(xp.nonzero(x)),
            lambda xp, x: xp.unique(x),
            lambda xp, x: xp.concatenate([x[x > limit], x[x <= limit]]),
            lambda xp, x: xp.reshape(x[x > limit], (-1, 1)),
            lambda xp, x, y: xp.reshape(x[x > limit], y.shape),
            lambda xp, x, y: x[x > limit] + y,
            lambda xp, x: xp.reshape(x[x > limit], (2, -1)),
            lambda xp, x: x[x > limit][:2],
            lambda xp, x: xp.matmul(xp.reshape(x[x > limit], (1, -1)), xp.reshape(x[x > limit], (-1, 1))),
        ]
    )


def _kernel(draw: random.Random) -> Compute:
    """A kernel whose bounds, masks and results depend on sizes; NumPy computes a result of the same shape."""

    def unary(kernel: Callable[[Any], Any], rank: int, shape: Callable[[Array], Any] = np.copy) -> Compute:
        return lambda xp, x: (shape if xp is np else kernel)(_of_rank(x, rank))

    return draw.choice(
        [
            unary(kernels.centered, 2),
            unary(kernels.stencil, 2),
            unary(kernels.cumulative_maximum, 2),
            unary(kernels.doubled, 1),
            unary(kernels.pair_sums, 1, lambda x: x[: x.shape[0] // 2]),
            lambda xp, x, y: (xp.matmul if xp is np else kernels.matmul)(_of_rank(x, 2), _of_rank(y, 2)),
        ]
    )


def _of_rank(x: Any, rank: int) -> Any:
    """Return an array; raise ShapeError unless it has this rank."""
    if x.ndim != rank:
        raise ShapeError(f"expected rank {rank}, got {x.ndim}")
    return x


# Each draws the settings of a step.
STEPS: dict[str, Callable[[random.Random], Compute]] = {
    "reshape": _reshape,
    "reshape_by_size": _reshape_by_size,
    "slice": _slice,
    "slice_by_size": _slice_by_size,
    "index": _index,
    "concatenate": _concatenate,
    "split": _split,
    "pad": _pad,
    "broadcast": _broadcast,
    "einsum": _einsum,
    "arithmetic": _arithmetic,
    "matmul": lambda draw: lambda xp, x, y: xp.matmul(x, y),
    "reduce": _reduce,
    "rearrange": _rearrange,
    "numbers": _numbers,
    "condition": _condition,
    "loop": _loop,
    "kernel": _kernel,
    "select": _select,
    **library_functions.STEPS,
    **computed_functions.STEPS,
    **numpy_functions.STEPS,
}

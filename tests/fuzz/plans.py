"""Compile kernels of large random shapes for all targets, without running them.

Every legal program has a tile plan whose buffers fit local memory; the emitters refuse others. Kernels are emitted as text, so
that no compiler and no device is needed.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.arrays import ShapeDtype
from dlc.backends.registry import backend_of
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.passes.base import kernels_of
from dlc.target import CPU_LEVELS, OPENCL_PROFILES
from tests.fuzz.trials import Trial, TrialOutcome, trial_outcomes

TARGETS = (*CPU_LEVELS, *OPENCL_PROFILES)
TIMEOUT_SECONDS = 240
MAX_SIZE = 1 << 14
# Inner sizes of attention and of convolutions, in addition to several large axes.
MAX_INNER_SIZE = 512

Shapes = Sequence[tuple[int, ...]]


def _normalized(x: Any) -> Any:
    centered = x - dnp.mean(x, -1, keepdims=True)
    return centered / dnp.sqrt(dnp.mean(centered * centered, -1, keepdims=True) + 1e-5)


# Functions, and the shapes of their arguments for three sizes.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[int, int, int], Shapes]]] = {
    "matmul": (lambda x, w: x @ w, lambda m, k, n: [(m, k), (k, n)]),
    "transposed weights": (lambda x, w: x @ w.T, lambda m, k, n: [(m, k), (n, k)]),
    "transposed rows": (lambda x, w: x.T @ w, lambda m, k, n: [(k, m), (k, n)]),
    "update": (lambda x, g, w: w - 0.1 * (x.T @ g), lambda m, k, n: [(k, m), (k, n), (m, n)]),
    "dense": (lambda x, w, b: dnp.maximum(x @ w + b, 0), lambda m, k, n: [(m, k), (k, n), (n,)]),
    "gelu": (lambda x, w, b: nn.gelu(x @ w + b), lambda m, k, n: [(m, k), (k, n), (n,)]),
    "layers": (lambda x, w, v: dnp.tanh(x @ w) @ v, lambda m, k, n: [(m, k), (k, n), (n, k)]),
    "normalized product": (lambda x, w: _normalized(x @ w), lambda m, k, n: [(m, k), (k, n)]),
    "product of normalized": (lambda x, w: _normalized(x) @ w, lambda m, k, n: [(m, k), (k, n)]),
    "loss": (lambda x, w: nn.log_softmax(x @ w)[:, 0], lambda m, k, n: [(m, k), (k, n)]),
    "attention": (lambda q, k, v: nn.softmax(q @ k.T * 0.1) @ v, lambda m, k, n: [(m, k % MAX_INNER_SIZE + 1)] + [(n, k % MAX_INNER_SIZE + 1)] * 2),
    "batch": (lambda x, w: x @ w, lambda m, k, n: [(m % 64 + 1, k, n), (m % 64 + 1, n, k)]),
    "conv": (
        lambda x, w: nn.conv(x, w),
        lambda m, k, n: [(2, m % MAX_INNER_SIZE + 3, k % MAX_INNER_SIZE + 3, n % 64 + 1), (3, 3, n % 64 + 1, k % MAX_INNER_SIZE + 1)],
    ),
    "softmax": (nn.softmax, lambda m, k, n: [(m, 4 * n)]),
    "softmax of columns": (lambda x: nn.softmax(x, axis=0), lambda m, k, n: [(4 * m, n)]),
    "normalized": (_normalized, lambda m, k, n: [(m, 4 * n)]),
    "normalized columns": (lambda x: _normalized(x.T), lambda m, k, n: [(m, n)]),
    "sums of columns": (lambda x: dnp.sum(x * x, 0), lambda m, k, n: [(m, n)]),
    "cumulative sums": (lambda x: dnp.cumsum(x, -1), lambda m, k, n: [(m, n)]),
    "transpose": (lambda x: x.T * 2, lambda m, k, n: [(m, n)]),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A function, or its gradient if `backward`, to compile for arguments of these shapes."""

    name: str
    shapes: Shapes
    dtype: np.dtype[Any]
    target: str
    backward: bool

    @classmethod
    def draw(cls, trial: Trial) -> Case:
        drawn = random.Random(trial.seed)
        name, target = drawn.choice(list(FUNCTIONS)), drawn.choice(TARGETS)
        sizes = [
            drawn.choice([1, 3, 8, drawn.randint(1, 1024), 1 << drawn.randint(5, 14), drawn.randint(1, MAX_SIZE)])
            for _ in range(3)
        ]
        dtype = np.dtype(np.float64 if target != "opencl:small" and drawn.random() < 0.3 else np.float32)
        return cls(name, FUNCTIONS[name][1](*sizes), dtype, trial.target if trial.targets else target, drawn.random() < 0.4)

    def emit_kernels(self) -> int:
        """Emit the kernels for the target; return their number."""
        function = FUNCTIONS[self.name][0]

        def gradient(*arguments: Any) -> Any:
            positions = tuple(range(len(arguments)))
            return dlc.grad(lambda *xs: dnp.sum(dnp.square(function(*xs))), argnums=positions)(*arguments)

        jitted = dlc.jit(gradient if self.backward else function, target=self.target)
        program = jitted.lower(*[ShapeDtype(shape, self.dtype) for shape in self.shapes]).program
        backend = backend_of(self.target)
        lowering = Lowering(Compilation(program, backend))
        lowering.to_kernels()
        lowering.run(lowering.stages(kernels=True))
        return len([backend.emit(kernel) for kernel in kernels_of(lowering.module)])


def run(trial: Trial) -> tuple[str, str | None]:
    """Compile the case of a trial; return its outcome, and its error or None."""
    case = Case.draw(trial)
    try:
        assert case.emit_kernels()
    except Exception:
        return "failed", f"{case}\n{traceback.format_exc()}"
    return "compiled", None


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("plans", s, (target,) if target else ()) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)

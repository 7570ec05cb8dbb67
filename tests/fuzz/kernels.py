"""Compare random kernels on all targets, their batches, and kernels of symbolic sizes, with loops over NumPy scalars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import dlc
import dlc.kernels as k
from tests.fuzz.random_kernels import KERNEL_LANGUAGE, RandomKernel
from tests.fuzz.trials import Trial, TrialOutcome, run_checks, trial_outcomes

TARGETS = ("cpu", "reference")
TIMEOUT_SECONDS = 120
_BATCH_SIZES = (1, 3)


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and a description of its failures or None."""
    return run_checks(RandomKernel(trial.seed), trial, (_check_results, _check_batch))


def _kernel(program: RandomKernel) -> Any:
    @dlc.kernel(results=lambda x, other, ids: k.Result(x.shape, x.dtype, fill=0))
    def kernel(x: Any, other: Any, ids: Any, y: Any) -> None:
        program.run(KERNEL_LANGUAGE, x, other, ids, y)

    return lambda x, other, ids: kernel(x, other, ids)


def _check_results(program: RandomKernel, seed: int, target: str) -> str | None:
    inputs = program.inputs(seed)
    function = dlc.jit(_kernel(program), target=target, num_threads=1 + seed % 2, cache=False)
    return _difference(function(*inputs), program.expected(inputs))


def _check_batch(program: RandomKernel, seed: int, target: str) -> str | None:
    """Compare a batch, whose size is symbolic for odd seeds."""
    entries = [program.inputs(seed + entry) for entry in range(_BATCH_SIZES[seed // 2 % 2])]
    dynamic: Any = {name: {0: "b"} for name in ("x", "other", "ids")} if seed % 2 else None
    function = dlc.jit(dlc.vmap(_kernel(program)), target=target, num_threads=1, cache=False, dynamic=dynamic)
    results = function(*map(np.stack, zip(*entries, strict=True)))
    return _difference(results, np.stack([program.expected(entry) for entry in entries]))


def _difference(result: Any, expected: np.ndarray) -> str | None:
    got = np.asarray(result)
    if got.dtype == expected.dtype and got.shape == expected.shape and np.array_equal(got, expected):
        return None
    return f"{got!r}, expected {expected!r}"


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("kernels", s, (target,) if target else TARGETS) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)

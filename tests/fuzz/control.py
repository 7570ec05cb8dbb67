"""Compare random programs of nested loops and branches, written with `dlc.lax`, with Python loops over NumPy."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError, ShapeError, UnsupportedError
from tests.fuzz.bounded_value import BoundedArray, difference
from tests.fuzz.random_control import PLAIN, Interpreter, RandomControl
from tests.fuzz.trials import Trial, TrialOutcome, trial_outcomes

# "plain" runs dlc.lax outside of a traced function; "dynamic" compiles once for the CPU and runs with several sizes.
TARGETS = ("plain", "reference", "cpu", "dynamic")
# Targets that need an OpenCL device.
DEVICES = ("opencl", "dynamic:opencl")
# The compilation targets of dynamic-shape programs.
_DYNAMIC = {"dynamic": "cpu", "dynamic:opencl": "opencl"}
# The sizes to run a dynamic-shape program with, derived from an original size above 1: also 0, 1 and near the vector width.
SIZE_VARIANTS: Sequence[Callable[[int], int]] = (lambda n: n, lambda n: 4 * n + 1, lambda n: 0, lambda n: 1, lambda n: n + 5)
# Large sizes, only for programs without nested loops over sizes and without results of rank 3.
LARGE_SIZE_VARIANTS: Sequence[Callable[[int], int]] = (lambda n: 20 * n + 1,)
TIMEOUT_SECONDS = 120


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and the differences from Python's loops if there are any."""
    program = RandomControl(trial.seed)
    expected = Interpreter(np, PLAIN).run(program.body, {}, program.inputs)
    outcome, failures = "static shapes", list[str]()
    for target in trial.targets:
        if target in _DYNAMIC:
            is_dynamic, mismatch = _run_dynamic(trial, program, _DYNAMIC[target], max(np.ndim(want) for want in expected))
            outcome = "dynamic shapes" if is_dynamic else "not dynamic"
            failures += (f"{target}: {w}" for w in mismatch)
            continue
        try:
            results = _results(program, target)
        except Exception:
            failures.append(f"{target}:\n{traceback.format_exc()}")
            continue
        for k, (got, want) in enumerate(zip(results, expected, strict=True)):
            if mismatch := difference(np.asarray(got), BoundedArray(np.asarray(want))):
                failures.append(f"{target}: result {k}: {mismatch}")
    return (outcome, None) if not failures else ("failed", "\n".join(failures))


def _results(program: RandomControl, target: str) -> Sequence[Any]:
    interpreter = Interpreter(dnp, lax)

    def function(*inputs: Any) -> Any:
        return interpreter.run(program.body, {}, inputs)

    if target != "plain":
        function = dlc.jit(target=target, num_threads=1, cache=False)(function)
    return function(*program.inputs)


def _run_dynamic(trial: Trial, program: RandomControl, target: str, max_rank: int) -> tuple[bool, list[str]]:
    """Compile a program with symbolic sizes and run it with several.

    Returns whether the program can be compiled so, and the differences from Python's loops.
    """
    axes = {
        f"arg{k}": {axis: f"S{n}" for axis, n in enumerate(a.shape) if n > 1} for k, a in enumerate(program.inputs) if a.ndim
    }
    interpreter = Interpreter(dnp, lax)

    def function(*inputs: Any) -> Any:
        return interpreter.run(program.body, {}, inputs)

    try:
        lowered = dlc.jit(target=target, num_threads=1, cache=False, dynamic=axes)(function).lower(*program.inputs)
    except (ShapeError, UnsupportedError, TypeError):
        return False, []  # the program requires a static size
    failures: list[str] = []
    large = LARGE_SIZE_VARIANTS if program.body.loops < 2 and max_rank < 3 else ()
    try:
        model = lowered.compile()
    except Exception:
        return True, [traceback.format_exc()]
    for k, resize in enumerate((*SIZE_VARIANTS, *large)):
        inputs = [_resize(a, resize, trial.seed) for a in program.inputs]
        try:
            expected = Interpreter(np, PLAIN, original_sizes=k == 0).run(program.body, {}, inputs)
            results = [np.asarray(result) for result in model.run_unchecked(inputs)]
        except Exception as error:
            # The plain program may require certain sizes as well; an error is then expected.
            if k == 0 or not isinstance(error, DlcError | ValueError | IndexError):
                failures.append(traceback.format_exc())
            continue
        for got, want in zip(results, expected, strict=True):
            # Python cannot know the shape of what a loop without iterations collects.
            if want.size and (mismatch := difference(got, BoundedArray(np.asarray(want)))):
                failures.append(f"{[a.shape for a in inputs]}: {mismatch}")
    return True, failures


def _resize(array: Any, resize: Callable[[int], int], seed: int) -> Any:
    shape = tuple(resize(n) if n > 1 else n for n in array.shape)
    return array if shape == array.shape else np.random.default_rng(seed).integers(-4, 5, shape).astype(array.dtype)


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("control", s, (target,) if target else TARGETS) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)

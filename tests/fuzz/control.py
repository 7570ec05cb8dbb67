"""Random programs of nested loops and branches: what `dlc.lax` makes of them, beside Python's own loops over NumPy."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError, ShapeError, UnsupportedError
from tests.fuzz.random_control import PLAIN, Interpreter, RandomControl
from tests.fuzz.supervise import supervised
from tests.fuzz.tracked import Tracked, difference

# "plain" runs dlc.lax outside of a traced function; "open" is one compilation for the CPU, run with several sizes.
TARGETS = ("plain", "reference", "cpu", "open")
# What takes a device.
DEVICES = ("opencl", "open:opencl")
# The targets of compilations for open sizes.
_OPEN = {"open": "cpu", "open:opencl": "opencl"}
# What the sizes of inputs become that a program leaves open, but for those of one or none: also next to the lanes of a vector.
OTHER_SIZES: Sequence[Callable[[int], int]] = (lambda n: n, lambda n: 4 * n + 1, lambda n: 0, lambda n: 1, lambda n: n + 5)
# Where no loop over a size is in another one, and results are no cubes.
LARGE: Sequence[Callable[[int], int]] = (lambda n: 20 * n + 1,)
SECONDS = 120


@dataclass(frozen=True)
class Trial:
    """A program and what to run it on."""

    seed: int
    targets: tuple[str, ...] = TARGETS

    def __str__(self) -> str:
        chosen = "" if self.targets == TARGETS else f" --target {self.targets[0]}"
        return f"seed {self.seed}: reproduce: python -m tests.fuzz control --seed {self.seed} --count 1{chosen}"


def run(trial: Trial) -> tuple[str, str | None]:
    """What became of the program, and what differs from Python's own loops if something does."""
    program = RandomControl(trial.seed)
    expected = Interpreter(np, PLAIN).run(program.body, {}, program.inputs)
    became, failures = "of known sizes", list[str]()
    for target in trial.targets:
        if target in _OPEN:
            opened, wrong = _run_open(trial, program, _OPEN[target], max(np.ndim(want) for want in expected))
            became = "open" if opened else "not to be opened"
            failures += (f"{target}: {w}" for w in wrong)
            continue
        try:
            results = _results(program, target)
        except Exception:
            failures.append(f"{target}:\n{traceback.format_exc()}")
            continue
        for k, (got, want) in enumerate(zip(results, expected, strict=True)):
            if wrong := difference(np.asarray(got), Tracked(np.asarray(want))):
                failures.append(f"{target}: result {k}: {wrong}")
    return (became, None) if not failures else ("failed", "\n".join(failures))


def _results(program: RandomControl, target: str) -> Sequence[Any]:
    interpreter = Interpreter(dnp, lax)

    def function(*inputs: Any) -> Any:
        return interpreter.run(program.body, {}, inputs)

    if target != "plain":
        function = dlc.jit(target=target, num_threads=1, cache=False)(function)
    return function(*program.inputs)


def _run_open(trial: Trial, program: RandomControl, target: str, most_axes: int) -> tuple[bool, list[str]]:
    """Whether a program can leave sizes of its inputs open, and what differs if so."""
    axes = {
        f"arg{k}": {axis: f"S{n}" for axis, n in enumerate(a.shape) if n > 1} for k, a in enumerate(program.inputs) if a.ndim
    }
    interpreter = Interpreter(dnp, lax)

    def function(*inputs: Any) -> Any:
        return interpreter.run(program.body, {}, inputs)

    try:
        lowered = dlc.jit(target=target, num_threads=1, cache=False, dynamic=axes)(function).lower(*program.inputs)
    except (ShapeError, UnsupportedError, TypeError):
        return False, []  # It does arithmetic with a size, or needs a certain one.
    failures: list[str] = []
    large = LARGE if program.body.loops < 2 and most_axes < 3 else ()
    try:
        model = lowered.compile()
    except Exception:
        return True, [traceback.format_exc()]
    for k, other in enumerate((*OTHER_SIZES, *large)):
        inputs = [_resized(a, other, trial.seed) for a in program.inputs]
        try:
            expected = Interpreter(np, PLAIN, typed=k == 0).run(program.body, {}, inputs)
            results = [np.asarray(result) for result in model.run_unchecked(inputs)]
        except Exception as error:
            # Python needs certain sizes too, and what is outside of the program's says so.
            if k == 0 or not isinstance(error, DlcError | ValueError | IndexError):
                failures.append(traceback.format_exc())
            continue
        for got, want in zip(results, expected, strict=True):
            # Of a loop without steps Python does not know what it collects.
            if want.size and (wrong := difference(got, Tracked(np.asarray(want)))):
                failures.append(f"{[a.shape for a in inputs]}: {wrong}")
    return True, failures


def _resized(array: Any, other: Callable[[int], int], seed: int) -> Any:
    shape = tuple(other(n) if n > 1 else n for n in array.shape)
    return array if shape == array.shape else np.random.default_rng(seed).integers(-4, 5, shape).astype(array.dtype)


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """The programs of `count` seeds from `seed` on."""
    return [Trial(s, (target,) if target else TARGETS) for s in range(seed, seed + count)]


def fuzz(chosen: Sequence[Trial], jobs: int) -> Iterator[tuple[Trial, str, str | None]]:
    """What became of each trial, and what went wrong if something did."""
    for outcome in supervised(run, chosen, jobs=jobs, seconds=SECONDS):
        if outcome.death is not None:
            yield outcome.item, "died", outcome.death
        else:
            assert isinstance(outcome.result, tuple)
            yield outcome.item, *outcome.result

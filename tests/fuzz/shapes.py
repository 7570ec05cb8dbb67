"""Compare dynamic-shape programs with static ones at many sizes: equal results, or an error of both.

A static program may be unable to use a data-dependent size, such as to slice an array that is constant while tracing. For such
sizes, results are compared with an evaluation without a compiled program.

Static and dynamic programs may round differently, and rounding may decide which elements are selected, distinct or largest.
After a difference, the static program runs again in other rounding modes of the processor: exact arithmetic is the same in all
of them, so a result that changes by more than the tolerance is decided by rounding, and is not compared.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

import dlc
import dlc.numpy
from dlc.errors import DlcError, UnsupportedError
from dlc.runtime.models.model import Model
from dlc.shapes.dims import UndecidableError
from tests.fuzz.random_shapes import DRAWN_SIZES, RandomShapes
from tests.fuzz.rounding_modes import ROUNDING_MODES, rounding
from tests.fuzz.shape_functions import RandomShapeFunction
from tests.fuzz.trials import Trial, TrialOutcome, trial_outcomes

Array = NDArray[Any]
Results: TypeAlias = "Sequence[Array]"
Program: TypeAlias = "Callable[[Sequence[Array]], Results]"
TIMEOUT_SECONDS = 240
# Mostly the reference, which shares everything that decides for which sizes a program is valid: native code takes five times
# as long to compile.
TARGETS = (*["reference"] * 11, "cpu")
# Outcomes of programs of which some sizes have no static program.
EVALUATED = "compared, some sizes with an evaluation"
WITHOUT_REFERENCE = "compared except for sizes without a reference"
ROUNDED = "compared except for results that rounding decides"
# The maximum number of size combinations per graph.
_MAX_COMBINATIONS = 11
_LARGE_SIZES = (16, 31, 33)
# A loop may iterate over all elements, and a Kronecker product has their square.
_MAX_INPUT_ELEMENTS = 2_000


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on; without a target, mostly the reference and sometimes the CPU."""
    return [Trial("shapes", s, (target or TARGETS[s // 2 % len(TARGETS)],)) for s in range(seed, seed + count)]


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and a description of a failure or None."""
    with warnings.catch_warnings():
        # Many sizes are compiled separately.
        warnings.simplefilter("ignore")
        subject = FunctionSubject(trial) if trial.seed % 2 else GraphSubject(trial)
        try:
            dynamic = subject.compile_dynamic()
        except UnsupportedError as error:
            return f"not supported: {error.problems[0].partition(': ')[2]}"[:80], None
        except DlcError as error:
            # onnx.reference accepts some graphs that are invalid.
            inputs = subject.draw_inputs(DRAWN_SIZES)
            is_invalid = isinstance(_results(lambda: subject.compile_static(inputs)(inputs)), str)
            return "invalid" if is_invalid else "failed", None if is_invalid else f"{subject}\n{error}"
        outcomes = set[str]()
        for sizes in _combinations(subject, random.Random(trial.seed)):
            outcome, mismatch = _compare(subject, dynamic, sizes)
            if mismatch is not None:
                return outcome, f"{subject}\n{subject.inputs} with {sizes}: {mismatch}"
            outcomes.add(outcome)
    return next(outcome for outcome in (WITHOUT_REFERENCE, ROUNDED, EVALUATED, "compared") if outcome in outcomes), None


class Subject(Protocol):
    """A graph or function: `inputs` are its input shapes as sizes and symbols."""

    @property
    def inputs(self) -> Mapping[str, tuple[str | int, ...]]: ...

    def draw_inputs(self, sizes: Mapping[str, int]) -> Sequence[Array]:
        """Return inputs of small integers."""
        ...

    def compile_dynamic(self) -> Program:
        """Return the program with symbolic sizes."""
        ...

    def compile_static(self, inputs: Sequence[Array]) -> Program:
        """Return the program for these input shapes, which may be compiled at its first call."""
        ...

    def evaluate(self, inputs: Sequence[Array]) -> Results:
        """Return the results without a compiled program."""
        ...


class GraphSubject:
    """An ONNX graph."""

    def __init__(self, trial: Trial) -> None:
        graph = RandomShapes(trial.seed)
        self._trial, self._model, self.inputs = trial, graph.model, graph.inputs
        self._operators = [node.op_type for node in graph.nodes]

    def draw_inputs(self, sizes: Mapping[str, int]) -> Sequence[Array]:
        return _draw_inputs(self.inputs, self._trial.seed, sizes)

    def compile_dynamic(self) -> Program:
        model = dlc.compile_model(self._model, target=self._trial.target, num_threads=1, cache=False)
        return lambda inputs: self._call(model, inputs)

    def compile_static(self, inputs: Sequence[Array]) -> Program:
        shapes = {name: array.shape for name, array in zip(self.inputs, inputs, strict=True)}
        model = dlc.compile_model(self._model, target="reference", input_shapes=shapes, num_threads=1, cache=False)
        return lambda inputs: self._call(model, inputs)

    def evaluate(self, inputs: Sequence[Array]) -> Results:
        try:
            results = ReferenceEvaluator(self._model).run(None, dict(zip(self.inputs, inputs, strict=True)))
        except Exception as error:  # onnx.reference raises errors of many types.
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return list(map(np.asarray, results))

    def _call(self, model: Model, inputs: Sequence[Array]) -> Results:
        return list(model(dict(zip(self.inputs, inputs, strict=True))).values())

    def __str__(self) -> str:
        return ", ".join(self._operators)


class FunctionSubject:
    """A jitted function."""

    def __init__(self, trial: Trial) -> None:
        self._trial, self._function = trial, RandomShapeFunction(trial.seed)
        self.inputs = self._function.inputs

    def draw_inputs(self, sizes: Mapping[str, int]) -> Sequence[Array]:
        return _draw_inputs(self.inputs, self._trial.seed, sizes)

    def compile_dynamic(self) -> Program:
        function = self._function.python_function(dlc.numpy)
        jitted = dlc.jit(target=self._trial.target, num_threads=1, cache=False, dynamic=self._function.dynamic)(function)
        return lambda inputs: jitted(*inputs)

    def compile_static(self, inputs: Sequence[Array]) -> Program:
        jitted = dlc.jit(target="reference", num_threads=1, cache=False)(self._function.python_function(dlc.numpy))
        return lambda inputs: jitted(*inputs)

    def evaluate(self, inputs: Sequence[Array]) -> Results:
        with dlc.disable_jit():
            return self.compile_static(inputs)(inputs)

    def __str__(self) -> str:
        return str(self._function)


def _combinations(subject: Subject, rng: random.Random) -> list[dict[str, int]]:
    """Draw different sizes of the symbols of a subject, after those for which it was drawn: mostly small ones, often equal."""
    symbols = sorted({size for shape in subject.inputs.values() for size in shape if isinstance(size, str)})
    combinations = [{symbol: DRAWN_SIZES[symbol] for symbol in symbols}]
    for _ in range(_MAX_COMBINATIONS - 1):
        common = rng.randint(0, 12)
        sizes = {
            s: rng.choice([common, common, rng.randint(0, 12), rng.randint(0, 12), rng.choice(_LARGE_SIZES)]) for s in symbols
        }
        num_elements = max(math.prod(sizes[s] if isinstance(s, str) else s for s in shape) for shape in subject.inputs.values())
        if sizes not in combinations and num_elements <= _MAX_INPUT_ELEMENTS:
            combinations.append(sizes)
    return combinations


def _compare(subject: Subject, dynamic: Program, sizes: Mapping[str, int]) -> tuple[str, str | None]:
    """Return the outcome of a comparison, and a description of a difference or None."""
    inputs = subject.draw_inputs(sizes)
    programs = list[Program]()

    def static(inputs: Sequence[Array]) -> Results:
        if not programs:
            programs.append(subject.compile_static(inputs))
        return programs[0](inputs)

    reference = static
    expected, got = _results(lambda: static(inputs)), _results(lambda: dynamic(inputs))
    outcome = "compared"
    if isinstance(expected, str) and not isinstance(got, str) and expected.startswith(UndecidableError.__name__):
        outcome, reference = EVALUATED, subject.evaluate
        expected = _results(lambda: reference(inputs))
        if isinstance(expected, str):
            return WITHOUT_REFERENCE, None
    difference = _difference(expected, got)
    if difference is None:
        return outcome, None
    for mode in ROUNDING_MODES:
        with rounding(mode):
            rounded = _results(lambda: reference(inputs))
        if _difference(expected, rounded) is not None:
            return ROUNDED, None
    return "wrong", difference


def _difference(expected: Results | str, got: Results | str) -> str | None:
    """Describe the first difference of results or errors; None if there is none."""
    if isinstance(expected, str) or isinstance(got, str):
        are_errors = isinstance(expected, str) and isinstance(got, str)
        return None if are_errors else f"static: {_format(expected)}; dynamic: {_format(got)}"
    for k, (want, result) in enumerate(zip(map(np.asarray, expected), map(np.asarray, got), strict=True)):
        if (
            result.shape != want.shape
            or result.dtype != want.dtype
            or not np.allclose(result, want, rtol=1e-5, atol=1e-5, equal_nan=True)
        ):
            return f"result {k}: expected {want.shape}, dynamic {result.shape}\n{want}\n{result}"
    return None


def _draw_inputs(inputs: Mapping[str, tuple[str | int, ...]], seed: int, sizes: Mapping[str, int]) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes = [[sizes[s] if isinstance(s, str) else s for s in shape] for shape in inputs.values()]
    return [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]


def _results(call: Callable[[], Results]) -> Results | str:
    """Return the results of a call, or the error that it raises."""
    try:
        return call()
    except (DlcError, IndexError, ValueError) as error:
        # The others are NumPy's, about an array that is constant while a function is traced.
        return f"{type(error).__name__}: {error}"


def _format(results: Results | str) -> str:
    return results if isinstance(results, str) else f"results of shapes {[np.shape(r) for r in results]}"


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS, items_per_child=100)

"""Compare dynamic-shape programs with static ones at many sizes: equal results, or an error of both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

import dlc
from dlc.errors import DlcError, UnsupportedError
from tests.fuzz.random_shapes import DRAWN_SIZES, RandomShapes
from tests.fuzz.supervise import run_supervised

Array = NDArray[Any]
TIMEOUT_SECONDS = 240
# Mostly the reference, which shares everything that decides for which sizes a program is valid.
TARGETS = ("reference", "reference", "reference", "cpu")
# The number of size combinations per graph, in addition to the drawn one.
_COMBINATIONS = 10
_LARGE_SIZES = (16, 31, 33)


@dataclass(frozen=True)
class Trial:
    """A graph and its target."""

    seed: int
    target: str

    def __str__(self) -> str:
        command = f"python -m tests.fuzz shapes --seed {self.seed} --count 1 --target {self.target}"
        return f"seed {self.seed}: reproduce: {command}"


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on; without a target, mostly the reference and sometimes the CPU."""
    return [Trial(s, target or TARGETS[s % len(TARGETS)]) for s in range(seed, seed + count)]


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and a description of a failure or None."""
    graph = RandomShapes(trial.seed)
    model, rng = graph.model, random.Random(trial.seed)
    nodes = ", ".join(node.op_type for node in graph.nodes)
    try:
        dynamic = dlc.compile_model(model, target=trial.target, num_threads=1, cache=False)
    except UnsupportedError as error:
        return f"not supported: {error.problems[0].partition(': ')[2]}"[:80], None
    except DlcError as error:
        # onnx.reference accepts some graphs that are invalid.
        expected = _run_static(model, _draw_inputs(graph, trial.seed, DRAWN_SIZES))
        is_invalid = isinstance(expected, str)
        return "invalid" if is_invalid else "failed", None if is_invalid else f"{nodes}\n{error}"
    for sizes in (DRAWN_SIZES, *(_draw_sizes(rng) for _ in range(_COMBINATIONS))):
        mismatch = _compare(graph, model, dynamic, trial, sizes)
        if mismatch is not None:
            return "wrong", f"{nodes}\n{graph.inputs} with {sizes}: {mismatch}"
    return "compared", None


def _draw_sizes(rng: random.Random) -> dict[str, int]:
    """Draw a size per symbol: mostly small ones, often equal."""
    common = rng.randint(0, 12)
    draws = (
        rng.choice([common, common, rng.randint(0, 12), rng.randint(0, 12), rng.choice(_LARGE_SIZES)]) for _ in DRAWN_SIZES
    )
    return dict(zip(DRAWN_SIZES, draws, strict=True))


def _compare(graph: RandomShapes, model: ModelProto, dynamic: Any, trial: Trial, sizes: Mapping[str, int]) -> str | None:
    inputs = _draw_inputs(graph, trial.seed, sizes)
    expected = _run_static(model, inputs)
    got = _results(lambda: dynamic(inputs))
    if isinstance(expected, str) or isinstance(got, str):
        if isinstance(expected, str) and isinstance(got, str):
            return None
        return f"static: {_format(expected)}; dynamic: {_format(got)}"
    for name, want in expected.items():
        result = got[name]
        if (
            result.shape != want.shape
            or result.dtype != want.dtype
            or not np.allclose(result, want, rtol=1e-5, atol=1e-5, equal_nan=True)
        ):
            return f"{name}: static {want.shape}, dynamic {result.shape}\n{want}\n{result}"
    return None


def _draw_inputs(graph: RandomShapes, seed: int, sizes: Mapping[str, int]) -> dict[str, Array]:
    shapes = {name: tuple(sizes[s] if isinstance(s, str) else s for s in shape) for name, shape in graph.inputs.items()}
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-3, 4, shape).astype(np.float32) for name, shape in shapes.items()}


def _run_static(model: ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array] | str:
    """Return the results of the program compiled for these input shapes, or the error that it raises."""
    shapes = {name: array.shape for name, array in inputs.items()}
    return _results(lambda: dlc.compile_model(model, target="reference", input_shapes=shapes, cache=False)(inputs))


def _results(call: Any) -> dict[str, Array] | str:
    """Return the results of a call, or the error that it raises."""
    try:
        return {name: np.asarray(value) for name, value in call().items()}
    except DlcError as error:
        return f"{type(error).__name__}: {error}"


def _format(results: dict[str, Array] | str) -> str:
    return results if isinstance(results, str) else f"results of shapes {[r.shape for r in results.values()]}"


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[tuple[Trial, str, str | None]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    for outcome in run_supervised(run, selected_trials, jobs=jobs, seconds=TIMEOUT_SECONDS, items_per_child=100):
        if outcome.death is not None:
            yield outcome.item, "died", outcome.death
        else:
            assert isinstance(outcome.result, tuple)
            yield outcome.item, *outcome.result

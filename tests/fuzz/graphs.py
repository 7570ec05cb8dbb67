"""Random graphs of ONNX: what dlc makes of them, beside what `onnx.reference` does."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto

from dlc.compiler import Program, compile
from dlc.errors import UnsupportedError
from dlc.frontend.onnx import import_model
from dlc.options import Options
from tests.fuzz.expected import expected_of
from tests.fuzz.graph_recipes import random_graph
from tests.fuzz.supervise import supervised
from tests.fuzz.tracked import Tracked, difference

OPTIONS = Options(num_threads=1, workers=1, cache=False)
SECONDS = 120
# Mostly by the reference, which takes the same steps as far as they know of no target.
TARGETS = ("reference", "reference", "reference", "reference", "cpu")


@dataclass(frozen=True)
class Trial:
    """A graph and what it is run on."""

    seed: int
    target: str
    precision: str = "f32"

    def __str__(self) -> str:
        rounded = f" --precision {self.precision}" if self.precision != "f32" else ""
        again = f"python -m tests.fuzz graphs --seed {self.seed} --count 1 --target {self.target}{rounded}"
        return f"seed {self.seed}: reproduce: {again}"


def trials(seed: int, count: int, target: str | None = None, precision: str = "f32") -> list[Trial]:
    """The graphs of `count` seeds from `seed` on; without a target, the reference and the CPU in turn."""
    return [Trial(s, target or TARGETS[s % len(TARGETS)], precision) for s in range(seed, seed + count)]


def run(trial: Trial) -> tuple[str, str | None]:
    """What became of the graph, and what went wrong if something did."""
    graph = random_graph(trial.seed)
    nodes = ", ".join(n.op_type for n in graph.nodes)
    options = replace(OPTIONS, precision=trial.precision)
    try:
        try:
            known, program = _program(graph.open_model), _program(graph.model)
        except UnsupportedError as error:
            # The same for many nodes, without their names. What is imported can be compiled.
            return re.sub(r"node '[^']*' ", "", f"not supported: {error.problems[0]}"), None
        expected = expected_of(known, list(graph.open_inputs.values()), trial.precision)
        got = compile(program, trial.target, options).run_unchecked(list(graph.inputs.values()))
    except Exception:
        return "failed", f"opset {graph.opset}: {nodes}\n{traceback.format_exc()}"
    assert expected is not None
    for value, want, array in zip(graph.results, expected, got, strict=True):
        theirs = Tracked(want.array, want.errors + value.apart) if value.apart else want
        for who, made, bound in (("onnx.reference", value.array, theirs), (trial.target, np.asarray(array), want)):
            if wrong := difference(made, bound):
                return "wrong", f"opset {graph.opset}: {nodes}\n{value.name} of {who}: {wrong}"
    return "compared", None


def _program(model: ModelProto) -> Program:
    imported = import_model(model)
    return Program(imported.module, imported.weights, "graph")


def fuzz(chosen: Sequence[Trial], jobs: int) -> Iterator[tuple[Trial, str, str | None]]:
    """What became of each trial, and what went wrong if something did."""
    for outcome in supervised(run, chosen, jobs=jobs, seconds=SECONDS, run=100):
        if outcome.death is not None:
            yield outcome.item, "died", outcome.death
        else:
            assert isinstance(outcome.result, tuple)
            yield outcome.item, *outcome.result

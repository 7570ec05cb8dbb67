"""Random graphs of ONNX: what dlc makes of them, beside what `onnx.reference` does."""

from __future__ import annotations

import re
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

import dlc
from dlc.backends.reference import sizes_decided
from dlc.compiler import Program, compile
from dlc.dialects.dl.base import Array
from dlc.errors import UnsupportedError
from dlc.frontend.onnx import import_model
from dlc.options import Options
from tests.fuzz.expected import expected_of
from tests.fuzz.graph_borders import InSequences
from tests.fuzz.graph_drawing import random_graph
from tests.fuzz.random_graph import RandomGraph, all_nodes
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
    nodes = ", ".join(n.op_type for n in all_nodes([*graph.nodes, *(n for f in graph.functions for n in f.node)]))
    try:
        compared = _of_text(graph, trial) if graph.has_text else _of_numbers(graph, trial)
    except UnsupportedError as error:
        # The same for many nodes, without their names.
        return re.sub(r"node '[^']*' ", "", f"not supported: {error.problems[0]}"), None
    except Exception:
        return "failed", f"opset {graph.opset}: {nodes}\n{traceback.format_exc()}"
    for what, made, want in compared:
        if wrong := difference(made, want):
            return "wrong", f"opset {graph.opset}: {nodes}\n{what}: {wrong}"
    return "compared", None


def _of_numbers(graph: RandomGraph, trial: Trial) -> list[tuple[str, Array, Tracked]]:
    """What is compared with what, of a graph of tensors. Raises UnsupportedError where it is not imported."""
    with tempfile.TemporaryDirectory() as folder:
        lists = InSequences(graph) if graph.in_sequences else None
        model = lists.model if lists else graph.model
        known, source = _program(graph.open_model), _saved(model, folder) if graph.external else model
        inputs = list(graph.open_inputs.values())
        known = known.with_sizes(sizes_decided(known.module, inputs, known.weights))
        expected = expected_of(known, inputs, trial.precision)
        assert expected is not None
        at_call = graph.open_sizes or graph.computed or lists
        got = _called(graph, source, trial, lists) if at_call else _compiled(graph, source, trial)
    compared = list[tuple[str, Array, Tracked]]()
    for value, want, array in zip(graph.results, expected, got, strict=True):
        theirs = Tracked(want.array, want.errors + value.apart) if value.apart else want
        compared += [(f"{value.name} of onnx.reference", value.array, theirs), (f"{value.name} of {trial.target}", array, want)]
    return compared


def _compiled(graph: RandomGraph, source: ModelProto | Path, trial: Trial) -> list[Array]:
    """The results of a graph of which all sizes are known."""
    program = _program(source)
    try:
        model = compile(program, trial.target, replace(OPTIONS, precision=trial.precision))
    except UnsupportedError as error:
        # What is imported can be compiled.
        raise AssertionError(str(error)) from error
    return [np.asarray(a) for a in model.run_unchecked(list(graph.inputs.values()))]


def _called(graph: RandomGraph, source: ModelProto | Path, trial: Trial, lists: InSequences | None) -> list[Array]:
    """The results of a graph by a model whose sizes, and sequences, come with the call."""
    settings: dict[str, Any] = {"num_threads": 1, "cache": False, "precision": trial.precision}
    made = dlc.compile_model(source, target=trial.target, **settings)(lists.inputs if lists else graph.inputs)
    made = lists.of(made) if lists else made
    return [np.asarray(made[value.name]) for value in graph.results]


def _of_text(graph: RandomGraph, trial: Trial) -> list[tuple[str, Array, Tracked]]:
    """The same of a graph of text, whose results are exact. What is text has its form at the borders of a model."""
    got = dlc.compile_model(graph.model, target=trial.target, num_threads=1, cache=False)(graph.inputs)
    return [(v.name, np.asarray(got[v.name]), Tracked(v.array)) for v in graph.results]


def _saved(model: ModelProto, folder: str) -> Path:
    """The file of a model whose weights, those in bodies among them, are in another file."""
    path = Path(folder) / "graph.onnx"
    settings = {"location": "weights.bin", "size_threshold": 0, "convert_attribute": True}
    onnx.save_model(model, path, save_as_external_data=True, **settings)
    return path


def _program(model: ModelProto | Path) -> Program:
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

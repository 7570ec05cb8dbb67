"""Compare random ONNX graphs with `onnx.reference` and with the reference evaluator."""

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
from dlc.backends.reference import evaluate_data_dependent_sizes
from dlc.compiler import Program, compile
from dlc.dialects.dl.base import Array
from dlc.errors import UnsupportedError
from dlc.frontend.onnx import import_model
from dlc.options import Options
from tests.fuzz.bounded_value import BoundedArray, difference
from tests.fuzz.draw_graph import random_graph
from tests.fuzz.graph_io import SequenceIO
from tests.fuzz.program_bounds import expected_results
from tests.fuzz.random_graph import RandomGraph, all_nodes
from tests.fuzz.trials import Trial, TrialOutcome, trial_outcomes

OPTIONS = Options(num_threads=1, workers=1, cache=False)
TIMEOUT_SECONDS = 120
# Mostly the reference, which shares all target-independent passes.
TARGETS = ("reference", "reference", "reference", "reference", "cpu")


@dataclass(frozen=True)
class GraphTrial(Trial):
    """A graph, its target, and the precision of its contractions with weights."""

    precision: str = "f32"

    @property
    def options(self) -> str:
        return super().options + (f" --precision {self.precision}" if self.precision != "f32" else "")


def trials(seed: int, count: int, target: str | None = None, precision: str = "f32") -> list[GraphTrial]:
    """Return the trials of `count` seeds from `seed` on; without a target, mostly the reference and sometimes the CPU."""
    return [GraphTrial("graphs", s, (target or TARGETS[s % len(TARGETS)],), precision) for s in range(seed, seed + count)]


def run(trial: GraphTrial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and a description of a failure or None."""
    graph = random_graph(trial.seed)
    nodes = ", ".join(n.op_type for n in all_nodes([*graph.nodes, *(n for f in graph.functions for n in f.node)]))
    try:
        compared = _compare_strings(graph, trial) if graph.has_strings else _compare_tensors(graph, trial)
    except UnsupportedError as error:
        # Remove node names, so that equal reasons are counted together.
        return re.sub(r"node '[^']*' ", "", f"not supported: {error.problems[0]}"), None
    except Exception:
        return "failed", f"opset {graph.opset}: {nodes}\n{traceback.format_exc()}"
    for label, result, want in compared:
        if mismatch := difference(result, want):
            return "wrong", f"opset {graph.opset}: {nodes}\n{label}: {mismatch}"
    return "compared", None


def _compare_tensors(graph: RandomGraph, trial: GraphTrial) -> list[tuple[str, Array, BoundedArray]]:
    """Return (label, result, bounds) for all comparisons of a graph. Raises UnsupportedError if it cannot be imported."""
    with tempfile.TemporaryDirectory() as folder:
        sequence_io = SequenceIO(graph) if graph.has_sequence_io else None
        model = sequence_io.model if sequence_io else graph.model
        unfolded, source = _import(graph.unfolded_model), _save_external(model, folder) if graph.external else model
        inputs = list(graph.unfolded_inputs.values())
        unfolded = unfolded.with_sizes(evaluate_data_dependent_sizes(unfolded.module, inputs, unfolded.weights))
        expected = expected_results(unfolded, inputs, trial.precision)
        assert expected is not None
        is_dynamic = graph.symbolic_sizes or graph.computed or sequence_io
        got = _run_dynamic(graph, source, trial, sequence_io) if is_dynamic else _run_static(graph, source, trial)
    compared = list[tuple[str, Array, BoundedArray]]()
    for value, want, array in zip(graph.results, expected, got, strict=True):
        onnx_bound = BoundedArray(want.array, want.errors + value.tolerance) if value.tolerance else want
        compared += [
            (f"{value.name} of onnx.reference", value.array, onnx_bound),
            (f"{value.name} of {trial.target}", array, want),
        ]
    return compared


def _run_static(graph: RandomGraph, source: ModelProto | Path, trial: GraphTrial) -> list[Array]:
    """Return the results of a graph with static shapes."""
    program = _import(source)
    try:
        model = compile(program, trial.target, replace(OPTIONS, precision=trial.precision))
    except UnsupportedError as error:
        # A graph that can be imported must compile.
        raise AssertionError(str(error)) from error
    return [np.asarray(a) for a in model.run_unchecked(list(graph.inputs.values()))]


def _run_dynamic(
    graph: RandomGraph, source: ModelProto | Path, trial: GraphTrial, sequence_io: SequenceIO | None
) -> list[Array]:
    """Return the results of a graph with symbolic sizes or sequence inputs."""
    settings: dict[str, Any] = {"num_threads": 1, "cache": False, "precision": trial.precision}
    result = dlc.compile_model(source, target=trial.target, **settings)(sequence_io.inputs if sequence_io else graph.inputs)
    result = sequence_io.unpack_results(result) if sequence_io else result
    return [np.asarray(result[value.name]) for value in graph.results]


def _compare_strings(graph: RandomGraph, trial: GraphTrial) -> list[tuple[str, Array, BoundedArray]]:
    """Return (label, result, bounds) for a graph of strings. Results are exact; strings are converted at inputs and outputs."""
    got = dlc.compile_model(graph.model, target=trial.target, num_threads=1, cache=False)(graph.inputs)
    return [(v.name, np.asarray(got[v.name]), BoundedArray(v.array)) for v in graph.results]


def _save_external(model: ModelProto, folder: str) -> Path:
    """Save a model with all weights, including those of subgraphs, in an external file."""
    path = Path(folder) / "graph.onnx"
    settings = {"location": "weights.bin", "size_threshold": 0, "convert_attribute": True}
    onnx.save_model(model, path, save_as_external_data=True, **settings)
    return path


def _import(model: ModelProto | Path) -> Program:
    imported = import_model(model)
    return Program(imported.module, imported.weights, "graph")


def fuzz(selected_trials: Sequence[GraphTrial], jobs: int) -> Iterator[TrialOutcome[GraphTrial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS, items_per_child=100)

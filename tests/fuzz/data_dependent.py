"""Random programs with data-dependent sizes, compiled once, run with inputs of many sizes and compared with NumPy."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from dlc.compiler import Program, compile
from dlc.frontend.onnx import import_model
from dlc.options import Options
from dlc.runtime.cpu.artifact import Artifact
from tests.fuzz.trials import Trial, TrialOutcome, trial_outcomes

Array = NDArray[Any]
OPTIONS = Options(num_threads=1, workers=1, cache=False)
# The timeout of one program with all its inputs.
TIMEOUT_SECONDS = 120
# Row counts of the inputs. Elements are integers that are rarely positive in some inputs, so that selections may be empty.
ROW_COUNTS = (7, 0, 1, 33, 2, 200, 7)


class RandomDataDependentProgram:
    """The program of a seed: its ONNX `model`, and its expected results for an input, computed by NumPy."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns = self.random.choice([1, 3, 8])
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.outputs: list[str] = []
        self.steps: list[tuple[str, Callable[[dict[str, Array]], Array]]] = []
        rows = ["x"]
        for _ in range(self.random.randint(2, 5)):
            source = self.random.choice(rows[-2:])
            steps = [
                self.compress,
                self.compress,
                self.add_constant,
                self.gather_nonzero,
                self.unique,
                self.slice_rows,
                self.top_rows,
            ]
            result = self.random.choice(steps)(source)
            rows.append(result)
        self.outputs += [
            rows[-1],
            self.add("ReduceSum", [rows[-1]], lambda e, s=rows[-1]: e[s].sum(dtype=np.float32), keepdims=0),
        ]

    @property
    def model(self) -> Any:
        """The ONNX model; its first dimension is symbolic."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", self.columns])
        outputs = [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(self.outputs)]
        weights = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "counts", [x], outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def input(self, rows: int) -> Array:
        """Return an input of integers, so that float sums are exact."""
        low = self.random.choice([-4, -1, -9])
        return np.random.default_rng(rows).integers(low, 3, (rows, self.columns)).astype(np.float32)

    def expected(self, x: Array) -> list[Array]:
        values = {"x": x}
        for name, step in self.steps:
            values[name] = np.asarray(step(values))
        return [values[name] for name in dict.fromkeys(self.outputs)]

    # Steps

    def add(
        self, op: str, inputs: Sequence[str], step: Callable[[dict[str, Array]], Array], output_index: int = 0, **settings: Any
    ) -> str:
        """Add a node of which one output is used, and the NumPy function that computes it; return the output's name."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [*[""] * output_index, name], **settings))
        self.steps.append((name, step))
        return name

    def constant(self, array: Array) -> str:
        self.constants[f"c{len(self.constants)}"] = array
        return f"c{len(self.constants) - 1}"

    def row_mask(self, rows: str) -> str:
        """Return a mask of the rows whose sum exceeds a limit."""
        axes, limit = self.constant(np.int64([1])), self.random.choice([-6, -1, 0, 2])
        sums = self.add("ReduceSum", [rows, axes], lambda e: e[rows].sum(1), keepdims=0)
        return self.add("Greater", [sums, self.constant(np.float32(limit))], lambda e: e[sums] > limit)

    def compress(self, rows: str) -> str:
        """Select the rows of a mask; sometimes also output their indices."""
        row_mask = self.row_mask(rows)
        if self.random.random() < 0.3:
            self.outputs.append(self.add("NonZero", [row_mask], lambda e: np.stack(np.nonzero(e[row_mask]))))
        return self.add("Compress", [rows, row_mask], lambda e: e[rows][e[row_mask]], axis=0)

    def add_constant(self, rows: str) -> str:
        increment = self.random.choice([1, -2, 3])
        return self.add("Add", [rows, self.constant(np.float32(increment))], lambda e: e[rows] + np.float32(increment))

    def gather_nonzero(self, rows: str) -> str:
        """Gather the row of each nonzero element."""
        indices = self.add("NonZero", [rows], lambda e: np.stack(np.nonzero(e[rows])))
        first = self.add("Gather", [indices, self.constant(np.int64(0))], lambda e: e[indices][0], axis=0)
        return self.add("Gather", [rows, first], lambda e: e[rows][e[first]], axis=0)

    def counted_value(self, rows: str) -> tuple[str, Callable[[dict[str, Array]], int]]:
        """Return a data-dependent integer (the count of a mask plus an offset) as int64[1], and a function for its value."""
        row_mask, offset = self.row_mask(rows), self.random.choice([-3, 0, 0, 1])
        integers = self.add("Cast", [row_mask], lambda e: e[row_mask].astype(np.int64), to=TensorProto.INT64)
        axes = self.constant(np.int64([0]))
        count = self.add("ReduceSum", [integers, axes], lambda e: e[integers].sum(0, keepdims=True), keepdims=1)
        result = self.add("Add", [count, self.constant(np.int64([offset]))], lambda e: e[count] + offset)
        return result, lambda e: int(e[result][0])

    def slice_rows(self, rows: str) -> str:
        """Slice rows with constant or data-dependent bounds."""
        step = self.random.choice([1, 1, 2, -1])
        (begin, first), (end, last) = (
            self.counted_value(rows) if self.random.random() < 0.6 else (self.constant(np.int64([n])), lambda _, n=n: n)
            for n in self.random.sample([0, 1, -1, 5, -4], 2)
        )
        settings = [self.constant(np.int64([n])) for n in (0, step)]
        # ONNX clamps the start of a slice to the first row; NumPy has none before it to go back from.
        return self.add(
            "Slice", [rows, begin, end, *settings], lambda e: e[rows][max(first(e), -len(e[rows])) : last(e) : step]
        )

    def top_rows(self, rows: str) -> str:
        """Gather a data-dependent number of rows: those with the largest sums, or the rows in order, repeated cyclically."""
        count_name, value = self.counted_value(rows)
        size = self.add("Shape", [rows], lambda e: np.int64(e[rows].shape[:1]), end=1)
        if self.random.random() < 0.5:
            zero, one = self.constant(np.int64(0)), self.constant(np.int64(1))
            end = self.add("Squeeze", [count_name], lambda e: e[count_name][0])
            indices = self.add("Range", [zero, end, one], lambda e: np.arange(value(e)))
            at_least_one = self.add("Max", [size, one], lambda e: np.maximum(e[size], 1))
            wrapped_indices = self.add("Mod", [indices, at_least_one], lambda e: e[indices] % e[at_least_one])
            last = np.zeros((1, self.columns), np.float32)
            padded = self.add("Concat", [rows, self.constant(last)], lambda e: np.concatenate([e[rows], last]), axis=0)
            return self.add("Gather", [padded, wrapped_indices], lambda e: e[padded][e[wrapped_indices]], axis=0)
        nonnegative = self.add("Max", [count_name, self.constant(np.int64([0]))], lambda e: np.maximum(e[count_name], 0))
        count = self.add("Min", [nonnegative, size], lambda e: np.minimum(e[nonnegative], e[size]))
        sums = self.add("ReduceSum", [rows, self.constant(np.int64([1]))], lambda e: e[rows].sum(1), keepdims=0)
        indices = self.add(
            "TopK", [sums, count], lambda e: np.argsort(-e[sums], kind="stable")[: e[count][0]], output_index=1, axis=0
        )
        return self.add("Gather", [rows, indices], lambda e: e[rows][e[indices]], axis=0)

    def unique(self, rows: str) -> str:
        """Return the distinct rows; sometimes also output their counts."""
        result = f"u{len(self.nodes)}"
        counts = f"{result}_counts"
        self.nodes.append(helper.make_node("Unique", [rows], [result, "", "", counts], axis=0))
        self.steps.append((result, lambda e: np.unique(e[rows], axis=0)))
        self.steps.append((counts, lambda e: np.unique(e[rows], axis=0, return_counts=True)[1]))
        if self.random.random() < 0.5:
            self.outputs.append(counts)
        return result


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("data_dependent", s, (target or "cpu",)) for s in range(seed, seed + count)]


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and a description of a failure or None."""
    program = RandomDataDependentProgram(trial.seed)
    nodes = ", ".join(node.op_type for node in program.nodes)
    try:
        model = compile(replace(_read(program.model), reimport=partial(_read, program.model)), trial.target, OPTIONS)
        for rows in ROW_COUNTS:
            x = program.input(rows)
            for k, (got, want) in enumerate(zip(model.run_unchecked([x]), program.expected(x), strict=True)):
                if np.shape(got) != want.shape or not np.array_equal(np.asarray(got), want):
                    return "wrong", f"{nodes}\nresult {k} for {rows} rows: {np.asarray(got)}, expected {want}"
    except Exception:
        return "failed", f"{nodes}\n{traceback.format_exc()}"
    return "one program" if trial.target != "cpu" or isinstance(model.artifact, Artifact) else "specialized", None


def _read(model: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> Program:
    imported = import_model(model, shapes)
    return Program(imported.module, imported.weights, "counts")


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS, items_per_child=100)

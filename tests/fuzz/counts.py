"""Random programs in which data decides sizes again and again, compiled once and run for inputs of many sizes."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from dlc.compiler import Program, compile
from dlc.frontend.onnx import import_model
from dlc.options import Options
from dlc.runtime.cpu.artifact import Artifact
from tests.fuzz.supervise import supervised

Array = NDArray[Any]
OPTIONS = Options(num_threads=1, workers=1, cache=False)
# For one program and all its inputs.
SECONDS = 120
# How many rows the inputs have; elements are whole numbers, some of them seldom above 0, so that nothing is left at times.
ROWS = (7, 0, 1, 33, 2, 200, 7)


class RandomCounts:
    """The program of a seed: its `model`, and what it gives for an input by NumPy."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns = self.random.choice([1, 3, 8])
        self.nodes: list[NodeProto] = []
        self.settings: dict[str, Array] = {}
        self.outputs: list[str] = []
        self.steps: list[tuple[str, Callable[[dict[str, Array]], Array]]] = []
        rows = ["x"]
        for _ in range(self.random.randint(2, 5)):
            source = self.random.choice(rows[-2:])
            steps = [self.compressed, self.compressed, self.changed, self.taken, self.distinct, self.cut, self.best]
            made = self.random.choice(steps)(source)
            rows.append(made)
        self.outputs += [
            rows[-1],
            self.add("ReduceSum", [rows[-1]], lambda e, s=rows[-1]: e[s].sum(dtype=np.float32), keepdims=0),
        ]

    @property
    def model(self) -> Any:
        """The graph, whose first size is open."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", self.columns])
        outputs = [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(self.outputs)]
        weights = [numpy_helper.from_array(array, name) for name, array in self.settings.items()]
        graph = helper.make_graph(self.nodes, "counts", [x], outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def input(self, rows: int) -> Array:
        """Whole numbers, which sums do not round."""
        low = self.random.choice([-4, -1, -9])
        return np.random.default_rng(rows).integers(low, 3, (rows, self.columns)).astype(np.float32)

    def expected(self, x: Array) -> list[Array]:
        values = {"x": x}
        for name, step in self.steps:
            values[name] = np.asarray(step(values))
        return [values[name] for name in dict.fromkeys(self.outputs)]

    # Steps

    def add(
        self, op: str, inputs: Sequence[str], step: Callable[[dict[str, Array]], Array], place: int = 0, **settings: Any
    ) -> str:
        """A node of which one output is read."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [*[""] * place, name], **settings))
        self.steps.append((name, step))
        return name

    def constant(self, array: Array) -> str:
        self.settings[f"c{len(self.settings)}"] = array
        return f"c{len(self.settings) - 1}"

    def flags(self, rows: str) -> str:
        """Which rows have a sum above a number."""
        axes, limit = self.constant(np.int64([1])), self.random.choice([-6, -1, 0, 2])
        sums = self.add("ReduceSum", [rows, axes], lambda e: e[rows].sum(1), keepdims=0)
        return self.add("Greater", [sums, self.constant(np.float32(limit))], lambda e: e[sums] > limit)

    def compressed(self, rows: str) -> str:
        """The rows whose sums are large, and where they are, at times."""
        flags = self.flags(rows)
        if self.random.random() < 0.3:
            self.outputs.append(self.add("NonZero", [flags], lambda e: np.stack(np.nonzero(e[flags]))))
        return self.add("Compress", [rows, flags], lambda e: e[rows][e[flags]], axis=0)

    def changed(self, rows: str) -> str:
        number = self.random.choice([1, -2, 3])
        return self.add("Add", [rows, self.constant(np.float32(number))], lambda e: e[rows] + np.float32(number))

    def taken(self, rows: str) -> str:
        """The rows that elements stand in which are not 0, once for each."""
        places = self.add("NonZero", [rows], lambda e: np.stack(np.nonzero(e[rows])))
        first = self.add("Gather", [places, self.constant(np.int64(0))], lambda e: e[places][0], axis=0)
        return self.add("Gather", [rows, first], lambda e: e[rows][e[first]], axis=0)

    def number(self, rows: str) -> tuple[str, Callable[[dict[str, Array]], int]]:
        """A number that data has, a vector of one: of rows with large sums, give or take; and what it is."""
        flags, more = self.flags(rows), self.random.choice([-3, 0, 0, 1])
        whole = self.add("Cast", [flags], lambda e: e[flags].astype(np.int64), to=TensorProto.INT64)
        axes = self.constant(np.int64([0]))
        count = self.add("ReduceSum", [whole, axes], lambda e: e[whole].sum(0, keepdims=True), keepdims=1)
        made = self.add("Add", [count, self.constant(np.int64([more]))], lambda e: e[count] + more)
        return made, lambda e: int(e[made][0])

    def cut(self, rows: str) -> str:
        """The rows from one to another, of which data says one or none."""
        step = self.random.choice([1, 1, 2, -1])
        (begin, first), (end, last) = (
            self.number(rows) if self.random.random() < 0.6 else (self.constant(np.int64([n])), lambda _, n=n: n)
            for n in self.random.sample([0, 1, -1, 5, -4], 2)
        )
        settings = [self.constant(np.int64([n])) for n in (0, step)]
        return self.add("Slice", [rows, begin, end, *settings], lambda e: e[rows][first(e) : last(e) : step])

    def best(self, rows: str) -> str:
        """As many of the rows as data says, those with the largest sums first; or some again and again, in their order."""
        number, value = self.number(rows)
        size = self.add("Shape", [rows], lambda e: np.int64(e[rows].shape[:1]), end=1)
        if self.random.random() < 0.5:
            zero, one = self.constant(np.int64(0)), self.constant(np.int64(1))
            end = self.add("Squeeze", [number], lambda e: e[number][0])
            places = self.add("Range", [zero, end, one], lambda e: np.arange(value(e)))
            some = self.add("Max", [size, one], lambda e: np.maximum(e[size], 1))
            wrapped = self.add("Mod", [places, some], lambda e: e[places] % e[some])
            last = np.zeros((1, self.columns), np.float32)
            padded = self.add("Concat", [rows, self.constant(last)], lambda e: np.concatenate([e[rows], last]), axis=0)
            return self.add("Gather", [padded, wrapped], lambda e: e[padded][e[wrapped]], axis=0)
        least = self.add("Max", [number, self.constant(np.int64([0]))], lambda e: np.maximum(e[number], 0))
        count = self.add("Min", [least, size], lambda e: np.minimum(e[least], e[size]))
        sums = self.add("ReduceSum", [rows, self.constant(np.int64([1]))], lambda e: e[rows].sum(1), keepdims=0)
        places = self.add("TopK", [sums, count], lambda e: np.argsort(-e[sums], kind="stable")[: e[count][0]], place=1, axis=0)
        return self.add("Gather", [rows, places], lambda e: e[rows][e[places]], axis=0)

    def distinct(self, rows: str) -> str:
        """The distinct rows, and how often each occurs, at times."""
        made = f"u{len(self.nodes)}"
        counts = f"{made}_counts"
        self.nodes.append(helper.make_node("Unique", [rows], [made, "", "", counts], axis=0))
        self.steps.append((made, lambda e: np.unique(e[rows], axis=0)))
        self.steps.append((counts, lambda e: np.unique(e[rows], axis=0, return_counts=True)[1]))
        if self.random.random() < 0.5:
            self.outputs.append(counts)
        return made


@dataclass(frozen=True)
class Trial:
    """A program and what runs it."""

    seed: int
    target: str

    def __str__(self) -> str:
        return f"seed {self.seed}: reproduce: python -m tests.fuzz counts --seed {self.seed} --count 1 --target {self.target}"


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """The programs of `count` seeds from `seed` on."""
    return [Trial(s, target or "cpu") for s in range(seed, seed + count)]


def run(trial: Trial) -> tuple[str, str | None]:
    """What became of the program, and what went wrong if something did."""
    program = RandomCounts(trial.seed)
    nodes = ", ".join(node.op_type for node in program.nodes)
    try:
        model = compile(replace(_read(program.model), read_for=partial(_read, program.model)), trial.target, OPTIONS)
        for rows in ROWS:
            x = program.input(rows)
            for k, (got, want) in enumerate(zip(model.run_unchecked([x]), program.expected(x), strict=True)):
                if np.shape(got) != want.shape or not np.array_equal(np.asarray(got), want):
                    return "wrong", f"{nodes}\nresult {k} for {rows} rows: {np.asarray(got)}, expected {want}"
    except Exception:
        return "failed", f"{nodes}\n{traceback.format_exc()}"
    return "one program" if trial.target != "cpu" or isinstance(model.artifact, Artifact) else "by sizes", None


def _read(model: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> Program:
    imported = import_model(model, shapes)
    return Program(imported.module, imported.weights, "counts")


def fuzz(chosen: Sequence[Trial], jobs: int) -> Iterator[tuple[Trial, str, str | None]]:
    """What became of each trial, and what went wrong if something did."""
    for outcome in supervised(run, chosen, jobs=jobs, seconds=SECONDS, run=100):
        if outcome.death is not None:
            yield outcome.item, "died", outcome.death
        else:
            assert isinstance(outcome.result, tuple)
            yield outcome.item, *outcome.result

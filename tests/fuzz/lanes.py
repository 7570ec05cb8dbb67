"""Random functions in lanes: what `dlc.vmap` makes of them, beside the function for one lane after the other.

The programs of `dl` ops and those of loops and branches that the other fuzzers have, in turn.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.compiler import Program, compile
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.ir import Block, ModuleOp, Region, SSAValue, func
from tests.fuzz.bounds import track
from tests.fuzz.drawing import random_program
from tests.fuzz.expected import track_scan
from tests.fuzz.programs import OPTIONS
from tests.fuzz.random_control import PLAIN, Interpreter, RandomControl
from tests.fuzz.random_program import RandomProgram, named_values
from tests.fuzz.supervise import supervised
from tests.fuzz.tracked import Tracked, difference

TARGETS = ("reference", "cpu")
SECONDS = 120
# Panels are made when no function is in lanes any more; what is sorted is so no longer in another order.
LEFT_OUT = {
    *(dl.PackOp, dl.UnpackOp, dl.WordsOp, dl.MatmulWordsOp, dl.MatmulDotsOp),
    *(dl.SortColumnsOp, dl.SortDigitsOp, dl.SmallestOp, dl.OfRanksOp, dl.SearchsortedOp, dl.BisectOp),
}


@dataclass(frozen=True)
class Trial:
    """A function in lanes and what to run it on."""

    seed: int
    targets: tuple[str, ...] = TARGETS


@dataclass(frozen=True)
class Failure:
    """A function that went wrong in lanes."""

    trial: Trial
    what: str

    def __str__(self) -> str:
        seed = self.trial.seed
        return f"seed {seed}: {self.what.strip()}\n  reproduce: python -m tests.fuzz lanes --seed {seed} --count 1"


class Lanes:
    """Arguments of a function in lanes: some arrays differ between lanes, at an axis of their own."""

    def __init__(self, seed: int, inputs: Sequence[Array], others: Callable[[Array, int], Array]) -> None:
        self.random = random.Random(seed)
        self.size = self.random.choice([0, 1, 2, 3, 3, 5])
        differs = [self.random.random() < 0.7 for _ in inputs]
        if inputs and not any(differs):
            differs[0] = True
        self.axes = [self.random.randint(0, x.ndim) if d else None for x, d in zip(inputs, differs, strict=True)]
        # Of no lanes one is made, that says what the results would be like.
        self.inputs = [[others(x, k) for k in range(max(self.size, 1))] for x in inputs]

    @property
    def arguments(self) -> list[Array]:
        return [
            lanes[0] if axis is None else np.stack(lanes, axis).take(range(self.size), axis)
            for lanes, axis in zip(self.inputs, self.axes, strict=True)
        ]

    def lane(self, k: int) -> list[Array]:
        """The arguments of one lane."""
        return [lanes[0 if axis is None else k] for lanes, axis in zip(self.inputs, self.axes, strict=True)]

    def stacked(self, results: Sequence[Sequence[Tracked]], axes: Sequence[int]) -> list[Tracked]:
        """The results of every lane as arrays with an axis for the lanes."""

        def along(arrays: Sequence[Array], axis: int) -> Array:
            return np.stack(arrays, axis).take(range(self.size), axis)

        return [
            Tracked(along([t.array for t in lanes], axis), along([t.errors for t in lanes], axis))
            for lanes, axis in zip(zip(*results, strict=True), axes, strict=True)
        ]


def run(trial: Trial) -> list[Failure]:
    """What differs from the function for one lane after the other."""
    try:
        results = (_control if trial.seed % 2 else _program)(trial)
    except Exception:
        return [Failure(trial, traceback.format_exc())]
    failures: list[Failure] = []
    for target, got, want in results:
        for k, (g, w) in enumerate(zip(got, want, strict=True)):
            if wrong := difference(np.asarray(g), w):
                failures.append(Failure(trial, f"{target}: result {k}: {wrong}"))
    return failures


Results = Iterator[tuple[str, Sequence[Any], Sequence[Tracked]]]


def _control(trial: Trial) -> Results:
    """A function of loops and branches."""
    program = RandomControl(trial.seed)
    numbers = np.random.default_rng(trial.seed)
    lanes = Lanes(trial.seed, program.inputs, lambda x, k: numbers.integers(-4, 5, x.shape).astype(x.dtype))
    expected = [
        [Tracked(np.asarray(r)) for r in Interpreter(np, PLAIN).run(program.body, {}, lanes.lane(k))]
        for k in range(max(lanes.size, 1))
    ]
    out_axes = [lanes.random.randint(-r.array.ndim - 1, r.array.ndim) for r in expected[0]]
    interpreter = Interpreter(dnp, lax)

    def function(*inputs: Any) -> Any:
        return interpreter.run(program.body, {}, inputs)

    batched = dlc.vmap(function, lanes.axes, out_axes)
    for target in trial.targets:
        compiled = dlc.jit(target=target, num_threads=1, cache=False)(lambda *inputs: batched(*inputs))
        yield target, compiled(*lanes.arguments), lanes.stacked(expected, out_axes)


def _program(trial: Trial) -> Results:
    """A program of `dl` ops."""
    program = random_program(trial.seed)
    if program.ops & LEFT_OUT or not program.inputs:
        return
    lanes = Lanes(trial.seed, program.inputs, _turned)
    results = [known.value for known in program.results]
    expected = [_tracked(program, lanes.lane(k), results) for k in range(max(lanes.size, 1))]
    out_axes = [lanes.random.randint(0, r.array.ndim) for r in expected[0]]
    program.block.add_op(dl.YieldOp(results))
    arguments = lanes.arguments
    main = Block(arg_types=[tensor_type(x.shape, element_type(x.dtype)) for x in arguments])
    in_axes = [-1 if axis is None else axis for axis in lanes.axes]
    op = dl.VmapOp.of(main.args, program.block, lanes.size, in_axes, out_axes)
    main.add_ops([op, func.ReturnOp(*op.results)])
    types = [a.type for a in main.args], [r.type for r in op.results]
    names = named_values("x", len(arguments)), named_values("y", len(results))
    module = ModuleOp([func.FuncOp("main", types, Region(main), arg_attrs=names[0], res_attrs=names[1])])
    for target in trial.targets:
        model = compile(Program(module.clone(), program.weights, f"lanes{trial.seed}"), target, OPTIONS)
        yield target, model.run_unchecked(arguments), lanes.stacked(expected, out_axes)


def _turned(x: Array, by: int) -> Array:
    """An array with its elements elsewhere: a matrix that is symmetric stays so."""
    return np.roll(x, by, tuple(range(x.ndim)) or None)


def _tracked(program: RandomProgram, inputs: Sequence[Array], results: Sequence[SSAValue]) -> list[Tracked]:
    """The results of a program for other inputs."""
    known = {v.value: v.tracked for v in program.values if v.tracked.given}
    known.update((a, Tracked(x, given=True)) for a, x in zip(program.block.args, inputs, strict=True))
    for op in program.block.ops:
        if op.results[0] in known:
            continue
        operands = [known[v] for v in op.operands]
        made = track(op, *operands) if isinstance(op, DlOp) else track_scan(op, operands)
        known.update(zip(op.results, made, strict=True))
    return [known[v] for v in results]


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """The functions of `count` seeds from `seed` on."""
    return [Trial(s, (target,) if target else TARGETS) for s in range(seed, seed + count)]


def fuzz(chosen: Sequence[Trial], jobs: int, progress: Callable[[Trial], None] = lambda trial: None) -> Iterator[Failure]:
    """The failures of all trials, crashes and hangs among them; `progress` hears of every trial."""
    for outcome in supervised(run, chosen, jobs=jobs, seconds=SECONDS):
        progress(outcome.item)
        if outcome.death is not None:
            yield Failure(outcome.item, outcome.death)
            continue
        assert isinstance(outcome.result, list)
        yield from outcome.result

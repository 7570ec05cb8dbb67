"""Compare `dlc.vmap` of random functions with the function applied to one example at a time.

The functions are the programs of the fuzzers `programs` and `control`, in turn.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
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
from tests.fuzz.bounded_value import BoundedArray, difference
from tests.fuzz.bounds import track
from tests.fuzz.draw_program import random_program
from tests.fuzz.program_bounds import track_scan
from tests.fuzz.programs import OPTIONS
from tests.fuzz.random_control import PLAIN, Interpreter, RandomControl
from tests.fuzz.random_program import RandomProgram, named_values
from tests.fuzz.trials import Trial, TrialOutcome, compared, trial_outcomes

TARGETS = ("reference", "cpu")
TIMEOUT_SECONDS = 120
# Ops that only passes after batching create (packed operands, sorting kernels) have no batching rule.
EXCLUDED_OPS = {
    *(dl.PackOp, dl.UnpackOp, dl.MatmulWeightOnlyOp, dl.MatmulWeightOnlyDotOp),
    *(
        dl.NetworkSortOp,
        dl.RadixSortOp,
        dl.SmallestKOp,
        dl.PartitionOp,
        dl.SearchsortedOp,
        dl.BinarySearchOp,
    ),
}


class BatchedInputs:
    """Arguments of a batched function.

    A batch has 0 to 5 examples; some arguments have a batched axis, anywhere, and the others are shared by all examples.
    """

    def __init__(self, seed: int, inputs: Sequence[Array], draw_example: Callable[[Array, int], Array]) -> None:
        self.random = random.Random(seed)
        self.size = self.random.choice([0, 1, 2, 3, 3, 5])
        is_batched = [self.random.random() < 0.7 for _ in inputs]
        if inputs and not any(is_batched):
            is_batched[0] = True
        self.axes = [self.random.randint(0, x.ndim) if d else None for x, d in zip(inputs, is_batched, strict=True)]
        # An empty batch still has one example, for the shapes and dtypes of the results.
        self.inputs = [[draw_example(x, k) for k in range(max(self.size, 1))] for x in inputs]

    @property
    def arguments(self) -> list[Array]:
        return [
            examples[0] if axis is None else np.stack(examples, axis).take(range(self.size), axis)
            for examples, axis in zip(self.inputs, self.axes, strict=True)
        ]

    def example(self, k: int) -> list[Array]:
        """Return the arguments of one example."""
        return [examples[0 if axis is None else k] for examples, axis in zip(self.inputs, self.axes, strict=True)]

    def stack_results(self, results: Sequence[Sequence[BoundedArray]], axes: Sequence[int]) -> list[BoundedArray]:
        """Stack the results of all examples along the batched axes of the results."""

        def along(arrays: Sequence[Array], axis: int) -> Array:
            return np.stack(arrays, axis).take(range(self.size), axis)

        return [
            BoundedArray(along([t.array for t in examples], axis), along([t.errors for t in examples], axis))
            for examples, axis in zip(zip(*results, strict=True), axes, strict=True)
        ]


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and the differences from the function applied to one example at a time or None."""
    try:
        results = (_control_case if trial.seed % 2 else _op_case)(trial)
    except Exception:
        return "failed", traceback.format_exc()
    mismatches: list[str] = []
    for target, got, want in results:
        for k, (g, w) in enumerate(zip(got, want, strict=True)):
            if mismatch := difference(np.asarray(g), w):
                mismatches.append(f"{target}: result {k}: {mismatch}")
    return compared(mismatches)


Results = Iterator[tuple[str, Sequence[Any], Sequence[BoundedArray]]]


def _control_case(trial: Trial) -> Results:
    """Run a batched function of loops and branches."""
    program = RandomControl(trial.seed)
    rng = np.random.default_rng(trial.seed)
    batch = BatchedInputs(trial.seed, program.inputs, lambda x, k: rng.integers(-4, 5, x.shape).astype(x.dtype))
    expected = [
        [BoundedArray(np.asarray(r)) for r in Interpreter(np, PLAIN).run(program.body, {}, batch.example(k))]
        for k in range(max(batch.size, 1))
    ]
    out_axes = [batch.random.randint(-r.array.ndim - 1, r.array.ndim) for r in expected[0]]
    interpreter = Interpreter(dnp, lax)

    def function(*inputs: Any) -> Any:
        return interpreter.run(program.body, {}, inputs)

    batched = dlc.vmap(function, batch.axes, out_axes)
    for target in trial.targets:
        compiled = dlc.jit(target=target, num_threads=1, cache=False)(lambda *inputs: batched(*inputs))
        yield target, compiled(*batch.arguments), batch.stack_results(expected, out_axes)


def _op_case(trial: Trial) -> Results:
    """Run a batched program of `dl` ops."""
    program = random_program(trial.seed)
    if program.ops & EXCLUDED_OPS or not program.inputs:
        return
    batch = BatchedInputs(trial.seed, program.inputs, _rolled)
    results = [v.value for v in program.results]
    expected = [_evaluate(program, batch.example(k), results) for k in range(max(batch.size, 1))]
    out_axes = [batch.random.randint(0, r.array.ndim) for r in expected[0]]
    program.block.add_op(dl.YieldOp(results))
    arguments = batch.arguments
    main = Block(arg_types=[tensor_type(x.shape, element_type(x.dtype)) for x in arguments])
    in_axes = [-1 if axis is None else axis for axis in batch.axes]
    op = dl.VmapOp.of(main.args, program.block, batch.size, in_axes, out_axes)
    main.add_ops([op, func.ReturnOp(*op.results)])
    types = [a.type for a in main.args], [r.type for r in op.results]
    names = named_values("x", len(arguments)), named_values("y", len(results))
    module = ModuleOp([func.FuncOp("main", types, Region(main), arg_attrs=names[0], res_attrs=names[1])])
    for target in trial.targets:
        model = compile(Program(module.clone(), program.weights, f"batched{trial.seed}"), target, OPTIONS)
        yield target, model.run_unchecked(arguments), batch.stack_results(expected, out_axes)


def _rolled(x: Array, shift: int) -> Array:
    """Permute the elements of an array along all axes at once, which keeps a symmetric matrix symmetric."""
    return np.roll(x, shift, tuple(range(x.ndim)) or None)


def _evaluate(program: RandomProgram, inputs: Sequence[Array], results: Sequence[SSAValue]) -> list[BoundedArray]:
    """Evaluate a program, with error bounds, for other inputs."""
    values = {v.value: v.bounded for v in program.values if v.bounded.is_source}
    values.update((a, BoundedArray(x, is_source=True)) for a, x in zip(program.block.args, inputs, strict=True))
    for op in program.block.ops:
        if op.results[0] in values:
            continue
        operands = [values[v] for v in op.operands]
        op_results = track(op, *operands) if isinstance(op, DlOp) else track_scan(op, operands)
        values.update(zip(op.results, op_results, strict=True))
    return [values[v] for v in results]


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("batching", s, (target,) if target else TARGETS) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)

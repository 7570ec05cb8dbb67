"""Capture the values that a program computes, op by op and kernel by kernel, to compare later stages with them.

    trace = Evaluator(inputs).trace(module, weights)     values of a module's ops, its outputs, and the inputs of each kernel
    run_kernel(module, run)                              run a kernel at any stage on captured inputs
    replay(module, weights, inputs, trace.runs)          run the host program with captured kernel results

Passes change few ops, and the stages of a kernel change nothing outside it: evaluated expressions are memoized, and from the
fusion stage on each kernel is checked separately on captured inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import cast

import numpy as np

from dlc.backends.reference import call
from dlc.backends.reference.evaluation_context import EvaluationContext, Frame
from dlc.backends.reference.program import argument, empty_like, reinterpret_dtype
from dlc.backends.reference.values import Array, EvaluationError, MemrefView, shape_of
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.data_dependent.selection import BindSizeOp
from dlc.dialects.dl.programs.binding import bound_kernel
from dlc.dialects.dl.programs.control import Control
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.entry import entry_of, outputs_of
from dlc.dialects.host import LaunchOp
from dlc.dialects.sizes import symbol
from dlc.errors import UnsupportedError
from dlc.instrument.compare import deviation, largest_deviation, tolerance_of
from dlc.instrument.provenance import origins
from dlc.ir import Block, ModuleOp, Operation, SSAValue, func, print_module
from dlc.passes.base import kernels_of
from dlc.passes.transformations.expand_transformations import expand_for_evaluation

# A program rounds repeatedly: it may deviate by this multiple of the effect of rounding its inputs and weights once.
_ROUNDING_MULTIPLE = 16


@dataclass(frozen=True)
class CapturedValue:
    """An array that an expression computed; equal expressions on equal inputs have equal IDs."""

    value_id: int
    array: Array
    constant: bool = False


Values = tuple[CapturedValue, ...]
# The names of the ONNX nodes or Python lines from which an op was created.
Origins = tuple[str, ...]
# A computed array with its origins.
ArrayWithOrigins = tuple[Origins, Array]


@dataclass(frozen=True)
class OpEvaluation:
    """One evaluation of a `dl` op; `kernel` is the kernel that contains the op, if any."""

    op: Operation
    origins: Origins
    kernel: str | None
    operands: Values
    results: Values


@dataclass(frozen=True)
class KernelRun:
    """One run of a kernel.

    Attributes:
        origins: The origins of its ops.
        tolerance: The allowed relative deviation of its results, which depends on its dtypes.
        sizes: The size arguments of a kernel with symbolic sizes.
    """

    kernel: str
    origins: Origins
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    tolerance: float
    sizes: tuple[int, ...] = ()


@dataclass
class EvaluationTrace:
    """All values that one evaluation of a program computed."""

    steps: list[OpEvaluation] = field(default_factory=list[OpEvaluation])
    runs: list[KernelRun] = field(default_factory=list[KernelRun])
    outputs: Values = ()
    # The values of the entry function.
    values: dict[SSAValue, Array] = field(default_factory=dict[SSAValue, Array])

    @property
    def results(self) -> list[Array]:
        """The outputs of the program."""
        return [value.array for value in self.outputs]

    @property
    def arrays_with_origins(self) -> list[ArrayWithOrigins]:
        """All computed arrays, with their origins."""
        in_steps = [(step.origins, value.array) for step in self.steps for value in step.results]
        return [*in_steps, *((run.origins, array) for run in self.runs for array in run.outputs)]

    @property
    def arrays(self) -> list[Array]:
        """All computed arrays."""
        return [array for _, array in self.arrays_with_origins]

    @property
    def producers(self) -> dict[int, OpEvaluation]:
        """The evaluation that produced each value, by value ID."""
        return {value.value_id: step for step in self.steps for value in step.results}

    def find_run(self, kernel: str) -> KernelRun | None:
        """Return the first run of a kernel, or None."""
        return next((run for run in self.runs if run.kernel == kernel), None)


class Evaluator:
    """Evaluate the entry of a program repeatedly for the same inputs, while passes change it."""

    def __init__(self, inputs: Sequence[Array]) -> None:
        self.inputs = tuple(inputs)
        self._memoized: dict[Hashable, Values] = {}
        self._value_ids = count()

    def trace(self, module: ModuleOp, weights: Mapping[str, Array]) -> EvaluationTrace:
        """Evaluate `module`, whose kernels may be at any stage.

        Raises EvaluationError if the IR contradicts itself, and other errors of evaluation.
        """
        module = expand_for_evaluation(module)
        main = entry_of(module)
        if outputs_of(main):
            raise UnsupportedError("the host program is bufferized already; start from an earlier file of the dump")
        tracer = _Tracer(module, weights, self._memoized, self._value_ids)
        with np.errstate(all="ignore"):
            tracer.run(main, self.inputs)
        self._memoized = tracer.used
        return tracer.trace


class _Tracer:
    """Evaluates a module once. `memoized` has the values of the previous evaluation, `used` those of this one."""

    def __init__(
        self,
        module: ModuleOp,
        weights: Mapping[str, Array],
        memoized: Mapping[Hashable, Values],
        value_ids: Iterator[int],
    ) -> None:
        self.module = module
        self.weights = weights
        self.memoized = memoized
        self.used: dict[Hashable, Values] = {}
        self.value_ids = value_ids
        self.trace = EvaluationTrace()
        self.callees: dict[str, KernelOp | func.FuncOp] = {k.symbol: k for k in module.ops if isinstance(k, KernelOp)}
        self.callees |= {k.sym_name.data: k for k in kernels_of(module)}

    def run(self, main: func.FuncOp, inputs: Sequence[Array]) -> None:
        arguments = [
            self.values(("input", k), lambda a=a, t=v.type: (reinterpret_dtype(lambda: "an input", a, t),))[0]
            for k, (a, v) in enumerate(zip(inputs, main.args, strict=True))
        ]
        self.trace.outputs = self.block(main.body.block, arguments)

    def values(self, key: Hashable, compute: Callable[[], Sequence[Array]], constant: bool = False) -> Values:
        """Return the values of an expression; they are computed unless they are memoized."""
        if key not in self.used:
            cached = self.memoized.get(key)
            self.used[key] = cached or tuple(CapturedValue(next(self.value_ids), array, constant) for array in compute())
        return self.used[key]

    def block(
        self,
        block: Block,
        arguments: Sequence[CapturedValue],
        kernel: str | None = None,
        kernel_origins: Sequence[str] = (),
        captured_values: Mapping[SSAValue, CapturedValue] | None = None,
    ) -> Values:
        """Evaluate the ops of the entry, of a body with `captured_values`, or of a kernel with `kernel_origins`.

        Return the operands of the terminator.
        """
        env: dict[SSAValue, CapturedValue] = {**(captured_values or {}), **dict(zip(block.args, arguments, strict=True))}
        for op in block.ops:
            operands = tuple(env[v] for v in op.operands)
            if op is block.last_op:
                return operands
            if isinstance(op, BindSizeOp):
                # All sizes are static here.
                continue
            if isinstance(op, DispatchOp):
                results = self.dispatch(op, operands)
            elif isinstance(op, Control):
                results = self.control(op, operands, env)
            else:
                results = self.op(op, operands)
                if not isinstance(op, WeightOp):
                    self.trace.steps.append(OpEvaluation(op, _op_origins(op, kernel_origins), kernel, operands, results))
            env.update(zip(op.results, results, strict=True))
            if kernel is None:
                self.trace.values.update({r: v.array for r, v in zip(op.results, results, strict=True)})
        return ()

    def control(self, op: Control, operands: Values, captured_values: Mapping[SSAValue, CapturedValue]) -> Values:
        """Evaluate a loop or a branch; the ops of its bodies are traced like those of the main function."""

        def run(block: Block, arguments: Sequence[Array]) -> Sequence[Array]:
            return [v.array for v in self.block(block, [self.carried(a) for a in arguments], captured_values=captured_values)]

        return tuple(map(self.carried, op.execute([v.array for v in operands], run)))

    def carried(self, array: Array) -> CapturedValue:
        """Return a loop-carried value, identified by its contents."""
        array = np.asarray(array)
        return self.values(("contents", array.dtype, array.shape, array.tobytes()), lambda: (array,))[0]

    def op(self, op: Operation, operands: Values) -> Values:
        """Evaluate a `dl` op."""
        if not isinstance(op, DlOp):
            raise UnsupportedError(f"{op.name} in the entry of a program on tensors: no evaluation rule")
        properties = tuple(sorted(op.properties.items(), key=lambda item: item[0]))
        key = (op.name, properties, tuple(op.result_types), tuple(v.value_id for v in operands))

        def compute() -> list[Array]:
            if isinstance(op, WeightOp):
                results: Sequence[Array] = (read_weight(self.weights, op.symbol.string_value()),)
            else:
                results = op.evaluate(*(v.array for v in operands))
            return [
                reinterpret_dtype(lambda: f"result of {op.name}", a, r.type) for a, r in zip(results, op.results, strict=True)
            ]

        return self.values(key, compute, all(v.constant for v in operands))

    def dispatch(self, op: DispatchOp, operands: Values) -> Values:
        """Evaluate a kernel and record its run."""
        if op.symbol not in self.callees:
            raise EvaluationError(f"{op.name}: no kernel @{op.symbol} in the module")
        kernel, kernel_origins, first_step = self.callees[op.symbol], origins(op.location), len(self.trace.steps)
        sizes = tuple(map(int, op.sizes.sizes)) if op.sizes is not None else ()
        if isinstance(kernel, KernelOp):
            kernel = bound_kernel(kernel, {symbol(k): size for k, size in enumerate(sizes)}) if sizes else kernel
            results = self.block(kernel.body.block, operands, op.symbol, kernel_origins)
        else:
            key = (print_module(kernel, locations=False), sizes, tuple(v.value_id for v in operands))
            arrays, shapes = [v.array for v in operands], [shape_of(r) for r in op.results]
            results = self.values(key, lambda: call(self.module, op.symbol, arrays, sizes, shapes))
        inputs, outputs = (tuple(v.array for v in values) for values in (operands, results))
        inner = (v.array for step in self.trace.steps[first_step:] for v in step.results)
        tolerance = tolerance_of((*inputs, *outputs, *inner))
        self.trace.runs.append(KernelRun(op.symbol, kernel_origins, inputs, outputs, tolerance, sizes))
        return results


def read_weight(weights: Mapping[str, Array], name: str) -> Array:
    """Return an array of the weights store; raises EvaluationError if there is none of that name."""
    if name not in weights:
        raise EvaluationError(f"no weight @{name} in the store")
    return weights[name]


def _op_origins(op: Operation, kernel_origins: Sequence[str]) -> tuple[str, ...]:
    """Return the origins of an op; in a kernel, a location `#k` refers to the list of origins of the dispatch."""
    names = origins(op.location)
    return tuple(
        kernel_origins[int(n[1:])] if n[:1] == "#" and n[1:].isdecimal() and int(n[1:]) < len(kernel_origins) else n
        for n in names
    )


def rounding_tolerance(
    module: ModuleOp, weights: Mapping[str, Array], inputs: Sequence[Array], results: Sequence[Array]
) -> float:
    """Return the deviation that rounding can explain: a multiple of the effect of changing inputs and weights by one ulp.

    In an ill-conditioned program it exceeds the tolerance of the dtypes.
    """
    perturbed = {name: _perturb(a) for name, a in weights.items()}
    results_of_perturbed = Evaluator([_perturb(a) for a in inputs]).trace(module, perturbed).results
    return _ROUNDING_MULTIPLE * largest_deviation(results_of_perturbed, results)[1]


def _perturb(array: Array) -> Array:
    """Return a float array with every other element changed by one ulp."""
    if array.dtype.kind != "f":
        return array
    result = np.array(array, order="C")
    flat = result.reshape(-1)
    flat[::2] = np.nextafter(flat[::2], np.array(np.inf, array.dtype))
    return result


def run_kernel(module: ModuleOp, run: KernelRun) -> list[Array]:
    """Run a kernel of `module`, at any stage, on captured inputs."""
    return call(module, run.kernel, run.inputs, run.sizes, [a.shape for a in run.outputs])


def replay(module: ModuleOp, weights: Mapping[str, Array], inputs: Sequence[Array], runs: Sequence[KernelRun]) -> list[Array]:
    """Run a host program, on tensors or buffers, with captured kernel results; return its outputs.

    Raises OperandMismatch if a kernel is not run on its captured operands.
    """
    main = entry_of(module)
    remaining_runs = iter(runs)

    def captured(op: DispatchOp | LaunchOp, frame: Frame) -> Sequence[Array]:
        return _replay_kernel(op, frame, next(remaining_runs, None))

    destinations = [empty_like(a.type, shape_of(a)) for a in outputs_of(main)]
    arrays = (*(np.asarray(a, order="C") for a in inputs), *destinations)
    values = [
        argument(f"argument {k} of @main", array, value.type)
        for k, (value, array) in enumerate(zip(main.args, arrays, strict=True))
    ]
    context = EvaluationContext({}, weights, {DispatchOp: captured, LaunchOp: captured})
    with np.errstate(all="ignore"):
        results = Frame(context).run(main.body.block, values)
    skipped = next(remaining_runs, None)
    if skipped is not None:
        raise OperandMismatch(skipped, "the host program no longer runs it")
    return destinations or [cast(Array, r) for r in results]


class OperandMismatch(Exception):
    """A host program runs a kernel on other operands than captured; `problem` describes the mismatch.

    For an operand, `deviation` and `tolerance` are set.
    """

    def __init__(self, run: KernelRun, problem: str, deviation: float = 0.0, tolerance: float | None = None) -> None:
        super().__init__(f"{run.kernel}: {problem}")
        self.run, self.problem, self.deviation, self.tolerance = run, problem, deviation, tolerance


def _replay_kernel(op: DispatchOp | LaunchOp, frame: Frame, run: KernelRun | None) -> Sequence[Array]:
    """Return the captured results of a dispatch after checking its operands; for a launch, write the results to its buffers."""
    if run is None or op.symbol != run.kernel:
        run = run or KernelRun(op.symbol, origins(op.location), (), (), 0.0)
        raise OperandMismatch(run, f"the host program runs @{op.symbol} instead")
    destinations = op.arguments[len(run.inputs) :]
    for operand in destinations:
        # Overwrite the destinations first: they must not overlap the kernel's inputs.
        frame.view(operand).write(op, empty_like(operand.type, shape_of(operand)))
    for k, (operand, expected) in enumerate(zip(op.arguments, run.inputs, strict=False)):
        value = frame[operand]
        operand_deviation, tolerance = (
            deviation(value.read(op) if isinstance(value, MemrefView) else value, expected),
            tolerance_of([expected]),
        )
        if operand_deviation > tolerance:
            raise OperandMismatch(run, f"operand {k}", operand_deviation, tolerance)
    if isinstance(op, DispatchOp):
        return run.outputs
    for operand, array in zip(destinations, run.outputs, strict=True):
        frame.view(operand).write(op, array)
    return ()

"""What a program computes on given inputs, op by op and kernel by kernel, captured once and compared with later.

    trace = Evaluator(inputs).trace(module, weights)     values of a module's ops, outputs, and what each kernel was run on
    run_kernel(module, run)                              a kernel at any stage, on what it was captured with
    replay(module, weights, inputs, trace.runs)          the host program with the kernels' captured results in their place

Passes change few ops, and a kernel's stages change nothing outside it: an expression that has been evaluated is not
evaluated again, and from fusion on each kernel is judged by itself on captured inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import cast

import numpy as np

from dlc.backends.reference import call
from dlc.backends.reference.machine import Frame, Machine
from dlc.backends.reference.program import argument, empty_like, same_bits
from dlc.backends.reference.values import Array, EvaluationError, View, shape_of
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.data_dependent.selection import DecideOp
from dlc.dialects.dl.programs.binding import bound_kernel
from dlc.dialects.dl.programs.control import Control
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.entry import entry_of, outputs_of
from dlc.dialects.host import LaunchOp
from dlc.dialects.sizes import symbol
from dlc.errors import UnsupportedError
from dlc.instrument.compare import deviation, tolerance_of, worst
from dlc.instrument.provenance import origins
from dlc.ir import Block, ModuleOp, Operation, SSAValue, func, print_module
from dlc.passes.base import kernels_of
from dlc.passes.transformations.expand_transformations import expanded

# A program rounds more often than its inputs and weights do.
_ROUNDINGS = 16


@dataclass(frozen=True)
class Value:
    """An array that an expression gave; equal expressions over equal inputs have equal numbers."""

    number: int
    array: Array
    constant: bool = False


Values = tuple[Value, ...]
# The names that an op comes from.
Origins = tuple[str, ...]
# An array that was computed, and what it comes from.
Made = tuple[Origins, Array]


@dataclass(frozen=True)
class Step:
    """One `dl` op, evaluated; `kernel` is the one that it is inside of."""

    op: Operation
    origins: Origins
    kernel: str | None
    operands: Values
    results: Values


@dataclass(frozen=True)
class KernelRun:
    """A kernel's inputs and outputs where the program ran it, the origins of its ops, and the tolerance of its dtypes.

    `sizes` are those that it takes besides, of a kernel that serves several.
    """

    kernel: str
    origins: Origins
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    tolerance: float
    sizes: tuple[int, ...] = ()


@dataclass
class Trace:
    """All that one evaluation of a program gave."""

    steps: list[Step] = field(default_factory=list[Step])
    runs: list[KernelRun] = field(default_factory=list[KernelRun])
    outputs: Values = ()
    # What the entry computes, by value.
    values: dict[SSAValue, Array] = field(default_factory=dict[SSAValue, Array])

    @property
    def results(self) -> list[Array]:
        """The program's outputs."""
        return [value.array for value in self.outputs]

    @property
    def made(self) -> list[Made]:
        """Everything that was computed, with its origins."""
        in_steps = [(step.origins, value.array) for step in self.steps for value in step.results]
        return [*in_steps, *((run.origins, array) for run in self.runs for array in run.outputs)]

    @property
    def arrays(self) -> list[Array]:
        """Everything that was computed."""
        return [array for _, array in self.made]

    @property
    def makers(self) -> dict[int, Step]:
        """The step that gives each value, by the value's number."""
        return {value.number: step for step in self.steps for value in step.results}

    def run_of(self, kernel: str) -> KernelRun | None:
        """The first run of a kernel, if the program runs it."""
        return next((run for run in self.runs if run.kernel == kernel), None)


class Evaluator:
    """Evaluates the entry of a program, again and again while passes change it, for the same inputs."""

    def __init__(self, inputs: Sequence[Array]) -> None:
        self.inputs = tuple(inputs)
        self._known: dict[Hashable, Values] = {}
        self._numbers = count()

    def trace(self, module: ModuleOp, weights: Mapping[str, Array]) -> Trace:
        """What `module` computes, whatever stage its kernels are at.

        Raises EvaluationError where the IR contradicts itself, and what evaluating it raises.
        """
        module = expanded(module)
        main = entry_of(module)
        if outputs_of(main):
            raise UnsupportedError("the program's buffers are planned already; start from an earlier file of the dump")
        tracer = _Tracer(module, weights, self._known, self._numbers)
        with np.errstate(all="ignore"):
            tracer.run(main, self.inputs)
        self._known = tracer.used
        return tracer.trace


class _Tracer:
    """One evaluation; `known` holds the values of expressions that the last one met, `used` those that this one does."""

    def __init__(
        self,
        module: ModuleOp,
        weights: Mapping[str, Array],
        known: Mapping[Hashable, Values],
        numbers: Iterator[int],
    ) -> None:
        self.module = module
        self.weights = weights
        self.known = known
        self.used: dict[Hashable, Values] = {}
        self.numbers = numbers
        self.trace = Trace()
        self.callees: dict[str, KernelOp | func.FuncOp] = {k.symbol: k for k in module.ops if isinstance(k, KernelOp)}
        self.callees |= {k.sym_name.data: k for k in kernels_of(module)}

    def run(self, main: func.FuncOp, inputs: Sequence[Array]) -> None:
        arguments = [
            self.values(("input", k), lambda a=a, t=v.type: (same_bits(lambda: "an input", a, t),))[0]
            for k, (a, v) in enumerate(zip(inputs, main.args, strict=True))
        ]
        self.trace.outputs = self.block(main.body.block, arguments)

    def values(self, key: Hashable, compute: Callable[[], Sequence[Array]], constant: bool = False) -> Values:
        """The values of an expression, computed unless they are known."""
        if key not in self.used:
            known = self.known.get(key)
            self.used[key] = known or tuple(Value(next(self.numbers), array, constant) for array in compute())
        return self.used[key]

    def block(
        self,
        block: Block,
        arguments: Sequence[Value],
        kernel: str | None = None,
        places: Sequence[str] = (),
        outside: Mapping[SSAValue, Value] | None = None,
    ) -> Values:
        """Evaluates the ops of the entry, of a body that reads values from `outside`, or of a kernel of origins `places`.

        Returns the operands of its terminator.
        """
        env: dict[SSAValue, Value] = {**(outside or {}), **dict(zip(block.args, arguments, strict=True))}
        for op in block.ops:
            operands = tuple(env[v] for v in op.operands)
            if op is block.last_op:
                return operands
            if isinstance(op, DecideOp):
                # Sizes are known by then.
                continue
            if isinstance(op, DispatchOp):
                results = self.dispatch(op, operands)
            elif isinstance(op, Control):
                results = self.control(op, operands, env)
            else:
                results = self.op(op, operands)
                if not isinstance(op, WeightOp):
                    self.trace.steps.append(Step(op, _named(op, places), kernel, operands, results))
            env.update(zip(op.results, results, strict=True))
            if kernel is None:
                self.trace.values.update({r: v.array for r, v in zip(op.results, results, strict=True)})
        return ()

    def control(self, op: Control, operands: Values, outside: Mapping[SSAValue, Value]) -> Values:
        """The results of a loop or a branch, whose steps are evaluated like the entry."""

        def run(block: Block, arguments: Sequence[Array]) -> Sequence[Array]:
            return [v.array for v in self.block(block, [self.carried(a) for a in arguments], outside=outside)]

        return tuple(map(self.carried, op.execute([v.array for v in operands], run)))

    def carried(self, array: Array) -> Value:
        """A value that a loop or a branch hands on: known by its contents."""
        array = np.asarray(array)
        return self.values(("contents", array.dtype, array.shape, array.tobytes()), lambda: (array,))[0]

    def op(self, op: Operation, operands: Values) -> Values:
        if not isinstance(op, DlOp):
            raise UnsupportedError(f"{op.name} in the entry of a program on tensors: no evaluation rule")
        properties = tuple(sorted(op.properties.items(), key=lambda item: item[0]))
        key = (op.name, properties, tuple(op.result_types), tuple(v.number for v in operands))

        def compute() -> list[Array]:
            if isinstance(op, WeightOp):
                results: Sequence[Array] = (weight_of(self.weights, op.symbol.string_value()),)
            else:
                results = op.evaluate(*(v.array for v in operands))
            return [same_bits(lambda: f"result of {op.name}", a, r.type) for a, r in zip(results, op.results, strict=True)]

        return self.values(key, compute, all(v.constant for v in operands))

    def dispatch(self, op: DispatchOp, operands: Values) -> Values:
        if op.symbol not in self.callees:
            raise EvaluationError(f"{op.name}: no kernel @{op.symbol} in the module")
        kernel, places, first = self.callees[op.symbol], origins(op.location), len(self.trace.steps)
        sizes = tuple(map(int, op.sizes.sizes)) if op.sizes is not None else ()
        if isinstance(kernel, KernelOp):
            kernel = bound_kernel(kernel, {symbol(k): size for k, size in enumerate(sizes)}) if sizes else kernel
            results = self.block(kernel.body.block, operands, op.symbol, places)
        else:
            key = (print_module(kernel, locations=False), sizes, tuple(v.number for v in operands))
            arrays, shapes = [v.array for v in operands], [shape_of(r) for r in op.results]
            results = self.values(key, lambda: call(self.module, op.symbol, arrays, sizes, shapes))
        inputs, outputs = (tuple(v.array for v in values) for values in (operands, results))
        inner = (v.array for step in self.trace.steps[first:] for v in step.results)
        tolerance = tolerance_of((*inputs, *outputs, *inner))
        self.trace.runs.append(KernelRun(op.symbol, places, inputs, outputs, tolerance, sizes))
        return results


def weight_of(weights: Mapping[str, Array], name: str) -> Array:
    """An array of the store; raises EvaluationError if it has none of that name."""
    if name not in weights:
        raise EvaluationError(f"no weight @{name} in the store")
    return weights[name]


def _named(op: Operation, places: Sequence[str]) -> tuple[str, ...]:
    """The origins of an op; inside a kernel its location is a place in the dispatch's list."""
    names = origins(op.location)
    return tuple(places[int(n[1:])] if n[:1] == "#" and n[1:].isdecimal() and int(n[1:]) < len(places) else n for n in names)


def rounding(module: ModuleOp, weights: Mapping[str, Array], inputs: Sequence[Array], results: Sequence[Array]) -> float:
    """The deviation that rounding explains: some times the one that the last bits of inputs and weights make.

    In an ill-conditioned program that is more than the tolerance of its dtypes.
    """
    nudged = {name: _nudged(a) for name, a in weights.items()}
    moved = Evaluator([_nudged(a) for a in inputs]).trace(module, nudged).results
    return _ROUNDINGS * worst(moved, results)[1]


def _nudged(array: Array) -> Array:
    """An array of floats, every other one its neighbour."""
    if array.dtype.kind != "f":
        return array
    result = np.array(array, order="C")
    flat = result.reshape(-1)
    flat[::2] = np.nextafter(flat[::2], np.array(np.inf, array.dtype))
    return result


def run_kernel(module: ModuleOp, run: KernelRun) -> list[Array]:
    """What a kernel of `module`, at whatever stage it is, makes of captured inputs."""
    return call(module, run.kernel, run.inputs, run.sizes, [a.shape for a in run.outputs])


def replay(module: ModuleOp, weights: Mapping[str, Array], inputs: Sequence[Array], runs: Sequence[KernelRun]) -> list[Array]:
    """The outputs of a host program, on tensors or on buffers, whose kernels give what was captured.

    Raises WrongOperand where a kernel is not run on what it was captured with.
    """
    main = entry_of(module)
    left = iter(runs)

    def captured(op: DispatchOp | LaunchOp, frame: Frame) -> Sequence[Array]:
        return _replay_kernel(op, frame, next(left, None))

    destinations = [empty_like(a.type, shape_of(a)) for a in outputs_of(main)]
    arrays = (*(np.asarray(a, order="C") for a in inputs), *destinations)
    values = [
        argument(f"argument {k} of @main", array, value.type)
        for k, (value, array) in enumerate(zip(main.args, arrays, strict=True))
    ]
    machine = Machine({}, weights, {DispatchOp: captured, LaunchOp: captured})
    with np.errstate(all="ignore"):
        results = Frame(machine).run(main.body.block, values)
    skipped = next(left, None)
    if skipped is not None:
        raise WrongOperand(skipped, "it is not run any more")
    return destinations or [cast(Array, r) for r in results]


class WrongOperand(Exception):
    """A host program does not run a kernel on what it was captured with: `what` says which operand, or what it does instead.

    An operand has a deviation and a tolerance.
    """

    def __init__(self, run: KernelRun, what: str, deviation: float = 0.0, tolerance: float | None = None) -> None:
        super().__init__(f"{run.kernel}: {what}")
        self.run, self.what, self.deviation, self.tolerance = run, what, deviation, tolerance


def _replay_kernel(op: DispatchOp | LaunchOp, frame: Frame, run: KernelRun | None) -> Sequence[Array]:
    """What a dispatch gives; a launch writes it."""
    if run is None or op.symbol != run.kernel:
        run = run or KernelRun(op.symbol, origins(op.location), (), (), 0.0)
        raise WrongOperand(run, f"@{op.symbol} is run in its place")
    destinations = op.arguments[len(run.inputs) :]
    for operand in destinations:
        # What a kernel reads must not lie where it writes.
        frame.view(operand).write(op, empty_like(operand.type, shape_of(operand)))
    for k, (operand, expected) in enumerate(zip(op.arguments, run.inputs, strict=False)):
        value = frame[operand]
        off, allowed = deviation(value.read(op) if isinstance(value, View) else value, expected), tolerance_of([expected])
        if off > allowed:
            raise WrongOperand(run, f"operand {k}", off, allowed)
    if isinstance(op, DispatchOp):
        return run.outputs
    for operand, array in zip(destinations, run.outputs, strict=True):
        frame.view(operand).write(op, array)
    return ()

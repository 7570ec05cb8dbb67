"""Compare two programs on the same inputs: models, edited modules of a dump, compiled models; find where they diverge.

    comparison = difference(program, edited, inputs)
    comparison.outputs[0].agrees               whether an output is equal within the tolerance
    comparison.first                           the first value that only the second program computes, and its op

Both are evaluated op by op, and equal values are computed once. If kernels are functions already, the first one with different
results is run again in both programs, and the ops of its body are compared in order. Compiled programs run launch by launch,
and their values are the results of kernels. If buffers are planned, loops and branches determine sizes, or a model is
specialized at run time, only outputs can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, cast

import numpy as np

from dlc.backends.reference import call
from dlc.backends.reference.evaluation_context import Frame
from dlc.backends.reference.values import MemrefView, Value
from dlc.compiler import Program
from dlc.debug.evaluation import evaluate_outputs
from dlc.debug.launches import LaunchTrace, trace_launches
from dlc.dialects.dl.base import Array, Tensor, shape_of
from dlc.dialects.dl.data_dependent.selection import BindSizeOp, SelectionOp
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.control import Control
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dialects.entry import entry_of, outputs_of
from dlc.errors import ShapeError, UnsupportedError
from dlc.instrument.capture import CapturedValue as Operand
from dlc.instrument.capture import EvaluationTrace, Evaluator, KernelRun, rounding_tolerance
from dlc.instrument.compare import deviation, largest_deviation, tolerance_of
from dlc.instrument.fault_localization import Counterparts, locate_fault
from dlc.instrument.printing import print_with_lines
from dlc.instrument.provenance import origins
from dlc.ir import MemRefType, ModuleOp, Operation, SSAValue, func
from dlc.passes.base import kernels_of
from dlc.passes.dl.programs.selection_counts import decompose_selections
from dlc.passes.transformations.expand_transformations import expand_for_evaluation
from dlc.runtime.compiled_program import CompiledProgram
from dlc.runtime.models.model import Model
from dlc.shapes.dims import Size, is_static
from dlc.shapes.input_sizes import bind_sizes, require_matching_inputs

# Values of up to this many bytes are recorded per kernel for comparison.
_MAX_CAPTURED_BYTES = 1 << 29
ComparedProgram = Program | Model


@dataclass(frozen=True)
class OutputDifference:
    """The deviation of an output, relative to its largest magnitude, and the allowed tolerance."""

    name: str
    deviation: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.deviation <= self.tolerance


@dataclass(frozen=True)
class FirstDifference:
    """The first value of the second program that the first program does not compute.

    Attributes:
        text: The line of the op that computes the value. It is None if one of the programs is compiled, because only the
            results of whole kernels are observable there.
        origins: The ONNX nodes or Python lines of the op or kernel.
        kernel: The name of the kernel, if the value is computed in one.
    """

    text: str | None
    origins: tuple[str, ...]
    kernel: str | None = None

    def __str__(self) -> str:
        kernel_text = f"\n  in kernel @{self.kernel}" if self.kernel is not None else ""
        producer = f"kernel @{self.kernel}, as a whole" if self.text is None else self.text + kernel_text
        return producer + (f"\n  from {', '.join(self.origins)}" if self.origins else "")


@dataclass(frozen=True)
class ProgramDifference:
    """The comparison of all outputs, and the first different value."""

    outputs: tuple[OutputDifference, ...]
    first: FirstDifference | None = None

    @property
    def agrees(self) -> bool:
        return all(output.agrees for output in self.outputs)


def difference(
    first: ComparedProgram, second: ComparedProgram, arrays: Sequence[Array], tolerance: float | None = None
) -> ProgramDifference:
    """Compare two programs on the same inputs.

    `tolerance` is relative to the largest magnitude of an output; None chooses it by dtype. A different data-dependent size is
    reported as a difference. Raises ShapeError if the programs have different outputs.
    """
    evaluator = Evaluator(arrays)
    output_shapes = [[info.shape for info in program.outputs] for program in (first, second)]
    if not (isinstance(first, Program) and isinstance(second, Program)):
        first, second = map(_decompose_selections, (first, second))
    first, second = (
        _bind_data_dependent_sizes(program, evaluator) if isinstance(program, Program) else program
        for program in (first, second)
    )
    results, traces = list[Sequence[Array]](), list[EvaluationTrace | LaunchTrace | None]()
    for program in (first, second):
        trace = _trace(program, evaluator)
        results.append(trace.results if trace is not None else _run(program, arrays))
        traces.append(trace)
    shapes = [[a.shape for a in program_results] for program_results in results]
    if not _may_be_equal(*output_shapes):
        raise ShapeError(f"{first.name} and {second.name} have different outputs: {shapes[0]} and {shapes[1]}")
    first_trace, second_trace = traces
    computed_arrays = [a for trace in traces if trace is not None for a in trace.arrays]
    max_deviation = tolerance if tolerance is not None else tolerance_of([*computed_arrays, *results[0], *results[1]])
    max_found = largest_deviation(results[1], results[0])[1]
    if (
        tolerance is None
        and isinstance(first, Program)
        and isinstance(first_trace, EvaluationTrace)
        and max_deviation < max_found < inf
    ):
        max_deviation = max(max_deviation, rounding_tolerance(first.module, first.weights, arrays, results[0]))
    names = [info.name for info in first.outputs]
    outputs = [OutputDifference(name, deviation(b, a), max_deviation) for name, a, b in zip(names, *results, strict=True)]
    wrong_outputs = [k for k, output in enumerate(outputs) if not output.agrees]
    if not wrong_outputs or first_trace is None or second_trace is None:
        return ProgramDifference(tuple(outputs))
    return ProgramDifference(tuple(outputs), _first_difference(first, second, first_trace, second_trace, wrong_outputs, arrays))


def _may_be_equal(first: Sequence[Sequence[Size]], second: Sequence[Sequence[Size]]) -> bool:
    """Return whether outputs of these shapes may have equal sizes."""
    return [*map(len, first)] == [*map(len, second)] and all(
        a == b or not is_static((a, b)) for x, y in zip(first, second, strict=True) for a, b in zip(x, y, strict=True)
    )


def _decompose_selections(program: ComparedProgram) -> ComparedProgram:
    """Decompose selections of a program into counts, as the compiler does, so that both programs compute the same values."""
    if isinstance(program, Program) and any(isinstance(op, SelectionOp) for op in program.module.walk()):
        return replace(program, module=decompose_selections(expand_for_evaluation(program.module)))
    return program


def _bind_data_dependent_sizes(program: Program, evaluator: Evaluator) -> Program:
    """Bind data-dependent sizes to their values for the evaluator's inputs, except those in loops and branches."""
    while (index := _first_dynamic(program.module)) is not None:
        module = program.module.clone()
        block = entry_of(module).body.block
        op, *later_ops = [*block.ops][index:]
        for later_op in reversed(later_ops):
            block.erase_op(later_op)
        if isinstance(op, BindSizeOp):
            op.detach()
        values = [op.count] if isinstance(op, BindSizeOp) else op.results
        block.add_op(func.ReturnOp(*values))
        arrays, sizes = evaluator.trace(module, program.weights).results, dict[str, int]()
        if isinstance(op, BindSizeOp):
            sizes[op.symbol] = int(arrays[0])
        else:
            for result, array in zip(op.results, arrays, strict=True):
                bind_sizes(shape_of(cast(Tensor, result.type)), array.shape, sizes)
        program = program.with_sizes(sizes)
    return program


def _first_dynamic(module: ModuleOp) -> int | None:
    """Return the index of the entry's first op with data-dependent sizes, or None if a loop or branch contains it."""
    for index, op in enumerate(entry_of(module).body.block.ops):
        if any(map(_is_dynamic, op.walk())):
            return index if _is_dynamic(op) else None
    return None


def _is_dynamic(op: Operation) -> bool:
    """Return whether the results of an op have data-dependent sizes."""
    if isinstance(op, BindSizeOp):
        return not is_static(op.size.sizes)
    return isinstance(op, DataDependent) and not all(map(_is_static, op.results))


def _is_static(value: SSAValue) -> bool:
    return is_static(shape_of(cast(Tensor, value.type)))


def _trace(program: ComparedProgram, evaluator: Evaluator) -> EvaluationTrace | LaunchTrace | None:
    """Return the values that a program computes for the evaluator's inputs, or None if they cannot be observed."""
    if isinstance(program, Program):
        has_values = not any(map(_is_dynamic, program.module.walk())) and not outputs_of(entry_of(program.module))
        return evaluator.trace(program.module, program.weights) if has_values else None
    return (
        trace_launches(program.artifact, evaluator.inputs, _MAX_CAPTURED_BYTES)
        if isinstance(program.artifact, CompiledProgram)
        else None
    )


def _run(program: ComparedProgram, arrays: Sequence[Array]) -> Sequence[Array]:
    """Return the outputs of a program."""
    if isinstance(program, Program):
        return evaluate_outputs(program, arrays)
    return [np.asarray(result) for result in program.run_unchecked(arrays)]


def _first_difference(
    first: ComparedProgram,
    second: ComparedProgram,
    first_trace: EvaluationTrace | LaunchTrace,
    second_trace: EvaluationTrace | LaunchTrace,
    wrong_outputs: Sequence[int],
    arrays: Sequence[Array],
) -> FirstDifference | None:
    """Find the first difference between two traces."""
    if isinstance(second_trace, LaunchTrace):
        run = second_trace.first_mismatch(Counterparts(first_trace.arrays_with_origins, arrays), wrong_outputs)
        return None if run is None else FirstDifference(None, run.origins, run.kernel)
    if isinstance(first_trace, LaunchTrace):
        run = first_trace.first_mismatch(Counterparts(second_trace.arrays_with_origins, arrays), wrong_outputs)
        return None if run is None else _op_producing_kernel_result(run.kernel, run.origins, second_trace)
    assert isinstance(first, Program) and isinstance(second, Program)
    return _first_op(first.module, second.module, first_trace, second_trace, wrong_outputs, arrays)


def _first_op(
    first: ModuleOp,
    second: ModuleOp,
    first_trace: EvaluationTrace,
    second_trace: EvaluationTrace,
    wrong_outputs: Sequence[int],
    arrays: Sequence[Array],
) -> FirstDifference | None:
    """Find the first op of `second` whose value has no counterpart in `first`."""
    if first_trace.runs and not second_trace.runs:
        return _op_of_kernel_difference(first_trace, second_trace, arrays)
    step = locate_fault(first_trace, second_trace, wrong_outputs)
    counterparts = Counterparts(first_trace.arrays_with_origins, arrays)
    producers = second_trace.producers

    def has_counterpart(value: Operand) -> bool:
        producer = producers.get(value.value_id)
        return value.constant or counterparts.has(value.array, producer.origins if producer is not None else ())

    # If its operands differ already, the cause is a kernel that is a function, whose ops are not traced.
    if step is not None and all(map(has_counterpart, step.operands)):
        return FirstDifference(_line(step.op), step.origins, step.kernel)
    run = _first_run(second, second_trace, counterparts, wrong_outputs)
    if run is not None:
        return _locate_in_kernel(first, second, run)
    return None if step is None else FirstDifference(_line(step.op), step.origins, step.kernel)


def _first_run(
    module: ModuleOp, trace: EvaluationTrace, counterparts: Counterparts, wrong_outputs: Sequence[int]
) -> KernelRun | None:
    """Find the first kernel run whose results without counterparts affect one of `wrong_outputs`."""
    block = entry_of(module).body.block
    return_op = block.last_op
    assert return_op is not None
    pending, visited, reached = [return_op.operands[k] for k in wrong_outputs], set[SSAValue](), set[Operation]()
    while pending:
        value = pending.pop()
        op = cast(Operation, value.owner)
        if value in visited or value not in trace.values or counterparts.has(trace.values[value], origins(op.location)):
            continue
        visited.add(value)
        reached.add(op)
        pending += op.operands
    if any(isinstance(op, Control) for op in reached):
        return next((run for run in trace.runs if not counterparts.has_all(run.outputs, run.origins)), None)
    first_dispatch = next((op for op in block.ops if op in reached and isinstance(op, DispatchOp)), None)
    return (
        None
        if first_dispatch is None
        else next(run for run in trace.runs if run.outputs[0] is trace.values[first_dispatch.results[0]])
    )


def _op_of_kernel_difference(
    first_trace: EvaluationTrace, second_trace: EvaluationTrace, arrays: Sequence[Array]
) -> FirstDifference | None:
    """Find the op that computes the results of the first kernel of `first_trace` that `second_trace` lacks.

    The values inside a kernel that is a function are not traced, so their absence proves nothing.
    """
    counterparts = Counterparts(second_trace.arrays_with_origins, arrays)
    run = next((run for run in first_trace.runs if not counterparts.has_all(run.outputs, run.origins)), None)
    return None if run is None else _op_producing_kernel_result(run.kernel, run.origins, second_trace)


def _op_producing_kernel_result(kernel: str, kernel_origins: Sequence[str], trace: EvaluationTrace) -> FirstDifference | None:
    """Return the op that computes the result of a kernel of the first program: the last op with the same origins."""
    run = next((run for run in trace.runs if run.kernel == kernel), None)
    if run is not None and all(step.kernel is None for step in trace.steps):
        return FirstDifference(None, run.origins, kernel)
    steps = [step for step in trace.steps if step.origins and set(step.origins) <= set(kernel_origins)]
    return FirstDifference(_line(steps[-1].op), steps[-1].origins, kernel) if steps else None


def _locate_in_kernel(first: ModuleOp, second: ModuleOp, run: KernelRun) -> FirstDifference:
    """Find the op of a kernel with the first different value; the whole kernel if the first program has no such kernel."""
    first_kernels, second_kernels = (
        [k for k in kernels_of(module) if k.sym_name.data == run.kernel] for module in (first, second)
    )
    op: Operation = second_kernels[0]
    if not first_kernels:
        return FirstDifference(None, run.origins, run.kernel)
    pairs = zip(_KernelValues(first, run).values, _KernelValues(second, run).values, strict=False)
    different_ops = (
        (a, b) for (a, x), (b, y) in pairs if a.name != b.name or largest_deviation(y, x)[1] > tolerance_of([*x, *y])
    )
    a, b = next(different_ops, (op, op))
    # If the sequences of ops differ, report the first op that differs in the text.
    changed_ops = (y for x, y in zip(first_kernels[0].walk(), op.walk(), strict=False) if x.name != y.name)
    op = b if a.name == b.name else next(changed_ops, b)
    return FirstDifference(_line(op), run.origins, run.kernel)


class _KernelValues:
    """The values of a kernel's ops in order: their results, or the buffers that they write."""

    def __init__(self, module: ModuleOp, run: KernelRun) -> None:
        self.values: list[tuple[Operation, list[Array]]] = []
        self._remaining_bytes = _MAX_CAPTURED_BYTES
        call(module, run.kernel, run.inputs, run.sizes, [a.shape for a in run.outputs], self._record)

    def _record(self, op: Operation, frame: Frame, results: Sequence[Value]) -> None:
        values = list(results) or [frame[v] for v in op.operands if isinstance(v.type, MemRefType)][-1:]
        # A new view shares its memory and is not recorded; a buffer that is written to is.
        arrays: list[Any] = [
            v.read(op) if isinstance(v, MemrefView) else v for v in values if not (results and isinstance(v, MemrefView))
        ]
        copies: list[Array] = [np.array(cast(Any, v)) for v in arrays if isinstance(v, np.ndarray | np.generic)]
        self._remaining_bytes -= sum(a.nbytes for a in copies)
        if self._remaining_bytes >= 0:
            self.values.append((op, copies))


def _line(op: Operation) -> str:
    """Return the line on which an op begins."""
    root: Any = op.get_toplevel_object()
    text, lines = print_with_lines(root)
    return text.splitlines()[lines[op]].strip()


def for_inputs(program: ComparedProgram, arrays: Sequence[Array]) -> ComparedProgram:
    """Specialize a program for inputs of these shapes.

    Raises UnsupportedError if it takes a different number of inputs, and ShapeError or DTypeError if they do not fit.
    """
    if len(program.inputs) != len(arrays):
        raise UnsupportedError(f"{program.name} takes {len(program.inputs)} inputs, the other program {len(arrays)}")
    if isinstance(program, Program):
        return program.for_inputs(arrays)
    require_matching_inputs(program.name, program.inputs, arrays)
    return program

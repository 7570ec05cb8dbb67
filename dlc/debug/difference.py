"""Compare two programs on the same inputs: models, edited modules of a dump, compiled models; find where they diverge.

    found = difference(program, edited, inputs)
    found.outputs[0].agrees                    comparison of each output
    found.first                                the first value that only the second program has, and the op that computes it

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
from dlc.dims import Size, bind_sizes, is_static
from dlc.errors import ShapeError, UnsupportedError
from dlc.instrument.capture import CapturedValue as Operand
from dlc.instrument.capture import EvaluationTrace, Evaluator, KernelRun, rounding_tolerance
from dlc.instrument.compare import deviation, largest_deviation, tolerance_of
from dlc.instrument.fault_localization import Counterparts, locate_fault
from dlc.instrument.printing import printed
from dlc.instrument.provenance import origins
from dlc.ir import MemRefType, ModuleOp, Operation, SSAValue, func
from dlc.passes.base import kernels_of
from dlc.passes.dl.programs.selection_counts import decompose_selections
from dlc.passes.transformations.expand_transformations import expand_for_evaluation
from dlc.runtime.load import CompiledProgram
from dlc.runtime.models.model import Model, require_matching_inputs

# Values of up to this many bytes are recorded per kernel for comparison.
_MAX_CAPTURED_BYTES = 1 << 29
Side = Program | Model


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
    """The first value of the second program that the first program lacks: the line of the op that computes it, and its origins.

    `text` is None if only the kernel as a whole is known, because one of the programs is compiled.
    """

    text: str | None
    origins: tuple[str, ...]
    kernel: str | None = None

    def __str__(self) -> str:
        place = f"\n  in kernel @{self.kernel}" if self.kernel is not None else ""
        made_by = f"kernel @{self.kernel}, as a whole" if self.text is None else self.text + place
        return made_by + (f"\n  from {', '.join(self.origins)}" if self.origins else "")


@dataclass(frozen=True)
class ProgramDifference:
    """The comparison of all outputs, and the first different value."""

    outputs: tuple[OutputDifference, ...]
    first: FirstDifference | None = None

    @property
    def agrees(self) -> bool:
        return all(output.agrees for output in self.outputs)


def difference(one: Side, other: Side, arrays: Sequence[Array], tolerance: float | None = None) -> ProgramDifference:
    """Compare two programs on the same inputs; `tolerance` is relative to the largest magnitude, None chooses it by dtype.

    Raises ShapeError if they have different outputs; a different data-dependent size is reported as a difference.
    """
    evaluator = Evaluator(arrays)
    output_shapes = [[info.shape for info in side.outputs] for side in (one, other)]
    if not (isinstance(one, Program) and isinstance(other, Program)):
        one, other = map(_decompose_selections, (one, other))
    one, other = (_bind_data_dependent_sizes(side, evaluator) if isinstance(side, Program) else side for side in (one, other))
    results, traces = list[Sequence[Array]](), list[EvaluationTrace | LaunchTrace | None]()
    for side in (one, other):
        trace = _trace_values(side, evaluator)
        results.append(trace.results if trace is not None else _results(side, arrays))
        traces.append(trace)
    shapes = [[a.shape for a in arrays_of_side] for arrays_of_side in results]
    if not _may_be_equal(*output_shapes):
        raise ShapeError(f"{one.name} and {other.name} have different outputs: {shapes[0]} and {shapes[1]}")
    before, after = traces
    computed_arrays = [a for trace in traces if trace is not None for a in trace.arrays]
    allowed = tolerance if tolerance is not None else tolerance_of([*computed_arrays, *results[0], *results[1]])
    largest = largest_deviation(results[1], results[0])[1]
    if tolerance is None and isinstance(one, Program) and isinstance(before, EvaluationTrace) and allowed < largest < inf:
        allowed = max(allowed, rounding_tolerance(one.module, one.weights, arrays, results[0]))
    names = [info.name for info in one.outputs]
    outputs = [OutputDifference(name, deviation(b, a), allowed) for name, a, b in zip(names, *results, strict=True)]
    wrong = [k for k, output in enumerate(outputs) if not output.agrees]
    if not wrong or before is None or after is None:
        return ProgramDifference(tuple(outputs))
    return ProgramDifference(tuple(outputs), _first_difference(one, other, before, after, wrong, arrays))


def _may_be_equal(one: Sequence[Sequence[Size]], other: Sequence[Sequence[Size]]) -> bool:
    """Return whether outputs of these shapes may have equal sizes."""
    return [*map(len, one)] == [*map(len, other)] and all(
        a == b or not is_static((a, b)) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)
    )


def _decompose_selections(side: Side) -> Side:
    """Decompose selections of a program into counts, as the compiler does, so that both programs compute the same values."""
    if isinstance(side, Program) and any(isinstance(op, SelectionOp) for op in side.module.walk()):
        return replace(side, module=decompose_selections(expand_for_evaluation(side.module)))
    return side


def _bind_data_dependent_sizes(program: Program, evaluator: Evaluator) -> Program:
    """Bind data-dependent sizes to their values for the evaluator's inputs, except those in loops and branches."""
    while (index := _first_dynamic(program.module)) is not None:
        module = program.module.clone()
        block = entry_of(module).body.block
        op, *later_ops = [*block.ops][index:]
        for later in reversed(later_ops):
            block.erase_op(later)
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


def _trace_values(side: Side, evaluator: Evaluator) -> EvaluationTrace | LaunchTrace | None:
    """Return the values that a program computes for the evaluator's inputs, or None if they cannot be observed."""
    if isinstance(side, Program):
        has_values = not any(map(_is_dynamic, side.module.walk())) and not outputs_of(entry_of(side.module))
        return evaluator.trace(side.module, side.weights) if has_values else None
    return (
        trace_launches(side.artifact, evaluator.inputs, _MAX_CAPTURED_BYTES)
        if isinstance(side.artifact, CompiledProgram)
        else None
    )


def _results(side: Side, arrays: Sequence[Array]) -> Sequence[Array]:
    """Return the outputs of a program."""
    if isinstance(side, Program):
        return evaluate_outputs(side, arrays)
    return [np.asarray(result) for result in side.run_unchecked(arrays)]


def _first_difference(
    one: Side,
    other: Side,
    before: EvaluationTrace | LaunchTrace,
    after: EvaluationTrace | LaunchTrace,
    wrong: Sequence[int],
    arrays: Sequence[Array],
) -> FirstDifference | None:
    """Find the first difference between two traces."""
    if isinstance(after, LaunchTrace):
        run = after.first_mismatch(Counterparts(before.computed, arrays), wrong)
        return None if run is None else FirstDifference(None, run.origins, run.kernel)
    if isinstance(before, LaunchTrace):
        run = before.first_mismatch(Counterparts(after.computed, arrays), wrong)
        return None if run is None else _op_producing_kernel_result(run.kernel, run.origins, after)
    assert isinstance(one, Program) and isinstance(other, Program)
    return _first_op(one.module, other.module, before, after, wrong, arrays)


def _first_op(
    one: ModuleOp,
    other: ModuleOp,
    before: EvaluationTrace,
    after: EvaluationTrace,
    wrong: Sequence[int],
    arrays: Sequence[Array],
) -> FirstDifference | None:
    """Find the first op of `other` whose value has no counterpart in `one`."""
    if before.runs and not after.runs:
        return _op_of_kernel_difference(before, after, arrays)
    step = locate_fault(before, after, wrong)
    counterparts = Counterparts(before.computed, arrays)
    producers = after.producers

    def is_known(value: Operand) -> bool:
        maker = producers.get(value.number)
        return value.constant or counterparts.has(value.array, maker.origins if maker is not None else ())

    # If its operands differ already, the cause is a kernel that is a function, whose ops are not traced.
    if step is not None and all(map(is_known, step.operands)):
        return FirstDifference(_line(step.op), step.origins, step.kernel)
    run = _first_run(other, after, counterparts, wrong)
    if run is not None:
        return _locate_in_kernel(one, other, run)
    return None if step is None else FirstDifference(_line(step.op), step.origins, step.kernel)


def _first_run(module: ModuleOp, trace: EvaluationTrace, known: Counterparts, wrong: Sequence[int]) -> KernelRun | None:
    """Find the first kernel run whose results without counterparts affect one of the `wrong` outputs."""
    block = entry_of(module).body.block
    return_op = block.last_op
    assert return_op is not None
    pending, visited, reached = [return_op.operands[k] for k in wrong], set[SSAValue](), set[Operation]()
    while pending:
        value = pending.pop()
        op = cast(Operation, value.owner)
        if value in visited or value not in trace.values or known.has(trace.values[value], origins(op.location)):
            continue
        visited.add(value)
        reached.add(op)
        pending += op.operands
    if any(isinstance(op, Control) for op in reached):
        return next((run for run in trace.runs if not known.has_all(run.outputs, run.origins)), None)
    first = next((op for op in block.ops if op in reached and isinstance(op, DispatchOp)), None)
    return None if first is None else next(run for run in trace.runs if run.outputs[0] is trace.values[first.results[0]])


def _op_of_kernel_difference(
    before: EvaluationTrace, after: EvaluationTrace, arrays: Sequence[Array]
) -> FirstDifference | None:
    """Find the op that computes the results of the first kernel of `before` that `after` lacks.

    The values inside a kernel that is a function are not traced, so their absence proves nothing.
    """
    counterparts = Counterparts(after.computed, arrays)
    run = next((run for run in before.runs if not counterparts.has_all(run.outputs, run.origins)), None)
    return None if run is None else _op_producing_kernel_result(run.kernel, run.origins, after)


def _op_producing_kernel_result(kernel: str, kernel_origins: Sequence[str], after: EvaluationTrace) -> FirstDifference | None:
    """Return the op that computes the result of a kernel of the first program: the last op with the same origins."""
    run = next((run for run in after.runs if run.kernel == kernel), None)
    if run is not None and all(step.kernel is None for step in after.steps):
        return FirstDifference(None, run.origins, kernel)
    steps = [step for step in after.steps if step.origins and set(step.origins) <= set(kernel_origins)]
    return FirstDifference(_line(steps[-1].op), steps[-1].origins, kernel) if steps else None


def _locate_in_kernel(one: ModuleOp, other: ModuleOp, run: KernelRun) -> FirstDifference:
    """Find the op of a kernel with the first different value; the whole kernel if the first program has no such kernel."""
    own_kernels, other_kernels = ([k for k in kernels_of(module) if k.sym_name.data == run.kernel] for module in (one, other))
    op: Operation = other_kernels[0]
    if not own_kernels:
        return FirstDifference(None, run.origins, run.kernel)
    pairs = zip(_KernelValues(one, run).found, _KernelValues(other, run).found, strict=False)
    different_ops = (
        (a, b) for (a, x), (b, y) in pairs if a.name != b.name or largest_deviation(y, x)[1] > tolerance_of([*x, *y])
    )
    a, b = next(different_ops, (op, op))
    # If the sequences of ops differ, report the first op that differs in the text.
    changed_ops = (y for x, y in zip(own_kernels[0].walk(), op.walk(), strict=False) if x.name != y.name)
    op = b if a.name == b.name else next(changed_ops, b)
    return FirstDifference(_line(op), run.origins, run.kernel)


class _KernelValues:
    """The values of a kernel's ops in order: their results, or the buffers that they write."""

    def __init__(self, module: ModuleOp, run: KernelRun) -> None:
        self.found: list[tuple[Operation, list[Array]]] = []
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
            self.found.append((op, copies))


def _line(op: Operation) -> str:
    """Return the line on which an op begins."""
    root: Any = op.get_toplevel_object()
    text, lines = printed(root)
    return text.splitlines()[lines[op]].strip()


def for_inputs(side: Side, arrays: Sequence[Array]) -> Side:
    """Specialize a program for inputs of these shapes.

    Raises UnsupportedError if it takes a different number of inputs, and ShapeError or DTypeError if they do not fit.
    """
    if len(side.inputs) != len(arrays):
        raise UnsupportedError(f"{side.name} takes {len(side.inputs)} inputs, the other program {len(arrays)}")
    require_matching_inputs(side.name, side.inputs, arrays)
    return side.for_inputs(list(arrays)) if isinstance(side, Program) else side

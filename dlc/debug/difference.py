"""Two programs on the same inputs: models, modules of a dump that somebody edited, compiled models; where they part.

    found = difference(program, edited, inputs)
    found.outputs[0].agrees                    each output beside the other's
    found.first                                the first value that only the second has, and the op that makes it

Both are evaluated op by op, and what is equal is evaluated once. Where kernels are functions already, the first one that gives
something else is run again in both, and the ops of its body are compared as they come. What is compiled runs launch by launch,
and its values are those that kernels give. Where buffers are planned, loops and branches decide sizes, or a model is compiled
when it is called, there are no values to look at but its outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, cast

import numpy as np

from dlc.backends.reference import call
from dlc.backends.reference.machine import Frame
from dlc.backends.reference.values import Value, View
from dlc.compiler import Program
from dlc.debug.evaluation import evaluated
from dlc.debug.launches import Launches, launches_of
from dlc.dialects.dl.base import Array, Tensor, shape_of
from dlc.dialects.dl.data_dependent.selection import DecideOp, Selection
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.control import Control
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dialects.entry import entry_of, outputs_of
from dlc.dims import Size, bind_sizes, is_static
from dlc.errors import ShapeError, UnsupportedError
from dlc.instrument.capture import Evaluator, KernelRun, Trace, rounding
from dlc.instrument.capture import Value as Operand
from dlc.instrument.compare import deviation, tolerance_of, worst
from dlc.instrument.culprit import Counterparts, culprit
from dlc.instrument.printing import printed
from dlc.instrument.provenance import origins
from dlc.ir import MemRefType, ModuleOp, Operation, SSAValue, func
from dlc.passes.base import kernels_of
from dlc.passes.dl.programs.count_selections import counted
from dlc.passes.transformations.expand_transformations import expanded
from dlc.runtime.load import CompiledProgram
from dlc.runtime.models.model import Model, require_fitting

# Of a kernel so much is kept to compare.
_MOST_BYTES = 1 << 29
Side = Program | Model


@dataclass(frozen=True)
class Output:
    """An output beside the other's: how far off it is, of its largest magnitude, and how far it may be."""

    name: str
    deviation: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.deviation <= self.tolerance


@dataclass(frozen=True)
class First:
    """The first value of the second that the first has not: the line of the op that makes it, and where that comes from.

    Of a kernel as a whole there is no line: of machine code, or a function beside machine code.
    """

    text: str | None
    origins: tuple[str, ...]
    kernel: str | None = None

    def __str__(self) -> str:
        place = f"\n  in kernel @{self.kernel}" if self.kernel is not None else ""
        made_by = f"kernel @{self.kernel}, as a whole" if self.text is None else self.text + place
        return made_by + (f"\n  from {', '.join(self.origins)}" if self.origins else "")


@dataclass(frozen=True)
class Difference:
    outputs: tuple[Output, ...]
    first: First | None = None

    @property
    def agrees(self) -> bool:
        return all(output.agrees for output in self.outputs)


def difference(one: Side, other: Side, arrays: Sequence[Array], tolerance: float | None = None) -> Difference:
    """What two programs make of the same inputs; `tolerance` is of the largest magnitude, None takes that of the dtypes.

    Raises ShapeError where they have other outputs; where data decides how large these are, that is a difference like others.
    """
    evaluator = Evaluator(arrays)
    declared = [[info.shape for info in side.outputs] for side in (one, other)]
    if not (isinstance(one, Program) and isinstance(other, Program)):
        one, other = map(_counting, (one, other))
    one, other = (_decided(side, evaluator) if isinstance(side, Program) else side for side in (one, other))
    results, traces = list[Sequence[Array]](), list[Trace | Launches | None]()
    for side in (one, other):
        trace = _traced(side, evaluator)
        results.append(trace.results if trace is not None else _results(side, arrays))
        traces.append(trace)
    shapes = [[a.shape for a in of] for of in results]
    if not _may_be_equal(*declared):
        raise ShapeError(f"{one.name} and {other.name} have other outputs: {shapes[0]} and {shapes[1]}")
    before, after = traces
    computed = [a for trace in traces if trace is not None for a in trace.arrays]
    allowed = tolerance if tolerance is not None else tolerance_of([*computed, *results[0], *results[1]])
    off = worst(results[1], results[0])[1]
    if tolerance is None and isinstance(one, Program) and isinstance(before, Trace) and allowed < off < inf:
        allowed = max(allowed, rounding(one.module, one.weights, arrays, results[0]))
    names = [info.name for info in one.outputs]
    found = [Output(name, deviation(b, a), allowed) for name, a, b in zip(names, *results, strict=True)]
    wrong = [k for k, output in enumerate(found) if not output.agrees]
    if not wrong or before is None or after is None:
        return Difference(tuple(found))
    return Difference(tuple(found), _first(one, other, before, after, wrong, arrays))


def _may_be_equal(one: Sequence[Sequence[Size]], other: Sequence[Sequence[Size]]) -> bool:
    """Whether outputs of these shapes may have the same sizes."""
    return [*map(len, one)] == [*map(len, other)] and all(
        a == b or not is_static((a, b)) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)
    )


def _counting(side: Side) -> Side:
    """A program that counts what data decides, as what is compiled does: both have the same values then."""
    if isinstance(side, Program) and any(isinstance(op, Selection) for op in side.module.walk()):
        return replace(side, module=counted(expanded(side.module)))
    return side


def _decided(program: Program, evaluator: Evaluator) -> Program:
    """A program with the sizes that data decides, as the evaluator's inputs do; sizes in loops and branches stay open."""
    while (place := _first_open(program.module)) is not None:
        module = program.module.clone()
        block = entry_of(module).body.block
        op, *rest = [*block.ops][place:]
        for later in reversed(rest):
            block.erase_op(later)
        if isinstance(op, DecideOp):
            op.detach()
        made = [op.count] if isinstance(op, DecideOp) else op.results
        block.add_op(func.ReturnOp(*made))
        arrays, sizes = evaluator.trace(module, program.weights).results, dict[str, int]()
        if isinstance(op, DecideOp):
            sizes[op.symbol] = int(arrays[0])
        else:
            for result, array in zip(op.results, arrays, strict=True):
                bind_sizes(shape_of(cast(Tensor, result.type)), array.shape, sizes)
        program = program.with_sizes(sizes)
    return program


def _first_open(module: ModuleOp) -> int | None:
    """The place of the first op of the entry whose results are as large as data says; None where a loop or branch is first."""
    for place, op in enumerate(entry_of(module).body.block.ops):
        if any(map(_is_open, op.walk())):
            return place if _is_open(op) else None
    return None


def _is_open(op: Operation) -> bool:
    if isinstance(op, DecideOp):
        return not is_static(op.size.sizes)
    return isinstance(op, DataDependent) and not all(map(_is_known, op.results))


def _is_known(value: SSAValue) -> bool:
    return is_static(shape_of(cast(Tensor, value.type)))


def _traced(side: Side, evaluator: Evaluator) -> Trace | Launches | None:
    """What a program computes on the evaluator's inputs, as far as there are values to look at."""
    if isinstance(side, Program):
        has_values = not any(map(_is_open, side.module.walk())) and not outputs_of(entry_of(side.module))
        return evaluator.trace(side.module, side.weights) if has_values else None
    return launches_of(side.artifact, evaluator.inputs, _MOST_BYTES) if isinstance(side.artifact, CompiledProgram) else None


def _results(side: Side, arrays: Sequence[Array]) -> Sequence[Array]:
    if isinstance(side, Program):
        return evaluated(side, arrays)
    return [np.asarray(result) for result in side.run_unchecked(arrays)]


def _first(
    one: Side,
    other: Side,
    before: Trace | Launches,
    after: Trace | Launches,
    wrong: Sequence[int],
    arrays: Sequence[Array],
) -> First | None:
    if isinstance(after, Launches):
        run = after.first_unlike(Counterparts(before.made, arrays), wrong)
        return None if run is None else First(None, run.origins, run.kernel)
    if isinstance(before, Launches):
        run = before.first_unlike(Counterparts(after.made, arrays), wrong)
        return None if run is None else _made_by(run.kernel, run.origins, after)
    assert isinstance(one, Program) and isinstance(other, Program)
    return _first_op(one.module, other.module, before, after, wrong, arrays)


def _first_op(
    one: ModuleOp, other: ModuleOp, before: Trace, after: Trace, wrong: Sequence[int], arrays: Sequence[Array]
) -> First | None:
    if before.runs and not after.runs:
        return _beside_kernel(before, after, arrays)
    step = culprit(before, after, wrong)
    known = Counterparts(before.made, arrays)
    makers = after.makers

    def is_known(value: Operand) -> bool:
        maker = makers.get(value.number)
        return value.constant or known.has(value.array, maker.origins if maker is not None else ())

    # An op whose operands are others already goes on from a kernel that is a function, and has no steps.
    if step is not None and all(map(is_known, step.operands)):
        return First(_line(step.op), step.origins, step.kernel)
    run = _first_run(other, after, known, wrong)
    if run is not None:
        return _in_kernel(one, other, run)
    return None if step is None else First(_line(step.op), step.origins, step.kernel)


def _first_run(module: ModuleOp, trace: Trace, known: Counterparts, wrong: Sequence[int]) -> KernelRun | None:
    """The first run of a kernel from which values that are not among the known ones lead to one of the `wrong` outputs."""
    block = entry_of(module).body.block
    returned = block.last_op
    assert returned is not None
    pending, met, reached = [returned.operands[k] for k in wrong], set[SSAValue](), set[Operation]()
    while pending:
        value = pending.pop()
        op = cast(Operation, value.owner)
        if value in met or value not in trace.values or known.has(trace.values[value], origins(op.location)):
            continue
        met.add(value)
        reached.add(op)
        pending += op.operands
    if any(isinstance(op, Control) for op in reached):
        return next((run for run in trace.runs if not known.has_all(run.outputs, run.origins)), None)
    first = next((op for op in block.ops if op in reached and isinstance(op, DispatchOp)), None)
    return None if first is None else next(run for run in trace.runs if run.outputs[0] is trace.values[first.results[0]])


def _beside_kernel(before: Trace, after: Trace, arrays: Sequence[Array]) -> First | None:
    """The op that gives what the first kernel of the first program gives that the second has not.

    A kernel that is a function shows no values inside: that they are not found says nothing.
    """
    known = Counterparts(after.made, arrays)
    run = next((run for run in before.runs if not known.has_all(run.outputs, run.origins)), None)
    return None if run is None else _made_by(run.kernel, run.origins, after)


def _made_by(kernel: str, places: Sequence[str], after: Trace) -> First | None:
    """The op that gives what a kernel of the first program gives: the last of those that are in it."""
    run = next((run for run in after.runs if run.kernel == kernel), None)
    if run is not None and all(step.kernel is None for step in after.steps):
        return First(None, run.origins, kernel)
    steps = [step for step in after.steps if step.origins and set(step.origins) <= set(places)]
    return First(_line(steps[-1].op), steps[-1].origins, kernel) if steps else None


def _in_kernel(one: ModuleOp, other: ModuleOp, run: KernelRun) -> First:
    """The op of a kernel that gives the first other value; all of the kernel, if the first program has none of its name."""
    mine, theirs = ([k for k in kernels_of(module) if k.sym_name.data == run.kernel] for module in (one, other))
    op: Operation = theirs[0]
    if not mine:
        return First(None, run.origins, run.kernel)
    pairs = zip(_Values(one, run).found, _Values(other, run).found, strict=False)
    parted = ((a, b) for (a, x), (b, y) in pairs if a.name != b.name or worst(y, x)[1] > tolerance_of([*x, *y]))
    a, b = next(parted, (op, op))
    # Other ops may also be run in another way: then the text says which is another one.
    changed = (y for x, y in zip(mine[0].walk(), op.walk(), strict=False) if x.name != y.name)
    op = b if a.name == b.name else next(changed, b)
    return First(_line(op), run.origins, run.kernel)


class _Values:
    """What the ops of a kernel give, one after the other: their results, or the buffer that they write."""

    def __init__(self, module: ModuleOp, run: KernelRun) -> None:
        self.found: list[tuple[Operation, list[Array]]] = []
        self._room = _MOST_BYTES
        call(module, run.kernel, run.inputs, run.sizes, [a.shape for a in run.outputs], self._watch)

    def _watch(self, op: Operation, frame: Frame, results: Sequence[Value]) -> None:
        values = list(results) or [frame[v] for v in op.operands if isinstance(v.type, MemRefType)][-1:]
        # A view that is made shares what it shows; what is written to is looked at.
        shown: list[Any] = [v.read(op) if isinstance(v, View) else v for v in values if not (results and isinstance(v, View))]
        kept: list[Array] = [np.array(cast(Any, v)) for v in shown if isinstance(v, np.ndarray | np.generic)]
        self._room -= sum(a.nbytes for a in kept)
        if self._room >= 0:
            self.found.append((op, kept))


def _line(op: Operation) -> str:
    """The line on which an op begins."""
    root: Any = op.get_toplevel_object()
    text, lines = printed(root)
    return text.splitlines()[lines[op]].strip()


def for_inputs(side: Side, arrays: Sequence[Array]) -> Side:
    """A program for inputs of these shapes.

    Raises UnsupportedError for a program that takes others by number, ShapeError or DTypeError where they do not fit.
    """
    if len(side.inputs) != len(arrays):
        raise UnsupportedError(f"{side.name} takes {len(side.inputs)} inputs, the other {len(arrays)}")
    require_fitting(side.name, side.inputs, arrays)
    return side.for_inputs(list(arrays)) if isinstance(side, Program) else side

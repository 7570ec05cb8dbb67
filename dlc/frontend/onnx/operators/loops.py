"""Loops: `Loop` and `Scan`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto

from dlc.dialects import dl
from dlc.dialects.dl.base import Tensor, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.interfaces import DataDependent
from dlc.errors import DTypeError, ModelError, ShapeError
from dlc.frontend.emitter import Emitter, ImportedValue, LoopStep, discard_block, erase_producer
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.values import NonTensorValue
from dlc.frontend.problems import NodeProblem
from dlc.ir import Block, i64
from dlc.shapes.dims import Dim, Size, are_equal, product

table = ConverterTable()

# Maximum iterations of an unrolled loop. A loop is unrolled if its states change their types.
_MAX_UNROLLED_ITERATIONS = 1_000
# Maximum number of elements preallocated for the scan outputs of a loop without a static trip count.
_MAX_COLLECTED_ELEMENTS = 1 << 24


@table("Loop")
def loop(node: OnnxNode) -> Sequence[ImportedValue]:
    """Constant-fold a loop over constants; else emit a scan if only its trip count ends it, or a while loop.

    A loop whose states change their types is unrolled.
    """
    emit, body = node.emit, node.graph("body")
    limit, cond = node.get(0), node.get(1)
    if limit is not None:
        limit = emit.reshape(limit, ())
    cond = emit.reshape(cond, ()) if cond is not None else emit.constant(True)
    states = [node[k] for k in range(2, len(node.inputs))]
    if len(body.output) <= len(states):
        raise ModelError(
            f"{node.description}: its body has {len(body.output)} results for a condition and {len(states)} states"
        )
    # Sequences exist during import only, so a loop that carries one must be unrolled.
    for convert in () if any(isinstance(state, NonTensorValue) for state in states) else (_try_fold, _try_scan, _try_while):
        results = convert(node, body, limit, cond, states)
        if results is not None:
            return results
    return _unroll(node, body, limit, cond, states)


def _try_fold(
    node: OnnxNode, body: GraphProto, limit: ImportedValue | None, cond: ImportedValue, states: Sequence[ImportedValue]
) -> Sequence[ImportedValue] | None:
    """Return the results of a loop over constants; None if a value is not constant."""
    count = _trip_count(node.emit, limit)
    if not states or (limit is not None and not isinstance(count, int)):
        return None
    elements: list[list[ImportedValue]] = [[] for _ in body.output[1 + len(states) :]]
    step = 0
    while (
        (count is None or step < count)
        and all(v.constant_value is not None for v in (cond, *states))
        and step < _MAX_UNROLLED_ITERATIONS
    ):
        if not cond.constant_value:
            break
        # Emitted into a scratch block, which is discarded: constant results need no ops.
        block = Block()
        scratch = Emitter(block, node.emit.weights, node.emit)
        results, problems = node.try_import_subgraph(body, [scratch.constant(step, np.int64), cond, *states], scratch)
        discard_block(block)
        if problems or any(v.constant_value is None for v in results):
            return None
        cond, *results = results
        cond, states = node.emit.reshape(cond, ()), results[: len(states)]
        for sequence, value in zip(elements, results[len(states) :], strict=True):
            sequence.append(value)
        step += 1
    if step == _MAX_UNROLLED_ITERATIONS or any(v.constant_value is None for v in (cond, *states)) or not all(elements):
        return None
    return [*states, *(_stack(node, sequence) for sequence in elements)]


def _try_scan(
    node: OnnxNode, body: GraphProto, limit: ImportedValue | None, cond: ImportedValue, states: Sequence[ImportedValue]
) -> Sequence[ImportedValue] | None:
    """Convert a loop to a scan; None if its condition may end it or its states change their types."""
    emit, count = node.emit, _trip_count(node.emit, limit)
    if count is None and limit is not None and len(body.output) > 1 + len(states):
        count = _runtime_trip_count(node, limit)

    def ends(condition: ImportedValue) -> bool:
        """Return whether a condition may end the loop, which has at least one iteration."""
        return count != 0 and (condition.constant_value is None or not bool(condition.constant_value))

    if count is None or ends(cond):
        return None

    def step(
        inner: Emitter, states: Sequence[ImportedValue], elements: Sequence[ImportedValue]
    ) -> tuple[list[ImportedValue], list[ImportedValue]]:
        results, problems = node.try_import_subgraph(body, [*elements, inner.constant(True), *states], inner)
        if problems or ends(results[0]) or _has_local_sizes(inner, [v.type for v in results[1:]]):
            raise _BodyMismatch
        return list(results[1 : 1 + len(states)]), list(results[1 + len(states) :])

    iteration_indices = emit.iota(count)
    try:
        last, outputs = emit.scan(states, [iteration_indices], count, step)
    except (_BodyMismatch, ShapeError, DTypeError):
        erase_producer(iteration_indices)
        return None
    return [*last, *outputs]


def _try_while(
    node: OnnxNode, body: GraphProto, limit: ImportedValue | None, cond: ImportedValue, states: Sequence[ImportedValue]
) -> Sequence[ImportedValue] | None:
    """Convert a loop that ends by its condition to a while loop; None if its states change their types.

    Scan outputs are written row by row into preallocated tensors, which are sliced to the actual trip count. If no upper bound
    of the trip count is known, or it is too large, a first run of the loop counts its iterations.
    """
    try:
        output_types = _collected_types(node, body, states)
        max_rows = _max_collected(node, limit, output_types)
        if max_rows is None:
            if not _has_runtime_condition(node, body, cond, states):
                return None
            limit, _ = _while(node, body, limit, cond, states, [])
            max_rows = _runtime_trip_count(node, limit)
        buffers = [node.emit.full(0, (max_rows, *shape_of(t)), element_type_of(t)) for t in output_types]
        steps, last = _while(node, body, limit, cond, states, buffers)
    except (_BodyMismatch, ShapeError, DTypeError):
        return None
    return [*last[: len(states)], *_first_rows(node.emit, last[len(states) :], steps)]


def _while(
    node: OnnxNode,
    body: GraphProto,
    limit: ImportedValue | None,
    cond: ImportedValue,
    states: Sequence[ImportedValue],
    buffers: Sequence[ImportedValue],
) -> tuple[ImportedValue, Sequence[ImportedValue]]:
    """Emit a while loop; return the number of iterations, the last states, and the rows written to `buffers`."""
    emit, count = node.emit, len(states)

    def continues(inner: Emitter, step: ImportedValue, condition: ImportedValue) -> ImportedValue:
        """Return whether the condition and the trip count permit another iteration."""
        if limit is None:
            return condition
        return inner(dl.AndOp, inner.reshape(condition, ()), inner(dl.LessOp, step, limit))

    def iteration(inner: Emitter, arguments: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        step, *previous = arguments
        results, problems = node.try_import_subgraph(body, [step, inner.constant(True), *previous[:count]], inner)
        if problems:
            raise _BodyMismatch
        condition, *next_states = results
        rows = [
            _store_row(inner, buffer, step, row) for buffer, row in zip(previous[count:], next_states[count:], strict=False)
        ]
        step = inner(dl.AddOp, step, inner.constant(1, np.int64))
        return [continues(inner, step, condition), step, *next_states[:count], *rows]

    zero = emit.constant(0, np.int64)
    steps, *last = emit.while_(continues(emit, zero, cond), [zero, *states, *buffers], iteration)
    return steps, last


def _collected_types(node: OnnxNode, body: GraphProto, states: Sequence[ImportedValue]) -> list[Tensor]:
    """Return the types of the scan outputs of an iteration. Raises _BodyMismatch if they depend on the iteration."""
    types: list[Tensor] = []

    def run(inner: Emitter, arguments: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        step, *states_ = arguments
        results, problems = node.try_import_subgraph(body, [step, inner.constant(True), *states_], inner)
        types.extend(v.type for v in results[1 + len(states) :])
        if problems or _has_local_sizes(inner, types):
            raise _BodyMismatch
        return ()

    if len(body.output) > 1 + len(states):
        discard_block(node.emit.body([tensor_type((), i64), *(s.type for s in states)], run))
    return types


def _max_collected(node: OnnxNode, limit: ImportedValue | None, output_types: Sequence[Tensor]) -> Size | None:
    """Return an upper bound of the trip count for scan outputs of these types; None if unknown or too large."""
    if not output_types:
        return 0
    max_rows = _trip_count(node.emit, limit)
    if max_rows is None and limit is not None:
        max_rows = _runtime_trip_count(node, limit)
    is_too_large = max_rows is None or any(
        isinstance(n := product((max_rows, *shape_of(t))), int) and n > _MAX_COLLECTED_ELEMENTS for t in output_types
    )
    return None if is_too_large else max_rows


def _has_runtime_condition(node: OnnxNode, body: GraphProto, cond: ImportedValue, states: Sequence[ImportedValue]) -> bool:
    """Return whether the condition of a loop is not constant, before or after its first iteration."""
    block = Block()
    scratch = Emitter(block, node.emit.weights, node.emit)
    results, problems = node.try_import_subgraph(body, [scratch.constant(0, np.int64), cond, *states], scratch)
    discard_block(block)
    return not problems and (cond.constant_value is None or results[0].constant_value is None)


def _store_row(emit: Emitter, rows: ImportedValue, step: ImportedValue, row: ImportedValue) -> ImportedValue:
    """Return `rows` with the row at index `step` replaced."""
    return emit(dl.ScatterRowsOp, rows, emit.reshape(step, (1,)), emit.reshape(row, (1, *row.shape)), mode="none")


def _first_rows(emit: Emitter, tables: Sequence[ImportedValue], count: ImportedValue) -> list[ImportedValue]:
    """Slice each table to its first `count` rows, a data-dependent size."""
    if not tables:
        return []
    is_written = emit(dl.LessOp, emit.iota(tables[0].shape[0]), count)
    size = emit.new_size("loop")
    indices = emit.reshape(emit(dl.NonzeroOp, is_written, size=(size,)), (size,))
    return [emit(dl.GatherOp, rows, indices, axis=0) for rows in tables]


def _unroll(
    node: OnnxNode, body: GraphProto, limit: ImportedValue | None, cond: ImportedValue, states: Sequence[ImportedValue]
) -> Sequence[ImportedValue]:
    """Unroll a loop, whose trip count must be constant."""
    emit, count = node.emit, _trip_count(node.emit, limit)
    for k, value_name in enumerate(("number of iterations", "condition")):
        if node.get(k) is not None:
            _ = node.constant_input(k, value_name)
    if count is not None and not isinstance(count, int):
        raise NodeProblem("value", f"its trip count is {count}; give the input shapes")
    elements: list[list[ImportedValue]] = [[] for _ in body.output[1 + len(states) :]]
    step = 0
    while count is None or step < count:
        if cond.constant_value is None:
            raise NodeProblem(
                "value",
                "its condition is computed from data, and the types of its states or scan outputs change between iterations",
            )
        if not cond.constant_value:
            break
        if step == _MAX_UNROLLED_ITERATIONS:
            raise NodeProblem(
                "value", f"it must be unrolled because its states change their types, but has more than {step} iterations"
            )
        cond, *results = node.import_subgraph(body, [emit.constant(step, np.int64), cond, *states], emit)
        cond, states = emit.reshape(cond, ()), results[: len(states)]
        for sequence, value in zip(elements, results[len(states) :], strict=True):
            sequence.append(value)
        step += 1
    if not step and elements:
        return [*states, *_empty_collected(node, body, states)]
    return [*states, *(_stack(node, sequence) for sequence in elements)]


def _empty_collected(node: OnnxNode, body: GraphProto, states: Sequence[ImportedValue]) -> list[ImportedValue]:
    """Return the scan outputs of a loop without iterations: empty tensors, with the types of the first iteration."""
    emit, block = node.emit, Block()
    scratch = Emitter(block, emit.weights, emit)
    results, problems = node.try_import_subgraph(
        body, [scratch.constant(0, np.int64), scratch.constant(True), *states], scratch
    )
    outputs = list(results[1 + len(states) :])
    if (
        problems
        or any(isinstance(v, NonTensorValue) or v.is_string for v in outputs)
        or _has_local_sizes(scratch, [v.type for v in outputs])
    ):
        raise NodeProblem("output", "a loop without iterations whose scan outputs have unknown shapes is not supported")
    types = [v.type for v in outputs]
    discard_block(block)
    return [emit.full(0, (0, *shape_of(t)), element_type_of(t)) for t in types]


def _runtime_trip_count(node: OnnxNode, limit: ImportedValue) -> Size:
    """Return the trip count that is computed at run time, after a check that the scan outputs fit into memory."""
    emit = node.emit
    is_in_range = emit(dl.LessOp, limit, emit.constant(_MAX_COLLECTED_ELEMENTS, np.int64))
    limit_text = f"a loop with scan outputs has at most {_MAX_COLLECTED_ELEMENTS - 1:,} iterations"
    message = f"{node.description}: {limit_text}; its trip count is {{}}"
    emit.require(is_in_range, message, limit)
    return emit.scalar_as_size(limit)


class _BodyMismatch(Exception):
    """Raised if the attempted conversion does not support a loop body."""


def _trip_count(emit: Emitter, limit: ImportedValue | None) -> Size | None:
    """Return the trip count if it is a constant or a size."""
    if limit is None or limit.constant_value is None:
        return None
    entry = limit.constant_value.item()
    return emit.nonnegative_size(entry if isinstance(entry, Dim) else int(entry))


def _has_local_sizes(emit: Emitter, types: Sequence[Tensor]) -> bool:
    """Return whether types have data-dependent sizes of the body, which may differ between iterations."""
    block = emit.build.insertion_point
    assert isinstance(block, Block)
    local_symbols = {str(size) for op in block.walk() if isinstance(op, DataDependent) for size in op.data_dependent_sizes}
    return not local_symbols.isdisjoint(symbol for t in types for size in shape_of(t) for symbol in Dim.lift(size).symbols())


def _stack(node: OnnxNode, values: Sequence[ImportedValue]) -> ImportedValue:
    return node.emit(dl.ConcatOp, *(node.emit.reshape(v, (1, *v.shape)) for v in values), axis=0)


@table("Scan", since=9)
def scan(node: OnnxNode) -> Sequence[ImportedValue]:
    emit, body = node.emit, node.graph("body")
    num_inputs = node.integer("num_scan_inputs")
    num_states = len(node.inputs) - num_inputs
    num_outputs = len(body.output) - num_states
    if num_inputs < 1 or num_states < 0 or num_outputs < 0:
        raise ModelError(
            f"{node.description}: {num_inputs} sequences among {len(node.inputs)} inputs, and {len(body.output)} results"
        )
    kinds = ("input", num_inputs), ("output", num_outputs)
    axes, output_axes = (node.integers(f"scan_{kind}_axes", [0] * n) for kind, n in kinds)
    is_input_reversed, is_output_reversed = (node.integers(f"scan_{kind}_directions", [0] * n) for kind, n in kinds)
    if (len(axes), len(is_input_reversed), len(output_axes), len(is_output_reversed)) != (
        num_inputs,
        num_inputs,
        num_outputs,
        num_outputs,
    ):
        raise ModelError(f"{node.description}: expected one axis and one direction for each scan input and output")
    if not {0, 1}.issuperset((*is_input_reversed, *is_output_reversed)):
        raise ModelError(f"{node.description}: a direction is 0 or 1, got {[*is_input_reversed, *is_output_reversed]}")
    sequences = [
        reverse_if(emit, _move_axis(emit, x, node.axis(axis, x.rank), 0), bool(backward))
        for x, axis, backward in zip((node[num_states + k] for k in range(num_inputs)), axes, is_input_reversed, strict=True)
    ]
    lengths = dict.fromkeys(s.shape[0] for s in sequences)
    if not all(are_equal(length, sequences[0].shape[0]) for length in lengths):
        raise ModelError(f"{node.description}: its scan inputs have different lengths: {' and '.join(map(str, lengths))}")

    last, results = emit.scan(
        [node[k] for k in range(num_states)], sequences, sequences[0].shape[0], _step(node, body, num_states)
    )
    outputs = [
        _move_axis(emit, reverse_if(emit, x, bool(backward)), 0, node.axis(axis, x.rank))
        for x, axis, backward in zip(results, output_axes, is_output_reversed, strict=True)
    ]
    return [*last, *outputs]


@table("Scan", until=8)
def batched_scan(node: OnnxNode) -> Sequence[ImportedValue]:
    """Scan each element of a batch, along axis 1 of the inputs."""
    count = node.integer("num_scan_inputs")
    first = len(node.inputs) - 1 - count
    reversed_inputs = node.integers("directions", [0] * count)
    if count < 1 or first < 0 or len(reversed_inputs) != count:
        raise ModelError(
            f"{node.description}: {count} sequences of {len(reversed_inputs)} directions among {len(node.inputs) - 1} inputs"
        )
    lengths, step = node.get(0), _step(node, node.graph("body"), first)

    def scanned(
        inner: Emitter, _: Sequence[ImportedValue], elements: Sequence[ImportedValue]
    ) -> tuple[list[ImportedValue], list[ImportedValue]]:
        states, sequences, runtime_length = elements[:first], elements[first : first + count], elements[first + count :]
        max_length = sequences[0].shape[0]
        steps = inner.iota(max_length)
        length = (
            inner(dl.MinimumOp, inner.cast(runtime_length[0], i64), inner.size_scalar(max_length))
            if runtime_length
            else inner.size_scalar(max_length)
        )
        mirrored = inner(dl.SubOp, inner(dl.SubOp, length, inner.scalar(1, i64)), steps)
        indices = inner(dl.MaximumOp, mirrored, inner.scalar(0, i64))
        pairs = zip(sequences, reversed_inputs, strict=True)
        inputs = [inner(dl.GatherOp, sequence, indices, axis=0) if backward else sequence for sequence, backward in pairs]

        def masked_step(
            inner: Emitter, states: Sequence[ImportedValue], elements: Sequence[ImportedValue]
        ) -> tuple[list[ImportedValue], list[ImportedValue]]:
            """After the end of a sequence, leave the states unchanged and return zeros."""
            *elements, k = elements
            next_states, results = step(inner, states, elements)
            is_active = inner(dl.LessOp, k, length)
            selected = [inner(dl.SelectOp, is_active, new, old) for new, old in zip(next_states, states, strict=True)]
            return selected, [inner(dl.SelectOp, is_active, new, inner.scalar(0, new)) for new in results]

        last, results = (
            inner.scan(states, [*inputs, steps], max_length, masked_step)
            if runtime_length
            else inner.scan(states, inputs, max_length, step)
        )
        return [], [*last, *results]

    batches = [node[1 + k] for k in range(first + count)] + ([] if lengths is None else [lengths])
    return node.emit.scan([], batches, batches[0].shape[0], scanned)[1]


def _step(node: OnnxNode, body: GraphProto, count: int) -> LoopStep:
    """Return the body of a scan with `count` states."""

    def step(
        inner: Emitter, states: Sequence[ImportedValue], elements: Sequence[ImportedValue]
    ) -> tuple[list[ImportedValue], list[ImportedValue]]:
        results = list(node.import_subgraph(body, [*states, *elements], inner))
        if _has_local_sizes(inner, [v.type for v in results]):
            raise NodeProblem("operator", "results of its body have data-dependent sizes, which may differ between iterations")
        for old, new in zip(states, results, strict=False):
            if old.rank == new.rank:
                # Raises UndecidableError for a symbolic size against a static one.
                _ = all(map(are_equal, old.shape, new.shape))
        return results[:count], results[count:]

    return step


def reverse_if(emit: Emitter, sequence: ImportedValue, backward: bool) -> ImportedValue:
    """Reverse a sequence along axis 0 if `backward`."""
    return emit(dl.ReverseOp, sequence, axes=(0,)) if backward else sequence


def _move_axis(emit: Emitter, x: ImportedValue, source: int, target: int) -> ImportedValue:
    """Move one axis of `x` to another position."""
    order = [a for a in range(x.rank) if a != source]
    order.insert(target, source)
    return emit.transpose(x, order)

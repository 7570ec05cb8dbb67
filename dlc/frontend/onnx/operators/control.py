"""Control flow: loops and scans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto

from dlc.dialects import dl
from dlc.dialects.dl.base import Tensor, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dims import Dim, Size, product
from dlc.errors import DTypeError, ModelError, ShapeError
from dlc.frontend.emit import Emitter, Step, Value, discard, withdraw
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.values import NoTensor
from dlc.frontend.problems import NodeProblem
from dlc.frontend.symbolic import equal
from dlc.ir import Block, i64

table = Table()

# Up to so many iterations a loop whose states change their types is written out.
_MOST_ITERATIONS = 1_000
# Elements that are kept of what a loop may collect, if only data ends it.
_MOST_COLLECTED = 1 << 24


@table("Loop")
def loop(node: Node) -> Sequence[Value]:
    """What all iterations make, where all of it is known; else a scan, if only its number of iterations ends it, or a
    `while`. A loop whose states change their types is written out."""
    emit, body = node.emit, node.graph("body")
    limit, going = node.get(0), node.get(1)
    if limit is not None:
        limit = emit.reshape(limit, ())
    going = emit.reshape(going, ()) if going is not None else emit.constant(True)
    states = [node[k] for k in range(2, len(node.inputs))]
    if len(body.output) <= len(states):
        raise ModelError(f"{node.place}: its body has {len(body.output)} results for a condition and {len(states)} states")
    # How many elements a sequence has is known at import only.
    for form in () if any(isinstance(state, NoTensor) for state in states) else (_folded, _scanned, _conditional):
        results = form(node, body, limit, going, states)
        if results is not None:
            return results
    return _unrolled(node, body, limit, going, states)


def _folded(node: Node, body: GraphProto, limit: Value | None, going: Value, states: Sequence[Value]) -> Sequence[Value] | None:
    """The results of a loop of which everything is known; None of another."""
    count = _count(limit)
    if not states or (limit is not None and not isinstance(count, int)):
        return None
    elements: list[list[Value]] = [[] for _ in body.output[1 + len(states) :]]
    step = 0
    while (count is None or step < count) and all(v.known is not None for v in (going, *states)) and step < _MOST_ITERATIONS:
        if not going.known:
            break
        # In a block of its own, which is dropped: what is known is not emitted.
        block = Block()
        scratch = Emitter(block, node.emit.weights, node.emit)
        results, problems = node.attempt(body, [scratch.constant(step, np.int64), going, *states], scratch)
        discard(block)
        if problems or any(v.known is None for v in results):
            return None
        going, *results = results
        going, states = node.emit.reshape(going, ()), results[: len(states)]
        for sequence, value in zip(elements, results[len(states) :], strict=True):
            sequence.append(value)
        step += 1
    if step == _MOST_ITERATIONS or any(v.known is None for v in (going, *states)) or not all(elements):
        return None
    return [*states, *(_stacked(node, sequence) for sequence in elements)]


def _scanned(
    node: Node, body: GraphProto, limit: Value | None, going: Value, states: Sequence[Value]
) -> Sequence[Value] | None:
    """A loop that runs as often as its limit says; None if something else ends it or its states change their types."""
    emit, count = node.emit, _count(limit)
    if count is None and limit is not None and len(body.output) > 1 + len(states):
        count = _by_data(node, limit)

    def ends(condition: Value) -> bool:
        """Whether a condition may be what ends it: of no iterations none does."""
        return count != 0 and (condition.known is None or not bool(condition.known))

    if count is None or ends(going):
        return None

    def step(inner: Emitter, states: Sequence[Value], elements: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        results, problems = node.attempt(body, [*elements, inner.constant(True), *states], inner)
        if problems or ends(results[0]) or _has_sizes_of(inner, [v.type for v in results[1:]]):
            raise _AnotherForm
        return list(results[1 : 1 + len(states)]), list(results[1 + len(states) :])

    numbers = emit.iota(count)
    try:
        last, made = emit.scan(states, [numbers], count, step)
    except (_AnotherForm, ShapeError, DTypeError):
        withdraw(numbers)
        return None
    return [*last, *made]


def _conditional(
    node: Node, body: GraphProto, limit: Value | None, going: Value, states: Sequence[Value]
) -> Sequence[Value] | None:
    """A loop that ends when its data says so; None if its states change their types.

    What it collects goes, step by step, into as many rows as there may be; those that were reached are the result. Where
    nobody knows how many that is, or it is too many, the loop runs once before, to count them.
    """
    try:
        kinds = _collected(node, body, states)
        most = _most(node, limit, kinds)
        if most is None:
            if not _is_ended_by_data(node, body, going, states):
                return None
            limit, _ = _while(node, body, limit, going, states, [])
            most = _by_data(node, limit)
        room = [node.emit.full(0, (most, *shape_of(t)), element_type_of(t)) for t in kinds]
        steps, last = _while(node, body, limit, going, states, room)
    except (_AnotherForm, ShapeError, DTypeError):
        return None
    return [*last[: len(states)], *_first_rows(node.emit, last[len(states) :], steps)]


def _while(
    node: Node, body: GraphProto, limit: Value | None, going: Value, states: Sequence[Value], room: Sequence[Value]
) -> tuple[Value, Sequence[Value]]:
    """How many steps a loop took, its last states, and what it collected in `room`, if that is anything."""
    emit, count = node.emit, len(states)

    def within(inner: Emitter, step: Value, condition: Value) -> Value:
        """Whether the condition and the limit let it go on."""
        if limit is None:
            return condition
        return inner(dl.AndOp, inner.reshape(condition, ()), inner(dl.LessOp, step, limit))

    def iteration(inner: Emitter, arguments: Sequence[Value]) -> Sequence[Value]:
        step, *before = arguments
        results, problems = node.attempt(body, [step, inner.constant(True), *before[:count]], inner)
        if problems:
            raise _AnotherForm
        condition, *following = results
        rows = [_with_row(inner, all_, step, row) for all_, row in zip(before[count:], following[count:], strict=False)]
        step = inner(dl.AddOp, step, inner.constant(1, np.int64))
        return [within(inner, step, condition), step, *following[:count], *rows]

    first = emit.constant(0, np.int64)
    steps, *last = emit.while_(within(emit, first, going), [first, *states, *room], iteration)
    return steps, last


def _collected(node: Node, body: GraphProto, states: Sequence[Value]) -> list[Tensor]:
    """The types of the values that a step collects. Raises _AnotherForm where the steps have different ones."""
    types: list[Tensor] = []

    def run(inner: Emitter, arguments: Sequence[Value]) -> Sequence[Value]:
        step, *before = arguments
        results, problems = node.attempt(body, [step, inner.constant(True), *before], inner)
        types.extend(v.type for v in results[1 + len(states) :])
        if problems or _has_sizes_of(inner, types):
            raise _AnotherForm
        return ()

    if len(body.output) > 1 + len(states):
        discard(node.emit.body([tensor_type((), i64), *(s.type for s in states)], run))
    return types


def _most(node: Node, limit: Value | None, kinds: Sequence[Tensor]) -> Size | None:
    """How many values of each of these types a loop may collect; None where nobody knows, or they are too many."""
    if not kinds:
        return 0
    most = _count(limit)
    if most is None and limit is not None:
        most = _by_data(node, limit)
    too_many = most is None or any(isinstance(n := product((most, *shape_of(t))), int) and n > _MOST_COLLECTED for t in kinds)
    return None if too_many else most


def _is_ended_by_data(node: Node, body: GraphProto, going: Value, states: Sequence[Value]) -> bool:
    """Whether nobody knows of a loop whether it goes on, even behind its first step."""
    block = Block()
    scratch = Emitter(block, node.emit.weights, node.emit)
    results, problems = node.attempt(body, [scratch.constant(0, np.int64), going, *states], scratch)
    discard(block)
    return not problems and (going.known is None or results[0].known is None)


def _with_row(emit: Emitter, rows: Value, step: Value, row: Value) -> Value:
    """Rows of which one is another."""
    return emit(dl.ScatterRowsOp, rows, emit.reshape(step, (1,)), emit.reshape(row, (1, *row.shape)), mode="none")


def _first_rows(emit: Emitter, tables: Sequence[Value], count: Value) -> list[Value]:
    """As many rows of each table as data says."""
    if not tables:
        return []
    reached = emit(dl.LessOp, emit.iota(tables[0].shape[0]), count)
    size = emit.new_size("loop")
    places = emit.reshape(emit(dl.NonzeroOp, reached, size=(size,)), (size,))
    return [emit(dl.GatherOp, rows, places, axis=0) for rows in tables]


def _unrolled(node: Node, body: GraphProto, limit: Value | None, going: Value, states: Sequence[Value]) -> Sequence[Value]:
    """A loop written out, whose end has to be known."""
    emit, count = node.emit, _count(limit)
    for k, what in enumerate(("number of iterations", "condition")):
        if node.get(k) is not None:
            _ = node.known(k, what)
    if count is not None and not isinstance(count, int):
        raise NodeProblem("value", f"its number of iterations is {count}; give the input shapes")
    elements: list[list[Value]] = [[] for _ in body.output[1 + len(states) :]]
    step = 0
    while count is None or step < count:
        if going.known is None:
            raise NodeProblem("value", "data ends it, and its states change their types, or what it collects does")
        if not going.known:
            break
        if step == _MOST_ITERATIONS:
            raise NodeProblem("value", f"it is written out, since its states change their types, and runs over {step} times")
        going, *results = node.inline(body, [emit.constant(step, np.int64), going, *states], emit)
        going, states = emit.reshape(going, ()), results[: len(states)]
        for sequence, value in zip(elements, results[len(states) :], strict=True):
            sequence.append(value)
        step += 1
    if not step and elements:
        return [*states, *_collected_by_none(node, body, states)]
    return [*states, *(_stacked(node, sequence) for sequence in elements)]


def _collected_by_none(node: Node, body: GraphProto, states: Sequence[Value]) -> list[Value]:
    """What a loop without iterations collects: no elements, of the types that its first step would make."""
    emit, block = node.emit, Block()
    scratch = Emitter(block, emit.weights, emit)
    results, problems = node.attempt(body, [scratch.constant(0, np.int64), scratch.constant(True), *states], scratch)
    made = list(results[1 + len(states) :])
    if problems or any(isinstance(v, NoTensor) or v.is_text for v in made) or _has_sizes_of(scratch, [v.type for v in made]):
        raise NodeProblem("output", "a loop without iterations that collects values of unknown shape is not supported")
    types = [v.type for v in made]
    discard(block)
    return [emit.full(0, (0, *shape_of(t)), element_type_of(t)) for t in types]


def _by_data(node: Node, limit: Value) -> Size:
    """The number of iterations that data says, of a loop that collects as many values, in which there is room for some."""
    emit = node.emit
    few = emit(dl.LessOp, limit, emit.constant(_MOST_COLLECTED, np.int64))
    message = f"{node.place}: a loop collects values in up to {_MOST_COLLECTED - 1:,} iterations; its limit is {{}}"
    emit.require(few, message, limit)
    return emit.counted(limit)


class _AnotherForm(Exception):
    """Raised where a body does not import in this form of a loop."""


def _count(limit: Value | None) -> Size | None:
    """The number of iterations, where it is a known number or size."""
    if limit is None or limit.known is None:
        return None
    (entry,) = limit.known.reshape(-1)
    return entry if isinstance(entry, Dim) else max(0, int(entry))


def _has_sizes_of(emit: Emitter, types: Sequence[Tensor]) -> bool:
    """Whether types have sizes that data decides in what was emitted: in each step of a loop other ones."""
    block = emit.build.place
    assert isinstance(block, Block)
    own = {str(size) for op in block.walk() if isinstance(op, DataDependent) for size in op.decided}
    return not own.isdisjoint(symbol for t in types for size in shape_of(t) for symbol in Dim.lift(size).symbols())


def _stacked(node: Node, values: Sequence[Value]) -> Value:
    return node.emit(dl.ConcatOp, *(node.emit.reshape(v, (1, *v.shape)) for v in values), axis=0)


@table("Scan", since=9)
def scan(node: Node) -> Sequence[Value]:
    emit, body = node.emit, node.graph("body")
    count = node.integer("num_scan_inputs")
    first = len(node.inputs) - count
    made = len(body.output) - first
    if count < 1 or first < 0 or made < 0:
        raise ModelError(f"{node.place}: {count} sequences among {len(node.inputs)} inputs, and {len(body.output)} results")
    kinds = ("input", count), ("output", made)
    axes, made_axes = (node.integers(f"scan_{kind}_axes", [0] * n) for kind, n in kinds)
    turned, made_turned = (node.integers(f"scan_{kind}_directions", [0] * n) for kind, n in kinds)
    if (len(axes), len(turned), len(made_axes), len(made_turned)) != (count, count, made, made):
        raise ModelError(f"{node.place}: axes or directions are not as many as its sequences")
    if not {0, 1}.issuperset((*turned, *made_turned)):
        raise ModelError(f"{node.place}: a direction is 0 or 1, got {[*turned, *made_turned]}")
    sequences = [
        directed(emit, _moved(emit, x, node.axis(axis, x.rank), 0), bool(backward))
        for x, axis, backward in zip((node[first + k] for k in range(count)), axes, turned, strict=True)
    ]
    lengths = dict.fromkeys(s.shape[0] for s in sequences)
    if not all(equal(length, sequences[0].shape[0]) for length in lengths):
        raise ModelError(f"{node.place}: its sequences have {' and '.join(map(str, lengths))} elements")

    last, results = emit.scan([node[k] for k in range(first)], sequences, sequences[0].shape[0], _step(node, body, first))
    moved = [
        _moved(emit, directed(emit, x, bool(backward)), 0, node.axis(axis, x.rank))
        for x, axis, backward in zip(results, made_axes, made_turned, strict=True)
    ]
    return [*last, *moved]


@table("Scan", until=8)
def batched_scan(node: Node) -> Sequence[Value]:
    """A scan for each element of a batch, along the second axis."""
    count = node.integer("num_scan_inputs")
    first = len(node.inputs) - 1 - count
    turned = node.integers("directions", [0] * count)
    if count < 1 or first < 0 or len(turned) != count:
        raise ModelError(f"{node.place}: {count} sequences of {len(turned)} directions among {len(node.inputs) - 1} inputs")
    lengths, step = node.get(0), _step(node, node.graph("body"), first)

    def scanned(inner: Emitter, _: Sequence[Value], elements: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        states, sequences, own = elements[:first], elements[first : first + count], elements[first + count :]
        room = sequences[0].shape[0]
        steps = inner.iota(room)
        length = inner(dl.MinimumOp, inner.cast(own[0], i64), inner.number(room)) if own else inner.number(room)
        mirrored = inner(dl.SubOp, inner(dl.SubOp, length, inner.scalar(1, i64)), steps)
        places = inner(dl.MaximumOp, mirrored, inner.scalar(0, i64))
        pairs = zip(sequences, turned, strict=True)
        read = [inner(dl.GatherOp, sequence, places, axis=0) if backward else sequence for sequence, backward in pairs]

        def shortened(inner: Emitter, states: Sequence[Value], elements: Sequence[Value]) -> tuple[list[Value], list[Value]]:
            """Behind the length of a sequence states stay, and 0 is made."""
            *elements, k = elements
            following, made = step(inner, states, elements)
            goes_on = inner(dl.LessOp, k, length)
            kept = [inner(dl.SelectOp, goes_on, new, old) for new, old in zip(following, states, strict=True)]
            return kept, [inner(dl.SelectOp, goes_on, new, inner.scalar(0, new)) for new in made]

        last, made = inner.scan(states, [*read, steps], room, shortened) if own else inner.scan(states, read, room, step)
        return [], [*last, *made]

    batches = [node[1 + k] for k in range(first + count)] + ([] if lengths is None else [lengths])
    return node.emit.scan([], batches, batches[0].shape[0], scanned)[1]


def _step(node: Node, body: GraphProto, count: int) -> Step:
    """A step of a scan with so many states."""

    def step(inner: Emitter, states: Sequence[Value], elements: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        results = list(node.inline(body, [*states, *elements], inner))
        if _has_sizes_of(inner, [v.type for v in results]):
            raise NodeProblem("operator", "in its body data decides sizes of its results, other ones in each step")
        for old, new in zip(states, results, strict=False):
            if old.rank == new.rank:
                # Of known sizes beside open ones a call says whether states keep them: UndecidableError.
                _ = all(map(equal, old.shape, new.shape))
        return results[:count], results[count:]

    return step


def directed(emit: Emitter, sequence: Value, backward: bool) -> Value:
    """A sequence along axis 0, turned around if it goes backward."""
    return emit(dl.ReverseOp, sequence, axes=(0,)) if backward else sequence


def _moved(emit: Emitter, x: Value, source: int, target: int) -> Value:
    """`x` with one axis at another place."""
    order = [a for a in range(x.rank) if a != source]
    order.insert(target, source)
    return emit.transpose(x, order)

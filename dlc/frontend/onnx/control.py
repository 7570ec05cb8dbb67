"""Control flow: branches, loops, scans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto

from dlc.dialects import dl
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dims import Size
from dlc.errors import ModelError
from dlc.frontend.onnx.emit import Emitter, Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.problems import NodeProblem
from dlc.frontend.onnx.registry import Table
from dlc.ir import Block

table = Table()

# Up to so many iterations a loop is written out when it is imported.
_MOST_ITERATIONS = 1_000


@table("If")
def if_(node: Node) -> Sequence[Value]:
    """The branch that is taken, where that is known; else both, as they change nothing, and a choice of their results."""
    condition = node[0]
    then, otherwise = node.graph("then_branch"), node.graph("else_branch")
    if len(then.output) != len(otherwise.output) or len(then.output) < len(node.proto.output):
        raise ModelError(f"{node.place}: its branches have {len(then.output)} and {len(otherwise.output)} results")
    if condition.known is not None:
        return node.inline(then if bool(node.number(0, "condition")) else otherwise, (), node.emit)
    emit, condition = node.emit, node.emit.reshape(condition, ())
    branches: list[Sequence[Value]] = []
    for branch, taken in ((then, condition), (otherwise, emit(dl.NotOp, condition))):
        with emit.guarded(taken):
            branches.append(node.inline(branch, (), emit))
    chosen: list[Value] = []
    for k, (x, y) in enumerate(zip(*branches, strict=True)):
        if x.type != y.type:
            raise NodeProblem(
                "value",
                f"its condition is computed from data, and result {k} is {x.type} in one branch and {y.type} in the other: "
                "results of one type are supported, or a condition that is known",
            )
        chosen.append(emit(dl.SelectOp, condition, x, y))
    return chosen


@table("Loop")
def loop(node: Node) -> Sequence[Value]:
    """The iterations, one behind the other, where it is known how many there are; else a loop that the host runs."""
    emit, body = node.emit, node.graph("body")
    limit, going = node.get(0), node.get(1)
    if limit is not None:
        limit = emit.reshape(limit, ())
    going = emit.reshape(going, ()) if going is not None else emit.constant(True)
    states = [node[k] for k in range(2, len(node.inputs))]
    if len(body.output) <= len(states):
        raise ModelError(f"{node.place}: its body has {len(body.output)} results for a condition and {len(states)} states")
    unrolled = _unrolled(node, body, limit, going, states)
    return unrolled if unrolled is not None else _hosted(node, body, limit, going, states)


def _unrolled(
    node: Node, body: GraphProto, limit: Value | None, going: Value, states: Sequence[Value]
) -> Sequence[Value] | None:
    """A loop written out; None if its end is not known, or is too far away."""
    known = limit.known if limit is not None else None
    if limit is not None and known is None:
        return None
    count = int(known) if known is not None else None
    elements: list[list[Value]] = [[] for _ in body.output[1 + len(states) :]]
    step = 0
    while count is None or step < count:
        if going.known is None or step == _MOST_ITERATIONS:
            return None
        if not going.known:
            break
        going, *results = node.inline(body, [node.emit.constant(step, np.int64), going, *states], node.emit)
        going = node.emit.reshape(going, ())
        states = results[: len(states)]
        for sequence, value in zip(elements, results[len(states) :], strict=True):
            sequence.append(value)
        step += 1
    return [*states, *(_stacked(node, sequence) for sequence in elements)]


def _hosted(node: Node, body: GraphProto, limit: Value | None, going: Value, states: Sequence[Value]) -> Sequence[Value]:
    """A loop that ends when its data says so."""
    emit = node.emit
    if len(body.output) > 1 + len(states):
        # Where it is not data that keeps it from ending, it is what it computes.
        for k, what in enumerate(("number of iterations", "condition")):
            if node.get(k) is not None:
                node.known(k, what)
        raise NodeProblem("value", f"it collects values, in iterations of unknown number or more than {_MOST_ITERATIONS}")
    first = emit.constant(0, np.int64)

    def within(inner: Emitter, step: Value, condition: Value) -> Value:
        """Whether the condition and the limit let it go on."""
        if limit is None:
            return condition
        return inner(dl.AndOp, inner.reshape(condition, ()), inner(dl.LessOp, step, limit))

    def iteration(inner: Emitter, arguments: Sequence[Value]) -> Sequence[Value]:
        step, *before = arguments
        condition, *following = node.inline(body, [step, inner.constant(True), *before], inner)
        step = inner(dl.AddOp, step, inner.constant(1, np.int64))
        return [within(inner, step, condition), step, *following]

    return emit.while_(within(emit, first, going), [first, *states], iteration)[1:]


def _stacked(node: Node, values: Sequence[Value]) -> Value:
    if not values:
        raise NodeProblem("output", "a loop without iterations that collects values of unknown shape is not supported")
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
    lengths: set[Size] = {s.shape[0] for s in sequences}
    if len(lengths) > 1:
        raise ModelError(f"{node.place}: its sequences have {' and '.join(map(str, lengths))} elements")

    def step(inner: Emitter, states: Sequence[Value], elements: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        results = list(node.inline(body, [*states, *elements], inner))
        block = inner.build.place
        assert isinstance(block, Block)
        if any(isinstance(op, DataDependent | dl.WhileOp) for op in block.ops):
            raise NodeProblem("operator", "in its body sizes, or how often a loop runs, depend on data")
        return results[:first], results[first:]

    last, results = emit.scan([node[k] for k in range(first)], sequences, sequences[0].shape[0], step)
    moved = [
        _moved(emit, directed(emit, x, bool(backward)), 0, node.axis(axis, x.rank))
        for x, axis, backward in zip(results, made_axes, made_turned, strict=True)
    ]
    return [*last, *moved]


def directed(emit: Emitter, sequence: Value, backward: bool) -> Value:
    """A sequence along axis 0, turned around if it goes backward."""
    return emit(dl.ReverseOp, sequence, axes=(0,)) if backward else sequence


def _moved(emit: Emitter, x: Value, source: int, target: int) -> Value:
    """`x` with one axis at another place."""
    order = [a for a in range(x.rank) if a != source]
    order.insert(target, source)
    return emit.transpose(x, order)

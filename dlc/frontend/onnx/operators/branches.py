"""Branches: `If`, whose condition is known, or picks one of two bodies when the model runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import GraphProto

from dlc.dialects import dl
from dlc.dialects.dl.base import Tensor, element_type_of, rank_of, shape_of, tensor_type
from dlc.dialects.dl.data_dependent.selection import Selection
from dlc.dims import Dim, Size, substitute
from dlc.errors import ModelError
from dlc.frontend.emit import Emitter, Value, discard
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.values import NoTensor
from dlc.frontend.problems import AlreadyNoted, NodeProblem, Problem, contradictions
from dlc.ir import Block, i64

table = Table()


@dataclass(frozen=True)
class _Branch:
    """A branch as a body: the types of its results, None of one that fails, and what sizes are at most, where that is known."""

    body: Block
    types: Sequence[Tensor] | None = None
    most: Sequence[Sequence[Size | None]] = ()


@table("If")
def if_(node: Node) -> Sequence[Value]:
    """The branch that is taken, where that is known; else both, of which one runs.

    A branch that is impossible for the shapes at hand is an error when it is taken. Results of which the branches make
    different sizes have room for either, and behind the branches as many elements as data says.
    """
    condition = node[0]
    graphs = [node.graph("then_branch"), node.graph("else_branch")]
    counts = [len(g.output) for g in graphs]
    if counts[0] != counts[1] or counts[0] < len(node.proto.output):
        raise ModelError(f"{node.place}: its branches have {counts[0]} and {counts[1]} results")
    if condition.known is not None:
        return node.inline(graphs[0 if bool(node.number(0, "condition")) else 1], (), node.emit)
    made = [_branch(node, graph) for graph in graphs]
    typed = [branch for branch in made if branch.types is not None]
    if not typed:
        raise NodeProblem("shape", "neither of its branches fits the shapes of the inputs")
    types = list(typed[0].types or ())
    if typed[0].types == typed[-1].types:
        return node.emit.if_(condition, made[0].body, made[1].body, types)
    rooms = [tensor_type(_room(node, k, *typed), t.element_type) for k, t in enumerate(types)]
    for branch in made:
        discard(branch.body)
    return _cut(node, condition, [_branch(node, graph, rooms) for graph in graphs], typed, rooms)


def _branch(node: Node, graph: GraphProto, rooms: Sequence[Tensor] = ()) -> _Branch:
    """A branch; its results take the `rooms` that are given, and their sizes follow them."""
    problems: list[Problem] = []
    types: list[Tensor] = []
    most: list[list[Size | None]] = []

    def run(inner: Emitter, arguments: Sequence[Value]) -> Sequence[Value]:
        results, found = node.attempt(graph, arguments, inner)
        problems.extend(found)
        if any(isinstance(v, NoTensor) for v in results):
            message = "its condition is computed from data, and a result is a sequence or an optional: it has to be known then"
            raise NodeProblem("value", message, [node[0]])
        types.extend(v.type for v in results)
        most.extend([_most(inner, size) for size in v.shape] for v in results)
        return results if problems or not rooms else _in_rooms(inner, results, rooms)

    body = node.emit.body((), run)
    if not problems:
        return _Branch(body, types, most)
    if any(p.kind != "shape" for p in problems):
        node.note(problems)
        raise AlreadyNoted
    discard(body)
    return _Branch(Block([dl.FailOp(contradictions(problems))]))


def _most(inner: Emitter, size: Size) -> Size | None:
    """What a size is at most, in sizes that are known before the branch runs; None if nobody knows."""
    block = inner.build.place
    assert isinstance(block, Block)
    bounds = {str(op.count): op.most for op in block.walk() if isinstance(op, Selection) and isinstance(op.count, Dim)}
    while own := [symbol for symbol in Dim.lift(size).symbols() if symbol in bounds]:
        known = {symbol: most for symbol in own if (most := bounds[symbol]) is not None}
        if len(known) < len(own):
            return None
        size = substitute(size, known)
    return size


def _room(node: Node, result: int, then: _Branch, otherwise: _Branch) -> list[Size]:
    """The shape that has room for a result of either branch. Raises NodeProblem where there is none."""
    x, y = (branch.types[result] for branch in (then, otherwise) if branch.types is not None)
    pairs = zip(then.most[result], otherwise.most[result], strict=rank_of(x) == rank_of(y))
    rooms = [_larger(a, b) for a, b in pairs]
    if rank_of(x) != rank_of(y) or element_type_of(x) != element_type_of(y) or any(room is None for room in rooms):
        raise NodeProblem(
            "value",
            f"its condition is computed from data, and result {result} is {x} in one branch and {y} in the other: results of "
            "one rank and element type, and of sizes that have a bound, are supported, or a condition that is known",
            [node[0]],
        )
    both = zip(shape_of(x), shape_of(y), rooms, strict=True)
    return [a if a == b else room for a, b, room in both if room is not None]


def _larger(a: Size | None, b: Size | None) -> Size | None:
    """What neither of two sizes is above."""
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else a + b


def _in_rooms(inner: Emitter, results: Sequence[Value], rooms: Sequence[Tensor]) -> list[Value]:
    """Results with zeros up to the ends of their rooms, then all their sizes."""
    made: list[Value] = []
    for value, room in zip(results, rooms, strict=True):
        for axis, (size, whole) in enumerate(zip(value.shape, shape_of(room), strict=True)):
            if size != whole:
                rest = [*value.shape[:axis], whole - size, *value.shape[axis + 1 :]]
                value = inner(dl.ConcatOp, value, inner.full(0, rest, value), axis=axis)
        made.append(value)
    return [*made, *(inner.sizes(size) for value in results for size in value.shape)]


def _cut(
    node: Node, condition: Value, branches: Sequence[_Branch], typed: Sequence[_Branch], rooms: Sequence[Tensor]
) -> list[Value]:
    """The results of branches in rooms, cut to the sizes that the branch which ran has made."""
    emit, sizes = node.emit, [tensor_type((), i64)] * sum(map(rank_of, rooms))
    values = emit.if_(condition, branches[0].body, branches[1].body, [*rooms, *sizes])
    results, numbers = values[: len(rooms)], iter(values[len(rooms) :])
    for k, room in enumerate(rooms):
        shapes = [shape_of(branch.types[k]) for branch in typed if branch.types is not None]
        for axis, whole in enumerate(shape_of(room)):
            number = next(numbers)
            if shapes[0][axis] != shapes[-1][axis]:
                results[k] = emit.slice(results[k], axis, 0, emit.counted(number, whole))
    return results

"""Operators that run graphs of the file."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import Tensor
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.node import Node, Table
from dlc.ir import Block

table = Table()


@table("WHILE", options="condition.i32 body.i32")
def while_(node: Node) -> Sequence[Value]:
    condition, body = node.integer("condition"), node.integer("body")
    states = [node[k] for k in range(len(node.inputs))]

    def step(inner: Emitter, arguments: Sequence[Value]) -> Sequence[Value]:
        following = node.inline(body, arguments, inner)
        return [*node.inline(condition, following, inner), *following]

    (begin,) = node.inline(condition, states, node.emit)
    return node.emit.while_(begin, states, step)


@table("IF", options="then.i32 otherwise.i32")
def if_(node: Node) -> Sequence[Value]:
    """The branch that is taken, where that is known; else both, of which one runs."""
    condition, arguments = node[0], [node[k] for k in range(1, len(node.inputs))]
    then, otherwise = node.integer("then"), node.integer("otherwise")
    if condition.known is not None:
        return node.inline(then if condition.known.all() else otherwise, arguments, node.emit)
    (first, types), (second, others) = (_branch(node, number, arguments) for number in (then, otherwise))
    if types != others:
        raise NodeProblem("shape", f"its branches give {', '.join(map(str, types))} and {', '.join(map(str, others))}")
    return node.emit.if_(condition, first, second, types)


def _branch(node: Node, number: int, arguments: Sequence[Value]) -> tuple[Block, list[Tensor]]:
    types: list[Tensor] = []

    def run(inner: Emitter, _: Sequence[Value]) -> Sequence[Value]:
        results = node.inline(number, arguments, inner)
        types.extend(r.type for r in results)
        return results

    return node.emit.body((), run), types


@table("STABLEHLO_COMPOSITE", options="name.i32 decomposition.i32")
def composite(node: Node) -> Sequence[Value]:
    """An operator by its name, with a graph that computes it: that is read."""
    return node.inline(node.integer("decomposition"), [node[k] for k in range(len(node.inputs))], node.emit)

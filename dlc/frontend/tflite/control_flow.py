"""Operators that run subgraphs."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import Tensor
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode
from dlc.ir import Block

table = TfliteConverterTable()


@table("WHILE", options="condition.i32 body.i32")
def while_(node: TfliteNode) -> Sequence[ImportedValue]:
    condition, body = node.integer("condition"), node.integer("body")
    states = [node[k] for k in range(len(node.inputs))]

    def step(inner: Emitter, arguments: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        next_states = node.import_subgraph(body, arguments, inner)
        return [*node.import_subgraph(condition, next_states, inner), *next_states]

    (first_condition,) = node.import_subgraph(condition, states, node.emit)
    return node.emit.while_(first_condition, states, step)


@table("IF", options="then.i32 otherwise.i32")
def if_(node: TfliteNode) -> Sequence[ImportedValue]:
    """Inline the branch that is taken if the condition is constant; else convert both branches into a conditional."""
    condition, arguments = node[0], [node[k] for k in range(1, len(node.inputs))]
    then, otherwise = node.integer("then"), node.integer("otherwise")
    if condition.constant_value is not None:
        return node.import_subgraph(then if condition.constant_value.all() else otherwise, arguments, node.emit)
    (then_block, types), (else_block, else_types) = (_branch(node, subgraph, arguments) for subgraph in (then, otherwise))
    if types != else_types:
        raise NodeProblem(
            "shape", f"its branches return different types: {', '.join(map(str, types))} and {', '.join(map(str, else_types))}"
        )
    return node.emit.if_(condition, then_block, else_block, types)


def _branch(node: TfliteNode, subgraph: int, arguments: Sequence[ImportedValue]) -> tuple[Block, list[Tensor]]:
    types: list[Tensor] = []

    def run(inner: Emitter, _: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        results = node.import_subgraph(subgraph, arguments, inner)
        types.extend(r.type for r in results)
        return results

    return node.emit.body((), run), types


@table("STABLEHLO_COMPOSITE", options="name.i32 decomposition.i32")
def composite(node: TfliteNode) -> Sequence[ImportedValue]:
    """Inline the decomposition of a composite operator."""
    return node.import_subgraph(node.integer("decomposition"), [node[k] for k in range(len(node.inputs))], node.emit)

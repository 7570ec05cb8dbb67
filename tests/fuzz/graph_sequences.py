"""Recipes for sequences and optionals: created, edited and read within a few nodes, so that the results are tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, helper

from tests.fuzz.random_graph import GraphValue, RandomGraph, Recipe, evaluate_nodes
from tests.fuzz.random_values import Unsuitable


class Chain:
    """Consecutive nodes that are added to the graph together."""

    def __init__(self, g: RandomGraph) -> None:
        self.g = g
        self.nodes: list[NodeProto] = []
        self.operands: dict[str, GraphValue] = {}

    def add(self, op: str, *operands: GraphValue | str, **attributes: object) -> str:
        """Add a node to the chain and return the name of its result; operands are graph values or results of the chain."""
        self.g.schema(op)
        self.operands |= {v.name: v for v in operands if isinstance(v, GraphValue)}
        names = [v.name if isinstance(v, GraphValue) else v for v in operands]
        name = f"{self.g.prefix}{op.lower()}{len(self.g.nodes)}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [name], **attributes))
        return name

    def end(self) -> GraphValue:
        """Add the chain to the graph and return the result of its last node."""
        operands = {name: v.array for name, v in self.operands.items()}
        arrays = evaluate_nodes(self.nodes, operands, self.nodes[-1].output, self.g.opset)
        if arrays is None:
            raise Unsuitable
        return self.g.insert(self.nodes, arrays)


def _position(g: RandomGraph, count: int) -> GraphValue:
    return g.constant(np.asarray(g.random.randrange(-count, count), g.random.choice([np.int32, np.int64])))


def make_sequence(g: RandomGraph, chain: Chain) -> tuple[str, list[GraphValue]]:
    """Create a sequence; return its name, and a value like each of its elements."""
    x = g.any(suits=lambda s: len(s) > 0 and 0 < s[0] < 9)
    if g.flag():
        elements = [x, *(g.like(x.dtype, lambda s: s == x.shape, x.shape) for _ in range(g.random.choice([0, 1, 2])))]
        return chain.add("SequenceConstruct", *elements), elements
    axis = g.random.randrange(len(x.shape)) if g.flag() else 0
    size = x.shape[axis]
    if not 0 < size < 20:
        raise Unsuitable
    part_length = g.random.choice([d for d in range(1, size + 1) if size % d == 0])
    drop_axis = part_length == 1 and g.flag()
    split_operand = (
        []
        if drop_axis or (part_length == 1 and g.flag())
        else [g.constant(np.asarray(part_length) if g.flag() else np.full(size // part_length, part_length))]
    )
    sequence = chain.add("SplitToSequence", x, *split_operand, axis=axis, **({"keepdims": 0} if drop_axis else {}))
    shape = (
        [n for a, n in enumerate(x.shape) if a != axis]
        if drop_axis
        else [part_length if a == axis else n for a, n in enumerate(x.shape)]
    )
    like = GraphValue("", np.zeros(shape, x.dtype), False)
    return sequence, [like] * (size // part_length)


def _edit_sequence(g: RandomGraph, chain: Chain, sequence: str, elements: Sequence[GraphValue]) -> tuple[str, int]:
    """Insert and erase some elements; return the sequence and its length."""
    count, like = len(elements), elements[0]
    for _ in range(g.random.choice([0, 1, 1, 2, 3])):
        if count > 1 and g.flag():
            sequence = chain.add("SequenceErase", sequence, *([_position(g, count)] if g.flag() else []))
            count -= 1
        else:
            other = g.like(like.dtype, lambda s: s == like.shape, like.shape)
            sequence = chain.add("SequenceInsert", sequence, other, *([_position(g, count)] if g.flag() else []))
            count += 1
    return sequence, count


def _sequence(g: RandomGraph, op: str) -> GraphValue:
    """Create and edit a sequence, and apply an operator to it that returns a tensor."""
    if g.opset < 11:
        raise Unsuitable
    chain = Chain(g)
    sequence, elements = make_sequence(g, chain)
    sequence, count = _edit_sequence(g, chain, sequence, elements)
    if g.random.random() < 0.2:
        sequence = chain.add("Identity", sequence)
    match op:
        case "SequenceLength":
            chain.add(op, sequence)
        case "ConcatFromSequence":
            stacked = int(not elements[0].shape or g.flag())
            chain.add(op, sequence, axis=g.random.randrange(len(elements[0].shape) + stacked), new_axis=stacked)
        case _:
            chain.add("SequenceAt", sequence, _position(g, count))
    return chain.end()


def _optional(g: RandomGraph, op: str) -> GraphValue:
    if g.opset < 15:
        raise Unsuitable
    chain, x = Chain(g), g.any()
    chain.add(op, chain.add("Optional", x))
    # `onnx.reference` represents an optional as a list, which adds an axis to the result.
    return g.insert(chain.nodes, [x.array if op == "OptionalGetElement" else np.asarray(True)])


SEQUENCES: dict[str, Recipe] = {
    **dict.fromkeys(["SequenceAt", "SequenceLength", "ConcatFromSequence"], _sequence),
    **dict.fromkeys(["OptionalGetElement", "OptionalHasElement"], _optional),
}

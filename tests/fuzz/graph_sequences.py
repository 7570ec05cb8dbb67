"""How sequences and optionals are drawn: made, changed and read again within a few nodes, so that tensors come of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, helper

from tests.fuzz.draws import Unsuitable
from tests.fuzz.graph_recipes import Recipe
from tests.fuzz.random_graph import GraphValue, RandomGraph, evaluated


class Chain:
    """Nodes that come one after the other, before any is in the graph."""

    def __init__(self, g: RandomGraph) -> None:
        self.g = g
        self.nodes: list[NodeProto] = []
        self.read: dict[str, GraphValue] = {}

    def add(self, op: str, *operands: GraphValue | str, **attributes: object) -> str:
        """The result of a new node, of values of the graph or results."""
        self.g.schema(op)
        self.read |= {v.name: v for v in operands if isinstance(v, GraphValue)}
        names = [v.name if isinstance(v, GraphValue) else v for v in operands]
        name = f"{self.g.prefix}{op.lower()}{len(self.g.nodes)}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [name], **attributes))
        return name

    def end(self) -> GraphValue:
        """The result of the last node, with all of them in the graph."""
        operands = {name: v.array for name, v in self.read.items()}
        arrays = evaluated(self.nodes, operands, self.nodes[-1].output, self.g.opset)
        if arrays is None:
            raise Unsuitable
        return self.g.insert(self.nodes, arrays)


def _place(g: RandomGraph, count: int) -> GraphValue:
    return g.constant(np.asarray(g.random.randrange(-count, count), g.random.choice([np.int32, np.int64])))


def parts_of(g: RandomGraph, chain: Chain) -> tuple[str, list[GraphValue]]:
    """A sequence, and tensors of which each is like one of its elements."""
    x = g.any(suits=lambda s: len(s) > 0 and 0 < s[0] < 9)
    if g.flag():
        elements = [x, *(g.like(x.dtype, lambda s: s == x.shape, x.shape) for _ in range(g.random.choice([0, 1, 2])))]
        return chain.add("SequenceConstruct", *elements), elements
    axis = g.random.randrange(len(x.shape)) if g.flag() else 0
    size = x.shape[axis]
    if not 0 < size < 20:
        raise Unsuitable
    part = g.random.choice([d for d in range(1, size + 1) if size % d == 0])
    alone = part == 1 and g.flag()
    given = (
        [] if alone or (part == 1 and g.flag()) else [g.constant(np.asarray(part) if g.flag() else np.full(size // part, part))]
    )
    sequence = chain.add("SplitToSequence", x, *given, axis=axis, **({"keepdims": 0} if alone else {}))
    shape = (
        [n for a, n in enumerate(x.shape) if a != axis] if alone else [part if a == axis else n for a, n in enumerate(x.shape)]
    )
    like = GraphValue("", np.zeros(shape, x.dtype), False)
    return sequence, [like] * (size // part)


def _changed(g: RandomGraph, chain: Chain, sequence: str, elements: Sequence[GraphValue]) -> tuple[str, int]:
    """A sequence after some changes, and how many elements it has."""
    count, like = len(elements), elements[0]
    for _ in range(g.random.choice([0, 1, 1, 2, 3])):
        if count > 1 and g.flag():
            sequence = chain.add("SequenceErase", sequence, *([_place(g, count)] if g.flag() else []))
            count -= 1
        else:
            other = g.like(like.dtype, lambda s: s == like.shape, like.shape)
            sequence = chain.add("SequenceInsert", sequence, other, *([_place(g, count)] if g.flag() else []))
            count += 1
    return sequence, count


def _sequence(g: RandomGraph, op: str) -> GraphValue:
    """A sequence that is made, changed, and ends as what an operator makes of it."""
    if g.opset < 11:
        raise Unsuitable
    chain = Chain(g)
    sequence, elements = parts_of(g, chain)
    sequence, count = _changed(g, chain, sequence, elements)
    if g.random.random() < 0.2:
        sequence = chain.add("Identity", sequence)
    match op:
        case "SequenceLength":
            chain.add(op, sequence)
        case "ConcatFromSequence":
            stacked = int(not elements[0].shape or g.flag())
            chain.add(op, sequence, axis=g.random.randrange(len(elements[0].shape) + stacked), new_axis=stacked)
        case _:
            chain.add("SequenceAt", sequence, _place(g, count))
    return chain.end()


def _optional(g: RandomGraph, op: str) -> GraphValue:
    if g.opset < 15:
        raise Unsuitable
    chain, x = Chain(g), g.any()
    chain.add(op, chain.add("Optional", x))
    # `onnx.reference` makes a list of an optional, and one axis more of that.
    return g.insert(chain.nodes, [x.array if op == "OptionalGetElement" else np.asarray(True)])


SEQUENCES: dict[str, Recipe] = {
    **dict.fromkeys(["SequenceAt", "SequenceLength", "ConcatFromSequence"], _sequence),
    **dict.fromkeys(["OptionalGetElement", "OptionalHasElement"], _optional),
}

"""How sequences are drawn that go through bodies: a loop that collects in one, and a body for each element."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.fuzz.draws import ANY, Unsuitable
from tests.fuzz.graph_control import again
from tests.fuzz.graph_recipes import Recipe
from tests.fuzz.graph_sequences import Chain, parts_of
from tests.fuzz.random_body import RandomBody
from tests.fuzz.random_graph import OF_ONNX, GraphValue, RandomGraph, all_nodes
from tests.ops.sample import is_float

# `onnx.reference` computes the whole, which rounds floats of 16 bits in each step of a formula.
_WIDE = [d for d in ANY if not (is_float(d) and d.itemsize == 2)]


def _body(g: RandomGraph, *arguments: np.ndarray) -> RandomBody:
    if g.opset < 13 or not g.depth:
        raise Unsuitable
    body = RandomBody(g, arguments)
    body.values = [v for v in body.values if v.dtype in _WIDE]
    body.around = len(body.values)
    body.recipes = again(g)
    body.grow(body.step, g.random.choice([0, 1, 2, 3]))
    if any(v.dtype not in _WIDE for v in body.made):
        raise Unsuitable
    return body


def _reads_around(g: RandomGraph, chain: Chain, body: RandomBody) -> None:
    names = {name for node in all_nodes(body.nodes) for name in node.input}
    chain.read |= {v.name: v for v in g.values if v.name in names}


def _collecting(g: RandomGraph, op: str) -> GraphValue:
    """A loop of a known number of steps, each of which puts something into a sequence."""
    x, count = g.any(_WIDE), g.random.choice([1, 2, 3])
    body = _body(g, np.asarray(0, np.int64), np.asarray(True))
    row = body.fitted(x.dtype, x.shape)
    going = body.result(body.arguments[1])
    before, behind = f"{body.prefix}before", f"{body.prefix}behind"
    body.nodes.append(helper.make_node("SequenceInsert", [before, row.name], [behind]))
    graph = body.graph([going])
    graph.input.append(helper.make_tensor_sequence_value_info(before, OF_ONNX[x.dtype], None))
    graph.output.append(helper.make_empty_tensor_value_info(behind))
    chain = Chain(g)
    # One that is not empty stays as it is in a loop of `onnx.reference`.
    first = chain.add("SequenceEmpty", dtype=OF_ONNX[x.dtype])
    _reads_around(g, chain, body)
    sequence = chain.add(op, g.constant(np.asarray(count, np.int64)), "", first, body=graph)
    return _ended(g, chain, sequence, x, count)


def _mapped(g: RandomGraph, op: str) -> GraphValue:
    """A body for each element of a sequence, with a tensor that all of them share."""
    if g.opset < 17:
        raise Unsuitable
    chain = Chain(g)
    sequence, elements = parts_of(g, chain)
    shared = [g.any(_WIDE)] if g.flag() else []
    if elements[0].dtype not in _WIDE:
        raise Unsuitable
    body = _body(g, elements[0].array, *(s.array for s in shared))
    made = body.fitted(elements[0].dtype, elements[0].shape)
    _reads_around(g, chain, body)
    return _ended(g, chain, chain.add(op, sequence, *shared, body=body.graph([made])), made, len(elements))


def _ended(g: RandomGraph, chain: Chain, sequence: str, like: GraphValue, count: int) -> GraphValue:
    """An element of a sequence, or all of them."""
    if g.flag():
        chain.add("ConcatFromSequence", sequence, axis=g.random.randint(0, len(like.shape)), new_axis=1)
    else:
        chain.add("SequenceAt", sequence, g.constant(np.asarray(g.random.randrange(-count, count))))
    return chain.end()


LISTS: list[tuple[str, Recipe]] = [("Loop", _collecting), ("SequenceMap", _mapped)]

"""Recipes for sequences in subgraphs: a loop that appends to a sequence, and SequenceMap."""

from __future__ import annotations

import numpy as np
from onnx import helper

from dlc.testing.sample import is_float
from tests.fuzz.graph_control import repeatable_recipes
from tests.fuzz.graph_sequences import Chain, make_sequence
from tests.fuzz.random_body import RandomBody
from tests.fuzz.random_graph import ONNX_TYPE, GraphValue, RandomGraph, Recipe, all_nodes
from tests.fuzz.random_values import ANY, Unsuitable

# Half precision is excluded: `onnx.reference` evaluates the whole subgraph, and rounds after every operation.
_WIDE_DTYPES = [d for d in ANY if not (is_float(d) and d.itemsize == 2)]


def _body(g: RandomGraph, *arguments: np.ndarray) -> RandomBody:
    if g.opset < 13 or not g.depth:
        raise Unsuitable
    body = RandomBody(g, arguments)
    body.values = [v for v in body.values if v.dtype in _WIDE_DTYPES]
    body.num_captured = len(body.values)
    body.recipes = repeatable_recipes(g)
    body.grow(body.step, g.random.choice([0, 1, 2, 3]))
    if any(v.dtype not in _WIDE_DTYPES for v in body.op_results):
        raise Unsuitable
    return body


def _add_captures(g: RandomGraph, chain: Chain, body: RandomBody) -> None:
    names = {name for node in all_nodes(body.nodes) for name in node.input}
    chain.operands |= {v.name: v for v in g.values if v.name in names}


def _sequence_loop(g: RandomGraph, op: str) -> GraphValue:
    """A loop with a constant trip count that appends an element in each iteration."""
    x, count = g.any(_WIDE_DTYPES), g.random.choice([1, 2, 3])
    body = _body(g, np.asarray(0, np.int64), np.asarray(True))
    row = body.fit(x.dtype, x.shape)
    going = body.result(body.arguments[1])
    sequence_in, sequence_out = f"{body.prefix}before", f"{body.prefix}behind"
    body.nodes.append(helper.make_node("SequenceInsert", [sequence_in, row.name], [sequence_out]))
    graph = body.graph([going])
    graph.input.append(helper.make_tensor_sequence_value_info(sequence_in, ONNX_TYPE[x.dtype], None))
    graph.output.append(helper.make_empty_tensor_value_info(sequence_out))
    chain = Chain(g)
    # `onnx.reference` does not update a sequence in a loop unless it is empty at first.
    first = chain.add("SequenceEmpty", dtype=ONNX_TYPE[x.dtype])
    _add_captures(g, chain, body)
    sequence = chain.add(op, g.constant(np.asarray(count, np.int64)), "", first, body=graph)
    return _finish(g, chain, sequence, x, count)


def _sequence_map(g: RandomGraph, op: str) -> GraphValue:
    """A SequenceMap, sometimes with an additional tensor that all iterations share."""
    if g.opset < 17:
        raise Unsuitable
    chain = Chain(g)
    sequence, elements = make_sequence(g, chain)
    shared = [g.any(_WIDE_DTYPES)] if g.flag() else []
    if elements[0].dtype not in _WIDE_DTYPES:
        raise Unsuitable
    body = _body(g, elements[0].array, *(s.array for s in shared))
    result = body.fit(elements[0].dtype, elements[0].shape)
    _add_captures(g, chain, body)
    return _finish(g, chain, chain.add(op, sequence, *shared, body=body.graph([result])), result, len(elements))


def _finish(g: RandomGraph, chain: Chain, sequence: str, like: GraphValue, count: int) -> GraphValue:
    """Read one element of a sequence, or concatenate all."""
    if g.flag():
        chain.add("ConcatFromSequence", sequence, axis=g.random.randint(0, len(like.shape)), new_axis=1)
    else:
        chain.add("SequenceAt", sequence, g.constant(np.asarray(g.random.randrange(-count, count))))
    return chain.end()


LISTS: list[tuple[str, Recipe]] = [("Loop", _sequence_loop), ("SequenceMap", _sequence_map)]

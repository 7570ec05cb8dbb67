"""Recipes for `If`, `Loop`, `Scan` and model functions.

A branch runs once and a function is called once, with the values for which it was drawn: any operator may occur in them. A body
that runs repeatedly, with other values, has only operators that are defined for all values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, helper

from dlc.dialects.dl.base import Array
from dlc.testing.sample import BOOL
from tests.fuzz.graph_recipes import RECIPES
from tests.fuzz.graph_reference import NodeEvaluator
from tests.fuzz.random_body import FUNCTION_OP, RandomBody, RandomFunction
from tests.fuzz.random_graph import FUNCTION_DOMAIN, MAX_BODY_DEPTH, GraphValue, RandomGraph, Recipe
from tests.fuzz.random_values import SMALL_SIZES, Unsuitable

# Operators that are defined for all values, with the same result in every implementation.
TOTAL_OPS = (
    "Abs", "Neg", "Relu", "Identity", "Floor", "Ceil", "Sigmoid", "Tanh", "Add", "Sub", "Mul", "Less", "Greater", "And",
    "Xor", "Max", "Min", "Sum", "Where", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Slice", "Gather", "Expand", "Tile",
    "Flatten", "ReduceSum", "ReduceMax", "CumSum", "MatMul", "Shape", "Pad", "Split",
)  # fmt: skip


def _results(g: RandomGraph, node: NodeProto, operands: Sequence[GraphValue | None]) -> list[Array]:
    """Evaluate a node with subgraphs."""
    values = g.computed | {v.name: v.array for v in (*g.values, *operands) if v is not None}
    with np.errstate(all="ignore"):
        return NodeEvaluator(g.opset, g.functions).evaluate(node, values)


def repeatable_recipes(g: RandomGraph) -> Sequence[tuple[str, Recipe]]:
    return [*((op, RECIPES[op]) for op in TOTAL_OPS), *CONTROL.items(), *CONTROL.items()]


def _condition(g: RandomGraph) -> GraphValue:
    """Return a bool: constant, input or computed."""
    if g.random.random() < 0.3:
        return g.constant(np.asarray(g.flag()))
    return g.like(BOOL, lambda s: s in ((), (1,)), g.random.choice([(), (1,)]))


def _require_depth(g: RandomGraph) -> None:
    if not g.depth:
        raise Unsuitable


def _if(g: RandomGraph, op: str) -> GraphValue:
    _require_depth(g)
    condition, bodies = _condition(g), [RandomBody(g), RandomBody(g)]
    for body in bodies:
        body.grow(body.step, g.random.choice([0, 1, 1, 2, 3]))
    first = [bodies[0].pick() for _ in range(g.random.choice([1, 1, 2]))]
    # The results of branches may differ in size, but not within a loop, whose types are fixed.
    other_sizes = g.depth == MAX_BODY_DEPTH and g.random.random() < 0.2
    second = [bodies[1].fit(v.dtype, tuple(g.random.choice(SMALL_SIZES) if other_sizes else n for n in v.shape)) for v in first]
    branches = list(zip(bodies, (first, second), strict=True))
    g.random.shuffle(branches)
    graphs = {name: b.graph(r) for name, (b, r) in zip(("then_branch", "else_branch"), branches, strict=True)}
    node = helper.make_node(op, [condition.name], g.names(op, len(first)), **graphs)
    branch_results = branches[0 if condition.array.item() else 1][1]
    return g.insert([node], [v.array for v in branch_results], data_dependent=range(len(branch_results)) if other_sizes else ())


def _limit(g: RandomGraph) -> GraphValue:
    """Return a trip count: constant or input."""
    limit = np.full(g.random.choice([(), (1,)]), g.random.choice([0, 1, 2, 3, 4]), np.int64)
    return g.shape_operand(limit) if g.flag() else g.source(limit)


def _loop(g: RandomGraph, op: str) -> GraphValue:
    _require_depth(g)
    states = [g.any() for _ in range(g.random.choice([0, 1, 1, 2]))]
    limit, going = _limit(g) if g.random.random() < 0.8 else None, _condition(g) if g.random.random() < 0.4 else None
    body = RandomBody(g, [np.int64(0), np.asarray(True), *(s.array for s in states)])
    body.recipes = repeatable_recipes(g)
    step, condition, *states_before = body.arguments
    body.grow(body.step, g.random.choice([0, 1, 2, 3]))
    data_dependent = limit is None or not g.is_static(limit) or going is not None
    if limit is None or g.random.random() < 0.3:
        data_dependent = True
        # End the loop by a data-dependent condition, or by the iteration number.
        condition = body.add("Less", step, body.source(np.asarray(g.random.choice([0, 1, 2]), np.int64)))
        if g.flag():
            condition = body.add("And", condition, body.like(BOOL, lambda s: s == (), ()))
    following = [body.pick_like(s) if g.random.random() < 0.1 else body.fit(s.dtype, s.shape) for s in states_before]
    collected = [body.pick() for _ in range(g.random.choice([0, 0, 1, 2]) if states else 1)]
    if data_dependent and collected and g.prefix:
        # Each iteration of the surrounding loop would have other sizes, and the bounds support only one.
        raise Unsuitable
    graph = body.graph([body.result(condition), *following, *collected])
    operands = [limit, going, *states]
    names = ["" if v is None else v.name for v in operands]
    node = helper.make_node(op, names, g.names(op, len(following) + len(collected)), body=graph)
    collected_positions = range(len(following), len(following) + len(collected))
    return g.insert([node], _results(g, node, operands), data_dependent=collected_positions if data_dependent else ())


def _scan(g: RandomGraph, op: str) -> GraphValue:
    _require_depth(g)
    if g.opset < 9:
        raise Unsuitable
    x = g.any(suits=lambda s: len(s) > 0 and max(s) < 10)
    axis = g.random.randrange(len(x.shape))
    sequences, axes = [x], [axis]
    if g.flag():
        sequences.append(g.fresh(g.dtype(), (x.shape[axis], *g.shape(g.random.choice([0, 1]), 16))))
        axes.append(0)
    states = [g.any(suits=lambda s: math.prod(s) < 200) for _ in range(g.random.choice([0, 1, 1, 2]))]
    elements = [
        np.take(s.array, 0, a) if x.shape[axis] else np.zeros_like(s.array).sum(a) for s, a in zip(sequences, axes, strict=True)
    ]
    body = RandomBody(
        g, [*(s.array for s in states), *(np.asarray(e, s.dtype) for e, s in zip(elements, sequences, strict=True))]
    )
    body.recipes = repeatable_recipes(g)
    body.grow(body.step, g.random.choice([0, 1, 2, 3]))
    following = [body.fit(s.dtype, s.shape) for s in states]
    collected = [body.pick() for _ in range(g.random.choice([0, 1, 2]) if states else 1)]
    settings: Mapping[str, object] = {
        "scan_input_axes": [
            a - len(s.shape) if g.opset >= 11 and g.random.random() < 0.2 else a for a, s in zip(axes, sequences, strict=True)
        ],
        "scan_input_directions": [g.random.choice([0, 1]) for _ in sequences],
        "scan_output_axes": [g.random.randint(0, len(c.shape)) for c in collected],
        "scan_output_directions": [g.random.choice([0, 1]) for _ in collected],
    }
    present = {name: s for name, s in settings.items() if s and (name == "scan_input_axes" or g.flag())}
    operands = [*states, *sequences]
    names = g.names(op, len(following) + len(collected))
    graph = body.graph([*following, *collected])
    node = helper.make_node(op, [v.name for v in operands], names, body=graph, num_scan_inputs=len(sequences), **present)
    return g.insert([node], _results(g, node, operands))


def _function(g: RandomGraph, op: str) -> GraphValue:
    """Add a model function, with one or two calls of it."""
    _require_depth(g)
    body = RandomFunction(g, [g.any() for _ in range(g.random.choice([0, 1, 1, 2]))])
    repeated = g.flag()
    if repeated:
        body.recipes = repeatable_recipes(g)
    body.grow(body.step, g.random.choice([1, 2, 3, 4]))
    results = [body.pick() for _ in range(g.random.choice([1, 1, 2]))]
    function, settings = body.function(results)
    g.functions.append(function)

    def call(operands: Sequence[GraphValue]) -> NodeProto:
        node = helper.make_node(op, [v.name for v in operands], g.names(op, len(results)), domain=FUNCTION_DOMAIN)
        node.overload = function.overload
        node.attribute.extend(settings)
        return node

    result = g.insert([call(body.operands)], [r.array for r in results])
    if repeated and g.flag():
        other_sizes = [g.like(v.dtype, lambda s, v=v: s == v.shape, v.shape) for v in body.operands]
        node = call(other_sizes)
        return g.insert([node], _results(g, node, other_sizes))
    return result


CONTROL: dict[str, Recipe] = {"If": _if, "Loop": _loop, "Scan": _scan, FUNCTION_OP: _function}

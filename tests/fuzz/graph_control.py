"""How branches, loops and functions are drawn.

A branch runs once and a function is called once, with the values for which it was drawn: any operator is among their nodes.
What runs again, with values that nobody has looked at, has operators that are defined for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, helper

from dlc.dialects.dl.base import Array
from tests.fuzz.draws import SMALL, Unsuitable
from tests.fuzz.graph_meaning import Meaning
from tests.fuzz.graph_recipes import RECIPES, Recipe
from tests.fuzz.random_body import FUNCTION, RandomBody, RandomFunction
from tests.fuzz.random_graph import DEPTH, FUNCTIONS, GraphValue, RandomGraph
from tests.ops.sample import BOOL

# Operators that are defined, and the same everywhere, for any numbers.
AGAIN = (
    "Abs", "Neg", "Relu", "Identity", "Floor", "Ceil", "Sigmoid", "Tanh", "Add", "Sub", "Mul", "Less", "Greater", "And",
    "Xor", "Max", "Min", "Sum", "Where", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Slice", "Gather", "Expand", "Tile",
    "Flatten", "ReduceSum", "ReduceMax", "CumSum", "MatMul", "Shape", "Pad", "Split",
)  # fmt: skip


def _results(g: RandomGraph, node: NodeProto, operands: Sequence[GraphValue | None]) -> list[Array]:
    """What a node with bodies makes."""
    known = g.computed | {v.name: v.array for v in (*g.values, *operands) if v is not None}
    with np.errstate(all="ignore"):
        return Meaning(g.opset, g.functions).of(node, known)


def again(g: RandomGraph) -> Sequence[tuple[str, Recipe]]:
    return [*((op, RECIPES[op]) for op in AGAIN), *CONTROL.items(), *CONTROL.items()]


def _condition(g: RandomGraph) -> GraphValue:
    """A bool: known, given, or computed."""
    if g.random.random() < 0.3:
        return g.constant(np.asarray(g.flag()))
    return g.like(BOOL, lambda s: s in ((), (1,)), g.random.choice([(), (1,)]))


def _deep_enough(g: RandomGraph) -> None:
    if not g.depth:
        raise Unsuitable


def _if(g: RandomGraph, op: str) -> GraphValue:
    _deep_enough(g)
    condition, bodies = _condition(g), [RandomBody(g), RandomBody(g)]
    for body in bodies:
        body.grow(body.step, g.random.choice([0, 1, 1, 2, 3]))
    first = [bodies[0].picked() for _ in range(g.random.choice([1, 1, 2]))]
    # Branches may make different sizes, but in a loop that is of other types then.
    others = g.depth == DEPTH and g.random.random() < 0.2
    second = [bodies[1].fitted(v.dtype, tuple(g.random.choice(SMALL) if others else n for n in v.shape)) for v in first]
    branches = list(zip(bodies, (first, second), strict=True))
    g.random.shuffle(branches)
    graphs = {name: b.graph(r) for name, (b, r) in zip(("then_branch", "else_branch"), branches, strict=True)}
    node = helper.make_node(op, [condition.name], g.names(op, len(first)), **graphs)
    taken = branches[0 if condition.array.item() else 1][1]
    return g.insert([node], [v.array for v in taken], by_data=range(len(taken)) if others else ())


def _limit(g: RandomGraph) -> GraphValue:
    """A number of steps: known, or given."""
    limit = np.full(g.random.choice([(), (1,)]), g.random.choice([0, 1, 2, 3, 4]), np.int64)
    return g.setting(limit) if g.flag() else g.given(limit)


def _loop(g: RandomGraph, op: str) -> GraphValue:
    _deep_enough(g)
    states = [g.any() for _ in range(g.random.choice([0, 1, 1, 2]))]
    limit, going = _limit(g) if g.random.random() < 0.8 else None, _condition(g) if g.random.random() < 0.4 else None
    body = RandomBody(g, [np.int64(0), np.asarray(True), *(s.array for s in states)])
    body.recipes = again(g)
    step, condition, *before = body.arguments
    body.grow(body.step, g.random.choice([0, 1, 2, 3]))
    by_data = limit is None or not g.is_known(limit) or going is not None
    if limit is None or g.random.random() < 0.3:
        by_data = True
        # Data, or the number of the step, ends it.
        condition = body.add("Less", step, body.given(np.asarray(g.random.choice([0, 1, 2]), np.int64)))
        if g.flag():
            condition = body.add("And", condition, body.like(BOOL, lambda s: s == (), ()))
    following = [body.picked_like(s) if g.random.random() < 0.1 else body.fitted(s.dtype, s.shape) for s in before]
    collected = [body.picked() for _ in range(g.random.choice([0, 0, 1, 2]) if states else 1)]
    if by_data and collected and g.prefix:
        # Each step of what is around it decides other sizes, of which the bounds know one.
        raise Unsuitable
    graph = body.graph([body.result(condition), *following, *collected])
    operands = [limit, going, *states]
    names = ["" if v is None else v.name for v in operands]
    node = helper.make_node(op, names, g.names(op, len(following) + len(collected)), body=graph)
    places = range(len(following), len(following) + len(collected))
    return g.insert([node], _results(g, node, operands), by_data=places if by_data else ())


def _scan(g: RandomGraph, op: str) -> GraphValue:
    _deep_enough(g)
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
    body.recipes = again(g)
    body.grow(body.step, g.random.choice([0, 1, 2, 3]))
    following = [body.fitted(s.dtype, s.shape) for s in states]
    collected = [body.picked() for _ in range(g.random.choice([0, 1, 2]) if states else 1)]
    settings: Mapping[str, object] = {
        "scan_input_axes": [
            a - len(s.shape) if g.opset >= 11 and g.random.random() < 0.2 else a for a, s in zip(axes, sequences, strict=True)
        ],
        "scan_input_directions": [g.random.choice([0, 1]) for _ in sequences],
        "scan_output_axes": [g.random.randint(0, len(c.shape)) for c in collected],
        "scan_output_directions": [g.random.choice([0, 1]) for _ in collected],
    }
    given = {name: s for name, s in settings.items() if s and (name == "scan_input_axes" or g.flag())}
    operands = [*states, *sequences]
    names = g.names(op, len(following) + len(collected))
    graph = body.graph([*following, *collected])
    node = helper.make_node(op, [v.name for v in operands], names, body=graph, num_scan_inputs=len(sequences), **given)
    return g.insert([node], _results(g, node, operands))


def _function(g: RandomGraph, op: str) -> GraphValue:
    """A function that the model brings along, and a call of it, or two."""
    _deep_enough(g)
    body = RandomFunction(g, [g.any() for _ in range(g.random.choice([0, 1, 1, 2]))])
    repeated = g.flag()
    if repeated:
        body.recipes = again(g)
    body.grow(body.step, g.random.choice([1, 2, 3, 4]))
    results = [body.picked() for _ in range(g.random.choice([1, 1, 2]))]
    function, settings = body.function(results)
    g.functions.append(function)

    def call(operands: Sequence[GraphValue]) -> NodeProto:
        node = helper.make_node(op, [v.name for v in operands], g.names(op, len(results)), domain=FUNCTIONS)
        node.overload = function.overload
        node.attribute.extend(settings)
        return node

    made = g.insert([call(body.operands)], [r.array for r in results])
    if repeated and g.flag():
        others = [g.like(v.dtype, lambda s, v=v: s == v.shape, v.shape) for v in body.operands]
        node = call(others)
        return g.insert([node], _results(g, node, others))
    return made


CONTROL: dict[str, Recipe] = {"If": _if, "Loop": _loop, "Scan": _scan, FUNCTION: _function}

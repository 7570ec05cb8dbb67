"""Evaluate nodes with subgraphs by the definitions of `If`, `Loop`, `Scan` and functions, other nodes by `onnx.reference`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, helper, numpy_helper

from dlc.dialects.dl.base import Array
from tests.fuzz.random_graph import FUNCTION_DOMAIN, evaluate_nodes
from tests.fuzz.random_values import Unsuitable

# Longer loops are not drawn.
MAX_LOOP_STEPS = 8


class NodeEvaluator:
    """Evaluator of nodes of a model with functions; raises Unsuitable where a result is not defined."""

    def __init__(self, opset: int, functions: Sequence[FunctionProto]) -> None:
        self.opset = opset
        self.functions = {f.overload: f for f in functions}

    def evaluate(self, node: NodeProto, values: Mapping[str, Array]) -> list[Array]:
        """Return the results of a node, given the values in scope."""
        settings = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.domain == FUNCTION_DOMAIN:
            return self._call(node, values)
        match node.op_type:
            case "If":
                branch = "then_branch" if values[node.input[0]].item() else "else_branch"
                return self._run(settings[branch], [], values)
            case "Loop":
                return self._loop(settings["body"], [values.get(name) for name in node.input], values)
            case "Scan":
                return self._scan(settings, [values[name] for name in node.input], values)
        arrays = evaluate_nodes([node], {n: values[n] for n in node.input if n}, node.output, self.opset)
        if arrays is None:
            raise Unsuitable
        return arrays

    def _run(self, graph: GraphProto, arguments: Sequence[Array], values: Mapping[str, Array]) -> list[Array]:
        weights = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
        names = [i.name for i in graph.input]
        scope = {**values, **weights, **dict(zip(names, arguments, strict=True))}
        return self._all(graph.node, [o.name for o in graph.output], scope)

    def _all(self, nodes: Sequence[NodeProto], results: Sequence[str], values: dict[str, Array]) -> list[Array]:
        for node in nodes:
            values.update(zip(node.output, self.evaluate(node, values), strict=False))
        return [values[name] for name in results]

    def _call(self, call: NodeProto, values: Mapping[str, Array]) -> list[Array]:
        function = self.functions[call.overload]
        attributes = {a.name: a for a in (*function.attribute_proto, *call.attribute)}
        nodes: list[NodeProto] = []
        for node in function.node:
            bound = NodeProto()
            bound.CopyFrom(node)
            for attribute in bound.attribute:
                if attribute.ref_attr_name:
                    name = attribute.name
                    attribute.CopyFrom(attributes[attribute.ref_attr_name])
                    attribute.name = name
            nodes.append(bound)
        arguments = {name: values[n] for name, n in zip_longest(function.input, call.input) if n}
        return self._all(nodes, function.output, arguments)

    def _loop(self, body: GraphProto, operands: Sequence[Array | None], values: Mapping[str, Array]) -> list[Array]:
        limit, going, *initial = operands
        states = [s for s in initial if s is not None]
        count, collected = 0, [list[Array]() for _ in body.output[1 + len(states) :]]

        def step(k: int, going: Array) -> tuple[Array, list[Array], list[Array]]:
            condition, *results = self._run(body, [np.asarray(k, np.int64), going, *states], values)
            return condition, results[: len(states)], results[len(states) :]

        going = np.asarray(True) if going is None else going
        while (limit is None or count < limit.item()) and going.item():
            if count == MAX_LOOP_STEPS:
                raise Unsuitable
            # The condition is a scalar in the body, even if it is passed as a one-element vector.
            going, states, rows = step(count, going.reshape(()))
            for sequence, row in zip(collected, rows, strict=True):
                sequence.append(row)
            count += 1
        rows = step(0, np.asarray(True))[2] if not count and collected else ()
        return [*states, *(_stack(c, r) for c, r in zip_longest(collected, rows))]

    def _scan(self, settings: Mapping[str, Any], operands: Sequence[Array], values: Mapping[str, Array]) -> list[Array]:
        body, count = settings["body"], settings["num_scan_inputs"]
        states, sequences = [*operands[: len(operands) - count]], operands[len(operands) - count :]
        first, num_collected = len(states), len(body.output) - len(states)
        sides = {side: (count if side == "input" else num_collected) for side in ("input", "output")}
        axes, backward = (
            {s: settings.get(f"scan_{s}_{suffix}", [0] * n) for s, n in sides.items()} for suffix in ("axes", "directions")
        )
        inputs = [
            np.flip(x, 0) if back else x
            for x, back in zip(
                (np.moveaxis(s, axis, 0) for s, axis in zip(sequences, axes["input"], strict=True)),
                backward["input"],
                strict=True,
            )
        ]
        collected = [list[Array]() for _ in range(num_collected)]
        for elements in zip(*inputs, strict=True):
            results = self._run(body, [*states, *elements], values)
            states = results[:first]
            for sequence, row in zip(collected, results[first:], strict=True):
                sequence.append(row)
        if not len(inputs[0]):
            # Without elements, run the body on zeros to find the shapes of the results.
            zeros = [np.zeros(x.shape[1:], x.dtype) for x in inputs]
            rows = self._run(body, [*states, *zeros], values)[first:]
        else:
            rows = [None] * num_collected
        stacked = [_stack(c, r) for c, r in zip(collected, rows, strict=True)]
        reordered = [np.flip(x, 0) if back else x for x, back in zip(stacked, backward["output"], strict=True)]
        return [*states, *(np.moveaxis(x, 0, axis) for x, axis in zip(reordered, axes["output"], strict=True))]


def _stack(rows: Sequence[Array], like: Array | None) -> Array:
    """Stack rows; without rows return an empty array of rows like `like`."""
    if not rows:
        assert like is not None
        return np.zeros((0, *like.shape), like.dtype)
    if len({row.shape for row in rows}) > 1:
        raise Unsuitable
    return np.stack(rows)

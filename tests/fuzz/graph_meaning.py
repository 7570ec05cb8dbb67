"""What nodes with bodies compute, by the definitions of `If`, `Loop`, `Scan` and of functions; `onnx.reference` computes the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, helper, numpy_helper

from dlc.dialects.dl.base import Array
from tests.fuzz.draws import Unsuitable
from tests.fuzz.random_graph import FUNCTIONS, evaluated

# Loops that go on for longer are not drawn.
MOST_STEPS = 8


class Meaning:
    """What nodes of a model with these functions compute; Unsuitable where that is not known."""

    def __init__(self, opset: int, functions: Sequence[FunctionProto]) -> None:
        self.opset = opset
        self.functions = {f.overload: f for f in functions}

    def of(self, node: NodeProto, known: Mapping[str, Array]) -> list[Array]:
        """The results of a node, where so much is known."""
        settings = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.domain == FUNCTIONS:
            return self._called(node, known)
        match node.op_type:
            case "If":
                taken = "then_branch" if known[node.input[0]].item() else "else_branch"
                return self._run(settings[taken], [], known)
            case "Loop":
                return self._loop(settings["body"], [known.get(name) for name in node.input], known)
            case "Scan":
                return self._scan(settings, [known[name] for name in node.input], known)
        arrays = evaluated([node], {n: known[n] for n in node.input if n}, node.output, self.opset)
        if arrays is None:
            raise Unsuitable
        return arrays

    def _run(self, graph: GraphProto, arguments: Sequence[Array], known: Mapping[str, Array]) -> list[Array]:
        weights = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
        names = [i.name for i in graph.input]
        here = {**known, **weights, **dict(zip(names, arguments, strict=True))}
        return self._all(graph.node, [o.name for o in graph.output], here)

    def _all(self, nodes: Sequence[NodeProto], results: Sequence[str], known: dict[str, Array]) -> list[Array]:
        for node in nodes:
            known.update(zip(node.output, self.of(node, known), strict=False))
        return [known[name] for name in results]

    def _called(self, call: NodeProto, known: Mapping[str, Array]) -> list[Array]:
        function = self.functions[call.overload]
        given = {a.name: a for a in (*function.attribute_proto, *call.attribute)}
        nodes: list[NodeProto] = []
        for node in function.node:
            bound = NodeProto()
            bound.CopyFrom(node)
            for attribute in bound.attribute:
                if attribute.ref_attr_name:
                    name = attribute.name
                    attribute.CopyFrom(given[attribute.ref_attr_name])
                    attribute.name = name
            nodes.append(bound)
        arguments = {name: known[n] for name, n in zip_longest(function.input, call.input) if n}
        return self._all(nodes, function.output, arguments)

    def _loop(self, body: GraphProto, operands: Sequence[Array | None], known: Mapping[str, Array]) -> list[Array]:
        limit, going, *given = operands
        states = [s for s in given if s is not None]
        count, collected = 0, [list[Array]() for _ in body.output[1 + len(states) :]]

        def step(k: int, going: Array) -> tuple[Array, list[Array], list[Array]]:
            condition, *made = self._run(body, [np.asarray(k, np.int64), going, *states], known)
            return condition, made[: len(states)], made[len(states) :]

        going = np.asarray(True) if going is None else going
        while (limit is None or count < limit.item()) and going.item():
            if count == MOST_STEPS:
                raise Unsuitable
            # It has no axes in the body, whatever it has outside.
            going, states, rows = step(count, going.reshape(()))
            for sequence, row in zip(collected, rows, strict=True):
                sequence.append(row)
            count += 1
        rows = step(0, np.asarray(True))[2] if not count and collected else ()
        return [*states, *(_stacked(c, r) for c, r in zip_longest(collected, rows))]

    def _scan(self, settings: Mapping[str, Any], operands: Sequence[Array], known: Mapping[str, Array]) -> list[Array]:
        body, count = settings["body"], settings["num_scan_inputs"]
        states, sequences = [*operands[: len(operands) - count]], operands[len(operands) - count :]
        first, made = len(states), len(body.output) - len(states)
        sides = {side: (count if side == "input" else made) for side in ("input", "output")}
        axes, backward = (
            {s: settings.get(f"scan_{s}_{what}", [0] * n) for s, n in sides.items()} for what in ("axes", "directions")
        )
        read = [
            np.flip(x, 0) if back else x
            for x, back in zip(
                (np.moveaxis(s, axis, 0) for s, axis in zip(sequences, axes["input"], strict=True)),
                backward["input"],
                strict=True,
            )
        ]
        collected = [list[Array]() for _ in range(made)]
        for elements in zip(*read, strict=True):
            results = self._run(body, [*states, *elements], known)
            states = results[:first]
            for sequence, row in zip(collected, results[first:], strict=True):
                sequence.append(row)
        if not len(read[0]):
            # What it would make of zeros: there is no element.
            zeros = [np.zeros(x.shape[1:], x.dtype) for x in read]
            rows = self._run(body, [*states, *zeros], known)[first:]
        else:
            rows = [None] * made
        stacked = [_stacked(c, r) for c, r in zip(collected, rows, strict=True)]
        turned = [np.flip(x, 0) if back else x for x, back in zip(stacked, backward["output"], strict=True)]
        return [*states, *(np.moveaxis(x, 0, axis) for x, axis in zip(turned, axes["output"], strict=True))]


def _stacked(rows: Sequence[Array], like: Array | None) -> Array:
    """A sequence of rows; of none, of such as `like`."""
    if not rows:
        assert like is not None
        return np.zeros((0, *like.shape), like.dtype)
    if len({row.shape for row in rows}) > 1:
        raise Unsuitable
    return np.stack(rows)

"""A random graph some of whose inputs come as a sequence, and some of whose results go as one: those of one dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from dlc.dialects.dl.base import Array
from tests.fuzz.random_graph import OF_ONNX, RandomGraph

_GIVEN, _MADE = "given", "made"


class InSequences:
    """A graph with sequences at its borders: its `model`, the `inputs` of a call, and the tensors `of` what it gives back."""

    def __init__(self, graph: RandomGraph) -> None:
        allowed = graph.types_of("SequenceConstruct")
        self.graph = graph
        self.given = _of_one_dtype({n: x.dtype for n, x in graph.inputs.items() if x.dtype in allowed})
        self.made = _of_one_dtype({v.name: v.dtype for v in graph.results if v.dtype in allowed})

    @property
    def model(self) -> ModelProto:
        model = self.graph.model
        graph = model.graph
        if self.given:
            kept = [i for i in graph.input if i.name not in self.given]
            element = OF_ONNX[self.graph.inputs[self.given[0]].dtype]
            del graph.input[:]
            graph.input.extend([*kept, helper.make_tensor_sequence_value_info(_GIVEN, element, None)])
            for k, name in enumerate(self.given):
                graph.initializer.append(numpy_helper.from_array(np.asarray(k), f"{_GIVEN}{k}"))
                graph.node.insert(k, helper.make_node("SequenceAt", [_GIVEN, f"{_GIVEN}{k}"], [name]))
        if self.made:
            kept = [o for o in graph.output if o.name not in self.made]
            del graph.output[:]
            graph.output.extend([*kept, helper.make_empty_tensor_value_info(_MADE)])
            graph.node.append(helper.make_node("SequenceConstruct", self.made, [_MADE]))
        return model

    @property
    def inputs(self) -> dict[str, Any]:
        kept = {n: x for n, x in self.graph.inputs.items() if n not in self.given}
        return kept | ({_GIVEN: [self.graph.inputs[n] for n in self.given]} if self.given else {})

    def of(self, results: Mapping[str, Any]) -> dict[str, Array]:
        return {**results, **dict(zip(self.made, results.get(_MADE, ()), strict=True))}


def _of_one_dtype(dtypes: Mapping[str, np.dtype]) -> list[str]:
    """The names of those that have the dtype of the first."""
    first = next(iter(dtypes.values()), None)
    return [name for name, dtype in dtypes.items() if dtype == first]

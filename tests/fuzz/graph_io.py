"""Random graphs that take some inputs as a sequence and return some results as a sequence, each of one dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from dlc.dialects.dl.base import Array
from tests.fuzz.random_graph import ONNX_TYPE, RandomGraph

_SEQUENCE_INPUT, _SEQUENCE_OUTPUT = "sequence_in", "sequence_out"


class SequenceIO:
    """A graph with sequence inputs and outputs: its `model` and the `inputs` of a call."""

    def __init__(self, graph: RandomGraph) -> None:
        allowed = graph.types_of("SequenceConstruct")
        self.graph = graph
        self.input_names = _names_of_first_dtype({n: x.dtype for n, x in graph.inputs.items() if x.dtype in allowed})
        self.output_names = _names_of_first_dtype({v.name: v.dtype for v in graph.results if v.dtype in allowed})

    @property
    def model(self) -> ModelProto:
        model = self.graph.model
        graph = model.graph
        if self.input_names:
            remaining = [i for i in graph.input if i.name not in self.input_names]
            element = ONNX_TYPE[self.graph.inputs[self.input_names[0]].dtype]
            del graph.input[:]
            graph.input.extend([*remaining, helper.make_tensor_sequence_value_info(_SEQUENCE_INPUT, element, None)])
            for k, name in enumerate(self.input_names):
                graph.initializer.append(numpy_helper.from_array(np.asarray(k), f"{_SEQUENCE_INPUT}{k}"))
                graph.node.insert(k, helper.make_node("SequenceAt", [_SEQUENCE_INPUT, f"{_SEQUENCE_INPUT}{k}"], [name]))
        if self.output_names:
            remaining = [o for o in graph.output if o.name not in self.output_names]
            del graph.output[:]
            graph.output.extend([*remaining, helper.make_empty_tensor_value_info(_SEQUENCE_OUTPUT)])
            graph.node.append(helper.make_node("SequenceConstruct", self.output_names, [_SEQUENCE_OUTPUT]))
        return model

    @property
    def inputs(self) -> dict[str, Any]:
        remaining = {n: x for n, x in self.graph.inputs.items() if n not in self.input_names}
        return remaining | ({_SEQUENCE_INPUT: [self.graph.inputs[n] for n in self.input_names]} if self.input_names else {})

    def unpack_results(self, results: Mapping[str, Any]) -> dict[str, Array]:
        return {**results, **dict(zip(self.output_names, results.get(_SEQUENCE_OUTPUT, ()), strict=True))}


def _names_of_first_dtype(dtypes: Mapping[str, np.dtype]) -> list[str]:
    """Return the names that have the dtype of the first one."""
    first = next(iter(dtypes.values()), None)
    return [name for name, dtype in dtypes.items() if dtype == first]

"""Small ONNX models for tests, and running an imported one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dlc.backends.reference import evaluate
from dlc.frontend.onnx import ImportedModel

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    *,
    weights: Mapping[str, Any] | None = None,
    dtypes: Mapping[str, int] | None = None,
    opset: int = 20,
) -> ModelProto:
    """Build a model of these nodes; tensors are FLOAT unless `dtypes` specifies another type."""

    def info(name: str, shape: Sequence[int | str | None] | None) -> Any:
        return helper.make_tensor_value_info(name, (dtypes or {}).get(name, FLOAT), shape)

    graph = helper.make_graph(
        list(nodes),
        "test",
        [info(name, shape) for name, shape in inputs.items()],
        [info(name, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(w), name) for name, w in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(imported: ImportedModel, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Run an imported model in the reference evaluator and check the declared types of its outputs."""
    imported.module.verify()
    results = evaluate(imported.module, [feeds[i.name] for i in imported.inputs], imported.weights)
    assert [r.dtype for r in results] == [o.dtype for o in imported.outputs]
    return {o.name: r for o, r in zip(imported.outputs, results, strict=True)}


def op_names(imported: ImportedModel) -> list[str]:
    """Return the names of the ops of @main in order."""
    (main,) = imported.module.ops
    return [op.name for op in main.regions[0].block.ops]

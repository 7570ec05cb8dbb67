"""Find the node of an ONNX model that was imported incorrectly, by comparing each tensor with ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from dlc.dialects.dl.base import Array
from dlc.errors import DlcError
from dlc.frontend.onnx import import_model
from dlc.instrument.capture import Evaluator
from dlc.instrument.compare import deviation, tolerance_of


@dataclass(frozen=True)
class WrongNode:
    """The first node with a tensor that differs from ONNX's."""

    node: str
    op_type: str
    tensor: str
    deviation: float


def first_wrong_node(
    path: Path, feeds: Mapping[str, Array], tolerance: float | None = None, values: Mapping[str, Array] | None = None
) -> WrongNode | None:
    """Find the first node for which dlc and ONNX differ, or None. `values` are inputs that become constants.

    Raises DlcError if ONNX's evaluator cannot run the model.
    """
    model = onnx.load(path)
    try:
        reference_values = cast(
            "dict[str, Any]", ReferenceEvaluator(model).run(None, {**feeds, **(values or {})}, intermediate=True)
        )
    except Exception as error:
        raise DlcError(f"ONNX's reference evaluator cannot run {path}: {error}") from error
    producers = {
        name: node for node in model.graph.node for name in node.output if isinstance(reference_values.get(name), np.ndarray)
    }
    shapes = {name: array.shape for name, array in feeds.items()}
    imported = import_model(path, shapes, input_values=values, extra_outputs=list(producers))
    trace = Evaluator([feeds[info.name] for info in imported.inputs]).trace(imported.module, imported.weights)
    allowed = tolerance if tolerance is not None else tolerance_of(trace.arrays)
    for (name, node), array in zip(producers.items(), trace.results[-len(producers) :], strict=True):
        difference = deviation(array, reference_values[name])
        if difference > allowed:
            return WrongNode(node.name or name, node.op_type, name, difference)
    return None

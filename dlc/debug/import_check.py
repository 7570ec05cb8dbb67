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
    """A node of an ONNX model whose `tensor` differs from the result of ONNX's evaluator."""

    node: str
    op_type: str
    tensor: str
    deviation: float


def first_wrong_node(
    path: Path, feeds: Mapping[str, Array], tolerance: float | None = None, constants: Mapping[str, Array] | None = None
) -> WrongNode | None:
    """Return the first node for which dlc and ONNX's evaluator differ, or None.

    `constants` are inputs that the importer makes constants.

    Raises DlcError if ONNX's evaluator cannot run the model.
    """
    model = onnx.load(path)
    try:
        reference_values = cast(
            "dict[str, Any]", ReferenceEvaluator(model).run(None, {**feeds, **(constants or {})}, intermediate=True)
        )
    except Exception as error:
        raise DlcError(f"ONNX's reference evaluator cannot run {path}: {error}") from error
    producers = {
        name: node for node in model.graph.node for name in node.output if isinstance(reference_values.get(name), np.ndarray)
    }
    shapes = {name: array.shape for name, array in feeds.items()}
    imported = import_model(path, shapes, input_values=constants, extra_outputs=list(producers))
    trace = Evaluator([feeds[info.name] for info in imported.inputs]).trace(imported.module, imported.weights)
    max_deviation = tolerance if tolerance is not None else tolerance_of(trace.arrays)
    for (name, node), array in zip(producers.items(), trace.results[-len(producers) :], strict=True):
        node_deviation = deviation(array, reference_values[name])
        if node_deviation > max_deviation:
            return WrongNode(node.name or name, node.op_type, name, node_deviation)
    return None

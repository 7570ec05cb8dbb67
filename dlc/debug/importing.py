"""Which node of an ONNX model was imported as something else: each tensor beside what onnx's own evaluator computes."""

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
    """The first node with a tensor that is not what onnx computes."""

    node: str
    op_type: str
    tensor: str
    deviation: float


def first_wrong_node(
    path: Path, feeds: Mapping[str, Array], tolerance: float | None = None, values: Mapping[str, Array] | None = None
) -> WrongNode | None:
    """The node of the model at which dlc and onnx begin to differ; None if they do not. `values` are inputs made constants.

    Raises DlcError when onnx's evaluator does not run the model.
    """
    model = onnx.load(path)
    try:
        known = cast("dict[str, Any]", ReferenceEvaluator(model).run(None, {**feeds, **(values or {})}, intermediate=True))
    except Exception as error:
        raise DlcError(f"onnx's own evaluator does not run {path}: {error}") from error
    makers = {name: node for node in model.graph.node for name in node.output if isinstance(known.get(name), np.ndarray)}
    shapes = {name: array.shape for name, array in feeds.items()}
    imported = import_model(path, shapes, input_values=values, extra_outputs=list(makers))
    trace = Evaluator([feeds[info.name] for info in imported.inputs]).trace(imported.module, imported.weights)
    allowed = tolerance if tolerance is not None else tolerance_of(trace.arrays)
    for (name, node), array in zip(makers.items(), trace.results[-len(makers) :], strict=True):
        off = deviation(array, known[name])
        if off > allowed:
            return WrongNode(node.name or name, node.op_type, name, off)
    return None

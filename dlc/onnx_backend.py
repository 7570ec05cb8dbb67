"""dlc as a backend of the onnx package: `prepare`, `run_model`, `run_node`, `supports_device`, `is_compatible`.

    rep = dlc.onnx_backend.prepare(onnx.load("m.onnx"), "CPU")      rep.run([x])     outputs by position or name
    onnx.backend.test.BackendTest(dlc.onnx_backend, __name__)       ONNX's own tests as test cases

A device is a target of `compile_model`; `CPU` stands for `cpu`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper
from onnx.backend.base import BackendRep, namedtupledict

from dlc.backends.registry import backend_of
from dlc.errors import DlcError, ModelError
from dlc.frontend.onnx import check_model
from dlc.frontend.onnx.functions import ONNX_DOMAINS
from dlc.frontend.onnx.registry import LAST_OPSET
from dlc.frontend.onnx.tensors import data_type_of
from dlc.models.api import compile_model
from dlc.runtime.models.model import Model

__all__ = ["Prepared", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class Prepared(BackendRep):
    """A compiled model; `model` is the result of `compile_model`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model on inputs in order, a single input, or inputs by name; return its outputs as a named tuple.

        Outputs are available as `outputs.y` and `outputs["y"]` too. Raises what the model raises.
        """
        is_single = isinstance(inputs, Mapping) or not isinstance(inputs, Sequence)
        arguments: Sequence[Any] = [cast(Any, inputs)] if is_single else cast("Sequence[Any]", inputs)
        results = self.model(*arguments, **kwargs)
        return namedtupledict("Outputs", list(results))(*map(_as_numpy, results.values()))


def prepare(model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
    """Compile a model for a device; `kwargs` are arguments of `compile_model`.

    Raises what `compile_model` raises.
    """
    return Prepared(compile_model(model, target=_target(device), **kwargs))


def run_model(model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
    """Compile a model, run it once and return its outputs."""
    return prepare(model, device, **kwargs).run(inputs)


def run_node(
    node: NodeProto,
    inputs: Any,
    device: str = "CPU",
    outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
    *,
    opset_version: int | None = None,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Run one node on inputs in order, a single input, or inputs by name; return its outputs.

    `opset_version` is that of the node's domain. `outputs_info` is ignored: output types are inferred.
    """
    names = list(dict.fromkeys(name for name in node.input if name))
    if isinstance(inputs, Mapping):
        inputs_by_name = {name: _as_input(value) for name, value in cast("Mapping[str, Any]", inputs).items()}
    else:
        arrays = list(cast("Sequence[Any]", inputs)) if isinstance(inputs, Sequence) else [inputs]
        if len(arrays) != len(names):
            raise ModelError(f"{node.op_type}: got {len(arrays)} inputs, expected {len(names)}: {', '.join(names)}")
        inputs_by_name = dict(zip(names, map(_as_input, arrays), strict=True))
    graph = helper.make_graph(
        [node],
        node.op_type,
        [helper.make_value_info(name, _type_of(value)) for name, value in inputs_by_name.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    newest = min(onnx.defs.onnx_opset_version(), LAST_OPSET)
    opsets = [helper.make_opsetid("", (opset_version if node.domain in ONNX_DOMAINS else None) or newest)]
    if node.domain not in ONNX_DOMAINS:
        opsets.append(helper.make_opsetid(node.domain, opset_version or _newest_opset(node)))
    return run_model(helper.make_model(graph, opset_imports=opsets), inputs_by_name, device, **kwargs)


def supports_device(device: str) -> bool:
    """Return whether the device exists on this machine."""
    try:
        backend_of(_target(device)).for_local_device()
    except DlcError:
        return False
    return True


def is_compatible(model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
    """Return whether a device exists and dlc supports all of a model, as far as can be determined before a call."""
    return supports_device(device) and all(problem.needs_specialization for problem in check_model(model))


def _target(device: str) -> str:
    return "cpu" if device == "CPU" else device


def _newest_opset(node: NodeProto) -> int:
    """Return the newest opset version of the operator's domain that onnx knows; 1 for an unknown domain."""
    return onnx.defs.get_schema(node.op_type, node.domain).since_version if onnx.defs.has(node.op_type, node.domain) else 1


def _as_input(value: Any) -> Any:
    """Convert an input of a node to an array, or to a list of arrays for a sequence."""
    elements = cast("list[Any]", value) if isinstance(value, list) else []
    return (
        list(map(_as_input, elements))
        if any(isinstance(element, np.ndarray) for element in elements)
        else np.asarray(cast(Any, value))
    )


def _type_of(value: Any) -> TypeProto:
    if isinstance(value, list):
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(_data_type_of(value[0]), None))
    return helper.make_tensor_type_proto(_data_type_of(value), value.shape)


def _data_type_of(array: Any) -> int:
    return TensorProto.STRING if array.dtype.kind in "OUT" else data_type_of(array.dtype)


def _as_numpy(result: Any) -> Any:
    """Convert an output to NumPy; lists are converted element by element, dicts and None are returned as they are."""
    if isinstance(result, list):
        return [_as_numpy(element) for element in cast("list[Any]", result)]
    return np.asarray(result) if hasattr(result, "__array__") else result

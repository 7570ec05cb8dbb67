"""dlc as a backend of the onnx package: `prepare`, `run_model`, `run_node`, `supports_device`, `is_compatible`.

    rep = dlc.onnx_backend.prepare(onnx.load("m.onnx"), "CPU")      rep.run([x])     the outputs, by place or by name
    onnx.backend.test.BackendTest(dlc.onnx_backend, __name__)       ONNX's own tests as test cases

A device is a target: `CPU` is `cpu`, any other one is called as `compile_model` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper
from onnx.backend.base import BackendRep, namedtupledict

from dlc.api import compile_model
from dlc.backends.registry import backend_of
from dlc.errors import DlcError, ModelError
from dlc.frontend.onnx import check_model
from dlc.frontend.onnx.functions import OWN_DOMAIN
from dlc.frontend.onnx.registry import LAST_OPSET
from dlc.frontend.onnx.tensors import data_type_of
from dlc.runtime.models.model import Model

__all__ = ["Prepared", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class Prepared(BackendRep):
    """A compiled model; `model` is it as `compile_model` gives it."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, which have names too (`outputs.y`, `outputs["y"]`), for inputs in order, one input, or inputs by name.

        Raises what the model raises.
        """
        one = isinstance(inputs, Mapping) or not isinstance(inputs, Sequence)
        given: Sequence[Any] = [cast(Any, inputs)] if one else cast("Sequence[Any]", inputs)
        results = self.model(*given, **kwargs)
        return namedtupledict("Outputs", list(results))(*map(_plain, results.values()))


def prepare(model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
    """The model compiled for a device; `kwargs` are arguments of `compile_model`.

    Raises what `compile_model` raises.
    """
    return Prepared(compile_model(model, target=_target(device), **kwargs))


def run_model(model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
    """The outputs of a model that is run once."""
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
    """The outputs of one node, of this opset of its domain, for inputs in order, one input, or inputs by name.

    What `outputs_info` would say is inferred.
    """
    names = list(dict.fromkeys(name for name in node.input if name))
    if isinstance(inputs, Mapping):
        given = {name: _given(value) for name, value in cast("Mapping[str, Any]", inputs).items()}
    else:
        arrays = list(cast("Sequence[Any]", inputs)) if isinstance(inputs, Sequence) else [inputs]
        if len(arrays) != len(names):
            raise ModelError(f"{node.op_type}: {len(arrays)} inputs given, it has {len(names)}: {', '.join(names)}")
        given = dict(zip(names, map(_given, arrays), strict=True))
    graph = helper.make_graph(
        [node],
        node.op_type,
        [helper.make_value_info(name, _type_of(value)) for name, value in given.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    newest = min(onnx.defs.onnx_opset_version(), LAST_OPSET)
    opsets = [helper.make_opsetid("", (opset_version if node.domain in OWN_DOMAIN else None) or newest)]
    if node.domain not in OWN_DOMAIN:
        opsets.append(helper.make_opsetid(node.domain, opset_version or _newest(node)))
    return run_model(helper.make_model(graph, opset_imports=opsets), given, device, **kwargs)


def supports_device(device: str) -> bool:
    """Whether this machine is, or has, what the device names."""
    try:
        backend_of(_target(device)).here()
    except DlcError:
        return False
    return True


def is_compatible(model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
    """Whether a device is here and dlc supports all of a model, as far as that can be said before it is called."""
    return supports_device(device) and all(problem.at_call for problem in check_model(model))


def _target(device: str) -> str:
    return "cpu" if device == "CPU" else device


def _newest(node: NodeProto) -> int:
    """The newest version of the operator's domain that onnx knows of it; 1 for a domain that it does not know."""
    return onnx.defs.get_schema(node.op_type, node.domain).since_version if onnx.defs.has(node.op_type, node.domain) else 1


def _given(value: Any) -> Any:
    """An input of a node: a sequence, which is a list of arrays, or an array."""
    parts = cast("list[Any]", value) if isinstance(value, list) else []
    return list(map(_given, parts)) if any(isinstance(part, np.ndarray) for part in parts) else np.asarray(cast(Any, value))


def _type_of(value: Any) -> TypeProto:
    if isinstance(value, list):
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(_data_type_of(value[0]), None))
    return helper.make_tensor_type_proto(_data_type_of(value), value.shape)


def _data_type_of(array: Any) -> int:
    return TensorProto.STRING if array.dtype.kind in "OUT" else data_type_of(array.dtype)


def _plain(result: Any) -> Any:
    """An output as NumPy has it; lists, dicts and None as they are."""
    if isinstance(result, list):
        return [_plain(part) for part in cast("list[Any]", result)]
    return np.asarray(result) if hasattr(result, "__array__") else result

"""What makes the results of a node: a converter of dlc's own, or a function, of the model or of ONNX, whose nodes do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import FunctionProto, ModelProto, NodeProto

from dlc.frontend.emit import Value
from dlc.frontend.onnx.functions import OWN_DOMAIN, has_body, key_of, local_functions, standard_function
from dlc.frontend.onnx.operators import OPERATORS, OTHER_OPERATORS
from dlc.frontend.onnx.registry import FIRST_OPSET, LAST_OPSET, Converter
from dlc.frontend.problems import NodeProblem


class Definitions:
    """What the operators of a model mean, by the functions that it brings along and the domains that it imports."""

    def __init__(self, model: ModelProto) -> None:
        self.functions = local_functions(model)
        self.imported = model.opset_import

    def of(self, node: NodeProto, opset: int, inputs: Sequence[Value | None] = ()) -> Converter | FunctionProto:
        """A converter, or the function that the node calls; `opset` is the version of ONNX's own domain.

        Raises NodeProblem where there is neither.
        """
        if node.domain not in OWN_DOMAIN:
            return self._of_other_domain(node, opset, inputs)
        entries = OPERATORS.get(node.op_type, [])
        known = min(max(opset, FIRST_OPSET), LAST_OPSET)
        if opset > LAST_OPSET and since(node, opset) != since(node, LAST_OPSET):
            raise NodeProblem("opset", f"its definition changed after opset {LAST_OPSET}, the model has {opset}")
        for entry in entries:
            if entry.since <= known <= entry.until:
                return entry.convert
        if has_body(node.op_type, known):
            function = _body(node, {"": known}, inputs)
            if function is not None:
                return function
        if not entries:
            raise NodeProblem("operator", "not supported")
        supported = ", ".join(f"{e.since} to {e.until}" for e in entries)
        raise NodeProblem("opset", f"supported in opset {supported}; the model has {opset}")

    def _of_other_domain(self, node: NodeProto, opset: int, inputs: Sequence[Value | None]) -> Converter | FunctionProto:
        """A converter, or the function that a node of another domain calls: the model's, or one that ONNX defines."""
        if (function := self.functions.get(key_of(node))) is not None:
            return function
        if (entries := OTHER_OPERATORS.get(node.domain, {}).get(node.op_type)) is not None:
            return entries[0].convert
        version = next((v.version for v in self.imported if v.domain == node.domain), 0)
        versions = {"": opset, node.domain: version}
        function = _body(node, versions, inputs) if has_body(node.op_type, version, node.domain) else None
        if function is None:
            known = " but for others of its operators" if node.domain in OTHER_OPERATORS else ""
            raise NodeProblem("operator", f"domain '{node.domain}' is not supported{known}")
        return function


def _body(node: NodeProto, versions: Mapping[str, int], inputs: Sequence[Value | None]) -> FunctionProto | None:
    """ONNX's definition of a node by others, an empty one where the types of its inputs, on which it hangs, are not known."""
    untyped = any(name and value is None for name, value in zip(node.input, inputs, strict=False))
    return FunctionProto() if untyped else standard_function(node, versions, inputs)


def since(node: NodeProto, opset: int) -> int:
    """The opset whose definition of the node's operator holds at `opset`; 0 where there is none."""
    try:
        return onnx.defs.get_schema(node.op_type, opset).since_version
    except onnx.defs.SchemaError:
        return 0

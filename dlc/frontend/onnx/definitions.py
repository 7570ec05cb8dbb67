"""Find the definition of a node: a converter of dlc, a function of the model, or a function body of the ONNX standard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import FunctionProto, ModelProto, NodeProto

from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.functions import ONNX_DOMAINS, function_key, has_body, local_functions, standard_function
from dlc.frontend.onnx.operators import OPERATORS, OTHER_OPERATORS
from dlc.frontend.onnx.registry import FIRST_OPSET, LAST_OPSET, Converter
from dlc.frontend.problems import NodeProblem


class OperatorDefinitions:
    """The definitions of the operators of a model, by its local functions and imported domains."""

    def __init__(self, model: ModelProto) -> None:
        self.functions = local_functions(model)
        self.imported = model.opset_import

    def of(self, node: NodeProto, opset: int, inputs: Sequence[ImportedValue | None] = ()) -> Converter | FunctionProto:
        """Return a converter, or the function that the node calls; `opset` is the version of the standard ONNX domain.

        Raises NodeProblem if there is neither.
        """
        if node.domain not in ONNX_DOMAINS:
            return self._other_domain_definition(node, opset, inputs)
        entries = OPERATORS.get(node.op_type, [])
        supported_opset = min(max(opset, FIRST_OPSET), LAST_OPSET)
        if opset > LAST_OPSET and schema_version(node, opset) != schema_version(node, LAST_OPSET):
            raise NodeProblem("opset", f"its definition changed after opset {LAST_OPSET}, the model has {opset}")
        for entry in entries:
            if entry.since <= supported_opset <= entry.until:
                return entry.convert
        if has_body(node.op_type, supported_opset):
            function = _function_body(node, {"": supported_opset}, inputs)
            if function is not None:
                return function
        if not entries:
            raise NodeProblem("operator", "not supported")
        supported = ", ".join(f"{e.since} to {e.until}" for e in entries)
        raise NodeProblem("opset", f"supported in opset {supported}; the model has {opset}")

    def _other_domain_definition(
        self, node: NodeProto, opset: int, inputs: Sequence[ImportedValue | None]
    ) -> Converter | FunctionProto:
        """Return the definition of a node whose domain is not the standard one."""
        if (function := self.functions.get(function_key(node))) is not None:
            return function
        if (entries := OTHER_OPERATORS.get((node.domain, node.op_type))) is not None:
            return entries[0].convert
        version = next((v.version for v in self.imported if v.domain == node.domain), 0)
        versions = {"": opset, node.domain: version}
        function = _function_body(node, versions, inputs) if has_body(node.op_type, version, node.domain) else None
        if function is None:
            exception = ", except for other operators" if any(domain == node.domain for domain, _ in OTHER_OPERATORS) else ""
            raise NodeProblem("operator", f"domain '{node.domain}' is not supported{exception}")
        return function


def _function_body(
    node: NodeProto, versions: Mapping[str, int], inputs: Sequence[ImportedValue | None]
) -> FunctionProto | None:
    """Return the ONNX function body of a node; an empty one if the input types that it depends on are unknown."""
    untyped = any(name and value is None for name, value in zip(node.input, inputs, strict=False))
    return FunctionProto() if untyped else standard_function(node, versions, inputs)


def schema_version(node: NodeProto, opset: int) -> int:
    """Return the opset that introduced the operator definition valid at `opset`; 0 if there is none."""
    try:
        return onnx.defs.get_schema(node.op_type, opset).since_version
    except onnx.defs.SchemaError:
        return 0

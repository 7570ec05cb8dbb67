"""Functions: function bodies of the ONNX standard, and the local functions of a model.

    HammingWindow(size)  ⟶  Range, Cast, Mul, Cos, Sub, … as in its definition

A converter of dlc takes precedence: a function body specifies an operator, it is not an efficient implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest
from typing import Any, TypeAlias

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.graph import all_nodes, describe, graphs_of, sorted_nodes, subgraphs
from dlc.frontend.onnx.tensors import data_type_of
from dlc.frontend.problems import NodeProblem

ONNX_DOMAINS = ("", "ai.onnx")
# Nested function calls can expand a small file exponentially; real models stay far below.
MAX_INLINED_NODES = 300_000


# The identity of a function: domain, name, overload.
FunctionKey: TypeAlias = tuple[str, str, str]


def function_key(call: NodeProto) -> FunctionKey:
    """Return the key of the function that a node would call."""
    return call.domain, call.op_type, call.overload


def local_functions(model: ModelProto) -> dict[FunctionKey, FunctionProto]:
    """Return the functions of a model file."""
    return {(f.domain, f.name, f.overload): f for f in model.functions}


def onnx_opset(versions: Sequence[onnx.OperatorSetIdProto]) -> int:
    """Return the imported version of the standard ONNX domain, clamped to 32 bits; 0 if it is not imported."""
    return next((min(max(v.version, 0), (1 << 31) - 1) for v in versions if v.domain in ONNX_DOMAINS), 0)


def _schema(op_type: str, opset: int, domain: str) -> Any:
    # The type stubs of onnx lack the function API.
    try:
        # The onnx package expects a 32-bit version.
        return onnx.defs.get_schema(op_type, min(max(opset, 0), (1 << 31) - 1), domain)
    except onnx.defs.SchemaError:
        return None


def has_body(op_type: str, opset: int, domain: str = "") -> bool:
    """Return whether ONNX defines an operator by a function body, for some input types at least."""
    schema = _schema(op_type, opset, domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def standard_function(
    node: NodeProto, versions: Mapping[str, int], inputs: Sequence[ImportedValue | None]
) -> FunctionProto | None:
    """Return the ONNX function body of an operator for inputs of these types; None if there is none.

    `versions` are those of the node's domain and of the standard ONNX domain, whose key is "".
    """
    domain = "" if node.domain in ONNX_DOMAINS else node.domain
    opset = versions[domain]
    schema = _schema(node.op_type, opset, domain)
    if schema is None:
        return None
    _check_node(node, versions)
    data, function = b"", FunctionProto()
    if schema.has_function:
        data = schema.get_function_with_opset_version(_newest_version(schema.function_opset_versions, opset))
    elif schema.has_context_dependent_function:
        types = [_type_proto(v) for v in inputs]
        version = _newest_version(schema.context_dependent_function_opset_versions, opset)
        try:
            data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
        except (ValueError, RuntimeError) as error:
            raise NodeProblem("input", f"ONNX has no function body for inputs of these types: {error}") from error
    if not data:
        return None
    function.ParseFromString(data)
    defaults = [schema.attributes[n].default_value for n in function.attribute if n in schema.attributes]
    function.attribute_proto.extend(d for d in defaults if d.name)
    return function


def _check_node(node: NodeProto, versions: Mapping[str, int]) -> None:
    # The builders of function bodies assume that nodes conform to their schema.
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = onnx.IR_VERSION, {**versions, **dict.fromkeys(ONNX_DOMAINS, versions[""])}
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"{describe(node)}: {str(error).splitlines()[0]}") from error


def _newest_version(versions: Sequence[int], opset: int) -> int:
    return max((v for v in versions if v <= opset), default=min(versions))


def _type_proto(value: ImportedValue | None) -> bytes:
    proto = TypeProto()
    if value is not None:
        proto.tensor_type.elem_type = data_type_of(numpy_dtype(value.element_type))
        for size in value.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
    return proto.SerializeToString()


def instantiate_body(function: FunctionProto, node: NodeProto) -> list[NodeProto]:
    """Return the nodes of a function, sorted, with the attributes and inputs of the call `node`."""
    if len(node.input) > len(function.input) or len(node.output) > len(function.output):
        raise ModelError(
            f"{describe(node)}: {len(node.input)} inputs and {len(node.output)} outputs for a function of "
            f"{len(function.input)} and {len(function.output)}"
        )
    actual = {a.name: a for a in (*function.attribute_proto, *node.attribute)}
    omitted = {name for name, actual_name in zip_longest(function.input, node.input) if not actual_name}
    # Outputs that the call omits need not be computed.
    used_outputs = [name for name, actual_name in zip(function.output, node.output, strict=False) if actual_name]
    graph = GraphProto(
        node=function.node,
        input=[ValueInfoProto(name=n) for n in function.input],
        output=[ValueInfoProto(name=n) for n in used_outputs],
    )
    return [_instantiate_node(n, actual, omitted) for n in sorted_nodes(graph)]


def require_bounded_inlining(graph: GraphProto, functions: Mapping[FunctionKey, FunctionProto]) -> None:
    """Raise ModelError, naming a function, if the calls in a graph expand to more than `MAX_INLINED_NODES` nodes."""
    called = {key: [function_key(n) for n in _nodes_of(function)] for key, function in functions.items()}
    try:
        order = list(TopologicalSorter(called).static_order())
    except CycleError:
        return  # recursion is reported at the call
    nodes: dict[FunctionKey, int] = {}
    for key in order:
        nodes[key] = sum(1 + nodes[callee] for callee in called.get(key, ()))
    for node in all_nodes(graph):
        count = nodes.get(function_key(node), 0)
        if count > MAX_INLINED_NODES:
            raise ModelError(
                f"{describe(node)}: the function {node.op_type} expands to {count} nodes, more than {MAX_INLINED_NODES}"
            )


def _nodes_of(function: FunctionProto) -> list[NodeProto]:
    return list(all_nodes(GraphProto(node=function.node)))


def _depends_on_call(node: NodeProto, omitted: Container[str]) -> bool:
    """Return whether a node or its subgraphs depend on the attributes or omitted inputs of the call."""
    return (
        any(attribute.ref_attr_name for attribute in node.attribute)
        or any(name in omitted for name in node.input)
        or any(_depends_on_call(inner, omitted) for graph in subgraphs(node) for inner in graph.node)
    )


def _instantiate_node(node: NodeProto, actual: Mapping[str, AttributeProto], omitted: Container[str]) -> NodeProto:
    """Return a node of a function for one call: with the actual attributes, without omitted inputs."""
    if not _depends_on_call(node, omitted):
        return node
    result, attributes = NodeProto(), list[AttributeProto]()
    result.CopyFrom(node)
    result.input[:] = ["" if name in omitted else name for name in node.input]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            attributes.append(_map_subgraph_nodes(attribute, lambda inner: _instantiate_node(inner, actual, omitted)))
        elif attribute.ref_attr_name in actual:
            instance = AttributeProto()
            instance.CopyFrom(actual[attribute.ref_attr_name])
            instance.name = attribute.name
            attributes.append(instance)
    del result.attribute[:]
    result.attribute.extend(attributes)
    return result


def _map_subgraph_nodes(attribute: AttributeProto, change: Callable[[NodeProto], NodeProto]) -> AttributeProto:
    """Return an attribute whose subgraphs, if any, have their nodes mapped by `change`."""
    result = AttributeProto()
    result.CopyFrom(attribute)
    for graph in graphs_of(result):
        nodes = [change(node) for node in graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
    return result

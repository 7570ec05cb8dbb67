"""Operators that are defined by other operators: ONNX's function bodies, and the functions that a model brings along.

    HammingWindow(size)  ⟶  Range, Cast, Mul, Cos, Sub, … as in its definition

A converter of dlc's own comes first where there is one: a body is what the specification says, not what runs best.
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
from dlc.frontend.emit import Value
from dlc.frontend.onnx.graph import all_nodes, graphs_of, place, sorted_nodes, subgraphs
from dlc.frontend.onnx.tensors import data_type_of
from dlc.frontend.problems import NodeProblem

OWN_DOMAIN = ("", "ai.onnx")
# Functions that call functions make a small file a large program; no model comes near.
MOST_NODES = 300_000


# What names a function: its domain, its name, and which of those of one name it is.
Key: TypeAlias = tuple[str, str, str]


def key_of(call: NodeProto) -> Key:
    """The function that a node would call."""
    return call.domain, call.op_type, call.overload


def local_functions(model: ModelProto) -> dict[Key, FunctionProto]:
    """The functions in a model file."""
    return {(f.domain, f.name, f.overload): f for f in model.functions}


def opset_of(versions: Sequence[onnx.OperatorSetIdProto]) -> int:
    """The version of ONNX's own domain, within the 32 bits that the onnx package takes; 0 where it is not imported."""
    return next((min(max(v.version, 0), (1 << 31) - 1) for v in versions if v.domain in OWN_DOMAIN), 0)


def _schema(op_type: str, opset: int, domain: str) -> Any:
    # The stubs of onnx lack what concerns functions.
    try:
        # It takes 32 bits.
        return onnx.defs.get_schema(op_type, min(max(opset, 0), (1 << 31) - 1), domain)
    except onnx.defs.SchemaError:
        return None


def has_body(op_type: str, opset: int, domain: str = "") -> bool:
    """Whether ONNX defines the operator of one of its domains by others, for some types of inputs at least."""
    schema = _schema(op_type, opset, domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def standard_function(node: NodeProto, versions: Mapping[str, int], inputs: Sequence[Value | None]) -> FunctionProto | None:
    """The body that ONNX gives an operator for inputs of these types; none where it has none.

    `versions` are those of the node's domain and of ONNX's own, which is called "".
    """
    domain = "" if node.domain in OWN_DOMAIN else node.domain
    opset = versions[domain]
    schema = _schema(node.op_type, opset, domain)
    if schema is None:
        return None
    _check_node(node, versions)
    data, function = b"", FunctionProto()
    if schema.has_function:
        data = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, opset))
    elif schema.has_context_dependent_function:
        types = [_type_proto(v) for v in inputs]
        version = _newest(schema.context_dependent_function_opset_versions, opset)
        try:
            data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
        except (ValueError, RuntimeError) as error:
            raise NodeProblem("input", f"there is no definition for inputs of these types: {error}") from error
    if not data:
        return None
    function.ParseFromString(data)
    defaults = [schema.attributes[n].default_value for n in function.attribute if n in schema.attributes]
    function.attribute_proto.extend(d for d in defaults if d.name)
    return function


def _check_node(node: NodeProto, versions: Mapping[str, int]) -> None:
    # What builds the bodies trusts nodes to have the inputs and attributes of their schema.
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = onnx.IR_VERSION, {**versions, **dict.fromkeys(OWN_DOMAIN, versions[""])}
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"{place(node)}: {str(error).splitlines()[0]}") from error


def _newest(versions: Sequence[int], opset: int) -> int:
    return max((v for v in versions if v <= opset), default=min(versions))


def _type_proto(value: Value | None) -> bytes:
    proto = TypeProto()
    if value is not None:
        proto.tensor_type.elem_type = data_type_of(numpy_dtype(value.element_type))
        for size in value.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
    return proto.SerializeToString()


def body_of(function: FunctionProto, node: NodeProto) -> list[NodeProto]:
    """The nodes of a function, sorted, as the call `node` means them."""
    if len(node.input) > len(function.input) or len(node.output) > len(function.output):
        raise ModelError(
            f"{place(node)}: {len(node.input)} inputs and {len(node.output)} outputs for a function of "
            f"{len(function.input)} and {len(function.output)}"
        )
    actual = {a.name: a for a in (*function.attribute_proto, *node.attribute)}
    left_out = {name for name, given in zip_longest(function.input, node.input) if not given}
    # A body need not make what nobody asks for.
    wanted = [name for name, given in zip(function.output, node.output, strict=False) if given]
    graph = GraphProto(
        node=function.node,
        input=[ValueInfoProto(name=n) for n in function.input],
        output=[ValueInfoProto(name=n) for n in wanted],
    )
    return [_called(n, actual, left_out) for n in sorted_nodes(graph)]


def require_few_nodes(graph: GraphProto, functions: Mapping[Key, FunctionProto]) -> None:
    """Raises ModelError, which names a function, if calls in a graph unfold to more than `MOST_NODES`."""
    called = {key: [key_of(n) for n in _nodes_of(function)] for key, function in functions.items()}
    try:
        order = list(TopologicalSorter(called).static_order())
    except CycleError:
        return  # who calls itself is found where it is called
    nodes: dict[Key, int] = {}
    for key in order:
        nodes[key] = sum(1 + nodes[callee] for callee in called.get(key, ()))
    for node in all_nodes(graph):
        count = nodes.get(key_of(node), 0)
        if count > MOST_NODES:
            raise ModelError(f"{place(node)}: the function {node.op_type} unfolds to {count} nodes, more than {MOST_NODES}")


def _nodes_of(function: FunctionProto) -> list[NodeProto]:
    return list(all_nodes(GraphProto(node=function.node)))


def _is_formal(node: NodeProto, left_out: Container[str]) -> bool:
    """Whether a node hangs on how its function is called, be it by what stands inside it."""
    return (
        any(attribute.ref_attr_name for attribute in node.attribute)
        or any(name in left_out for name in node.input)
        or any(_is_formal(inner, left_out) for graph in subgraphs(node) for inner in graph.node)
    )


def _called(node: NodeProto, actual: Mapping[str, AttributeProto], left_out: Container[str]) -> NodeProto:
    """A node of a function as one call means it: with the attributes that are given, without inputs that are left out."""
    if not _is_formal(node, left_out):
        return node
    result, attributes = NodeProto(), list[AttributeProto]()
    result.CopyFrom(node)
    result.input[:] = ["" if name in left_out else name for name in node.input]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            attributes.append(_with_nodes(attribute, lambda inner: _called(inner, actual, left_out)))
        elif attribute.ref_attr_name in actual:
            given = AttributeProto()
            given.CopyFrom(actual[attribute.ref_attr_name])
            given.name = attribute.name
            attributes.append(given)
    del result.attribute[:]
    result.attribute.extend(attributes)
    return result


def _with_nodes(attribute: AttributeProto, change: Callable[[NodeProto], NodeProto]) -> AttributeProto:
    """An attribute with other nodes in its graphs, where it has graphs."""
    result = AttributeProto()
    result.CopyFrom(attribute)
    for graph in graphs_of(result):
        nodes = [change(node) for node in graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
    return result

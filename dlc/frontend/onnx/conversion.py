"""Convert the nodes of a model: each by the converter that `operators/` registers for it, or by inlining its function body.

    node { name: "relu1" op_type: "Relu" input: "x" output: "y" }   ⟶   %y = dl.relu %x : … loc("relu1")

Names are resolved in a scope: the graph of the model, a subgraph, which also sees the names of the enclosing graphs, or the
body of a function, which has only its own names.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial

from onnx import FunctionProto, GraphProto, NodeProto, ValueInfoProto

from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue, location
from dlc.frontend.identifiers import short_name
from dlc.frontend.onnx.definitions import OperatorDefinitions
from dlc.frontend.onnx.diagnostics import Diagnostics
from dlc.frontend.onnx.functions import MAX_INLINED_NODES, ONNX_DOMAINS, FunctionKey, instantiate_body, onnx_opset
from dlc.frontend.onnx.graph import ModelFile, describe, label, sorted_nodes, subgraphs
from dlc.frontend.onnx.graph_outputs import string_outputs
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import Converter
from dlc.frontend.onnx.tensors import TensorReader
from dlc.frontend.onnx.values import NonTensorValue, StringTensor
from dlc.frontend.problems import AlreadyReported, NodeProblem, Problem, translate_errors
from dlc.frontend.size_limits import require_addressable
from dlc.ir import Block
from dlc.weights import WeightStore


@dataclass
class NameScope:
    """A scope for names: a graph or the body of a function."""

    values: MutableMapping[str, ImportedValue | None]
    declared: Mapping[str, ValueInfoProto]
    opset: int
    # The nodes of the enclosing graphs, the outermost first.
    graphs: tuple[Sequence[NodeProto], ...]
    # The nodes that contain or call this scope, outermost first, and the functions called.
    owners: tuple[NodeProto, ...] = ()
    functions: tuple[FunctionKey, ...] = ()


class GraphConversion:
    """Convert the nodes of a model in order into `block`; unsupported features are added to `diagnostics`."""

    def __init__(self, model: ModelFile, diagnostics: Diagnostics) -> None:
        graph = model.proto.graph
        self.diagnostics = diagnostics
        self.tensors = TensorReader(model.folder, model.content)
        self.definitions = OperatorDefinitions(model.proto)
        self.weights = WeightStore()
        self.block = Block()
        self.emit: Emitter = Emitter(self.block, self.weights)
        declared = {v.name: v for v in (*graph.value_info, *graph.output)}
        self.scope: NameScope = NameScope({"": None}, declared, onnx_opset(model.proto.opset_import), (graph.node,))
        # The number of nodes inlined from functions and subgraphs so far.
        self._inlined_nodes = 0

    def read_initializers(self, graph: GraphProto) -> None:
        for tensor in graph.initializer:
            try:
                array = self.tensors.read(tensor, f"initializer '{tensor.name}'")
            except NodeProblem as problem:
                self._report(f"initializer '{tensor.name}'", problem)
                self.scope.values[tensor.name] = None
            else:
                string_tensor = StringTensor.from_strings(self.emit, array, tensor.name) if array.dtype == object else None
                self.scope.values[tensor.name] = string_tensor or self.emit.constant(array, name=tensor.name)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            try:
                array = self.tensors.read_sparse(sparse, f"sparse initializer '{name}'")
            except NodeProblem as problem:
                self._report(f"sparse initializer '{name}'", problem)
                self.scope.values[name] = None
            else:
                self.scope.values[name] = self.emit.constant(array, name=name)

    def convert(self, node: NodeProto) -> None:
        inputs = [self.scope.values[name] for name in node.input]
        num_problems = len(self.diagnostics.problems)
        try:
            definition = self._converter(node, inputs)
            if any(name and value is None for name, value in zip(node.input, inputs, strict=True)):
                # The type of an input is unknown because of an earlier problem: do not report consequential errors.
                results: Sequence[ImportedValue | None] | None = None
                self._check_subgraphs(node)
            elif isinstance(definition, FunctionProto):
                results = self._inline_function(node, definition, inputs)
            else:
                results = self._convert_node(node, definition, inputs)
        except NodeProblem as problem:
            self._report(describe(node), problem)
            results = None
        except ModelError as error:
            if not self.emit.guards:
                raise
            self._report(describe(node), NodeProblem("shape", str(error).removeprefix(f"{describe(node)}: ")))
            results = None
        except AlreadyReported:
            results = None
        depends_on = [name for problem in self.diagnostics.problems[num_problems:] for name in problem.inputs]
        declared = self.scope.declared
        for k, name in enumerate(node.output):
            if not name:
                continue
            value = results[k] if results is not None else self.diagnostics.placeholder(name, declared.get(name), depends_on)
            if value is not None and not isinstance(value, NonTensorValue) and value.ssa and value.ssa.name_hint is None:
                value.ssa.name_hint = short_name(name)
            self.scope.values[name] = value

    def _converter(self, node: NodeProto, inputs: Sequence[ImportedValue | None] = ()) -> Converter | FunctionProto:
        """Return the converter of a node, or the function that it calls."""
        try:
            return self.definitions.of(node, self.scope.opset, inputs)
        except NodeProblem as problem:
            if problem.kind == "operator":
                self._check_subgraphs(node)
            raise

    def _inline_function(
        self, node: NodeProto, function: FunctionProto, inputs: Sequence[ImportedValue | None]
    ) -> Sequence[ImportedValue | None]:
        """Inline a function call and return its results."""
        outer: NameScope = self.scope
        key, body = (function.domain, function.name, function.overload), instantiate_body(function, node)
        if key in outer.functions:
            raise ModelError(f"{describe(node)}: the function {function.name} calls itself")
        values = dict.fromkeys(["", *function.input]) | dict(zip(function.input, inputs, strict=False))
        self.scope = NameScope(
            values,
            {v.name: v for v in function.value_info},
            onnx_opset(function.opset_import) or outer.opset,
            (body,),
            (*outer.owners, node),
            (*outer.functions, key),
        )
        self._convert_all(body, node)
        self.scope = outer
        return [values.get(name) for name in function.output]

    def _convert_all(self, body: Sequence[NodeProto], owner: NodeProto) -> None:
        """Convert the nodes of a function or subgraph."""
        self._inlined_nodes += len(body)
        if self._inlined_nodes > MAX_INLINED_NODES:
            raise ModelError(f"{describe(owner)}: its functions and subgraphs expand to more than {MAX_INLINED_NODES} nodes")
        for inner in body:
            self.convert(inner)

    def _subgraph(
        self, owner: NodeProto, graph: GraphProto, inputs: Sequence[ImportedValue], emit: Emitter
    ) -> list[ImportedValue]:
        """Inline a subgraph, which also sees the names of the enclosing graphs, and return its results."""
        outer: NameScope = self.scope
        emit_outside: Emitter = self.emit
        if len(graph.input) != len(inputs):
            raise ModelError(f"{describe(owner)}: its subgraph expects {len(graph.input)} inputs, got {len(inputs)}")
        values = ChainMap(dict[str, ImportedValue | None](), outer.values)
        declared = {v.name: v for v in (*graph.value_info, *graph.output)}
        nodes = sorted_nodes(graph, outer.values)
        graphs = (*outer.graphs, graph.node)
        self.scope = NameScope(values, declared, outer.opset, graphs, (*outer.owners, owner), outer.functions)
        self.emit = emit
        try:
            self.read_initializers(graph)
            values.update({info.name: value for info, value in zip(graph.input, inputs, strict=True)})
            self._convert_all(nodes, owner)
        finally:
            self.scope, self.emit = outer, emit_outside
        results = [values[o.name] for o in graph.output]
        if any(r is None for r in results):
            raise AlreadyReported
        return [r for r in results if r is not None]

    def _try_subgraph(
        self, owner: NodeProto, graph: GraphProto, inputs: Sequence[ImportedValue], emit: Emitter
    ) -> tuple[list[ImportedValue], list[Problem]]:
        """Inline a subgraph tentatively: return its results, or an empty list and the problems, which are not recorded."""
        results: list[ImportedValue] = []
        with self.diagnostics.collected() as problems:
            try:
                results = self._subgraph(owner, graph, inputs, emit)
            except AlreadyReported:
                # The unsupported value may be captured from an enclosing graph.
                if not problems:
                    raise
            except ModelError as error:
                self._report(describe(owner), NodeProblem("shape", str(error)))
        return ([] if problems else results), problems

    def _check_subgraphs(self, owner: NodeProto) -> None:
        """Record the unsupported operators inside an unsupported node."""
        for node in (node for graph in subgraphs(owner) for node in graph.node):
            try:
                self._converter(node)
            except NodeProblem as problem:
                self._report(describe(node), problem)

    def _convert_node(
        self, proto: NodeProto, converter: Converter, inputs: Sequence[ImportedValue | None]
    ) -> Sequence[ImportedValue]:
        import_subgraph, try_import_subgraph = partial(self._subgraph, proto), partial(self._try_subgraph, proto)
        report, graphs = self.diagnostics.problems.extend, self.scope.graphs
        node = OnnxNode(
            proto, self.scope.opset, inputs, self.emit, self.tensors, import_subgraph, try_import_subgraph, report, graphs
        )
        with (
            self.emit.build.at_location(location(label((*self.scope.owners, proto)[0]))),
            translate_errors(node.description, inputs),
        ):
            definition = converter(node)
        results = [definition] if isinstance(definition, ImportedValue) else list(definition)
        for k in string_outputs(proto, self.scope.opset, inputs) if proto.domain in ONNX_DOMAINS else ():
            if k < len(results) and not isinstance(results[k], NonTensorValue):
                results[k] = StringTensor.of(results[k])
        for result in results:
            if not isinstance(result, NonTensorValue):
                require_addressable(node.description, result.type)
        for problem in node.unread_problems():
            self._report(node.description, problem)
        for k, name in enumerate(proto.output):
            if name and k >= len(results):
                raise NodeProblem("output", f"output {k} ('{name}') is not supported")
        return results

    def _report(self, where: str, problem: NodeProblem) -> None:
        if problem.kind == "shape" and (guards := self.emit.guards):
            # The shapes may be valid for sizes that violate the guards.
            message = f"{problem.message}, where {' and '.join(map(str, guards[:3]))}; give the model's input shapes"
            problem = NodeProblem("value", message, problem.unknown)
        self.diagnostics.report(where, problem, self.scope.owners)

"""From nodes to values: each goes to the converter that `operators/` has for it, or to the nodes of its function body.

    node { name: "relu1" op_type: "Relu" input: "x" output: "y" }   ⟶   %y = dl.relu %x : … loc("relu1")

Names mean what their scope says: the graph of the model, a graph inside a node, which reads the names around it as well, or the
body of a function, whose names are its own.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial

from onnx import FunctionProto, GraphProto, NodeProto, ValueInfoProto

from dlc.errors import ModelError
from dlc.frontend.addressable import require_addressable
from dlc.frontend.emit import Emitter, Value, location
from dlc.frontend.identifiers import short_name
from dlc.frontend.onnx.borders import text_outputs
from dlc.frontend.onnx.definitions import Definitions
from dlc.frontend.onnx.findings import Findings
from dlc.frontend.onnx.functions import MOST_NODES, OWN_DOMAIN, Key, body_of, opset_of
from dlc.frontend.onnx.graph import ModelFile, label, place, sorted_nodes, subgraphs
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Converter
from dlc.frontend.onnx.tensors import TensorReader
from dlc.frontend.onnx.values import NoTensor, Text
from dlc.frontend.problems import AlreadyNoted, NodeProblem, Problem, as_problems
from dlc.ir import Block
from dlc.weights import WeightStore


@dataclass
class Scope:
    """Where names are looked up: the graph of the model, or the body of a function."""

    values: MutableMapping[str, Value | None]
    declared: Mapping[str, ValueInfoProto]
    opset: int
    # The nodes of the graphs around, the outermost first.
    graphs: tuple[Sequence[NodeProto], ...]
    # The nodes whose bodies this one is inside of, outermost first, and the functions that they call.
    owners: tuple[NodeProto, ...] = ()
    functions: tuple[Key, ...] = ()


class Conversion:
    """The nodes of a model, converted one after the other into `block`; what is not supported goes to `findings`."""

    def __init__(self, model: ModelFile, findings: Findings) -> None:
        graph = model.proto.graph
        self.findings = findings
        self.tensors = TensorReader(model.folder, model.content)
        self.definitions = Definitions(model.proto)
        self.weights = WeightStore()
        self.block = Block()
        self.emit: Emitter = Emitter(self.block, self.weights)
        declared = {v.name: v for v in (*graph.value_info, *graph.output)}
        self.scope: Scope = Scope({"": None}, declared, opset_of(model.proto.opset_import), (graph.node,))
        # Nodes of functions and of graphs inside nodes, so far.
        self._inlined_nodes = 0

    def read_initialisers(self, graph: GraphProto) -> None:
        for tensor in graph.initializer:
            try:
                array = self.tensors.read(tensor, f"initialiser '{tensor.name}'")
            except NodeProblem as problem:
                self._note(f"initialiser '{tensor.name}'", problem)
                self.scope.values[tensor.name] = None
            else:
                known = Text.known_as(self.emit, array, tensor.name) if array.dtype == object else None
                self.scope.values[tensor.name] = known or self.emit.constant(array, name=tensor.name)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            try:
                array = self.tensors.read_sparse(sparse, f"sparse initialiser '{name}'")
            except NodeProblem as problem:
                self._note(f"sparse initialiser '{name}'", problem)
                self.scope.values[name] = None
            else:
                self.scope.values[name] = self.emit.constant(array, name=name)

    def convert(self, node: NodeProto) -> None:
        inputs = [self.scope.values[name] for name in node.input]
        noted = len(self.findings.problems)
        try:
            made = self._converter(node, inputs)
            if any(name and value is None for name, value in zip(node.input, inputs, strict=True)):
                # A placeholder could not be typed: what follows from it says nothing about the model.
                results: Sequence[Value | None] | None = None
                self._check_subgraphs(node)
            elif isinstance(made, FunctionProto):
                results = self._inlined(node, made, inputs)
            else:
                results = self._converted(node, made, inputs)
        except NodeProblem as problem:
            self._note(place(node), problem)
            results = None
        except AlreadyNoted:
            results = None
        hangs_on = [name for problem in self.findings.problems[noted:] for name in problem.inputs]
        declared = self.scope.declared
        for k, name in enumerate(node.output):
            if not name:
                continue
            value = results[k] if results is not None else self.findings.placeholder(name, declared.get(name), hangs_on)
            if value is not None and not isinstance(value, NoTensor) and value.ssa and value.ssa.name_hint is None:
                value.ssa.name_hint = short_name(name)
            self.scope.values[name] = value

    def _converter(self, node: NodeProto, inputs: Sequence[Value | None] = ()) -> Converter | FunctionProto:
        """What makes the node's results: a converter, or the function that it calls."""
        try:
            return self.definitions.of(node, self.scope.opset, inputs)
        except NodeProblem as problem:
            if problem.kind == "operator":
                self._check_subgraphs(node)
            raise

    def _inlined(self, node: NodeProto, function: FunctionProto, inputs: Sequence[Value | None]) -> Sequence[Value | None]:
        """The results of a function's body, whose names are its own."""
        outer: Scope = self.scope
        called, body = (function.domain, function.name, function.overload), body_of(function, node)
        if called in outer.functions:
            raise ModelError(f"{place(node)}: the function {function.name} calls itself")
        values = dict.fromkeys(["", *function.input]) | dict(zip(function.input, inputs, strict=False))
        self.scope = Scope(
            values,
            {v.name: v for v in function.value_info},
            opset_of(function.opset_import) or outer.opset,
            (body,),
            (*outer.owners, node),
            (*outer.functions, called),
        )
        self._convert_all(body, node)
        self.scope = outer
        return [values.get(name) for name in function.output]

    def _convert_all(self, body: Sequence[NodeProto], owner: NodeProto) -> None:
        """Converts the nodes of a function or of a graph inside a node."""
        self._inlined_nodes += len(body)
        if self._inlined_nodes > MOST_NODES:
            raise ModelError(f"{place(owner)}: what it runs unfolds to more than {MOST_NODES} nodes")
        for inner in body:
            self.convert(inner)

    def _subgraph(self, owner: NodeProto, graph: GraphProto, inputs: Sequence[Value], emit: Emitter) -> list[Value]:
        """The results of a graph inside a node, which reads the names around it as well."""
        outer: Scope = self.scope
        emit_outside: Emitter = self.emit
        if len(graph.input) != len(inputs):
            raise ModelError(f"{place(owner)}: a graph in it has {len(graph.input)} inputs, it gives {len(inputs)}")
        values = ChainMap(dict[str, Value | None](), outer.values)
        declared = {v.name: v for v in (*graph.value_info, *graph.output)}
        nodes = sorted_nodes(graph, outer.values)
        graphs = (*outer.graphs, graph.node)
        self.scope = Scope(values, declared, outer.opset, graphs, (*outer.owners, owner), outer.functions)
        self.emit = emit
        try:
            self.read_initialisers(graph)
            values.update({info.name: value for info, value in zip(graph.input, inputs, strict=True)})
            self._convert_all(nodes, owner)
        finally:
            self.scope, self.emit = outer, emit_outside
        results = [values[o.name] for o in graph.output]
        if any(r is None for r in results):
            raise AlreadyNoted
        return [r for r in results if r is not None]

    def _attempt(
        self, owner: NodeProto, graph: GraphProto, inputs: Sequence[Value], emit: Emitter
    ) -> tuple[list[Value], list[Problem]]:
        """The results of a graph inside a node, or none and what of it is not supported, which is not noted."""
        results: list[Value] = []
        with self.findings.apart() as found:
            try:
                results = self._subgraph(owner, graph, inputs, emit)
            except AlreadyNoted:
                # What it reads from around it may be what is not supported.
                if not found:
                    raise
            except ModelError as error:
                self._note(place(owner), NodeProblem("shape", str(error)))
        return ([] if found else results), found

    def _check_subgraphs(self, owner: NodeProto) -> None:
        """Lists what stands inside a node that is a problem itself."""
        for node in (node for graph in subgraphs(owner) for node in graph.node):
            try:
                self._converter(node)
            except NodeProblem as problem:
                self._note(place(node), problem)

    def _converted(self, proto: NodeProto, converter: Converter, inputs: Sequence[Value | None]) -> Sequence[Value]:
        inline, attempt = partial(self._subgraph, proto), partial(self._attempt, proto)
        note, graphs = self.findings.problems.extend, self.scope.graphs
        node = Node(proto, self.scope.opset, inputs, self.emit, self.tensors, inline, attempt, note, graphs)
        with self.emit.build.at(location(label((*self.scope.owners, proto)[0]))), as_problems(node.place, inputs):
            made = converter(node)
        results = [made] if isinstance(made, Value) else list(made)
        for k in text_outputs(proto, self.scope.opset, inputs) if proto.domain in OWN_DOMAIN else ():
            if k < len(results) and not isinstance(results[k], NoTensor):
                results[k] = Text.of(results[k])
        for result in results:
            if not isinstance(result, NoTensor):
                require_addressable(node.place, result.type)
        for problem in node.unread():
            self._note(node.place, problem)
        for k, name in enumerate(proto.output):
            if name and k >= len(results):
                raise NodeProblem("output", f"output {k} ('{name}') is not supported")
        return results

    def _note(self, where: str, problem: NodeProblem) -> None:
        if problem.kind == "shape" and (taken := self.emit.taken):
            # Shapes may fit where that does not hold.
            message = f"{problem.message}, where {' and '.join(taken[:3])}; give the model's input shapes"
            problem = NodeProblem("value", message, problem.unknown)
        self.findings.note(where, problem, self.scope.owners)

"""ONNX model → `dl` module and weights store.

    node { name: "relu1" op_type: "Relu" input: "x" output: "y" }   ⟶   %y = dl.relu %x : … loc("relu1")

Each node goes to the converter that `operators/` has for it at the model's opset, or to the nodes of its function body. What
is not supported is noted and the import goes on: the node's results become placeholders of the types that the file declares,
so that what follows is still looked at and one error lists it all.
"""

from __future__ import annotations

import warnings
from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import onnx
from onnx import FunctionProto, GraphProto, NodeProto, ValueInfoProto

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array, Tensor, tensor_type
from dlc.dialects.dl.data_dependent.text import OnText
from dlc.dialects.dl.dtypes import element_type
from dlc.dims import is_static
from dlc.errors import ModelError
from dlc.files.mapped_files import in_memory
from dlc.forms import OBJECTS, Border, Maybe, form_of, hangs_on_the_call, told
from dlc.frontend.addressable import require_addressable
from dlc.frontend.emit import Emitter, Value, location
from dlc.frontend.entry import entry_function
from dlc.frontend.identifiers import short_name
from dlc.frontend.onnx.arguments import Arguments, constants
from dlc.frontend.onnx.borders import Output, tensor_infos, text_outputs
from dlc.frontend.onnx.definitions import Definitions, since
from dlc.frontend.onnx.functions import MOST_NODES, OWN_DOMAIN, Key, body_of, opset_of, require_few_nodes
from dlc.frontend.onnx.graph import ModelFile, Source, all_nodes, label, load, place, sorted_nodes, subgraphs
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.origins import Origins, may_be_known, most_elements
from dlc.frontend.onnx.registry import FIRST_OPSET, LAST_OPSET, Converter
from dlc.frontend.onnx.signature import signature, sizes_of
from dlc.frontend.onnx.tensors import TensorReader, dtype_of
from dlc.frontend.onnx.values import NoTensor, Text
from dlc.frontend.problems import AlreadyNoted, NodeProblem, Problem, as_problems, refusal
from dlc.given_shapes import GivenShapes
from dlc.ir import Block, ModuleOp
from dlc.weights import WeightStore


@dataclass(frozen=True)
class ImportedModel:
    """A model as `dl` ops: `func @main` in `module`, its constant arrays in `weights`; `files`: its external data.

    `parameters` are the initialisers that became inputs, with what the file has in them; `border` is what users give and get
    where that is not the program's tensors alone.
    """

    module: ModuleOp
    weights: WeightStore
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    files: tuple[Path, ...] = ()
    parameters: Mapping[str, Array] = field(default_factory=dict[str, Array])
    border: Border | None = None


@dataclass
class _Scope:
    """Where names are looked up: the graph of the model, or the body of a function."""

    values: MutableMapping[str, Value | None]
    declared: Mapping[str, ValueInfoProto]
    opset: int
    # The nodes of the graphs around, the outermost first.
    graphs: tuple[Sequence[NodeProto], ...]
    # The nodes whose bodies this one is inside of, outermost first, and the functions that they call.
    owners: tuple[NodeProto, ...] = ()
    functions: tuple[Key, ...] = ()


def import_model(
    source: Source,
    input_shapes: GivenShapes | None = None,
    *,
    input_values: Mapping[str, Array] | None = None,
    extra_outputs: Sequence[str] = (),
    parameters: Sequence[str] = (),
) -> ImportedModel:
    """The `dl` program of an ONNX model, given as a path, as the bytes of a file, as a ModelProto or as what `load` made of it.

    `input_shapes` replaces the shapes of inputs; a symbolic size of the model that is given a number in one input has it
    everywhere. `input_values` specialises the model to values of some inputs (axes, a length, an amount of padding): they are
    constants then, and no inputs of the program. `extra_outputs` names inner tensors to return after the model's outputs,
    `parameters` initialisers that are inputs, after the model's own.

    Raises ModelError for a malformed file, ShapeError for shapes that contradict the model, UnsupportedError (listing every
    problem) for what dlc does not support; OpenInputsError if giving shapes or values of inputs may help.
    """
    model = load(source, whole=False)
    importer = _Importer(model, input_shapes or {}, input_values or {}, extra_outputs, parameters)
    imported = importer.run()
    if importer.problems:
        given = bool(importer.input_shapes)
        raise refusal(importer.model.name, importer.problems, imported.inputs, imported.outputs, given)
    return imported


def check_model(source: Source, input_shapes: GivenShapes | None = None) -> list[Problem]:
    """Everything in a model that dlc does not support, what hangs on the inputs of a call, and shapes that contradict.

    Raises ModelError for a malformed file.
    """
    importer = _Importer(load(source, whole=False), input_shapes or {}, {}, ())
    importer.run()
    return importer.problems


class _Importer:
    def __init__(
        self,
        model: ModelFile,
        input_shapes: GivenShapes,
        input_values: Mapping[str, Array],
        extra_outputs: Sequence[str],
        parameters: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.graph: GraphProto = model.proto.graph
        self.input_values = input_values
        self.input_shapes = {**input_shapes, **{name: value.shape for name, value in input_values.items()}}
        self.extra_outputs = extra_outputs
        self.parameters = parameters
        self.problems: list[Problem] = []
        self.tensors = TensorReader(model.folder, model.content)
        self.weights = WeightStore()
        declared = {v.name: v for v in (*self.graph.value_info, *self.graph.output)}
        self.scope: _Scope = _Scope({"": None}, declared, opset_of(model.proto.opset_import), (self.graph.node,))
        self.definitions = Definitions(model.proto)
        self.inlined = 0
        # Placeholders are arguments of a block that is part of no program.
        self._detached = Block()
        # What the initialisers hold that are inputs.
        self._defaults: dict[str, Array] = {}
        self._origins = Origins()
        self._inputs: Sequence[TensorInfo] = ()

    def run(self) -> ImportedModel:
        nodes = sorted_nodes(self.graph)
        require_few_nodes(self.graph, self.definitions.functions)
        block = Block()
        self.emit: Emitter = Emitter(block, self.weights)
        self._read_initialisers(self.graph)
        declared = [i for i in self.graph.input if i.name not in self.scope.values]
        taken = signature(declared, self.input_shapes, self._note)
        self.scope.values.update(constants(self.emit, taken, self.input_values))
        asked = (i for i in taken if i.name not in self.input_values)
        self._inputs = (*asked, *map(self._parameter, self.parameters))
        arguments = Arguments(self.emit, self._origins)
        for info in self._inputs:
            self.scope.values[info.name] = self._input(info, arguments)
        self._check_opset()
        for node in nodes:
            self._convert(node)
        return self._finished(block, arguments.names)

    def _input(self, info: TensorInfo, arguments: Arguments) -> Value | None:
        """What an input of the model is made of, as inputs of the program; none where only a call says it."""
        if hangs_on_the_call(info):
            what = "whether it has a value" if isinstance(form_of(info), Maybe) else "how many elements it has"
            self._note(f"input '{info.name}'", NodeProblem("value", f"{what} is known when the model is called"))
            return None
        return arguments.of(info.name, form_of(info), [info.name])

    def _parameter(self, name: str) -> TensorInfo:
        """An initialiser as an input. Raises ModelError for a name that is none's."""
        value = self.scope.values.get(name)
        if value is None or value.known is None:
            raise ModelError(f"{self.model.name}: no initialiser is called '{name}'")
        self._defaults[name] = in_memory(value.known)
        return TensorInfo(name, value.shape, value.known.dtype)

    def _read_initialisers(self, graph: GraphProto) -> None:
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

    # Nodes

    def _check_opset(self) -> None:
        opset = self.scope.opset
        if not opset and any(n.domain in OWN_DOMAIN for n in self.graph.node):
            raise ModelError(f"{self.model.name}: opset_import has no version of ONNX's own domain")
        own = (n for n in all_nodes(self.graph) if n.domain in OWN_DOMAIN)
        if 0 < opset < FIRST_OPSET and any(since(n, opset) != since(n, FIRST_OPSET) for n in own):
            message = f"opset {opset}; dlc reads {FIRST_OPSET} to {LAST_OPSET}: convert it with onnx.version_converter"
            self.problems.append(Problem("model", "opset", message))
        if opset > max(LAST_OPSET, onnx.defs.onnx_opset_version()):
            message = f"{self.model.name}: opset {opset} is newer than any that dlc knows; it is read as opset {LAST_OPSET}"
            warnings.warn(f"{message}: what changed since then is not", stacklevel=2)

    def _convert(self, node: NodeProto) -> None:
        inputs = [self.scope.values[name] for name in node.input]
        noted = len(self.problems)
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
        hangs_on = [name for problem in self.problems[noted:] for name in problem.inputs]
        for k, name in enumerate(node.output):
            if name:
                value = results[k] if results is not None else self._placeholder(name, hangs_on)
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
        outer: _Scope = self.scope
        called, body = (function.domain, function.name, function.overload), body_of(function, node)
        if called in outer.functions:
            raise ModelError(f"{place(node)}: the function {function.name} calls itself")
        values = dict.fromkeys(["", *function.input]) | dict(zip(function.input, inputs, strict=False))
        self.scope = _Scope(
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
        self.inlined += len(body)
        if self.inlined > MOST_NODES:
            raise ModelError(f"{place(owner)}: what it runs unfolds to more than {MOST_NODES} nodes")
        for inner in body:
            self._convert(inner)

    def _subgraph(self, owner: NodeProto, graph: GraphProto, inputs: Sequence[Value], emit: Emitter) -> list[Value]:
        """The results of a graph inside a node, which reads the names around it as well."""
        outer: _Scope = self.scope
        emit_outside: Emitter = self.emit
        if len(graph.input) != len(inputs):
            raise ModelError(f"{place(owner)}: a graph in it has {len(graph.input)} inputs, it gives {len(inputs)}")
        values = ChainMap(dict[str, Value | None](), outer.values)
        declared = {v.name: v for v in (*graph.value_info, *graph.output)}
        nodes = sorted_nodes(graph, outer.values)
        graphs = (*outer.graphs, graph.node)
        self.scope = _Scope(values, declared, outer.opset, graphs, (*outer.owners, owner), outer.functions)
        self.emit = emit
        try:
            self._read_initialisers(graph)
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
        noted, self.problems = self.problems, list[Problem]()
        results: list[Value] = []
        try:
            results = self._subgraph(owner, graph, inputs, emit)
        except AlreadyNoted:
            pass
        except ModelError as error:
            self._note(place(owner), NodeProblem("shape", str(error)))
        finally:
            found, self.problems = self.problems, noted
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
        note, graphs = self.problems.extend, self.scope.graphs
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
        where = ", in it ".join((*map(place, self.scope.owners), where))
        names = self._origins.of(v.ssa for v in problem.unknown if v.ssa is not None)
        asked = [i for i in self._inputs if i.name in names]
        large = next((i for i in asked if not may_be_known(i)), None)
        are_open = not all(is_static(i.shape) and not hangs_on_the_call(i) for i in self._inputs)
        message = problem.message
        if large is not None and not are_open:
            message += f" (it hangs on input {large}; a model is compiled for values of up to {most_elements(large)} elements)"
        # Where sizes are open, they tell what is large; and what hangs on data in one branch of an `If` may go with it.
        inputs = tuple(i.name for i in asked) if large is None else ()
        at_call = problem.kind == "value" and (are_open or bool(inputs))
        self.problems.append(Problem(where, problem.kind, message, inputs, at_call))

    def _placeholder(self, name: str, hangs_on: Sequence[str]) -> Value | None:
        """A value of the type that the file declares for the name; none where it declares none.

        `hangs_on` are the inputs whose values would tell what it is.
        """
        # ONNX's own shape inference would know more, but it takes the sizes in a hostile file at their word.
        info = self.scope.declared.get(name)
        if info is None or not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
            return None
        try:
            element = element_type(dtype_of(info.type.tensor_type.elem_type))
        except NodeProblem:
            return None
        t: Tensor = tensor_type(sizes_of(name, info.type.tensor_type), element)
        argument = self._detached.insert_arg(t, len(self._detached.args))
        self._origins.add(argument, hangs_on)
        return Value(t, ssa=argument, name=name)

    # The finished program

    def _finished(self, block: Block, arguments: Sequence[str]) -> ImportedModel:
        names = [*(o.name for o in self.graph.output), *self.extra_outputs]
        if self.problems:
            declared = signature(self.graph.output, {}, lambda where, problem: None)
            return ImportedModel(ModuleOp([]), self.weights, tuple(self._inputs), declared)
        made = [Output(name, value) for name in names if (value := self.scope.values.get(name)) is not None]
        if len(made) != len(names):
            missing = next(n for n in names if self.scope.values.get(n) is None)
            raise ModelError(f"{self.model.name}: no tensor is called '{missing}'")
        border = None
        outputs = tuple(told(output.name, output.form) for output in made)
        has_text = any(isinstance(op, OnText) for op in block.walk())
        if has_text or any(info.dtype == OBJECTS for info in (*self._inputs, *outputs)):
            border = Border(tuple(self._inputs), outputs, tuple(self.emit.texts))
        found = [(name, self.emit.ssa(value)) for output in made for name, value in output.tensors]
        names, results = [name for name, _ in found], [result for _, result in found]
        inputs, returned = tensor_infos(arguments, block.args), tensor_infos(names, results)
        main = entry_function(block, arguments, results, names)
        self.tensors.release()
        files = self.tensors.files
        return ImportedModel(ModuleOp([main]), self.weights, inputs, returned, files, self._defaults, border)

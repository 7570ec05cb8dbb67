"""Import a TFLite file as a `dl` module and a weight store.

    CONV_2D (0, 8, 5) → (9,), tensor 9 called "conv1/Relu6"   ⟶   %y = dl.conv … ; %z = dl.add … loc("conv1/Relu6")

Operators are stored in execution order. Unsupported features are recorded and the import continues: the results of such an
operator become placeholders of the declared types, so that one error reports all problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array, element_type_of, shape_of, tensor_of, tensor_type
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.programs.size_ranges import set_guards
from dlc.errors import DTypeError, ModelError, UnsupportedError
from dlc.frontend.emitter import Emitter, ImportedValue, location
from dlc.frontend.entry import ImportedProgram, entry_function
from dlc.frontend.identifiers import short_name
from dlc.frontend.problems import NodeProblem, Problem, translate_errors, unsupported_model_error
from dlc.frontend.size_limits import require_addressable
from dlc.frontend.tflite import (
    contraction_reduction,
    control_flow,
    convolution_pooling,
    custom_operators,
    data_movement,
    pointwise,
    recurrence,
    resize,
    shapes,
)
from dlc.frontend.tflite.node import TfliteConverter, TfliteNode
from dlc.frontend.tflite.schema import TfliteFile, TfliteGraph, TfliteOperator, TfliteTensor, read_file
from dlc.ir import Block, ModuleOp
from dlc.plugins.tables import ExtensionTable
from dlc.shapes.dims import Dim, Size, is_static
from dlc.shapes.parsing import identifier
from dlc.shapes.shape_specs import ShapeSpecs, apply_input_shapes
from dlc.weights import WeightStore

OPERATORS: ExtensionTable[str, TfliteConverter] = ExtensionTable(
    "tflite_converters",
    {
        **convolution_pooling.table.entries,
        **contraction_reduction.table.entries,
        **pointwise.table.entries,
        **shapes.table.entries,
        **data_movement.table.entries,
        **resize.table.entries,
        **control_flow.table.entries,
        **recurrence.table.entries,
        **custom_operators.table.entries,
    },
)
# Nested subgraphs can expand a small file exponentially. Up to this many operators may be inlined in addition to four times
# those of the file; real models stay far below.
_MAX_EXTRA_OPERATORS = 10_000
_MAX_GRAPH_DEPTH = 32


def read_model(
    source: Path | bytes, input_shapes: ShapeSpecs | None = None, input_values: Mapping[str, Array] | None = None
) -> ImportedProgram:
    """Import a TFLite file, given as its path or its bytes.

    `input_shapes` replaces the shapes of inputs, `input_values` replaces inputs by constants. Raises ModelError for a malformed
    file, ShapeError for shapes that contradict the model, UnsupportedError (listing every problem) for unsupported features;
    SpecializationRequiredError if it can be imported for static input shapes.
    """
    reader = _TfliteReader(read_file(source), input_shapes or {}, input_values or {})
    return reader.run()


class _TfliteReader:
    def __init__(self, file: TfliteFile, input_shapes: ShapeSpecs, input_values: Mapping[str, Array]) -> None:
        self.file, self.input_values = file, input_values
        self.input_shapes = {**input_shapes, **{name: value.shape for name, value in input_values.items()}}
        self.weights = WeightStore()
        self.problems: list[Problem] = []
        # Placeholders are arguments of a block outside of any program.
        self._detached = Block()
        self._active_subgraphs: list[int] = []
        self._num_operators = 0
        self._max_operators = _MAX_EXTRA_OPERATORS + 4 * sum(len(graph.operators) for graph in file.graphs)

    def run(self) -> ImportedProgram:
        graph, block = self.file.graphs[0], Block()
        names = _distinct(self._names(graph, graph.inputs, self.file.input_names, "input"))
        stems = _distinct(map(identifier, names))
        declared = [
            self._declared(graph.tensors[k], *name_and_stem)
            for k, *name_and_stem in zip(graph.inputs, names, stems, strict=True)
        ]
        infos = apply_input_shapes(declared, self.input_shapes)
        self.emit = Emitter(block, self.weights)
        inputs = [i for i in infos if i.name not in self.input_values]
        values = [self._input(info) for info in infos]
        results = self._run(0, values, self.emit)
        result_names = _distinct(self._names(graph, graph.outputs, self.file.output_names, "output"))
        if self.problems:
            outputs = [
                self._declared(graph.tensors[k], n, identifier(n)) for k, n in zip(graph.outputs, result_names, strict=True)
            ]
            raise unsupported_model_error(self.file.name, self.problems, inputs, outputs, bool(self.input_shapes))
        ssa_results = [self.emit.ssa(value) for value in results if value is not None]
        main = entry_function(block, [i.name for i in inputs], ssa_results, result_names)
        set_guards(main, self.emit.guards)
        outputs = tuple(
            TensorInfo(name, shape_of(r), numpy_dtype(element_type_of(r)))
            for name, r in zip(result_names, ssa_results, strict=True)
        )
        return ImportedProgram(ModuleOp([main]), self.weights, tuple(inputs), outputs)

    def _names(self, graph: TfliteGraph, tensors: Sequence[int], signature: Mapping[int, str], kind: str) -> list[str]:
        return [signature.get(k) or graph.tensors[k].name or f"{kind}{n}" for n, k in enumerate(tensors)]

    def _declared(self, tensor: TfliteTensor, name: str, stem: str) -> TensorInfo:
        """Return an input or output as declared; each of its symbolic dimensions gets a symbol with the prefix `stem`."""
        sizes: list[Size] = [Dim.symbol(f"{stem}_{k}") if size < 0 else size for k, size in enumerate(tensor.signature)]
        try:
            return TensorInfo(name, tuple(sizes), tensor.dtype)
        except UnsupportedError as error:
            raise UnsupportedError(f"{self.file.name}: '{name}': {error}") from error

    def _input(self, info: TensorInfo) -> ImportedValue:
        constant = self.input_values.get(info.name)
        if constant is not None:
            if constant.dtype != info.dtype:
                raise DTypeError(f"input '{info.name}': expected dtype {info.dtype}, got a value of dtype {constant.dtype}")
            return self.emit.constant(constant, name=info.name)
        argument = self.emit.argument(tensor_type(info.shape, element_type(info.dtype)))
        require_addressable(f"input '{info.name}'", tensor_of(argument))
        argument.name_hint = short_name(info.name)
        return ImportedValue(tensor_of(argument), ssa=argument, name=info.name)

    # Graphs

    def _run(self, subgraph: int, arguments: Sequence[ImportedValue | None], emit: Emitter) -> list[ImportedValue | None]:
        """Return the results of a subgraph."""
        graph = self.file.graphs[subgraph]
        if len(arguments) != len(graph.inputs):
            raise ModelError(f"{self.file.name}: subgraph {subgraph} has {len(graph.inputs)} inputs, got {len(arguments)}")
        self._num_operators += len(graph.operators)
        if self._num_operators > self._max_operators:
            raise ModelError(f"{self.file.name}: its subgraphs expand to more than {self._max_operators} operators")
        values: dict[int, ImportedValue | None] = dict(zip(graph.inputs, arguments, strict=True))
        for k, operator in enumerate(graph.operators):
            description = self._description(graph, k)
            operands = [None if n < 0 else self._value(graph, n, values, emit, description) for n in operator.inputs]
            for n, value in zip(operator.outputs, self._results(graph, operator, operands, emit, description), strict=True):
                values[n] = value
        return [self._value(graph, n, values, emit, f"output {k}") for k, n in enumerate(graph.outputs)]

    def _description(self, graph: TfliteGraph, k: int) -> str:
        operator = graph.operators[k]
        return f"operator {k} ({operator.kind}, '{graph.label(operator)}')"

    def _value(
        self, graph: TfliteGraph, n: int, values: dict[int, ImportedValue | None], emit: Emitter, description: str
    ) -> ImportedValue | None:
        """Return the value of a tensor that was computed, or that the file holds; None if its producer is not supported."""
        if n in values:
            return values[n]
        tensor = graph.tensors[n]
        try:
            dtype = tensor.dtype
        except UnsupportedError as error:
            self._report(f"tensor '{tensor.name}'", NodeProblem("dtype", str(error)))
            values[n] = None
            return None
        if tensor.data is not None or 0 in tensor.shape:
            values[n] = emit.constant(tensor.array(), name=tensor.name)
        elif tensor.is_variable:
            # Variables are initialized to 0 in each call.
            require_addressable(description, tensor_type(tensor.shape, element_type(dtype)))
            zero = 0 if tensor.quantization is None else int(tensor.quantization.zero_points[0])
            values[n] = emit.full(zero, tensor.shape, element_type(dtype))
        else:
            raise ModelError(f"{self.file.name}: {description}: reads tensor '{tensor.name}', which has no producer")
        return values[n]

    def _results(
        self,
        graph: TfliteGraph,
        operator: TfliteOperator,
        inputs: Sequence[ImportedValue | None],
        emit: Emitter,
        description: str,
    ) -> Sequence[ImportedValue | None]:
        try:
            if operator.kind not in OPERATORS:
                raise NodeProblem("operator", "not supported")
            if any(n >= 0 and value is None for n, value in zip(operator.inputs, inputs, strict=True)):
                return [self._placeholder(graph.tensors[n]) for n in operator.outputs]
            with emit.build.at_location(location(graph.label(operator))):
                return self._convert(graph, operator, inputs, emit, description)
        except NodeProblem as problem:
            self._report(description, problem)
            return [self._placeholder(graph.tensors[n]) for n in operator.outputs]

    def _convert(
        self,
        graph: TfliteGraph,
        operator: TfliteOperator,
        inputs: Sequence[ImportedValue | None],
        emit: Emitter,
        description: str,
    ) -> Sequence[ImportedValue]:
        converter = OPERATORS[operator.kind]
        node = TfliteNode(
            operator, graph.tensors, inputs, converter.options, emit, partial(self._inline, description), description
        )
        with translate_errors(description, inputs):
            output = converter.convert(node)
            results = [output] if isinstance(output, ImportedValue) else list(output)
            for result, tensor in zip(results, node.results, strict=True):
                if result.element_type != (declared := element_type(tensor.dtype)):
                    raise ModelError(
                        f"{description}: its result has element type {result.element_type}, the file declares {declared}"
                    )
                require_addressable(description, result.type)
                if result.ssa is not None and result.ssa.name_hint is None:
                    result.ssa.name_hint = short_name(tensor.name)
        return results

    def _inline(
        self, description: str, subgraph: int, arguments: Sequence[ImportedValue], emit: Emitter
    ) -> Sequence[ImportedValue]:
        """Inline a subgraph that an operator runs, and return its results."""
        if not 0 <= subgraph < len(self.file.graphs) or subgraph in self._active_subgraphs or subgraph == 0:
            raise ModelError(f"{description}: it cannot run subgraph {subgraph} of {len(self.file.graphs)}")
        if len(self._active_subgraphs) == _MAX_GRAPH_DEPTH:
            raise ModelError(f"{description}: subgraphs are nested more than {_MAX_GRAPH_DEPTH} deep")
        self._active_subgraphs.append(subgraph)
        results = self._run(subgraph, arguments, emit)
        self._active_subgraphs.pop()
        supported = [r for r in results if r is not None]
        if len(supported) != len(results):
            raise NodeProblem("operator", f"its subgraph {subgraph} is not supported")
        return supported

    def _placeholder(self, tensor: TfliteTensor) -> ImportedValue | None:
        """Return a placeholder of the declared type; None if dlc does not support the type."""
        try:
            type = tensor_type(tensor.shape, element_type(tensor.dtype))
        except UnsupportedError:
            return None
        return ImportedValue(type, ssa=self._detached.insert_arg(type, len(self._detached.args)), name=tensor.name)

    def _report(self, where: str, problem: NodeProblem) -> None:
        needs_specialization = problem.kind == "value" and any(not is_static(shape_of(a.type)) for a in self.emit.block.args)
        new_problem = Problem(where, problem.kind, problem.message, (), needs_specialization)
        if new_problem not in self.problems:
            self.problems.append(new_problem)


def _distinct(names: Iterable[str]) -> list[str]:
    """Make names unique by appending numbers to duplicates."""
    unique: dict[str, None] = {}
    suffixes_by_name: dict[str, Iterator[int]] = {}
    for name in names:
        suffixes = suffixes_by_name.setdefault(name, count(1))
        unique[next(n for n in chain([name], (f"{name}_{k}" for k in suffixes)) if n not in unique)] = None
    return list(unique)

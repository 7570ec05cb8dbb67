"""Import an ONNX model as a `dl` module and a weight store: graph inputs and outputs; the nodes are in `conversion.py`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx import GraphProto

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.data_dependent.strings import StringOp
from dlc.dialects.dl.programs.size_ranges import set_guards
from dlc.errors import ModelError
from dlc.files.mapped_files import copy_to_memory
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.entry import entry_function
from dlc.frontend.onnx.conversion import GraphConversion
from dlc.frontend.onnx.definitions import schema_version
from dlc.frontend.onnx.diagnostics import Diagnostics
from dlc.frontend.onnx.functions import ONNX_DOMAINS, require_bounded_inlining
from dlc.frontend.onnx.graph import ModelFile, ModelSource, all_nodes, load, sorted_nodes
from dlc.frontend.onnx.graph_outputs import GraphOutput, tensor_infos
from dlc.frontend.onnx.program_arguments import ProgramArguments, constant_inputs
from dlc.frontend.onnx.registry import FIRST_OPSET, LAST_OPSET
from dlc.frontend.onnx.signature import signature
from dlc.frontend.problems import NodeProblem, Problem, unsupported_model_error
from dlc.ir import ModuleOp, contains
from dlc.shapes.shape_specs import ShapeSpecs
from dlc.value_types import OBJECT_DTYPE, IOSignature, OptionalType, is_call_dependent, value_info, value_type_of
from dlc.weights import WeightStore


@dataclass(frozen=True)
class ImportedModel:
    """An imported model.

    Attributes:
        module: The program, with the entry function `@main`.
        weights: The constants of the program.
        files: The external data files.
        parameters: The initializers that became inputs, with their default values.
        io_signature: The signature for callers, if it differs from the arguments and results of the program.
    """

    module: ModuleOp
    weights: WeightStore
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    files: tuple[Path, ...] = ()
    parameters: Mapping[str, Array] = field(default_factory=dict[str, Array])
    io_signature: IOSignature | None = None


def import_model(
    source: ModelSource,
    input_shapes: ShapeSpecs | None = None,
    *,
    input_values: Mapping[str, Array] | None = None,
    extra_outputs: Sequence[str] = (),
    parameters: Sequence[str] = (),
) -> ImportedModel:
    """Import an ONNX model, given as a path, as the bytes of a file, as a ModelProto or as the result of `load`.

    `input_shapes` replaces the shapes of inputs; a symbolic dimension that is set to a size in one input is replaced
    everywhere. `input_values` specializes the model to the values of some inputs (axes, a length, an amount of padding): they
    become constants instead of inputs of the program. `extra_outputs` names intermediate tensors to return after the outputs of
    the model, `parameters` initializers to turn into inputs, after those of the model.

    Raises ModelError for a malformed file, ShapeError for shapes that contradict the model, UnsupportedError (listing every
    problem) for unsupported features; SpecializationRequiredError if specifying shapes or values of inputs may help.
    """
    model = load(source, with_large_tensors=False)
    importer = _Importer(model, input_shapes or {}, input_values or {}, extra_outputs, parameters)
    imported = importer.run()
    if importer.diagnostics.problems:
        has_input_shapes = bool(importer.input_shapes)
        raise unsupported_model_error(
            importer.model.name, importer.diagnostics.problems, imported.inputs, imported.outputs, has_input_shapes
        )
    return imported


def check_model(source: ModelSource, input_shapes: ShapeSpecs | None = None) -> list[Problem]:
    """Return all unsupported features of a model, those that depend on input shapes and values, and shape contradictions.

    Raises ModelError for a malformed file.
    """
    importer = _Importer(load(source, with_large_tensors=False), input_shapes or {}, {}, ())
    importer.run()
    return importer.diagnostics.problems


class _Importer:
    def __init__(
        self,
        model: ModelFile,
        input_shapes: ShapeSpecs,
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
        # The default values of the initializers that became inputs.
        self._defaults: dict[str, Array] = {}
        self.diagnostics = Diagnostics()
        self.conversion = GraphConversion(model, self.diagnostics)

    def run(self) -> ImportedModel:
        conversion, diagnostics = self.conversion, self.diagnostics
        values = conversion.scope.values
        nodes = sorted_nodes(self.graph)
        require_bounded_inlining(self.graph, conversion.definitions.functions)
        conversion.read_initializers(self.graph)
        declared = [i for i in self.graph.input if i.name not in values]
        model_inputs = signature(declared, self.input_shapes, diagnostics.report)
        values.update(constant_inputs(conversion.emit, model_inputs, self.input_values))
        requested = (i for i in model_inputs if i.name not in self.input_values)
        diagnostics.inputs = (*requested, *map(self._parameter, self.parameters))
        arguments = ProgramArguments(conversion.emit, diagnostics.dependencies)
        for info in diagnostics.inputs:
            values[info.name] = self._input(info, arguments)
        self._check_opset()
        for node in nodes:
            conversion.convert(node)
        return self._finish(arguments.names)

    def _input(self, info: TensorInfo, arguments: ProgramArguments) -> ImportedValue | None:
        """Add a graph input as arguments of the program; return None if its structure is only known at run time."""
        if is_call_dependent(info):
            unknown_property = "presence" if isinstance(value_type_of(info), OptionalType) else "length"
            self.diagnostics.report(
                f"input '{info.name}'", NodeProblem("value", f"its {unknown_property} is known at run time only")
            )
            return None
        return arguments.of(info.name, value_type_of(info), [info.name])

    def _parameter(self, name: str) -> TensorInfo:
        """Turn an initializer into an input. Raises ModelError for an unknown name."""
        value = self.conversion.scope.values.get(name)
        if value is None or value.constant_value is None:
            raise ModelError(f"{self.model.name}: it has no initializer '{name}'")
        self._defaults[name] = copy_to_memory(value.constant_value)
        return TensorInfo(name, value.shape, value.constant_value.dtype)

    def _check_opset(self) -> None:
        opset = self.conversion.scope.opset
        if not opset and any(n.domain in ONNX_DOMAINS for n in self.graph.node):
            raise ModelError(f"{self.model.name}: opset_import does not contain the standard ONNX domain")
        standard_nodes = (n for n in all_nodes(self.graph) if n.domain in ONNX_DOMAINS)
        if 0 < opset < FIRST_OPSET and any(schema_version(n, opset) != schema_version(n, FIRST_OPSET) for n in standard_nodes):
            message = f"opset {opset}; dlc reads {FIRST_OPSET} to {LAST_OPSET}: convert it with onnx.version_converter"
            self.diagnostics.problems.append(Problem("model", "opset", message))
        if opset > max(LAST_OPSET, onnx.defs.onnx_opset_version()):
            message = (
                f"{self.model.name}: opset {opset} is newer than the latest supported one; it is read as opset {LAST_OPSET}"
            )
            warnings.warn(f"{message}, without later changes", stacklevel=2)

    def _finish(self, arguments: Sequence[str]) -> ImportedModel:
        conversion, model_inputs = self.conversion, tuple(self.diagnostics.inputs)
        if self.diagnostics.problems:
            declared = signature(self.graph.output, {}, lambda where, problem: None)
            return ImportedModel(ModuleOp([]), conversion.weights, model_inputs, declared)
        requested = [*(o.name for o in self.graph.output), *self.extra_outputs]
        values = {name: conversion.scope.values.get(name) for name in requested}
        if missing := next((name for name, value in values.items() if value is None), None):
            raise ModelError(f"{self.model.name}: it has no tensor '{missing}'")
        graph_outputs = [GraphOutput(name, value) for name in requested if (value := values[name]) is not None]
        outputs = tuple(value_info(output.name, output.value_type) for output in graph_outputs)
        named_results = [(name, conversion.emit.ssa(value)) for output in graph_outputs for name, value in output.tensors]
        names, results = [name for name, _ in named_results], [result for _, result in named_results]
        inputs, returned = tensor_infos(arguments, conversion.block.args), tensor_infos(names, results)
        main = entry_function(conversion.block, arguments, results, names)
        set_guards(main, conversion.emit.guards)
        io_signature = None
        if contains(main, StringOp) or any(info.dtype == OBJECT_DTYPE for info in (*model_inputs, *outputs)):
            io_signature = IOSignature(model_inputs, outputs, tuple(conversion.emit.strings))
        conversion.tensors.release()
        files = conversion.tensors.files
        return ImportedModel(ModuleOp([main]), conversion.weights, inputs, returned, files, self._defaults, io_signature)

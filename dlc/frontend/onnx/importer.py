"""ONNX model → `dl` module and weights store: inputs, parameters and outputs here, the nodes between in `converting.py`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx import GraphProto

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.data_dependent.text import OnText
from dlc.errors import ModelError
from dlc.files.mapped_files import in_memory
from dlc.forms import OBJECTS, Border, Maybe, form_of, hangs_on_the_call, told
from dlc.frontend.emit import Value
from dlc.frontend.entry import entry_function
from dlc.frontend.onnx.arguments import Arguments, constants
from dlc.frontend.onnx.borders import Output, tensor_infos
from dlc.frontend.onnx.converting import Conversion
from dlc.frontend.onnx.definitions import since
from dlc.frontend.onnx.findings import Findings
from dlc.frontend.onnx.functions import OWN_DOMAIN, require_few_nodes
from dlc.frontend.onnx.graph import ModelFile, Source, all_nodes, load, sorted_nodes
from dlc.frontend.onnx.registry import FIRST_OPSET, LAST_OPSET
from dlc.frontend.onnx.signature import signature
from dlc.frontend.problems import NodeProblem, Problem, refusal
from dlc.given_shapes import GivenShapes
from dlc.ir import ModuleOp, contains
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
    if importer.findings.problems:
        given = bool(importer.input_shapes)
        raise refusal(importer.model.name, importer.findings.problems, imported.inputs, imported.outputs, given)
    return imported


def check_model(source: Source, input_shapes: GivenShapes | None = None) -> list[Problem]:
    """Everything in a model that dlc does not support, what hangs on the inputs of a call, and shapes that contradict.

    Raises ModelError for a malformed file.
    """
    importer = _Importer(load(source, whole=False), input_shapes or {}, {}, ())
    importer.run()
    return importer.findings.problems


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
        # What the initialisers hold that are inputs.
        self._defaults: dict[str, Array] = {}
        self.findings = Findings()
        self.conversion = Conversion(model, self.findings)

    def run(self) -> ImportedModel:
        conversion, findings = self.conversion, self.findings
        values = conversion.scope.values
        nodes = sorted_nodes(self.graph)
        require_few_nodes(self.graph, conversion.definitions.functions)
        conversion.read_initialisers(self.graph)
        declared = [i for i in self.graph.input if i.name not in values]
        taken = signature(declared, self.input_shapes, findings.note)
        values.update(constants(conversion.emit, taken, self.input_values))
        asked = (i for i in taken if i.name not in self.input_values)
        findings.inputs = (*asked, *map(self._parameter, self.parameters))
        arguments = Arguments(conversion.emit, findings.origins)
        for info in findings.inputs:
            values[info.name] = self._input(info, arguments)
        self._check_opset()
        for node in nodes:
            conversion.convert(node)
        return self._finished(arguments.names)

    def _input(self, info: TensorInfo, arguments: Arguments) -> Value | None:
        """What an input of the model is made of, as inputs of the program; none where only a call says it."""
        if hangs_on_the_call(info):
            what = "whether it has a value" if isinstance(form_of(info), Maybe) else "how many elements it has"
            self.findings.note(f"input '{info.name}'", NodeProblem("value", f"{what} is known when the model is called"))
            return None
        return arguments.of(info.name, form_of(info), [info.name])

    def _parameter(self, name: str) -> TensorInfo:
        """An initialiser as an input. Raises ModelError for a name that is none's."""
        value = self.conversion.scope.values.get(name)
        if value is None or value.known is None:
            raise ModelError(f"{self.model.name}: no initialiser is called '{name}'")
        self._defaults[name] = in_memory(value.known)
        return TensorInfo(name, value.shape, value.known.dtype)

    def _check_opset(self) -> None:
        opset = self.conversion.scope.opset
        if not opset and any(n.domain in OWN_DOMAIN for n in self.graph.node):
            raise ModelError(f"{self.model.name}: opset_import has no version of ONNX's own domain")
        own = (n for n in all_nodes(self.graph) if n.domain in OWN_DOMAIN)
        if 0 < opset < FIRST_OPSET and any(since(n, opset) != since(n, FIRST_OPSET) for n in own):
            message = f"opset {opset}; dlc reads {FIRST_OPSET} to {LAST_OPSET}: convert it with onnx.version_converter"
            self.findings.problems.append(Problem("model", "opset", message))
        if opset > max(LAST_OPSET, onnx.defs.onnx_opset_version()):
            message = f"{self.model.name}: opset {opset} is newer than any that dlc knows; it is read as opset {LAST_OPSET}"
            warnings.warn(f"{message}: what changed since then is not", stacklevel=2)

    def _finished(self, arguments: Sequence[str]) -> ImportedModel:
        conversion, taken = self.conversion, tuple(self.findings.inputs)
        if self.findings.problems:
            declared = signature(self.graph.output, {}, lambda where, problem: None)
            return ImportedModel(ModuleOp([]), conversion.weights, taken, declared)
        asked = [*(o.name for o in self.graph.output), *self.extra_outputs]
        values = {name: conversion.scope.values.get(name) for name in asked}
        if missing := next((name for name, value in values.items() if value is None), None):
            raise ModelError(f"{self.model.name}: no tensor is called '{missing}'")
        made = [Output(name, value) for name in asked if (value := values[name]) is not None]
        outputs = tuple(told(output.name, output.form) for output in made)
        found = [(name, conversion.emit.ssa(value)) for output in made for name, value in output.tensors]
        names, results = [name for name, _ in found], [result for _, result in found]
        inputs, returned = tensor_infos(arguments, conversion.block.args), tensor_infos(names, results)
        main = entry_function(conversion.block, arguments, results, names)
        border = None
        if contains(main, OnText) or any(info.dtype == OBJECTS for info in (*taken, *outputs)):
            border = Border(taken, outputs, tuple(conversion.emit.texts))
        conversion.tensors.release()
        files = conversion.tensors.files
        return ImportedModel(ModuleOp([main]), conversion.weights, inputs, returned, files, self._defaults, border)

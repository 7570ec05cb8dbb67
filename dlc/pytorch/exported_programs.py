"""Exported programs: `dlc.from_torch` and files of torch.export.save."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from dlc.arrays import TensorInfo
from dlc.backends.base import Backend
from dlc.compiler import Program
from dlc.dialects.dl.distributed.sharding import PartialSpec
from dlc.distributed.dtensor_placements import spec_of_placements
from dlc.distributed.mesh_model import compile_on_mesh
from dlc.distributed.partition_spec import P
from dlc.errors import DlcError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.problems import SpecializationRequiredError
from dlc.instrument.report import Progress
from dlc.options import Options
from dlc.pytorch.archive import checked_archive, example_inputs
from dlc.pytorch.complex_arrays import split_complex_values
from dlc.pytorch.fx_conversion import (
    convert_nodes,
    decompositions,
    erase_assertions,
    symbol_ranges,
    tensor_info,
    tensor_to_array,
)
from dlc.pytorch.fx_graph import FxGraph, FxNode, ValueRef
from dlc.pytorch.graph_compilation import build_model, build_program, draws_random_numbers, with_requested_shapes
from dlc.pytorch.tensor_views import SCALAR_DTYPES, number_type
from dlc.pytorch.torch_import import torch
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.models.model import Model
from dlc.shapes.dims import UndecidableError, is_static
from dlc.shapes.shape_specs import ShapeSpecs


def exported_model(
    module: Any,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    dynamic_shapes: Any,
    target: str | Backend,
    options: Options,
    progress: Progress | None = None,
    mesh: Mesh | None = None,
    placements: Mapping[str, Any] | None = None,
) -> Model:
    """Implement `dlc.from_torch`, which documents the errors that this raises."""
    exported, name = module, type(module).__name__
    if not isinstance(module, torch.export.ExportedProgram):
        try:
            with torch.no_grad():
                exported = torch.export.export(module, tuple(args), dict(keywords), dynamic_shapes=dynamic_shapes)
        except Exception as error:
            raise ModelError(f"{name}: torch.export.export: {error}") from error
    graph = convert_exported_program(exported, name)
    if mesh is None:
        return build_model(graph, name, target, options, progress)
    inputs, shardings = _annotations(graph, mesh, placements or {}, name)
    program = build_program(replace(graph, shardings=shardings), name)
    return compile_on_mesh(program, mesh, inputs, target, options, progress)


def _annotations(
    graph: FxGraph, mesh: Mesh, placements: Mapping[str, Any], name: str
) -> tuple[list[PartialSpec | None], dict[str, P]]:
    """Return the annotations of the inputs, and of constants by their names in the graph.

    Raises DlcError for a name of neither an input nor a parameter, and what `spec_of_placements` raises.
    """
    constants = {module_name: argument for argument, module_name in graph.constant_names.items()}
    shapes = {info.name: info.shape for info in graph.inputs}
    specs: dict[str, P] = {}
    for key, given in placements.items():
        argument = key if key in shapes else constants.get(key.replace(".", "_"))
        if argument is None:
            raise DlcError(
                f"{name}: placements: no input or parameter is named {key!r}; the inputs are {', '.join(shapes)}, and "
                "parameters have their names in the module, such as 0.weight"
            )
        rank = len(shapes[key]) if key in shapes else graph.constants[argument].ndim
        specs[argument] = spec_of_placements(given, mesh, rank, f"{name}: {key}")
    inputs = [specs[info.name].padded(len(info.shape), ()) if info.name in specs else None for info in graph.inputs]
    # The seed of a graph that draws random numbers is the last input.
    inputs += [None] * draws_random_numbers(graph)
    return inputs, {argument: spec for argument, spec in specs.items() if argument not in shapes}


def load_exported_program(path: Path, shapes: ShapeSpecs) -> Program:
    """Return the program in a file of torch.export.save, specialized to these input shapes where the file has symbolic dims.

    Raises ModelError for a file that is not an archive of torch.export.save, or that contains more than a graph and tensors
    (see `archive`). Raises SpecializationRequiredError for a graph that can only be compiled for static sizes. Other errors are
    those of `from_torch`.
    """
    archive = checked_archive(path)
    try:
        # torch.export.load unpickles example inputs without restrictions; reject those that need them.
        for pickled in example_inputs(archive):
            torch.load(io.BytesIO(pickled), weights_only=True)
        exported = torch.export.load(archive)
    except Exception as error:
        problem = str(error).strip().partition("\n")[0]
        raise ModelError(f"{path}: torch.export.load: {problem or type(error).__name__}") from error
    graph = with_requested_shapes(convert_exported_program(exported, path.stem), shapes)
    try:
        return build_program(graph, path.stem)
    except (UndecidableError, ShapeError) as error:
        if all(is_static(info.shape) for info in graph.inputs):
            raise
        if graph.mutations:
            mutated = ", ".join(graph.mutations.values())
            advice = "pass input_shapes, or compile the ExportedProgram with dlc.from_torch"
            raise UnsupportedError(f"{path}: the call mutates {mutated}, and {error}; {advice}") from error
        raise SpecializationRequiredError(UnsupportedError(str(error)), graph.inputs, graph.outputs, ()) from error


_InputKind = torch.export.graph_signature.InputKind
_OutputKind = torch.export.graph_signature.OutputKind
_MUTATIONS = (_OutputKind.BUFFER_MUTATION, _OutputKind.PARAMETER_MUTATION, _OutputKind.USER_INPUT_MUTATION)


def convert_exported_program(exported: Any, name: str) -> FxGraph:
    """Convert an ExportedProgram after decomposing the operators that have no rule; numbers become results of rank 0.

    Buffers that the module mutates become inputs with defaults. The new values of buffers and of mutated inputs are outputs.

    Raises UnsupportedError for a module that returns something else than tensors, numbers and None, and ModelError for one that
    torch cannot decompose.
    """
    try:
        exported = exported.run_decompositions(decompositions())
    except Exception as error:
        raise ModelError(f"{name}: torch.export, run_decompositions: {error}") from error
    # Decomposition functionalizes in-place ops, so what remains are mutations of buffers and inputs.
    new_values = {s.target: s.arg.name for s in exported.graph_signature.output_specs if s.kind in _MUTATIONS}
    erase_assertions(exported.graph)
    values = {n.name: n.meta.get("val") for n in exported.graph.nodes if n.op == "placeholder"}
    inputs: list[Any] = []
    constants: dict[str, Any] = {}
    constant_names: dict[str, str] = {}
    constant_inputs: dict[str, Any] = {}
    user_inputs = {s.arg.name for s in exported.graph_signature.input_specs if s.kind is _InputKind.USER_INPUT}
    # Mutated buffers have their names in the module, unless an input has the name.
    buffers: dict[str, str] = {}
    mutated_names = {name: name for name in user_inputs}
    defaults: dict[str, Any] = {}
    for spec in exported.graph_signature.input_specs:
        argument, target = spec.arg.name, spec.target
        if spec.kind is _InputKind.TOKEN:
            continue
        if spec.kind is _InputKind.USER_INPUT:
            if isinstance(values[argument], torch.Tensor):
                inputs.append(argument)
            else:
                constant_inputs[argument] = getattr(spec.arg, "value", None)
            continue
        stored = exported.state_dict if target in exported.state_dict else exported.constants
        tensor = stored.get(target)
        if not isinstance(tensor, torch.Tensor):
            raise UnsupportedError(f"{name}: {target}: a {type(tensor).__name__}; expected a tensor")
        # A copy, since the module may be trained further.
        array = tensor_to_array(tensor.cpu()).copy()
        if target in new_values:
            mutated_names[target] = buffer = argument if target in user_inputs else target
            buffers[argument], defaults[buffer] = buffer, array
        else:
            constants[argument], constant_names[argument] = array, cast(str, target).replace(".", "_")
    results = [s.arg for s in exported.graph_signature.output_specs if s.kind is _OutputKind.USER_OUTPUT]
    outputs_by_name = dict(zip(_output_names(exported.call_spec.out_spec), results, strict=True))
    outputs_by_name = {name: arg for name, arg in outputs_by_name.items() if getattr(arg, "value", ...) is not None}
    meta = {n.name: n.meta.get("val") for n in exported.graph.nodes}
    nodes, output_infos = list(convert_nodes(exported.graph)), list[TensorInfo]()
    output_refs: list[ValueRef] = []
    for output, arg in outputs_by_name.items():
        value: Any = meta.get(arg.name, getattr(arg, "value", None))
        if isinstance(value, torch.Tensor):
            output_refs.append(ValueRef(arg.name))
            output_infos.append(tensor_info(output, value))
            continue
        kind = number_type(value)
        if kind not in SCALAR_DTYPES:
            problem = f"its result {output} is a {kind.__name__}; expected tensors, numbers and None only"
            raise UnsupportedError(f"{name}: {problem}")
        number = ValueRef(arg.name) if arg.name in meta else value
        nodes.append(FxNode(f"{output}_number", "scalar_tensor", [number], {"dtype": SCALAR_DTYPES[kind]}))
        output_refs.append(ValueRef(f"{output}_number"))
        output_infos.append(TensorInfo(output, (), SCALAR_DTYPES[kind]))
    input_infos = [tensor_info(name, values[name]) for name in inputs]
    input_infos += [tensor_info(buffer, values[argument]) for argument, buffer in buffers.items()]
    shapes = {info.name: info.shape for info in input_infos}
    mutations: dict[str, str] = {}
    for target, result in new_values.items():
        mutated = mutated_names[target]
        new_value = tensor_info(f"{mutated}.mutated", meta[result])
        if new_value.shape != shapes[mutated]:
            raise UnsupportedError(
                f"{name}: the call mutates a view of {mutated}; torch.export returns a part of the new value"
            )
        mutations[new_value.name] = mutated
        output_refs.append(ValueRef(result))
        output_infos.append(new_value)
    nodes = [FxNode(argument, "alias", [ValueRef(buffer)]) for argument, buffer in buffers.items()] + nodes
    graph = FxGraph(
        input_infos,
        nodes,
        output_refs,
        output_infos,
        constants,
        constant_names,
        constant_inputs,
        symbol_ranges([values[name] for name in inputs], exported.range_constraints),
        mutations=mutations,
        defaults=defaults,
    )
    return split_complex_values(graph)


def _output_names(spec: Any) -> list[str]:
    """Return a name for each output array, derived from its path in the result's pytree."""
    tree = torch.utils._pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths = [path for path, _ in torch.utils._pytree.tree_flatten_with_path(tree)[0]]
    steps = [[str(getattr(key, "key", getattr(key, "idx", key))) for key in path] for path in paths]
    return ["output" + "_".join(path) if not path or path[0].isdigit() else ".".join(path) for path in steps]

"""Modules of PyTorch as models, and files that `torch.export.save` wrote."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from dlc.backends.base import Backend
from dlc.compiler import Program
from dlc.dims import UndecidableError, is_static
from dlc.errors import ModelError, ShapeError, UnsupportedError
from dlc.frontend.problems import OpenInputsError
from dlc.given_shapes import GivenShapes
from dlc.instrument.report import Progress
from dlc.options import Options
from dlc.pytorch.archive import checked_archive, example_inputs
from dlc.pytorch.graph import Graph, Ref
from dlc.pytorch.library import torch
from dlc.pytorch.programs import given, model_of, program_of
from dlc.pytorch.reading import array_of, decompositions, drop_checks, info_of, nodes_of, ranges_of
from dlc.runtime.models.model import Model


def exported_model(
    module: Any,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    dynamic_shapes: Any,
    target: str | Backend,
    options: Options,
    progress: Progress | None = None,
) -> Model:
    """What `dlc.from_torch` returns for these arguments. Raises what it says."""
    exported, name = module, type(module).__name__
    if not isinstance(module, torch.export.ExportedProgram):
        try:
            with torch.no_grad():
                exported = torch.export.export(module, tuple(args), dict(keywords), dynamic_shapes=dynamic_shapes)
        except Exception as error:
            raise ModelError(f"{name}: torch.export.export: {error}") from error
    return model_of(graph_of(exported, name), name, target, options, progress)


def read_file(path: Path, shapes: GivenShapes) -> Program:
    """The program in a file that torch.export.save wrote, its inputs of these shapes as far as the file leaves them open.

    Raises ModelError for a file that is none, and for one that holds more than a graph and tensors, as `archive` says;
    OpenInputsError for one that can be read only for known sizes; and what `from_torch` raises.
    """
    archive = checked_archive(path)
    try:
        # What does not pass here torch would unpickle whatever it is.
        for pickled in example_inputs(archive):
            torch.load(io.BytesIO(pickled), weights_only=True)
        exported = torch.export.load(archive)
    except Exception as error:
        problem = str(error).strip().partition("\n")[0]
        raise ModelError(f"{path}: torch.export.load: {problem or type(error).__name__}") from error
    graph = given(graph_of(exported, path.stem), shapes)
    try:
        return program_of(graph, path.stem)
    except (UndecidableError, ShapeError) as error:
        if all(is_static(info.shape) for info in graph.inputs):
            raise
        raise OpenInputsError(UnsupportedError(str(error)), graph.inputs, graph.outputs, ()) from error


_InputKind = torch.export.graph_signature.InputKind
_OutputKind = torch.export.graph_signature.OutputKind


def graph_of(exported: Any, name: str) -> Graph:
    """The graph of an ExportedProgram, in operators that have rules as far as torch has decompositions of the others.

    Raises UnsupportedError for a module that changes its buffers, or that returns something else than tensors, and ModelError
    for one that torch cannot take apart.
    """
    try:
        exported = exported.run_decompositions(decompositions())
    except Exception as error:
        raise ModelError(f"{name}: torch.export, taking operators apart: {error}") from error
    # Only now is there nothing that is changed in place.
    _require_stateless(exported, name)
    drop_checks(exported.graph)
    values = {n.name: n.meta.get("val") for n in exported.graph.nodes if n.op == "placeholder"}
    inputs: list[Any] = []
    constants: dict[str, Any] = {}
    titles: dict[str, str] = {}
    fixed: dict[str, Any] = {}
    for spec in exported.graph_signature.input_specs:
        argument, target = spec.arg.name, spec.target
        if spec.kind is _InputKind.TOKEN:
            continue
        if spec.kind is _InputKind.USER_INPUT:
            if isinstance(values[argument], torch.Tensor):
                inputs.append(argument)
            else:
                fixed[argument] = getattr(spec.arg, "value", None)
            continue
        held = exported.state_dict if target in exported.state_dict else exported.constants
        tensor = held.get(target)
        if not isinstance(tensor, torch.Tensor):
            raise UnsupportedError(f"{name}: {target}: a {type(tensor).__name__}, which is no tensor")
        # A copy: the module may go on to learn.
        constants[argument], titles[argument] = array_of(tensor.cpu()).copy(), cast(str, target).replace(".", "_")
    results = [s.arg for s in exported.graph_signature.output_specs if s.kind is _OutputKind.USER_OUTPUT]
    named = dict(zip(_output_names(exported.call_spec.out_spec), results, strict=True))
    named = {name: arg for name, arg in named.items() if getattr(arg, "value", ...) is not None}
    meta = {n.name: n.meta.get("val") for n in exported.graph.nodes}
    if plain := [name for name, arg in named.items() if not isinstance(meta.get(arg.name), torch.Tensor)]:
        raise UnsupportedError(f"{name}: it returns {', '.join(plain)}, which is no tensor; return tensors alone")
    return Graph(
        [info_of(name, values[name]) for name in inputs],
        list(nodes_of(exported.graph)),
        [Ref(arg.name) for arg in named.values()],
        [info_of(name, meta[arg.name]) for name, arg in named.items()],
        constants,
        titles,
        fixed,
        ranges_of([values[name] for name in inputs], exported.range_constraints),
    )


def _output_names(spec: Any) -> list[str]:
    """What the user calls each of the arrays that a module returns."""
    tree = torch.utils._pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths = [path for path, _ in torch.utils._pytree.tree_flatten_with_path(tree)[0]]
    steps = [[str(getattr(key, "key", getattr(key, "idx", key))) for key in path] for path in paths]
    return ["output" + "_".join(path) if not path or path[0].isdigit() else ".".join(path) for path in steps]


def _require_stateless(exported: Any, name: str) -> None:
    """Raises UnsupportedError for a module whose call changes what it holds, or what it is given."""
    kinds = (_OutputKind.BUFFER_MUTATION, _OutputKind.USER_INPUT_MUTATION)
    if changed := [s.target for s in exported.graph_signature.output_specs if s.kind in kinds]:
        raise UnsupportedError(
            f"{name}: a call changes {', '.join(changed)}, and a compiled model has no state; return what is to be kept, "
            "or call .eval() before, which batch norms need"
        )

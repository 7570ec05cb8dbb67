"""Modules of PyTorch as models: `dlc.from_torch`, and files that `torch.export.save` wrote."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

from dlc.backends.base import Backend
from dlc.compiler import Program
from dlc.dims import UndecidableError, is_static
from dlc.errors import ModelError, ShapeError, UnsupportedError
from dlc.frontend.onnx import OpenInputsError
from dlc.given_shapes import GivenShapes
from dlc.options import Options
from dlc.pytorch.archive import checked_archive, example_inputs
from dlc.pytorch.graph import Graph, Ref
from dlc.pytorch.library import torch
from dlc.pytorch.programs import given, model_of, program_of
from dlc.pytorch.reading import array_of, decompositions, info_of, nodes_of, ranges_of
from dlc.runtime.model import Model


def from_torch(
    module: Any,
    example_inputs: Sequence[Any] = (),
    example_keywords: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target: str | Backend = "cpu",
    num_threads: int | None = None,
    dump_ir: str | PathLike[str] | None = None,
    check_each_pass: bool = False,
    cache: bool | None = None,
    numerics: str = "default",
) -> Model:
    """The module, called with arguments like the examples, as a compiled model; or a torch.export.ExportedProgram.

    Inputs are called as the arguments of its `forward`, outputs by their places in what it returns: `output`, `output0`,
    `last_hidden_state`. `dynamic_shapes` are torch.export.export's: sizes that it leaves open are compiled once for all, as far
    as that can be. Parameters and buffers become weights of the model, as they are now. The other arguments are those of
    `compile_model`.

    Raises UnsupportedError with every operator that dlc has no rule for and the lines that call it, and for a module that
    changes its buffers; ModelError for a module that torch cannot export.
    """
    folder = Path(dump_ir) if dump_ir is not None else None
    options = Options.of(
        num_threads=num_threads, dump_ir=folder, check_each_pass=check_each_pass, cache=cache, numerics=numerics
    )
    exported, name = module, type(module).__name__
    if not isinstance(module, torch.export.ExportedProgram):
        given = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
        try:
            with torch.no_grad():
                exported = torch.export.export(module, given, dict(example_keywords or {}), dynamic_shapes=dynamic_shapes)
        except Exception as error:
            raise ModelError(f"{name}: torch.export.export: {error}") from error
    _require_stateless(exported, name)
    return model_of(graph_of(exported), name, target, options)


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
    _require_stateless(exported, path.stem)
    graph = given(graph_of(exported), shapes)
    try:
        return program_of(graph, path.stem)
    except (UndecidableError, ShapeError) as error:
        if all(is_static(info.shape) for info in graph.inputs):
            raise
        raise OpenInputsError(UnsupportedError(str(error)), graph.inputs, graph.outputs, ()) from error


_InputKind = torch.export.graph_signature.InputKind
_OutputKind = torch.export.graph_signature.OutputKind


def graph_of(exported: Any) -> Graph:
    """The graph of an ExportedProgram, in operators that have rules as far as torch has decompositions of the others."""
    exported = exported.run_decompositions(decompositions())
    values = {n.name: n.meta.get("val") for n in exported.graph.nodes if n.op == "placeholder"}
    inputs: list[Any] = []
    constants: dict[str, Any] = {}
    titles: dict[str, str] = {}
    fixed: dict[str, Any] = {}
    for spec in exported.graph_signature.input_specs:
        name, target = spec.arg.name, spec.target
        if spec.kind is _InputKind.USER_INPUT:
            if isinstance(values[name], torch.Tensor):
                inputs.append(name)
            else:
                fixed[name] = getattr(spec.arg, "value", None)
            continue
        held = exported.state_dict if target in exported.state_dict else exported.constants
        tensor = held.get(target)
        if not isinstance(tensor, torch.Tensor):
            raise UnsupportedError(f"{target}: a {type(tensor).__name__}, which is no tensor")
        constants[name], titles[name] = array_of(tensor.cpu()), cast(str, target).replace(".", "_")
    results = [s.arg for s in exported.graph_signature.output_specs if s.kind is _OutputKind.USER_OUTPUT]
    named = dict(zip(_output_names(exported.call_spec.out_spec), results, strict=True))
    named = {name: arg for name, arg in named.items() if getattr(arg, "value", ...) is not None}
    meta = {n.name: n.meta.get("val") for n in exported.graph.nodes}
    if plain := [name for name, arg in named.items() if not isinstance(meta.get(arg.name), torch.Tensor)]:
        raise UnsupportedError(f"it returns {', '.join(plain)}, which is no tensor; return tensors alone")
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

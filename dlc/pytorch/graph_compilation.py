"""Compilation of FX graphs: a graph is traced like a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dlc.arrays import ShapeDtype, TensorInfo
from dlc.backends.base import Backend
from dlc.compiler import Program, compile, specializer_for
from dlc.errors import ShapeError
from dlc.frontend.function_tracing import SymbolicSize, trace
from dlc.frontend.pytree import flatten
from dlc.instrument.report import Progress
from dlc.options import Options
from dlc.pytorch.fx_graph import FxGraph
from dlc.pytorch.interpreter import draws_random_numbers, interpret, raise_unsupported_nodes, unsupported_nodes
from dlc.runtime.models.model import Model
from dlc.runtime.models.mutating_model import MutatingModel
from dlc.runtime.models.specializations import Specialization
from dlc.runtime.models.specialized_model import ModelCall, SpecializedModel
from dlc.shapes.dims import Dim, Size, UndecidableError, is_static, substitute
from dlc.shapes.shape_specs import ShapeSpecs, TensorShape, specified_sizes, split_ranges

# The additional last input of a program that draws random numbers.
SEED = TensorInfo("seed", (), np.dtype(np.int64))


def build_program(graph: FxGraph, name: str, sizes: Mapping[str, int] | None = None) -> Program:
    """Trace a graph into a program; symbolic sizes of the graph are symbolic in the program.

    With the `sizes` of a call, comparisons that depend on sizes become guards of the program.

    Raises UnsupportedError with every operator that has no rule, and UndecidableError for a graph that can only be traced with
    static sizes.
    """
    raise_unsupported_nodes(name, unsupported_nodes(graph))
    infos = [*graph.inputs, SEED] if draws_random_numbers(graph) else graph.inputs
    placeholders = [ShapeDtype([1 if isinstance(s, Dim) else s for s in info.shape], info.dtype) for info in infos]
    symbolic_axes = [_symbolic_axes(graph, info) for info in infos]
    no_keywords: dict[str, Any] = {}
    leaves, tree = flatten((tuple(placeholders), no_keywords))

    inputs, outputs = ([info.name for info in infos] for infos in (infos, graph.outputs))
    traced = trace(
        lambda *arrays: interpret(graph, arrays),
        leaves,
        tree,
        inputs,
        {},
        symbolic_axes,
        outputs,
        sizes=sizes,
    )
    return Program(
        traced.module,
        traced.weights,
        name,
        reimport=lambda shapes: build_program(with_input_shapes(graph, shapes), name),
        defaults=graph.defaults,
        mutations=graph.mutations,
    )


def _symbolic_axes(graph: FxGraph, info: TensorInfo) -> dict[int, SymbolicSize]:
    return {axis: (s, graph.ranges.get(str(s))) for axis, s in enumerate(info.shape) if isinstance(s, Dim)}


def build_model(graph: FxGraph, name: str, target: str | Backend, options: Options, progress: Progress | None = None) -> Model:
    """Compile a graph; one that compares symbolic sizes, or needs their values, is specialized when it is called.

    Raises what `build_program` and `compile` raise.
    """
    model = _build_function(graph, name, target, options, progress)
    return MutatingModel(model, graph.mutations) if graph.mutations else model


def _build_function(graph: FxGraph, name: str, target: str | Backend, options: Options, progress: Progress | None) -> Model:
    """Compile a graph to a model that returns the new values of mutated inputs."""
    try:
        return compile(build_program(graph, name), target, options, progress=progress)
    except (UndecidableError, ShapeError, TypeError):
        if all(is_static(info.shape) for info in graph.inputs):
            raise

    specializer = specializer_for(name, target, options)

    def specialize(call: ModelCall) -> Specialization[Model]:
        return specializer.specialize(
            call.sizes, lambda static: build_program(substitute_sizes(graph, static), name, call.sizes)
        )

    inputs = [*graph.inputs, SEED] if draws_random_numbers(graph) else graph.inputs
    model = SpecializedModel(name, tuple(inputs), tuple(graph.outputs), specialize, ranges=graph.ranges).model()
    model.defaults = graph.defaults
    return model


def with_input_shapes(graph: FxGraph, shapes: Mapping[str, TensorShape]) -> FxGraph:
    """Return the graph with its symbolic sizes replaced by those of these shapes of its inputs and other arrays."""
    names = {info.name for info in graph.inputs}
    return substitute_sizes(graph, specified_sizes(graph.inputs, {n: shape for n, shape in shapes.items() if n in names}))


def with_requested_shapes(graph: FxGraph, shapes: ShapeSpecs) -> FxGraph:
    """Return the graph with the shapes, or sizes by symbol name, that a user requests.

    Raises ShapeError for an unknown input, and for a size that contradicts the graph.
    """
    plain_shapes, ranges = split_ranges(shapes)
    sizes = specified_sizes(graph.inputs, plain_shapes)
    return substitute_sizes(replace(graph, ranges={**graph.ranges, **ranges}), sizes)


def substitute_sizes(graph: FxGraph, sizes: Mapping[str, Size]) -> FxGraph:
    """Return the graph with symbolic sizes substituted."""

    def substituted(infos: Sequence[TensorInfo]) -> list[TensorInfo]:
        return [replace(info, shape=tuple(substitute(s, sizes) for s in info.shape)) for info in infos]

    return replace(
        graph,
        inputs=substituted(graph.inputs),
        nodes=[replace(n, args=_substituted(n.args, sizes), kwargs=_substituted(n.kwargs, sizes)) for n in graph.nodes],
        outputs=substituted(graph.outputs),
        scalar_inputs=_substituted(graph.scalar_inputs, sizes),
    )


def _substituted(argument: Any, sizes: Mapping[str, Size]) -> Any:
    """Substitute symbolic sizes in nested lists, tuples and dicts."""
    if isinstance(argument, list | tuple):
        return [_substituted(a, sizes) for a in cast("Sequence[Any]", argument)]
    if isinstance(argument, dict):
        return {name: _substituted(a, sizes) for name, a in cast("Mapping[str, Any]", argument).items()}
    return substitute(argument, sizes) if isinstance(argument, Dim) else argument


def unbound_symbols(graph: FxGraph) -> list[str]:
    """Return the symbols of the graph that are not the size of an input dim by themselves, only within an expression."""
    bound_symbols = {str(size) for info in graph.inputs for size in info.shape}
    all_sizes = [*graph.scalar_inputs.values(), *(s for info in graph.inputs for s in info.shape)]
    return sorted({name for s in all_sizes if isinstance(s, Dim) for name in s.symbols()} - bound_symbols)

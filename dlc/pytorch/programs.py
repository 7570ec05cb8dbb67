"""From a graph to a program: the graph is traced like a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlc.arrays import ShapeDtype, TensorInfo
from dlc.backends.base import Backend
from dlc.compiler import Program, compile
from dlc.dims import Dim, Size, UndecidableError, bind_sizes, is_static, is_symbol, parse, substitute
from dlc.errors import ShapeError
from dlc.frontend.pytree import flatten
from dlc.frontend.traced import OpenSize, trace
from dlc.given_shapes import GivenShapes, split_ranges, tensor_shape
from dlc.instrument.report import Progress
from dlc.options import Options
from dlc.pytorch.graph import Graph
from dlc.pytorch.interpreter import draws, gaps, interpret, refuse_gaps
from dlc.runtime.models.model import Model
from dlc.runtime.models.variants import Shapes, Values, Variants

# The last input of a program that draws random numbers.
SEED = TensorInfo("seed", (), np.dtype(np.int64))


def program_of(graph: Graph, name: str) -> Program:
    """The program that a graph is, with the sizes open that the graph has open.

    Raises UnsupportedError with every operator that there is no rule for, and UndecidableError for a graph that can be
    read only for known sizes.
    """
    refuse_gaps(name, gaps(graph))
    infos = [*graph.inputs, SEED] if draws(graph) else graph.inputs
    stand_ins = [ShapeDtype([1 if isinstance(s, Dim) else s for s in info.shape], info.dtype) for info in infos]
    open_ = [_open(graph, info) for info in infos]
    no_keywords: dict[str, Any] = {}
    leaves, tree = flatten((tuple(stand_ins), no_keywords))

    inputs, outputs = ([info.name for info in infos] for infos in (infos, graph.outputs))
    traced = trace(lambda *arrays: interpret(graph, arrays), leaves, tree, inputs, {}, open_, outputs)
    return Program(traced.module, traced.weights, name, read_for=lambda shapes: program_of(known(graph, shapes), name))


def _open(graph: Graph, info: TensorInfo) -> dict[int, OpenSize]:
    return {axis: (s, graph.ranges.get(str(s))) for axis, s in enumerate(info.shape) if isinstance(s, Dim)}


def model_of(graph: Graph, name: str, target: str | Backend, options: Options, progress: Progress | None = None) -> Model:
    """The model that a graph is; one that can be read only for known sizes is compiled for each set of them.

    Raises what `program_of` and `compile` raise.
    """
    try:
        return compile(program_of(graph, name), target, options, progress=progress)
    except (UndecidableError, ShapeError, TypeError):
        if all(is_static(info.shape) for info in graph.inputs):
            raise

    def variant(shapes: Shapes, values: Values) -> Model:
        return compile(program_of(known(graph, shapes), name), target, options)

    inputs = [*graph.inputs, SEED] if draws(graph) else graph.inputs
    return Variants(name, inputs, graph.outputs, (), variant).model()


def known(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """The graph for inputs of these shapes."""
    sizes: dict[str, int] = {}
    for info in graph.inputs:
        if info.name in shapes:
            bind_sizes(info.shape, shapes[info.name], sizes)
    return with_sizes(graph, sizes)


def given(graph: Graph, shapes: GivenShapes) -> Graph:
    """The graph with shapes, or sizes by their names, as people give them.

    Raises ShapeError for an input that there is not, and for a size that contradicts the graph.
    """
    plain, ranges = split_ranges(shapes)
    infos, sizes = {info.name: info for info in graph.inputs}, dict[str, Size]()
    symbols = {str(s) for info in graph.inputs for s in info.shape if is_symbol(s)}
    for name, shape in ((name, tensor_shape(name, shape)) for name, shape in plain.items()):
        if name not in infos and (name not in symbols or len(shape) != 1):
            raise ShapeError(f"input_shapes: no input is called {name!r}; the inputs are {', '.join(map(str, graph.inputs))}")
        own = infos[name].shape if name in infos else (Dim.symbol(name),)
        named = [parse(entry) if isinstance(entry, str) else entry for entry in shape]
        pairs = [(size, entry) for size, entry in zip(own, named, strict=False) if entry is not None]
        sizes |= {str(size): entry for size, entry in pairs if is_symbol(size)}
        if len(shape) != len(own) or any(substitute(size, sizes) != entry for size, entry in pairs):
            raise ShapeError(f"input_shapes: {infos.get(name, name)}: {list(shape)} contradicts it")
    return with_sizes(replace(graph, ranges={**graph.ranges, **ranges}), sizes)


def with_sizes(graph: Graph, sizes: Mapping[str, Size]) -> Graph:
    """The graph with these of its open sizes known."""

    def closed(infos: Sequence[TensorInfo]) -> list[TensorInfo]:
        return [replace(info, shape=tuple(substitute(s, sizes) for s in info.shape)) for info in infos]

    numbers = {name: substitute(v, sizes) if isinstance(v, Dim) else v for name, v in graph.known.items()}
    return replace(graph, inputs=closed(graph.inputs), outputs=closed(graph.outputs), known=numbers)


def loose_sizes(graph: Graph) -> list[str]:
    """The open sizes of a graph that no input has by itself."""
    named = {str(size) for info in graph.inputs for size in info.shape}
    everywhere = [*graph.known.values(), *(s for info in graph.inputs for s in info.shape)]
    return sorted({name for s in everywhere if isinstance(s, Dim) for name in s.symbols()} - named)

"""From a graph to a program: the graph is traced like a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlc.arrays import ShapeDtype, TensorInfo
from dlc.compiler import Program
from dlc.dims import Dim, bind_sizes, substitute
from dlc.frontend.pytree import flatten
from dlc.frontend.trace import OpenSize, trace
from dlc.pytorch.graph import Graph
from dlc.pytorch.interpreter import gaps, interpret, refuse_gaps


def program_of(graph: Graph, name: str) -> Program:
    """The program that a graph is, with the sizes open that the graph has open.

    Raises UnsupportedError with every operator that there is no rule for, and UndecidableError for a graph that can be
    read only for known sizes.
    """
    refuse_gaps(name, gaps(graph))
    stand_ins = [ShapeDtype([1 if isinstance(s, Dim) else s for s in info.shape], info.dtype) for info in graph.inputs]
    open_ = [_open(graph, info) for info in graph.inputs]
    leaves, tree = flatten((tuple(stand_ins), {}))

    inputs, outputs = ([info.name for info in infos] for infos in (graph.inputs, graph.outputs))
    traced = trace(lambda *arrays: interpret(graph, arrays), leaves, tree, inputs, {}, open_, outputs)
    return Program(traced.module, traced.weights, name, read_for=lambda shapes: program_of(known(graph, shapes), name))


def _open(graph: Graph, info: TensorInfo) -> dict[int, OpenSize]:
    return {axis: (s, graph.ranges.get(str(s))) for axis, s in enumerate(info.shape) if isinstance(s, Dim)}


def known(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """The graph for inputs of these shapes."""
    sizes: dict[str, int] = {}
    for info in graph.inputs:
        if info.name in shapes:
            bind_sizes(info.shape, shapes[info.name], sizes)

    def closed(infos: Sequence[TensorInfo]) -> list[TensorInfo]:
        return [replace(info, shape=tuple(substitute(s, sizes) for s in info.shape)) for info in infos]

    numbers = {name: substitute(v, sizes) if isinstance(v, Dim) else v for name, v in graph.known.items()}
    return replace(graph, inputs=closed(graph.inputs), outputs=closed(graph.outputs), known=numbers)

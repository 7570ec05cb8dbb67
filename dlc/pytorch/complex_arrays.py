"""Complex inputs and outputs of FX graphs: programs have real dtypes, so that each is a pair of arrays.

x: complex64[3]   ⟶   x.real: float32[3], x.imag: float32[3]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array
from dlc.frontend.complex_numbers import component_dtype, from_parts, real_and_imaginary
from dlc.pytorch.fx_graph import FxGraph, FxNode, ValueRef

_PARTS = ("real", "imag")


def split_complex_values(graph: FxGraph) -> FxGraph:
    """Return the graph with the real and the imaginary part of each complex input and output in its place."""
    inputs, outputs, values = list[TensorInfo](), list[TensorInfo](), list[ValueRef]()
    nodes = list(graph.nodes)
    for info in graph.inputs:
        inputs += (parts := _parts(info))
        if len(parts) > 1:
            nodes.insert(0, FxNode(info.name, "complex", [ValueRef(part.name) for part in parts]))
    for info, value in zip(graph.outputs, graph.values, strict=True):
        outputs += (parts := _parts(info))
        if len(parts) == 1:
            values.append(value)
            continue
        nodes += [FxNode(f"{value.name}.output.{part}", part, [value]) for part in _PARTS]
        values += [ValueRef(f"{value.name}.output.{part}") for part in _PARTS]
    mutations = dict(
        pair for output in graph.outputs if output.name in graph.mutations for pair in _split_mutation(graph, output)
    )
    defaults = {
        part.name: array
        for info in graph.inputs
        if info.name in graph.defaults
        for part, array in zip(_parts(info), split_arrays([graph.defaults[info.name]]), strict=True)
    }
    return replace(graph, inputs=inputs, nodes=nodes, outputs=outputs, values=values, mutations=mutations, defaults=defaults)


def _split_mutation(graph: FxGraph, output: TensorInfo) -> Iterator[tuple[str, str]]:
    mutated = next(info for info in graph.inputs if info.name == graph.mutations[output.name])
    for new_value, value in zip(_parts(output), _parts(mutated), strict=True):
        yield new_value.name, value.name


def _parts(info: TensorInfo) -> list[TensorInfo]:
    if info.dtype.kind != "c":
        return [info]
    return [replace(info, name=f"{info.name}.{part}", dtype=component_dtype(info.dtype)) for part in _PARTS]


def split_arrays(arrays: Sequence[Array]) -> list[Array]:
    """Return the arrays with complex ones replaced by their real and imaginary parts."""
    return [part for array in arrays for part in (real_and_imaginary(array) if array.dtype.kind == "c" else (array,))]


def join_arrays(arrays: Sequence[Array], infos: Sequence[TensorInfo]) -> list[Array]:
    """Join the real and imaginary parts of the arrays that are complex by `infos`."""
    remaining: Iterator[Array] = iter(arrays)
    return [from_parts(next(remaining), next(remaining)) if info.dtype.kind == "c" else next(remaining) for info in infos]

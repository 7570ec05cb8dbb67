"""Graphs of AOTAutograd: convert them, and map the arguments and results of a call to those of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array
from dlc.errors import DeviceError, UnsupportedError
from dlc.pytorch.fx_conversion import (
    array_to_tensor,
    constant_arrays,
    convert_nodes,
    convert_size,
    get_attribute,
    symbol_ranges,
    tensor_info,
)
from dlc.pytorch.fx_graph import FxGraph, FxNode, ValueRef
from dlc.pytorch.tensor_views import (
    SCALAR_DTYPES,
    SymbolicNumber,
    ViewLayout,
    ViewStep,
    evaluate,
    number,
    numbers_in,
    replay,
    storage_order,
    view_chain,
)
from dlc.pytorch.torch_import import torch
from dlc.shapes.dims import Dim, is_symbol
from dlc.shapes.ranges import SizeRange


@dataclass(frozen=True)
class GraphCall:
    """The arguments of a call, the values of its symbolic numbers, and the output arrays of the graph."""

    arguments: Sequence[Any]
    numbers: Mapping[str, float]
    arrays: Sequence[Array]


@dataclass(frozen=True)
class NumberResult:
    """A number or None that does not depend on the graph's outputs."""

    value: Any

    def evaluate(self, call: GraphCall) -> Any:
        return evaluate(self.value, call.numbers)


@dataclass(frozen=True)
class ElementResult:
    """The graph output `index`, of one element, as a Python scalar."""

    index: int

    def evaluate(self, call: GraphCall) -> Any:
        return call.arrays[self.index].item()


@dataclass(frozen=True)
class ArgumentViewResult:
    """A view of the argument at `position`, made by `steps`."""

    position: int
    steps: Sequence[ViewStep]

    def evaluate(self, call: GraphCall) -> Any:
        return replay(call.arguments[self.position].detach(), self.steps, call.numbers)


@dataclass(frozen=True)
class DenseResult:
    """The graph output `index`, with its axes permuted by `permutation`."""

    index: int
    permutation: Sequence[int] | None

    def evaluate(self, call: GraphCall) -> Any:
        tensor = array_to_tensor(call.arrays[self.index])
        return tensor if self.permutation is None else tensor.permute(self.permutation)


@dataclass(frozen=True)
class StridedResult:
    """The graph output `index`, copied to new memory with this layout.

    PyTorch may apply the layout to the owner of the storage.
    """

    index: int
    layout: ViewLayout

    def evaluate(self, call: GraphCall) -> Any:
        array = call.arrays[self.index]
        strides, offset = self.layout.at(call.numbers)
        extent = sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True)) + 1 if array.size else 0
        storage = np.zeros(offset + extent, array.dtype)
        byte_strides = [stride * array.itemsize for stride in strides]
        np.ndarray(array.shape, array.dtype, storage, offset * array.itemsize, byte_strides)[...] = array
        return array_to_tensor(storage).as_strided(array.shape, strides, offset)


CallResult = NumberResult | ElementResult | ArgumentViewResult | DenseResult | StridedResult


@dataclass(frozen=True)
class AotGraph:
    """A converted graph, and its calling convention.

    Attributes:
        graph: The converted graph.
        tensors: The argument positions of the tensor inputs.
        names: The names of all arguments.
        symbols: The argument position of each SymInt.
        elements: The graph output, of one element, that gives each data-dependent number in the layout of a result.
        results: How to compute each result of a call.
    """

    graph: FxGraph
    tensors: Sequence[int]
    names: Sequence[str]
    symbols: Mapping[str, int]
    elements: Mapping[str, int]
    results: Sequence[CallResult]

    @staticmethod
    def of(module: Any, has_views: bool) -> AotGraph:
        """Convert an FX module, without the nodes and tensor arguments that no result needs.

        With `has_views`, results that are views of arguments are not computed.

        Raises DeviceError for tensors that are not on the CPU, and UnsupportedError for a result whose layout depends on a
        number that the graph does not compute.
        """
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        values = [n.meta.get("val") for n in placeholders]
        scalar_inputs = {
            n.name: convert_size(v) if isinstance(v, torch.SymInt) else v
            for n, v in zip(placeholders, values, strict=True)
            if not isinstance(v, torch.Tensor)
        }
        names = [n.name for n in placeholders]
        symbols = {
            str(scalar_inputs[n]): k
            for k, n in enumerate(names)
            if isinstance(scalar_inputs.get(n), Dim) and is_symbol(scalar_inputs[n])
        }
        returned: Any = module.graph.output_node().args[0]
        outputs = cast("Sequence[Any]", returned) if isinstance(returned, list | tuple) else [returned]
        converter = _OutputConverter(module.graph, symbols, {n: k for k, n in enumerate(placeholders)} if has_views else {})
        results = [converter.result(output) for output in outputs]
        needed = _ancestors(converter.nodes)
        tensors = [k for k, n in enumerate(placeholders) if isinstance(values[k], torch.Tensor) and n in needed]
        for k in tensors:
            if values[k].device.type != "cpu":
                raise DeviceError(f"torch.compile: a tensor on {values[k].device}; the backend dlc expects tensors on the CPU")
        needed_names = {n.name for n in needed}
        nodes = [node for node in convert_nodes(module.graph) if node.name in needed_names]
        inputs = [tensor_info(placeholders[k].name, values[k]) for k in tensors]
        output_infos = [replace(info, name=f"output{k}") for k, info in enumerate(converter.infos)]
        attributes = {n.name: get_attribute(module, n.target) for n in module.graph.nodes if n.op == "get_attr"}
        graph = FxGraph(
            inputs,
            [*nodes, *converter.added],
            converter.refs,
            output_infos,
            constant_arrays(attributes),
            {},
            scalar_inputs,
            _ranges(inputs, values),
        )
        return AotGraph(graph, tensors, names, symbols, converter.elements, results)


def _ancestors(nodes: Sequence[Any]) -> set[Any]:
    """Return the nodes and all nodes that they depend on."""
    needed, pending = set[Any](), list(nodes)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    return needed


class _OutputConverter:
    """Converts the outputs of a graph to results of a call.

    Attributes:
        nodes: The nodes whose values are needed.
        added: Nodes that permute tensors, or wrap scalars in tensors.
        refs: The values of the output arrays.
        infos: The types of the output arrays.
        elements: The output array that gives each data-dependent number.
    """

    def __init__(self, graph: Any, symbols: Mapping[str, int], positions: Mapping[Any, int]) -> None:
        """Return views of the placeholders in `positions` as views of the arguments at these positions."""
        self._graph, self._symbols, self._positions = graph, symbols, positions
        self.nodes: list[Any] = []
        self.added: list[FxNode] = []
        self.refs: list[ValueRef] = []
        self.infos: list[TensorInfo] = []
        self.elements: dict[str, int] = {}

    def result(self, output: Any) -> CallResult:
        """Convert one output."""
        value: Any = output.meta.get("val") if isinstance(output, torch.fx.Node) else output
        if isinstance(value, torch.Tensor):
            return self._tensor(output, value)
        scalar = number(value)
        if isinstance(scalar, SymbolicNumber) and not self._symbols.keys() >= set(scalar.symbols):
            self.nodes.append(output)
            return ElementResult(self._element(output.name, scalar.kind))
        return NumberResult(scalar)

    def _tensor(self, output: Any, value: Any) -> CallResult:
        owner, steps = view_chain(output)
        if owner in self._positions:
            self._bind(steps)
            return ArgumentViewResult(self._positions[owner], steps)
        self.nodes.append(output)
        order = storage_order(value)
        if order is None:
            layout = ViewLayout.of(output)
            self._bind([layout.shape, layout.strides, layout.offset, *layout.steps])
            return StridedResult(self._array(output.name, tensor_info("", value)), layout)
        if order == sorted(order):
            return DenseResult(self._array(output.name, tensor_info("", value)), None)
        self.added.append(FxNode(f"{output.name}_ordered", "permute", [ValueRef(output.name), order]))
        array_index = self._array(f"{output.name}_ordered", tensor_info("", value.permute(order)))
        return DenseResult(array_index, [int(k) for k in np.argsort(order)])

    def _bind(self, tree: Any) -> None:
        """Add outputs for the data-dependent numbers in `tree`."""
        for symbol in sorted({symbol for scalar in numbers_in(tree) for symbol in scalar.symbols} - self._symbols.keys()):
            if symbol not in self.elements:
                self.elements[symbol] = self._element(*self._definition(symbol))

    def _definition(self, symbol: str) -> tuple[str, type]:
        """Return the name of the value that defines a symbol, and its Python type."""
        for node in self._graph.nodes:
            value = node.meta.get("val")
            scalars = [number(n) for n in (value.shape if isinstance(value, torch.Tensor) else [value])]
            for axis, scalar in enumerate(scalars):
                if not isinstance(scalar, SymbolicNumber) or str(scalar.expression) != symbol:
                    continue
                self.nodes.append(node)
                if not isinstance(value, torch.Tensor):
                    return node.name, scalar.kind
                self.added.append(FxNode(f"{node.name}_{symbol}", "sym_size.int", [ValueRef(node.name), axis]))
                return f"{node.name}_{symbol}", int
        raise UnsupportedError(f"torch.compile: the layout of a result depends on {symbol}, which the graph does not compute")

    def _element(self, name: str, kind: type) -> int:
        """Wrap the number `name` in an output array of rank 0; return the index of the output."""
        self.added.append(FxNode(f"{name}_number", "scalar_tensor", [ValueRef(name)], {"dtype": SCALAR_DTYPES[kind]}))
        return self._array(f"{name}_number", TensorInfo("", (), SCALAR_DTYPES[kind]))

    def _array(self, name: str, info: TensorInfo) -> int:
        """Add an output array and return its index."""
        self.refs.append(ValueRef(name))
        self.infos.append(info)
        return len(self.refs) - 1


def _ranges(inputs: Any, values: Sequence[Any]) -> Any:
    """Return the ranges that torch has inferred for the symbolic sizes of tensors.

    Upper bounds of data-dependent sizes are omitted: for `masked_select`, torch's is the size before it broadcasts.
    """
    sizes = [s for v in values if isinstance(v, torch.Tensor) for s in v.shape if isinstance(s, torch.SymInt)]
    if not sizes:
        return {}
    shape_env = sizes[0].node.shape_env
    ranges = symbol_ranges([v for v in values if isinstance(v, torch.Tensor)], shape_env.var_to_range)
    data_dependent = {str(symbol) for symbol in shape_env.var_to_range if shape_env.is_unbacked_symint(symbol)}
    return {name: SizeRange(r.low) if name in data_dependent else r for name, r in ranges.items()}

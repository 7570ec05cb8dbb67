"""Graphs of AOTAutograd, and the mapping between the arguments and results of a call and those of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from dlc.arrays import TensorInfo
from dlc.dims import Dim, Size, is_symbol, substitute
from dlc.errors import DeviceError
from dlc.pytorch.fx_conversion import convert_nodes, convert_size, get_attribute, symbol_ranges, tensor_info, tensor_to_array
from dlc.pytorch.fx_graph import FxGraph, FxNode, ValueRef
from dlc.pytorch.torch_import import torch


@dataclass(frozen=True)
class CallResult:
    """Recipe for one result of a call.

    It is the array `index` of the graph's outputs, with its axes permuted by `permutation`; or the element of that array if
    `is_scalar`; or else `constant`: a size, a number or None that is known before the call.
    """

    index: int | None = None
    permutation: Sequence[int] | None = None
    constant: Size | float | None = None
    is_scalar: bool = False

    def evaluate(self, tensors: Sequence[Any], sizes: Mapping[str, int]) -> Any:
        """Return the result of a call with these output tensors and sizes."""
        if self.index is None:
            return substitute(self.constant, sizes) if isinstance(self.constant, Dim) else self.constant
        tensor = tensors[self.index]
        if self.is_scalar:
            return tensor.item()
        return tensor if self.permutation is None else tensor.permute(self.permutation)


@dataclass(frozen=True)
class AotGraph:
    """A converted graph, and its calling convention.

    `tensors` are the positions of its tensor inputs among the arguments of a call, `names` the names of all arguments,
    `symbols` the position of the argument that gives each symbolic size.
    """

    graph: FxGraph
    tensors: Sequence[int]
    names: Sequence[str]
    symbols: Mapping[str, int]
    results: Sequence[CallResult]

    @staticmethod
    def of(module: Any) -> AotGraph:
        """Convert an FX module; unused tensor arguments do not become inputs.

        Raises DeviceError for tensors that are not on the CPU.
        """
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        values = [n.meta.get("val") for n in placeholders]
        tensors = [k for k, v in enumerate(values) if isinstance(v, torch.Tensor) and placeholders[k].users]
        for k in tensors:
            if values[k].device.type != "cpu":
                raise DeviceError(f"torch.compile: a tensor on {values[k].device}; the backend dlc expects tensors on the CPU")
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
        converter = _OutputConverter(list(convert_nodes(module.graph)), symbols)
        results = [converter.result(output) for output in outputs]
        inputs = [tensor_info(placeholders[k].name, values[k]) for k in tensors]
        output_infos = [replace(info, name=f"output{k}") for k, info in enumerate(converter.infos)]
        attributes = {n.name: get_attribute(module, n.target) for n in module.graph.nodes if n.op == "get_attr"}
        constants = {name: tensor_to_array(value) for name, value in attributes.items() if isinstance(value, torch.Tensor)}
        graph = FxGraph(
            inputs, converter.nodes, converter.refs, output_infos, constants, {}, scalar_inputs, _ranges(inputs, values)
        )
        return AotGraph(graph, tensors, names, symbols, results)


@dataclass
class _OutputConverter:
    """Converts the outputs of a graph to arrays; appends nodes that transpose arrays or make arrays of scalars."""

    nodes: list[FxNode]
    symbols: Mapping[str, int]
    refs: list[ValueRef] = field(default_factory=list[ValueRef])
    infos: list[TensorInfo] = field(default_factory=list[TensorInfo])

    def result(self, output: Any) -> CallResult:
        """Convert one output."""
        value: Any = output.meta.get("val") if isinstance(output, torch.fx.Node) else None
        if isinstance(value, torch.Tensor):
            order = _storage_order(value)
            if order is None:
                return CallResult(self._array(output.name, tensor_info("", value)))
            self.nodes.append(FxNode(f"{output.name}_ordered", "permute", [ValueRef(output.name), order]))
            array_index = self._array(f"{output.name}_ordered", tensor_info("", value.permute(order)))
            return CallResult(array_index, [int(k) for k in np.argsort(order)])
        dtype = next((dtype for kind, dtype in _SCALAR_DTYPES.items() if isinstance(value, kind)), None)
        if dtype is None or self.symbols.keys() >= {str(symbol) for symbol in value.node.expr.free_symbols}:
            return CallResult(
                constant=convert_size(value) if isinstance(value, torch.SymInt) else output if value is None else value
            )
        # A data-dependent scalar.
        self.nodes.append(FxNode(f"{output.name}_number", "scalar_tensor", [ValueRef(output.name)], {"dtype": dtype}))
        return CallResult(self._array(f"{output.name}_number", TensorInfo("", (), dtype)), is_scalar=True)

    def _array(self, name: str, info: TensorInfo) -> int:
        """Add an output array and return its index."""
        self.refs.append(ValueRef(name))
        self.infos.append(info)
        return len(self.refs) - 1


# The dtype of the array of rank 0 for each kind of symbolic scalar.
_SCALAR_DTYPES = {torch.SymInt: np.dtype(np.int64), torch.SymFloat: np.dtype(np.float64), torch.SymBool: np.dtype(np.bool_)}


def _ranges(inputs: Any, values: Sequence[Any]) -> Any:
    """Return the ranges of the symbolic sizes of tensors that torch has inferred."""
    sizes = [s for v in values if isinstance(v, torch.Tensor) for s in v.shape if isinstance(s, torch.SymInt)]
    return (
        symbol_ranges([v for v in values if isinstance(v, torch.Tensor)], sizes[0].node.shape_env.var_to_range) if sizes else {}
    )


def _storage_order(value: Any) -> list[int] | None:
    """Return the axes of a dense tensor in storage order; None if that is row-major, or the tensor is not dense.

    Results must have the strides that PyTorch expects, since its later ops may depend on them.
    """
    sizes, strides = ([_hint(s) for s in values] for values in (value.shape, value.stride()))
    order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], axis))
    stride = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != stride:
            return None
        stride *= sizes[axis]
    return None if order == sorted(order) else order


def _hint(size: Any) -> int:
    """Return a static size for a symbolic one; the order of strides is the same for all sizes."""
    return size if isinstance(size, int) else int(size.node.expr.subs(dict.fromkeys(size.node.expr.free_symbols, 4)))

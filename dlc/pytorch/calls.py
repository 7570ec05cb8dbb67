"""A graph of AOTAutograd, and how the arguments and results of a call lie in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from dlc.arrays import TensorInfo
from dlc.dims import Dim, Size, is_symbol, substitute
from dlc.errors import DeviceError
from dlc.pytorch.graph import Graph, Node, Ref
from dlc.pytorch.library import torch
from dlc.pytorch.reading import array_of, attribute, info_of, nodes_of, ranges_of, size_of


@dataclass(frozen=True)
class Result:
    """One result of a call: the array of this number, its axes put in another order; the element of one that `is_number`; or a
    size, a number or None that is known before."""

    number: int | None = None
    order: Sequence[int] | None = None
    plain: Size | float | None = None
    is_number: bool = False

    def of(self, tensors: Sequence[Any], sizes: Mapping[str, int]) -> Any:
        """It, of the arrays of a call with these sizes."""
        if self.number is None:
            return substitute(self.plain, sizes) if isinstance(self.plain, Dim) else self.plain
        tensor = tensors[self.number]
        if self.is_number:
            return tensor.item()
        return tensor if self.order is None else tensor.permute(self.order)


@dataclass(frozen=True)
class Read:
    """A graph, the places of tensors among a call's arguments, what all are called, the places of open sizes by name, and the
    results."""

    graph: Graph
    tensors: Sequence[int]
    names: Sequence[str]
    symbols: Mapping[str, int]
    results: Sequence[Result]

    @staticmethod
    def of(module: Any) -> Read:
        """Raises DeviceError for tensors that are not on the CPU. What nothing reads is no tensor of it."""
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        values = [n.meta.get("val") for n in placeholders]
        tensors = [k for k, v in enumerate(values) if isinstance(v, torch.Tensor) and placeholders[k].users]
        for k in tensors:
            if values[k].device.type != "cpu":
                raise DeviceError(f"torch.compile: a tensor on {values[k].device}; the backend dlc takes those on the CPU")
        known = {
            n.name: size_of(v) if isinstance(v, torch.SymInt) else v
            for n, v in zip(placeholders, values, strict=True)
            if not isinstance(v, torch.Tensor)
        }
        names = [n.name for n in placeholders]
        symbols = {str(known[n]): k for k, n in enumerate(names) if isinstance(known.get(n), Dim) and is_symbol(known[n])}
        given: Any = module.graph.output_node().args[0]
        several = cast("Sequence[Any]", given) if isinstance(given, list | tuple) else [given]
        ends = _Ends(list(nodes_of(module.graph)), symbols)
        results = [ends.result(end) for end in several]
        inputs = [info_of(placeholders[k].name, values[k]) for k in tensors]
        outputs = [replace(info, name=f"output{k}") for k, info in enumerate(ends.infos)]
        attributes = {n.name: attribute(module, n.target) for n in module.graph.nodes if n.op == "get_attr"}
        held = {name: array_of(value) for name, value in attributes.items() if isinstance(value, torch.Tensor)}
        graph = Graph(inputs, ends.nodes, ends.refs, outputs, held, {}, known, _ranges(inputs, values))
        return Read(graph, tensors, names, symbols, results)


@dataclass
class _Ends:
    """The values that a graph ends with; `nodes` are its own, and those that make arrays of what it returns otherwise."""

    nodes: list[Node]
    symbols: Mapping[str, int]
    refs: list[Ref] = field(default_factory=list[Ref])
    infos: list[TensorInfo] = field(default_factory=list[TensorInfo])

    def result(self, end: Any) -> Result:
        """How one of a call's results is found."""
        value: Any = end.meta.get("val") if isinstance(end, torch.fx.Node) else None
        if isinstance(value, torch.Tensor):
            order = _order(value)
            if order is None:
                return Result(self._array(end.name, info_of("", value)))
            self.nodes.append(Node(f"{end.name}_ordered", "permute", [Ref(end.name), order]))
            number = self._array(f"{end.name}_ordered", info_of("", value.permute(order)))
            return Result(number, [int(k) for k in np.argsort(order)])
        dtype = next((dtype for kind, dtype in _NUMBERS.items() if isinstance(value, kind)), None)
        if dtype is None or self.symbols.keys() >= {str(symbol) for symbol in value.node.expr.free_symbols}:
            return Result(plain=size_of(value) if isinstance(value, torch.SymInt) else end if value is None else value)
        # Data decides it.
        self.nodes.append(Node(f"{end.name}_number", "scalar_tensor", [Ref(end.name)], {"dtype": dtype}))
        return Result(self._array(f"{end.name}_number", TensorInfo("", (), dtype)), is_number=True)

    def _array(self, name: str, info: TensorInfo) -> int:
        """The number of an array that a call gives."""
        self.refs.append(Ref(name))
        self.infos.append(info)
        return len(self.refs) - 1


# Numbers of a graph, and what arrays without axes have of them.
_NUMBERS = {torch.SymInt: np.dtype(np.int64), torch.SymFloat: np.dtype(np.float64), torch.SymBool: np.dtype(np.bool_)}


def _ranges(inputs: Any, values: Sequence[Any]) -> Any:
    """The ranges that torch knows of the open sizes of tensors."""
    sizes = [s for v in values if isinstance(v, torch.Tensor) for s in v.shape if isinstance(s, torch.SymInt)]
    return ranges_of([v for v in values if isinstance(v, torch.Tensor)], sizes[0].node.shape_env.var_to_range) if sizes else {}


def _order(value: Any) -> list[int] | None:
    """The axes of a tensor in the order in which its elements lie, if that is another one and they lie side by side.

    What PyTorch makes of a result later may hang on how it expects it to lie.
    """
    sizes, steps = ([_hint(s) for s in numbers] for numbers in (value.shape, value.stride()))
    order = sorted(range(len(sizes)), key=lambda axis: (-steps[axis], axis))
    step = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and steps[axis] != step:
            return None
        step *= sizes[axis]
    return None if order == sorted(order) else order


def _hint(size: Any) -> int:
    """A size for which elements lie as they do for any."""
    return size if isinstance(size, int) else int(size.node.expr.subs(dict.fromkeys(size.node.expr.free_symbols, 4)))

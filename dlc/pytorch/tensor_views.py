"""Views of tensors in FX graphs, and symbolic numbers. Both are evaluated with the tensors and sizes of a call."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np

from dlc.pytorch.rules.rule_table import Dtype
from dlc.pytorch.torch_import import torch, torch_module

_sympify: Any = torch_module("sympy").sympify
# PyTorch's types of symbolic numbers, and the type of their values.
SYMBOLIC_TYPES: dict[Any, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
# The dtype of the array of rank 0 for each type of number.
SCALAR_DTYPES: dict[type, Dtype] = {int: np.dtype(np.int64), float: np.dtype(np.float64), bool: np.dtype(np.bool_)}


@dataclass(frozen=True)
class SymbolicNumber:
    """A SymPy expression, whose value has the type `kind`, and the names of its symbols."""

    expression: Any
    kind: type
    symbols: Sequence[str]

    def at(self, values: Mapping[str, float]) -> Any:
        """Return the value for these values of the symbols."""
        return _evaluate(self.expression, self.kind, self.symbols, tuple(values[symbol] for symbol in self.symbols))


@lru_cache(maxsize=1 << 12)
def _evaluate(expression: Any, kind: type, symbols: Sequence[str], values: Sequence[float]) -> Any:
    by_name = dict(zip(symbols, values, strict=True))
    return kind(expression.xreplace({symbol: _sympify(by_name[symbol.name]) for symbol in expression.free_symbols}))


def number_type(value: Any) -> type:
    """Return the type of a number; that of its values for a symbolic one."""
    return SYMBOLIC_TYPES.get(type(value)) or cast("type", value.__class__)


def number(value: Any) -> Any:
    """Convert a number of PyTorch: a symbolic one becomes a SymbolicNumber."""
    if type(value) not in SYMBOLIC_TYPES:
        return value
    expression = value.node.expr
    return SymbolicNumber(expression, SYMBOLIC_TYPES[type(value)], tuple(sorted(s.name for s in expression.free_symbols)))


def numbers_in(tree: Any) -> Iterator[SymbolicNumber]:
    """Iterate over the symbolic numbers in nested lists, tuples, dicts and view steps."""
    if isinstance(tree, SymbolicNumber):
        yield tree
    elif isinstance(tree, ViewStep):
        yield from numbers_in([tree.args, tree.keywords])
    elif isinstance(tree, list | tuple | dict):
        for entry in cast("Sequence[Any]", tree.values() if isinstance(tree, dict) else tree):
            yield from numbers_in(entry)


def evaluate(tree: Any, values: Mapping[str, float]) -> Any:
    """Replace the symbolic numbers in nested lists, tuples and dicts by their values."""

    def value_of(leaf: Any) -> Any:
        return leaf.at(values) if isinstance(leaf, SymbolicNumber) else leaf

    return torch.fx.node.map_aggregate(tree, value_of)


@dataclass(frozen=True)
class ViewStep:
    """A call of an operator whose first argument is the tensor, or list of tensors, before it; `args` are the others."""

    operator: Any
    args: Sequence[Any]
    keywords: Mapping[str, Any]

    @staticmethod
    def of(node: Any) -> ViewStep:
        args, keywords = (torch.fx.node.map_aggregate(a, _plain_argument) for a in (node.args[1:], node.kwargs))
        return ViewStep(node.target, args, keywords)


def _plain_argument(argument: Any) -> Any:
    return number(argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument)


def replay(tensor: Any, steps: Sequence[ViewStep], values: Mapping[str, float]) -> Any:
    """Return the view of a tensor by these steps."""
    for step in steps:
        tensor = step.operator(tensor, *evaluate(step.args, values), **evaluate(step.keywords, values))
    return tensor


def view_chain(node: Any) -> tuple[Any, list[ViewStep]]:
    """Return the node that owns the storage of a node's tensor, and the calls of view operators between them."""
    owner, steps = node, list[ViewStep]()
    while (calls := _view_calls(owner)) and _storage(parent := calls[0].args[0]) == _storage(node):
        steps, owner = [*map(ViewStep.of, calls), *steps], parent
    return owner, steps


def _view_calls(node: Any) -> list[Any]:
    """Return the calls that compute a node's tensor as a view of another one.

    These are one view operator, or an operator that returns a list and the access to one of its entries.
    """
    calls = [node.args[0], node] if node.target is operator.getitem else [node]
    has_tensor = calls[0].op == "call_function" and calls[0].args and isinstance(calls[0].args[0], torch.fx.Node)
    return calls if has_tensor else []


def _storage(node: Any) -> Any:
    """Return the identity of the storage of a node's tensor."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


@dataclass(frozen=True)
class ViewLayout:
    """The memory layout of a view.

    Attributes:
        shape: The sizes of the tensor that owns the storage.
        strides: Its strides, in elements.
        offset: Its storage offset, in elements.
        dtype: Its dtype.
        steps: The view operators that are applied to it.
    """

    shape: Sequence[Any]
    strides: Sequence[Any]
    offset: Any
    dtype: Any
    steps: Sequence[ViewStep]

    @staticmethod
    def of(node: Any) -> ViewLayout:
        owner, steps = view_chain(node)
        value = owner.meta["val"]
        shape, strides = (tuple(map(number, sizes)) for sizes in (value.shape, value.stride()))
        return ViewLayout(shape, strides, number(value.storage_offset()), value.dtype, steps)

    def at(self, values: Mapping[str, float]) -> tuple[tuple[int, ...], int]:
        """Return the strides and the storage offset for these values of the symbols."""
        shape, strides, offset = evaluate((self.shape, self.strides, self.offset), values)
        view = replay(torch.empty_strided(shape, strides, dtype=self.dtype, device="meta"), self.steps, values)
        return view.stride(), offset + view.storage_offset()


def storage_order(value: Any) -> list[int] | None:
    """Return the axes of a dense tensor in storage order; None for a tensor that is not dense for all values of its symbols."""
    strides = [_hint(stride) for stride in value.stride()]
    order = sorted(range(value.ndim), key=lambda axis: (-strides[axis], axis))
    dense_stride: Any = 1
    for axis in reversed(order):
        size, stride = map(_expression, (value.shape[axis], value.stride(axis)))
        if size != 1 and (stride - dense_stride).expand() != 0:
            return None
        dense_stride = dense_stride * size
    return order if _expression(value.storage_offset()) == 0 else None


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else _sympify(size)


def _hint(size: Any) -> int:
    """Return a static size for a symbolic one, which sorts strides."""
    expression = _expression(size)
    return int(expression.subs(dict.fromkeys(expression.free_symbols, 4)))

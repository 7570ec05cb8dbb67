"""Compute shape operands in the graph: from sizes of values, from inputs, and from data-dependent counts.

shape = [6, 35]   ← Concat(Gather(Shape(x), 0) + 1, Cast(Floor(Cast(Gather(Shape(y), 2)) · 2.5)))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from dlc.dialects.dl.base import Array
from dlc.testing.sample import F32, I32, I64
from tests.fuzz.random_values import ANY

if TYPE_CHECKING:
    from tests.fuzz.random_graph import GraphValue, RandomGraph

# The size of a mask whose true elements are counted.
_MAX_COUNTED_ELEMENTS = 64


class ShapeOperandBuilder:
    """Builder of nodes that compute one shape operand; `data_dependent` if its value is only known at run time."""

    def __init__(self, g: RandomGraph) -> None:
        self.g = g
        self.data_dependent = False

    def build(self, array: Array) -> str:
        """Add nodes that compute an array and return its name."""
        if array.dtype == F32:
            return self._ratios(array)
        integers = array.astype(I64)
        if integers.ndim == 0:
            name = self._node("Reshape", self._element(int(integers)), self._constant(np.zeros(0, I64)))
        else:
            name = self._whole_array(integers) or self._concat([self._element(int(n)) for n in integers])
        return name if array.dtype == I64 else self._node("Cast", name, to=helper.np_dtype_to_tensor_dtype(array.dtype))

    def _node(self, op: str, *operands: str, **settings: Any) -> str:
        name = f"{self.g.prefix}n{len(self.g.shape_node_results)}"
        self.g.shape_node_results.add(name)
        self.g.nodes.append(helper.make_node(op, operands, [name], **settings))
        return name

    def _constant(self, array: Array) -> str:
        return self.g.constant(array).name

    def _concat(self, names: Sequence[str]) -> str:
        return self._node("Concat", *names, axis=0) if names else self._constant(np.zeros(0, I64))

    def _whole_array(self, array: Array) -> str | None:
        """Compute all elements at once, as the shape of a value or as an input; None if there is no such way."""
        like = [v for v in self._shaped_values() if v.shape == tuple(array)]
        if like and self.g.random.random() < 0.7:
            return self._node("Shape", self.g.random.choice(like).name)
        return self._node("Identity", self._add_source(array)) if self.g.random.random() < 0.1 else None

    def _shaped_values(self) -> list[GraphValue]:
        """Return the values whose sizes may be read."""
        return [v for v in self.g.values if v.is_readable and v.dtype in ANY and v.shape]

    def _add_source(self, array: Array) -> str:
        self.data_dependent = True
        return self.g.source(array).name

    def _element(self, number: int) -> str:
        """Compute one element, as a vector of one."""
        kind = self.g.random.random()
        # -1 may have a special meaning, which only constants support.
        if kind < 0.3 or number == -1:
            return self._constant(np.int64([number]))
        if kind < 0.35:
            return self._add_source(np.int64([number]))
        if kind < 0.45 and 0 <= number <= _MAX_COUNTED_ELEMENTS and self.g.opset >= 9:
            return self._count_nonzero(number)
        sizes = [(v, axis) for v in self._shaped_values() for axis in range(len(v.shape))]
        same = [(v, axis) for v, axis in sizes if v.shape[axis] == number]
        if not sizes:
            return self._constant(np.int64([number]))
        v, axis = self.g.random.choice(same if same and self.g.random.random() < 0.6 else sizes)
        return self._derive(self._size(v, axis), v.shape[axis], number)

    def _count_nonzero(self, number: int) -> str:
        """Count the nonzero elements of an input."""
        self.data_dependent = True
        flags = np.arange(number + self.g.random.choice([0, 1, 5])) < number
        mask = self.g.source(self.g.rng.permutation(flags)).name
        if self.g.flag():
            return self._node("ReduceSum", self._node("Cast", mask, to=TensorProto.INT64))
        return self._node("Gather", self._node("Shape", self._node("NonZero", mask)), self._constant(np.int64([1])))

    def _size(self, v: GraphValue, axis: int) -> str:
        if self.g.opset >= 15 and self.g.flag():
            return self._node("Shape", v.name, start=axis, end=axis + 1)
        shape = self._node("Shape", v.name)
        return self._node("Gather", shape, self._constant(np.int64([axis - len(v.shape) if self.g.opset >= 11 else axis])))

    def _derive(self, name: str, n: int, number: int) -> str:
        """Compute `number` from a size `n`."""
        candidates = [("Add", number - n), ("Sub", n - number)]
        if n and number % n == 0:
            candidates.append(("Mul", number // n))
        if 0 < number <= n:
            candidates.append(("Div", n // number) if n // (n // number) == number else ("Add", number - n))
        if self.g.opset >= 10 and 0 <= number < n - number:
            candidates.append(("Mod", n - number))
        if self.g.opset >= 12:
            candidates.append(("Min" if number <= n else "Max", number))
        if n and number >= 0:
            candidates.append(("Floor", number))
        op, constant = self.g.random.choice(candidates)
        if op in ("Add", "Sub") and constant == 0:
            return name
        if op == "Floor":
            scaled = self._node(
                "Mul", self._node("Cast", name, to=TensorProto.FLOAT), self._constant(F32.type([(constant + 0.5) / n]))
            )
            return self._node("Cast", self._node("Floor", scaled), to=TensorProto.INT64)
        return self._node(op, name, self._constant(np.int64([constant])))

    def _ratios(self, array: Array) -> str:
        """Compute floats as quotients of integers, of which one is a size where that is exact."""
        sizes = [(v, axis) for v in self._shaped_values() for axis in range(len(v.shape)) if v.shape[axis]]
        names = list[str]()
        for ratio in array.reshape(-1):
            exact = [(v, a) for v, a in sizes if ratio * v.shape[a] == round(float(ratio * v.shape[a]))]
            if not exact or self.g.flag():
                names.append(self._constant(F32.type([ratio])))
                continue
            v, axis = self.g.random.choice(exact)
            size = self._size(v, axis)
            new = self._derive(size, v.shape[axis], round(float(ratio * v.shape[axis])))
            names.append(self._node("Div", *(self._node("Cast", n, to=TensorProto.FLOAT) for n in (new, size))))
        return self._concat(names) if array.ndim else self._node("Reshape", names[0], self._constant(np.zeros(0, I64)))


def can_be_computed(array: Array) -> bool:
    return array.ndim < 2 and array.size > 0 and array.dtype in (I32, I64, F32)

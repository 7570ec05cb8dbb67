"""How graphs compute the numbers that shapes hang on: from sizes of what there is, from inputs, and from what data counts.

shape = [6, 35]   ← Concat(Gather(Shape(x), 0) + 1, Cast(Floor(Cast(Gather(Shape(y), 2)) · 2.5)))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from dlc.dialects.dl.base import Array
from tests.fuzz.draws import ANY
from tests.ops.sample import F32, I32, I64

if TYPE_CHECKING:
    from tests.fuzz.random_graph import GraphValue, RandomGraph

# What data counts has so many elements at most.
_MOST_COUNTED = 64


class Numbers:
    """Nodes of `g` that compute one setting; `by_data` if only a call says what it is."""

    def __init__(self, g: RandomGraph) -> None:
        self.g = g
        self.by_data = False

    def made(self, array: Array) -> str:
        """The name of what has these elements."""
        if array.dtype == F32:
            return self._ratios(array)
        whole = array.astype(I64)
        if whole.ndim == 0:
            name = self._node("Reshape", self._element(int(whole)), self._constant(np.zeros(0, I64)))
        else:
            name = self._whole(whole) or self._joined([self._element(int(n)) for n in whole])
        return name if array.dtype == I64 else self._node("Cast", name, to=helper.np_dtype_to_tensor_dtype(array.dtype))

    def _node(self, op: str, *operands: str, **settings: Any) -> str:
        name = f"{self.g.prefix}n{len(self.g.of_settings)}"
        self.g.of_settings.add(name)
        self.g.nodes.append(helper.make_node(op, operands, [name], **settings))
        return name

    def _constant(self, array: Array) -> str:
        return self.g.constant(array).name

    def _joined(self, parts: Sequence[str]) -> str:
        return self._node("Concat", *parts, axis=0) if parts else self._constant(np.zeros(0, I64))

    def _whole(self, array: Array) -> str | None:
        """All elements at once: the shape of something, or an input."""
        like = [v for v in self._measured() if v.shape == tuple(array)]
        if like and self.g.random.random() < 0.7:
            return self._node("Shape", self.g.random.choice(like).name)
        return self._node("Identity", self._given(array)) if self.g.random.random() < 0.1 else None

    def _measured(self) -> list[GraphValue]:
        """What sizes may be read of."""
        return [v for v in self.g.values if v.may_be_read and v.dtype in ANY and v.shape]

    def _given(self, array: Array) -> str:
        self.by_data = True
        return self.g.given(array).name

    def _element(self, number: int) -> str:
        """An array of one number."""
        kind = self.g.random.random()
        # Minus one may stand for something else, which a size that is computed does not.
        if kind < 0.3 or number == -1:
            return self._constant(np.int64([number]))
        if kind < 0.35:
            return self._given(np.int64([number]))
        if kind < 0.45 and 0 <= number <= _MOST_COUNTED and self.g.opset >= 9:
            return self._counted(number)
        sizes = [(v, axis) for v in self._measured() for axis in range(len(v.shape))]
        same = [(v, axis) for v, axis in sizes if v.shape[axis] == number]
        if not sizes:
            return self._constant(np.int64([number]))
        v, axis = self.g.random.choice(same if same and self.g.random.random() < 0.6 else sizes)
        return self._from(self._size(v, axis), v.shape[axis], number)

    def _counted(self, number: int) -> str:
        """How many elements of an input are not zero."""
        self.by_data = True
        flags = np.arange(number + self.g.random.choice([0, 1, 5])) < number
        mask = self.g.given(self.g.numbers.permutation(flags)).name
        if self.g.flag():
            return self._node("ReduceSum", self._node("Cast", mask, to=TensorProto.INT64))
        return self._node("Gather", self._node("Shape", self._node("NonZero", mask)), self._constant(np.int64([1])))

    def _size(self, v: GraphValue, axis: int) -> str:
        if self.g.opset >= 15 and self.g.flag():
            return self._node("Shape", v.name, start=axis, end=axis + 1)
        shape = self._node("Shape", v.name)
        return self._node("Gather", shape, self._constant(np.int64([axis - len(v.shape) if self.g.opset >= 11 else axis])))

    def _from(self, name: str, n: int, number: int) -> str:
        """`number`, computed from a size that is `n`."""
        ways = [("Add", number - n), ("Sub", n - number)]
        if n and number % n == 0:
            ways.append(("Mul", number // n))
        if 0 < number <= n:
            ways.append(("Div", n // number) if n // (n // number) == number else ("Add", number - n))
        if self.g.opset >= 10 and 0 <= number < n - number:
            ways.append(("Mod", n - number))
        if self.g.opset >= 12:
            ways.append(("Min" if number <= n else "Max", number))
        if n and number >= 0:
            ways.append(("Floor", number))
        op, by = self.g.random.choice(ways)
        if op in ("Add", "Sub") and by == 0:
            return name
        if op == "Floor":
            scaled = self._node(
                "Mul", self._node("Cast", name, to=TensorProto.FLOAT), self._constant(F32.type([(by + 0.5) / n]))
            )
            return self._node("Cast", self._node("Floor", scaled), to=TensorProto.INT64)
        return self._node(op, name, self._constant(np.int64([by])))

    def _ratios(self, array: Array) -> str:
        """Floats as quotients of whole numbers, of which one is a size where that is exact."""
        sizes = [(v, axis) for v in self._measured() for axis in range(len(v.shape)) if v.shape[axis]]
        parts = list[str]()
        for ratio in array.reshape(-1):
            exact = [(v, a) for v, a in sizes if ratio * v.shape[a] == round(float(ratio * v.shape[a]))]
            if not exact or self.g.flag():
                parts.append(self._constant(F32.type([ratio])))
                continue
            v, axis = self.g.random.choice(exact)
            size = self._size(v, axis)
            new = self._from(size, v.shape[axis], round(float(ratio * v.shape[axis])))
            parts.append(self._node("Div", *(self._node("Cast", n, to=TensorProto.FLOAT) for n in (new, size))))
        return self._joined(parts) if array.ndim else self._node("Reshape", parts[0], self._constant(np.zeros(0, I64)))


def may_be_computed(array: Array) -> bool:
    return array.ndim < 2 and array.size > 0 and array.dtype in (I32, I64, F32)

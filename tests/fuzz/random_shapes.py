"""Random ONNX graphs of shape operators over inputs with symbolic sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.fuzz.shape_recipes import RECIPES

Array = NDArray[Any]
# The sizes for which a graph is drawn. Two symbols have the same size, so that operators may require them to be equal.
DRAWN_SIZES = {"N": 6, "M": 6, "K": 4, "L": 9}
_STATIC_SIZES = (1, 2, 3, 6)
_OPSET = 18
_MAX_ELEMENTS = 4096


class RandomShapes:
    """The graph of a seed: its ONNX `model`, and the shapes of its inputs as sizes and symbols.

    Operators are drawn for `DRAWN_SIZES`, for which the graph is valid; other sizes may violate what an operator requires.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.values: dict[str, Array] = {}
        self.read: set[str] = set()
        symbols = self.random.sample([*DRAWN_SIZES], self.random.randint(1, 4))
        self.inputs: dict[str, tuple[str | int, ...]] = {}
        for k in range(self.random.randint(1, 3)):
            rank = self.random.choice([1, 2, 2, 3, 4])
            shape = tuple(self.random.choice([*symbols, *symbols, self.random.choice(_STATIC_SIZES)]) for _ in range(rank))
            self.inputs[f"x{k}"] = shape
            self.values[f"x{k}"] = np.ones([DRAWN_SIZES[s] if isinstance(s, str) else s for s in shape], np.float32)
        recipes: list[Callable[[], None]] = [
            *(partial(recipe, self) for recipe in RECIPES), self.add, self.reshape, self.flatten, self.concat, self.split, self.slice, self.pad, self.expand, self.pool,
            self.conv, self.matmul, self.gather, self.transpose, self.reduce, self.tile, self.constant_of_shape, self.top_k,
            self.shape_of, self.einsum, self.scan, self.loop, self.branch, self.select, self.nonzero, self.count,
        ]  # fmt: skip
        for _ in range(100):
            if len(self.nodes) >= 8:
                break
            self.random.choice(recipes)()

    @property
    def model(self) -> ModelProto:
        outputs = [v for v in self.values if v not in self.read and v not in self.inputs] or [[*self.values][-1]]
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in self.inputs.items()]
        weights = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "shapes", inputs, results, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)

    def value(self, condition: Callable[[Array], bool] = lambda _: True) -> str | None:
        """Draw a float value that satisfies a condition; prefer later ones."""
        names = [name for name, array in self.values.items() if array.dtype == np.float32 and condition(array)]
        return None if not names else self.random.choice(names[-3:] if self.random.random() < 0.6 else names)

    def constant(self, array: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array, dtype)
        return name

    def append(
        self, op: str, inputs: Sequence[str], outputs: int = 1, captured: Sequence[str] = (), **attributes: Any
    ) -> Sequence[str] | None:
        """Append a node, unless it is invalid or its results are too large for the drawn sizes; return its results.

        `captured` are the values that its subgraphs read.
        """
        if "" in inputs[:1]:
            return None
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        node = helper.make_node(op, inputs, names, f"{op.lower()}{len(self.nodes)}", **attributes)
        infos = [helper.make_empty_tensor_value_info(name) for name in names]
        known, read = {**self.values, **self.constants}, dict.fromkeys(n for n in (*inputs, *captured) if n)
        graph = helper.make_graph([node], "node", [helper.make_empty_tensor_value_info(n) for n in read], infos)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
        try:
            results = ReferenceEvaluator(model).run(None, {n: known[n] for n in read})
        except Exception:  # onnx.reference raises errors of many types for an invalid node, which is not drawn.
            return None
        arrays = [np.asarray(r) for r in results]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if any(a.size > _MAX_ELEMENTS or a.ndim > 5 for a in arrays):
            return None
        self.nodes.append(node)
        self.read |= {*read}
        self.values |= dict(zip(names, arrays, strict=True))
        return names

    def add(self) -> None:
        a = self.value()
        if a is not None and (b := self.value(lambda x: _broadcasts(x, self.values[a]))) is not None:
            self.append(self.random.choice(["Add", "Mul", "Max"]), [a, b])

    def reshape(self) -> None:
        if (x := self.value(lambda a: a.size > 0)) is None:
            return
        size, choice = self.values[x].size, self.random.random()
        divisors = [d for d in range(1, 13) if size % d == 0]
        first, second = self.random.choice(divisors), self.random.choice(divisors)
        if choice < 0.4:
            shape = self.random.choice([[-1, first], [first, -1], [-1], [0, -1], [-1, 1, first]])
        elif choice < 0.6 and size % (first * second) == 0:
            shape = [first, -1, second]
        else:
            target = self.value(lambda a: a.size == size)
            assert target is not None
            (dims,) = self.append("Shape", [target]) or [""]
            self.append("Reshape", [x, dims])
            return
        self.append("Reshape", [x, self.constant(shape)])

    def flatten(self) -> None:
        if (x := self.value()) is not None:
            self.append("Flatten", [x], axis=self.random.randint(0, self.values[x].ndim))

    def concat(self) -> None:
        if (a := self.value(lambda v: v.ndim > 0)) is None:
            return
        axis, shape = self.random.randrange(self.values[a].ndim), self.values[a].shape
        same = self.value(lambda v: v.ndim == len(shape) and all(n == shape[k] for k, n in enumerate(v.shape) if k != axis))
        assert same is not None
        self.append("Concat", [a, same], axis=axis)

    def split(self) -> None:
        if (x := self.value(lambda v: v.ndim > 0 and max(v.shape) > 1)) is None:
            return
        axis = self.random.choice([k for k, n in enumerate(self.values[x].shape) if n > 1])
        size, parts = self.values[x].shape[axis], self.random.choice([2, 2, 3])
        if self.random.random() < 0.5:
            self.append("Split", [x], parts, axis=axis, num_outputs=parts)
        else:
            first = self.random.randint(0, size)
            self.append("Split", [x, self.constant([first, size - first])], 2, axis=axis)

    def slice(self) -> None:
        if (x := self.value(lambda v: v.ndim > 0)) is None:
            return
        axis = self.random.randrange(self.values[x].ndim)
        start, end = self.random.choice([0, 1, 2, -1, -3, -7]), self.random.choice([1, 3, 5, -1, -2, 1 << 40])
        step = self.random.choice([1, 1, 2, 3, -1])
        start, end = (end, start) if step < 0 else (start, end)
        self.append("Slice", [x, *(self.constant([v]) for v in (start, end, axis, step))])

    def pad(self) -> None:
        if (x := self.value(lambda v: v.ndim > 0)) is None:
            return
        mode = self.random.choice(["constant", "constant", "reflect", "edge", "wrap"])
        lowest = -2 if mode == "constant" else 0
        amounts = [self.random.choice([0, 0, self.random.randint(lowest, 3)]) for _ in range(2 * self.values[x].ndim)]
        self.append("Pad", [x, self.constant(amounts)], mode=mode)

    def expand(self) -> None:
        if (x := self.value()) is None:
            return
        if self.random.random() < 0.5 and (other := self.value(lambda v: _broadcasts(v, self.values[x]))) is not None:
            (dims,) = self.append("Shape", [other]) or [""]
            self.append("Expand", [x, dims])
            return
        shape = [self.random.choice([1, n, n, 3]) if n == 1 else self.random.choice([1, n]) for n in self.values[x].shape]
        self.append("Expand", [x, self.constant([*self.random.choice([[], [2]]), *shape])])

    def pool(self) -> None:
        if (x := self.value(lambda v: v.ndim in (3, 4))) is None:
            return
        rank = self.values[x].ndim - 2
        kernel = [self.random.choice([1, 2, 3]) for _ in range(rank)]
        settings: dict[str, Any] = {"kernel_shape": kernel, "strides": [self.random.choice([1, 2, 3]) for _ in range(rank)]}
        settings["pads"] = [self.random.choice([0, min(1, k - 1)]) for k in kernel] * 2
        self.append(self.random.choice(["MaxPool", "AveragePool"]), [x], **settings)

    def conv(self) -> None:
        if (x := self.value(lambda v: v.ndim in (3, 4))) is None:
            return
        rank, channels = self.values[x].ndim - 2, self.values[x].shape[1]
        kernel = [self.random.choice([1, 2, 3]) for _ in range(rank)]
        weight = self.constant(np.ones((2, channels, *kernel)), np.float32)
        pads = [self.random.choice([0, 1]) for _ in kernel] * 2
        self.append("Conv", [x, weight], strides=[self.random.choice([1, 2]) for _ in kernel], pads=pads)

    def matmul(self) -> None:
        if (a := self.value(lambda v: v.ndim > 1)) is None:
            return
        k = self.values[a].shape[-1]
        b = self.value(lambda v: v.ndim > 1 and v.shape[-2] == k) if self.random.random() < 0.6 else None
        self.append("MatMul", [a, b or self.constant(np.ones((k, 5)), np.float32)])

    def gather(self) -> None:
        if (x := self.value(lambda v: v.ndim > 0 and 0 not in v.shape)) is None:
            return
        axis = self.random.randrange(self.values[x].ndim)
        size = self.values[x].shape[axis]
        index = self.random.choice([0, -1, [0, size - 1], [-size]])
        self.append("Gather", [x, self.constant(index)], axis=axis)

    def transpose(self) -> None:
        if (x := self.value(lambda v: v.ndim > 1)) is not None:
            self.append("Transpose", [x], perm=self.random.sample(range(self.values[x].ndim), self.values[x].ndim))

    def reduce(self) -> None:
        if (x := self.value(lambda v: v.ndim > 0)) is not None:
            axis = self.random.randrange(self.values[x].ndim)
            op = self.random.choice(["ReduceSum", "ReduceMax", "ReduceMean"])
            self.append(op, [x, self.constant([axis])], keepdims=self.random.choice([0, 1]))

    def tile(self) -> None:
        if (x := self.value()) is not None:
            self.append("Tile", [x, self.constant([self.random.choice([1, 1, 2, 3]) for _ in self.values[x].shape])])

    def constant_of_shape(self) -> None:
        """A value whose sizes are computed: differences, quotients and products of an input's sizes."""
        if (x := self.value(lambda v: v.ndim > 0)) is None:
            return
        (dims,) = self.append("Shape", [x]) or [""]
        amount = self.constant([self.random.choice([1, 2, 3, 5])])
        computed = self.append(self.random.choice(["Sub", "Add", "Div", "Mul", "Mod"]), [dims, amount])
        if computed is not None:
            self.append("ConstantOfShape", computed)

    def top_k(self) -> None:
        if (x := self.value(lambda v: v.ndim > 0 and 0 not in v.shape)) is not None:
            axis = self.random.randrange(self.values[x].ndim)
            count = self.random.randint(0, self.values[x].shape[axis])
            self.append("TopK", [x, self.constant([count])], 2, axis=axis)

    def shape_of(self) -> None:
        """A float value from a size: Range up to it."""
        if (x := self.value(lambda v: v.ndim > 0)) is None:
            return
        axis = self.random.randrange(self.values[x].ndim)
        (dims,) = self.append("Shape", [x], start=axis, end=axis + 1) or [""]
        size = self.append("Squeeze", [dims, self.constant([0])])
        last = self.append("Sub", [*(size or []), self.constant(self.random.choice([0, 1, 3]))]) if size else None
        numbers = self.append("Range", [self.constant(0), *last, self.constant(self.random.choice([1, 2]))]) if last else None
        if numbers is not None:
            self.append("Cast", numbers, to=TensorProto.FLOAT)

    def einsum(self) -> None:
        """A contraction, a batched contraction, or a diagonal, of axes of equal size."""
        if (x := self.value(lambda v: 0 < v.ndim < 4)) is None or (y := self.value(lambda v: 0 < v.ndim < 4)) is None:
            return
        letter_of: dict[int, str] = {}
        letters = iter("abcdefg")
        # Equal sizes often have the same letter.
        terms = [
            "".join(
                letter_of.setdefault(n, next(letters)) if self.random.random() < 0.7 else next(letters)
                for n in self.values[name].shape
            )
            for name in (x, y)
        ]
        used = sorted({*"".join(terms)})
        result = "".join(self.random.sample(used, self.random.randint(0, min(len(used), 3))))
        self.append("Einsum", [x, y], equation=f"{','.join(terms)}->{result}")

    def scan(self) -> None:
        """A cumulative sum over an axis, by a loop."""
        if (x := self.value(lambda v: v.ndim > 0 and v.shape[0] > 0)) is None:
            return
        shape = self.values[x].shape[1:]
        if self.random.random() < 0.5 and (y := self.value(lambda v: v.shape == shape)) is not None:
            initial = y
        else:
            initial = self.constant(np.zeros(shape), np.float32)
        add = helper.make_node("Add", ["state", "element"], ["total"])
        copy = helper.make_node("Identity", ["total"], ["collected"])
        infos = [helper.make_empty_tensor_value_info(n) for n in ("state", "element", "total", "collected")]
        body = helper.make_graph([add, copy], "body", infos[:2], infos[2:])
        self.append("Scan", [initial, x], 2, body=body, num_scan_inputs=1, scan_input_directions=[self.random.choice([0, 1])])

    def loop(self) -> None:
        """A loop whose trip count is a constant or a size, or that ends by a condition; it collects a captured value."""
        if (x := self.value(lambda v: 0 < v.size < 200)) is None or (y := self.value(lambda v: v.ndim > 0)) is None:
            return
        if self.random.random() < 0.5:
            limit = self.constant(self.random.choice([0, 1, 3]))
        else:
            size = self.append("Shape", [y], start=0, end=1)
            limit = ((size and self.append("Squeeze", [size[0], self.constant([0])])) or [""])[0]
        nodes = [
            helper.make_node("Add", ["state", x], ["next"]),
            helper.make_node("ReduceMax", ["next"], ["largest"], keepdims=0),
            helper.make_node("Less", ["largest", self.constant(self.random.choice([4, 1000]), np.float32)], ["continues"]),
            helper.make_node("Identity", ["next"], ["collected"]),
        ]
        if self.random.random() < 0.5:
            nodes[1:3] = [helper.make_node("Identity", ["going"], ["continues"])]
        names = ("number", "going", "state", "continues", "next", "collected")
        infos = [helper.make_empty_tensor_value_info(n) for n in names]
        body = helper.make_graph(nodes, "body", infos[:3], infos[3:])
        captured = [x, *(name for node in nodes for name in node.input if name in self.constants)]
        self.append("Loop", [limit, "", x], 2, captured, body=body)

    def branch(self) -> None:
        """A branch on a size or on data, whose results have the same or other shapes."""
        if (x := self.value(lambda v: v.ndim > 0)) is None:
            return
        same = self.value(lambda v: v.ndim == self.values[x].ndim)
        assert same is not None
        if self.random.random() < 0.5:
            size = self.append("Shape", [x], start=0, end=1)
            condition = size and self.append("Greater", [size[0], self.constant([self.random.choice([0, 3, 6])])])
        else:
            total = self.append("ReduceSum", [x], keepdims=0)
            condition = total and self.append("Greater", [total[0], self.constant(0, np.float32)])
        branches: dict[str, Any] = {}
        for key, name in zip(("then_branch", "else_branch"), self.random.sample([x, same], 2), strict=True):
            result = f"{key}_result"
            node = helper.make_node("Neg", [name], [result])
            branches[key] = helper.make_graph([node], key, [], [helper.make_empty_tensor_value_info(result)])
        if condition:
            self.append("If", condition, 1, [x, same], **branches)

    def _mask(self, x: str) -> Sequence[str] | None:
        return self.append("Greater", [x, self.constant(self.random.choice([-1, 0, 2]), np.float32)])

    def select(self) -> None:
        """The rows, or the elements, that a mask selects."""
        if (x := self.value(lambda v: v.ndim > 0)) is None:
            return
        if self.random.random() < 0.5 or self.values[x].ndim == 1:
            mask = self._mask(x)
            flat = mask and self.append("Reshape", [mask[0], self.constant([-1])])
            if flat:
                self.append("Compress", [x, flat[0]])
            return
        sums = self.append("ReduceSum", [x, self.constant([*range(1, self.values[x].ndim)])], keepdims=0)
        mask = sums and self._mask(sums[0])
        if mask:
            self.append("Compress", [x, mask[0]], axis=0)

    def nonzero(self) -> None:
        """The coordinates of nonzero elements, or the elements that they gather."""
        if (x := self.value(lambda v: v.ndim > 0)) is None or not (positions := self.append("NonZero", [x])):
            return
        if self.random.random() < 0.5:
            self.append("Cast", positions, to=TensorProto.FLOAT)
        elif rows := self.append("Gather", [positions[0], self.constant(0)]):
            self.append("Gather", [x, rows[0]])

    def count(self) -> None:
        """Numbers up to a data-dependent limit, which may be below the start; or as many rows of a value."""
        if (x := self.value(lambda v: v.ndim > 0)) is None or not (mask := self._mask(x)):
            return
        numbers = self.append("Cast", mask, to=TensorProto.INT64)
        total = numbers and self.append("ReduceSum", numbers, keepdims=0)
        if not total:
            return
        kind = self.random.choice(["range", "slice", "shape"])
        if kind == "range":
            start, step = self.constant(self.random.choice([0, 1, 5])), self.constant(self.random.choice([1, 2, -1]))
            if result := self.append("Range", [start, total[0], step]):
                self.append("Cast", result, to=TensorProto.FLOAT)
            return
        end = self.append("Reshape", [total[0], self.constant([1])])
        if end and kind == "slice":
            start = self.constant([self.random.choice([0, 1, 5])])
            self.append("Slice", [x, start, end[0], self.constant([0])])
        elif end:
            self.append("ConstantOfShape", end)


def _broadcasts(a: Array, b: Array) -> bool:
    return all(n == m or 1 in (n, m) for n, m in zip(a.shape[::-1], b.shape[::-1], strict=False))

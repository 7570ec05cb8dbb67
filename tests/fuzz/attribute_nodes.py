"""Random ONNX nodes: the cases of `onnx_attributes`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from dlc.dialects.dl.base import Array

# The IR version of models whose opset needs no newer one.
_IR_VERSION = 10
# The versions of other domains.
_VERSIONS = {"com.microsoft": 1, "ai.onnx.ml": 3}
# The accepted relative error of results in half precision, which ONNX Runtime rounds after each step of a formula.
_HALF_TOLERANCE = 1e-2


@dataclass(frozen=True)
class AttributeNode:
    """A node: its attributes, and inputs of which None is absent. Inputs at positions of `constants` are initializers.

    `tolerance` is the accepted error relative to the largest element of a result, 0 for equal elements. Integers may differ by
    `steps`. ONNX does not infer the `result_dtype` of operators of other domains.
    """

    op: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Array | None]
    opset: int
    num_outputs: int = 1
    constants: Sequence[int] = ()
    tolerance: float = 1e-5
    steps: int = 0
    domain: str = ""
    result_dtype: Any = None

    def model(self, results: Sequence[Array] = ()) -> ModelProto:
        """Return a model of the node, with the types of `results` for its outputs if there are any."""
        present = [k for k, x in enumerate(self.inputs) if x is not None]
        names = ["" if x is None else f"x{k}" for k, x in enumerate(self.inputs[: present[-1] + 1])]
        arrays = {name: x for name, x in zip(names, self.inputs, strict=False) if x is not None}
        outputs = [f"y{k}" for k in range(self.num_outputs)]
        node = helper.make_node(self.op, names, outputs, domain=self.domain, **_present(self.attributes))
        constant = {f"x{k}" for k in self.constants}
        declared = (
            TensorProto.UNDEFINED if self.result_dtype is None else helper.np_dtype_to_tensor_dtype(np.dtype(self.result_dtype))
        )
        types = [_type(y) for y in results] or [declared] * self.num_outputs
        graph = helper.make_graph(
            [node],
            "attributes",
            [helper.make_tensor_value_info(n, _type(x), x.shape) for n, x in arrays.items() if n not in constant],
            [helper.make_tensor_value_info(n, t, None) for n, t in zip(outputs, types, strict=True)],
            [numpy_helper.from_array(x, n) for n, x in arrays.items() if n in constant],
        )
        opsets = [
            helper.make_opsetid("", self.opset),
            *([helper.make_opsetid(self.domain, _VERSIONS[self.domain])] if self.domain else []),
        ]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)

    def with_floats(self, dtype: Any) -> AttributeNode:
        """Return this node with its float32 inputs converted to another dtype."""
        inputs = [x if x is None or x.dtype != np.float32 else x.astype(dtype) for x in self.inputs]
        tolerance = self.tolerance if dtype != np.float16 or not self.tolerance else _HALF_TOLERANCE
        result_dtype = dtype if self.result_dtype == np.float32 else self.result_dtype
        return replace(self, inputs=inputs, tolerance=tolerance, result_dtype=result_dtype)

    @property
    def arguments(self) -> dict[str, Array]:
        return {f"x{k}": x for k, x in enumerate(self.inputs) if x is not None and k not in self.constants}

    def __str__(self) -> str:
        inputs = ", ".join("-" if x is None else f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        small = {f"x{k}": x.tolist() for k, x in enumerate(self.inputs) if x is not None and x.size <= 8 and k}
        return f"{self.op}-{self.opset}({inputs}) {dict(_present(self.attributes))} {small}"


def _present(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _type(array: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


@dataclass
class Draw:
    """Random sizes, attributes and arrays of one node."""

    random: random.Random
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.random.getrandbits(32))

    def choice(self, *values: Any) -> Any:
        return self.random.choice(values)

    def maybe(self, value: Any, probability: float = 0.5) -> Any:
        """Return the value, or None for an absent attribute or input."""
        return value if self.random.random() < probability else None

    def flag(self) -> int:
        return self.random.randint(0, 1)

    def size(self, smallest: int = 1, largest: int = 7) -> int:
        return self.random.randint(smallest, largest)

    def shape(self, rank: int, smallest: int = 1, largest: int = 5) -> list[int]:
        return [self.size(smallest, largest) for _ in range(rank)]

    def sizes(self, count: int, *values: int) -> list[int]:
        return [self.random.choice(values) for _ in range(count)]

    def axis(self, rank: int) -> int:
        """Return an axis of a tensor, counted from the first or from the last one."""
        return self.random.randrange(-rank, rank)

    def axes(self, rank: int, smallest: int = 1) -> list[int]:
        """Return some axes, each once, in any order, counted from either end."""
        axes = self.random.sample(range(rank), self.random.randint(min(smallest, rank), rank))
        return [a - rank if self.flag() else a for a in axes]

    def floats(self, shape: Sequence[int], dtype: Any = np.float32, scale: float = 1.0) -> Array:
        return np.asarray(self.rng.standard_normal(tuple(shape)) * scale, dtype)

    def integers(self, shape: Sequence[int], low: int, high: int, dtype: Any = np.int64) -> Array:
        """Return integers from `low` to `high`, both included."""
        return np.asarray(self.rng.integers(low, high, tuple(shape), endpoint=True), dtype)

    def distinct(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        """Return different numbers in random order."""
        count = int(np.prod(shape))
        return (self.rng.permutation(count).reshape(tuple(shape)) - count // 2).astype(dtype)

    def array(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return random elements of any data type."""
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return np.asarray(self.rng.random(tuple(shape)) < 0.5)
        low = 0 if dtype.kind == "u" else -9
        return self.floats(shape, dtype) if dtype.kind == "f" else self.integers(shape, low, 9, dtype)


NodeDraw: TypeAlias = Callable[[Draw], AttributeNode]

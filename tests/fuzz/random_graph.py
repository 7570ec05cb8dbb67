"""Random graphs of ONNX, seeded, and what `onnx.reference` makes of them.

A graph grows node by node (graph_recipes.py), for an opset that dlc reads, from inputs and initializers that are made when a
node wants them. Each node is evaluated at once. Floats of 16 bits go through it as f32 and are rounded then, as they are by
dlc; `onnx.reference` rounds in each step of a formula.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnx.defs import OpSchema, SchemaError, get_schema
from onnx.reference import ReferenceEvaluator

from dlc.dialects.dl.base import Array
from tests.fuzz.draws import ANY, LARGEST_ARRAY, RANKS, Draws, Unsuitable, is_extreme
from tests.ops.sample import F32, is_float

OPSETS = range(7, 29)
_OF_ONNX = {helper.tensor_dtype_to_np_dtype(t): t for t in onnx.TensorProto.DataType.values() if t not in (0, 8)}
_NAMES = {d: "tensor(" + onnx.TensorProto.DataType.Name(_OF_ONNX[d]).lower() + ")" for d in ANY}
# Nodes whose results have a type of their own, not that of the floats that they take.
_CONVERTING = ("BitCast", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear")
# Nodes that read no elements of inputs.
_OF_NO_ELEMENTS = ("ConstantOfShape", "EyeLike", "Range", "Shape", "Size")


@dataclass(eq=False)
class GraphValue:
    """A tensor of the graph with its elements; `exact` if nothing computes it.

    `apart` is how far `onnx.reference` may be from it besides; such a tensor is not read again.
    """

    name: str
    array: Array
    exact: bool
    apart: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def may_be_read(self) -> bool:
        return not self.apart


def is_finite(array: Array) -> bool:
    """Whether every element is a finite number."""
    return bool(np.isfinite(array.astype(np.float64)).all())


class RandomGraph(Draws[GraphValue]):
    """The graph of a seed: `model`, its `inputs`, and what its `results` should be.

    In the `open_model` what may be an input is one, the `open_inputs`: nothing is folded there that errors hang on.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.opset = self.random.choice((self.random.choice(OPSETS), self.random.randint(13, 22)))
        self.nodes: list[NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.weights: dict[str, Array] = {}
        self.settings: dict[str, Array] = {}

    @property
    def made(self) -> list[GraphValue]:
        return [v for v in self.values if not v.exact]

    @property
    def results(self) -> list[GraphValue]:
        """What nothing else reads."""
        read = {name for node in self.nodes for name in node.input}
        return [v for v in self.made if v.name not in read]

    @property
    def model(self) -> ModelProto:
        return _model(self.nodes, self.inputs, [v.name for v in self.results], self.weights | self.settings, self.opset)

    @property
    def open_model(self) -> ModelProto:
        nodes = [n for n in self.nodes if n.op_type not in _OF_NO_ELEMENTS]
        return _model(nodes, self.open_inputs, [v.name for v in self.results], self.settings, self.opset)

    @property
    def open_inputs(self) -> dict[str, Array]:
        known = {name for n in self.nodes if n.op_type in _OF_NO_ELEMENTS for name in n.output}
        return self.inputs | self.weights | {v.name: v.array for v in self.made if v.name in known}

    # Values

    def fresh(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> GraphValue:
        return self.given(self.numbers_of(dtype, shape, scale))

    def given(self, array: Array) -> GraphValue:
        """An input or an initializer with these elements."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        where = self.weights if self.random.random() < 0.3 and not is_extreme(array) else self.inputs
        self.values.append(GraphValue(f"x{len(self.weights) + len(self.inputs)}", array, True))
        where[self.values[-1].name] = array
        return self.values[-1]

    def tame(
        self, dtype: np.dtype, suits: Callable[[tuple[int, ...]], bool] = lambda s: True, ranks: Sequence[int] = RANKS
    ) -> GraphValue:
        """A value that all is small of, whole or not."""
        x = self.any([dtype], suits, ranks)
        with np.errstate(all="ignore"):
            is_tame = bool((np.abs(x.array.astype(np.float64)) < 1e4).all())
        return x if is_tame else self.given((self.numbers.standard_normal(x.shape) * 3).astype(dtype))

    def without_nan(self, x: GraphValue) -> GraphValue:
        """This value, or one of its shape and dtype without NaN."""
        nan = is_float(x.dtype) and np.isnan(x.array.astype(np.float64)).any()
        return self.given(self.numbers.standard_normal(x.shape).astype(x.dtype)) if nan else x

    def finite(self, x: GraphValue) -> GraphValue:
        """This value, or one of its shape and dtype with finite elements."""
        return x if is_finite(x.array) else self.given(self.numbers.standard_normal(x.shape).astype(x.dtype))

    def constant(self, array: Array) -> GraphValue:
        """An initializer that one node takes, of what must be known when the graph is read."""
        name = f"c{len(self.settings)}"
        self.settings[name] = array
        return GraphValue(name, array, True)

    # Operators

    def schema(self, op: str) -> OpSchema:
        """An operator as the graph's opset has it."""
        try:
            schema = get_schema(op, self.opset)
        except SchemaError:
            raise Unsuitable from None
        if schema.deprecated:
            raise Unsuitable
        return schema

    def types_of(self, op: str, operand: int = 0) -> tuple[np.dtype, ...]:
        """What an operand of it may be of."""
        allowed = self.schema(op).inputs[operand].types
        return tuple(d for d in ANY if _NAMES[d] in allowed)

    def add(
        self,
        op: str,
        *operands: GraphValue | None,
        results: int = 1,
        apart: float = 0.0,
        accepted: Callable[[Array], bool] = lambda result: True,
        **settings: Any,
    ) -> GraphValue:
        """The first result of a new node; `settings` are attributes, or operands of these names where the opset has those.

        Raises Unsuitable, and adds nothing, where it has neither, or `onnx.reference` does not compute it as it should.
        """
        schema = self.schema(op)
        taken = [*operands]
        attributes = dict[str, Any]()
        constants = list[GraphValue]()
        for name, setting in settings.items():
            place = next((k for k, formal in enumerate(schema.inputs) if formal.name == name), None)
            if name in schema.attributes:
                attributes[name] = setting
            elif place is not None:
                constants.append(self.constant(np.asarray(setting)))
                taken += [None] * (place + 1 - len(taken))
                taken[place] = constants[-1]
            else:
                raise Unsuitable
        names = [f"{op.lower()}{len(self.nodes)}_{k}" for k in range(results)]
        node = helper.make_node(op, [v.name if v is not None else "" for v in taken], names, **attributes)
        arrays = evaluated(node, {v.name: v.array for v in taken if v is not None}, self.opset)
        if arrays is None or any(a.size > LARGEST_ARRAY for a in arrays) or not accepted(arrays[0]):
            raise Unsuitable
        self.nodes.append(node)
        made = [GraphValue(name, array, False, apart) for name, array in zip(names, arrays, strict=True)]
        self.values += made
        return made[0]

    def define(
        self, op: str, domain: str, operands: Sequence[GraphValue | None], array: Array, **attributes: Any
    ) -> GraphValue:
        """The result of a new node of another domain, of which `onnx.reference` knows nothing."""
        names = [v.name if v is not None else "" for v in operands]
        name = f"{op.lower()}{len(self.nodes)}_0"
        self.nodes.append(helper.make_node(op, names, [name], domain=domain, **attributes))
        self.values.append(GraphValue(name, array, False))
        return self.values[-1]


def evaluated(node: NodeProto, operands: dict[str, Array], opset: int) -> list[Array] | None:
    """What `onnx.reference` makes of a node; None if it does nothing with it."""
    narrow = next((x.dtype for x in operands.values() if is_float(x.dtype) and x.dtype.itemsize == 2), None)
    widened = narrow is not None and node.op_type not in _CONVERTING
    given = {n: x.astype(F32) if widened and x.dtype == narrow else x for n, x in operands.items()}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(_model([node], given, node.output, {}, opset))
            results = [np.asarray(r) for r in evaluator.run(None, given)]
            if widened:
                results = [r.astype(narrow) if r.dtype == F32 else r for r in results]
    except Exception:
        return None
    return None if any(r.dtype not in ANY for r in results) else results


def _model(
    nodes: Sequence[NodeProto], inputs: dict[str, Array], outputs: Sequence[str], weights: dict[str, Array], opset: int
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info(n, _OF_ONNX[x.dtype], x.shape) for n, x in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    others = sorted({node.domain for node in nodes if node.domain})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in others)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)

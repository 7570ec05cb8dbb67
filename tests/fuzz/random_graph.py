"""Random graphs of ONNX, seeded, and what `onnx.reference` makes of them.

A graph grows node by node (graph_recipes.py), for an opset that dlc reads, from inputs and initializers that are made when a
node wants them. Each node is evaluated at once. Floats of 16 bits go through it as f32 and are rounded then, as they are by
dlc; `onnx.reference` rounds in each step of a formula.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, ModelProto, NodeProto, helper, numpy_helper
from onnx.defs import OpSchema, SchemaError, get_schema
from onnx.reference import ReferenceEvaluator

from dlc.dialects.dl.base import Array
from tests.fuzz.draws import ANY, LARGEST_ARRAY, RANKS, Draws, Unsuitable, is_extreme
from tests.fuzz.graph_numbers import Numbers, may_be_computed
from tests.ops.sample import F32, is_float

OPSETS = range(7, 29)
OF_ONNX = {helper.tensor_dtype_to_np_dtype(t): t for t in onnx.TensorProto.DataType.values() if t}
# Text is an array of Python's.
TEXT = np.dtype(object)
_NAMES = {d: "tensor(" + onnx.TensorProto.DataType.Name(OF_ONNX[d]).lower() + ")" for d in ANY}
# The domain of the functions that a model brings along.
FUNCTIONS = "random"
# How many bodies may be within one another.
DEPTH = 2
# Nodes whose results have a type of their own, not that of the floats that they take.
_CONVERTING = ("BitCast", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear")
# Nodes that read no elements of inputs.
_OF_NO_ELEMENTS = ("ConstantOfShape", "EyeLike", "Range", "Shape", "Size")
# Operands that shapes hang on, which a graph may compute.
_SHAPING = ("K", "depth", "ends", "k", "pads", "repeats", "scales", "shape", "sizes", "split", "starts", "steps")


@dataclass(eq=False)
class GraphValue:
    """A tensor of the graph with its elements; `exact` if nothing computes it.

    `apart` is how far `onnx.reference` may be from it besides; such a tensor is not read again, and one whose sizes are
    `by_data` is not: what has sizes of the same number need not fit it, as far as one knows when the graph is read.
    """

    name: str
    array: Array
    exact: bool
    apart: float = 0.0
    by_data: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def may_be_read(self) -> bool:
        return not (self.apart or self.by_data)


def is_finite(array: Array) -> bool:
    """Whether every element is a finite number."""
    return bool(np.isfinite(array.astype(np.float64)).all())


class RandomGraph(Draws[GraphValue]):
    """The graph of a seed: `model`, its `inputs`, and what its `results` should be; its weights are in a file if `external`.

    In the `open_model` what may be an input is one, the `open_inputs`: nothing is folded there that errors hang on.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.opset = self.random.choice((self.random.choice(OPSETS), self.random.randint(13, 22)))
        self.external = self.random.random() < 0.1
        # The sizes of inputs that are left open, equal ones by one name.
        self.open_sizes = {n for n in range(64) if self.random.random() < 0.5} if self.random.random() < 0.3 else set[int]()
        # Whether inputs come as a sequence, and results go as one.
        self.in_sequences = False
        # What a step may draw: operators with their recipes.
        self.recipes: Sequence[tuple[str, Callable[[Any, str], object]]] = ()
        self.prefix, self.depth, self.bodies = "", DEPTH, 0
        self.functions: list[FunctionProto] = []
        # The weights in bodies, which may be inputs as well: names are of one graph.
        self.in_bodies: dict[str, Array] = {}
        self.nodes: list[NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.weights: dict[str, Array] = {}
        self.settings: dict[str, Array] = {}
        # Settings that nodes compute, and what all of these nodes make.
        self.computed: dict[str, Array] = {}
        self.of_settings = set[str]()
        self.how_often_computed = self.random.choice([0, 0.5, 0.9] if self.open_sizes else [0, 0, 0, 0.5])

    @property
    def made(self) -> list[GraphValue]:
        return [v for v in self.values if not v.exact]

    @property
    def results(self) -> list[GraphValue]:
        """What nothing else reads."""
        read = {name for node in all_nodes(self.nodes) if node.output[0] not in self.of_settings for name in node.input}
        return [v for v in self.made if v.name not in read]

    @property
    def model(self) -> ModelProto:
        return self._model(self.nodes, self.inputs, self.weights | self.settings, self.open_sizes)

    @property
    def open_model(self) -> ModelProto:
        nodes = [n for n in self.nodes if n.op_type not in _OF_NO_ELEMENTS and n.output[0] not in self.of_settings]
        stripped = [_without_weights(n, self.in_bodies) for n in nodes]
        return self._model(stripped, self.open_inputs, self.settings | self.computed)

    def _model(
        self, nodes: Sequence[NodeProto], inputs: dict[str, Array], weights: dict[str, Array], open_sizes: Container[int] = ()
    ) -> ModelProto:
        return model_of(nodes, inputs, [v.name for v in self.results], weights, self.opset, self.functions, open_sizes)

    @property
    def open_inputs(self) -> dict[str, Array]:
        known = {name for n in self.nodes if n.op_type in _OF_NO_ELEMENTS for name in n.output}
        return self.inputs | self.weights | self.in_bodies | {v.name: v.array for v in self.made if v.name in known}

    @property
    def has_text(self) -> bool:
        return any(v.dtype == TEXT for v in self.values)

    def step(self) -> None:
        """A node of any of the recipes."""
        if not self.recipes:
            raise Unsuitable
        op, recipe = self.random.choice(self.recipes)
        recipe(self, op)

    # Values

    def fresh(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> GraphValue:
        return self.given(self.numbers_of(dtype, shape, scale))

    def given(self, array: Array) -> GraphValue:
        """An input or an initializer with these elements."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        where = self.weights if self.random.random() < 0.3 and not is_extreme(array) else self.inputs
        self.values.append(GraphValue(f"{self.prefix}x{len(self.weights) + len(self.inputs)}", array, True))
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
        name = f"{self.prefix}c{len(self.settings)}"
        self.settings[name] = array
        return GraphValue(name, array, True)

    def setting(self, array: Array) -> GraphValue:
        """What shapes hang on: a constant, or computed from the sizes that there are, from inputs or from data."""
        if may_be_computed(array) and self.random.random() < self.how_often_computed:
            return self.computed_setting(array)
        return self.constant(array)

    def computed_setting(self, array: Array) -> GraphValue:
        numbers = Numbers(self)
        name = numbers.made(array)
        self.computed[name] = array
        return GraphValue(name, array, True, by_data=numbers.by_data)

    def is_known(self, value: GraphValue) -> bool:
        """Whether what a setting is can be said when the graph is read, but for sizes that are open."""
        return value.name in self.settings or (value.name in self.computed and not value.by_data)

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
        by_data: bool = False,
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
                made = self.setting if name in _SHAPING else self.constant
                constants.append(made(np.asarray(setting)))
                taken += [None] * (place + 1 - len(taken))
                taken[place] = constants[-1]
            else:
                raise Unsuitable
        names = self.names(op, results)
        node = helper.make_node(op, [v.name if v is not None else "" for v in taken], names, **attributes)
        arrays = evaluated([node], {v.name: v.array for v in taken if v is not None}, names, self.opset)
        if arrays is None or not accepted(arrays[0]):
            raise Unsuitable
        by_data |= any(v is not None and v.by_data for v in taken)
        return self.insert([node], arrays, apart, range(results) if by_data else ())

    def names(self, op: str, count: int = 1) -> list[str]:
        """Names for the results of the next node."""
        return [f"{self.prefix}{op.lower()}{len(self.nodes)}_{k}" for k in range(count)]

    def insert(
        self, nodes: Sequence[NodeProto], arrays: Sequence[Array], apart: float = 0.0, by_data: Container[int] = ()
    ) -> GraphValue:
        """The first result of new nodes, of which the last has results with these elements.

        Of those at the places in `by_data` the sizes are.
        """
        if any(a.size > LARGEST_ARRAY for a in arrays):
            raise Unsuitable
        self.nodes += nodes
        named = enumerate(zip(nodes[-1].output, arrays, strict=True))
        made = [GraphValue(name, array, False, apart, k in by_data) for k, (name, array) in named]
        self.values += made
        return made[0]

    def define(
        self, op: str, domain: str, operands: Sequence[GraphValue | None], array: Array, **attributes: Any
    ) -> GraphValue:
        """The result of a new node of another domain, of which `onnx.reference` knows nothing."""
        names = [v.name if v is not None else "" for v in operands]
        return self.insert([helper.make_node(op, names, self.names(op), domain=domain, **attributes)], [array])


def _without_weights(node: NodeProto, names: Container[str]) -> NodeProto:
    """The node without initializers of these names in its bodies."""
    stripped = NodeProto()
    stripped.CopyFrom(node)
    for attribute in stripped.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            kept = [w for w in attribute.g.initializer if w.name not in names]
            within = [_without_weights(n, names) for n in attribute.g.node]
            del attribute.g.initializer[:], attribute.g.node[:]
            attribute.g.initializer.extend(kept)
            attribute.g.node.extend(within)
    return stripped


def evaluated(nodes: Sequence[NodeProto], operands: dict[str, Array], results: Sequence[str], opset: int) -> list[Array] | None:
    """What `onnx.reference` makes of nodes; None if it does nothing with them."""
    narrow = next((x.dtype for x in operands.values() if is_float(x.dtype) and x.dtype.itemsize == 2), None)
    widened = narrow is not None and not any(node.op_type in _CONVERTING for node in nodes)
    given = {n: x.astype(F32) if widened and x.dtype == narrow else x for n, x in operands.items()}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(model_of(nodes, given, results, {}, opset))
            arrays = [np.asarray(r) for r in evaluator.run(None, given)]
            if widened:
                arrays = [a.astype(narrow) if a.dtype == F32 else a for a in arrays]
            arrays = [a.astype(TEXT) if a.dtype.kind == "U" else a for a in arrays]
    except Exception:
        return None
    return None if any(a.dtype not in (*ANY, TEXT) for a in arrays) else arrays


def model_of(
    nodes: Sequence[NodeProto],
    inputs: dict[str, Array],
    outputs: Sequence[str],
    weights: dict[str, Array],
    opset: int,
    functions: Sequence[FunctionProto] = (),
    open_sizes: Container[int] = (),
) -> ModelProto:
    """A model of these nodes; inputs have the types of their arrays, but for sizes that are left open."""
    shapes = {n: [f"n{size}" if size in open_sizes else size for size in x.shape] for n, x in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info(n, OF_ONNX[x.dtype], shapes[n]) for n, x in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=opsets_of(nodes, opset), ir_version=10, functions=functions)


def opsets_of(nodes: Sequence[NodeProto], opset: int) -> list[onnx.OperatorSetIdProto]:
    """The versions of what nodes, and bodies in them, are of."""
    others = sorted({node.domain for node in all_nodes(nodes) if node.domain})
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in others)]


def all_nodes(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of bodies in them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g.node)

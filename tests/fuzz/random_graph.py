"""Random ONNX graphs, and their expected results by `onnx.reference`.

A graph grows node by node (graph_recipes.py), for any supported opset; inputs and initializers are created when a node needs
them. Each node is evaluated at once. Half precision is evaluated in f32 and rounded at the end of each node, as in dlc, since
`onnx.reference` rounds after each step of a formula.
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
from dlc.testing.sample import F32, is_float
from tests.fuzz.graph_shape_operands import ShapeOperandBuilder, can_be_computed
from tests.fuzz.random_values import ANY, MAX_ELEMENTS, RANKS, RandomBuilder, Unsuitable, is_extreme

OPSETS = range(7, 29)
ONNX_TYPE = {helper.tensor_dtype_to_np_dtype(t): t for t in onnx.TensorProto.DataType.values() if t}
# Strings are arrays of Python objects.
STRING = np.dtype(object)
_NAMES = {d: "tensor(" + onnx.TensorProto.DataType.Name(ONNX_TYPE[d]).lower() + ")" for d in ANY}
# The domain of model functions.
FUNCTION_DOMAIN = "random"
# The maximal nesting of subgraphs.
MAX_BODY_DEPTH = 2
# Nodes whose result type is not that of their float operands.
_CONVERSION_OPS = ("BitCast", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear")
# Nodes that do not read elements of their inputs.
_SHAPE_ONLY_OPS = ("ConstantOfShape", "EyeLike", "Range", "Shape", "Size")
# Operands that determine shapes, which a graph may compute.
_SHAPE_OPERANDS = ("K", "depth", "ends", "k", "pads", "repeats", "scales", "shape", "sizes", "split", "starts", "steps")


@dataclass(eq=False)
class GraphValue:
    """A tensor of the graph with its elements; `exact` if no node computes it.

    `tolerance` is a further allowed difference from `onnx.reference`. A value with a tolerance, or of data-dependent size, is not
    read by later nodes: import does not know whether a data-dependent size matches another size.
    """

    name: str
    array: Array
    exact: bool
    tolerance: float = 0.0
    data_dependent: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def is_readable(self) -> bool:
        return not (self.tolerance or self.data_dependent)


def is_finite(array: Array) -> bool:
    """Return whether every element is finite."""
    return bool(np.isfinite(array.astype(np.float64)).all())


class RandomGraph(RandomBuilder[GraphValue]):
    """The graph of a seed: its `model`, its `inputs` and expected `results`; weights are in a separate file if `external`.

    In the `unfolded_model`, everything that may be an input is one (`unfolded_inputs`), so that values with errors are not folded.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.opset = self.random.choice((self.random.choice(OPSETS), self.random.randint(13, 22)))
        self.external = self.random.random() < 0.1
        # The sizes that are symbolic in inputs; equal sizes share a symbol.
        self.symbolic_sizes = {n for n in range(64) if self.random.random() < 0.5} if self.random.random() < 0.3 else set[int]()
        # Whether some inputs and results are sequences.
        self.has_sequence_io = False
        # The operators that a step may draw, with their recipes.
        self.recipes: Sequence[tuple[str, Callable[[Any, str], object]]] = ()
        self.prefix, self.depth, self.bodies = "", MAX_BODY_DEPTH, 0
        self.functions: list[FunctionProto] = []
        # The initializers of subgraphs; their names are unique in the whole graph, so that they may become inputs.
        self.body_initializers: dict[str, Array] = {}
        self.nodes: list[NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.weights: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        # Shape operands that nodes compute, and the results of all these nodes.
        self.computed: dict[str, Array] = {}
        self.shape_node_results = set[str]()
        self.computed_probability = self.random.choice([0, 0.5, 0.9] if self.symbolic_sizes else [0, 0, 0, 0.5])

    @property
    def op_results(self) -> list[GraphValue]:
        return [v for v in self.values if not v.exact]

    @property
    def results(self) -> list[GraphValue]:
        """The values that no other node reads."""
        used = {name for node in all_nodes(self.nodes) if node.output[0] not in self.shape_node_results for name in node.input}
        return [v for v in self.op_results if v.name not in used]

    @property
    def model(self) -> ModelProto:
        return self._model(self.nodes, self.inputs, self.weights | self.constants, self.symbolic_sizes)

    @property
    def unfolded_model(self) -> ModelProto:
        nodes = [n for n in self.nodes if n.op_type not in _SHAPE_ONLY_OPS and n.output[0] not in self.shape_node_results]
        stripped = [_without_weights(n, self.body_initializers) for n in nodes]
        return self._model(stripped, self.unfolded_inputs, self.constants | self.computed)

    def _model(
        self,
        nodes: Sequence[NodeProto],
        inputs: dict[str, Array],
        weights: dict[str, Array],
        symbolic_sizes: Container[int] = (),
    ) -> ModelProto:
        return model_of(nodes, inputs, [v.name for v in self.results], weights, self.opset, self.functions, symbolic_sizes)

    @property
    def unfolded_inputs(self) -> dict[str, Array]:
        shape_only = {name for n in self.nodes if n.op_type in _SHAPE_ONLY_OPS for name in n.output}
        return (
            self.inputs
            | self.weights
            | self.body_initializers
            | {v.name: v.array for v in self.op_results if v.name in shape_only}
        )

    @property
    def has_strings(self) -> bool:
        return any(v.dtype == STRING for v in self.values)

    def step(self) -> None:
        """Add a node by a random recipe."""
        if not self.recipes:
            raise Unsuitable
        op, recipe = self.random.choice(self.recipes)
        recipe(self, op)

    # Values

    def fresh(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> GraphValue:
        return self.source(self.random_array(dtype, shape, scale))

    def source(self, array: Array) -> GraphValue:
        """Add an input or an initializer with these elements."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        store = self.weights if self.random.random() < 0.3 and not is_extreme(array) else self.inputs
        self.values.append(GraphValue(f"{self.prefix}x{len(self.weights) + len(self.inputs)}", array, True))
        store[self.values[-1].name] = array
        return self.values[-1]

    def tame(
        self, dtype: np.dtype, suits: Callable[[tuple[int, ...]], bool] = lambda s: True, ranks: Sequence[int] = RANKS
    ) -> GraphValue:
        """Return a value of small magnitude."""
        x = self.any([dtype], suits, ranks)
        with np.errstate(all="ignore"):
            is_tame = bool((np.abs(x.array.astype(np.float64)) < 1e4).all())
        return x if is_tame else self.source((self.rng.standard_normal(x.shape) * 3).astype(dtype))

    def without_nan(self, x: GraphValue) -> GraphValue:
        """Return this value, or one with its shape and dtype without NaN."""
        nan = is_float(x.dtype) and np.isnan(x.array.astype(np.float64)).any()
        return self.source(self.rng.standard_normal(x.shape).astype(x.dtype)) if nan else x

    def finite(self, x: GraphValue) -> GraphValue:
        """Return this value, or one with its shape and dtype and finite elements."""
        return x if is_finite(x.array) else self.source(self.rng.standard_normal(x.shape).astype(x.dtype))

    def constant(self, array: Array) -> GraphValue:
        """Add an initializer for an operand that must be known at import."""
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants[name] = array
        return GraphValue(name, array, True)

    def shape_operand(self, array: Array) -> GraphValue:
        """Return an operand that determines shapes: a constant, or computed from sizes, inputs or data."""
        if can_be_computed(array) and self.random.random() < self.computed_probability:
            return self.computed_shape_operand(array)
        return self.constant(array)

    def computed_shape_operand(self, array: Array) -> GraphValue:
        builder = ShapeOperandBuilder(self)
        name = builder.build(array)
        self.computed[name] = array
        return GraphValue(name, array, True, data_dependent=builder.data_dependent)

    def is_static(self, value: GraphValue) -> bool:
        """Return whether a shape operand is known at import, up to symbolic sizes."""
        return value.name in self.constants or (value.name in self.computed and not value.data_dependent)

    # Operators

    def schema(self, op: str) -> OpSchema:
        """Return the schema of an operator in the graph's opset; raise Unsuitable if there is none."""
        try:
            schema = get_schema(op, self.opset)
        except SchemaError:
            raise Unsuitable from None
        if schema.deprecated:
            raise Unsuitable
        return schema

    def types_of(self, op: str, operand: int = 0) -> tuple[np.dtype, ...]:
        """Return the supported dtypes of an operand."""
        allowed = self.schema(op).inputs[operand].types
        return tuple(d for d in ANY if _NAMES[d] in allowed)

    def add(
        self,
        op: str,
        *operands: GraphValue | None,
        results: int = 1,
        tolerance: float = 0.0,
        data_dependent: bool = False,
        accepted: Callable[[Array], bool] = lambda result: True,
        **settings: Any,
    ) -> GraphValue:
        """Add a node and return its first result; `settings` are attributes, or operands of these names, as the opset defines.

        Raises Unsuitable, and adds nothing, if the opset has neither, or `onnx.reference` fails or gives a rejected result.
        """
        schema = self.schema(op)
        arguments = [*operands]
        attributes = dict[str, Any]()
        constants = list[GraphValue]()
        for name, shape_operand in settings.items():
            position = next((k for k, formal in enumerate(schema.inputs) if formal.name == name), None)
            if name in schema.attributes:
                attributes[name] = shape_operand
            elif position is not None:
                make_operand = self.shape_operand if name in _SHAPE_OPERANDS else self.constant
                constants.append(make_operand(np.asarray(shape_operand)))
                arguments += [None] * (position + 1 - len(arguments))
                arguments[position] = constants[-1]
            else:
                raise Unsuitable
        names = self.names(op, results)
        node = helper.make_node(op, [v.name if v is not None else "" for v in arguments], names, **attributes)
        arrays = evaluate_nodes([node], {v.name: v.array for v in arguments if v is not None}, names, self.opset)
        if arrays is None or not accepted(arrays[0]):
            raise Unsuitable
        data_dependent |= any(v is not None and v.data_dependent for v in arguments)
        return self.insert([node], arrays, tolerance, range(results) if data_dependent else ())

    def names(self, op: str, count: int = 1) -> list[str]:
        """Return names for the results of the next node."""
        return [f"{self.prefix}{op.lower()}{len(self.nodes)}_{k}" for k in range(count)]

    def insert(
        self, nodes: Sequence[NodeProto], arrays: Sequence[Array], tolerance: float = 0.0, data_dependent: Container[int] = ()
    ) -> GraphValue:
        """Add nodes and return the first result of the last one, whose results have these elements.

        The results at the positions in `data_dependent` have data-dependent sizes.
        """
        if any(a.size > MAX_ELEMENTS for a in arrays):
            raise Unsuitable
        self.nodes += nodes
        named = enumerate(zip(nodes[-1].output, arrays, strict=True))
        results = [GraphValue(name, array, False, tolerance, k in data_dependent) for k, (name, array) in named]
        self.values += results
        return results[0]

    def define(
        self, op: str, domain: str, operands: Sequence[GraphValue | None], array: Array, **attributes: Any
    ) -> GraphValue:
        """Add a node of another domain, which `onnx.reference` does not know, with this result."""
        names = [v.name if v is not None else "" for v in operands]
        return self.insert([helper.make_node(op, names, self.names(op), domain=domain, **attributes)], [array])


def _without_weights(node: NodeProto, names: Container[str]) -> NodeProto:
    """Return the node without the initializers of these names in its subgraphs."""
    stripped = NodeProto()
    stripped.CopyFrom(node)
    for attribute in stripped.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            initializers = [w for w in attribute.g.initializer if w.name not in names]
            nested = [_without_weights(n, names) for n in attribute.g.node]
            del attribute.g.initializer[:], attribute.g.node[:]
            attribute.g.initializer.extend(initializers)
            attribute.g.node.extend(nested)
    return stripped


def evaluate_nodes(
    nodes: Sequence[NodeProto], operands: dict[str, Array], results: Sequence[str], opset: int
) -> list[Array] | None:
    """Evaluate nodes with `onnx.reference`; None if it fails."""
    narrow = next((x.dtype for x in operands.values() if is_float(x.dtype) and x.dtype.itemsize == 2), None)
    widened = narrow is not None and not any(node.op_type in _CONVERSION_OPS for node in nodes)
    feeds = {n: x.astype(F32) if widened and x.dtype == narrow else x for n, x in operands.items()}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(model_of(nodes, feeds, results, {}, opset))
            arrays = [np.asarray(r) for r in evaluator.run(None, feeds)]
            if widened:
                arrays = [a.astype(narrow) if a.dtype == F32 else a for a in arrays]
            arrays = [a.astype(STRING) if a.dtype.kind == "U" else a for a in arrays]
    except Exception:
        return None
    return None if any(a.dtype not in (*ANY, STRING) for a in arrays) else arrays


def model_of(
    nodes: Sequence[NodeProto],
    inputs: dict[str, Array],
    outputs: Sequence[str],
    weights: dict[str, Array],
    opset: int,
    functions: Sequence[FunctionProto] = (),
    symbolic_sizes: Container[int] = (),
) -> ModelProto:
    """Return a model of these nodes; inputs have the types of their arrays, except for symbolic sizes."""
    shapes = {n: [f"n{size}" if size in symbolic_sizes else size for size in x.shape] for n, x in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info(n, ONNX_TYPE[x.dtype], shapes[n]) for n, x in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=opsets_of(nodes, opset), ir_version=10, functions=functions)


def opsets_of(nodes: Sequence[NodeProto], opset: int) -> list[onnx.OperatorSetIdProto]:
    """Return the opset imports of nodes and their subgraphs."""
    others = sorted({node.domain for node in all_nodes(nodes) if node.domain})
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in others)]


def all_nodes(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g.node)


# Adds a node of an operator, with matching operands, and returns its result.
Recipe = Callable[[RandomGraph, str], GraphValue]


def has_axes(shape: tuple[int, ...]) -> bool:
    return len(shape) > 0
